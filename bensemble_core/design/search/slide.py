"""Moves along constraints without gradients, where those have led no further: at kinks of a constraint or the model.

Every variable is tried a step up and a step down. A move that breaks a constraint ends at its edge, or is made up for
by the shortest way back, or by as little of another variable as restores it; whatever the constraint's form, that leads
along its edge.
"""

import itertools
from collections.abc import Callable, Iterator

import numpy as np

from bensemble_core.design.belief.points import Array
from bensemble_core.design.deadline import check
from bensemble_core.design.search.climb import Edges

N_HALVINGS = 45
FIRST, LAST = 0.05, 1e-5  # steps, of the range of a variable
N_TURNS = 60
REACHES = (2.0, 8.0)  # steps of another variable, in which to look for what is allowed


def farthest(start: Array, end: Array, admits: Callable[[Array], bool]) -> Array:
    """As far from `start` [D], which is allowed, towards `end` as is allowed: [D]."""
    if admits(end):
        return end
    low, high = 0.0, 1.0
    for _ in range(N_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if admits(start + middle * (end - start)) else (low, middle)
    return start + low * (end - start)


def slide(start: Array, value: float, edges: Edges, score: Callable[[Array], Array]) -> tuple[Array, float]:
    """The best point that moves from an allowed `start` [D] of the unit cube lead to, whose score is `value`: [D], and
    its score. The best move is taken, and where none is better the step is halved."""
    at, step = start, FIRST
    for _ in range(N_TURNS):
        check()
        tried = [point for point in _around(at, step, edges) if (point != at).any()]
        scores = score(np.stack(tried)) if tried else np.array([-np.inf])
        best = int(scores.argmax())
        if float(scores[best]) > value:
            at, value = tried[best], float(scores[best])
        elif (step := step / 2) < LAST:
            break
    return at, value


def _around(at: Array, step: float, edges: Edges) -> Iterator[Array]:
    """Allowed points one move away, each [D]."""
    for i, sign in itertools.product(range(len(at)), (1, -1)):
        moved = at.copy()
        moved[i] = min(max(moved[i] + sign * step, 0.0), 1.0)
        if edges.admits(moved):
            yield moved
            continue
        yield farthest(at, moved, edges.admits)
        if (back := edges.restored(moved)) is not None:
            yield back
        for j, away, reach in itertools.product(range(len(at)), (1, -1), REACHES):
            far = moved.copy()
            far[j] = min(max(far[j] + away * reach * step, 0.0), 1.0)
            if j != i and edges.admits(far):
                yield farthest(far, moved, edges.admits)
