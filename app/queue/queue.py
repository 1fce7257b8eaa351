"""The job table as a queue: every change of a job's state, as plain functions on a session whose transaction is the
caller's.

    enqueue ─> queued ── claim ──> running ── finish ──> succeeded
                 ^  │                │ │ └──── fail, crashed (given up) ──> failed
                 │  │                │ └────── cancelled ──> cancelled
                 │  └─ request_cancel ──> cancelled
                 ├── release, fail, crashed (tried again), wait ── running
                 └── retry ── failed, cancelled

A claim is a lease under a new `token`. Whatever a worker writes names its token and is refused with `LeaseLost` when
the job is no longer running under it, so an older holder changes nothing. Once a cancel is requested, a running job
either finishes or is cancelled: it is never queued again and never failed. `cancel_requested` is true only while
running. `dedup_key` is kept only until a job first leaves `queued`, so a job that is queued again never collides with
a newer one of the same key.

A job may be split: `wait` queues its children and puts it back, to be run again when the last of them has ended. A
cancel of the parent is one of its children. Rows are locked children first, so that the two can't block each other;
`app.db.projects` has the order of all locks."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, TypeVar

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    ScalarResult,
    Select,
    bindparam,
    delete,
    func,
    literal,
    select,
    text,
    union_all,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session, object_session

from app.db.tables import Job
from app.db.types import CLOCK, UtcDateTime, database_time, new_id

T = TypeVar("T")
LONGEST_WAIT = timedelta(hours=1)  # a parent looks at its children that often even if nobody wakes it


class LeaseLost(Exception):
    """The job is no longer running under this token: somebody else has it, it has ended, or it was deleted."""


class JobMissing(LookupError):
    """There is no job of this id."""


class NotRetryable(Exception):
    """Only a failed or cancelled job can be queued again by hand."""


@dataclass(frozen=True, kw_only=True)
class Enqueued:
    job: Job
    created: bool


def enqueue(
    session: Session,
    *,
    kind: str,
    queue: str,
    payload: dict[str, Any],
    project_id: str | None = None,
    delay_seconds: float = 0,
    dedup_key: str | None = None,
    parent_id: str | None = None,
    clock: ColumnElement[datetime] = CLOCK,
) -> Enqueued:
    """A job of the same dedup key that has never started is returned instead, locked until the caller commits: whoever
    claims it therefore sees what the caller wrote."""
    now = database_time(session, clock)
    insert = (
        _insert(session)
        .values(
            id=new_id(),
            kind=kind,
            queue=queue,
            payload=payload,
            project_id=project_id,
            parent_id=parent_id,
            dedup_key=dedup_key,
            run_at=now + timedelta(seconds=delay_seconds),
            created_at=now,
        )
        # in text: as a parameter, PostgreSQL could not match it to the index once it has prepared the statement
        .on_conflict_do_nothing(
            index_elements=["dedup_key"], index_where=text("status = 'queued' AND dedup_key IS NOT NULL")
        )
        .returning(Job)
    )
    waiting = select(Job).where(Job.dedup_key == dedup_key, Job.status == "queued").with_for_update()
    while True:  # the waiting job may be claimed between the two statements; then the next insert succeeds
        if (created := session.scalars(insert).one_or_none()) is not None:
            return Enqueued(job=created, created=True)
        if (found := session.scalars(waiting, execution_options={"populate_existing": True}).one_or_none()) is not None:
            return Enqueued(job=found, created=False)


def due(session: Session, queues: Sequence[str], clock: ColumnElement[datetime] = CLOCK) -> list[tuple[str, str]]:
    """(queue, status) of the jobs that could be claimed now, that of the oldest one first. Index look-ups only, so it
    is also how an idle worker looks without taking a lock."""
    return _due_at(session, queues, database_time(session, clock))


def claim(
    session: Session,
    *,
    queues: Sequence[str],
    worker: str,
    lease_seconds: float,
    max_crashes: int,
    max_attempts: int = 5,
    clock: ColumnElement[datetime] = CLOCK,
) -> Job | None:
    """The oldest due job, or one whose worker fell silent. Silent ones that cannot go on are ended on the way."""
    now = database_time(session, clock)
    while True:
        job = _oldest_due(session, queues, now)
        if job is None:
            return None
        if job.status == "running":
            silence = f"worker {job.worker} fell silent and its lease lapsed."
            _count_crash(job, now, max_crashes, {"type": "lease-lapsed", "title": "Worker lost", "detail": silence})
        if job.status == "queued":
            job.status, job.dedup_key = "running", None
            job.token, job.attempts = job.token + 1, job.attempts + 1
            job.worker, job.started_at, job.heartbeat_at = worker, now, now
            job.max_attempts = max_attempts
            job.lease_expires_at = now + timedelta(seconds=lease_seconds)
            session.flush()
            return job
        session.flush()


def description(job: Job) -> dict[str, Any]:
    """What its handler is given of it."""
    names = ("token", "kind", "payload", "project_id", "checkpoint")
    return {"job_id": job.id, "attempt": job.attempts, **{name: getattr(job, name) for name in names}}


def look(session: Session, job_id: str, token: int) -> bool:
    """What a beat would say, without writing."""
    query = select(Job.cancel_requested).where(*_fence(job_id, token))
    return _only(job_id, token, session.scalars(query))


def beat(
    session: Session,
    job_id: str,
    token: int,
    *,
    lease_seconds: float,
    progress: dict[str, Any] | None = None,
    clock: ColumnElement[datetime] = CLOCK,
) -> bool:
    """Renew the lease; whether a cancel is requested."""
    now = database_time(session, clock)
    values: dict[str, Any] = {"lease_expires_at": now + timedelta(seconds=lease_seconds), "heartbeat_at": now}
    if progress is not None:
        values["progress"] = progress
    return _write_fenced(session, job_id, token, values)


def was_left(session: Session, job_id: str, token: int) -> bool:
    """Finished, or put back to wait for others, under this very token: whoever holds it has lost nothing."""
    query = select(Job.id).where(Job.id == job_id, Job.token == token, Job.status.in_(("succeeded", "queued")))
    return session.execute(query).first() is not None


def checkpoint(session: Session, job_id: str, token: int, data: dict[str, Any]) -> None:
    _write_fenced(session, job_id, token, {"checkpoint": data})


def finish(
    session: Session,
    job_id: str,
    token: int,
    result: dict[str, Any],
    *,
    progress: dict[str, Any] | None = None,
    clock: ColumnElement[datetime] = CLOCK,
) -> None:
    job = _held(session, job_id, token)
    job.result, job.progress = result, progress or job.progress
    _end(job, "succeeded", database_time(session, clock))
    session.flush()


def fail(
    session: Session,
    job_id: str,
    token: int,
    error: dict[str, Any],
    *,
    retry_in: float | None,
    clock: ColumnElement[datetime] = CLOCK,
) -> None:
    """Queued again after `retry_in` seconds, or failed for good when it is None."""
    job, now = _held(session, job_id, token), database_time(session, clock)
    if job.cancel_requested:
        _end(job, "cancelled", now)
    elif retry_in is None:
        _end(job, "failed", now, error)
    else:
        _queue_again(job, error, now + timedelta(seconds=retry_in))
    session.flush()


def crashed(
    session: Session,
    job_id: str,
    token: int,
    *,
    max_crashes: int,
    retry_in: float,
    error: dict[str, Any],
    clock: ColumnElement[datetime] = CLOCK,
) -> None:
    """The process that ran the job died under it."""
    job, now = _held(session, job_id, token), database_time(session, clock)
    _count_crash(job, now, max_crashes, error)
    if job.status == "queued":
        job.run_at = now + timedelta(seconds=retry_in)
    session.flush()


def cancelled(session: Session, job_id: str, token: int, *, clock: ColumnElement[datetime] = CLOCK) -> None:
    _end(_held(session, job_id, token), "cancelled", database_time(session, clock))
    session.flush()


def release(session: Session, job_id: str, token: int, *, clock: ColumnElement[datetime] = CLOCK) -> None:
    """A worker that shuts down gives its job back, in its old place and as if this attempt had not been."""
    job = _held(session, job_id, token)
    if job.cancel_requested:
        _end(job, "cancelled", database_time(session, clock))
    else:
        job.attempts -= 1
        _queue_again(job, job.error, job.run_at)
    session.flush()


def give_way(
    session: Session,
    job_id: str,
    token: int,
    *,
    progress: dict[str, Any] | None = None,
    clock: ColumnElement[datetime] = CLOCK,
) -> None:
    """Put a running job behind all that is due, as if this attempt had not been."""
    job, now = _held(session, job_id, token), database_time(session, clock)
    if job.cancel_requested:
        _end(job, "cancelled", now)
    else:
        job.attempts, job.progress = job.attempts - 1, progress or job.progress
        _queue_again(job, job.error, now)
    session.flush()


def wait(
    session: Session,
    job_id: str,
    token: int,
    payloads: Sequence[dict[str, Any]],
    *,
    kind: str,
    progress: dict[str, Any] | None = None,
    clock: ColumnElement[datetime] = CLOCK,
) -> None:
    """Queue a child for each payload; the job is claimed again when they have all ended. It counts as one attempt."""
    job, now = _held(session, job_id, token), database_time(session, clock)
    if job.cancel_requested:
        _end(job, "cancelled", now)
    else:
        for payload in payloads:
            enqueue(
                session,
                kind=kind,
                queue=job.queue,
                payload=payload,
                project_id=job.project_id,
                parent_id=job.id,
                clock=clock,
            )
        job.attempts, job.progress = job.attempts - 1, progress or job.progress
        _queue_again(job, None, now + LONGEST_WAIT)
    session.flush()


def children(session: Session, job_id: str) -> list[Job]:
    return list(session.scalars(select(Job).where(Job.parent_id == job_id).order_by(Job.id)))


def request_cancel(session: Session, job_id: str, *, clock: ColumnElement[datetime] = CLOCK) -> Job:
    """At once for a job nobody is working on; a running one is told, and may still finish first."""
    for child in children(session, job_id):
        request_cancel(session, child.id, clock=clock)
    job, now = _locked(session, job_id), database_time(session, clock)
    is_silent = job.lease_expires_at is not None and job.lease_expires_at <= now
    if job.status == "queued" or (job.status == "running" and is_silent):
        _end(job, "cancelled", now)
    elif job.status == "running":
        job.cancel_requested = True
    session.flush()
    return job


def request_cancels(session: Session, job_ids: Iterable[str], *, clock: ColumnElement[datetime] = CLOCK) -> None:
    """Of several jobs, in the order in which they are to be locked; those that are gone need no cancel."""
    for job_id in sorted(job_ids):
        with suppress(JobMissing):
            request_cancel(session, job_id, clock=clock)


def retry(session: Session, job_id: str, *, clock: ColumnElement[datetime] = CLOCK) -> Job:
    """By hand: all attempts anew, from the last checkpoint."""
    session.execute(select(Job.id).where(Job.parent_id == job_id).with_for_update())
    job = _locked(session, job_id)
    if job.status not in ("failed", "cancelled"):
        raise NotRetryable(f"only a failed or cancelled job can be retried; this one is {job.status}")
    session.execute(delete(Job).where(Job.parent_id == job_id))  # it splits itself anew
    job.attempts, job.crashes, job.progress = 0, 0, None
    job.started_at, job.heartbeat_at, job.finished_at = None, None, None
    _queue_again(job, None, database_time(session, clock))
    session.flush()
    return job


def depths(session: Session) -> dict[tuple[str, str], int]:
    counts = session.execute(select(Job.queue, Job.status, func.count()).group_by(Job.queue, Job.status))
    return {(queue, status): n for queue, status, n in counts}


def _insert(session: Session) -> sqlite.Insert | postgresql.Insert:
    return sqlite.insert(Job) if session.get_bind().dialect.name == "sqlite" else postgresql.insert(Job)


def _is_due(status: str) -> ColumnElement[bool]:
    return (Job.run_at if status == "queued" else Job.lease_expires_at) <= bindparam("now", type_=UtcDateTime())


@lru_cache  # building a statement costs more than running it
def _heads(queues: tuple[str, ...]) -> CompoundSelect[Any]:
    """The oldest due job of each queue and status; `min` of one index range, so history costs nothing."""
    return union_all(
        *(
            select(literal(queue), literal(status), func.min(Job.run_at)).where(
                Job.queue == queue, Job.status == status, _is_due(status)
            )
            for queue in queues
            for status in ("queued", "running")
        )
    )


@lru_cache
def _head(queue: str, status: str) -> Select[Any]:
    """That job itself; on PostgreSQL one that another worker is about to take is passed over."""
    return (
        select(Job)
        .where(Job.queue == queue, Job.status == status, _is_due(status))
        .order_by(Job.run_at, Job.id)
        .limit(1)
        .with_for_update(skip_locked=True)
    )


def _due_at(session: Session, queues: Sequence[str], now: datetime) -> list[tuple[str, str]]:
    heads: Iterable[Any] = session.execute(_heads(tuple(queues)), {"now": now})
    return [(queue, status) for _, queue, status in sorted((at, queue, status) for queue, status, at in heads if at)]


def _oldest_due(session: Session, queues: Sequence[str], now: datetime) -> Job | None:
    for queue, status in _due_at(session, queues, now):
        found = session.scalars(_head(queue, status), {"now": now}, execution_options={"populate_existing": True})
        job: Job | None = found.one_or_none()
        if job is not None:
            return job
    return None


def _fence(job_id: str, token: int) -> tuple[ColumnElement[bool], ...]:
    return (Job.id == job_id, Job.token == token, Job.status == "running")


def _only(job_id: str, token: int, found: ScalarResult[T]) -> T:
    if (only := found.one_or_none()) is None:
        raise LeaseLost(f"job {job_id} is no longer running under token {token}")
    return only


def _write_fenced(session: Session, job_id: str, token: int, values: dict[str, Any]) -> bool:
    statement = update(Job).where(*_fence(job_id, token)).values(values).returning(Job.cancel_requested)
    return _only(job_id, token, session.scalars(statement, execution_options={"synchronize_session": False}))


def _held(session: Session, job_id: str, token: int) -> Job:
    statement = select(Job).where(*_fence(job_id, token)).with_for_update()
    return _only(job_id, token, session.scalars(statement, execution_options={"populate_existing": True}))


def _locked(session: Session, job_id: str) -> Job:
    job = session.get(Job, job_id, with_for_update=True, populate_existing=True)
    if job is None:
        raise JobMissing(f"there is no job {job_id}")
    return job


def _end(job: Job, status: str, now: datetime, error: dict[str, Any] | None = None) -> None:
    job.status, job.finished_at, job.error = status, now, error
    job.lease_expires_at, job.cancel_requested, job.dedup_key = None, False, None
    session = object_session(job)
    if job.parent_id is not None and session is not None:
        _tell_parent(session, job, job.parent_id, now)


def _tell_parent(session: Session, job: Job, parent_id: str, now: datetime) -> None:
    """The last child to end wakes it; a child that can't succeed does so at once, and its siblings are not begun."""
    session.flush()
    parent = session.get(Job, parent_id, with_for_update=True, populate_existing=True)
    if parent is None or parent.status != "queued":
        return
    siblings = select(func.count()).where(Job.parent_id == parent_id, Job.status.in_(("queued", "running")))
    if job.status == "failed" or session.execute(siblings).scalar_one() == 0:
        parent.run_at = now
    if job.status == "succeeded" and job.progress is not None and parent.progress is not None:
        done = parent.progress["done"] + job.progress["total"]
        parent.progress = {**parent.progress, "done": min(done, parent.progress["total"])}
    session.flush()


def _queue_again(job: Job, error: dict[str, Any] | None, run_at: datetime) -> None:
    """The error of the last attempt stays visible until the job ends."""
    job.status, job.run_at, job.error = "queued", run_at, error
    job.worker, job.lease_expires_at = None, None


def _count_crash(job: Job, now: datetime, max_crashes: int, error: dict[str, Any]) -> None:
    job.crashes += 1
    if job.cancel_requested:
        _end(job, "cancelled", now)
    elif job.crashes >= max_crashes:
        times = f"{job.crashes} time{'s' if job.crashes > 1 else ''}"
        detail = f"The job killed its worker {times} and was given up. The last time: {error['detail']}"
        _end(
            job,
            "failed",
            now,
            {"type": "poison-job", "title": "Job killed its worker", "detail": detail, "status": 500},
        )
    else:
        _queue_again(job, error, job.run_at)
