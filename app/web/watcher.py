"""Live news: one poller a process looks whether anything was committed, and tells all who listen what has changed.

One listens to one job, until it has ended, or to all that happens in projects. Nobody listens: nothing is asked.
Nothing is committed: one number is asked for. Else what may have changed is read: what is under way, and what ended
lately. Of it only that is told which differs from what was read before."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from fastapi.concurrency import run_in_threadpool
from sqlalchemy import Select, or_, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session, defer

from app.db.commits import Commits
from app.db.engine import Database
from app.db.jobs import ENDED
from app.db.tables import ApiKey, Job
from app.db.types import CLOCK, database_time
from app.errors import NotReady
from app.queue.handlers import QUEUES
from app.web.job_view import job_view
from app.web.news import Interest, Key, Known, Listener, News, Reading, Source, State, Told, Watched

MAX_OUTAGE_PAUSE = 5.0
RECENT = timedelta(seconds=60)  # what ended so lately is still read: longer than any transaction that ends something
LIVE_AT_ONCE = 1000  # jobs under way that are read for those who follow projects; others when these have ended
REST = 4.0  # times as long as a reading took, the poller rests: a fifth of a processor at most

logger = logging.getLogger(__name__)


class Watcher:
    """Survives an outage of the database: listeners are told of it once, and how things stand when it is over."""

    def __init__(
        self,
        database: Database,
        *,
        sources: Sequence[Source] = (),
        poll_seconds: float = 0.1,
        keep_alive_seconds: float = 15.0,
    ) -> None:
        self._database = database
        self._sources = sources
        self._poll_seconds = poll_seconds
        self._keep_alive_seconds = keep_alive_seconds
        self._listeners: set[Listener] = set()
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._commits = Commits(database)
        self._mark: str | None = None
        self._known: Known = {}

    async def watch(self, job_id: str) -> AsyncGenerator[News, None]:
        """A job's states until it has ended or is deleted, or the service stops; a NotReady while the database does
        not answer; None now and then, to keep the connection alive."""
        async with contextlib.aclosing(self._listen(Interest(job_id=job_id))) as news_of_job:
            async for news in news_of_job:
                yield news
                if isinstance(news, Told) and news.data["status"] in ENDED:
                    return

    async def follow(self, project_ids: frozenset[str] | None, *, key_id: str) -> AsyncGenerator[News, None]:
        """All jobs that are under way, then `ready`, then whatever changes in these projects (None: everywhere) until
        the service stops or the key is revoked; a NotReady and None as of `watch`. After an outage: what changed
        meanwhile, then as at the beginning."""
        async with contextlib.aclosing(self._listen(Interest(project_ids=project_ids, key_id=key_id))) as events:
            async for news in events:
                yield news

    async def _listen(self, interest: Interest) -> AsyncGenerator[News, None]:
        listener = Listener(interest=interest)
        self._listeners.add(listener)
        if self._is_stopped:
            listener.end()
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
        n_failures, clock = 0, asyncio.get_running_loop().time
        try:
            while self._listeners:
                asked = list(self._listeners)  # one who comes while this is read is told of a later state, not of this
                started = clock()
                try:
                    found = await run_in_threadpool(self._look, asked)
                except Exception as reason:  # whatever it was: without this task nobody would be told anything any more
                    n_failures += 1
                    if n_failures == 1:
                        trace = None if isinstance(reason, SQLAlchemyError) else reason
                        fields = {"reason": str(reason).partition("\n")[0]}
                        logger.error(
                            "jobs can't be read for those who follow them; trying again", exc_info=trace, extra=fields
                        )
                    problem = NotReady("the database does not answer; how things stand follows as soon as it does")
                    for listener in asked:
                        listener.warn(problem)
                else:
                    if n_failures:
                        logger.info("jobs can be read again", extra={"failures": n_failures})
                    n_failures = 0
                    for listener, news in found:
                        listener.tell(news)
                pause = max(self._poll_seconds, REST * (clock() - started))
                await asyncio.sleep(min(pause * 2 ** min(n_failures, 10), MAX_OUTAGE_PAUSE))
        finally:
            self._mark, self._known = None, {}
            self._commits.close()

    def _look(self, asked: Sequence[Listener]) -> list[tuple[Listener, list[News]]]:
        """What each of them is to be told now."""
        mark = self._commits.mark()  # before all else is read: what is committed meanwhile is read again, not lost
        if mark == self._mark and all(listener.is_current for listener in asked):
            return []
        with self._database.read() as session:
            states = self._read(session, [listener.interest for listener in asked])
            good_keys = _good_keys(session, {listener.interest.key_id for listener in asked})
            reading = Reading(states, self._known)
            news = [(listener, reading.news_for(listener, good_keys)) for listener in asked]
        self._mark, self._known = mark, reading.known()
        return news

    def _read(self, session: Session, interests: Sequence[Interest]) -> dict[Key, State]:
        """How all stands that somebody listens to."""
        feeds = [interest.project_ids for interest in interests if interest.job_id is None]
        watched = Watched(
            job_ids=frozenset(interest.job_id for interest in interests if interest.job_id is not None),
            project_ids=None if None in feeds else frozenset().union(*(ids for ids in feeds if ids is not None)),
            since=database_time(session) - RECENT,
        )
        sources = (_jobs_by_id, *((_jobs_under_way, *self._sources) if feeds else ()))
        return {(state.event, state.id): state for source in sources for state in source(session, watched)}

    async def stop(self) -> None:
        """Nobody is told anything more, and whoever waits goes on at once."""
        self._is_stopped = True
        for listener in self._listeners:
            listener.end()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task


def _jobs_by_id(session: Session, watched: Watched) -> Iterator[State]:
    if watched.job_ids:
        yield from _job_states(session, select(Job).where(Job.id.in_(watched.job_ids)))


def _jobs_under_way(session: Session, watched: Watched) -> Iterator[State]:
    """And those that ended lately. Parts of a job are left out: it tells of them."""
    whole = select(Job).where(Job.parent_id.is_(None), *watched.within(Job.project_id))
    live = whole.where(Job.queue.in_(QUEUES), Job.status.in_(("queued", "running")))
    in_turn = live.order_by(Job.status.desc(), Job.started_at.is_(None), Job.run_at)
    yield from _job_states(session, in_turn.limit(LIVE_AT_ONCE))
    yield from _job_states(session, whole.where(Job.finished_at > watched.since))  # also what has just ended meanwhile


def _job_states(session: Session, query: Select[Any]) -> Iterator[State]:
    short = query.options(defer(Job.payload), defer(Job.checkpoint)).execution_options(populate_existing=True)
    for job in session.scalars(short):
        view = job_view(session, job).model_dump(mode="json")
        is_part = job.parent_id is not None
        yield State(
            event="job", id=job.id, project_id=job.project_id, mark=view, view=partial(dict, view), is_part=is_part
        )


def _good_keys(session: Session, key_ids: set[str]) -> frozenset[str]:
    """Those that were neither revoked nor have ended."""
    if not key_ids - {""}:
        return frozenset()
    lasts = or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > CLOCK)
    return frozenset(
        session.scalars(select(ApiKey.id).where(ApiKey.id.in_(key_ids), ApiKey.revoked_at.is_(None), lasts))
    )
