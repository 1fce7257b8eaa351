"""Schedules train by the clock, by labels and by rounds, and may keep the loop going."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select, update

from app.db.tables import Job, Schedule
from app.db.types import database_time
from app.schedules.fire import next_time, tick
from tests.app.conftest import Service
from tests.app.working import on_sqlite


@pytest.fixture
def place(service: Service) -> tuple[str, str]:
    project = service.project(task={"kind": "classification", "classes": ["a", "b"]}, input={"shape": [2]})
    pool = service.post(f"/projects/{project['id']}/pools", {"name": "pool", "rows": [[i, i % 3] for i in range(12)]})
    return project["id"], pool["id"]


def schedule(service: Service, place: tuple[str, str], **body: Any) -> str:
    return str(service.post(f"/projects/{place[0]}/schedules", body, 201)["id"])


def label(service: Service, place: tuple[str, str], *rows: int) -> list[str]:
    body = {"labels": [{"pool_id": place[1], "row": row, "value": "ab"[row % 2]} for row in rows]}
    return list(service.post(f"/projects/{place[0]}/labels", body, 201)["triggered"])


def make_due(service: Service) -> None:
    with service.services.database.write() as session:
        session.execute(update(Schedule).values(next_fire_at=database_time(session) - timedelta(seconds=1)))


def test_every_n_labels_trains_once_they_are_there(service: Service, place: tuple[str, str]) -> None:
    schedule(service, place, every_labels=3)
    assert label(service, place, 0, 1) == []
    triggered = label(service, place, 2)
    assert len(triggered) == 1
    assert service.run_jobs() == triggered
    assert label(service, place, 3, 4) == []
    assert len(label(service, place, 5)) == 1


def test_skips_do_not_count_as_labels(service: Service, place: tuple[str, str]) -> None:
    schedule(service, place, every_labels=2)
    label(service, place, 0)
    body = {"labels": [{"pool_id": place[1], "row": row, "skip": True} for row in (1, 2)]}
    assert service.post(f"/projects/{place[0]}/labels", body, 201)["triggered"] == []


def test_a_debounce_delays_the_start_and_joins_what_follows(service: Service, place: tuple[str, str]) -> None:
    schedule(service, place, every_labels=2, debounce_seconds=3600)
    triggered = label(service, place, 0, 1)
    assert len(triggered) == 1
    assert label(service, place, 2, 3) == []  # the training that waits will see these too
    job = service.get(f"/jobs/{triggered[0]}")
    waits = datetime.fromisoformat(job["run_at"]) - datetime.fromisoformat(job["created_at"])
    assert (job["status"], waits) == ("queued", timedelta(seconds=3600))
    assert service.run_jobs() == []
    with service.services.database.write() as session:
        session.execute(update(Job).values(run_at=database_time(session)))
    assert service.run_jobs() == triggered
    assert service.get(f"/projects/{place[0]}/learning-curve")["points"][0]["n_labels"] == 4


def test_a_cron_fires_once_when_due_and_then_waits_for_its_next_time(service: Service, place: tuple[str, str]) -> None:
    schedule_id = schedule(service, place, cron="0 3 * * *", timezone="Europe/Berlin")
    label(service, place, 0, 1)
    settings, database = service.services.settings, service.services.database
    tick(database, settings)
    assert service.run_jobs() == []
    make_due(service)
    tick(database, settings)
    tick(database, settings)
    assert len(service.run_jobs()) == 1
    told = service.get(f"/schedules/{schedule_id}")
    assert told["n_fired"] == 1
    following = datetime.fromisoformat(told["next_fire_at"])
    assert datetime.now(UTC) < following <= datetime.now(UTC) + timedelta(days=1, hours=1)


def test_a_cron_keeps_its_hour_over_the_change_of_clocks() -> None:
    before = datetime(2026, 3, 28, 12, tzinfo=UTC)
    assert next_time("0 9 * * *", "Europe/Berlin", before) == datetime(2026, 3, 29, 7, tzinfo=UTC)
    assert next_time("0 9 * * *", "Europe/Berlin", before - timedelta(days=1)) == datetime(2026, 3, 28, 8, tzinfo=UTC)


def test_a_cron_with_nothing_to_train_on_says_so(service: Service, place: tuple[str, str]) -> None:
    schedule_id = schedule(service, place, cron="* * * * *")
    make_due(service)
    tick(service.services.database, service.services.settings)
    assert "nothing to train on" in service.get(f"/schedules/{schedule_id}")["note"]
    assert service.run_jobs() == []


def test_a_paused_schedule_does_not_fire(service: Service, place: tuple[str, str]) -> None:
    by_labels = schedule(service, place, every_labels=1)
    by_clock = schedule(service, place, cron="* * * * *")
    for schedule_id in (by_labels, by_clock):
        service.client.patch(f"/v1/schedules/{schedule_id}", json={"paused": True}).raise_for_status()
    assert label(service, place, 0, 1) == []
    make_due(service)
    tick(service.services.database, service.services.settings)
    assert service.run_jobs() == []
    resumed = service.client.patch(f"/v1/schedules/{by_clock}", json={"paused": False}).json()
    assert datetime.fromisoformat(resumed["next_fire_at"]) > datetime.now(UTC)


def test_a_schedule_keeps_the_loop_going_until_nothing_is_left(service: Service, place: tuple[str, str]) -> None:
    then = {"pool_id": place[1], "acquisition": {"name": "entropy"}, "k": 5, "retrain": False}
    schedule_id = schedule(service, place, on_round_complete=True, then_open_round=then)
    first = {"pool_id": place[1], "acquisition": {"name": "random"}, "k": 2}
    service.post(f"/projects/{place[0]}/rounds", first, 202)
    seen = []
    for _ in range(4):
        service.run_jobs()
        rounds = service.get(f"/projects/{place[0]}/rounds")["items"]
        current = [round_ for round_ in rounds if round_["status"] == "open"]
        if not current:
            break
        items = service.post(f"/rounds/{current[0]['id']}/next", {"count": 100})["items"]
        seen.append(len(items))
        body = {"labels": [{"row": i["row"], "value": "ab"[i["row"] % 2]} for i in items]}
        service.post(f"/rounds/{current[0]['id']}/labels", body, 201)
    assert seen == [2, 5, 5]
    assert service.get(f"/pools/{place[1]}")["n_labelled"] == 12
    told = service.get(f"/schedules/{schedule_id}")
    assert (told["n_fired"], told["note"]) == (3, "no round was opened: every row is labelled or skipped")
    assert [p["n_labels"] for p in service.get(f"/projects/{place[0]}/learning-curve")["points"]] == [2, 7, 12]


def test_a_round_and_a_schedule_share_one_training(service: Service, place: tuple[str, str]) -> None:
    schedule(service, place, on_round_complete=True)
    asked = service.post(
        f"/projects/{place[0]}/rounds", {"pool_id": place[1], "acquisition": {"name": "random"}, "k": 2}, 202
    )
    service.run_jobs()
    items = service.post(f"/rounds/{asked['round']['id']}/next", {"count": 2})["items"]
    body = {"labels": [{"row": item["row"], "value": "a"} for item in items]}
    assert len(service.post(f"/rounds/{asked['round']['id']}/labels", body, 201)["triggered"]) == 1
    service.run_jobs()
    ensembles = service.get(f"/projects/{place[0]}/ensembles")["items"]
    assert len(ensembles) == 1
    assert service.get(f"/rounds/{asked['round']['id']}")["ensemble_id"] == ensembles[0]["id"]


def test_a_deleted_schedule_is_gone(service: Service, place: tuple[str, str]) -> None:
    schedule_id = schedule(service, place, every_labels=1)
    assert service.client.delete(f"/v1/schedules/{schedule_id}").status_code == 204
    service.get(f"/schedules/{schedule_id}", 404)
    assert label(service, place, 0) == []
    with service.services.database.read() as session:
        assert session.execute(select(Schedule.id)).all() == []


def test_two_schedules_open_one_round_and_say_why_not_two(service: Service, place: tuple[str, str]) -> None:
    then = {"pool_id": place[1], "acquisition": {"name": "entropy"}, "k": 50}
    ids = [schedule(service, place, every_labels=2, then_open_round=then) for _ in range(2)]
    label(service, place, 0, 1)
    service.run_jobs()
    (round_,) = service.get(f"/projects/{place[0]}/rounds")["items"]
    assert round_["n_items"] == 10
    notes = [service.get(f"/schedules/{schedule_id}")["note"] for schedule_id in ids]
    assert notes[0] == "the round has 10 items, not 50: no more rows are left"
    assert "still being ranked" in notes[1]


@on_sqlite
def test_what_a_round_would_be_refused_for_is_refused_when_it_is_scheduled(
    service: Service, place: tuple[str, str]
) -> None:
    foreign = service.post(f"/projects/{service.project()['id']}/pools", {"name": "foreign"}, 201)["id"]
    round_ = {"pool_id": place[1], "k": 2}
    epig = {"name": "epig"}
    for status, words, then in (
        (404, f"this project has no pool {foreign!r}", {"acquisition": epig, "target": {"pool_id": foreign}}),
        (404, f"this project has no pool {foreign!r}", {"pool_id": foreign}),
        (422, "epig needs a target set", {"acquisition": epig}),
        (422, "knows no target set", {"acquisition": {"name": "entropy"}, "target": {"pool_id": place[1]}}),
    ):
        body = {"every_labels": 5, "then_open_round": {**round_, **then}}
        problem = service.post(f"/projects/{place[0]}/schedules", body, status)
        assert words in problem["detail"]
        if status == 422:
            assert problem["errors"][0]["pointer"].startswith("/then_open_round/")
    assert service.get(f"/projects/{place[0]}/schedules")["items"] == []
    numbers = service.project(task={"kind": "regression"}, input={"shape": [1]})["id"]
    pool_id = service.post(f"/projects/{numbers}/pools", {"name": "p", "rows": [[0]]}, 201)["id"]
    then = {"pool_id": pool_id, "k": 1, "acquisition": {"name": "margin"}}
    problem = service.post(f"/projects/{numbers}/schedules", {"every_labels": 5, "then_open_round": then}, 422)
    assert problem["errors"][0]["pointer"] == "/then_open_round/acquisition/name"
    own = {**round_, "acquisition": epig, "target": {"pool_id": place[1]}}
    schedule(service, place, every_labels=5, then_open_round=own)


def spoil(service: Service, schedule_id: str, **columns: Any) -> None:
    """As a schedule might be that an older version stored."""
    with service.services.database.write() as session:
        session.execute(update(Schedule).where(Schedule.id == schedule_id).values(columns))


@on_sqlite
def test_a_cron_that_raises_is_paused_with_its_reason_and_the_others_fire(
    service: Service, place: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    label(service, place, 0, 1)
    bad_training, bad_zone, good = (schedule(service, place, cron="0 3 * * *") for _ in range(3))
    spoil(service, bad_training, training={"epochs_of_old": 3})
    spoil(service, bad_zone, timezone="Atlantis/Capital")
    make_due(service)
    tick(service.services.database, service.services.settings)
    told = {item["id"]: item for item in service.get(f"/projects/{place[0]}/schedules")["items"]}
    assert (told[good]["paused"], told[good]["n_fired"], told[good]["note"]) == (False, 1, None)
    assert len(service.run_jobs()) == 1
    for schedule_id, reason in ((bad_training, "TypeError"), (bad_zone, "unknown time zone 'Atlantis/Capital'")):
        assert (told[schedule_id]["paused"], told[schedule_id]["n_fired"]) == (True, 0)
        assert "paused after an unforeseen error" in told[schedule_id]["note"]
        assert reason in told[schedule_id]["note"]
    logged = [record for record in caplog.records if record.exc_info]
    assert [record.__dict__["schedule_id"] for record in logged] == [bad_training, bad_zone]
    spoil(service, bad_training, training={"n_members": 2})
    resumed = service.client.patch(f"/v1/schedules/{bad_training}", json={"paused": False}).json()
    assert (resumed["paused"], resumed["note"]) == (False, None)
    make_due(service)
    tick(service.services.database, service.services.settings)
    assert service.get(f"/schedules/{bad_training}")["n_fired"] == 1


@on_sqlite
def test_labels_are_kept_whatever_a_schedule_raises(service: Service, place: tuple[str, str]) -> None:
    by_labels, by_round, good = (
        schedule(service, place, **trigger)
        for trigger in ({"every_labels": 2}, {"on_round_complete": True}, {"every_labels": 2})
    )
    for schedule_id in (by_labels, by_round):
        spoil(service, schedule_id, training={"epochs_of_old": 3})
    opened = service.post(
        f"/projects/{place[0]}/rounds", {"pool_id": place[1], "acquisition": {"name": "random"}, "k": 2}, 202
    )["round"]["id"]
    service.run_jobs()
    rows = [item["row"] for item in service.post(f"/rounds/{opened}/next", {"count": 2})["items"]]
    assert len(label(service, place, *rows)) == 1
    round_ = service.get(f"/rounds/{opened}")
    assert (round_["status"], round_["ensemble_id"] is not None) == ("complete", True)
    assert service.get(f"/pools/{place[1]}")["n_labelled"] == 2
    paused = {schedule_id: service.get(f"/schedules/{schedule_id}")["paused"] for schedule_id in (by_labels, by_round)}
    assert paused == {by_labels: True, by_round: True}
    assert service.get(f"/schedules/{good}")["n_fired"] == 1


@on_sqlite
def test_a_training_stands_whatever_the_round_after_it_raises(service: Service, place: tuple[str, str]) -> None:
    then = {"pool_id": place[1], "acquisition": {"name": "random"}, "k": 2}
    schedule_id = schedule(service, place, every_labels=2, then_open_round=then)
    spoil(service, schedule_id, then_open_round={**then, "selection": {"name": "top_k"}})  # and no seed
    (job_id,) = label(service, place, 0, 1)
    service.run_jobs()
    assert service.get(f"/jobs/{job_id}")["status"] == "succeeded"
    told = service.get(f"/schedules/{schedule_id}")
    assert (told["paused"], "KeyError: 'seed'" in told["note"]) == (True, True)
    assert service.get(f"/projects/{place[0]}/rounds")["items"] == []
