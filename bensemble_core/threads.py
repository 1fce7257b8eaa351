"""Small operations on one thread, and many pieces of work side by side on a thread each.

Torch's own threads wait for each other at the end of every operation: in small ones longer than they work, and on a
busy machine a hundred times as long. Threads that share nothing never wait for each other.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

T = TypeVar("T")
R = TypeVar("R")

_AHEAD = 2  # pieces for each thread that may be running, or done and not yet taken


@contextmanager
def one_thread(is_wanted: bool = True) -> Iterator[None]:
    """Within the block torch uses the calling thread alone, where that is wanted."""
    before = torch.get_num_threads()
    if not is_wanted or before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def in_order(work: Callable[[T], R], pieces: Iterable[T], n_threads: int) -> Iterator[R]:
    """work(piece) for every piece, in their order; with one thread, here."""
    if n_threads <= 1:
        yield from map(work, pieces)
        return
    before = torch.get_num_threads()
    under_way: deque[Future[R]] = deque()
    with ThreadPoolExecutor(n_threads, "pieces", initializer=torch.set_num_threads, initargs=(1,)) as threads:
        try:
            for piece in pieces:
                under_way.append(threads.submit(work, piece))
                if len(under_way) >= _AHEAD * n_threads:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:  # also where the caller has had enough, or a piece failed
            for future in under_way:
                future.cancel()
            torch.set_num_threads(before)  # torch also keeps the number for threads to come
