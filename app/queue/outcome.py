"""What an attempt's end means for the job's row."""

import random

from sqlalchemy.orm import Session

from app.db.tables import Job
from app.queue import queue
from app.queue.channel import Message
from app.settings import Settings

MAX_BACKOFF_SECONDS = 3600.0


def write_end(session: Session, settings: Settings, job: Job, outcome: Message) -> None:
    """`done`, `waits` and `lost` leave nothing to write: the handler's own transaction did, or somebody else will."""
    match outcome["say"]:
        case "failed":
            is_final = outcome["is_final"] or job.attempts >= settings.max_attempts
            retry_in = None if is_final else backoff(settings, job)
            queue.fail(session, job.id, job.token, outcome["error"], retry_in=retry_in)
        case "crashed":
            error = {"type": "child-died", "title": "Worker process died", "detail": outcome["detail"]}
            crashes, pause = settings.max_crashes, backoff(settings, job)
            queue.crashed(session, job.id, job.token, max_crashes=crashes, retry_in=pause, error=error)
        case "cancelled":
            queue.cancelled(session, job.id, job.token)
        case "released":
            queue.release(session, job.id, job.token)


def backoff(settings: Settings, job: Job) -> float:
    """Doubles with every attempt; jitter keeps jobs that failed together from coming back together."""
    pause = settings.backoff_seconds * 2.0 ** min(job.attempts - 1, 30)
    return min(pause, MAX_BACKOFF_SECONDS) * random.uniform(0.75, 1.25)
