"""The shape of docker-compose.yml, as processes: PostgreSQL, S3, an API, two workers. And load on one SQLite."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import pytest
from moto.server import ThreadedMotoServer
from sqlalchemy import func, select

from app.db.tables import Label
from tests.app.working import on_sqlite
from tests.crash.running import Running, running
from tests.crash.test_service_crash import prepare

on_postgres = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    boto3.client("s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1").create_bucket(Bucket="bensemble")
    yield "s3://bensemble/data"
    server.stop()


@on_postgres
def test_the_loop_runs_on_postgresql_and_s3_with_several_workers(
    database_url: str, tmp_path: Path, bucket: str
) -> None:
    with running(database_url, tmp_path, storage_url=bucket, shard_bytes=1) as service:
        service.start_api()
        service.start("worker", "--queues", "train")
        service.start("worker", "--queues", "ingest,score", "--device", "cpu")
        project_id, pool_id = prepare(service, epochs=20, n_rows=20_000)
        training = service.post(f"/projects/{project_id}/ensembles", {})
        service.wait(training["job"]["id"])
        body = {"pool_id": pool_id, "acquisition": {"name": "bald"}, "selection": {"name": "power"}, "k": 6}
        opened = service.post(f"/projects/{project_id}/rounds", body)
        service.wait(opened["job"]["id"])
        items = service.post(f"/rounds/{opened['round']['id']}/next", {"count": 6})["items"]
        labels = {"labels": [{"row": item["row"], "value": "a"} for item in items]}
        triggered = service.post(f"/rounds/{opened['round']['id']}/labels", labels)["triggered"]
        service.wait(triggered[0])
        assert [p["n_labels"] for p in service.get(f"/projects/{project_id}/learning-curve")["points"]] == [40, 46]
        assert not (tmp_path / "storage").exists()
        file = service.client.get(f"/v1/ensembles/{training['ensemble']['id']}/file")
        assert len(file.content) == int(file.headers["content-length"])


def post_labels(service: Running, project_id: str, pool_id: str, n_rows: int, seconds: float) -> int:
    """Eight clients, each labelling rows of its own as fast as it can; how many labels were accepted."""
    accepted = [0] * 8
    failures: list[str] = []
    stop_at = time.monotonic() + seconds

    def label(client: int) -> None:
        row = client
        while time.monotonic() < stop_at and not failures:
            entry = {"pool_id": pool_id, "row": row % n_rows, "value": "ab"[row % 2], "annotator": f"client {client}"}
            answer = service.client.post(f"/v1/projects/{project_id}/labels", json={"labels": [entry]})
            if answer.status_code != 201:
                failures.append(answer.text)
                return
            accepted[client] += 1
            row += 8

    threads = [threading.Thread(target=label, args=(client,)) for client in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    return sum(accepted)


@on_sqlite
@pytest.mark.parametrize("seconds", [5.0, pytest.param(30.0, marks=pytest.mark.soak)])
def test_eight_clients_label_on_sqlite_while_a_job_runs_and_no_label_is_lost(
    database_url: str, tmp_path: Path, seconds: float
) -> None:
    with running(database_url, tmp_path) as service:
        service.start_api()
        service.start("worker")
        project_id, pool_id = prepare(service, epochs=20_000)
        training = service.post(f"/projects/{project_id}/ensembles", {})
        service.until(training["job"]["id"], lambda job: job.status == "running")
        accepted = post_labels(service, project_id, pool_id, 200, seconds)
        assert service.job(training["job"]["id"]).status == "running"
        service.post(f"/jobs/{training['job']['id']}/cancel")
        with service.database.read() as session:
            events = session.execute(select(Label.seq).order_by(Label.seq)).scalars().all()
            n_labels = session.execute(select(func.count()).select_from(Label)).scalar_one()
        assert n_labels == accepted + 40
        assert events == list(range(1, n_labels + 1))
        assert accepted > 50 * seconds / 5


@on_sqlite
def test_a_long_training_obeys_its_cancel_and_the_worker_goes_on(database_url: str, tmp_path: Path) -> None:
    with running(database_url, tmp_path, cancel_grace_seconds=1) as service:
        service.start_api()
        worker = service.start("worker")
        project_id, _ = prepare(service, epochs=100_000)
        training = service.post(f"/projects/{project_id}/ensembles", {})
        service.until(training["job"]["id"], lambda job: job.progress is not None)
        service.post(f"/jobs/{training['job']['id']}/cancel")
        service.until(training["job"]["id"], lambda job: job.status == "cancelled")
        assert worker.poll() is None
        again = service.post(f"/projects/{project_id}/ensembles", {"posterior": {"name": "map", "epochs": 5}})
        service.wait(again["job"]["id"])
        ensemble: Any = service.get(f"/ensembles/{again['ensemble']['id']}")
        assert np.isfinite(ensemble["seconds"])
