"""Scoring on a real Ray cluster: two nodes on this machine, started for this file and stopped after it."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.db.engine import Database
from app.queue.executors import TaskFailed
from app.queue.executors.on_ray import OnRay
from tests.app.conftest import Service
from tests.app.rankings.test_rankings import rank, trained
from tests.app.rankings.test_replays import label, replay
from tests.app.working import on_sqlite

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    from ray.cluster_utils import Cluster

    here = str(Path(__file__).parents[3])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = here if before is None else f"{here}{os.pathsep}{before}"
    node = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        cluster.add_node(**node)
        cluster.wait_for_nodes()
        yield cluster.address
    finally:
        ray.shutdown()
        cluster.shutdown()
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def note_node(task: dict[str, Any], tell: Any) -> None:
    time.sleep(0.5)  # so that no actor can do all of it
    Path(task["path"]).write_text(ray.get_runtime_context().get_node_id())


def test_tasks_run_on_both_nodes_and_the_actors_are_given_back(address: str, tmp_path: Path) -> None:
    tasks = [{"n_rows": 10, "path": str(tmp_path / str(i))} for i in range(6)]
    told: list[int] = []
    OnRay(address).run("tests.app.queue.test_ray:note_node", tasks, told.append)
    assert len({path.read_text() for path in tmp_path.iterdir()}) == 2
    assert len(list(tmp_path.iterdir())) == 6
    assert told[-1] == 60
    assert told == sorted(told)
    OnRay(address).run("tests.app.queue.test_ray:note_node", tasks[:1], told.append)  # there are processors left


def test_what_fails_in_the_cluster_is_told_here(address: str) -> None:
    with pytest.raises(TaskFailed, match="row 3 has the score nan") as failure:
        OnRay(address).run("tests.app.rankings.test_rankings:unable", [{"n_rows": 1}] * 2, lambda _: None)
    assert failure.value.is_final
    with pytest.raises(TaskFailed, match="Ray cluster failed") as death:
        OnRay(address).run("tests.app.rankings.test_rankings:die", [{"n_rows": 1}] * 2, lambda _: None)
    assert not death.value.is_final


@on_sqlite
def test_a_ranking_on_ray_is_the_ranking_made_here(address: str, database: Database, make_service: Any) -> None:
    service: Service = make_service(database, shard_bytes=1, split_shards=0)
    project, pool_id = trained(service)
    wanted = {"acquisition": {"name": "bald"}, "selection": {"name": "power"}, "k": 20, "seed": 4}
    inline = rank(service, pool_id, **wanted)
    service.services.objects.delete_prefix("scores")
    service.services.settings.executor = "ray"
    service.services.settings.ray_address = address
    assert rank(service, pool_id, **wanted)["items"] == inline["items"]
    service.services.objects.delete_prefix("scores")
    label(service, project, pool_id, [item["row"] for item in inline["items"]], value="b")
    assert replay(service, inline)["items"] == inline["items"]
