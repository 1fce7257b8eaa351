"""Handlers for the tests of the queue's workers; a payload tells each what to do."""

import json
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from sqlalchemy import text

from app.queue import queue
from app.queue.context import JobContext, JobFailed

PATH = "tests.app.job_handlers"
HANDLERS = {
    name: f"{PATH}:{name}"
    for name in (
        "note",
        "steps",
        "insert_result",
        "refuse",
        "stumble",
        "kill_itself",
        "leave",
        "ignore_everything",
        "swallow_exceptions",
        "return_nothing",
        "fall_after_finishing",
        "linger_after_finishing",
        "collide",
        "describe",
        "speak_oddly",
        "breed",
    )
}


def append(path: str, **line: object) -> None:
    """One write of a short line with O_APPEND: lines of several processes never mix."""
    end = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(end, json.dumps(line).encode() + b"\n")
    os.close(end)


def note(job: JobContext) -> None:
    append(job.payload["path"], job_id=job.job_id, attempt=job.attempt, pid=os.getpid(), at=time.time())
    with job.finish({"pid": os.getpid()}):
        pass


def steps(job: JobContext) -> None:
    """`n` steps of `seconds`, each checkpointed; starts after the last one that was."""
    first = (job.checkpoint or {"done": 0})["done"]
    append(job.payload["path"], first=first, attempt=job.attempt, pid=os.getpid())
    n = job.payload["n"]
    for done in range(first, n):
        job.progress(done, n, f"step {done}")
        time.sleep(job.payload["seconds"])
        job.save_checkpoint({"done": done + 1})
    job.progress(n, n, "all done")
    with job.finish({"first": first, "n": n}):
        pass


def insert_result(job: JobContext) -> None:
    """Waits until a file appears, then writes a result row: one that lost its lease meanwhile must not."""
    append(job.payload["path"], attempt=job.attempt, pid=os.getpid())
    while not Path(job.payload["gate"]).exists():
        time.sleep(0.01)
    with job.finish({"attempt": job.attempt}) as session:
        row = {"id": f"{job.job_id[:30]}-{job.attempt}", "name": job.job_id, "attempt": job.attempt}
        session.execute(text("INSERT INTO result_row VALUES (:id, :name, :attempt)"), row)


def refuse(job: JobContext) -> None:
    raise JobFailed("Too few labels", "A training needs 2 labels; there is 1.")


def stumble(job: JobContext) -> None:
    """Fails until its attempt is `payload["until"]`."""
    append(job.payload["path"], attempt=job.attempt, at=time.time())
    if job.attempt < job.payload["until"]:
        raise ValueError(f"stumbled at attempt {job.attempt}")


def kill_itself(job: JobContext) -> None:
    append(job.payload["path"], attempt=job.attempt, pid=os.getpid())
    if job.attempt <= job.payload.get("times", 99):
        os.kill(os.getpid(), signal.SIGKILL)


def leave(job: JobContext) -> None:
    os._exit(3)


def ignore_everything(job: JobContext) -> None:
    """Hangs in one long call that keeps the interpreter's lock, so that not even a thread of the child can run."""
    append(job.payload["path"], pid=os.getpid())
    sum(range(10**12))


def swallow_exceptions(job: JobContext) -> None:
    append(job.payload["path"], pid=os.getpid())
    while True:
        with suppress(Exception):
            job.progress(1, 2)
        time.sleep(0.01)


def return_nothing(job: JobContext) -> None:
    job.progress(3, 3, "counted")


def fall_after_finishing(job: JobContext) -> None:
    with job.finish({"answer": 42}):
        pass
    raise RuntimeError("too late to matter")


def linger_after_finishing(job: JobContext) -> None:
    with job.finish({"pid": os.getpid()}):
        pass
    time.sleep(job.payload["seconds"])
    append(job.payload["path"], pid=os.getpid())


def collide(job: JobContext) -> None:
    with job.finish({}) as session:
        session.execute(text("INSERT INTO result_row VALUES ('same', 'twice', 0)"))


def describe(job: JobContext) -> None:
    import torch

    is_loaded = job.payload["module"] in sys.modules
    with job.finish({"is_loaded": is_loaded, "threads": torch.get_num_threads(), "device": job.device}):
        pass


def speak_oddly(job: JobContext) -> None:
    job.progress(float("nan"), 1, "half a \ud800 pair")
    time.sleep(1.0)  # the progress is written with a beat
    raise JobFailed("Odd", "a nul:\x00.", numbers=[1.5, float("inf")], status=500)


def breed(job: JobContext) -> None:
    with job.finish({"n": job.payload["n"]}) as session:
        if job.payload["n"]:
            payload = {"n": job.payload["n"] - 1}
            queue.enqueue(session, kind="breed", queue="score", payload=payload, parent_id=job.job_id)
