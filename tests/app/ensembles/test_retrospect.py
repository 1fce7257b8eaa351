"""What a training says of the labels it saw: on which rows, and compared with what."""

from typing import Any

import numpy as np

from app.db.tables import EnsembleResult, PoolData
from app.ensembles.collect_labels import Part, take
from app.ensembles.control import fair_rows
from app.ensembles.pool_sample import SAMPLED, sample_key, sample_rows
from tests.app.conftest import Service
from tests.app.test_loop import start, train
from tests.app.working import on_sqlite

QUICK = {"name": "map", "epochs": 2}


def data_of(pool_id: str, n_rows: int) -> PoolData:
    return PoolData(pool_id=pool_id, prefix=pool_id, n_rows=n_rows, n_bytes=0)


def test_a_sample_keeps_most_of_its_rows_while_pools_come_and_go() -> None:
    first, second = data_of("one", 30_000), data_of("two", 10_000)
    alone, both = sample_rows([first]), sample_rows([first, second])
    assert sum(map(len, alone.values())) == sum(map(len, both.values())) == SAMPLED
    assert set(both["one"]) < set(alone["one"])
    assert abs(len(both["one"]) / SAMPLED - 0.75) < 0.05  # every row of either pool is as likely
    assert abs(np.mean(alone["one"]) / 30_000 - 0.5) < 0.03
    few = sample_rows([data_of("few", 7), data_of("none", 0)])
    assert {pool_id: rows.tolist() for pool_id, rows in few.items()} == {"few": list(range(7))}


def test_rows_are_taken_by_their_place_in_all_parts() -> None:
    parts = [
        Part(data=data_of(name, 9), rows=np.array(rows, dtype=np.int64), values=[f"{name}{row}" for row in rows])
        for name, rows in (("a", [1, 4]), ("b", []), ("c", [0, 2, 8]))
    ]
    taken = take(parts, np.array([1, 2, 4]))
    assert [(part.data.pool_id, part.rows.tolist(), part.values) for part in taken] == [
        ("a", [4], ["a4"]),
        ("c", [0, 8], ["c0", "c8"]),
    ]


@on_sqlite
def test_rows_of_random_rankings_and_of_the_pool_are_fair_and_no_others(service: Service, digits: Any) -> None:
    project, pool = start(service, digits)
    train(service, project, posterior=QUICK)
    picked = {}
    for name in ("random", "entropy"):
        wanted = {"acquisition": {"name": name}, "selection": {"name": "top_k"}, "k": 6}
        asked = service.post(f"/pools/{pool['id']}/rankings", wanted, 202)
        service.run_jobs()
        picked[name] = {item["row"] for item in service.get(f"/rankings/{asked['ranking']['id']}")["items"]}
    x, y = digits
    body = {"name": "with labels", "rows": x[:4].tolist(), "labels": [y[0], None, y[2], None]}
    other = service.post(f"/projects/{project['id']}/pools", body, 201)
    with service.services.database.read() as session:
        found = set(fair_rows(session, pool["id"]).tolist())
        assert fair_rows(session, other["id"]).tolist() == [0, 2]
    assert found == picked["random"]


@on_sqlite
def test_versions_on_the_same_labels_agree_which_says_nothing_of_more_labels(service: Service, digits: Any) -> None:
    project, _ = start(service, digits)
    for _ in range(4):
        newest = train(service, project, posterior=QUICK)
    told = service.get(f"/projects/{project['id']}/advice")["agreement"]
    assert [each["with_version"] for each in told["comparisons"]] == [1, 2, 3]
    assert {each["value"] for each in told["comparisons"]} == {1.0}
    assert (told["is_stable"], told["mean_of_last_three"]) == (False, None)
    with service.services.database.read() as session:  # as of a version that kept no sample
        folder = session.get_one(EnsembleResult, newest["id"]).file_key.rpartition("/")[0]
    service.services.objects.delete([sample_key(folder)])
    assert train(service, project, posterior=QUICK)["status"] == "succeeded"
    assert len(service.get(f"/projects/{project['id']}/advice")["agreement"]["comparisons"]) == 3
