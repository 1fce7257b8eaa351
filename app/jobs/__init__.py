"""Long work: a queue in the database, workers that lease jobs from it, and the handlers' view of one job."""

from app.jobs.context import Cancelled, Handler, JobContext, JobFailed
from app.jobs.queue import Enqueued, JobMissing, LeaseLost, NotRetryable, depths, enqueue, request_cancel, retry

__all__ = [
    "Cancelled",
    "Enqueued",
    "Handler",
    "JobContext",
    "JobFailed",
    "JobMissing",
    "LeaseLost",
    "NotRetryable",
    "depths",
    "enqueue",
    "request_cancel",
    "retry",
]
