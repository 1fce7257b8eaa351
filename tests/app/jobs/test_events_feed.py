"""One stream of all that happens: the same to all who may see it, and nothing to others."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest
import uvicorn

from app.db.commits import Commits
from app.db.engine import Database
from app.db.tables import Job
from app.errors import NotReady
from app.jobs.changes import SOURCES
from app.main import create_app
from app.queue import queue
from app.web.news import READY, News, Told
from app.web.serving.server import Server
from app.web.watcher import Watcher
from tests.app.conftest import Service
from tests.app.hammering import classification, pool, refused
from tests.app.web.test_watcher import Outage
from tests.app.working import add, on_sqlite, wait_for

Event = tuple[str, dict[str, Any]]


class Stream:
    """A connection in a thread of its own; `events` are those that came so far."""

    def __init__(self, service: Service, secret: str | None = None, **params: str) -> None:
        self.events: list[Event] = []
        self._client = httpx.Client(base_url=service.client.base_url, timeout=30)
        key = f"Bearer {secret}" if secret else service.client.headers["Authorization"]
        self._request = self._client.build_request("GET", "/v1/events", params=params, headers={"Authorization": key})
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    def _follow(self) -> None:
        with self._client:
            self._read(self._client.send(self._request, stream=True))

    def _read(self, response: httpx.Response) -> None:
        self._connection = response.extensions["network_stream"].get_extra_info("socket")
        name = ""
        with suppress(httpx.HTTPError):  # closed under it
            for line in response.iter_lines():
                name = line[7:] if line.startswith("event: ") else name
                if line.startswith("data: "):
                    self.events.append((name, json.loads(line[6:])))

    def close(self) -> None:
        """As a browser that goes away: the reading thread ends with the connection."""
        self._connection.shutdown(socket.SHUT_RDWR)
        self._thread.join(30)

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    def names(self) -> list[str]:
        return [name for name, _ in self.events]

    def of(self, name: str) -> list[dict[str, Any]]:
        return [data for event, data in self.events if event == name]

    def wait_ready(self) -> "Stream":
        wait_for(lambda: "ready" in self.names())
        return self


@contextmanager
def closing(*opened: Stream) -> Iterator[None]:
    try:
        yield
    finally:
        for stream in opened:
            stream.close()


def test_all_who_may_see_it_are_told_a_round_from_its_ranking_to_the_training_it_sets_off(service: Service) -> None:
    project_id = classification(service)
    other_id = classification(service, name="other")
    pool_id = pool(service, project_id, labels=["red", "blue", *[None] * 8])
    waiting = service.post(f"/pools/{pool_id}/rankings", {"k": 2}, 202)["job"]["id"]
    bound = service.key("read", projects=[project_id], name="bound")
    foreign = service.key("read", projects=[other_id], name="foreign")
    first, second, one, elsewhere = (
        Stream(service),
        Stream(service, bound),
        Stream(service, project_id=project_id),
        Stream(service, foreign),
    )
    with closing(first, second, one, elsewhere):
        for stream in (first, second, one):
            stream.wait_ready()
            assert stream.names() == ["job", "ready"]
            assert (stream.events[0][1]["id"], stream.events[0][1]["status"]) == (waiting, "queued")
        assert elsewhere.wait_ready().events == [("ready", {})]
        round_id = service.post(f"/projects/{project_id}/rounds", {"pool_id": pool_id, "k": 2}, 202)["round"]["id"]
        service.run_jobs()
        item, skipped = service.post(f"/rounds/{round_id}/next", {"count": 2})["items"]
        said = [{"row": item["row"], "value": "red"}, {"row": skipped["row"], "skip": True}]
        answer = service.post(f"/rounds/{round_id}/labels", {"labels": said}, 201)
        (training,) = answer["triggered"]
        wait_for(lambda: all("labels" in stream.names() for stream in (first, second, one)))
        service.run_jobs()
        for stream in (first, second, one):
            wait_for(lambda: [each["status"] for each in stream.of("ensemble")][-1:] == ["succeeded"])  # noqa: B023
            assert [each["status"] for each in stream.of("job") if each["id"] == training][-1] == "succeeded"
            rounds = [(each["status"], each["n_done"]) for each in stream.of("round") if each["id"] == round_id]
            assert rounds[-1] == ("complete", 2)
            assert stream.of("labels")[-1] == {"project_id": project_id, "last_seq": 4, "n_labelled": 3}
            trained = stream.of("ensemble")[-1]
            assert (trained["version"], trained["is_current"], trained["job_id"]) == (1, True, training)
            assert "confusion" not in trained["metrics"]
            shown = service.get(f"/jobs/{training}")
            assert [each for each in stream.of("job") if each["id"] == training][-1] == shown
        assert elsewhere.events == [("ready", {})]


@on_sqlite
def test_another_ensemble_is_told_when_it_is_pinned_and_when_it_is_not_any_more(service: Service) -> None:
    project_id = classification(service)
    pool(service, project_id, labels=["red", "blue"] * 5)
    versions = []
    for _ in range(2):
        versions.append(service.post(f"/projects/{project_id}/ensembles", {}, 202)["ensemble"]["id"])
        service.run_jobs()
    stream = Stream(service).wait_ready()
    with closing(stream):
        for chosen, current in ((versions[0], versions[0]), (None, versions[1])):
            service.post(f"/projects/{project_id}/current", {"ensemble_id": chosen})
            wait_for(lambda: current in [each["id"] for each in stream.of("ensemble")])  # noqa: B023
            told = stream.of("ensemble")[-1]
            assert (told["id"], told["is_current"]) == (current, True)


@on_sqlite
def test_a_key_without_projects_is_told_of_jobs_of_no_project_and_a_bound_one_is_not(service: Service) -> None:
    project_id = classification(service)
    everything, bound = Stream(service), Stream(service, service.key("read", projects=[project_id]))
    with closing(everything, bound):
        everything.wait_ready()
        bound.wait_ready()
        job_id = add(service.services.database, "noop")
        wait_for(lambda: everything.of("job"))
        assert [each["id"] for each in everything.of("job")] == [job_id]
        service.post(f"/projects/{project_id}/pools", {"name": "rows", "rows": [[0, 1]], "labels": ["red"]}, 201)
        wait_for(lambda: bound.of("labels"))
        assert bound.of("job") == []


@on_sqlite
def test_whoever_may_not_see_a_project_or_is_a_participant_has_no_stream(service: Service) -> None:
    project_id, other_id = classification(service), classification(service)
    bound = {"Authorization": f"Bearer {service.key('read', projects=[other_id])}"}
    for path in ("/events", "/jobs"):
        for asked in (project_id, "nothing", "x\0y"):
            refused(service, "GET", path, 404, "that this key can see", params={"project_id": asked}, headers=bound)
        refused(service, "GET", path, 401, headers={"Authorization": ""})
        refused(service, "GET", path, 422, params={"project": project_id})


@on_sqlite
def test_a_stream_ends_when_its_key_is_revoked(service: Service) -> None:
    made = service.post("/keys", {"name": "short", "scopes": ["read"]}, 201)
    stream, other = Stream(service, made["key"]).wait_ready(), Stream(service).wait_ready()
    with closing(other):
        service.client.delete(f"/v1/keys/{made['id']}").raise_for_status()
        wait_for(lambda: stream.has_ended)
        assert not other.has_ended
        assert stream.events == [("ready", {})]


@on_sqlite
def test_streams_end_when_the_service_stops(service: Service) -> None:
    """At once, where the server would otherwise wait for them."""
    application = create_app(service.services.settings, service.services)
    listener = socket.create_server(("127.0.0.1", 0))
    server = Server(uvicorn.Config(application, log_config=None, lifespan="on"))
    serving = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    serving.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}") as client:
        client.headers["Authorization"] = service.client.headers["Authorization"]
        stream = Stream(Service(client=client, services=service.services)).wait_ready()
        server.should_exit = True
        wait_for(lambda: stream.has_ended)
        serving.join(30)
    assert not serving.is_alive()
    assert stream.events == [("ready", {})]


def told(news: News) -> Event:
    assert isinstance(news, Told)
    return news.event, news.data


async def next_news(stream: Any, n: int) -> list[News]:
    return [await anext(stream) for _ in range(n)]


def watching(database: Database, work: Callable[[Watcher], Any]) -> None:
    async def run() -> None:
        watcher = Watcher(database, sources=SOURCES, poll_seconds=0.01)
        try:
            async with asyncio.timeout(30):
                await work(watcher)
        finally:
            await watcher.stop()

    asyncio.run(run())


@on_sqlite
def test_an_outage_is_told_once_and_then_what_changed_and_how_all_stands(
    service: Service, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    outage = Outage(monkeypatch)
    project_id = classification(service)
    first, second = add(database, "noop"), add(database, "noop")

    async def work(watcher: Watcher) -> None:
        stream = watcher.follow(None, key_id="")
        at_first = await next_news(stream, 3)
        assert [told(news)[1].get("id") for news in at_first] == [first, second, None]
        assert at_first[-1] == READY
        outage.is_on = True
        assert isinstance(await anext(stream), NotReady)
        with database.write() as session:
            queue.request_cancel(session, first)
        await asyncio.to_thread(pool, service, project_id, labels=["red", *[None] * 9])
        outage.is_on = False
        after = [told(news) for news in await next_news(stream, 4)]
        assert [(name, data.get("id"), data.get("status")) for name, data in after] == [
            ("job", first, "cancelled"),
            ("labels", None, None),
            ("job", second, "queued"),
            ("ready", None, None),
        ]
        assert after[1][1] == {"project_id": project_id, "last_seq": 1, "n_labelled": 1}

    watching(database, work)


@on_sqlite
def test_nothing_is_read_while_nothing_is_committed(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    reads, marks = [], []
    read, mark = Watcher._read, Commits.mark
    monkeypatch.setattr(Watcher, "_read", lambda *asked: (reads.append(1), read(*asked))[1])
    monkeypatch.setattr(Commits, "mark", lambda commits: (marks.append(1), mark(commits))[1])

    async def work(watcher: Watcher) -> None:
        stream, other = watcher.follow(None, key_id=""), watcher.follow(frozenset(), key_id="")
        assert await anext(stream) == READY
        assert await anext(other) == READY
        n_reads = len(reads)
        await asyncio.sleep(0.3)
        assert len(reads) == n_reads
        assert len(marks) > 5
        job_id = await asyncio.to_thread(add, database, "noop")
        assert told(await anext(stream))[1]["id"] == job_id
        await stream.aclose()
        await other.aclose()
        await asyncio.sleep(0.1)
        n_marks = len(marks)
        await asyncio.sleep(0.1)
        assert len(marks) == n_marks  # nobody listens

    watching(database, work)


def test_a_job_that_begins_and_ends_between_two_looks_is_told(database: Database) -> None:
    async def work(watcher: Watcher) -> None:
        stream = watcher.follow(None, key_id="")
        assert await anext(stream) == READY

        def begin_and_end() -> str:
            with database.write() as session:
                job = queue.enqueue(session, kind="noop", queue="score", payload={}).job
                claimed = queue.claim(session, queues=["score"], worker="w", lease_seconds=9, max_crashes=3)
                assert claimed is not None
                queue.finish(session, job.id, claimed.token, {"n": 1})
                return job.id

        job_id = await asyncio.to_thread(begin_and_end)
        name, data = told(await anext(stream))
        assert (name, data["id"], data["status"], data["result"]) == ("job", job_id, "succeeded", {"n": 1})

    watching(database, work)


def test_parts_of_a_job_are_told_by_the_job_alone(database: Database) -> None:
    async def work(watcher: Watcher) -> None:
        job_id = await asyncio.to_thread(add, database, "noop")

        def split() -> str:
            with database.write() as session:
                job = queue.claim(session, queues=["score"], worker="w", lease_seconds=9, max_crashes=3)
                assert job is not None
                progress = {"done": 0, "total": 2, "message": "scoring"}
                queue.wait(session, job.id, job.token, [{}, {}], kind="noop", progress=progress)
                return queue.children(session, job.id)[0].id

        part_id = await asyncio.to_thread(split)
        stream, of_part = watcher.follow(None, key_id=""), watcher.watch(part_id)
        _, data = told(await anext(stream))
        assert (data["id"], data["status"]) == (job_id, "running")
        assert data["progress"]["message"] == "scoring: 2 waiting"
        assert await anext(stream) == READY
        assert told(await anext(of_part))[1]["parent_id"] == job_id

    watching(database, work)


def test_a_listener_who_does_not_read_is_let_go(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.web.news.MAX_BACKLOG", 3)

    async def work(watcher: Watcher) -> None:
        stream = watcher.follow(None, key_id="")
        assert await anext(stream) == READY
        listener = next(iter(watcher._listeners))
        for _ in range(5):
            n = listener.queue.qsize()
            await asyncio.to_thread(add, database, "noop")
            while listener.queue.qsize() == n:
                await asyncio.sleep(0.01)
        assert [told(news)[0] async for news in stream] == ["job"] * 3

    watching(database, work)


def test_jobs_of_all_projects_are_listed_as_the_key_sees_them(service: Service) -> None:
    projects = [classification(service), classification(service)]
    ids = []
    for project_id in projects:
        pool_id = pool(service, project_id)
        ids.append(service.post(f"/pools/{pool_id}/rankings", {"k": 2}, 202)["job"]["id"])
    ids.append(add(service.services.database, "noop"))
    service.post(f"/jobs/{ids[0]}/cancel")

    def listed(**params: Any) -> list[str]:
        answer = service.client.get("/v1/jobs", params=params).raise_for_status()
        return [job["id"] for job in answer.json()["items"]]

    assert listed() == ids
    assert listed(order="desc") == ids[::-1]
    assert listed(status="cancelled") == ids[:1]
    assert listed(status="queued", kind="rank_pool") == ids[1:2]
    assert listed(project_id=projects[1]) == ids[1:2]
    bound = {"Authorization": f"Bearer {service.key('read', projects=projects[:1])}"}
    seen = service.client.get("/v1/jobs", headers=bound).json()["items"]
    assert [job["id"] for job in seen] == ids[:1]
    with service.services.database.write() as session:
        session.add(Job(id="0-part", queue="score", kind="noop", payload={}, parent_id=ids[2]))
    assert listed() == ids
    assert sorted(listed(parts=True)) == sorted([*ids, "0-part"])
