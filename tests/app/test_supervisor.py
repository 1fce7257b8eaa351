"""The supervisor with real processes; its own runs as one too, for it owns the signals."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from app.db.engine import Database
from tests.app.working import ROOT, is_gone, lines, on_sqlite, quick_settings, wait_for

RUN = """
import json, logging, sys
from app.supervisor import Command, Supervisor
logging.basicConfig(level="INFO", format="%(message)s")
plan = json.loads(sys.argv[1])
commands = {name: Command(argv=argv, env={"NAME": name}) for name, argv in plan["commands"].items()}
sys.exit(Supervisor(commands, **plan["options"]).run())
"""

LIVE = """
import json, os, signal, sys, time
path, code, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
if code < 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    def bye(*_):
        with open(path, "a") as file: file.write(json.dumps({"bye": os.getpid()}) + "\\n")
        os._exit(0)
    signal.signal(signal.SIGTERM, bye)
line = {"name": os.environ["NAME"], "pid": os.getpid(), "at": time.monotonic()}
with open(path, "a") as file: file.write(json.dumps(line) + "\\n")
time.sleep(seconds)
sys.exit(abs(code))
"""


def live(note: Path, *, code: int = 0, seconds: float = 60) -> list[str]:
    """A command that notes its start, lives `seconds` and ends with `code`; a negative one ignores SIGTERM."""
    return [sys.executable, "-c", LIVE, str(note), str(code), str(seconds)]


@contextmanager
def supervised(commands: dict[str, list[str]], **options: Any) -> Iterator[subprocess.Popen[str]]:
    plan = json.dumps({"commands": commands, "options": options})
    process = subprocess.Popen([sys.executable, "-c", RUN, plan], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        below = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        for pid in [process.pid, *(child.pid for child in below)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def last_words(supervisor: subprocess.Popen[str]) -> str:
    supervisor.wait(60)
    assert supervisor.stderr is not None
    return supervisor.stderr.read()


def starts(note: Path) -> list[dict[str, Any]]:
    return [line for line in lines(note) if "name" in line]


def test_all_start_and_all_stop_cleanly_when_asked(tmp_path: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        note = tmp_path / number.name
        with supervised({"api": live(note), "worker": live(note)}) as supervisor:
            wait_for(lambda note=note: len(starts(note)) == 2)
            assert {line["name"] for line in starts(note)} == {"api", "worker"}
            supervisor.send_signal(number)
            assert supervisor.wait(60) == 0
        pids = {line["pid"] for line in starts(note)}
        assert all(is_gone(pid) for pid in pids)
        assert {line["bye"] for line in lines(note) if "bye" in line} == pids


def test_what_dies_is_started_again_later_and_later(tmp_path: Path) -> None:
    note, steady = tmp_path / "note", tmp_path / "steady"
    commands = {"worker": live(note, code=1, seconds=0), "api": live(steady)}
    with supervised(commands, first_pause=0.2, longest_pause=0.8) as supervisor:
        wait_for(lambda: len(starts(note)) == 5)
        supervisor.send_signal(signal.SIGTERM)
        assert supervisor.wait(60) == 0
    times = [line["at"] for line in starts(note)]
    gaps = [after - before for before, after in pairwise(times)]
    for gap, shortest in zip(gaps, [0.2, 0.4, 0.8, 0.8], strict=True):
        assert shortest <= gap < shortest + 1.0
    assert len(starts(steady)) == 1


def test_one_that_lived_long_enough_is_started_again_without_a_longer_pause(tmp_path: Path) -> None:
    note = tmp_path / "note"
    with supervised({"worker": live(note, code=1, seconds=0.6)}, first_pause=0.1, steady_seconds=0.5) as supervisor:
        wait_for(lambda: len(starts(note)) == 4)
        supervisor.send_signal(signal.SIGTERM)
        log = last_words(supervisor)
    assert "again in 0.1 s" in log
    assert "again in 0.2 s" not in log


def test_a_configuration_error_stops_everything_and_is_the_exit_code(tmp_path: Path) -> None:
    note = tmp_path / "note"
    with supervised({"api": live(note), "worker": live(note, code=78, seconds=0.5)}) as supervisor:
        assert supervisor.wait(60) == 78
        log = last_words(supervisor)
    assert "worker has a configuration error; stopping" in log
    assert len(starts(note)) == 2
    assert all(is_gone(line["pid"]) for line in starts(note))


def test_one_that_ignores_the_stop_is_killed(tmp_path: Path) -> None:
    note = tmp_path / "note"
    with supervised({"api": live(note, code=-1)}, stop_seconds=0.5) as supervisor:
        pid = wait_for(lambda: starts(note))[0]["pid"]
        supervisor.send_signal(signal.SIGTERM)
        assert supervisor.wait(60) == 0
        assert is_gone(pid)


def test_a_second_ctrl_c_does_not_wait(tmp_path: Path) -> None:
    note = tmp_path / "note"
    with supervised({"api": live(note, code=-1)}, stop_seconds=60) as supervisor:
        wait_for(lambda: starts(note))
        supervisor.send_signal(signal.SIGINT)
        time.sleep(0.3)
        supervisor.send_signal(signal.SIGINT)
        assert supervisor.wait(60) == 0


@on_sqlite
def test_a_killed_supervisor_leaves_nobody_behind_not_even_the_workers_child(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    settings = quick_settings(database_url, tmp_path)
    worker = [sys.executable, "-m", "tests.app.working", settings.model_dump_json()]
    with supervised({"api": live(note, code=-1), "worker": worker}) as supervisor:
        wait_for(lambda: starts(note))
        tree = wait_for(lambda: whole(psutil.Process(supervisor.pid)))
        supervisor.kill()
        wait_for(lambda: all(is_gone(pid) for pid in tree))


def whole(supervisor: psutil.Process) -> list[int]:
    """Pids below the supervisor once the worker has its child."""
    pids = [process.pid for process in supervisor.children(recursive=True)]
    return pids if len(pids) == 3 else []
