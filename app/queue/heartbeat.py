"""Keeps a lease alive from a thread of its own, so that neither a busy child nor a slow database call stops it."""

import logging
import threading
import time
from types import TracebackType
from typing import Any, Self

from sqlalchemy.exc import SQLAlchemyError

from app.db.engine import Database
from app.db.tables import Job
from app.queue import queue

LOOK_SECONDS = 0.5

logger = logging.getLogger(__name__)


class Heartbeat:
    """Beats every third of the lease, and with every new progress at most twice a second; looks for a cancel between.

    The lease was granted after `safe_until - lease_seconds` by this machine's clock, so before `safe_until` nobody
    else can hold the job, whether or not the database answers."""

    def __init__(self, database: Database, job: Job, *, lease_seconds: float, claimed_at: float) -> None:
        self.is_lost = False
        self.cancel_requested = False
        self.safe_until = claimed_at + lease_seconds
        self._progress: dict[str, Any] | None = None
        self._database = database
        self._job = job
        self._lease = lease_seconds
        self._next_beat = claimed_at + lease_seconds / 3
        self._pause = min(LOOK_SECONDS, lease_seconds / 6)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="heart", daemon=True)

    def report(self, progress: dict[str, Any]) -> None:
        self._progress = progress

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join(self._pause)  # one that hangs in the database is left behind: what it writes is fenced

    def _keep(self) -> None:
        is_reachable = True
        while not self._done.wait(self._pause):
            try:
                if not self._is_needed():
                    return
                is_reachable = True
            except queue.LeaseLost:
                self.is_lost = True
                return
            except SQLAlchemyError as reason:
                if is_reachable:
                    logger.warning("a heartbeat failed: %s", reason, extra={"job_id": self._job.id})
                is_reachable = False

    def _is_needed(self) -> bool:
        """Not once the child has finished the job, or put it to wait, and only clears up: the lease is long enough."""
        try:
            self._pulse()
        except queue.LeaseLost:
            with self._database.read() as session:
                if not queue.was_left(session, self._job.id, self._job.token):
                    raise
            return False
        return True

    def _pulse(self) -> None:
        now, progress = time.monotonic(), self._progress
        if progress is None and now < self._next_beat:
            with self._database.read() as session:
                self.cancel_requested = queue.look(session, self._job.id, self._job.token)
            return
        with self._database.write() as session:
            of_job, lease = (self._job.id, self._job.token), self._lease
            self.cancel_requested = queue.beat(session, *of_job, lease_seconds=lease, progress=progress)
        self.safe_until, self._next_beat = now + self._lease, now + self._lease / 3
        if self._progress is progress:  # else a newer one came meanwhile and goes with the next beat
            self._progress = None
