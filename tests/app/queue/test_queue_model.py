"""The queue against a plain-Python model of it: several workers, stale tokens, and a clock that the test moves."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import delete, event, literal, select
from sqlalchemy.orm import Session

from app.db.engine import Database
from app.db.tables import Job
from app.db.types import UtcDateTime
from app.queue import queue

LEASE = 10.0
MAX_CRASHES = 2
QUEUES = ("score", "train")
ENDED = ("succeeded", "failed", "cancelled")


@dataclass(frozen=True, kw_only=True)
class Row:
    """What a job should look like."""

    queue: str
    run_at: datetime
    dedup_key: str | None
    status: str = "queued"
    attempts: int = 0
    crashes: int = 0
    token: int = 0
    worker: str | None = None
    lease_expires_at: datetime | None = None
    cancel_requested: bool = False
    progress: dict[str, Any] | None = None
    checkpoint: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    error_type: str | None = None

    def ended(self, status: str, error_type: str | None = None) -> "Row":
        return replace(
            self, status=status, error_type=error_type, lease_expires_at=None, cancel_requested=False, dedup_key=None
        )

    def queued_again(self, run_at: datetime, error_type: str | None) -> "Row":
        return replace(self, status="queued", run_at=run_at, error_type=error_type, worker=None, lease_expires_at=None)

    def after_crash(self, run_at: datetime, error_type: str) -> "Row":
        crashed = replace(self, crashes=self.crashes + 1)
        if self.cancel_requested:
            return crashed.ended("cancelled")
        if crashed.crashes >= MAX_CRASHES:
            return crashed.ended("failed", "poison-job")
        return crashed.queued_again(run_at, error_type)


def row_of(job: Job) -> Row:
    fields = {name: getattr(job, name) for name in Row.__dataclass_fields__ if name != "error_type"}
    return Row(**fields, error_type=job.error["type"] if job.error else None)


class QueueMachine(RuleBasedStateMachine):
    jobs = Bundle("jobs")
    claims = Bundle("claims")

    def __init__(self, database: Database) -> None:
        super().__init__()
        self.database = database
        self.now = datetime(2030, 1, 1, tzinfo=UTC)
        self.rows: dict[str, Row] = {}
        self.ends: dict[str, int] = {}
        self.retries: dict[str, int] = {}

    @initialize(target=jobs)
    def start_with_two_jobs(self) -> Any:
        with self.database.write() as session:
            session.execute(delete(Job))
        return multiple(*(self.add(name, 0, None) for name in QUEUES))

    @property
    def clock(self) -> Any:
        return literal(self.now, UtcDateTime())

    def later(self, seconds: float) -> datetime:
        return self.now + timedelta(seconds=seconds)

    def pass_time(self, seconds: float = 0.0) -> None:
        """A millisecond a step besides, so that no two jobs are due at the same instant."""
        self.now += timedelta(seconds=seconds, milliseconds=1)

    def put(self, job_id: str, row: Row) -> None:
        before = self.rows.get(job_id)
        if row.status in ENDED and before is not None and before.status not in ENDED:
            self.ends[job_id] = self.ends.get(job_id, 0) + 1
        self.rows[job_id] = row

    def fenced(
        self, job_id: str, token: int, act: Callable[[Session], object], expected: Callable[[Row], Row]
    ) -> object:
        """The act works for the holder of a running job and is refused to everybody else."""
        row = self.rows[job_id]
        if row.status != "running" or row.token != token:
            with pytest.raises(queue.LeaseLost), self.database.write() as session:
                act(session)
            return None
        with self.database.write() as session:
            answer = act(session)
        self.put(job_id, expected(row))
        return answer

    @rule(
        target=jobs,
        name=st.sampled_from(QUEUES),
        delay=st.sampled_from([0, 0, 0, 5, 30]),
        key=st.sampled_from([None, None, "a", "b"]),
    )
    def enqueue(self, name: str, delay: float, key: str | None) -> str:
        return self.add(name, delay, key)

    def add(self, name: str, delay: float, key: str | None) -> str:
        self.pass_time()
        with self.database.write() as session:
            answer = queue.enqueue(
                session, kind="k", queue=name, payload={}, delay_seconds=delay, dedup_key=key, clock=self.clock
            )
        same = [i for i, row in self.rows.items() if key and row.dedup_key == key and row.status == "queued"]
        assert answer.created == (not same)
        if same:
            assert [answer.job.id] == same
        else:
            self.rows[answer.job.id] = Row(queue=name, run_at=self.later(delay), dedup_key=key)
        return answer.job.id

    @rule(target=claims, worker=st.sampled_from(["ann", "ben", "cat"]), names=st.sampled_from([QUEUES, ("score",)]))
    def claim(self, worker: str, names: tuple[str, ...]) -> Any:
        self.pass_time()
        with self.database.write() as session:
            job = queue.claim(
                session, queues=names, worker=worker, lease_seconds=LEASE, max_crashes=MAX_CRASHES, clock=self.clock
            )
        expected = None
        while expected is None and (due := self.due(names)):
            oldest = min(due, key=lambda job_id: self.rows[job_id].run_at)
            row = self.rows[oldest]
            if row.status == "running":
                row = row.after_crash(row.run_at, "lease-lapsed")
            if row.status == "queued":
                expected = oldest
                row = replace(row, status="running", dedup_key=None, worker=worker, lease_expires_at=self.later(LEASE))
                row = replace(row, token=row.token + 1, attempts=row.attempts + 1)
            self.put(oldest, row)
        assert (job.id if job else None) == expected
        return (job.id, job.token) if job else multiple()

    def due(self, names: tuple[str, ...]) -> list[str]:
        def is_due(row: Row) -> bool:
            waits = row.status == "queued" and row.run_at <= self.now
            lapsed = row.status == "running" and row.lease_expires_at is not None and row.lease_expires_at <= self.now
            return row.queue in names and (waits or lapsed)

        return [job_id for job_id, row in self.rows.items() if is_due(row)]

    @rule(claim=claims, done=st.sampled_from([None, 1, 2]))
    def beat(self, claim: tuple[str, int], done: int | None) -> None:
        self.pass_time()
        progress = None if done is None else {"done": done, "total": 2, "message": ""}
        flag = self.rows[claim[0]].cancel_requested
        answer = self.fenced(
            *claim,
            lambda s: queue.beat(s, *claim, lease_seconds=LEASE, progress=progress, clock=self.clock),
            lambda row: replace(row, lease_expires_at=self.later(LEASE), progress=progress or row.progress),
        )
        assert answer in (None, flag)

    @rule(claim=claims)
    def look(self, claim: tuple[str, int]) -> None:
        flag = self.rows[claim[0]].cancel_requested
        answer = self.fenced(*claim, lambda s: queue.look(s, *claim), lambda row: row)
        assert answer in (None, flag)

    @rule(claim=claims, value=st.integers(0, 9))
    def checkpoint(self, claim: tuple[str, int], value: int) -> None:
        data = {"step": value}
        self.fenced(*claim, lambda s: queue.checkpoint(s, *claim, data), lambda row: replace(row, checkpoint=data))

    @rule(claim=claims, value=st.integers(0, 9))
    def finish(self, claim: tuple[str, int], value: int) -> None:
        self.pass_time()
        result = {"answer": value}
        self.fenced(
            *claim,
            lambda s: queue.finish(s, *claim, result, clock=self.clock),
            lambda row: replace(row, result=result).ended("succeeded"),
        )

    @rule(claim=claims, retry_in=st.sampled_from([None, 0, 7]))
    def fail(self, claim: tuple[str, int], retry_in: float | None) -> None:
        self.pass_time()

        def expected(row: Row) -> Row:
            if row.cancel_requested:
                return row.ended("cancelled")
            return row.ended("failed", "oops") if retry_in is None else row.queued_again(self.later(retry_in), "oops")

        error = {"type": "oops", "detail": "it broke."}
        self.fenced(*claim, lambda s: queue.fail(s, *claim, error, retry_in=retry_in, clock=self.clock), expected)

    @rule(claim=claims, retry_in=st.sampled_from([0, 7]))
    def crash(self, claim: tuple[str, int], retry_in: float) -> None:
        self.pass_time()
        error = {"type": "died", "detail": "it died."}
        self.fenced(
            *claim,
            lambda s: queue.crashed(
                s, *claim, max_crashes=MAX_CRASHES, retry_in=retry_in, error=error, clock=self.clock
            ),
            lambda row: row.after_crash(self.later(retry_in), "died"),
        )

    @rule(claim=claims)
    def obey_cancel(self, claim: tuple[str, int]) -> None:
        self.pass_time()
        self.fenced(*claim, lambda s: queue.cancelled(s, *claim, clock=self.clock), lambda row: row.ended("cancelled"))

    @rule(claim=claims)
    def release(self, claim: tuple[str, int]) -> None:
        self.pass_time()

        def expected(row: Row) -> Row:
            if row.cancel_requested:
                return row.ended("cancelled")
            return replace(row, attempts=row.attempts - 1).queued_again(row.run_at, row.error_type)

        self.fenced(*claim, lambda s: queue.release(s, *claim, clock=self.clock), expected)

    @rule(job_id=jobs)
    def request_cancel(self, job_id: str) -> None:
        self.pass_time()
        with self.database.write() as session:
            answer = row_of(queue.request_cancel(session, job_id, clock=self.clock))
        row = self.rows[job_id]
        if row.status == "queued" or job_id in self.due((row.queue,)):
            self.put(job_id, row.ended("cancelled"))
        elif row.status == "running":
            self.put(job_id, replace(row, cancel_requested=True))
        assert answer == self.rows[job_id]

    @rule(job_id=jobs)
    def retry(self, job_id: str) -> None:
        self.pass_time()
        row = self.rows[job_id]
        if row.status not in ("failed", "cancelled"):
            with pytest.raises(queue.NotRetryable, match=row.status), self.database.write() as session:
                queue.retry(session, job_id, clock=self.clock)
            return
        with self.database.write() as session:
            queue.retry(session, job_id, clock=self.clock)
        fresh = replace(row, attempts=0, crashes=0, progress=None)
        self.put(job_id, fresh.queued_again(self.now, None))
        self.retries[job_id] = self.retries.get(job_id, 0) + 1

    @rule(seconds=st.sampled_from([1, 6, 11, 40]))
    def wait(self, seconds: float) -> None:
        self.pass_time(seconds)

    @invariant()
    def the_table_is_as_the_model_says(self) -> None:
        with self.database.read() as session:
            found = {job.id: job for job in session.scalars(select(Job))}
            counts = queue.depths(session)
        assert {job_id: row_of(job) for job_id, job in found.items()} == self.rows
        assert sum(counts.values()) == len(self.rows)
        for job_id, job in found.items():
            assert (job.finished_at is not None) == (job.status in ENDED)
            is_over = job.status in ENDED
            assert self.ends.get(job_id, 0) == self.retries.get(job_id, 0) + is_over, "a job ends once, or once a retry"


def test_the_queue_behaves_as_its_model_whatever_the_workers_do(database: Database) -> None:
    if database.is_sqlite:

        @event.listens_for(database.engine, "connect")
        def _hurry(connection: Any, _record: Any) -> None:
            connection.execute("PRAGMA synchronous=OFF")  # nothing is unplugged here

        database.dispose()
    examples = 150 if database.is_sqlite else 25
    run_state_machine_as_test(
        lambda: QueueMachine(database),
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
