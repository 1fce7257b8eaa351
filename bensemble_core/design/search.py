"""The best of designs that cannot be listed: Sobol starts and corners in one batch, the best of them climbed together
by gradient, and where constraints are in the way along their edge.

Integers too many to list are relaxed to real numbers for the climb, and their whole neighbours compared exactly.
"""

import itertools
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from bensemble_core.design.batch import Batch, conditional, differentiable, useful
from bensemble_core.design.expressions import Expression
from bensemble_core.design.gaussian import GaussianBelief
from bensemble_core.design.memory import Memory
from bensemble_core.design.model import Model
from bensemble_core.design.shelf import method_of
from bensemble_core.design.slide import farthest, slide
from bensemble_core.design.spaces import Space, sobol, unique_rows
from bensemble_core.errors import InvalidData

N_STARTS = 64  # for each design variable, up to four
N_TRIES = 2**16  # where hardly any design satisfies the constraints
N_CLIMBERS = 4
N_STEPS = 20
STEP = 1e-4  # of differences, in the unit cube
N_AROUND = 64  # points around the best where there is no gradient


def n_starts(space: Space) -> int:
    return N_STARTS * min(4, len(space.variables))


def starts(space: Space, seed: int, fixed: Mapping[str, float]) -> Tensor:
    """Sobol designs that satisfy the constraints, the same in every round: [J, D]."""
    found: list[Tensor] = []
    n, wanted = 0, n_starts(space)
    for turn in range(6):
        rows = space.from_unit(sobol(wanted * 2**turn, len(space.variables), seed + turn), fixed)
        rows = rows[space.admits(rows)]
        found.append(rows[: wanted - n])
        n += len(found[-1])
        if n == wanted:
            break
    if not n:  # few satisfy them: look harder
        rows = with_corners(space, space.from_unit(sobol(N_TRIES, len(space.variables), seed), fixed), fixed)
        found = [rows[space.admits(rows)][:wanted]]
    if not len(torch.cat(found)):
        raise InvalidData(
            "no design was found that satisfies the constraints; narrow low and high around those that do, or fix less"
        )
    return unique_rows(torch.cat(found))


def with_corners(space: Space, rows: Tensor, fixed: Mapping[str, float]) -> Tensor:
    """The designs [J, D], and those corners of the space that satisfy the constraints: optima like to lie there."""
    corners = space.corners()
    for i, variable in enumerate(space.variables):
        if variable.name in fixed:
            corners[:, i] = fixed[variable.name]
    return unique_rows(torch.cat([rows, corners[space.admits(corners)]]))


def refine(
    model: Model, batch: Batch, rows: Tensor, scores: Tensor, memory: Memory, *, fixed: Mapping[str, float], seed: int
) -> Tensor:
    """Designs found by climbing from the best of `rows` [J, D], which have these scores [J]: [n, D]."""
    best = rows[scores.argsort(descending=True, stable=True)[:N_CLIMBERS]]
    moving = _moving(model.space, fixed)
    if not moving:
        return best
    if _has_gradient(model, batch, best, memory):
        found = _climb(model, batch, best, moving)
    else:
        found = _look_around(model, batch, best, moving, memory, seed)
    return unique_rows(torch.cat([_whole(model.space, found, fixed), best]))


def along_constraints(
    model: Model, batch: Batch, row: Tensor, score: float, memory: Memory, *, fixed: Mapping[str, float], seed: int
) -> Tensor:
    """Where moves along the constraints lead from a design [D] of this score: [n, D]."""
    space = model.space
    moving = _moving(space, fixed)
    if not space.constraints or not moving or not _has_gradient(model, batch, row[None], memory):
        return row[None]

    def designs(points: Tensor) -> Tensor:
        return _relaxed(space, row.expand(len(points), -1), points, moving)

    def worth(points: Tensor) -> Tensor:
        rows = designs(points)
        found = conditional(model, batch, rows, memory, seed=seed)
        return torch.as_tensor((found.eig if found.utility is None else found.utility) / model.costs(rows).numpy())

    held = [_in_unit(constraint, space, designs) for constraint in space.constraints]
    at = slide(_to_unit(space, row[None])[0].clamp(0, 1), score, moving, held, worth)
    return unique_rows(torch.cat([_whole(space, designs(at[None]), fixed), row[None]]))


def _in_unit(constraint: Expression, space: Space, designs: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A constraint on designs as one on points of the unit cube."""
    return lambda points: constraint(space.columns(designs(points))).expand(len(points))


def _moving(space: Space, fixed: Mapping[str, float]) -> list[int]:
    return [i for i, v in enumerate(space.variables) if v.kind != "values" and v.name not in fixed]


def _has_gradient(model: Model, batch: Batch, rows: Tensor, memory: Memory) -> bool:
    if isinstance(batch.belief, GaussianBelief) or batch.columns is not None:
        return True
    return method_of(model, batch.belief.points, rows[:1], memory) != "bounds"


def _to_unit(space: Space, rows: Tensor) -> Tensor:
    return torch.stack([v.to_unit(rows[:, i]) for i, v in enumerate(space.variables)], 1)


def _relaxed(space: Space, rows: Tensor, u: Tensor, moving: list[int]) -> Tensor:
    """Designs with the moving variables taken from the unit cube."""
    columns = [
        v.relaxed(u[:, i]) if i in moving else rows[:, i]  # the others stay as they were
        for i, v in enumerate(space.variables)
    ]
    return torch.stack(columns, 1)


def _climb(model: Model, batch: Batch, rows: Tensor, moving: list[int]) -> Tensor:
    """Projected gradient ascent in the unit cube. Each climber has a step of its own: longer after a step up, halved
    after one that led down, which is taken back. A step out of the constraints ends at their edge."""
    space = model.space

    def admits(points: Tensor) -> Tensor:
        return space.admits(_relaxed(space, rows, points, moving))

    u = _to_unit(space, rows)
    step = torch.full((len(rows), 1), 0.05, dtype=torch.float64)
    value, slope = _value_and_slope(model, batch, rows, u, moving)
    for _ in range(N_STEPS):
        direction = slope / slope.norm(dim=1, keepdim=True).clamp(min=1e-300)
        tried = (u + step * direction).clamp(0, 1)
        if not bool(admits(tried).all()):
            tried = farthest(u, tried, admits)
        there, steeper = _value_and_slope(model, batch, rows, tried, moving)
        better = (there > value) & admits(tried) & there.isfinite()
        u = torch.where(better[:, None], tried, u)
        value, slope = torch.where(better, there, value), torch.where(better[:, None], steeper, slope)
        step = torch.where(better[:, None], 1.5 * step, 0.4 * step).clamp(max=0.25)
        if bool((step < 1e-7).all()):
            break
    return _relaxed(space, rows, u, moving)


def _value_and_slope(model: Model, batch: Batch, rows: Tensor, u: Tensor, moving: list[int]) -> tuple[Tensor, Tensor]:
    values, slopes = [], []
    if not model.has_smooth_utility:
        return _value_and_differences(model, batch, rows, u, moving)
    for i in range(len(u)):  # one after the other: a block with gradients is several times as large as one without
        at = u[i : i + 1].clone().requires_grad_()
        value = differentiable(model, batch, _relaxed(model.space, rows[i : i + 1], at, moving))
        # a model need not depend on what moves
        slope = torch.autograd.grad(value.sum(), at)[0] if value.requires_grad else torch.zeros_like(at)
        values.append(value.detach())
        slopes.append(slope.nan_to_num(0.0, 0.0, 0.0))
    return torch.cat(values), torch.cat(slopes)


def _value_and_differences(
    model: Model, batch: Batch, rows: Tensor, u: Tensor, moving: list[int]
) -> tuple[Tensor, Tensor]:
    """The same where an outcome at which the utility jumps moves with the design, which a gradient at fixed outcomes
    does not see."""
    slope = torch.zeros_like(u)
    with torch.no_grad():
        value = useful(model, batch, _relaxed(model.space, rows, u, moving))
        for i in moving:
            near = u.clone()
            near[:, i] += torch.where(u[:, i] < 0.5, STEP, -STEP)
            there = useful(model, batch, _relaxed(model.space, rows, near, moving))
            slope[:, i] = (there - value) / (near - u)[:, i]
    return value, slope.nan_to_num(0.0, 0.0, 0.0)


def _look_around(model: Model, batch: Batch, rows: Tensor, moving: list[int], memory: Memory, seed: int) -> Tensor:
    """Where EIG is bounded by sampling: ever smaller clouds of designs around the best, on common random numbers."""
    best = rows[:1]
    width = 0.2
    for turn in range(3):
        shift = torch.zeros(N_AROUND, len(model.space.variables), dtype=torch.float64)
        shift[:, moving] = sobol(N_AROUND, len(moving), seed + 10 + turn) * 2 - 1
        u = (_to_unit(model.space, best) + width * shift).clamp(0, 1)
        around = torch.cat([best, _relaxed(model.space, best.expand(N_AROUND, -1), u, moving)])
        around = around[model.space.admits(around)]
        found = conditional(model, batch, around, memory, seed=seed)
        scores = (found.eig if found.utility is None else found.utility) / model.costs(around).numpy()
        best, width = around[int(scores.argmax())][None], width / 3
    return torch.cat([best, rows])


def _whole(space: Space, rows: Tensor, fixed: Mapping[str, float]) -> Tensor:
    """Both whole neighbours of every relaxed integer, where they satisfy the constraints."""
    loose = [i for i, v in enumerate(space.variables) if v.kind == "integer" and v.name not in fixed]
    if not loose:
        return rows
    found = []
    for ups in itertools.product((False, True), repeat=len(loose)):
        near = rows.clone()
        for i, up in zip(loose, ups, strict=True):
            v = space.variables[i]
            steps = (rows[:, i] - v.low) / v.step
            near[:, i] = (v.low + v.step * (steps.ceil() if up else steps.floor())).clamp(v.low, v.high)
        found.append(near)
    whole = torch.cat(found)
    return whole[space.admits(whole)]
