"""Jobs over REST: seen, followed, cancelled, tried again."""

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from app.db.engine import Database
from app.queue import queue
from tests.app.conftest import Service
from tests.app.working import add, wait_for


@pytest.fixture
def job_id(service: Service) -> str:
    """A ranking that waits for a worker."""
    project = service.project(input={"shape": [1]})
    pool = service.post(f"/projects/{project['id']}/pools", {"name": "p", "rows": [[i] for i in range(9)]})
    asked = service.post(f"/pools/{pool['id']}/rankings", {"acquisition": {"name": "random"}, "k": 3}, 202)
    return str(asked["job"]["id"])


def claim(service: Service) -> Any:
    with service.services.database.write() as session:
        return queue.claim(session, queues=["score"], worker="w", lease_seconds=60, max_crashes=3)


def test_a_job_is_listed_and_shown_with_its_progress(service: Service, job_id: str) -> None:
    job = claim(service)
    with service.services.database.write() as session:
        progress = {"done": 3, "total": 9, "message": "scoring rows"}
        queue.beat(session, job.id, job.token, lease_seconds=60, progress=progress)
    told = service.get(f"/jobs/{job_id}")
    assert (told["status"], told["attempts"], told["progress"]) == ("running", 1, progress)
    assert told["started_at"] < told["heartbeat_at"]
    assert told["max_attempts"] == 5
    listed = service.get(f"/projects/{told['project_id']}/jobs?status=running")["items"]
    assert [item["id"] for item in listed] == [job_id]
    assert service.get(f"/projects/{told['project_id']}/jobs?status=failed")["items"] == []


def test_a_job_says_what_it_is_about_and_who_asked_for_it(service: Service) -> None:
    project = service.project(input={"shape": [1]})
    rows, labels = [[i] for i in range(9)], ["0", "1", *[None] * 7]
    pool = service.post(f"/projects/{project['id']}/pools", {"name": "p", "rows": rows, "labels": labels})
    asked = service.post(f"/projects/{project['id']}/rounds", {"pool_id": pool["id"], "k": 2}, 202)
    ids = {"ranking_id": asked["round"]["ranking_id"], "round_id": asked["round"]["id"]}
    assert asked["job"]["about"] == service.get(f"/jobs/{asked['job']['id']}")["about"] == ids
    service.run_jobs()
    given = [{"row": item["row"], "value": "1"} for item in _next(service, ids["round_id"])]
    told = service.post(f"/rounds/{ids['round_id']}/labels", {"labels": given})
    training = service.get(f"/jobs/{told['triggered'][0]}")
    assert training["about"].pop("ensemble_id") == service.get(f"/projects/{project['id']}/ensembles")["items"][0]["id"]
    assert training["about"] == {"origin": f"round:{ids['round_id']}"}


def _next(service: Service, round_id: str) -> Any:
    return service.post(f"/rounds/{round_id}/next", {"annotator": "a", "count": 2})["items"]


def test_a_job_says_when_its_worker_spoke_and_how_often_that_would_try(
    database: Database, make_service: Callable[..., Service]
) -> None:
    service = make_service(database, max_attempts=2)
    job_id = add(database, "noop")
    assert service.get(f"/jobs/{job_id}")["heartbeat_at"] is None
    with database.write() as session:
        claimed = {"queues": ["score"], "worker": "w", "lease_seconds": 60, "max_crashes": 3, "max_attempts": 2}
        job = queue.claim(session, **claimed)
    assert job is not None
    told = service.get(f"/jobs/{job_id}")
    assert (told["attempts"], told["max_attempts"]) == (1, 2)
    assert told["heartbeat_at"] == told["started_at"] is not None
    with database.write() as session:
        queue.fail(session, job_id, job.token, {"title": "no"}, retry_in=None)
    assert service.post(f"/jobs/{job_id}/retry", None, 200)["heartbeat_at"] is None


def test_a_waiting_job_is_cancelled_at_once_and_can_be_tried_again(service: Service, job_id: str) -> None:
    assert service.post(f"/jobs/{job_id}/cancel", None, 200)["status"] == "cancelled"
    assert service.run_jobs() == []
    assert service.post(f"/jobs/{job_id}/retry", None, 200)["status"] == "queued"
    assert service.run_jobs() == [job_id]
    assert "succeeded" in service.post(f"/jobs/{job_id}/retry", None, 409)["detail"]
    assert service.post(f"/jobs/{job_id}/cancel", None, 200)["status"] == "succeeded"


def test_a_running_job_is_told_of_its_cancel(service: Service, job_id: str) -> None:
    job = claim(service)
    told = service.post(f"/jobs/{job_id}/cancel", None, 200)
    assert (told["status"], told["cancel_requested"]) == ("running", True)
    with service.services.database.write() as session:
        assert queue.beat(session, job.id, job.token, lease_seconds=60)


def test_events_follow_a_job_to_its_end(service: Service, job_id: str) -> None:
    seen: list[dict[str, Any]] = []

    def follow() -> None:
        with service.client.stream("GET", f"/v1/jobs/{job_id}/events") as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            for line in response.iter_lines():
                if line.startswith("data: "):
                    seen.append(json.loads(line[6:]))

    threads = [threading.Thread(target=follow) for _ in range(3)]
    for thread in threads:
        thread.start()
    wait_for(lambda: len(seen) == 3)
    job = claim(service)
    wait_for(lambda: len(seen) == 6)
    with service.services.database.write() as session:
        queue.finish(session, job.id, job.token, {"n": 1})
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert sorted(view["status"] for view in seen) == ["queued"] * 3 + ["running"] * 3 + ["succeeded"] * 3


def test_health_readiness_and_metrics_need_no_key(service: Service, job_id: str) -> None:
    bare = {"Authorization": ""}
    assert service.client.get("/healthz", headers=bare).json() == {"status": "ok"}
    assert service.client.get("/readyz", headers=bare).json() == {"status": "ready"}
    text = service.client.get("/metrics", headers=bare).text
    assert 'bensemble_jobs{queue="score",status="queued"} 1.0' in text
    assert 'route="/v1/pools/{pool_id}/rankings",status="202"' in text


def test_readiness_says_when_the_database_is_not_migrated(service: Service) -> None:
    from sqlalchemy import text

    with service.services.database.engine.begin() as connection:
        connection.execute(text("DELETE FROM alembic_version"))
    answer = service.client.get("/readyz")
    assert answer.status_code == 503
    assert "bensemble migrate" in answer.json()["detail"]


def test_methods_come_with_their_schemas(service: Service) -> None:
    methods = service.get("/methods")
    assert set(methods["posteriors"]) >= {"map", "deep_ensemble", "mc_dropout"}
    members = methods["posteriors"]["deep_ensemble"]["schema"]["properties"]["members"]
    assert (members["default"], members["minimum"]) == (5, 1)
    assert methods["acquisitions"]["margin"]["families"] == ["categorical"]
    assert methods["acquisitions"]["random"]["needs"] == []
    assert set(methods["selections"]) >= {"top_k", "power"}
