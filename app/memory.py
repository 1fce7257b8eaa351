"""What the API does with memory that it needs no more."""

import ctypes
from collections.abc import Callable
from functools import cache


def release_memory() -> None:
    """Give freed memory back to the system: glibc keeps it, for a next large body that may never come. Other C
    libraries give it back by themselves."""
    if (trim := _trim()) is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], int] | None:
    found: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return found
