"""`bensemble up` as real processes, for the tests that need the whole service."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.app.working import is_gone, wait_for

ROOT = Path(__file__).parents[2]


def clean_environment(data_dir: Path, **changes: str) -> dict[str, str]:
    """None of the developer's own settings; one core each, for the tests share theirs."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("BENSEMBLE_", "AWS_"))}
    ours = {"BENSEMBLE_DATA_DIR": str(data_dir), "BENSEMBLE_PORT": "0", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return {**kept, **ours, **changes}


class Up:
    """A command that runs, what it printed, and all its processes."""

    def __init__(self, folder: Path, env: dict[str, str], command: str = "up") -> None:
        self.out, self.log = folder / "stdout", folder / "stderr"
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell's background job, and it is inherited
            signal.signal(signal.SIGINT, signal.default_int_handler)
        with self.out.open("wb") as out, self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-u", "-m", "app.cli", command], env=env, cwd=folder, stdout=out, stderr=log
            )
        self._pids: set[int] = {self.process.pid}

    @property
    def said(self) -> str:
        return self.out.read_text()

    @property
    def url(self) -> str:
        """Once it answers."""

        def look() -> str:
            assert self.process.poll() is None, self.log.read_text()
            found = re.search(r"is up:\s+(http\S+)", self.said)
            return found[1] if found else ""

        return wait_for(look, 60)

    @property
    def key(self) -> str:
        found = re.search(r"\b(bk_\S+)", self.said)
        return found[1] if found else ""

    def pids(self) -> set[int]:
        """All that were ever seen."""
        if self.process.poll() is None:
            self._pids |= {child.pid for child in psutil.Process(self.process.pid).children(recursive=True)}
        return self._pids

    def stop(self, number: int = signal.SIGINT, seconds: float = 60.0) -> int:
        self.pids()
        self.process.send_signal(number)
        return self.process.wait(seconds)


@contextmanager
def service_up(folder: Path, **changes: str) -> Iterator[Up]:
    """Stopped at the end of the block, killed if it does not listen; what it prints is under `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    up = Up(folder, clean_environment(folder / "data", **changes))
    try:
        yield up
    finally:
        pids = up.pids()
        try:
            if up.process.poll() is None:
                up.stop()
        except subprocess.TimeoutExpired:
            up.process.kill()
            up.process.wait()
        wait_for(lambda: all(is_gone(pid) for pid in pids))
