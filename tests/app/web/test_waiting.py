"""`Prefer: wait=SECONDS`: one call in place of a request, a loop of questions and a last look."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
import uvicorn

from app.db.engine import Database
from app.main import create_app
from app.queue import queue
from app.web.serving.server import Server
from app.web.waiting import preferred_wait
from app.web.watcher import Watcher
from tests.app.conftest import Service
from tests.app.designing import answer, session
from tests.app.hammering import ROWS, backtest, build_world, classification, empty_pool, pool
from tests.app.working import wait_for

WAIT = {"Prefer": "wait=60"}


@contextmanager
def at_work(service: Service) -> Iterator[None]:
    """A worker in a thread."""
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(0.01):
            service.run_jobs()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def meanwhile(work: Callable[[], Any]) -> Iterator[list[Any]]:
    """What it returned is in the list when the block has ended."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    yield found
    thread.join(60)
    assert not thread.is_alive()


@pytest.fixture
def watcher(monkeypatch: pytest.MonkeyPatch) -> list[Watcher]:
    """That of the service, once it is up."""
    made: list[Watcher] = []

    def make(database: Database, **options: Any) -> Watcher:
        made.append(Watcher(database, **options))
        return made[-1]

    monkeypatch.setattr("app.main.Watcher", make)
    return made


@pytest.fixture
def service(watcher: list[Watcher], sqlite_database: Database, make_service: Callable[..., Service]) -> Service:
    """Where every proposal is a job."""
    return make_service(sqlite_database, max_design_work=1.0)


def send(service: Service, path: str, body: Any = None, status: int = 200, **headers: str) -> Any:
    response = service.client.post(f"/v1{path}", json=body, headers={**WAIT, **headers})
    assert response.status_code == status, response.text
    assert response.headers["Preference-Applied"] == "wait=60"
    return response.json()


def claim(service: Service) -> Any:
    """The job, as soon as there is one."""

    def look() -> Any:
        with service.services.database.write() as session:
            return queue.claim(session, queues=["score"], worker="w", lease_seconds=60, max_crashes=3)

    return wait_for(look)


def ranking(service: Service) -> tuple[str, dict[str, Any]]:
    """Path and body of a request that needs no ensemble."""
    of = pool(service, classification(service))
    return f"/pools/{of}/rankings", {"acquisition": {"name": "random"}, "k": 3}


def test_everything_that_makes_a_job_is_answered_with_what_it_made(service: Service) -> None:
    project_id = classification(service, holdout=0)
    at = f"/projects/{project_id}"
    with at_work(service):
        file = "\n".join(["a,b,label", *(f"{a},{b},{'red' if a < 0.5 else 'blue'}" for a, b in ROWS)])
        pool_id = empty_pool(service, project_id)
        data = service.client.put(
            f"/v1/pools/{pool_id}/data", content=file, headers={"Content-Type": "text/csv", **WAIT}
        )
        assert (data.status_code, data.headers["Preference-Applied"]) == (200, "wait=60")
        assert (data.json()["pool"]["status"], data.json()["pool"]["n_labelled"]) == ("ready", 10)

        trained = send(service, f"{at}/ensembles", {})
        assert trained["job"]["status"] == trained["ensemble"]["status"] == "succeeded"
        assert trained["ensemble"] == service.get(f"/ensembles/{trained['ensemble']['id']}")
        assert (trained["ensemble"]["is_current"], trained["ensemble"]["n_labels"]) == (True, 10)

        of = f"/ensembles/{trained['ensemble']['id']}/predictions"
        predicted = send(service, of, {"rows": ROWS * 100})["prediction"]
        assert [item["row"] for item in predicted["items"]] == list(range(1000))
        assert predicted["next_cursor"] is None
        assert predicted == service.get(f"/predictions/{predicted['id']}")
        more = send(service, of, {"rows": [*ROWS * 100, ROWS[3]]})["prediction"]
        assert len(more["items"]) == 1000
        rest = service.get(f"/predictions/{more['id']}", cursor=more["next_cursor"])["items"]
        assert [item["row"] for item in rest] == [1000]
        assert rest[0]["probabilities"] == pytest.approx(predicted["items"][3]["probabilities"])

        fresh = pool(service, project_id)
        ranked = send(service, f"/pools/{fresh}/rankings", {"k": 3})["ranking"]
        assert len(ranked["items"]) == 3
        assert ranked == service.get(f"/rankings/{ranked['id']}")
        assert send(service, f"/rankings/{ranked['id']}/replay")["ranking"]["items"] == ranked["items"]

        opened = send(service, f"{at}/rounds", {"pool_id": fresh, "k": 2})["round"]
        assert (opened["status"], opened["n_items"]) == ("open", 2)
        rows = [item["row"] for item in service.post(f"/rounds/{opened['id']}/next", {"count": 2})["items"]]
        said = [{"row": row, "value": "red"} for row in rows]
        done = send(service, f"/rounds/{opened['id']}/labels", {"labels": said}, 201)
        assert [(job["id"], job["kind"], job["status"]) for job in done["jobs"]] == [
            (done["triggered"][0], "train_ensemble", "succeeded")
        ]
        assert service.get(at)["current_ensemble_id"] == done["jobs"][0]["result"]["ensemble_id"]
        service.post(f"{at}/schedules", {"every_labels": 1})
        labelled = send(service, f"{at}/labels", {"labels": [{"pool_id": fresh, "row": 9, "value": "blue"}]}, 201)
        assert [job["status"] for job in labelled["jobs"]] == ["succeeded"]

        found = send(service, *backtest(service, project_id))["backtest"]
        assert found == service.get(f"/backtests/{found['id']}")
        assert [curve["strategy"] for curve in found["curves"]] == ["default", "random"]

        begun = session(service)
        simulated = send(service, f"/experiments/{begun['experiment_id']}/simulations", {"rounds": 1, "n_draws": 2})
        assert [curve["policy"] for curve in simulated["simulation"]["curves"]] == ["adaptive", "random"]
        proposed = send(service, f"/sessions/{begun['id']}/proposals", {"client_id": "a"}, 201)
        assert (proposed["design"], proposed["number"]) == ({"xi": 7}, 1)
        outcome = {"proposal_id": proposed["id"], "outcome": answer(proposed["design"])}
        observed = send(service, f"/sessions/{begun['id']}/observations?next=true", outcome, 201)
        assert observed["next_job"]["status"] == "succeeded"
        assert (observed["next"]["design"], observed["next"]["number"]) == ({"xi": 6}, 2)

    path, body = ranking(service)
    cancelled = service.post(path, body, 202)
    service.post(f"/jobs/{cancelled['job']['id']}/cancel")
    with at_work(service):
        assert send(service, f"/jobs/{cancelled['job']['id']}/retry")["status"] == "succeeded"


def test_when_the_time_is_up_the_answer_is_the_job_as_it_stands(service: Service) -> None:
    path, body = ranking(service)

    with meanwhile(lambda: claim(service)):
        started = time.monotonic()
        response = service.client.post(f"/v1{path}", json=body, headers={"Prefer": "respond-async, wait=1"})
        seconds = time.monotonic() - started
    assert (response.status_code, response.headers["Preference-Applied"]) == (202, "wait=1")
    assert seconds >= 1
    told = response.json()
    assert (told["job"]["status"], told["ranking"]["items"]) == ("running", None)
    assert response.headers["Location"] == f"/v1/jobs/{told['job']['id']}"


def test_a_job_that_fails_is_answered_with_its_error(service: Service) -> None:
    path, body = ranking(service)

    def fail() -> None:
        job = claim(service)
        with service.services.database.write() as session:
            queue.fail(session, job.id, job.token, {"title": "Ill", "detail": "it did not go well"}, retry_in=None)

    with meanwhile(fail):
        told = send(service, path, body)
    assert told["job"]["status"] == told["ranking"]["status"] == "failed"
    assert told["job"]["error"] == told["ranking"]["error"] == {"title": "Ill", "detail": "it did not go well"}
    assert told["ranking"]["items"] is None
    with at_work(service):
        begun = session(service)
        taken = send(service, f"/sessions/{begun['id']}/proposals", {"excluded": [{"xi": i} for i in range(1, 16)]})
    assert (taken["job"]["status"], taken["job"]["error"]["status"]) == ("failed", 409)


def test_a_repeated_request_waits_and_is_filled_as_well(service: Service) -> None:
    path, body = ranking(service)
    key = {"Idempotency-Key": "once"}
    first = service.post(path, body, 202, **key)
    assert service.post(path, body, 202, **key) == first
    with at_work(service):
        again = service.client.post(f"/v1{path}", json=body, headers={**key, **WAIT})
    assert (again.status_code, again.headers["Idempotent-Replayed"]) == (200, "true")
    assert again.json()["ranking"] == service.get(f"/rankings/{first['ranking']['id']}")
    assert len(again.json()["ranking"]["items"]) == 3
    assert service.post(path, body, 202, **key) == first


def test_waiting_holds_neither_a_thread_nor_a_connection(service: Service, watcher: list[Watcher]) -> None:
    path, body = ranking(service)
    headers = {"Authorization": service.client.headers["Authorization"], "Idempotency-Key": "all", **WAIT}
    n_at_once = 60  # the server has 40 threads

    async def ask() -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=service.client.base_url, headers=headers, timeout=60) as client:
            first = await client.post(f"/v1{path}", json=body, headers={"Prefer": "wait=0"})
            assert first.status_code == 202
            waiting = [asyncio.create_task(client.post(f"/v1{path}", json=body)) for _ in range(n_at_once)]
            while len(watcher[0]._listeners) < n_at_once:
                await asyncio.sleep(0.02)
            assert await asyncio.to_thread(service.get, f"/jobs/{first.json()['job']['id']}") == first.json()["job"]
            await asyncio.to_thread(service.run_jobs)
            return list(await asyncio.gather(*waiting))

    answers = asyncio.run(ask())
    assert {(told.status_code, len(told.json()["ranking"]["items"])) for told in answers} == {(200, 3)}
    assert not watcher[0]._listeners


def test_nobody_waits_for_a_client_that_has_gone(watcher: list[Watcher], service: Service) -> None:
    path, body = ranking(service)
    job_id = service.post(path, body, 202)["job"]["id"]
    service.post(f"/jobs/{job_id}/cancel")
    url = httpx.URL(str(service.client.base_url))
    key = service.client.headers["Authorization"]
    for chunk in (b"", b"7\r\nunread!\r\n0\r\n\r\n"):  # a body that no endpoint reads changes nothing
        encoding = b"Transfer-Encoding: chunked\r\n" if chunk else b"Content-Length: 0\r\n"
        head = f"POST /v1/jobs/{job_id}/retry HTTP/1.1\r\nHost: x\r\nAuthorization: {key}\r\nPrefer: wait=60\r\n"
        with socket.create_connection((url.host, url.port or 80)) as connection:
            connection.sendall(head.encode() + encoding + b"\r\n" + chunk)
            wait_for(lambda: watcher[0]._listeners)
        wait_for(lambda: not watcher[0]._listeners)
        assert service.post(f"/jobs/{job_id}/cancel")["status"] == "cancelled"


def test_a_server_that_stops_answers_those_who_wait(service: Service, watcher: list[Watcher]) -> None:
    path, body = ranking(service)
    listener = socket.create_server(("127.0.0.1", 0))
    server = Server(uvicorn.Config(create_app(service.services.settings, service.services), log_config=None))
    stopping = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    stopping.start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1{path}"
    headers = {"Authorization": service.client.headers["Authorization"], **WAIT}
    with meanwhile(lambda: httpx.post(url, json=body, headers=headers, timeout=60)) as answers:
        wait_for(lambda: len(watcher) == 2 and watcher[1]._listeners)
        server.should_exit = True
        stopping.join(60)
        assert not stopping.is_alive()
    assert (answers[0].status_code, answers[0].json()["job"]["status"]) == (202, "queued")


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (["wait=10"], 10),
        (["Wait = 10"], 10),
        (['wait="10"'], 10),
        (["respond-async, wait=10;unit=s"], 10),
        (["handling=lenient", 'note="a, wait=3", wait=7'], 7),
        (["wait=5, wait=50"], 5),
        (["wait=0"], 0),
        (["wait=61"], 60),
        (["wait=" + "0" * 500 + "8"], 8),
        (["wait=" + "9" * 500], 60),
        ([], None),
        (["wait"], None),
        (["wait="], None),
        (["wait=-1"], None),
        (["wait=1.5"], None),
        (["wait=٣"], None),
        (["wait=ten"], None),
        (['wait="10'], None),
        (["await=10"], None),
        (["x" * 100_000 + ", wait=10"], None),
    ],
)
def test_the_preference_is_read_as_rfc_7240_has_it(given: list[str], seconds: int | None) -> None:
    assert preferred_wait(given) == seconds


def test_a_malformed_preference_is_ignored(service: Service) -> None:
    path, body = ranking(service)
    response = service.client.post(f"/v1{path}", json=body, headers={"Prefer": "wait=soon"})
    assert response.status_code == 202
    assert "Preference-Applied" not in response.headers


def test_what_made_no_job_is_answered_at_once(sqlite_database: Database, make_service: Callable[..., Service]) -> None:
    service = make_service(sqlite_database)
    world = build_world(service)
    said = {"labels": [{"pool_id": world.pool_id, "row": 5, "value": "red"}]}
    assert send(service, f"/projects/{world.project_id}/labels", said, 201)["jobs"] == []
    proposed = send(service, f"/sessions/{session(service)['id']}/proposals", {}, 201)
    assert proposed["design"] == {"xi": 7}
