"""Live progress: one poller a process reads the jobs that somebody follows, and feeds all their streams."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from fastapi.concurrency import run_in_threadpool
from sqlalchemy import select

from app.db.engine import Database
from app.db.tables import Job
from app.views import job_view

ENDED = ("succeeded", "failed", "cancelled")
View = dict[str, Any]


class Watcher:
    def __init__(self, database: Database, *, poll_seconds: float = 0.25, keep_alive_seconds: float = 15.0) -> None:
        self._database = database
        self._poll_seconds = poll_seconds
        self._keep_alive_seconds = keep_alive_seconds
        self._streams: dict[str, set[asyncio.Queue[View | None]]] = {}
        self._seen: dict[str, View] = {}
        self._task: asyncio.Task[None] | None = None

    async def watch(self, job_id: str) -> AsyncIterator[View | None]:
        """Views of a job until it has ended or is deleted; None now and then, to keep the connection alive."""
        queue: asyncio.Queue[View | None] = asyncio.Queue()
        self._streams.setdefault(job_id, set()).add(queue)
        self._seen.pop(job_id, None)  # so that the newcomer is told the present state
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._poll())
        try:
            told: View | None = None
            while True:
                try:
                    view = await asyncio.wait_for(queue.get(), self._keep_alive_seconds)
                except TimeoutError:
                    yield None
                    continue
                if view is None:
                    return
                if view != told:
                    told = view
                    yield view
                if view["status"] in ENDED:
                    return
        finally:
            self._streams[job_id].discard(queue)
            if not self._streams[job_id]:
                del self._streams[job_id]
                self._seen.pop(job_id, None)

    async def _poll(self) -> None:
        while self._streams:
            views = await run_in_threadpool(self._read, list(self._streams))
            for job_id, queues in list(self._streams.items()):
                view = views.get(job_id)
                if view is None or view != self._seen.get(job_id):
                    for queue in queues:
                        queue.put_nowait(view)
                if view is not None:
                    self._seen[job_id] = view
            await asyncio.sleep(self._poll_seconds)

    def _read(self, job_ids: list[str]) -> dict[str, View]:
        with self._database.read() as session:
            jobs = session.scalars(select(Job).where(Job.id.in_(job_ids)))
            return {job.id: job_view(session, job).model_dump(mode="json") for job in jobs}

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
