"""Live progress: one poller a process reads the jobs that somebody follows, and tells all who follow them."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

from fastapi.concurrency import run_in_threadpool
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from app.db.engine import Database
from app.db.jobs import ENDED
from app.db.tables import Job
from app.errors import NotReady
from app.web.job_view import job_view

MAX_OUTAGE_PAUSE = 5.0
View = dict[str, Any]
News = View | NotReady | None
"""A job as it is now; that this can't be read at present; None: there is no more to come."""

logger = logging.getLogger(__name__)


@dataclass(eq=False, kw_only=True)
class Listener:
    """One who follows a job, and what was said last: news are only what differs from that."""

    job_id: str
    queue: "asyncio.Queue[News]" = field(default_factory=asyncio.Queue)
    last: News = None

    def tell(self, news: News) -> None:
        is_told = isinstance(news, NotReady) and isinstance(self.last, NotReady)
        if news is None or not (is_told or news == self.last):
            self.last = news
            self.queue.put_nowait(news)


class Watcher:
    """Survives an outage of the database: listeners are told of it once, and of the job's state when it is over."""

    def __init__(self, database: Database, *, poll_seconds: float = 0.1, keep_alive_seconds: float = 15.0) -> None:
        self._database = database
        self._poll_seconds = poll_seconds
        self._keep_alive_seconds = keep_alive_seconds
        self._listeners: set[Listener] = set()
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False

    async def watch(self, job_id: str) -> AsyncGenerator[News, None]:
        """A job's states until it has ended or is deleted, or the service stops; a NotReady while the database does
        not answer; None now and then, to keep the connection alive."""
        listener = Listener(job_id=job_id)
        self._listeners.add(listener)
        if self._is_stopped:
            listener.tell(None)
        elif self._task is None or self._task.done():
            self._task = asyncio.create_task(self._poll())
        try:
            while True:
                try:
                    news = await asyncio.wait_for(listener.queue.get(), self._keep_alive_seconds)
                except TimeoutError:
                    yield None
                    continue
                if news is None:
                    return
                yield news
                if not isinstance(news, NotReady) and news["status"] in ENDED:
                    return
        finally:
            self._listeners.discard(listener)

    async def wait(self, job_id: str, seconds: float) -> None:
        """Until the job has ended or is deleted, the service stops, or the time is up."""
        async with contextlib.aclosing(self.watch(job_id)) as states:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    async for _ in states:
                        pass

    async def _poll(self) -> None:
        n_failures = 0
        while self._listeners:
            asked = list(self._listeners)  # one who comes while this is read is told of a later state, not of this one
            try:
                views = await run_in_threadpool(self._read, list({listener.job_id for listener in asked}))
            except Exception as reason:  # whatever it was: without this task nobody would be told anything any more
                n_failures += 1
                if n_failures == 1:
                    trace = None if isinstance(reason, SQLAlchemyError) else reason
                    fields = {"reason": str(reason).partition("\n")[0]}
                    logger.error(
                        "jobs can't be read for those who follow them; trying again", exc_info=trace, extra=fields
                    )
                problem = NotReady("the database does not answer; the job's state follows as soon as it does")
                for listener in asked:
                    listener.tell(problem)
            else:
                if n_failures:
                    logger.info("jobs can be read again", extra={"failures": n_failures})
                n_failures = 0
                for listener in asked:
                    listener.tell(views.get(listener.job_id))
            await asyncio.sleep(min(self._poll_seconds * 2 ** min(n_failures, 10), MAX_OUTAGE_PAUSE))

    def _read(self, job_ids: list[str]) -> dict[str, View]:
        with self._database.read() as session:
            jobs = session.scalars(select(Job).where(Job.id.in_(job_ids)))
            return {job.id: job_view(session, job).model_dump(mode="json") for job in jobs}

    async def stop(self) -> None:
        """Nobody is told anything more, and whoever waits goes on at once."""
        self._is_stopped = True
        for listener in self._listeners:
            listener.tell(None)
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
