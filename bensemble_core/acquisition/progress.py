"""How a selection tells how far it is, and can be stopped."""

import time
from collections.abc import Callable, Sized
from threading import Lock
from typing import TypeAlias

from bensemble_core.types import Progress

Tick: TypeAlias = Callable[[], None]  # called at every step of the work, however small

EVERY = 0.1  # seconds between two reports, at least


def silent() -> None:
    """For work that nobody follows."""


def ticking(report: Progress | None, picked: Sized, k: int) -> Tick:
    """Reports how many are picked by then, no more often than `EVERY` seconds, from whichever thread it is called."""
    if report is None:
        return silent
    last, turn = time.monotonic(), Lock()

    def tick() -> None:
        nonlocal last
        with turn:
            if time.monotonic() - last >= EVERY:
                report(len(picked), k, f"choosing rows: {len(picked)} of {k}")
                last = time.monotonic()

    return tick
