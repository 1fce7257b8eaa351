"""How a selection reports its progress, and can be stopped."""

import time
from collections.abc import Callable, Sized
from threading import Lock
from typing import TypeAlias

from bensemble_core.types import Progress

Tick: TypeAlias = Callable[[], None]  # called at every step of the work, however small

REPORT_SECONDS = 0.1  # shortest time between two reports


def silent() -> None:
    """For work without progress reports."""


def ticking(report: Progress | None, picked: Sized, k: int) -> Tick:
    """Reports how many are picked by then, at most every `REPORT_SECONDS`, from whichever thread it is called."""
    if report is None:
        return silent
    last, lock = time.monotonic(), Lock()

    def tick() -> None:
        nonlocal last
        with lock:
            if time.monotonic() - last >= REPORT_SECONDS:
                report(len(picked), k, f"choosing rows: {len(picked)} of {k}")
                last = time.monotonic()

    return tick
