"""Rounds hand ranked rows out to annotators and end when all are done."""

import threading
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select, update

from app.db.tables import Job, Reservation
from app.db.types import database_time
from tests.app.conftest import Service


@pytest.fixture
def place(service: Service) -> tuple[str, str]:
    project = service.project(task={"kind": "classification", "classes": ["a", "b"]}, input={"shape": [2]})
    pool = service.post(
        f"/projects/{project['id']}/pools",
        {"name": "pool", "rows": [[i, i % 3] for i in range(30)], "payloads": [f"text {i}" for i in range(30)]},
    )
    return project["id"], pool["id"]


def open_round(service: Service, place: tuple[str, str], k: int = 4, **more: Any) -> dict[str, Any]:
    body = {"pool_id": place[1], "acquisition": {"name": "random"}, "k": k, **more}
    asked = service.post(f"/projects/{place[0]}/rounds", body, 202)
    assert asked["round"]["status"] == "ranking"
    service.run_jobs()
    return service.get(f"/rounds/{asked['round']['id']}")


def take(service: Service, round_: dict[str, Any], annotator: str, count: int = 1) -> list[int]:
    answer = service.post(f"/rounds/{round_['id']}/next", {"annotator": annotator, "count": count}, 200)
    return [item["row"] for item in answer["items"]]


def answer(service: Service, round_: dict[str, Any], annotator: str, *rows: int, **what: Any) -> Any:
    said = what or {"value": "a"}
    body = {"labels": [{"row": row, "annotator": annotator, **said} for row in rows]}
    return service.post(f"/rounds/{round_['id']}/labels", body, 201)


def test_a_round_runs_from_ranking_to_a_new_ensemble(service: Service, place: tuple[str, str]) -> None:
    round_ = open_round(service, place)
    assert (round_["status"], round_["number"], round_["n_items"], round_["n_done"]) == ("open", 1, 4, 0)
    ranked = [item["row"] for item in service.get(f"/rankings/{round_['ranking_id']}")["items"]]
    first = service.post(f"/rounds/{round_['id']}/next", {"annotator": "x"}, 200)
    assert first["n_left"] == 4
    assert [(i["rank"], i["row"], i["payload"]) for i in first["items"]] == [(1, ranked[0], f"text {ranked[0]}")]
    answer(service, round_, "x", ranked[0], value="a")
    assert take(service, round_, "x", 10) == ranked[1:]
    assert answer(service, round_, "x", *ranked[1:3], value="b")["triggered"] == []
    triggered = answer(service, round_, "x", ranked[3], skip=True)["triggered"]
    round_ = service.get(f"/rounds/{round_['id']}")
    assert (round_["status"], round_["n_done"]) == ("complete", 4)
    assert len(triggered) == 1
    assert service.run_jobs() == triggered
    ensemble = service.get(f"/ensembles/{round_['ensemble_id']}")
    assert (ensemble["status"], ensemble["n_labels"], ensemble["origin"]) == ("succeeded", 3, f"round:{round_['id']}")
    assert service.get(f"/projects/{place[0]}")["current_ensemble_id"] == ensemble["id"]


def test_two_annotators_never_get_the_same_item(service: Service, place: tuple[str, str]) -> None:
    round_ = open_round(service, place, k=20)
    got: dict[str, list[int]] = {f"annotator {i}": [] for i in range(4)}

    def work(name: str) -> None:
        while rows := take(service, round_, name, 2):
            got[name] += rows
            answer(service, round_, name, *rows)

    threads = [threading.Thread(target=work, args=(name,)) for name in got]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    handed_out = [row for rows in got.values() for row in rows]
    assert len(handed_out) == len(set(handed_out)) == 20
    assert service.get(f"/rounds/{round_['id']}")["status"] == "complete"


def test_overlap_asks_so_many_different_annotators(service: Service, place: tuple[str, str]) -> None:
    round_ = open_round(service, place, k=2, overlap=2, retrain=False)
    rows = take(service, round_, "x", 5)
    assert take(service, round_, "y", 5) == rows
    assert take(service, round_, "z", 5) == []
    answer(service, round_, "x", *rows)
    assert take(service, round_, "x", 5) == []
    assert service.get(f"/rounds/{round_['id']}")["status"] == "open"
    answer(service, round_, "y", *rows, value="b")
    round_ = service.get(f"/rounds/{round_['id']}")
    assert (round_["status"], round_["ensemble_id"]) == ("complete", None)


def test_a_lapsed_reservation_blocks_nobody(service: Service, place: tuple[str, str]) -> None:
    round_ = open_round(service, place, k=2)
    rows = take(service, round_, "x", 2)
    assert take(service, round_, "y", 2) == []
    with service.services.database.write() as session:
        past = database_time(session) - timedelta(seconds=1)
        session.execute(update(Reservation).values(expires_at=past))
    assert take(service, round_, "y", 1) == rows[:1]
    assert take(service, round_, "x", 2) == rows[1:]  # the other one has gone to y meanwhile
    answer(service, round_, "y", rows[0])
    answer(service, round_, "x", rows[1])
    assert service.get(f"/rounds/{round_['id']}")["status"] == "complete"


def test_asking_again_gives_the_open_items_again(service: Service, place: tuple[str, str]) -> None:
    round_ = open_round(service, place, k=4)
    rows = take(service, round_, "x", 2)
    assert take(service, round_, "x", 1) == rows[:1]
    assert take(service, round_, "x", 3)[:2] == rows


def test_labels_posted_to_the_project_count_in_the_round(service: Service, place: tuple[str, str]) -> None:
    round_ = open_round(service, place, k=2)
    rows = take(service, round_, "x", 2)
    body = {"labels": [{"pool_id": place[1], "row": row, "value": "b"} for row in rows]}
    assert len(service.post(f"/projects/{place[0]}/labels", body, 201)["triggered"]) == 1
    assert service.get(f"/rounds/{round_['id']}")["status"] == "complete"


def test_a_retraction_reopens_its_item(service: Service, place: tuple[str, str]) -> None:
    round_ = open_round(service, place, k=2)
    rows = take(service, round_, "x", 2)
    answer(service, round_, "x", rows[0])
    answer(service, round_, "x", rows[0], retract=True)
    assert service.get(f"/rounds/{round_['id']}")["n_done"] == 0
    assert take(service, round_, "x", 2) == rows


def test_answering_twice_counts_once(service: Service, place: tuple[str, str]) -> None:
    round_ = open_round(service, place, k=2, overlap=2)
    rows = take(service, round_, "x", 2)
    answer(service, round_, "x", rows[0], value="a")
    answer(service, round_, "x", rows[0], value="b")
    assert service.get(f"/rounds/{round_['id']}")["n_done"] == 0


def test_a_round_takes_only_its_own_rows(service: Service, place: tuple[str, str]) -> None:
    round_ = open_round(service, place, k=2)
    ranked = {item["row"] for item in service.get(f"/rankings/{round_['ranking_id']}")["items"]}
    other = next(row for row in range(30) if row not in ranked)
    problem = service.post(f"/rounds/{round_['id']}/labels", {"labels": [{"row": other, "value": "a"}]}, 422)
    assert "is not in this round" in problem["detail"]
    assert service.get(f"/projects/{place[0]}/labels", history=True)["items"] == []


def test_a_closed_round_hands_out_nothing_and_trains_nothing(service: Service, place: tuple[str, str]) -> None:
    round_ = open_round(service, place, k=3)
    rows = take(service, round_, "x", 1)
    answer(service, round_, "x", *rows)
    assert service.post(f"/rounds/{round_['id']}/close", None, 200)["status"] == "closed"
    assert take(service, round_, "x") == []
    assert (
        "this round is closed"
        in service.post(f"/rounds/{round_['id']}/labels", {"labels": [{"row": rows[0], "value": "a"}]}, 409)["detail"]
    )
    assert service.run_jobs() == []
    assert service.get(f"/pools/{place[1]}")["n_labelled"] == 1


def test_a_round_closed_before_its_ranking_cancels_it(service: Service, place: tuple[str, str]) -> None:
    asked = service.post(
        f"/projects/{place[0]}/rounds", {"pool_id": place[1], "acquisition": {"name": "random"}, "k": 3}, 202
    )
    service.post(f"/rounds/{asked['round']['id']}/close", None, 200)
    with service.services.database.read() as session:
        assert session.execute(select(Job.status).where(Job.id == asked["job"]["id"])).scalar_one() == "cancelled"


def test_next_says_so_while_the_ranking_is_under_way(service: Service, place: tuple[str, str]) -> None:
    asked = service.post(
        f"/projects/{place[0]}/rounds", {"pool_id": place[1], "acquisition": {"name": "random"}, "k": 3}, 202
    )
    assert "still under way" in service.post(f"/rounds/{asked['round']['id']}/next", {}, 409)["detail"]


def test_two_open_rounds_share_no_rows(service: Service, place: tuple[str, str]) -> None:
    body = {"pool_id": place[1], "acquisition": {"name": "random"}, "k": 12}
    service.post(f"/projects/{place[0]}/rounds", body, 202)
    assert "still being ranked" in service.post(f"/projects/{place[0]}/rounds", body, 409)["detail"]
    service.run_jobs()
    second = open_round(service, place, k=18)
    first = service.get(f"/projects/{place[0]}/rounds")["items"][0]
    rows = [take(service, round_, "x", 100) for round_ in (first, second)]
    assert sorted(rows[0] + rows[1]) == list(range(30))
    problem = service.post(f"/projects/{place[0]}/rounds", {**body, "k": 1}, 409)
    assert "no row of pool" in problem["detail"]
    assert "or wait in a round. Add a pool, close a round" in problem["detail"]


def test_a_round_for_epig_is_told_of_the_target_that_it_takes(service: Service, place: tuple[str, str]) -> None:
    body = {"pool_id": place[1], "acquisition": {"name": "epig"}, "k": 3}
    detail = service.post(f"/projects/{place[0]}/rounds", body, 422)["detail"]
    assert '"target": {"pool_id": …}' in detail
    assert 'rows":' not in detail
