"""Rankings over REST: kept scores, parts, executors, cold starts, targets, and why a row was chosen."""

import csv
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from sqlalchemy import delete

import bensemble_core as bc
from app.db.engine import Database
from app.db.tables import EnsembleResult
from app.pools.given_rows import as_npy
from app.queue.context import JobContext
from app.queue.executors import TaskFailed, close_executor
from app.queue.executors.inline import Inline
from app.queue.executors.processes import Processes
from app.queue.handlers import HANDLERS
from app.queue.inline import run_one
from app.rankings import score_shards
from app.rankings.run import rank_pool
from tests.app.conftest import Service
from tests.app.test_loop import start, train
from tests.app.working import ended, on_sqlite, quick_settings, wait_for, working

WIDTH = 8
MANY = 3 * 8192 + 100  # shards hold whole chunks: with tiny shard_bytes, 8192 rows each


def rank(service: Service, pool_id: str, **wanted: Any) -> dict[str, Any]:
    asked = service.post(f"/pools/{pool_id}/rankings", {"k": 10, **wanted}, 202)
    service.run_jobs()
    ranking: dict[str, Any] = service.get(f"/rankings/{asked['ranking']['id']}", explain=True)
    assert ranking["status"] == "succeeded", ranking["error"]
    return ranking


def trained(service: Service, n_rows: int = MANY, **changes: Any) -> tuple[dict[str, Any], str]:
    """A project of two classes with a pool of several shards, trained on forty rows."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n_rows, WIDTH)).astype(np.float32)
    project = service.project(
        **{
            "task": {"kind": "classification", "classes": ["a", "b"]},
            "input": {"shape": [WIDTH]},
            "model": {"name": "mlp", "hidden": [16]},
            "posterior": {"name": "deep_ensemble", "members": 5, "epochs": 5},
            **changes,
        }
    )
    pool = service.post(f"/projects/{project['id']}/pools", {"name": "many"}, 201)
    headers = {"Content-Type": "application/x-npy"}
    answer = service.client.put(f"/v1/pools/{pool['id']}/data", content=as_npy(x), headers=headers)
    assert answer.status_code == 202
    service.run_jobs()
    values: list[Any] = ["ab"[int(row[0] > 0)] for row in x[:40]]
    if project["task"]["kind"] == "regression":
        values = [float(row[0]) for row in x[:40]]
    labels = [{"pool_id": pool["id"], "row": i, "value": value} for i, value in enumerate(values)]
    service.post(f"/projects/{project['id']}/labels", {"labels": labels}, 201)
    train(service, project)
    return project, pool["id"]


def n_forward(service: Service, ranking: dict[str, Any]) -> int:
    """How many rows it says went through the ensemble."""
    return int(service.get(f"/jobs/{ranking['job_id']}")["result"]["n_forward"])


def parts_of(service: Service, project: dict[str, Any]) -> list[dict[str, Any]]:
    jobs = service.get(f"/projects/{project['id']}/jobs")["items"]
    return [job for job in jobs if job["kind"] == "score_shards"]


@pytest.fixture
def sharded(database: Database, make_service: Any) -> Service:
    service: Service = make_service(database, shard_bytes=1, split_shards=0)
    return service


def test_another_acquisition_or_k_costs_no_forward_pass(sharded: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    _, pool_id = trained(sharded)
    first = rank(sharded, pool_id, acquisition={"name": "bald"})
    assert n_forward(sharded, first) == MANY
    monkeypatch.setattr(score_shards, "FUNCTION", "app.rankings.score_shards:never")
    again = rank(sharded, pool_id, acquisition={"name": "bald"}, k=3)
    assert [(i["row"], i["score"]) for i in again["items"]] == [(i["row"], i["score"]) for i in first["items"][:3]]
    for name in ("entropy", "margin", "least_confidence", "variation_ratio", "mean_std", "predictive_variance", "eig"):
        ranking = rank(sharded, pool_id, acquisition={"name": name})
        assert (len(ranking["items"]), n_forward(sharded, ranking)) == (10, 0)
    asked = sharded.post(
        f"/pools/{pool_id}/rankings", {"acquisition": {"name": "epig"}, "k": 3, "target": {"pool_id": pool_id}}, 202
    )
    sharded.run_jobs()
    assert "never" in sharded.get(f"/jobs/{asked['job']['id']}")["error"]["detail"]  # this one is not kept


def test_kept_scores_are_the_scores_of_the_library(sharded: Service) -> None:
    project, pool_id = trained(sharded)
    ensemble_id = sharded.get(f"/projects/{project['id']}")["current_ensemble_id"]
    file = sharded.client.get(f"/v1/ensembles/{ensemble_id}/file").content
    path = sharded.services.settings.data_dir / "ensemble.safetensors"
    path.write_bytes(file)
    ensemble = bc.load(path)
    assert isinstance(ensemble, bc.Ensemble)
    x = np.random.default_rng(0).normal(size=(MANY, WIDTH)).astype(np.float32)
    for name in ("bald", "margin", "predictive_variance"):
        ours = rank(sharded, pool_id, acquisition={"name": name})
        theirs = bc.rank(ensemble, x, acquisition=name, k=10, exclude=range(40), seed=ours["seed"])
        assert [item["row"] for item in ours["items"]] == theirs.rows.tolist()
        assert [item["score"] for item in ours["items"]] == theirs.scores.tolist()


def test_scores_go_with_their_pool(sharded: Service) -> None:
    _, pool_id = trained(sharded)
    rank(sharded, pool_id)
    objects = sharded.services.objects
    assert len(list(objects.list(f"scores/{pool_id}"))) == 4
    assert sharded.client.delete(f"/v1/pools/{pool_id}").status_code == 204
    sharded.run_jobs()
    assert list(objects.list("scores")) == []


def test_a_split_ranking_is_the_whole_one(database: Database, make_service: Any, tmp_path: Path) -> None:
    service: Service = make_service(database, shard_bytes=1, split_shards=2)
    project, pool_id = trained(service)
    wanted = {"acquisition": {"name": "bald"}, "selection": {"name": "power"}, "k": 10, "seed": 5}
    asked = service.post(f"/pools/{pool_id}/rankings", wanted, 202)
    service.run_jobs()
    split = service.get(f"/rankings/{asked['ranking']['id']}")
    parts = parts_of(service, project)
    assert [job["parent_id"] for job in parts] == [asked["job"]["id"]] * 2
    assert sorted(job["result"]["n_rows"] for job in parts) == [8192 + 100, 2 * 8192]
    service.services.objects.delete_prefix("scores")
    service.services.settings.split_shards = 0
    asked = service.post(f"/pools/{pool_id}/rankings", wanted, 202)
    service.run_jobs()
    whole = service.get(f"/rankings/{asked['ranking']['id']}")
    assert whole["items"] == split["items"]
    assert len(parts_of(service, project)) == 2


def test_a_split_ranking_that_is_tried_again_goes_on_where_it_was(database: Database, make_service: Any) -> None:
    service: Service = make_service(database, shard_bytes=1, split_shards=1)
    _, pool_id = trained(service)
    asked = service.post(f"/pools/{pool_id}/rankings", {"k": 6, "selection": {"name": "batchbald"}}, 202)
    path, settings = f"/jobs/{asked['job']['id']}", service.services.settings
    for _ in range(2):  # the split, and one part of 8192 rows
        run_one(service.services.database, settings, ["score"], HANDLERS)
    before = service.get(path)["progress"]
    assert before == {"done": 8192, "total": MANY, "message": "scoring rows in 4 parts: 1 done, 3 waiting"}
    service.post(f"{path}/cancel")
    service.post(f"{path}/retry")
    run_one(service.services.database, settings, ["score"], HANDLERS)
    again = service.get(path)["progress"]
    assert again == {"done": 8192, "total": MANY, "message": "scoring rows in 3 parts: 3 waiting"}
    service.run_jobs()
    job = service.get(path)
    assert job["progress"] == {"done": MANY, "total": MANY, "message": f"chose 6 of {MANY - 40:,} rows"}
    assert job["result"]["n_forward"] == MANY - 8192


def test_a_ranking_as_csv_has_what_the_json_has(sharded: Service) -> None:
    _, pool_id = trained(sharded)
    ranking = rank(sharded, pool_id, selection={"name": "power"}, k=3)
    path = f"/v1/rankings/{ranking['id']}"

    def lines(**query: Any) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(sharded.client.get(path, params={"format": "csv", **query}).text)))

    for line, item in zip(lines(explain=True), ranking["items"], strict=True):
        assert [*line] == ["rank", "row", "key", "score", "payload", "value", "measure", "explanation"]
        assert (int(line["row"]), float(line["score"])) == (item["row"], item["score"])
        assert (float(line["value"]), line["measure"]) == (item["value"], "probability")
        assert json.loads(line["explanation"]) == item["explanation"]
    assert all("explanation" not in line for line in lines())


def test_a_part_that_fails_fails_its_ranking(
    database: Database, make_service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    service: Service = make_service(database, shard_bytes=1, split_shards=2)
    project, pool_id = trained(service)
    monkeypatch.setattr(score_shards, "FUNCTION", "tests.app.rankings.test_rankings:unable")
    asked = service.post(f"/pools/{pool_id}/rankings", {"k": 5}, 202)
    service.run_jobs()
    ranking = service.get(f"/rankings/{asked['ranking']['id']}")
    assert ranking["status"] == "failed"
    assert ranking["error"]["detail"] == "row 3 has the score nan"
    assert {job["status"] for job in parts_of(service, project)} <= {"failed", "cancelled"}


@pytest.fixture
def processes() -> Iterator[Processes]:
    opened = Processes(2)
    yield opened
    opened.close()


def count_rows(task: dict[str, Any], tell: Any) -> None:
    tell(task["n_rows"])
    Path(task["path"]).write_text(str(task["n_rows"]))


def unable(task: dict[str, Any], tell: Any) -> None:
    raise bc.NotFinite("row 3 has the score nan")


def die(task: dict[str, Any], tell: Any) -> None:
    psutil.Process().kill()


def hang(task: dict[str, Any], tell: Any) -> None:
    time.sleep(600)


@pytest.mark.parametrize("kind", ["inline", "process"])
def test_every_task_runs_once_and_the_rows_add_up(kind: str, tmp_path: Path, processes: Processes) -> None:
    executor = Inline() if kind == "inline" else processes
    tasks = [{"n_rows": i, "path": str(tmp_path / str(i))} for i in range(1, 8)]
    told: list[int] = []
    executor.run("tests.app.rankings.test_rankings:count_rows", tasks, told.append)
    assert sorted(path.read_text() for path in tmp_path.iterdir()) == [str(i) for i in range(1, 8)]
    assert told[-1] == 28
    assert told == sorted(told)


def test_processes_are_made_ready_ahead_of_the_first_task(tmp_path: Path, processes: Processes) -> None:
    processes.prepare("tests.app.rankings.test_rankings:breathe")
    ready = {child.pid for child in psutil.Process().children() if "worker_process" in " ".join(child.cmdline())}
    assert len(ready) == 2
    told: list[int] = []
    tasks = [{"n_rows": 5, "path": str(tmp_path / str(i))} for i in range(6)]
    processes.run("tests.app.rankings.test_rankings:note_process", tasks, told.append)
    assert {int(path.read_text()) for path in tmp_path.iterdir()} <= ready, "others were started"
    assert told[-1] == 30, "what made them ready counts no rows"


def breathe(task: dict[str, Any], tell: Any) -> None:
    time.sleep(0.3)


def note_process(task: dict[str, Any], tell: Any) -> None:
    time.sleep(0.3)  # so that no process can do all of it
    Path(task["path"]).write_text(str(psutil.Process().pid))


def test_a_process_that_fails_dies_or_is_cancelled_ends_the_work(processes: Processes) -> None:
    with pytest.raises(TaskFailed, match="row 3 has the score nan") as failure:
        processes.run("tests.app.rankings.test_rankings:unable", [{"n_rows": 1}] * 2, lambda _: None)
    assert failure.value.is_final
    with pytest.raises(TaskFailed, match="died with exit code -9") as death:
        processes.run("tests.app.rankings.test_rankings:die", [{"n_rows": 1}] * 2, lambda _: None)
    assert not death.value.is_final

    class Enough(BaseException):
        pass

    def cancel(_: int) -> None:
        raise Enough

    with pytest.raises(Enough):
        processes.run("tests.app.rankings.test_rankings:hang", [{"n_rows": 1}] * 2, cancel)
    assert not [child for child in psutil.Process().children() if "worker_process" in " ".join(child.cmdline())]


def test_every_executor_gives_the_same_ranking(database: Database, make_service: Any) -> None:
    """A stored request, re-run on the stored ensemble by another executor, gives the identical list."""
    service: Service = make_service(database, shard_bytes=1, split_shards=0)
    _, pool_id = trained(service, posterior={"name": "deep_ensemble", "members": 5, "epochs": 5})
    wanted = {"acquisition": {"name": "bald"}, "selection": {"name": "batchbald"}, "k": 5, "seed": 1}
    inline = rank(service, pool_id, **wanted)
    service.services.objects.delete_prefix("scores")
    service.services.settings.executor = "process"
    service.services.settings.processes = 2
    try:
        assert rank(service, pool_id, **wanted)["items"] == inline["items"]
    finally:
        close_executor()
    assert not [child for child in psutil.Process().children() if "worker_process" in " ".join(child.cmdline())]


@pytest.mark.parametrize("selection", ["typiclust", "kcenter"])
def test_before_the_first_ensemble_rows_are_chosen_by_their_features(service: Service, selection: str) -> None:
    project = service.project(input={"shape": [2]})
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    rows = (centres[np.arange(90) % 3] + 0.1 * rng.normal(size=(90, 2))).tolist()
    pool = service.post(f"/projects/{project['id']}/pools", {"name": "blobs", "rows": rows}, 201)
    ranking = rank(service, pool["id"], selection={"name": selection}, k=3)
    assert sorted(item["row"] % 3 for item in ranking["items"]) == [0, 1, 2]
    assert (ranking["ensemble_id"], ranking["acquisition"]) == (None, {"name": "random"})
    assert any("there is no ensemble yet" in note for note in ranking["notes"])
    refused = service.post(f"/pools/{pool['id']}/rankings", {"k": 3, "selection": {"name": "batchbald"}}, 409)
    assert "typiclust" in refused["detail"]
    assert "random" in refused["detail"]


def test_a_labelled_row_keeps_its_neighbours_from_being_chosen(service: Service) -> None:
    project = service.project(input={"shape": [2]}, task={"kind": "classification", "classes": ["a", "b"]})
    rows = [[0.0, 0.0], [0.1, 0.0], [10.0, 0.0], [10.1, 0.0]]
    pool = service.post(f"/projects/{project['id']}/pools", {"name": "two", "rows": rows}, 201)
    service.post(
        f"/projects/{project['id']}/labels", {"labels": [{"pool_id": pool["id"], "row": 2, "value": "a"}]}, 201
    )
    ranking = rank(service, pool["id"], selection={"name": "kcenter"}, k=1)
    assert [item["row"] for item in ranking["items"]] == [0]
    assert (ranking["measure"], ranking["items"][0]["value"]) == ("distance", pytest.approx(10.0))


def test_epig_wants_a_target_and_takes_a_pool_or_rows(sharded: Service) -> None:
    _, pool_id = trained(sharded)
    path = f"/pools/{pool_id}/rankings"
    body = {"acquisition": {"name": "epig"}, "k": 5}
    refused = sharded.post(path, body, 422)
    assert "needs a target set" in refused["detail"]
    assert refused["errors"][0]["pointer"] == "/target"
    assert "leave `target` out" in sharded.post(path, {"k": 5, "target": {"rows": [[0.0] * WIDTH]}}, 422)["detail"]
    wrong = sharded.post(path, {**body, "target": {"rows": [[0.0] * 3]}}, 422)
    assert wrong["errors"][0]["pointer"] == "/target/rows/0"
    sharded.post(path, {**body, "target": {"pool_id": "0190a000-0000-7000-8000-000000000000"}}, 404)
    near = np.random.default_rng(0).normal(size=(MANY, WIDTH)).astype(np.float32)[:3]
    by_rows = rank(sharded, pool_id, **body, target={"rows": near.tolist()})
    assert by_rows["target"] == {"n_rows": 3}
    assert all(item["score"] > 0 for item in by_rows["items"])
    by_pool = rank(sharded, pool_id, **body, target={"pool_id": pool_id})
    assert any("1,000 drawn by the seed" in note for note in by_pool["notes"])
    assert [item["row"] for item in by_pool["items"]] != [item["row"] for item in by_rows["items"]]
    kept = [stored.key for stored in sharded.services.objects.list("rankings")]
    assert kept == [f"rankings/{by_rows['id']}/target.npy"], "those of a pool are in the pool"


def test_a_pick_is_explained_by_votes_probabilities_and_uncertainty(sharded: Service) -> None:
    _, pool_id = trained(sharded)
    ranking = rank(sharded, pool_id, acquisition={"name": "bald"}, selection={"name": "power"})
    assert ranking["measure"] == "probability"
    for item in ranking["items"]:
        why = item["explanation"]
        assert 0 < item["value"] <= 1
        assert sum(why["votes"].values()) == pytest.approx(1)
        assert sum(why["probabilities"].values()) == pytest.approx(1)
        assert why["total"] == pytest.approx(why["aleatoric"] + why["epistemic"], abs=1e-6)
        assert why["epistemic"] == pytest.approx(item["score"], abs=1e-5)
    bare = sharded.get(f"/rankings/{ranking['id']}")
    assert all(item["explanation"] is None for item in bare["items"])


def test_a_pick_of_a_regression_is_explained_by_its_members(sharded: Service) -> None:
    _, pool_id = trained(sharded, task={"kind": "regression", "outputs": 1})
    ranking = rank(sharded, pool_id, selection={"name": "batchbald"}, k=4)
    assert ranking["measure"] == "information_gained"
    for item in ranking["items"]:
        why = item["explanation"]
        assert len(why["members"]) == 5
        assert np.mean(why["members"]) == pytest.approx(why["mean"], abs=1e-5)
        assert np.std(why["members"]) == pytest.approx(why["epistemic_sd"], rel=1e-3)
    refused = sharded.post(f"/pools/{pool_id}/rankings", {"k": 3, "selection": {"name": "badge"}}, 422)
    assert "badge is not defined for regression" in refused["detail"]


def test_a_short_list_that_no_memory_holds_is_refused(sharded: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    _, pool_id = trained(sharded)
    path = f"/pools/{pool_id}/rankings"
    few = sharded.post(path, {"k": 9, "selection": {"name": "kcenter", "short_list": 8}}, 422)
    assert "at least k = 9" in few["detail"]
    monkeypatch.setattr("app.rankings.request.SHORT_LIST_BYTES", 110_000)
    wanted = {"k": 9, "selection": {"name": "batchbald", "short_list": 1_000_000}}
    refused = sharded.post(path, wanted, 422)
    assert refused["errors"][0]["pointer"] == "/selection/short_list"
    most = int(refused["detail"].split("at most ")[1].split(" rows")[0].replace(",", ""))
    sharded.post(path, {**wanted, "selection": {"name": "batchbald", "short_list": most + 1}}, 422)
    assert len(rank(sharded, pool_id, k=9, selection={"name": "batchbald", "short_list": most})["items"]) == 9
    refused = sharded.post(path, {"k": 9, "selection": {"name": "cluster_margin", "candidates_per_pick": 1000}}, 422)
    assert refused["errors"][0]["pointer"] == "/selection/candidates_per_pick"
    each = int(refused["detail"].split("at most ")[1].split(",")[0])
    assert each == most // 9
    clusters = {"name": "cluster_margin", "candidates_per_pick": each}
    assert len(rank(sharded, pool_id, k=9, selection=clusters)["items"]) == 9


def test_joint_outcomes_that_no_memory_holds_are_refused(sharded: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    _, pool_id = trained(sharded)
    path = f"/pools/{pool_id}/rankings"
    monkeypatch.setattr("app.rankings.request.SHORT_LIST_BYTES", 12_000)

    def wanted(n_outcomes: int) -> dict[str, Any]:
        return {"k": 9, "selection": {"name": "batchbald", "short_list": 20, "outcomes": n_outcomes}}

    refused = sharded.post(path, wanted(1_000_000), 422)  # of 2⁸ at the ninth pick
    assert refused["errors"][0]["pointer"] == "/selection/outcomes"
    assert refused["detail"].endswith("give `outcomes` of at most 30")
    sharded.post(path, wanted(31), 422)
    assert len(rank(sharded, pool_id, **wanted(30))["items"]) == 9


def test_a_ranking_says_what_its_members_scores_can_reach(sharded: Service) -> None:
    _, pool_id = trained(sharded)
    told = rank(sharded, pool_id, acquisition={"name": "bald"})
    assert told["ceiling"] == pytest.approx(np.log(5))
    assert all(item["score"] <= told["ceiling"] for item in told["items"])
    assert rank(sharded, pool_id, acquisition={"name": "margin"})["ceiling"] is None


def test_a_pool_with_every_row_labelled_has_nothing_to_rank(service: Service, digits: Any) -> None:
    project, _ = start(service, digits)
    train(service, project)
    pool = service.post(
        f"/projects/{project['id']}/pools",
        {"name": "done", "rows": digits[0][:3].tolist(), "labels": digits[1][:3]},
        201,
    )
    refused = service.post(f"/pools/{pool['id']}/rankings", {"k": 1}, 409)
    assert "no row of pool 'done' is left" in refused["detail"]
    assert "Add a pool" in refused["detail"]
    assert "`retract`" in refused["detail"]
    part = service.post(
        f"/projects/{project['id']}/pools",
        {"name": "nearly", "rows": digits[0][:3].tolist(), "labels": [*digits[1][:2], None]},
        201,
    )
    refused = service.post(f"/pools/{part['id']}/rankings", {"k": 2}, 409)
    assert "only 1 row of pool 'nearly' is neither labelled nor skipped" in refused["detail"]
    assert "Lower k" in refused["detail"]


def test_a_target_pool_that_is_deleted_meanwhile_fails_the_ranking_once(service: Service, digits: Any) -> None:
    project, pool = start(service, digits)
    train(service, project)
    target = service.post(
        f"/projects/{project['id']}/pools", {"name": "target", "rows": digits[0][400:410].tolist()}, 201
    )
    wanted = {"acquisition": {"name": "epig"}, "k": 3, "target": {"pool_id": target["id"]}}
    asked = service.post(f"/pools/{pool['id']}/rankings", wanted, 202)
    assert service.client.delete(f"/v1/pools/{target['id']}").status_code == 204
    service.run_jobs()
    job = service.get(f"/jobs/{asked['job']['id']}")
    assert (job["status"], job["attempts"]) == ("failed", 1)
    assert job["error"]["status"] == 409
    assert job["error"]["detail"] == "the target pool was deleted; ask again with another target"


def test_an_ensemble_that_is_gone_fails_the_ranking_once(service: Service, digits: Any) -> None:
    project, pool = start(service, digits)
    ensemble = train(service, project)
    asked = service.post(f"/pools/{pool['id']}/rankings", {"k": 3}, 202)
    with service.services.database.write() as session:
        session.execute(delete(EnsembleResult).where(EnsembleResult.ensemble_id == ensemble["id"]))
    service.run_jobs()
    job = service.get(f"/jobs/{asked['job']['id']}")
    assert (job["status"], job["attempts"], job["error"]["status"]) == ("failed", 1, 409)
    assert "the ensemble was deleted" in job["error"]["detail"]


def test_before_the_first_ensemble_a_request_that_names_no_method_gets_typiclust(service: Service, digits: Any) -> None:
    project, pool = start(service, digits)
    ranking = rank(service, pool["id"], k=5)
    assert (ranking["ensemble_id"], ranking["acquisition"]) == (None, {"name": "random"})
    assert (ranking["selection"]["name"], ranking["selection"]["random_share"]) == ("typiclust", 0.5)
    assert ranking["notes"][0].startswith("chosen by default: typiclust with random_share 0.5, which needs no ensemble")
    named = rank(service, pool["id"], selection={"name": "typiclust", "random_share": 0.5, "standardise": True}, k=5)
    assert named["items"] == ranking["items"]
    assert not any("by default" in note for note in named["notes"])
    for wanted in ({"acquisition": {"name": "bald"}}, {"selection": {"name": "top_k"}}):
        refused = service.post(f"/pools/{pool['id']}/rankings", {"k": 5, **wanted}, 409)
        assert "no trained ensemble yet" in refused["detail"]
    opened = service.post(f"/projects/{project['id']}/rounds", {"pool_id": pool["id"], "k": 5}, 202)
    service.run_jobs()
    of_round = service.get(f"/rankings/{opened['round']['ranking_id']}", explain=True)
    assert [item["row"] for item in of_round["items"]] == [item["row"] for item in ranking["items"]]
    assert of_round["notes"] == ranking["notes"]
    train(service, project)
    later = rank(service, pool["id"], k=5)
    clusters = {"name": "cluster_margin", "candidates_per_pick": 5, "max_clusters": 500}
    assert (later["acquisition"], later["selection"]) == ({"name": "margin"}, clusters)
    assert later["notes"][0].startswith("chosen by default: margin with cluster_margin, which")
    for auto in ("auto", {"name": "auto"}):
        same = rank(service, pool["id"], k=5, acquisition=auto, selection=auto)
        assert [same[part] for part in ("acquisition", "selection", "items", "notes")] == [
            later[part] for part in ("acquisition", "selection", "items", "notes")
        ]
    joint = rank(service, pool["id"], selection={"name": "batchbald"}, k=2)
    assert joint["acquisition"]["name"] == "bald"
    refused = service.post(f"/pools/{pool['id']}/rankings", {"k": 1, "target": {"pool_id": pool["id"]}}, 422)
    assert "name epig" in refused["detail"]


@on_sqlite
def test_a_request_that_names_nothing_draws_numbers_by_the_members_spread(service: Service) -> None:
    x = np.random.default_rng(0).normal(size=(40, 2))
    task = {"kind": "regression", "outputs": 1}
    posterior = {"name": "deep_ensemble", "members": 3, "epochs": 5}
    project = service.project(task=task, input={"shape": [2]}, posterior=posterior)
    labels = [float(row[0]) if i < 10 else None for i, row in enumerate(x)]
    pool = service.post(
        f"/projects/{project['id']}/pools", {"name": "numbers", "rows": x.tolist(), "labels": labels}, 201
    )
    first = rank(service, pool["id"], k=4, seed=3)
    assert (first["acquisition"], first["selection"]) == ({"name": "random"}, {"name": "top_k"})
    assert first["notes"][0].startswith("chosen by default: random with top_k, which needs no ensemble")
    assert first["measure"] == "probability"
    assert [item["value"] for item in first["items"]] == pytest.approx([1 / 30, 1 / 29, 1 / 28, 1 / 27])
    train(service, project)
    ranking = rank(service, pool["id"], k=4, seed=3)
    assert ranking["acquisition"] == {"name": "predictive_variance", "part": "epistemic"}
    assert ranking["selection"]["name"] == "power"
    named = {"acquisition": ranking["acquisition"], "selection": {"name": "power"}}
    assert rank(service, pool["id"], k=4, seed=3, **named)["items"] == ranking["items"]


def test_random_says_that_there_was_no_ensemble_and_is_explained_by_one_that_is_there(
    service: Service, digits: Any
) -> None:
    project, pool = start(service, digits)
    before = rank(service, pool["id"], acquisition={"name": "random"})
    assert any("there is no ensemble yet" in note for note in before["notes"])
    assert all(item["explanation"] is None for item in before["items"])
    ensemble = train(service, project)
    after = rank(service, pool["id"], acquisition={"name": "random"})
    assert [item["row"] for item in after["items"]] == [item["row"] for item in before["items"]]
    assert (after["ensemble_id"], after["notes"]) == (ensemble["id"], [])
    assert all(item["explanation"]["votes"] for item in after["items"])


def test_a_split_ranking_counts_its_seconds_from_the_first_start(database: Database, make_service: Any) -> None:
    service: Service = make_service(database, shard_bytes=1, split_shards=2)
    _, pool_id = trained(service)
    asked = service.post(f"/pools/{pool_id}/rankings", {"k": 5}, 202)
    settings, started = service.services.settings, time.monotonic()
    run_one(service.services.database, settings, ["score"], HANDLERS)
    waiting = service.get(f"/jobs/{asked['job']['id']}")
    assert waiting["status"] == "running"
    assert waiting["progress"] == {"done": 0, "total": MANY, "message": "scoring rows in 2 parts: 2 waiting"}
    time.sleep(0.5)
    service.run_jobs()
    seconds = service.get(f"/rankings/{asked['ranking']['id']}")["seconds"]
    assert 0.5 < seconds <= time.monotonic() - started


def test_of_many_classes_the_likeliest_are_shown_and_the_rest_summed_up(service: Service) -> None:
    rng = np.random.default_rng(0)
    classes = [f"c{i}" for i in range(30)]
    project = service.project(
        task={"kind": "classification", "classes": classes},
        input={"shape": [4]},
        posterior={"name": "deep_ensemble", "members": 3, "epochs": 1},
    )
    body = {"name": "many", "rows": rng.normal(size=(60, 4)).tolist(), "labels": [*classes, *[None] * 30]}
    pool = service.post(f"/projects/{project['id']}/pools", body, 201)
    train(service, project)
    for item in rank(service, pool["id"], k=5)["items"]:
        why = item["explanation"]
        assert (len(why["probabilities"]), why["n_left_out"]) == (10, 20)
        assert why["probability_left_out"] > 0.1
        assert sum(why["probabilities"].values()) + why["probability_left_out"] == pytest.approx(1)
        assert sum(why["votes"].values()) + why["votes_left_out"] == pytest.approx(1)
    shown = service.client.get("/openapi.json").json()["components"]["schemas"]["RankedItem"]["properties"]
    assert "ten likeliest" in shown["explanation"]["description"]


@pytest.mark.parametrize("k", ["3", True, 3.0, None])
def test_k_is_a_whole_number_and_nothing_that_could_be_read_as_one(service: Service, k: Any) -> None:
    project = service.project(input={"shape": [1]})
    pool = service.post(f"/projects/{project['id']}/pools", {"name": "p", "rows": [[0.0]] * 9}, 201)
    for path, body in (
        (f"/pools/{pool['id']}/rankings", {"acquisition": {"name": "random"}}),
        (f"/projects/{project['id']}/rounds", {"acquisition": {"name": "random"}, "pool_id": pool["id"]}),
    ):
        assert [error["pointer"] for error in service.post(path, {**body, "k": k}, 422)["errors"]] == ["/k"]
        if k is not None:  # a seed may be left out
            assert [e["pointer"] for e in service.post(path, {**body, "k": 1, "seed": k}, 422)["errors"]] == ["/seed"]


def choose_slowly(job: JobContext) -> None:
    """Ranks, in a process of its own, with a choice that takes a minute and says now and then how far it is."""

    def conclude(*_: Any, report: Any, **__: Any) -> None:
        for i in range(600):
            time.sleep(0.1)
            report(i, 600, f"choosing rows: {i} of 600")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bc, "conclude", conclude)
        rank_pool(job)


@on_sqlite
def test_a_cancel_is_obeyed_while_rows_are_chosen(
    database: Database, database_url: str, make_service: Any, tmp_path: Path
) -> None:
    service: Service = make_service(database, shard_bytes=1, split_shards=0)
    _, pool_id = trained(service)
    settings = quick_settings(database_url, tmp_path, cancel_grace_seconds=60.0, split_shards=0)
    with working(settings, handlers={"rank_pool": "tests.app.rankings.test_rankings:choose_slowly"}):
        asked = service.post(f"/pools/{pool_id}/rankings", {"k": 5}, 202)
        path = f"/jobs/{asked['job']['id']}"
        wait_for(lambda: "choosing rows" in (service.get(path)["progress"] or {"message": ""})["message"])
        started = time.monotonic()
        service.post(f"{path}/cancel")
        assert ended(database, asked["job"]["id"]).status == "cancelled"
        assert time.monotonic() - started < 30  # half of the grace
