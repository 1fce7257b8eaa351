"""Moves along the edge of what constraints allow, where a gradient only leads out.

A constraint is a yes or no: it has no gradient to project on. A move of one variable that breaks a constraint is made
up for by another variable, as little as restores it; whatever the constraint's form, that leads along its edge.
"""

import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from bensemble_core.design.deadline import check

N_HALVINGS = 45
FIRST, LAST = 0.1, 1e-5  # steps, of the range of a variable
N_TURNS = 100
MOST = 64  # ways in which one move is made up for

Admits = Callable[[Tensor], Tensor]  # points of the unit cube [n, D] -> [n]


def farthest(start: Tensor, end: Tensor, admits: Admits) -> Tensor:
    """As far from each `start` [n, D], which is allowed, towards its `end` as is allowed: [n, D]."""
    reached = torch.where(admits(end)[:, None], 1.0, 0.0).to(torch.float64)
    low, high = reached, torch.ones_like(reached)
    for _ in range(N_HALVINGS):
        middle = 0.5 * (low + high)
        good = admits(start + middle * (end - start))[:, None]
        low, high = torch.where(good, middle, low), torch.where(good, high, middle)
    return torch.where(reached > 0, end, start + low * (end - start))


def slide(
    start: Tensor,
    value: float,
    moving: Sequence[int],
    constraints: Sequence[Admits],
    score: Callable[[Tensor], Tensor],
) -> Tensor:
    """The best point that moves from an allowed `start` [D] of the unit cube lead to, whose score is `value`: [D].

    Every variable is tried a step up and a step down, in its turn made up for by the others; the best is taken, and
    where none is better the step is halved.
    """
    at, step = start, FIRST
    for _ in range(N_TURNS):
        check()
        tried = _around(at, step, moving, constraints)
        scores = score(tried) if len(tried) else torch.empty(0, dtype=torch.float64)
        best = int(scores.nan_to_num(nan=-torch.inf).argmax()) if len(tried) else 0
        if len(tried) and float(scores[best]) > value:
            at, value = tried[best], float(scores[best])
        elif (step := step / 2) < LAST:
            break
    return at


def _around(at: Tensor, step: float, moving: Sequence[int], constraints: Sequence[Admits]) -> Tensor:
    """Allowed points one move away: [n, D]."""

    def admits(points: Tensor) -> Tensor:
        good = torch.ones(len(points), dtype=torch.bool)
        for constraint in constraints:
            good = good & constraint(points)
        return good

    found = []
    for i, sign in itertools.product(moving, (1, -1)):
        moved = at.clone()
        moved[i] = (moved[i] + sign * step).clamp(0, 1)
        if bool(admits(moved[None])[0]):
            found.append(moved)
            continue
        found.append(farthest(at[None], moved[None], admits)[0])
        broken = [constraint for constraint in constraints if not bool(constraint(moved[None])[0])]
        others = [(j, end) for j in moving if j != i for end in (0.0, 1.0)]
        ways = itertools.islice(itertools.product(others, repeat=len(broken)), MOST)
        found += [made for way in ways if (made := _made_up(moved, broken, way)) is not None]
    points = torch.stack(found)
    return points[admits(points) & (points != at).any(1)]


def _made_up(moved: Tensor, broken: Sequence[Admits], way: Sequence[tuple[int, float]]) -> Tensor | None:
    """The point with one broken constraint after the other restored by its variable; None where that does not do."""
    point = moved
    for constraint, (j, end) in zip(broken, way, strict=True):
        if bool(constraint(point[None])[0]):
            continue
        far = point.clone()
        far[j] = end
        if not bool(constraint(far[None])[0]):
            return None
        point = farthest(far[None], point[None], constraint)[0]
    return point
