"""How fast the service is beside the plainest thing that does the same: `python benchmarks/service.py [--quick]`.

Everything runs here and now as processes of their own on the loopback interface, the service and its reference by
turns, so that a busy machine slows both. A ratio is the median of the turns' ratios, with their quartiles.
"""

import argparse
import json
import os
import platform
import random
import shutil
import signal
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from beside import Line, as_table, by_turns
from running import Client, free_port, post_bytes, process, requests_per_second, server
from sqlalchemy import func, select, text

from app.db.engine import Database
from app.db.migrate import migrate
from app.db.tables import Job
from app.pools.schemas import PoolIn
from app.queue import queue
from app.settings import Settings
from app.web.auth import create_key

WIDTH = 64
CLASSES = [str(i) for i in range(10)]
LABELLED_ROWS = 10_000
NPY = "application/x-npy"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long to measure."""

    n_turns: int = 5
    post_seconds: float = 1.5
    n_ingest_rows: int = 1_000_000
    n_inline_rows: int = 100_000
    n_latencies: int = 40
    n_jobs: int = 200


QUICK = Plan(n_turns=2, post_seconds=0.5, n_ingest_rows=250_000, n_inline_rows=10_000, n_latencies=10, n_jobs=50)
MAX_SECONDS = 240


@dataclass(frozen=True, kw_only=True)
class Service:
    """A running API on an empty database, and a project in it."""

    settings: Settings
    port: int
    key: str
    client: Client
    project_id: str

    def pool(self, name: str, **rows: Any) -> str:
        pool_id: str = self.client.post(f"/v1/projects/{self.project_id}/pools", {"name": name, **rows})["id"]
        return pool_id

    def send(self, file: Path, pool_id: str) -> dict[str, Any]:
        """PUT the file; the job that ingests it."""
        with file.open("rb") as body:
            job: dict[str, Any] = self.client.put(f"/v1/pools/{pool_id}/data", body, NPY)["job"]
            return job

    def done(self, job_id: str) -> dict[str, Any]:
        """Once it has succeeded. Asked for seldom, for asking takes time from the job; its row says when it ended."""
        while True:
            job: dict[str, Any] = self.client.get(f"/v1/jobs/{job_id}")
            if job["status"] == "succeeded":
                return job
            if job["status"] in ("failed", "cancelled"):
                raise RuntimeError(f"job {job_id} {job['status']}: {job['error']}")
            time.sleep(0.05)


@contextmanager
def running_service(folder: Path) -> Iterator[Service]:
    settings = Settings(data_dir=folder, port=free_port())
    database = Database.connect(settings.database_url)
    migrate(database)
    with database.write() as session:
        key = create_key(session, name="benchmark", scopes=["admin"])[1]
    database.dispose()
    with server(["app.cli", "api"], settings.port, folder / "api.log", **_environment(settings)):
        client = Client(settings.port, key)
        project = {
            "name": "benchmark",
            "task": {"kind": "classification", "classes": CLASSES},
            "input": {"shape": [WIDTH]},
            "model": {"name": "mlp", "hidden": [32]},
            "posterior": {"name": "deep_ensemble", "members": 3},
        }
        project_id = client.post("/v1/projects", project)["id"]
        yield Service(settings=settings, port=settings.port, key=key, client=client, project_id=project_id)


@contextmanager
def running_worker(service: Service) -> Iterator[None]:
    """Ready for its first job: one has gone through it."""
    folder = service.settings.data_dir
    with process(["app.cli", "worker", "--queues", "ingest"], folder / "worker.log", **_environment(service.settings)):
        file = rows_file(folder, 10)
        service.done(service.send(file, service.pool("warm-up"))["id"])
        yield


def _environment(settings: Settings) -> dict[str, str]:
    return {"BENSEMBLE_DATA_DIR": str(settings.data_dir), "BENSEMBLE_PORT": str(settings.port)}


def rows_file(folder: Path, n_rows: int) -> Path:
    path = folder / f"rows-{n_rows}.npy"
    rows = np.random.default_rng(0).standard_normal((n_rows, WIDTH), dtype=np.float32)
    with path.open("wb") as file:
        np.save(file, rows)
        os.fsync(file.fileno())
    return path


def measure_labels(folder: Path, plan: Plan) -> list[Line]:
    bare_url, bare_port = f"sqlite:///{folder / 'bare.db'}", free_port()
    bare = server(["benchmarks.bare", bare_url, str(bare_port)], bare_port, folder / "bare.log")
    with running_service(folder / "service") as service, bare:
        pool_id = service.pool("labelled", rows=np.zeros((LABELLED_ROWS, WIDTH)).tolist())
        path = f"/v1/projects/{service.project_id}/labels"

        def label(i: int, **headers: str) -> bytes:
            said = {"pool_id": pool_id, "row": i % LABELLED_ROWS, "value": CLASSES[i % len(CLASSES)]}
            return post_bytes(path, {"labels": [said]}, Authorization=f"Bearer {service.key}", **headers)

        def label_once(i: int) -> bytes:
            return label(i, **{"Idempotency-Key": f"{time.monotonic_ns()}-{i}"})

        def event(i: int) -> bytes:
            body = {
                "project_id": service.project_id,
                "pool_id": pool_id,
                "row": i % LABELLED_ROWS,
                "annotator": "benchmark",
                "action": "label",
                "value": CLASSES[i % len(CLASSES)],
                "source": "api",
            }
            return post_bytes("/events", body)

        def line(what: str, request: Callable[[int], bytes], *, n_clients: int, aim: float | None = None) -> Line:
            rate = partial(requests_per_second, n_clients=n_clients, seconds=plan.post_seconds)
            ours, theirs = by_turns(plan.n_turns, partial(rate, service.port, request), partial(rate, bare_port, event))
            return Line(
                what=f"label posts, {what}",
                ours=f"{statistics.median(ours):.0f}/s",
                reference=f"{statistics.median(theirs):.0f}/s bare FastAPI insert",
                ratios=[a / b for a, b in zip(ours, theirs, strict=True)],
                aim=aim,
            )

        return [
            line("8 clients", label, n_clients=8, aim=0.5),
            line("8 clients, idempotent", label_once, n_clients=8),
            line("1 client", label, n_clients=1),
        ]


def measure_files(folder: Path, plan: Plan) -> list[Line]:
    with running_service(folder) as service, running_worker(service):
        return [
            *_latency(service, plan),
            *_ingest(service, plan),
            *_inline(service, plan),
        ]


def _latency(service: Service, plan: Plan) -> list[Line]:
    """By the database's clock; jobs come at any moment of the worker's poll."""
    file, pauses, waits = rows_file(service.settings.data_dir, 10), random.Random(0), []
    for _ in range(plan.n_latencies):
        time.sleep(pauses.uniform(0, service.settings.poll_seconds))
        job = service.done(service.send(file, service.pool("small"))["id"])
        waits.append(_seconds(job, "created_at", "started_at"))
    p95 = statistics.quantiles(waits, n=20)[-1]
    return [
        Line(
            what="job: enqueue to start",
            ours=f"median {statistics.median(waits) * 1000:.0f} ms, p95 {p95 * 1000:.0f} ms",
            reference=f"{service.settings.poll_seconds * 1000:.0f} ms poll",
        )
    ]


def _seconds(job: dict[str, Any], start: str, end: str) -> float:
    return (datetime.fromisoformat(job[end]) - datetime.fromisoformat(job[start])).total_seconds()


def _ingest(service: Service, plan: Plan) -> list[Line]:
    file = rows_file(service.settings.data_dir, plan.n_ingest_rows)
    megabytes = file.stat().st_size / 1e6
    parts: list[tuple[float, float, float]] = []

    def ingest() -> float:
        pool_id, started = service.pool("ingested"), time.time()
        job = service.send(file, pool_id)
        received = time.time() - started
        job = service.done(job["id"])
        parts.append((received, _seconds(job, "created_at", "started_at"), _seconds(job, "started_at", "finished_at")))
        return ended_at(job) - started

    ours, copies = by_turns(plan.n_turns, ingest, lambda: copy_seconds(file))
    received, waited, worked = zip(*parts[1:], strict=True)
    reference = f"{megabytes / statistics.median(copies):.0f} MB/s copy and fsync"

    def line(what: str, seconds: Sequence[float], aim: float | None = None) -> Line:
        return Line(
            what=what,
            ours=f"{megabytes / statistics.median(seconds):.0f} MB/s",
            reference=reference,
            ratios=[b / a for a, b in zip(seconds, copies, strict=True)],
            aim=aim,
        )

    return [
        line(f"ingest of a {megabytes:.0f} MB npy, file to pool", worked, aim=0.3),
        line("  and received over HTTP before", ours),
        Line(
            what="  of which",
            ours=f"receive {statistics.median(received):.2f} s, wait {statistics.median(waited):.2f} s",
            reference=f"{statistics.median(copies):.2f} s",
        ),
    ]


def ended_at(job: dict[str, Any]) -> float:
    """By the database's clock, which for SQLite is this machine's."""
    return datetime.fromisoformat(job["finished_at"]).timestamp()


def copy_seconds(file: Path) -> float:
    copy = file.with_suffix(".copy")
    started = time.perf_counter()
    shutil.copyfile(file, copy)
    with copy.open("rb") as copied:
        os.fsync(copied.fileno())
    seconds = time.perf_counter() - started
    copy.unlink()
    return seconds


def _inline(service: Service, plan: Plan) -> list[Line]:
    rows = np.random.default_rng(1).standard_normal((plan.n_inline_rows, WIDTH)).round(4)
    body = json.dumps({"name": "inline", "rows": rows.tolist()}).encode()
    file = rows_file(service.settings.data_dir, plan.n_inline_rows)
    path = f"/v1/projects/{service.project_id}/pools"

    def npy() -> float:
        started = time.time()
        return ended_at(service.done(service.send(file, service.pool("file"))["id"])) - started

    posts, parsed, received, ready = by_turns(
        plan.n_turns,
        lambda: seconds_of(lambda: service.client.post(path, body)),
        lambda: seconds_of(lambda: PoolIn.model_validate(json.loads(body))),
        lambda: seconds_of(lambda: service.send(file, service.pool("file"))),
        npy,
        n_before=0,  # slow enough by itself
    )
    reference = f"{statistics.median(parsed):.2f} s json.loads + pydantic"
    shape = f"{plan.n_inline_rows:,} × {WIDTH}"
    return [
        Line(
            what=f"rows {shape} {how}",
            ours=f"{statistics.median(times):.2f} s",
            reference=reference,
            ratios=[b / a for a, b in zip(times, parsed, strict=True)],
        )
        for how, times in (
            (f"as JSON ({len(body) / 1e6:.0f} MB)", posts),
            ("as npy, until answered", received),
            ("as npy, until ready", ready),
        )
    ]


def seconds_of(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def measure_jobs(folder: Path, plan: Plan) -> list[Line]:
    settings = Settings(data_dir=folder, log_level="warning")
    database = Database.connect(settings.database_url)
    migrate(database)
    with database.engine.begin() as connection:
        connection.execute(text("CREATE TABLE commits (n INTEGER)"))

    def jobs() -> float:
        with database.write() as session:
            ids = [queue.enqueue(session, kind="nothing", queue="score", payload={}).job.id for _ in range(plan.n_jobs)]
        ended = select(func.count(), func.min(Job.started_at), func.max(Job.finished_at)).where(
            Job.id.in_(ids), Job.status == "succeeded"
        )
        while True:
            with database.read() as session:
                n, first, last = session.execute(ended).one()
            if n == len(ids) and first is not None and last is not None:
                return n / (last - first).total_seconds()
            time.sleep(0.05)

    def commits() -> float:
        """Pairs a second, for a job is claimed in one transaction and finished in another."""
        started = time.perf_counter()
        for _ in range(2 * plan.n_jobs):
            with database.write() as session:
                session.execute(text("INSERT INTO commits VALUES (1)"))
        return plan.n_jobs / (time.perf_counter() - started)

    with process(["benchmarks.empty_jobs", settings.model_dump_json()], folder / "worker.log"):
        ours, theirs = by_turns(plan.n_turns, jobs, commits)
    database.dispose()
    per_job = statistics.median(1000 / rate for rate in ours)
    return [
        Line(
            what="empty jobs, one worker",
            ours=f"{statistics.median(ours):.0f}/s, {per_job:.1f} ms each",
            reference=f"{statistics.median(theirs):.0f}/s pairs of bare commits",
            ratios=[a / b for a, b in zip(ours, theirs, strict=True)],
        )
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer turns and rows: under a minute, and noisier")
    parser.add_argument("--folder", type=Path, help="where to work; needs 3 GB (default: the temporary folder)")
    parser.add_argument("--only", choices=MEASURES, action="append", help="measure only this (may be repeated)")
    arguments = parser.parse_args()
    plan = QUICK if arguments.quick else Plan()
    for number, reason in ((signal.SIGTERM, "stopped"), (signal.SIGALRM, f"not done after {MAX_SECONDS} s")):
        signal.signal(number, lambda *_, reason=reason: sys.exit(reason))  # leaves every block, so all is cleared up
    signal.alarm(MAX_SECONDS)
    lines: list[Line] = []
    started = time.monotonic()
    try:
        for name in arguments.only or MEASURES:
            with tempfile.TemporaryDirectory(prefix="bensemble-bench-", dir=arguments.folder) as folder:
                lines += MEASURES[name](Path(folder), plan)
    finally:
        print(as_table(lines, ours="service"))
    print(
        f"\n{plan.n_turns} turns in {time.monotonic() - started:.0f} s; {os.cpu_count()} cores, load "
        f"{os.getloadavg()[0]:.1f}; Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    )


MEASURES: dict[str, Callable[[Path, Plan], list[Line]]] = {
    "labels": measure_labels,
    "files": measure_files,
    "jobs": measure_jobs,
}


if __name__ == "__main__":
    main()
