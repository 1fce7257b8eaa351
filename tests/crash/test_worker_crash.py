"""Workers that are killed, stopped and restarted: real processes, real signals."""

import os
import random
import signal
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from sqlalchemy import text

from app.db.engine import Database
from app.queue import queue
from tests.app.working import WorkerProcess, add, ended, is_gone, lines, on_sqlite, quick_settings, row, wait_for

SLACK = 50.0  # seconds that a busy machine may add to anything


@pytest.fixture
def result_table(database: Database) -> None:
    with database.write() as session:
        session.execute(text("CREATE TABLE result_row (id VARCHAR(80) PRIMARY KEY, name TEXT, attempt INTEGER)"))


def result_rows(database: Database) -> list[tuple[str, int]]:
    with database.read() as session:
        return [(name, attempt) for name, attempt in session.execute(text("SELECT name, attempt FROM result_row"))]


def test_a_killed_worker_is_taken_over_within_its_lease_from_the_checkpoint(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    note, settings = tmp_path / "note", quick_settings(database_url, tmp_path)
    job_id = add(database, "steps", path=str(note), n=10, seconds=0.2)
    with WorkerProcess(settings) as first:
        child = wait_for(lambda: lines(note))[0]["pid"]
        with WorkerProcess(settings):
            wait_for(lambda: (row(database, job_id).checkpoint or {}).get("done", 0) >= 3)
            first.send(signal.SIGKILL)
            wait_for(lambda: is_gone(child), SLACK)
            taken_over = wait_for(lambda: lines(note)[1:], settings.lease_seconds + SLACK)[0]
            job = ended(database, job_id)
    assert taken_over["first"] >= 3
    assert (job.status, job.attempts, job.crashes, job.token) == ("succeeded", 2, 1, 2)
    assert job.result == {"first": taken_over["first"], "n": 10}


@on_sqlite
def test_a_killed_child_is_replaced_and_its_job_goes_on(database: Database, database_url: str, tmp_path: Path) -> None:
    note = tmp_path / "note"
    job_id = add(database, "steps", path=str(note), n=6, seconds=0.1)
    with WorkerProcess(quick_settings(database_url, tmp_path)):
        pid = wait_for(lambda: lines(note))[0]["pid"]
        wait_for(lambda: row(database, job_id).checkpoint)
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: row(database, job_id).crashes == 1)
        error = row(database, job_id).error
        job = ended(database, job_id)
    assert error == {
        "type": "child-died",
        "title": "Worker process died",
        "detail": "its process was killed by SIGKILL.",
    }
    assert (job.status, job.attempts, job.crashes, job.error) == ("succeeded", 2, 1, None)
    assert lines(note)[1]["pid"] != pid
    assert lines(note)[1]["first"] >= 1


@on_sqlite
def test_a_job_that_kills_its_process_is_given_up_and_others_still_run(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    poison = add(database, "kill_itself", path=str(note))
    passing = add(database, "kill_itself", path=str(tmp_path / "twice"), times=2)
    leaving = add(database, "leave")
    healthy = add(database, "return_nothing")
    with WorkerProcess(quick_settings(database_url, tmp_path, max_crashes=3)):
        assert ended(database, healthy, 20).status == "succeeded"
        job = ended(database, poison, 20)
        assert (job.status, job.attempts, job.crashes) == ("failed", 3, 3)
        assert job.error == {
            "type": "poison-job",
            "title": "Job killed its worker",
            "detail": "The job killed its worker 3 times and was given up. "
            "The last time: its process was killed by SIGKILL.",
            "status": 500,
        }
        assert len(lines(note)) == 3
        job = ended(database, passing, 20)
        assert (job.status, job.attempts, job.crashes) == ("succeeded", 3, 2)
        job = ended(database, leaving, 20)
        assert job.error is not None
        assert job.error["detail"].endswith("The last time: its process ended with exit code 3.")


def test_a_worker_that_slept_through_its_lease_cannot_finish_the_job_of_another(
    database: Database, database_url: str, tmp_path: Path, result_table: None
) -> None:
    note, gate, settings = tmp_path / "note", tmp_path / "gate", quick_settings(database_url, tmp_path)
    job_id = add(database, "insert_result", path=str(note), gate=str(gate))
    with WorkerProcess(settings) as first:
        sleeper = wait_for(lambda: lines(note))[0]["pid"]
        first.send(signal.SIGSTOP)
        os.kill(sleeper, signal.SIGSTOP)
        with WorkerProcess(settings) as second:
            wait_for(lambda: lines(note)[1:])
            for pid in second.child_pids():
                os.kill(pid, signal.SIGSTOP)  # the new holder is slow, so the old one gets every chance to finish first
            gate.touch()
            os.kill(sleeper, signal.SIGCONT)
            time.sleep(0.5)
            assert result_rows(database) == []
            assert row(database, job_id).status == "running"
            first.send(signal.SIGCONT)
            wait_for(lambda: psutil.Process(sleeper).status() != psutil.STATUS_STOPPED)
            for pid in second.child_pids():
                os.kill(pid, signal.SIGCONT)
            job = ended(database, job_id)
        assert first.process.poll() is None
        assert ended(database, add(database, "return_nothing")).status == "succeeded"
    assert (job.status, job.attempts, job.result) == ("succeeded", 2, {"attempt": 2})
    assert result_rows(database) == [(job_id, 2)]


def test_a_worker_asked_to_stop_gives_its_job_back_at_once(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    note, number = tmp_path / "note", signal.SIGTERM if database.is_sqlite else signal.SIGINT
    job_id = add(database, "steps", path=str(note), n=1000, seconds=0.1)
    with WorkerProcess(quick_settings(database_url, tmp_path, lease_seconds=60)) as worker:
        child = wait_for(lambda: lines(note))[0]["pid"]
        wait_for(lambda: row(database, job_id).checkpoint)
        worker.send(number)
        assert worker.process.wait(50) == 0  # well before the job's own end and that of its lease
        assert is_gone(child)
    job = row(database, job_id)
    assert (job.status, job.attempts, job.crashes, job.worker, job.error) == ("queued", 0, 0, None, None)
    assert (job.checkpoint or {})["done"] >= 1
    with database.read() as session:
        assert queue.due(session, ["score"]) == [("score", "queued")]


@on_sqlite
def test_an_idle_worker_stops_at_once_too(database: Database, database_url: str, tmp_path: Path) -> None:
    with WorkerProcess(quick_settings(database_url, tmp_path, poll_seconds=120)) as worker:
        wait_for(worker.child_pids)
        time.sleep(1.0)
        worker.send(signal.SIGTERM)
        assert worker.process.wait(60) == 0  # well before it looks for a job again


@on_sqlite
def test_a_child_that_hangs_with_the_interpreter_locked_dies_with_its_worker(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    add(database, "ignore_everything", path=str(note))
    with WorkerProcess(quick_settings(database_url, tmp_path)) as worker:
        child = wait_for(lambda: lines(note))[0]["pid"]
        worker.send(signal.SIGKILL)
        wait_for(lambda: is_gone(child), 2.0)


def test_four_workers_run_200_jobs_once_each(database: Database, database_url: str, tmp_path: Path) -> None:
    note = tmp_path / "note"
    with database.write() as session:
        payload = {"path": str(note)}
        added = [queue.enqueue(session, kind="note", queue="score", payload=payload).job.id for _ in range(200)]
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(WorkerProcess(quick_settings(database_url, tmp_path, lease_seconds=20)))
        wait_for(lambda: all_done(database, 200), 60, every=0.2)
    assert Counter(line["job_id"] for line in lines(note)) == Counter(added)
    assert len({line["pid"] for line in lines(note)}) > 1


def all_done(database: Database, n: int) -> bool:
    with database.read() as session:
        return queue.depths(session) == {("score", "succeeded"): n}


@pytest.mark.soak
def test_under_random_kills_every_job_still_writes_its_result_once(
    database: Database, database_url: str, tmp_path: Path, result_table: None
) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    settings = quick_settings(database_url, tmp_path, max_crashes=1000, max_attempts=1000, lease_seconds=1.0)
    note = str(tmp_path / "note")
    jobs = [add(database, "insert_result", path=note, gate=str(gate)) for _ in range(150)]
    jobs += [add(database, "steps", path=note, n=5, seconds=0.05) for _ in range(60)]
    chance = random.Random(0)
    with ExitStack() as stack:
        workers = [stack.enter_context(WorkerProcess(settings)) for _ in range(3)]
        give_up = time.monotonic() + 200
        while not all_done(database, len(jobs)):
            assert time.monotonic() < give_up
            time.sleep(chance.uniform(0.5, 2.5))
            place = chance.randrange(3)
            victims = [*workers[place].child_pids()] if chance.random() < 0.5 else [workers[place].process.pid]
            for pid in victims:
                if not is_gone(pid):
                    os.kill(pid, signal.SIGKILL)
            if workers[place].process.poll() is not None:
                workers[place] = stack.enter_context(WorkerProcess(settings))
    assert sorted(name for name, _ in result_rows(database)) == sorted(jobs[:150])
