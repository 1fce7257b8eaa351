"""Ours beside others by turns, as ratios in a table; and peers, each in an environment and a process of its own."""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SETTLE_SECONDS = 0.3  # threads of the one before spin for a while, and its memory goes back
ENVIRONMENTS = ROOT / "build" / "bench"


@dataclass(frozen=True, kw_only=True)
class Line:
    what: str
    ours: str
    reference: str = ""
    ratios: Sequence[float] = ()
    aim: float | None = None
    less_is_better: bool = False


def by_turns(n_turns: int, *measures: Callable[[], float], n_before: int = 1) -> list[list[float]]:
    """What each measure said, in the order given; the turns before warm up and are not counted."""

    def settled(measure: Callable[[], float]) -> float:
        time.sleep(SETTLE_SECONDS)
        return measure()

    turns = [[settled(measure) for measure in measures] for _ in range(n_before + n_turns)]
    return [list(column) for column in zip(*turns[n_before:], strict=True)]


def as_table(lines: Sequence[Line], *, ours: str) -> str:
    cells = [("", ours, "reference", "ratio", "quartiles", "aim")]
    for line in lines:
        ratio, spread, aim = "", "", ""
        if line.ratios:
            ratio, spread = f"{statistics.median(line.ratios):.2f}", ""
        if len(line.ratios) > 1:
            low, _, high = statistics.quantiles(line.ratios, n=4, method="inclusive")
            spread = f"{low:.2f}-{high:.2f}"
        if line.aim is not None:
            aim = f"{'<=' if line.less_is_better else '>='} {line.aim}"
        cells.append((line.what, line.ours, line.reference, ratio, spread, aim))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    rows = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join([rows[0], "-" * len(rows[0]), *rows[1:]])


class NoPeer(Exception):
    """Why a peer can't be measured."""


class Peer:
    """A process that is asked a question, a line of JSON, and answers with a number of seconds."""

    def __init__(self, started: "subprocess.Popen[str]") -> None:
        self._process = started

    def ask(self, **question: Any) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise NoPeer(f"it ended with {self._process.wait()}")
        return float(answer)


@contextmanager
def running_peer(script: str, name: str, *requirements: str) -> Iterator[Peer]:
    """`benchmarks/SCRIPT NAME` in an environment of its own under build/bench, or in ours where nothing is required."""
    python = environment(name, requirements) if requirements else Path(sys.executable)
    command = [str(python), str(ROOT / "benchmarks" / script), name]
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL  # progress bars
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nowhere, text=True) as started:
        try:
            yield Peer(started)
        finally:
            started.kill()


def environment(name: str, requirements: Sequence[str]) -> Path:
    folder = ENVIRONMENTS / name
    python, done = folder / "bin" / "python", folder / ".installed"
    if not done.exists():
        print(f"installing {', '.join(requirements)} into build/bench/{name}", file=sys.stderr)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements]
        for command in ([sys.executable, "-m", "venv", str(folder)], install):
            if subprocess.run(command, stderr=subprocess.DEVNULL).returncode:
                raise NoPeer("it can't be installed here")
        done.touch()
    return python


def answer_questions(measure: Callable[..., float]) -> None:
    """The peer's side: until the asker is gone."""
    for line in sys.stdin:
        print(measure(**json.loads(line)), flush=True)
