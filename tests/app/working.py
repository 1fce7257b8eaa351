"""Workers for the tests: in a thread, or as a process that can be killed (`python -m tests.app.working`)."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest
from sqlalchemy import select

from app.db.engine import Database
from app.db.tables import Job
from app.queue import queue
from app.queue.worker import Tick, Worker
from app.settings import Settings
from tests.app.job_handlers import HANDLERS

Answer = TypeVar("Answer")
ROOT = Path(__file__).parents[2]

on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
"""For what processes do to each other and the database has no part in."""


def quick_settings(url: str, folder: Path, **changes: Any) -> Settings:
    hurried = {"lease_seconds": 2.0, "poll_seconds": 0.05, "cancel_grace_seconds": 0.5, "backoff_seconds": 0.05}
    return Settings(**{"data_dir": folder, "database_url": url, "log_level": "warning", **hurried, **changes})


def wait_for(look: Callable[[], Answer], seconds: float = 60.0, every: float = 0.02) -> Answer:
    """The first answer that is true. A busy machine may take many times what a quiet one does."""
    give_up = time.monotonic() + seconds
    while not (answer := look()):
        assert time.monotonic() < give_up, f"still {answer!r} after {seconds} s"
        time.sleep(every)
    return answer


def add(database: Database, kind: str, **payload: Any) -> str:
    with database.write() as session:
        return queue.enqueue(session, kind=kind, queue="score", payload=payload).job.id


def row(database: Database, job_id: str) -> Job:
    with database.read() as session:
        return session.scalars(select(Job).where(Job.id == job_id)).one()


def ended(database: Database, job_id: str, seconds: float = 60.0) -> Job:
    def look() -> Job | None:
        job = row(database, job_id)
        return job if job.status in ("succeeded", "failed", "cancelled") else None

    job = wait_for(look, seconds)
    assert job is not None
    return job


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def is_gone(pid: int) -> bool:
    """Dead, whether or not somebody has collected it yet."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@contextmanager
def working(
    settings: Settings,
    *,
    handlers: Mapping[str, str] = HANDLERS,
    tick: Tick | None = None,
    tick_seconds: float = 0.05,
    preload: Sequence[str] = (),
) -> Iterator[Worker]:
    stop = threading.Event()
    worker = Worker(
        settings, ["score", "train"], handlers=handlers, tick=tick, tick_seconds=tick_seconds, preload=preload
    )
    thread = threading.Thread(target=worker.run, args=(stop,))
    thread.start()
    try:
        yield worker
    finally:
        stop.set()
        thread.join(60)
    assert not thread.is_alive()


class WorkerProcess:
    """Killed at the end of its block whatever happened in it, stopped or not."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def __enter__(self) -> "WorkerProcess":
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.app.working", self._settings.model_dump_json()], cwd=ROOT
        )
        return self

    def __exit__(self, *_: object) -> None:
        pids = [*self.child_pids(), self.process.pid]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        wait_for(lambda: all(is_gone(pid) for pid in pids))

    def child_pids(self) -> list[int]:
        try:
            return [child.pid for child in psutil.Process(self.process.pid).children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def send(self, number: int) -> None:
        self.process.send_signal(number)


if __name__ == "__main__":
    Worker(Settings.model_validate_json(sys.argv[1]), ["score", "train"], handlers=HANDLERS).run_until_signal()
