"""The service as real processes: an API and workers that can be killed, stopped and started again."""

import io
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil

from app.db.engine import Database
from app.db.migrate import migrate
from app.db.tables import Job
from app.web.auth import create_key
from tests.app.working import ROOT, wait_for

ENDED = ("succeeded", "failed", "cancelled")


@dataclass
class Running:
    database: Database
    env: dict[str, str]
    port: int
    client: httpx.Client
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = (
            [sys.executable, *arguments]
            if arguments[0].startswith("-")
            else [sys.executable, "-m", "app.cli", *arguments]
        )
        process = subprocess.Popen(command, env=self.env, cwd=ROOT, start_new_session=True)
        self.processes.append(process)
        return process

    def start_api(self, *command: str) -> subprocess.Popen[bytes]:
        process = self.start(*(command or ("api",)))
        wait_for(self._answers, 60, every=0.1)
        return process

    def _answers(self) -> bool:
        try:
            return self.client.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        response = self.client.post(f"/v1{path}", json=body, headers=headers)
        assert response.is_success, response.text
        return response.json()

    def get(self, path: str, **params: Any) -> Any:
        response = self.client.get(f"/v1{path}", params=params)
        assert response.is_success, response.text
        return response.json()

    def job(self, job_id: str) -> Job:
        with self.database.read() as session:
            return session.get_one(Job, job_id)

    def wait(self, job_id: str, seconds: float = 60) -> Job:
        def look() -> Job | None:
            job = self.job(job_id)
            return job if job.status in ENDED else None

        job = wait_for(look, seconds, every=0.05)
        assert job is not None
        assert job.status == "succeeded", job.error
        return job

    def until(self, job_id: str, what: Callable[[Job], Any], seconds: float = 60) -> Job:
        wait_for(lambda: what(self.job(job_id)), seconds)
        return self.job(job_id)

    def holder(self, job: Job) -> psutil.Process:
        """The worker that runs the job; its name says its pid."""
        assert job.worker is not None
        return psutil.Process(int(job.worker.split(":")[1]))

    def upload(self, project_id: str, x: np.ndarray[Any, Any], name: str = "pool") -> str:
        """A pool of rows sent as an npy file, once it is ready."""
        pool_id = self.post(f"/projects/{project_id}/pools", {"name": name})["id"]
        file = io.BytesIO()
        np.save(file, x)
        response = self.client.put(
            f"/v1/pools/{pool_id}/data", content=file.getvalue(), headers={"Content-Type": "application/x-npy"}
        )
        assert response.status_code == 202, response.text
        self.wait(response.json()["job"]["id"])
        return str(pool_id)

    def stop(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def running(url: str, folder: Path, **changes: Any) -> Iterator[Running]:
    """Migrated and with a key, but nothing started yet."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    settings = {
        "data_dir": folder,
        "database_url": url,
        "port": port,
        "log_level": "warning",
        "lease_seconds": 2,
        "poll_seconds": 0.05,
        "backoff_seconds": 0.1,
        "checkpoint_seconds": 0.3,
        "threads": 1,
        **changes,
    }
    env = {**os.environ, **{f"BENSEMBLE_{name.upper()}": str(value) for name, value in settings.items()}}
    database = Database.connect(url)
    migrate(database)
    with database.write() as session:
        _, secret = create_key(session, name="crash test", scopes=["admin"])
    client = httpx.Client(
        base_url=f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {secret}"}, timeout=30
    )
    service = Running(database=database, env=env, port=port, client=client)
    try:
        yield service
    finally:
        service.stop()
        client.close()
        database.dispose()
