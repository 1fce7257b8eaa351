"""A worker with its child process, from the outside: what becomes of the jobs it is given."""

import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
from sqlalchemy import text

from app.db.engine import Database
from app.db.migrate import migrate
from app.queue import queue
from app.queue.inline import run_due
from app.settings import Settings
from tests.app.job_handlers import HANDLERS
from tests.app.working import ROOT, add, ended, is_gone, lines, on_sqlite, quick_settings, row, wait_for, working


def cancel(database: Database, job_id: str) -> None:
    with database.write() as session:
        queue.request_cancel(session, job_id)


def test_a_worker_runs_jobs_in_one_warm_child_and_says_how_they_ended(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    with working(quick_settings(database_url, tmp_path, max_attempts=2, backoff_seconds=0.01)):
        first, second = add(database, "note", path=str(note)), add(database, "note", path=str(note))
        counted, late = add(database, "return_nothing"), add(database, "fall_after_finishing")
        refused, broken = add(database, "refuse"), add(database, "stumble", path=str(tmp_path / "s"), until=99)
        unknown = add(database, "teleport")

        assert ended(database, first).result == ended(database, second).result == {"pid": lines(note)[0]["pid"]}
        assert [line["job_id"] for line in lines(note)] == [first, second]

        job = ended(database, counted)
        assert (job.status, job.result) == ("succeeded", {})
        assert job.progress == {"done": 3, "total": 3, "message": "counted"}

        job = ended(database, late)
        assert (job.status, job.result, job.error) == ("succeeded", {"answer": 42}, None)

        job = ended(database, refused)
        assert (job.status, job.attempts) == ("failed", 1)
        assert job.error == {
            "title": "Too few labels",
            "detail": "A training needs 2 labels; there is 1.",
            "status": 409,
        }

        job = ended(database, broken)
        assert (job.status, job.attempts, job.crashes) == ("failed", 2, 0)
        assert job.error == {"type": "ValueError", "title": "Unforeseen error", "detail": "stumbled at attempt 2"}

        job = ended(database, unknown)
        assert job.status == "failed"
        assert job.error is not None
        assert job.error["detail"].startswith(
            "This worker has no handler for jobs of kind 'teleport'; it has: breed, collide,"
        )


@on_sqlite
def test_an_unforeseen_error_is_retried_later_and_later(database: Database, database_url: str, tmp_path: Path) -> None:
    note = tmp_path / "note"
    with working(quick_settings(database_url, tmp_path, backoff_seconds=0.4)):
        job_id = add(database, "stumble", path=str(note), until=4)
        wait_for(lambda: row(database, job_id).error)
        assert row(database, job_id).error == {
            "type": "ValueError",
            "title": "Unforeseen error",
            "detail": "stumbled at attempt 1",
        }
        job = ended(database, job_id)
    assert (job.status, job.attempts, job.crashes, job.error, job.result) == ("succeeded", 4, 0, None, {})
    times = [line["at"] for line in lines(note)]
    for attempt, (before, after) in enumerate(pairwise(times)):
        shortest = 0.4 * 2**attempt * 0.75
        assert shortest <= after - before < 0.4 * 2**attempt * 1.25 + 1.0


@on_sqlite
def test_a_handler_that_cannot_be_imported_is_an_unforeseen_error(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    settings = quick_settings(database_url, tmp_path, max_attempts=1)
    with working(settings, handlers={"lost": "tests.app.nowhere:lost"}):
        job = ended(database, add(database, "lost"))
    assert job.error is not None
    assert (job.status, job.error["type"]) == ("failed", "ModuleNotFoundError")


def test_rows_of_a_failed_finish_are_rolled_back_with_it(database: Database, database_url: str, tmp_path: Path) -> None:
    with database.write() as session:
        session.execute(text("CREATE TABLE result_row (id VARCHAR(80) PRIMARY KEY, name TEXT, attempt INTEGER)"))
    with working(quick_settings(database_url, tmp_path, max_attempts=2, backoff_seconds=0.01)):
        assert ended(database, add(database, "collide")).status == "succeeded"
        job = ended(database, add(database, "collide"))
    assert job.error is not None
    assert (job.status, job.result, job.error["type"]) == ("failed", None, "IntegrityError")


def test_what_a_job_says_is_stored_even_where_the_database_would_refuse_it(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    with working(quick_settings(database_url, tmp_path)):
        job = ended(database, add(database, "speak_oddly"))
    assert (job.status, job.attempts, job.crashes) == ("failed", 1, 0)
    assert job.progress == {"done": None, "total": 1, "message": "half a ? pair"}
    assert job.error == {"title": "Odd", "detail": "a nul:.", "numbers": [1.5, None], "status": 500}


def test_jobs_can_be_run_in_the_callers_own_process(database: Database, database_url: str, tmp_path: Path) -> None:
    settings = quick_settings(database_url, tmp_path)
    first, refused = add(database, "breed", n=3), add(database, "refuse")
    assert len(run_due(database, settings, ["score"], HANDLERS)) == 5
    assert row(database, first).result == {"n": 3}
    assert (row(database, refused).error or {})["title"] == "Too few labels"
    with database.read() as session:
        assert queue.depths(session) == {("score", "succeeded"): 4, ("score", "failed"): 1}
    assert run_due(database, settings, ["score"], HANDLERS) == []


@pytest.mark.parametrize("kind", ["steps", "swallow_exceptions"])
def test_a_cancel_reaches_a_job_that_reports_progress_and_the_child_lives_on(
    database: Database, database_url: str, tmp_path: Path, kind: str
) -> None:
    note = tmp_path / "note"
    with working(quick_settings(database_url, tmp_path, cancel_grace_seconds=120)):
        job_id = add(database, kind, path=str(note), n=10_000, seconds=0.02)
        pid = wait_for(lambda: lines(note))[0]["pid"]
        wait_for(lambda: row(database, job_id).progress)
        asked = time.monotonic()
        cancel(database, job_id)
        job = ended(database, job_id)
        assert (job.status, job.attempts, job.cancel_requested) == ("cancelled", 1, False)
        assert time.monotonic() - asked < 60  # neither the job's own end nor the end of the grace
        assert ended(database, add(database, "note", path=str(note))).result == {"pid": pid}


@on_sqlite
def test_a_hung_job_is_killed_after_the_grace_and_the_next_one_gets_a_new_child(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    with working(quick_settings(database_url, tmp_path, cancel_grace_seconds=0.5)):
        job_id = add(database, "ignore_everything", path=str(note))
        pid = wait_for(lambda: lines(note))[0]["pid"]
        asked = time.monotonic()
        cancel(database, job_id)
        assert ended(database, job_id).status == "cancelled"
        assert time.monotonic() - asked > 0.5
        assert is_gone(pid)
        result = ended(database, add(database, "note", path=str(note))).result
        assert result is not None
        assert result["pid"] != pid


@on_sqlite
def test_a_cancelled_job_can_be_retried_from_its_checkpoint(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    with working(quick_settings(database_url, tmp_path)):
        job_id = add(database, "steps", path=str(note), n=12, seconds=0.15)
        wait_for(lambda: row(database, job_id).checkpoint)
        cancel(database, job_id)
        assert ended(database, job_id).status == "cancelled"
        with database.write() as session:
            queue.retry(session, job_id)
        job = ended(database, job_id)
    assert (job.status, job.attempts) == ("succeeded", 1)
    first, second = lines(note)
    assert first["first"] == 0
    assert second["first"] >= 1
    assert job.result == {"first": second["first"], "n": 12}


@on_sqlite
def test_a_job_longer_than_its_lease_stays_with_its_worker_and_shows_progress(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    settings = quick_settings(database_url, tmp_path, lease_seconds=1.0)
    with working(settings), working(settings):
        job_id = add(database, "steps", path=str(note), n=6, seconds=0.5)
        wait_for(lambda: (row(database, job_id).progress or {}).get("message") == "step 2")
        job = ended(database, job_id)
    assert (job.status, job.attempts, job.crashes, job.token) == ("succeeded", 1, 0, 1)
    assert job.progress == {"done": 6, "total": 6, "message": "all done"}
    assert len(lines(note)) == 1


def test_an_outage_longer_than_the_lease_kills_the_child_and_costs_no_attempt(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    note, gate = tmp_path / "note", tmp_path / "gate"
    with database.write() as session:
        session.execute(text("CREATE TABLE result_row (id VARCHAR(80) PRIMARY KEY, name TEXT, attempt INTEGER)"))
    with working(quick_settings(database_url, tmp_path, lease_seconds=1.0)):
        job_id = add(database, "insert_result", path=str(note), gate=str(gate))
        pid = wait_for(lambda: lines(note))[0]["pid"]
        with database.write() as session:
            session.execute(text("ALTER TABLE job RENAME TO job_away"))
        wait_for(lambda: is_gone(pid), 4.0)
        gate.touch()
        time.sleep(0.5)
        with database.write() as session:
            session.execute(text("ALTER TABLE job_away RENAME TO job"))
        job = ended(database, job_id, 20)
    assert (job.status, job.attempts, job.crashes, job.token) == ("succeeded", 1, 0, 2)
    assert len(lines(note)) == 2


@on_sqlite
def test_a_tick_runs_beside_the_jobs_and_may_fail(database: Database, database_url: str, tmp_path: Path) -> None:
    note, ticks = tmp_path / "note", []

    def tick(given: Database) -> None:
        with given.read() as session:
            ticks.append(queue.depths(session))
        raise RuntimeError("a bad schedule")

    with working(quick_settings(database_url, tmp_path), tick=tick):
        job_id = add(database, "steps", path=str(note), n=4, seconds=0.1)
        wait_for(lambda: {("score", "running"): 1} in ticks)
        assert ended(database, job_id).status == "succeeded"
        wait_for(lambda: {("score", "succeeded"): 1} in ticks)


@on_sqlite
def test_the_log_tells_each_job_with_its_fields_and_the_childs_traceback(
    database: Database, database_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = quick_settings(database_url, tmp_path, max_attempts=1, log_level="info")
    with caplog.at_level("INFO", logger="app.queue"), working(settings):
        job_id = add(database, "stumble", path=str(tmp_path / "note"), until=2)
        ended(database, job_id)
        wait_for(lambda: any(record.message == "job failed" for record in caplog.records))
    told = {record.message: vars(record) for record in caplog.records if vars(record).get("job_id") == job_id}
    assert list(told) == ["job started", "handler of stumble failed", "job failed"]
    assert "ValueError: stumbled at attempt 1" in told["handler of stumble failed"]["exception"]
    end = told["job failed"]
    assert (end["kind"], end["queue"], end["attempt"], end["outcome"]) == ("stumble", "score", 1, "failed")
    assert 0 < end["seconds"] < 60


def test_the_worker_itself_never_imports_torch() -> None:
    check = "import sys, app.queue.worker; print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", check], cwd=ROOT, capture_output=True, text=True, check=True)
    assert answer.stdout == "[]\n"


def test_a_child_follows_the_settings_for_device_and_threads_and_preloads_what_it_is_told(tmp_path: Path) -> None:
    database = Database.connect(f"sqlite:///{tmp_path / 'test.db'}")
    migrate(database)
    settings = quick_settings(str(database.engine.url), tmp_path, threads=1, device="cuda:3")
    asked = ["colorsys", "tests.app.nowhere", "tests.app.queue.test_worker:note_settings"]
    with working(settings, preload=asked):
        job = ended(database, add(database, "describe", module="colorsys"))
    database.dispose()
    assert job.result == {"is_loaded": True, "threads": 1, "device": "cuda:3"}
    assert (tmp_path / "prepared").read_text() == "cuda:3"


def note_settings(settings: Settings) -> None:
    (settings.data_dir / "prepared").write_text(settings.device)


def test_every_handler_of_the_tests_exists() -> None:
    from pkgutil import resolve_name

    assert {name: resolve_name(path).__name__ for name, path in HANDLERS.items()} == {name: name for name in HANDLERS}


def test_a_child_may_clear_up_after_its_job_has_finished(database: Database, database_url: str, tmp_path: Path) -> None:
    """The heart looks meanwhile, and finds that the job is running no more: that is no lost lease."""
    path = tmp_path / "cleared"
    with working(quick_settings(database_url, tmp_path)):
        first = ended(database, add(database, "linger_after_finishing", path=str(path), seconds=1.5))
        second = ended(database, add(database, "linger_after_finishing", path=str(path), seconds=0.0))
        assert first.result == second.result, "the child was killed and made anew"
        wait_for(lambda: len(lines(path)) == 2)
