"""Those who follow a job: told its states in order, through an outage of the database too."""

import asyncio
import json
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from app.db.commits import Commits
from app.db.engine import Database
from app.errors import NotReady
from app.queue import queue
from app.web.news import Interest, Key, State, Told
from app.web.watcher import Watcher
from tests.app.conftest import Service
from tests.app.working import add, on_sqlite, wait_for

pytestmark = on_sqlite


class Outage:
    """A database that does not answer the watcher while `is_on`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_on, self.n_refused = False, 0
        mark = Commits.mark

        def refuse(commits: Commits) -> str:
            if self.is_on:
                self.n_refused += 1
                raise OperationalError("SELECT", {}, Exception("the database system is starting up"))
            return mark(commits)

        monkeypatch.setattr(Commits, "mark", refuse)


@pytest.fixture
def outage(monkeypatch: pytest.MonkeyPatch) -> Outage:
    return Outage(monkeypatch)


def claim(database: Database) -> Any:
    with database.write() as session:
        return queue.claim(session, queues=["score"], worker="w", lease_seconds=60, max_crashes=3)


def finish(database: Database, job: Any) -> None:
    with database.write() as session:
        queue.finish(session, job.id, job.token, {"n": 1})


def watching(database: Database, work: Callable[[Watcher], Awaitable[None]]) -> None:
    async def run() -> None:
        watcher = Watcher(database, poll_seconds=0.01)
        try:
            async with asyncio.timeout(20):
                await work(watcher)
        finally:
            await watcher.stop()

    asyncio.run(run())


def test_a_stream_goes_on_after_an_outage_and_tells_the_state(
    make_service: Callable[..., Service], database: Database, outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    service = make_service(database)
    job_id = add(database, "noop")
    seen: list[tuple[str, dict[str, Any]]] = []

    def follow() -> None:
        with service.client.stream("GET", f"/v1/jobs/{job_id}/events") as response:
            name = ""
            for line in response.iter_lines():
                name = line[7:] if line.startswith("event: ") else name
                if line.startswith("data: "):
                    seen.append((name, json.loads(line[6:])))

    thread = threading.Thread(target=follow)
    thread.start()
    wait_for(lambda: len(seen) == 1)
    with caplog.at_level(logging.INFO, logger="app.web.watcher"):
        outage.is_on = True
        wait_for(lambda: outage.n_refused >= 3)
        outage.is_on = False
        wait_for(lambda: len(seen) == 3)
    finish(database, claim(database))
    thread.join(60)
    assert not thread.is_alive()
    told = [(name, news["status"]) for name, news in seen if news["status"] != "running"]
    assert told == [("job", "queued"), ("problem", 503), ("job", "queued"), ("job", "succeeded")]
    assert "does not answer" in seen[1][1]["detail"]
    logged = [record.message for record in caplog.records]
    assert logged == ["jobs can't be read for those who follow them; trying again", "jobs can be read again"]


def test_one_who_comes_during_an_outage_is_told_of_it_and_then_the_end(database: Database, outage: Outage) -> None:
    outage.is_on = True
    job_id = add(database, "noop")

    async def work(watcher: Watcher) -> None:
        states = watcher.watch(job_id)
        assert isinstance(await anext(states), NotReady)
        late = watcher.watch(job_id)
        assert isinstance(await anext(late), NotReady)
        finish(database, claim(database))
        outage.is_on = False
        for stream in (states, late):
            assert [news.data["status"] async for news in stream if isinstance(news, Told)] == ["succeeded"]

    watching(database, work)


def test_one_who_comes_while_others_are_read_for_is_not_told_that_the_job_is_gone(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read was asked for before: it says nothing of the newcomer's job, nor of what it has just become."""
    is_reading, may_go_on = threading.Event(), threading.Event()
    read = Watcher._read

    def slowly(watcher: Watcher, session: Session, interests: Sequence[Interest]) -> dict[Key, State]:
        found = read(watcher, session, interests)
        is_reading.set()
        may_go_on.wait(60)
        return found

    monkeypatch.setattr(Watcher, "_read", slowly)
    first, second = add(database, "noop"), add(database, "noop")

    async def work(watcher: Watcher) -> None:
        following = asyncio.create_task(anext(watcher.watch(first)))
        await asyncio.to_thread(is_reading.wait, 10)
        newcomers = [asyncio.create_task(anext(watcher.watch(job_id))) for job_id in (first, second)]
        await asyncio.sleep(0)
        job = claim(database)
        assert job.id == first
        may_go_on.set()
        states = [await task for task in (following, *newcomers)]
        statuses = [state.data["status"] for state in states if isinstance(state, Told)]
        assert statuses == ["queued", "running", "queued"]

    watching(database, work)


def test_waiting_ends_with_the_job_with_the_time_and_with_the_service(database: Database) -> None:
    ending, staying = add(database, "noop"), add(database, "noop")

    async def work(watcher: Watcher) -> None:
        await watcher.wait(staying, 0.02)
        waiting = asyncio.create_task(watcher.wait(ending, 60))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        finish(database, claim(database))
        await waiting
        held = asyncio.create_task(watcher.wait(staying, 60))
        await asyncio.sleep(0.05)
        await watcher.stop()
        await held
        await watcher.wait(staying, 60)
        assert not watcher._listeners

    watching(database, work)
