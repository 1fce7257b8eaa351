"""One memory for all experiments: the least recently used entry of any goes first."""

from collections.abc import Hashable
from typing import Any, TypeVar

from bensemble_core.design.belief.memory import Memory

T = TypeVar("T")


class Share(Memory):
    """An experiment's part of a whole that it shares with others. Each object has a part of its own, also of the same
    experiment read twice: keys may count what one object has seen."""

    def __init__(self, whole: Memory) -> None:
        super().__init__(whole.limit)
        self._owner, self._whole = object(), whole

    def find(self, key: Hashable) -> Any | None:
        return self._whole.find((self._owner, key))

    def keep(self, key: Hashable, value: T, size: int) -> T:
        return self._whole.keep((self._owner, key), value, size)
