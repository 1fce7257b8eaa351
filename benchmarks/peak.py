"""Peak memory of a piece of work, by Linux's own high-water mark, set back before the work starts."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def with_peak(work: Callable[[], T]) -> tuple[T, float]:
    """What the work gives, and the MB that the process held at most beyond what it held before."""
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM := VmRSS
    before = _kilobytes("VmRSS")
    result = work()
    return result, (_kilobytes("VmHWM") - before) / 1024


def _kilobytes(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    if found is None:
        raise RuntimeError(f"/proc/self/status has no {name}; peak memory is measured on Linux alone")
    return int(found[1])
