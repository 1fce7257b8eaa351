"""Answers that were computed once and are asked for again, as many as fit; the least recently used go first."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class BoundedCache(Generic[V]):
    """Of values whose sizes add up to no more than `capacity`; one that is larger by itself is not kept."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._values: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> V | None:
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def put(self, key: Hashable, value: V, size: int) -> None:
        with self._lock:
            self._size -= self._values.pop(key, (None, 0))[1]
            self._values[key] = (value, size)
            self._size += size
            while self._size > self.capacity:
                self._size -= self._values.popitem(last=False)[1][1]

    def get_or_make(self, key: Hashable, make: Callable[[], V], size: Callable[[V], int]) -> V:
        """Two that ask at once may both make it: neither waits for the other."""
        found = self.get(key)
        if found is None:
            found = make()
            self.put(key, found, size(found))
        return found
