"""Which tests are slow: `make slow-list` measures them, `make test-fast` leaves them out.

`slow.txt` names functions, without parameters. It says nothing but what the inner loop can do without: where another
machine is slower or faster, the names stay as they are.
"""

from collections import defaultdict
from pathlib import Path

import pytest

LIST = Path(__file__).with_name("slow.txt")
SLOW_SECONDS = 0.25  # of one case
SLOW_IN_ALL = 1.0  # of all cases of a function
ALWAYS = ("tests/crash/", "tests/page/")  # real processes


def function_of(node_id: str) -> str:
    return node_id.split("[", 1)[0]


def mark_slow(items: list[pytest.Item]) -> None:
    """A test on PostgreSQL is slow by itself: its twin on SQLite stays in the inner loop."""
    listed = set(LIST.read_text().split()) if LIST.exists() else set()
    for item in items:
        case = getattr(item, "callspec", None)
        on_server = case is not None and case.params.get("database_url") == "postgresql"
        if on_server or function_of(item.nodeid) in listed or item.nodeid.startswith(ALWAYS):
            item.add_marker(pytest.mark.slow)


class SlowList:
    """A plugin that writes the list anew from what a run took."""

    def __init__(self) -> None:
        self._cases: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._cases[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        functions: dict[str, list[float]] = defaultdict(list)
        for node_id, seconds in self._cases.items():
            if "postgresql" not in node_id and not node_id.startswith(ALWAYS):
                functions[function_of(node_id)].append(seconds)
        slow = [name for name, taken in functions.items() if max(taken) > SLOW_SECONDS or sum(taken) > SLOW_IN_ALL]
        LIST.write_text("".join(f"{name}\n" for name in sorted(slow)))
