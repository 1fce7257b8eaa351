"""A pool that does not fit in memory, ranked by the service: `python benchmarks/big_pool.py [--rows 10000000]`.

An API and a worker as processes, a pool of float32 rows of width 64 sent over HTTP, an ensemble of ten 64-128-128-10
networks, BALD. Printed: rows a second by executor beside one single-threaded process, the worker's peak memory above
that of the idle worker, and the bytes that were read. Needs twice the pool's size on disk (2.6 GB for 10⁷ rows).
"""

import argparse
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from running import Client, free_port, process, server

from app.db.engine import Database
from app.db.migrate import migrate
from app.settings import Settings
from app.web.auth import create_key

WIDTH, BLOCK = 64, 100_000
CLASSES = [str(i) for i in range(10)]
EXECUTORS: dict[str, dict[str, str]] = {
    "one thread": {"BENSEMBLE_EXECUTOR": "inline", "BENSEMBLE_THREADS": "1"},
    "inline": {"BENSEMBLE_EXECUTOR": "inline"},
    "process × 2": {"BENSEMBLE_EXECUTOR": "process", "BENSEMBLE_PROCESSES": "2"},
}


@dataclass(frozen=True, kw_only=True)
class Measured:
    seconds: float
    peak_bytes: int  # above the idle worker, its processes included
    read_bytes: int


class Memory:
    """Private and mapped pages of a process and all below it, looked at five times a second."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._done = threading.Event()
        self.peak = 0

    def now(self) -> int:
        return sum(self._of(each, "memory_info", "rss") for each in self._family())

    def read(self) -> int:
        return sum(self._of(each, "io_counters", "read_bytes") for each in self._family())

    def settled(self) -> int:
        """Once it has not grown for two seconds: until then processes are starting."""
        last = [0]
        while len(last) < 10 or last[-1] - last[-10] > 1 << 20:
            last.append(self.now())
            time.sleep(0.2)
        return last[-1]

    @contextmanager
    def watched(self) -> Iterator[None]:
        thread = threading.Thread(target=self._watch)
        thread.start()
        try:
            yield
        finally:
            self._done.set()
            thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.2):
            self.peak = max(self.peak, self.now())

    def _family(self) -> list[psutil.Process]:
        return [self._process, *self._process.children(recursive=True)]

    @staticmethod
    def _of(process: psutil.Process, call: str, name: str) -> int:
        try:
            return int(getattr(getattr(process, call)(), name))
        except psutil.Error:
            return 0


def rows_file(folder: Path, n_rows: int) -> Path:
    """Random rows, written block by block."""
    path, rng = folder / "rows.npy", np.random.default_rng(0)
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (n_rows, WIDTH)})
        for start in range(0, n_rows, BLOCK):
            file.write(rng.standard_normal((min(BLOCK, n_rows - start), WIDTH), dtype=np.float32).tobytes())
    return path


def done(client: Client, job_id: str) -> dict[str, Any]:
    while True:
        job: dict[str, Any] = client.get(f"/v1/jobs/{job_id}")
        if job["status"] in ("failed", "cancelled"):
            raise RuntimeError(f"job {job_id} {job['status']}: {job['error']}")
        if job["status"] == "succeeded":
            return job
        time.sleep(0.1)


def prepare(client: Client, file: Path) -> str:
    """A project with the big pool and a small labelled one to learn from; the big pool's id."""
    project = {
        "name": "big",
        "task": {"kind": "classification", "classes": CLASSES},
        "input": {"shape": [WIDTH]},
        "model": {"name": "mlp", "hidden": [128, 128]},
        "posterior": {"name": "deep_ensemble", "members": 10, "epochs": 3},
    }
    project_id = client.post("/v1/projects", project)["id"]
    rng = np.random.default_rng(1)
    x = rng.standard_normal((500, WIDTH))
    labels = [CLASSES[int(np.argmax(row[:10]))] for row in x]
    client.post(f"/v1/projects/{project_id}/pools", {"name": "labelled", "rows": x.tolist(), "labels": labels})
    done(client, client.post(f"/v1/projects/{project_id}/ensembles", {"n_members": 10})["job"]["id"])
    pool_id: str = client.post(f"/v1/projects/{project_id}/pools", {"name": "big"})["id"]
    with file.open("rb") as body:
        done(client, client.put(f"/v1/pools/{pool_id}/data", body, "application/x-npy")["job"]["id"])
    return pool_id


def measure(folder: Path, client: Client, pool_id: str, environment: dict[str, str]) -> tuple[Measured, list[int]]:
    """One ranking from nothing by a worker of its own, which has done a small one before."""
    shutil.rmtree(folder / "storage" / "scores", ignore_errors=True)
    wanted = {"acquisition": {"name": "bald"}, "k": 100}
    with process(["app.cli", "worker", "--queues", "score"], folder / "worker.log", **environment) as worker:
        warm = client.post(f"/v1/pools/{pool_id}/rankings", {"acquisition": {"name": "random"}, "k": 1})
        done(client, warm["job"]["id"])
        memory = Memory(worker.pid)
        idle, read = memory.settled(), memory.read()
        with memory.watched():
            started = time.monotonic()
            asked = client.post(f"/v1/pools/{pool_id}/rankings", wanted)
            done(client, asked["job"]["id"])
            seconds = time.monotonic() - started
        items = client.get(f"/v1/rankings/{asked['ranking']['id']}")["items"]
        measured = Measured(seconds=seconds, peak_bytes=memory.peak - idle, read_bytes=memory.read() - read)
        return measured, [item["row"] for item in items]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, help="where to work (default: the temporary folder)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bensemble-bench-", dir=arguments.folder) as name:
        folder = Path(name)
        settings = Settings(data_dir=folder, port=free_port())
        database = Database.connect(settings.database_url)
        migrate(database)
        with database.write() as session:
            key = create_key(session, name="benchmark", scopes=["admin"])[1]
        database.dispose()
        environment = {"BENSEMBLE_DATA_DIR": str(folder), "BENSEMBLE_PORT": str(settings.port)}
        with server(["app.cli", "api"], settings.port, folder / "api.log", **environment):
            client = Client(settings.port, key)
            with process(["app.cli", "worker"], folder / "worker.log", **environment):
                started = time.monotonic()
                pool_id = prepare(client, rows_file(folder, arguments.rows))
                print(
                    f"{arguments.rows:,} rows of {WIDTH} made, sent and ingested in {time.monotonic() - started:.0f} s"
                )
            (folder / "rows.npy").unlink()
            found: dict[str, Measured] = {}
            chosen: list[list[int]] = []
            print("\nexecutor       seconds     rows/s   ratio   peak memory above idle   read from disk")
            print("--------------------------------------------------------------------------------")
            for label, changes in EXECUTORS.items():
                found[label], rows = measure(folder, client, pool_id, {**environment, **changes})
                chosen.append(rows)
                one = found[label]
                ratio = found["one thread"].seconds / one.seconds
                print(
                    f"{label:12s}  {one.seconds:8.1f}  {arguments.rows / one.seconds:9,.0f}  {ratio:6.2f}"
                    f"   {one.peak_bytes / 2**20:18.0f} MiB   {one.read_bytes / 1e9:11.2f} GB",
                    flush=True,
                )
            print(f"\nall executors chose the same rows: {all(rows == chosen[0] for rows in chosen)}")


if __name__ == "__main__":
    main()
