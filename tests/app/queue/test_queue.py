"""The queue's single steps, and its races between real connections. The whole is in test_queue_model."""

import threading
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event, select

from app.db.engine import Database
from app.db.tables import Job
from app.db.types import database_time
from app.queue import queue

ERROR = {"type": "oops", "title": "It broke", "detail": "it broke."}


def add(database: Database, **changes: Any) -> Job:
    with database.write() as session:
        return queue.enqueue(session, **{"kind": "k", "queue": "score", "payload": {}, **changes}).job


def take(database: Database, *, queues: tuple[str, ...] = ("score",), lease_seconds: float = 60.0) -> Job | None:
    with database.write() as session:
        return queue.claim(session, queues=queues, worker="ann", lease_seconds=lease_seconds, max_crashes=3)


def held(database: Database) -> tuple[str, int]:
    job = take(database)
    assert job is not None
    return job.id, job.token


def row(database: Database, job_id: str) -> Job:
    with database.read() as session:
        return session.scalars(select(Job).where(Job.id == job_id)).one()


def test_a_job_is_given_out_once_with_what_was_put_in(database: Database) -> None:
    added = add(database, payload={"rows": [1, 2]}, parent_id="p")
    taken = take(database)
    assert taken is not None
    assert (taken.id, taken.payload, taken.parent_id) == (added.id, {"rows": [1, 2]}, "p")
    assert (taken.status, taken.token, taken.attempts, taken.worker) == ("running", 1, 1, "ann")
    assert take(database) is None


def test_jobs_come_out_oldest_first_across_queues(database: Database) -> None:
    names = ["train", "score", "ingest", "score", "train"]
    added = [add(database, queue=name).id for name in names]
    with database.write() as session:  # times a second apart, against the order of ids
        now = database_time(session)
        for place, job_id in enumerate(added):
            session.get_one(Job, job_id).run_at = now - timedelta(seconds=place + 1)
    taken = [take(database, queues=("ingest", "score", "train")) for _ in range(6)]
    assert [job.id if job else None for job in taken] == [*reversed(added), None]


def test_a_worker_sees_only_its_own_queues(database: Database) -> None:
    add(database, queue="train")
    with database.read() as session:
        assert queue.due(session, ["score", "ingest"]) == []
        assert queue.due(session, ["score", "train"]) == [("train", "queued")]
    assert take(database, queues=("score", "ingest")) is None


def test_a_delayed_job_is_not_due_yet(database: Database) -> None:
    job = add(database, delay_seconds=3600)
    assert take(database) is None
    assert job.run_at - job.created_at == timedelta(hours=1)


def test_a_dedup_key_returns_the_job_that_has_not_started(database: Database) -> None:
    first = add(database, dedup_key="train:p", payload={"n": 1})
    with database.write() as session:
        again = queue.enqueue(session, kind="k", queue="score", payload={"n": 2}, dedup_key="train:p")
    assert (again.created, again.job.id, again.job.payload) == (False, first.id, {"n": 1})
    assert held(database)[0] == first.id
    assert add(database, dedup_key="train:p").id != first.id


def test_a_job_that_is_queued_again_does_not_collide_with_a_newer_one_of_its_key(database: Database) -> None:
    add(database, dedup_key="a")
    claim = held(database)
    newer = add(database, dedup_key="a")
    with database.write() as session:
        queue.release(session, *claim)
    with database.write() as session:
        assert queue.enqueue(session, kind="k", queue="score", payload={}, dedup_key="a").job.id == newer.id
        assert queue.depths(session) == {("score", "queued"): 2}


def test_many_callers_of_one_dedup_key_make_one_job(database: Database) -> None:
    ready, answers = threading.Barrier(6), []

    def ask() -> None:
        ready.wait()
        for n in range(20):
            with database.write() as session:
                answers.append(
                    queue.enqueue(session, kind="k", queue="score", payload={}, dedup_key=f"key {n}").created
                )

    run_together([ask] * 6)
    assert Counter(answers) == {True: 20, False: 100}
    with database.read() as session:
        assert queue.depths(session) == {("score", "queued"): 20}


def test_a_deduplicated_job_cannot_start_before_its_second_caller_commits(database: Database) -> None:
    """Else it might miss the labels that the caller is about to commit."""
    job = add(database, dedup_key="a")
    taken: list[str | None] = []

    def worker() -> None:
        found = take(database)
        taken.append(found.id if found else None)

    with database.write() as session:
        assert not queue.enqueue(session, kind="k", queue="score", payload={}, dedup_key="a").created
        thread = threading.Thread(target=worker)
        thread.start()
        thread.join(0.5)
        assert taken in ([], [None])  # SQLite waits for the writer; PostgreSQL passes the row over
    thread.join()
    assert taken == [job.id] or take(database) is not None


def test_four_workers_claim_200_jobs_once_each(database: Database) -> None:
    with database.write() as session:
        added = [queue.enqueue(session, kind="k", queue="score", payload={}).job.id for _ in range(200)]
    taken: list[str] = []

    def work() -> None:
        while (job := take(database)) is not None:
            taken.append(job.id)
            with database.write() as session:
                queue.finish(session, job.id, job.token, {})

    run_together([work] * 4)
    with database.read() as session:
        left = queue.depths(session)
    if ("score", "queued") in left:  # a worker may have left while the last rows were locked by the others
        work()
    assert sorted(taken) == sorted(added)
    with database.read() as session:
        assert queue.depths(session) == {("score", "succeeded"): 200}
        assert set(session.scalars(select(Job.attempts))) == {1}


def test_finish_and_cancel_at_once_leave_one_of_them(database: Database) -> None:
    for _ in range(15):
        job_id = add(database).id
        _, token = held(database)
        ready = threading.Barrier(2)

        def finish(job_id: str = job_id, token: int = token, ready: threading.Barrier = ready) -> None:
            ready.wait()
            with database.write() as session:
                queue.finish(session, job_id, token, {"answer": 42})

        def cancel(job_id: str = job_id, ready: threading.Barrier = ready) -> None:
            ready.wait()
            with database.write() as session:
                queue.request_cancel(session, job_id)

        run_together([finish, cancel])
        job = row(database, job_id)
        assert (job.status, job.result, job.cancel_requested) == ("succeeded", {"answer": 42}, False)


def test_a_lapsed_lease_is_taken_over_and_the_old_holder_is_refused(database: Database) -> None:
    add(database)
    old = take(database, lease_seconds=0.0)
    assert old is not None
    with database.write() as session:
        queue.checkpoint(session, old.id, old.token, {"step": 7})
    new = take(database)
    assert new is not None
    assert (new.id, new.token, new.attempts, new.crashes, new.checkpoint) == (old.id, 2, 2, 1, {"step": 7})
    for act in (queue.finish, queue.checkpoint):
        refusal = f"job {old.id} is no longer running under token 1"
        with pytest.raises(queue.LeaseLost, match=refusal), database.write() as session:
            act(session, old.id, old.token, {"answer": 1})
    assert (row(database, old.id).status, row(database, old.id).result) == ("running", None)


def test_a_job_that_kills_its_worker_again_and_again_is_given_up(database: Database) -> None:
    job_id = add(database).id
    for _ in range(3):
        assert take(database, lease_seconds=0.0) is not None
    assert take(database) is None
    job = row(database, job_id)
    assert (job.status, job.crashes, job.attempts) == ("failed", 3, 3)
    assert job.error == {
        "type": "poison-job",
        "title": "Job killed its worker",
        "detail": "The job killed its worker 3 times and was given up. "
        "The last time: worker ann fell silent and its lease lapsed.",
        "status": 500,
    }


def test_a_lapsed_job_with_a_cancel_pending_is_cancelled_not_run_again(database: Database) -> None:
    job_id = add(database).id
    take(database, lease_seconds=60)
    with database.write() as session:
        assert queue.request_cancel(session, job_id).cancel_requested
        session.get_one(Job, job_id).lease_expires_at = database_time(session)
    assert take(database) is None
    assert (row(database, job_id).status, row(database, job_id).crashes) == ("cancelled", 1)


@pytest.mark.parametrize("end", ["fail", "fail for good", "crashed", "release"])
def test_a_job_asked_to_stop_is_never_queued_again(database: Database, end: str) -> None:
    add(database)
    claim = held(database)
    with database.write() as session:
        queue.request_cancel(session, claim[0])
    with database.write() as session:
        if end == "crashed":
            queue.crashed(session, *claim, max_crashes=3, retry_in=0, error=ERROR)
        elif end == "release":
            queue.release(session, *claim)
        else:
            queue.fail(session, *claim, ERROR, retry_in=0 if end == "fail" else None)
    job = row(database, claim[0])
    assert (job.status, job.cancel_requested, job.error) == ("cancelled", False, None)
    assert job.finished_at is not None


def test_release_gives_the_attempt_back_and_keeps_the_checkpoint(database: Database) -> None:
    add(database)
    claim = held(database)
    with database.write() as session:
        queue.checkpoint(session, *claim, {"step": 3})
        queue.release(session, *claim)
    job = row(database, claim[0])
    assert (job.status, job.attempts, job.crashes, job.checkpoint) == ("queued", 0, 0, {"step": 3})
    with pytest.raises(queue.LeaseLost), database.write() as session:
        queue.finish(session, *claim, {})
    assert held(database) == (claim[0], 2)


def test_retry_starts_over_from_the_checkpoint(database: Database) -> None:
    add(database)
    claim = held(database)
    with database.write() as session:
        queue.checkpoint(session, *claim, {"step": 3})
        queue.fail(session, *claim, ERROR, retry_in=None)
    assert row(database, claim[0]).error == ERROR
    with database.write() as session:
        job = queue.retry(session, claim[0])
    assert (job.status, job.attempts, job.error, job.checkpoint) == ("queued", 0, None, {"step": 3})
    assert job.finished_at is None
    assert held(database) == (claim[0], 2)
    with pytest.raises(queue.NotRetryable, match="this one is running"), database.write() as session:
        queue.retry(session, claim[0])


def test_a_cancel_of_what_has_ended_changes_nothing(database: Database) -> None:
    add(database)
    claim = held(database)
    with database.write() as session:
        queue.finish(session, *claim, {"answer": 42})
    with database.write() as session:
        job = queue.request_cancel(session, claim[0])
    assert (job.status, job.result, job.cancel_requested) == ("succeeded", {"answer": 42}, False)


def test_a_cancel_of_a_job_whose_worker_fell_silent_does_not_wait_for_another_worker(database: Database) -> None:
    add(database)
    old = take(database, lease_seconds=0.0)
    assert old is not None
    with database.write() as session:
        assert queue.request_cancel(session, old.id).status == "cancelled"
    with pytest.raises(queue.LeaseLost), database.write() as session:
        queue.beat(session, old.id, old.token, lease_seconds=60)
    assert take(database) is None


def test_an_unknown_job_is_named(database: Database) -> None:
    with pytest.raises(queue.JobMissing, match="there is no job nowhere"), database.write() as session:
        queue.request_cancel(session, "nowhere")


def test_an_idle_look_does_not_wait_for_a_writer(database: Database) -> None:
    with database.write() as writer:
        queue.enqueue(writer, kind="k", queue="score", payload={})
        with database.read() as session:
            assert queue.due(session, ["score"]) == []


def test_looking_for_work_reads_by_index_however_many_jobs_have_ended(database: Database) -> None:
    statements: list[tuple[str, Any]] = []

    def listen(_c: Any, _u: Any, statement: str, parameters: Any, _x: Any, _m: bool) -> None:
        statements.append((statement, parameters))

    event.listen(database.engine, "before_cursor_execute", listen)
    with database.read() as session:
        queue.due(session, ["score", "train"])
        event.remove(database.engine, "before_cursor_execute", listen)
        if not database.is_sqlite:
            session.connection().exec_driver_sql("SET enable_seqscan = off")  # the table is empty, so its planner would
        ((statement, parameters),) = [pair for pair in statements if "min(" in pair[0]]
        prefix = "EXPLAIN QUERY PLAN " if database.is_sqlite else "EXPLAIN "
        plan = str(session.connection().exec_driver_sql(prefix + statement, parameters).all())
    assert plan.count("job_claim") == 4
    assert "SCAN job" not in plan
    assert "Seq Scan" not in plan


def run_together(acts: list[Any]) -> None:
    failures: list[BaseException] = []

    def guarded(act: Any) -> None:
        try:
            act()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=guarded, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
