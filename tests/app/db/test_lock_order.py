"""One order of locks (`app.db.projects`): what happens at the same moment waits for each other, and then succeeds."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event, select

from app.db import projects
from app.db.tables import Job, Ranking, Schedule
from app.events import publish
from app.queue import queue
from app.rankings import run as rank_pool
from app.schedules.fire import count_labels
from tests.app.conftest import Service
from tests.app.designing import session as begin_session
from tests.app.hammering import SMALL
from tests.app.working import on_sqlite

OF_A_PROJECT = {
    "pool",
    "pool_data",
    "label",
    "ensemble",
    "ensemble_result",
    "ranking",
    "ranking_result",
    "ranking_item",
    "prediction",
    "prediction_result",
    "project_change",
    "backtest",
    "backtest_result",
    "round",
    "round_item",
    "reservation",
    "schedule",
}
WRITES = re.compile(r"(?:INSERT INTO|UPDATE|DELETE FROM) (\w+)|SELECT .* FROM (\w+)\b.* FOR UPDATE", re.DOTALL)
A_MOMENT = 0.3


class Doing(threading.Thread):
    """Something done beside the test, and what came of it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__()
        self._work = work
        self.start()

    def run(self) -> None:
        try:
            self.answer = self._work()
        except BaseException as error:
            self.answer = error

    def waits(self) -> bool:
        self.join(A_MOMENT)
        return self.is_alive()

    def ends(self) -> Any:
        self.join(60)
        assert not self.is_alive()
        return self.answer


@pytest.fixture
def place(service: Service) -> tuple[str, str]:
    task = {"kind": "classification", "classes": ["a", "b"]}
    project = service.post("/projects", {"name": "two", "task": task, **SMALL}, 201)
    rows = {"name": "pool", "rows": [[i, i % 3] for i in range(12)], "labels": ["a", "b", *[None] * 10]}
    return project["id"], service.post(f"/projects/{project['id']}/pools", rows)["id"]


def ask_for_round(service: Service, place: tuple[str, str]) -> dict[str, Any]:
    body = {"pool_id": place[1], "acquisition": {"name": "random"}, "k": 3}
    return dict(service.post(f"/projects/{place[0]}/rounds", body, 202))


def delete(service: Service, path: str) -> Callable[[], int]:
    return lambda: service.client.delete(f"/v1{path}").status_code


def test_a_schedule_is_deleted_once_the_labels_are_counted_for_it(service: Service, place: tuple[str, str]) -> None:
    schedule_id = service.post(f"/projects/{place[0]}/schedules", {"every_labels": 100}, 201)["id"]
    with service.services.database.write() as session:
        project = projects.lock(session, place[0])
        assert session.get(Schedule, schedule_id) is not None  # read, and about to be written
        deletion = Doing(delete(service, f"/schedules/{schedule_id}"))
        assert deletion.waits()
        count_labels(service.services.settings, session, project, 1)
    assert deletion.ends() == 204
    service.get(f"/schedules/{schedule_id}", 404)


def test_labels_posted_while_their_schedule_is_deleted_are_kept(service: Service, place: tuple[str, str]) -> None:
    schedule_id = service.post(f"/projects/{place[0]}/schedules", {"every_labels": 1}, 201)["id"]
    body = {"labels": [{"pool_id": place[1], "row": 5, "value": "a"}]}
    with service.services.database.write() as session:
        projects.lock(session, place[0])
        posting = Doing(lambda: service.post(f"/projects/{place[0]}/labels", body, 201))
        assert posting.waits()
        session.delete(session.get_one(Schedule, schedule_id))
    assert posting.ends()["triggered"] == []
    assert service.get(f"/pools/{place[1]}")["n_labelled"] == 3


@contextmanager
def halting(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """A ranking that stops after its items were handed out and before its job has ended, until it may go on."""
    handed_out, go_on = threading.Event(), threading.Event()

    def publish_and_halt(*arguments: Any) -> list[str]:
        jobs = publish(*arguments)
        handed_out.set()
        go_on.wait(60)
        return jobs

    monkeypatch.setattr(rank_pool, "publish", publish_and_halt)
    try:
        yield handed_out, go_on
    finally:
        go_on.set()


def test_a_pool_is_deleted_once_the_round_is_handed_out(
    service: Service, place: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ask_for_round(service, place)
    with halting(monkeypatch) as (handed_out, go_on):
        ranking = Doing(service.run_jobs)
        assert handed_out.wait(60)
        deletion = Doing(delete(service, f"/pools/{place[1]}"))
        assert deletion.waits()
        go_on.set()
        ended, status = ranking.ends(), deletion.ends()
    assert (ended[:1], status) == ([asked["job"]["id"]], 204)
    assert service.get(f"/jobs/{asked['job']['id']}")["status"] == "succeeded"
    service.get(f"/pools/{place[1]}", 404)


def test_a_ranking_that_ends_while_its_pool_is_deleted_is_cancelled(
    service: Service, place: tuple[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = ask_for_round(service, place)
    database = service.services.database
    chosen, go_on = threading.Event(), threading.Event()
    look = rank_pool._known_rows

    def known_rows(*arguments: Any) -> Any:
        chosen.set()
        go_on.wait(60)
        return look(*arguments)

    monkeypatch.setattr(rank_pool, "_known_rows", known_rows)
    ranking = Doing(service.run_jobs)
    assert chosen.wait(60)
    assert delete(service, f"/pools/{place[1]}")() == 204
    go_on.set()
    assert ranking.ends()[0] == asked["job"]["id"]
    with database.read() as session:
        assert session.scalars(select(Job.status).where(Job.id == asked["job"]["id"])).one() == "cancelled"
        assert session.scalars(select(Ranking)).all() == []
    assert not [record for record in caplog.records if record.exc_info]


@on_sqlite
def test_whoever_writes_what_belongs_to_a_project_holds_it_first(service: Service, place: tuple[str, str]) -> None:
    """Of every transaction, the tables that it writes or locks, in their order."""
    project_id, pool_id = place
    written: list[list[str]] = [[]]

    def note(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith(("BEGIN", "COMMIT", "ROLLBACK")):
            written.append([])
        elif (found := WRITES.match(statement)) is not None:
            written[-1].append(found[1] or found[2])

    engine = service.services.database.engine
    event.listen(engine, "before_cursor_execute", note)
    then = {"pool_id": pool_id, "acquisition": {"name": "random"}, "k": 2}
    service.post(f"/projects/{project_id}/schedules", {"every_labels": 2, "then_open_round": then}, 201)
    by_round = service.post(f"/projects/{project_id}/schedules", {"on_round_complete": True}, 201)["id"]
    asked = ask_for_round(service, place)
    service.run_jobs()
    items = service.post(f"/rounds/{asked['round']['id']}/next", {"count": 3})["items"]
    body = {"labels": [{"row": item["row"], "value": "ab"[item["row"] % 2]} for item in items]}
    service.post(f"/rounds/{asked['round']['id']}/labels", body, 201)
    service.run_jobs()
    ensemble_id = service.get(f"/projects/{project_id}")["current_ensemble_id"]
    service.post(f"/ensembles/{ensemble_id}/predictions", {"pool_id": pool_id}, 202)
    service.post(f"/projects/{project_id}/current", {"ensemble_id": ensemble_id}, 200)
    service.post(f"/pools/{pool_id}/rankings", {"k": 1, "acquisition": {"name": "random"}}, 202)
    service.client.patch(f"/v1/projects/{project_id}", json={"name": "other"}).raise_for_status()
    known = {"name": "known", "rows": [[i, 1] for i in range(24)], "labels": ["a", "b"] * 12, "purpose": "evaluation"}
    own = service.post(f"/projects/{project_id}/pools", known, 201)["id"]
    short = {"pool_id": own, "k": 1, "rounds": 1, "seeds": 2, "strategies": []}
    service.post(f"/projects/{project_id}/backtests", short, 202)
    empty = service.post(f"/projects/{project_id}/pools", {"name": "empty"}, 201)["id"]
    service.client.put(f"/v1/pools/{empty}/data", content="a,b,label\n1,2,a\n", headers={"Content-Type": "text/csv"})
    service.run_jobs()
    service.client.patch(f"/v1/schedules/{by_round}", json={"paused": True}).raise_for_status()
    for path in (f"/schedules/{by_round}", f"/pools/{empty}", f"/pools/{pool_id}", f"/projects/{project_id}"):
        assert delete(service, path)() == 204
    of_projects = [tables for tables in written if OF_A_PROJECT & set(tables)]
    assert len(of_projects) >= 15
    assert {table for tables in of_projects for table in tables} >= OF_A_PROJECT
    assert [tables for tables in of_projects if tables[0] != "project"] == []


def test_an_experiment_is_deleted_once_its_simulation_has_ended(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment_id = begin_session(service)["experiment_id"]
    asked = service.post(f"/experiments/{experiment_id}/simulations", {"rounds": 1, "n_draws": 2})
    inserted, go_on = threading.Event(), threading.Event()
    finish = queue.finish

    def late(session: Any, *arguments: Any, **options: Any) -> None:
        session.flush()
        inserted.set()
        go_on.wait(60)
        finish(session, *arguments, **options)

    monkeypatch.setattr(queue, "finish", late)
    simulation = Doing(service.run_jobs)
    assert inserted.wait(60)
    deletion = Doing(delete(service, f"/experiments/{experiment_id}"))
    assert deletion.waits()
    go_on.set()
    assert simulation.ends()[:1] == [asked["job"]["id"]]
    assert deletion.ends() == 204
