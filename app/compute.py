"""Where a request may compute: a few threads of its own, so that neither the event loop nor other requests wait, and
the experiments that were asked about last, with what they remember and what was too much for a request."""

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from app.bounded_cache import BoundedCache

if TYPE_CHECKING:
    from bensemble_core.design import Experiment

T = TypeVar("T")
EXPERIMENTS = 256  # kept read; what they remember is bounded by bytes, for all of them together
FLOAT_BYTES = 8
CURVES = 20_000  # estimates kept of EIG curves, about 20 MB
EXPENSIVE_SECONDS = 600.0  # how long it is remembered that something was too much for a request


class Compute:
    """torch is loaded by the first experiment and not before: a worker's parent has this too, and never computes."""

    def __init__(self, *, threads: int, cache_bytes: int) -> None:
        self.threads = threads
        self.cache_bytes = cache_bytes
        self._experiments: OrderedDict[Hashable, Experiment] = OrderedDict()
        self._too_expensive: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()  # least work, until when
        self.curves: BoundedCache[Any] = BoundedCache(CURVES)
        """EIG of a session's designs, by session, revision and what was asked."""
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._memory: Any = None

    async def run(self, work: Callable[[], T]) -> T:
        """In one of the threads, as soon as one is free."""
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self.threads, "compute", initializer=_one_core_each)
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()

    def experiment(self, spec_hash: str, seed: int | None, load: Callable[[], Mapping[str, Any]]) -> "Experiment":
        """A stored spec, read; `load` is only asked for it if it is not at hand. A seed replaces the spec's own."""
        key = (spec_hash, seed)
        with self._lock:
            if key in self._experiments:
                self._experiments.move_to_end(key)
                return self._experiments[key]
        made = self._made(load(), seed)
        with self._lock:
            self._experiments[key] = made
            while len(self._experiments) > EXPERIMENTS:
                self._experiments.popitem(last=False)
        return made

    def remember_too_expensive(self, what: Hashable, work: float) -> None:
        """So much work of a kind took too long: for a while, nobody needs to find that out again."""
        with self._lock:
            least, _ = self._too_expensive.pop(what, (work, 0.0))
            self._too_expensive[what] = (min(least, work), time.monotonic() + EXPENSIVE_SECONDS)
            while len(self._too_expensive) > EXPERIMENTS:
                self._too_expensive.popitem(last=False)

    def is_too_expensive(self, what: Hashable, work: float) -> bool:
        """Whether as much work as this, or less, took too long lately."""
        with self._lock:
            least, until = self._too_expensive.get(what, (0.0, 0.0))
            if time.monotonic() >= until:
                self._too_expensive.pop(what, None)
                return False
            return work >= least

    def _made(self, spec: Mapping[str, Any], seed: int | None) -> "Experiment":
        from bensemble_core.design import Experiment, read_spec
        from bensemble_core.design.belief.memory import Memory, Share

        if seed is not None:
            spec = {**spec, "select": {**spec.get("select", {}), "seed": seed}}
        with self._lock:
            if self._memory is None:
                self._memory = Memory(self.cache_bytes // FLOAT_BYTES)
        return Experiment(spec=read_spec(spec), memory=Share(self._memory))


def _one_core_each() -> None:
    import torch

    torch.set_num_threads(1)
