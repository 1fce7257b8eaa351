"""A job that splits itself: its children are shared by the workers, and it goes on when the last has ended."""

import threading
from typing import Any

import pytest
from sqlalchemy import select

from app.db.engine import Database
from app.db.jobs import shown, shown_status, status_of
from app.db.tables import Job
from app.queue import queue
from app.queue.context import JobContext, perform
from app.settings import Settings

PARTS = [{"part": i} for i in range(3)]


def add(database: Database) -> str:
    with database.write() as session:
        return queue.enqueue(session, kind="whole", queue="score", payload={}).job.id


def claim(database: Database) -> Job | None:
    with database.write() as session:
        return queue.claim(session, queues=["score"], worker="tester", lease_seconds=30, max_crashes=3)


def claimed(database: Database) -> Job:
    job = claim(database)
    assert job is not None
    return job


def split(database: Database, parent: Job, payloads: list[dict[str, Any]] = PARTS) -> None:
    with database.write() as session:
        progress = {"done": 0.0, "total": 30.0, "message": "parts"}
        queue.wait(session, parent.id, parent.token, payloads, kind="part", progress=progress)


def finish(database: Database, job: Job) -> None:
    with database.write() as session:
        queue.finish(session, job.id, job.token, {}, progress={"done": 10.0, "total": 10.0, "message": ""})


def row(database: Database, job_id: str) -> Job:
    with database.read() as session:
        return session.get_one(Job, job_id)


def test_a_split_job_is_claimed_again_when_its_last_child_has_ended(database: Database) -> None:
    parent_id = add(database)
    split(database, claimed(database))
    parts = []
    for n_done in range(3):
        waiting = row(database, parent_id)
        assert (waiting.status, waiting.attempts, waiting.progress) == (
            "queued",
            0,
            {"done": 10.0 * n_done, "total": 30.0, "message": "parts"},
        )
        child = claimed(database)
        assert (child.parent_id, child.kind) == (parent_id, "part")
        parts.append(child.payload["part"])
        finish(database, child)
    assert sorted(parts) == [0, 1, 2]
    again = claimed(database)
    assert (again.id, again.attempts, again.token) == (parent_id, 1, 2)
    assert claim(database) is None


def test_a_waiting_job_holds_no_lease_and_no_worker(database: Database) -> None:
    parent_id = add(database)
    parent = claimed(database)
    split(database, parent)
    waiting = row(database, parent_id)
    assert (waiting.worker, waiting.lease_expires_at) == (None, None)
    children = [claimed(database) for _ in PARTS]
    assert claim(database) is None
    with database.write() as session, pytest.raises(queue.LeaseLost):
        queue.finish(session, parent.id, parent.token, {})
    with database.read() as session:
        assert queue.was_left(session, parent.id, parent.token)
    assert {child.parent_id for child in children} == {parent_id}


def test_a_split_job_is_shown_as_running_until_it_has_ended(database: Database) -> None:
    parent_id, other_id = add(database), add(database)
    parent = claimed(database)
    assert parent.id == parent_id

    def seen() -> tuple[str, list[str]]:
        with database.read() as session:
            running = session.scalars(select(Job.id).where(shown_status() == "running", Job.parent_id.is_(None)))
            return status_of(session, session.get_one(Job, parent_id)), list(running)

    assert seen() == ("running", [parent_id])
    split(database, parent)
    assert row(database, parent_id).status == "queued"
    assert seen() == ("running", [parent_id])
    with database.read() as session:
        assert status_of(session, session.get_one(Job, other_id)) == "queued"
    with database.write() as session:
        queue.request_cancel(session, parent_id)
    assert seen() == ("cancelled", [])
    with database.write() as session:
        queue.retry(session, parent_id)
    assert seen() == ("queued", [])


def test_a_split_job_shows_what_is_done_of_the_parts_that_run(database: Database) -> None:
    parent_id = add(database)
    split(database, claimed(database))

    def shown_progress() -> Any:
        with database.read() as session:
            return shown(session, session.get_one(Job, parent_id))[1]

    assert shown_progress() == {"done": 0.0, "total": 30.0, "message": "parts: 3 waiting"}
    first, second = claimed(database), claimed(database)
    for child, done in ((first, 4.0), (second, 9.0)):
        with database.write() as session:
            progress = {"done": done, "total": 10.0, "message": ""}
            queue.beat(session, child.id, child.token, lease_seconds=30, progress=progress)
    assert shown_progress() == {"done": 13.0, "total": 30.0, "message": "parts: 2 running, 1 waiting"}
    finish(database, first)
    assert shown_progress() == {"done": 19.0, "total": 30.0, "message": "parts: 1 done, 1 running, 1 waiting"}
    with database.write() as session:
        queue.crashed(session, second.id, second.token, max_crashes=3, retry_in=0, error={"detail": "gone"})
    assert shown_progress() == {"done": 10.0, "total": 30.0, "message": "parts: 1 done, 2 waiting"}
    assert row(database, parent_id).progress == {"done": 10.0, "total": 30.0, "message": "parts"}


def test_cancelling_a_waiting_job_cancels_its_children(database: Database) -> None:
    parent_id = add(database)
    split(database, claimed(database))
    running = claimed(database)
    with database.write() as session:
        assert queue.request_cancel(session, parent_id).status == "cancelled"
    assert row(database, running.id).cancel_requested
    with database.read() as session:
        statuses = session.scalars(select(Job.status).where(Job.parent_id == parent_id)).all()
    assert sorted(statuses) == ["cancelled", "cancelled", "running"]
    with database.write() as session:
        queue.cancelled(session, running.id, running.token)
    assert row(database, parent_id).status == "cancelled"
    assert claim(database) is None


def test_a_child_that_fails_for_good_wakes_its_parent_at_once(database: Database) -> None:
    parent_id = add(database)
    split(database, claimed(database))
    child = claimed(database)
    with database.write() as session:
        queue.fail(session, child.id, child.token, {"type": "x", "title": "x", "detail": "x"}, retry_in=None)
    others = [claimed(database).id for _ in range(3)]
    assert parent_id in others


def test_a_retried_job_splits_itself_anew(database: Database) -> None:
    parent_id = add(database)
    split(database, claimed(database))
    with database.write() as session:
        queue.request_cancel(session, parent_id)
    with database.write() as session:
        queue.retry(session, parent_id)
        assert queue.children(session, parent_id) == []
    split(database, claimed(database), PARTS[:1])
    assert claimed(database).payload == PARTS[0]


def test_a_job_that_is_cancelled_while_it_splits_has_no_children(database: Database) -> None:
    parent = claimed_parent(database)
    with database.write() as session:
        queue.request_cancel(session, parent.id)
    split(database, parent)
    assert row(database, parent.id).status == "cancelled"
    assert claim(database) is None


def claimed_parent(database: Database) -> Job:
    add(database)
    return claimed(database)


def test_children_that_end_together_wake_their_parent_once(database: Database) -> None:
    for _ in range(10):
        parent = claimed_parent(database)
        split(database, parent)
        children = [claimed(database) for _ in PARTS]
        threads = [threading.Thread(target=finish, args=(database, child)) for child in children]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        again = claimed(database)
        assert again.id == parent.id
        assert again.progress == {"done": 30.0, "total": 30.0, "message": "parts"}
        finish(database, again)


def test_a_handler_waits_by_one_call(database: Database) -> None:
    def handler(job: JobContext) -> None:
        children = job.children()
        if not children:
            job.wait_for("part", PARTS, done=0.0, total=30, message="parts")
        with job.finish({"parts": [child.status for child in children]}):
            pass

    def context(job: Job) -> JobContext:
        return JobContext(
            job_id=job.id,
            token=job.token,
            kind=job.kind,
            payload=job.payload,
            project_id=None,
            attempt=job.attempts,
            checkpoint=None,
            database=database,
            settings=Settings(),
            send=lambda _: None,
        )

    parent = claimed_parent(database)
    assert perform(handler, context(parent))["say"] == "waits"
    for _ in PARTS:
        finish(database, claimed(database))
    assert perform(handler, context(claimed(database)))["say"] == "done"
    assert row(database, parent.id).result == {"parts": ["succeeded"] * 3}
