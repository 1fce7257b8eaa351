"""What is kept between rounds: grids, log-likelihoods of observations on them, and tables over designs.

Nothing here changes an answer; it only saves computing it again. All entries together hold at most `limit` numbers,
and the least recently used go first.
"""

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from bensemble_core.design.belief.points import Array, Points
from bensemble_core.design.deadline import check
from bensemble_core.design.spec.model import Event, Model, readable
from bensemble_core.errors import InvalidData, NotFinite

T = TypeVar("T")
LIMIT = 40_000_000  # float64 numbers: 320 MB
DROPPABLE = 1e-9  # prior mass on which a model need not be defined


class Memory:
    """A least-recently-used cache; safe to share between threads, which may at worst compute the same thing twice."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def find(self, key: Hashable) -> Any | None:
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                return None
            self._entries.move_to_end(key)
            return found[0]

    def keep(self, key: Hashable, value: T, size: int) -> T:
        if size > self.limit:
            return value
        with self._lock:
            if key in self._entries:
                self._size -= self._entries.pop(key)[1]
            self._entries[key] = (value, size)
            self._size += size
            while self._size > self.limit:
                _, (_, freed) = self._entries.popitem(last=False)
                self._size -= freed
        return value

    def get(self, key: Hashable, make: Callable[[], T], size: Callable[[T], int]) -> T:
        found: T | None = self.find(key)
        if found is not None:
            return found
        check()
        made = make()
        return self.keep(key, made, size(made))

    def log_likelihood(self, model: Model, points: Points, events: Sequence[Event]) -> Array:
        """Σ log p(y_n | θ, ξ_n) at the points, summed from the first observation on: [P].

        The sum is kept, and found again with one observation more: that costs one column.
        """
        events = tuple(events)

        def total() -> Array:
            before: Array | None = self.find(("sum", points.key, events[:-1])) if events else None
            if before is not None:
                return before + self.column(model, points, events[-1])
            return sum((self.column(model, points, event) for event in events), np.zeros(points.n))

        return self.get(("sum", points.key, events), total, len)

    def column(self, model: Model, points: Points, event: Event) -> Array:
        """log p(y | θ, ξ) of one observation; −inf on a sliver of the prior where the model is not defined: [P]."""
        return self.get(
            ("column", points.key, event),
            lambda: _defined(model, model.log_likelihood(points.values, event).numpy(), points, event),
            len,
        )


class Share(Memory):
    """An experiment's part of a whole that it shares with others: the least recently used entry of any goes first.

    Each object has a part of its own, also of the same experiment read twice: keys may count what one object has seen.
    """

    def __init__(self, whole: Memory) -> None:
        super().__init__(whole.limit)
        self._owner, self._whole = object(), whole

    def find(self, key: Hashable) -> Any | None:
        return self._whole.find((self._owner, key))

    def keep(self, key: Hashable, value: T, size: int) -> T:
        return self._whole.keep((self._owner, key), value, size)


def _defined(model: Model, column: Array, points: Points, event: Event) -> Array:
    top = float(column.max())  # NaN if any is
    if math.isnan(top):
        undefined = np.isnan(column)
        refuse_unless_rare(model, torch.from_numpy(undefined), points, f"the design {model.space.decode(event[0])}")
        column = np.where(undefined, -math.inf, column)
        top = float(column.max())
    if top == -math.inf:
        design = model.space.decode(event[0])
        outcome = {v.name: v.decode(y) for v, y in zip(model.outcomes, event[1], strict=True)}
        raise InvalidData(
            f"the model gives the outcome {outcome} at {design} no chance; check the outcome or the model"
        )
    return column


def refuse_unless_rare(model: Model, undefined: Tensor, points: Points, where: str) -> None:
    """Raise unless the points [P] where the model is not defined have next to no prior mass."""
    mass = float(points.log_prior[undefined].exp().sum())
    if mass > DROPPABLE:
        worst = int(torch.where(undefined, points.log_prior, -torch.inf).argmax())
        point = readable({name: float(points.values[name][worst]) for name in model.prior.names})
        raise NotFinite(
            f"the model is not defined at {point} for {where}, nor on {mass:.2g} of its prior; clip() the argument of "
            "the outcome, or take a prior that ends where the model does"
        )
