"""A limit on the time that one computation may take, looked at wherever a block of work begins.

How much there is to do is not known beforehand: a sharp likelihood asks for ever finer grids. Who must answer soon
computes under a limit, and is told when it is reached; nothing that was half done is kept, so that the same question
without a limit has the same answer.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from bensemble_core.errors import BensembleError

_ends: ContextVar[tuple[float, float] | None] = ContextVar("design_deadline", default=None)


class TooMuchWork(BensembleError):
    """The limit was reached before the answer; `seconds` is what it was."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)  # what a copy is made from
        self.seconds = seconds

    def __str__(self) -> str:
        return f"this takes more than {self.seconds:g} s of computing; allow more, or compute it in the background"


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """What is computed inside raises TooMuchWork after about so many seconds. Of limits inside each other the nearest
    counts.

    It is this thread's time at work that is counted: others that are busy meanwhile make nobody's answer a refusal.
    """
    end = time.thread_time() + seconds
    outer = _ends.get()
    token = _ends.set((end, seconds) if outer is None or end < outer[0] else outer)
    try:
        yield
    finally:
        _ends.reset(token)


def check() -> None:
    """Raise if the limit is reached. Without a limit this costs next to nothing."""
    ends = _ends.get()
    if ends is not None and time.thread_time() > ends[0]:
        raise TooMuchWork(ends[1])
