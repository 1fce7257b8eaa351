"""A stored ranking is made again and gives the identical list, whatever was labelled or trained since."""

from typing import Any

import pytest
from sqlalchemy import delete, update

from app.db.engine import Database
from app.db.tables import EnsembleResult, RankingResult
from app.queue.executors import close_executor
from tests.app.conftest import Service
from tests.app.rankings.test_rankings import rank, trained
from tests.app.test_loop import start, train


def label(service: Service, project: dict[str, Any], pool_id: str, rows: list[int], **said: Any) -> None:
    labels = [{"pool_id": pool_id, "row": row, **(said or {"value": "3"})} for row in rows]
    service.post(f"/projects/{project['id']}/labels", {"labels": labels}, 201)


def replay(service: Service, ranking: dict[str, Any]) -> dict[str, Any]:
    response = service.client.post(f"/v1/rankings/{ranking['id']}/replay")
    assert response.status_code == 202, response.text
    asked = response.json()
    assert response.headers["Location"] == f"/v1/jobs/{asked['job']['id']}"
    service.run_jobs()
    again: dict[str, Any] = service.get(f"/rankings/{asked['ranking']['id']}", explain=True)
    assert again["status"] == "succeeded", again["error"]
    assert again["id"] != ranking["id"]
    assert again["replay_of"] == ranking["id"]
    return again


ASKED = ("ensemble_id", "acquisition", "selection", "k", "seed", "target", "watermark", "n_scored", "measure", "items")


def test_the_highest_scores_are_replayed_after_more_labels_and_another_ensemble(service: Service, digits: Any) -> None:
    project, pool = start(service, digits)
    train(service, project)
    label(service, project, pool["id"], [60, 61], skip=True)
    first = rank(service, pool["id"], seed=3)
    label(service, project, pool["id"], [item["row"] for item in first["items"]])
    label(service, project, pool["id"], [60], retract=True)
    train(service, project, seed=1)
    again = replay(service, first)
    assert {name: again[name] for name in ASKED} == {name: first[name] for name in ASKED}
    assert again["notes"] == first["notes"]
    assert replay(service, again)["items"] == first["items"]
    assert rank(service, pool["id"], seed=3)["items"] != first["items"]


@pytest.mark.parametrize("wanted", [{}, {"selection": {"name": "kcenter"}}, {"acquisition": {"name": "random"}}])
def test_a_ranking_from_before_the_first_ensemble_is_replayed_without_one(
    service: Service, digits: Any, wanted: dict[str, Any]
) -> None:
    project, pool = start(service, digits)
    first = rank(service, pool["id"], **wanted)
    assert first["ensemble_id"] is None
    label(service, project, pool["id"], [item["row"] for item in first["items"][:5]] + [200, 201])
    train(service, project)
    again = replay(service, first)
    assert {name: again[name] for name in ASKED} == {name: first[name] for name in ASKED}
    assert again["notes"] == first["notes"] != []


def test_the_target_rows_of_a_request_are_kept_as_long_as_the_ranking(service: Service, digits: Any) -> None:
    project, pool = start(service, digits)
    train(service, project)
    target = {"rows": digits[0][400:403].tolist()}
    first = rank(service, pool["id"], acquisition={"name": "epig"}, target=target, selection={"name": "power"})
    label(service, project, pool["id"], [item["row"] for item in first["items"]])
    train(service, project)
    again = replay(service, first)
    assert {name: again[name] for name in ASKED} == {name: first[name] for name in ASKED}
    objects = service.services.objects
    kept = {f"rankings/{ranking['id']}/target.npy" for ranking in (first, again)}
    assert {stored.key for stored in objects.list("rankings")} == kept
    objects.delete([f"rankings/{first['id']}/target.npy"])
    assert "target rows" in service.post(f"/rankings/{first['id']}/replay", status=409)["detail"]
    assert service.client.delete(f"/v1/pools/{pool['id']}").status_code == 204
    service.run_jobs()
    assert list(objects.list("rankings")) == []


def test_a_target_that_random_has_no_use_for_is_not_kept(service: Service, digits: Any) -> None:
    _, pool = start(service, digits)
    wanted = {"acquisition": {"name": "epig"}, "selection": {"name": "kcenter"}, "target": {"rows": [[0.0] * 64]}}
    ranking = rank(service, pool["id"], **wanted)
    assert (ranking["acquisition"], ranking["target"]) == ({"name": "random"}, None)
    assert list(service.services.objects.list("rankings")) == []


def test_what_is_gone_is_named(service: Service, digits: Any) -> None:
    project, pool = start(service, digits)
    train(service, project)
    others = [
        service.post(f"/projects/{project['id']}/pools", {"name": name, "rows": digits[0][400:410].tolist()}, 201)
        for name in ("target", "neighbours")
    ]
    label(service, project, others[1]["id"], [0, 1])
    by_target = rank(service, pool["id"], acquisition={"name": "epig"}, target={"pool_id": others[0]["id"]})
    by_distance = rank(service, pool["id"], selection={"name": "kcenter"})
    plain = rank(service, pool["id"])
    assert replay(service, by_target)["items"] == by_target["items"]
    for other in others:
        assert service.client.delete(f"/v1/pools/{other['id']}").status_code == 204
    refused = service.post(f"/rankings/{by_target['id']}/replay", status=409)
    assert "target pool was deleted" in refused["detail"]
    refused = service.post(f"/rankings/{by_distance['id']}/replay", status=409)
    assert "kcenter kept away from" in refused["detail"]
    assert replay(service, plain)["items"] == plain["items"]
    with service.services.database.write() as session:
        session.execute(delete(EnsembleResult).where(EnsembleResult.ensemble_id == plain["ensemble_id"]))
    refused = service.post(f"/rankings/{plain['id']}/replay", status=409)
    assert "ensemble was deleted" in refused["detail"]


def test_only_a_ranking_that_is_there_is_replayed(service: Service, digits: Any) -> None:
    project, pool = start(service, digits)
    train(service, project)
    asked = service.post(f"/pools/{pool['id']}/rankings", {"k": 3}, 202)
    refused = service.post(f"/rankings/{asked['ranking']['id']}/replay", status=409)
    assert "this ranking is queued" in refused["detail"]
    service.post("/rankings/0190a000-0000-7000-8000-000000000000/replay", status=404)


def test_the_ranking_of_a_round_leaves_out_again_what_other_rounds_held(service: Service, digits: Any) -> None:
    project, pool = start(service, digits)
    train(service, project)
    first = service.post(f"/projects/{project['id']}/rounds", {"pool_id": pool["id"], "k": 5}, 202)
    service.run_jobs()
    second = service.post(f"/projects/{project['id']}/rounds", {"pool_id": pool["id"], "k": 5}, 202)
    service.run_jobs()
    service.post(f"/rounds/{first['round']['id']}/close")
    ranking = service.get(f"/rankings/{second['round']['ranking_id']}", explain=True)
    again = replay(service, ranking)
    assert again["items"] == ranking["items"]
    assert again["round_id"] is None
    assert replay(service, again)["items"] == ranking["items"]
    assert service.get(f"/rounds/{second['round']['id']}")["n_items"] == 5
    with service.services.database.write() as session:
        session.execute(update(RankingResult).where(RankingResult.ranking_id == ranking["id"]).values(context=None))
    assert "was not kept" in service.post(f"/rankings/{ranking['id']}/replay", status=409)["detail"]


def test_any_executor_replays(database: Database, make_service: Any) -> None:
    service: Service = make_service(database, shard_bytes=1, split_shards=0)
    project, pool_id = trained(service)
    rankings = [
        rank(service, pool_id, selection={"name": "batchbald"}, k=5, seed=1),
        rank(service, pool_id, acquisition={"name": "epig"}, target={"rows": [[0.5] * 8, [-0.5] * 8]}),
    ]
    label(service, project, pool_id, [item["row"] for item in rankings[0]["items"]], value="a")
    train(service, project)
    service.services.objects.delete_prefix("scores")
    service.services.settings.executor = "process"
    service.services.settings.processes = 2
    try:
        for ranking in rankings:
            assert replay(service, ranking)["items"] == ranking["items"]
    finally:
        close_executor()
