"""How the tasks of one job run: one after another here, on processes of this machine, or on a Ray cluster.

A task is plain JSON and is run by a function that is named by its path, so that any process can run it. What it makes
goes to storage; all that comes back is how far it is. From outside use `executor_of`, and `inline.Inline` for tasks
that must run here; each executor has a file, `worker_process` is the other end of `processes`.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from app.settings import Settings

Task = dict[str, Any]  # `n_rows` says how large it is
RowsDone = Callable[[int], None]  # rows done so far, of all tasks; may raise, which ends everything


class Executor(Protocol):
    def run(self, function: str, tasks: Sequence[Task], report: RowsDone) -> None:
        """Each task once, in any order. `report` is called at least once a second; what it raises stops the work."""
        ...

    def prepare(self, function: str) -> None:
        """Start what `run` would start, and run this function there once, without waiting for it."""
        ...

    def close(self) -> None:
        """Let go of what was kept for the next run."""
        ...


class TaskFailed(Exception):
    """A task raised in another process; the text says what. `is_final`: trying again would end the same way."""

    def __init__(self, text: str, *, is_final: bool = False) -> None:
        super().__init__(text)
        self.is_final = is_final


_kept: dict[tuple[str, int, str], Executor] = {}


def executor_of(settings: Settings) -> Executor:
    """Kept between the jobs of a process, and so are the processes it started; one at a time."""
    wanted = (settings.executor, settings.processes, settings.ray_address)
    if wanted not in _kept:
        close_executor()
        _kept[wanted] = _opened(settings)
    return _kept[wanted]


def close_executor() -> None:
    while _kept:
        _kept.popitem()[1].close()


def _opened(settings: Settings) -> Executor:
    match settings.executor:
        case "process":
            from app.queue.executors.processes import Processes

            return Processes(settings.processes)
        case "ray":
            from app.queue.executors.on_ray import OnRay

            return OnRay(settings.ray_address, settings.processes)
        case _:
            from app.queue.executors.inline import Inline

            return Inline()


def describe(error: Exception) -> str:
    return str(error) if is_final(error) else f"{type(error).__name__}: {error}"


def is_final(error: Exception) -> bool:
    """An error of the core's own speaks of the data or the options, which stay as they are."""
    return any(kind.__name__ == "BensembleError" for kind in type(error).__mro__)
