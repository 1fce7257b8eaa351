"""Tasks on actors of a Ray cluster, which is the user's: we connect to it, and give its processors back after each job.

The nodes need this package installed and the storage within reach (an S3 bucket, or a folder they all mount)."""

from collections import deque
from collections.abc import Sequence
from typing import Any

from app.queue.executors import RowsDone, Task, TaskFailed

LOOK_SECONDS = 0.25


class OnRay:
    def __init__(self, address: str, n_actors: int = 0) -> None:
        self._address = address
        self._n = n_actors

    def run(self, function: str, tasks: Sequence[Task], report: RowsDone) -> None:
        import ray as untyped_ray

        ray: Any = untyped_ray
        if not ray.is_initialized():
            ray.init(address=self._address, log_to_driver=False, configure_logging=False, namespace="bensemble")
        n_actors = self._n or int(ray.cluster_resources().get("CPU", 1))
        actor = ray.remote(num_cpus=1)(Actor)
        idle = deque(actor.remote() for _ in range(min(n_actors, len(tasks))))
        actors, waiting, done = list(idle), deque(tasks), 0
        running: dict[Any, tuple[Any, Task]] = {}
        try:
            while waiting or running:
                while waiting and idle:
                    hand, task = idle.popleft(), waiting.popleft()
                    running[hand.run.remote(function, task)] = (hand, task)
                ended, _ = ray.wait(list(running), timeout=LOOK_SECONDS)
                for reference in ended:
                    hand, task = running.pop(reference)
                    _check(ray.get(reference))
                    done += task["n_rows"]
                    idle.append(hand)
                report(done)
        except ray.exceptions.RayError as error:
            raise TaskFailed(f"the Ray cluster failed: {error}") from error
        finally:
            for hand in actors:
                ray.kill(hand)

    def prepare(self, function: str) -> None:
        pass  # the cluster's processors are taken for as long as there is work

    def close(self) -> None:
        pass  # actors are given back after each run, and the connection is the process's


def _check(failure: tuple[str, bool] | None) -> None:
    if failure is not None:
        raise TaskFailed(failure[0], is_final=failure[1])


class Actor:
    """Runs in the cluster, one thread each, as a process of the local pool does: so the bits are the same."""

    def __init__(self) -> None:
        import torch

        torch.set_num_threads(1)

    def run(self, function: str, task: Task) -> tuple[str, bool] | None:
        """What went wrong, as text: an exception of ours could not be read by a driver of another version."""
        from pkgutil import resolve_name

        from app.queue.executors import describe, is_final

        try:
            resolve_name(function)(task, lambda n_rows: None)
        except Exception as error:
            return describe(error), is_final(error)
        return None
