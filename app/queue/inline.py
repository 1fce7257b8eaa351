"""Jobs run in the caller's own process, one after another: for scripts, demonstrations and tests. No child, so a
handler that hangs or crashes takes the caller with it, and a lease is not renewed."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pkgutil import resolve_name

from app.db.engine import Database
from app.queue import queue
from app.queue.context import JobContext, perform
from app.queue.handlers import LISTENERS
from app.queue.outcome import write_end
from app.settings import Settings

INLINE_LEASE_SECONDS = 24 * 3600.0


def run_due(database: Database, settings: Settings, queues: Sequence[str], handlers: Mapping[str, str]) -> list[str]:
    """Until nothing is due, also of what the jobs themselves enqueue; the jobs' ids in the order in which they ran."""
    ran: list[str] = []
    while (job_id := run_one(database, settings, queues, handlers)) is not None:
        ran.append(job_id)
    return ran


def run_one(database: Database, settings: Settings, queues: Sequence[str], handlers: Mapping[str, str]) -> str | None:
    """One attempt of the oldest job that is due; its id."""
    with database.write() as session:
        job = queue.claim(
            session,
            queues=queues,
            worker="inline",
            lease_seconds=INLINE_LEASE_SECONDS,
            max_crashes=settings.max_crashes,
            max_attempts=settings.max_attempts,
        )
    if job is None:
        return None
    context = JobContext(**queue.description(job), database=database, settings=settings, send=lambda _: None)
    import_module(LISTENERS)
    outcome = perform(resolve_name(handlers[job.kind]), context)
    with database.write() as session:
        write_end(session, settings, job, outcome)
    return job.id
