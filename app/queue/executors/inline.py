"""One task after another in this process, with all of torch's threads."""

from collections.abc import Sequence
from pkgutil import resolve_name

from app.queue.executors import RowsDone, Task


class Inline:
    def run(self, function: str, tasks: Sequence[Task], report: RowsDone) -> None:
        work, done = resolve_name(function), 0
        for task in tasks:

            def tell(n_rows: int, before: int = done) -> None:
                report(before + n_rows)

            work(task, tell)
            done += task["n_rows"]
        report(done)

    def prepare(self, function: str) -> None:
        resolve_name(function)({"n_rows": 0}, lambda n_rows: None)

    def close(self) -> None:
        pass
