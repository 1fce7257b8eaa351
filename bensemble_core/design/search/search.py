"""The best of designs that cannot be listed: Sobol starts and corners in one batch, and the best of them climbed by
gradient, where constraints are in the way along their edge.

Integers too many to list are relaxed to real numbers for the climb. From its whole neighbours on, and with every other
value of a category, real variables are climbed again with the others held, as long as that leads to something better.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from bensemble_core.design.belief.gaussian import GaussianBelief
from bensemble_core.design.belief.memory import Memory
from bensemble_core.design.belief.points import Array
from bensemble_core.design.information.batch import Batch, conditional, differentiable, useful
from bensemble_core.design.information.shelf import method_of
from bensemble_core.design.search.climb import GAIN, Edges, climb
from bensemble_core.design.search.slide import slide
from bensemble_core.design.spec.model import Model
from bensemble_core.design.spec.spaces import Space, sobol, unique_rows
from bensemble_core.errors import InvalidData

N_STARTS = 64  # for each design variable, up to four
N_TRIES = 2**16  # where hardly any design satisfies the constraints
N_CLIMBERS = 4
STEP = 0.02  # of differences, in the unit cube: a jump that moves by less meets too few nodes
ROUGH_GAIN = 1e-4  # of the value, that differences of an averaged utility can tell
N_LOOKED_AT = 64  # of the best starts, to find those that no better one is near to
N_COMBINATIONS = 4  # of categories and listed values, the best start of each of which is climbed, too
N_NEIGHBOURS = 6  # of a design with whole numbers that are climbed from, the best at a first look
N_TURNS = 8  # from neighbour to neighbour
MAX_ROUNDED = 6  # integers of which all roundings are tried
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
    model: Model,
    batch: Batch,
    rows: Tensor,
    scores: Tensor,
    memory: Memory,
    *,
    fixed: Mapping[str, float],
    seed: int,
    n: int = N_CLIMBERS,
) -> Tensor:
    """Designs found by climbing from the best of `rows` [J, D], which have these scores [J]: [n, D]."""
    space = model.space
    moving = _free(space, fixed, "float", "integer")
    best = _best(space, rows, scores, fixed, n)
    if not moving:
        return best
    if not _has_gradient(model, batch, best, memory):
        found = _look_around(model, batch, best, moving, memory, seed)
        return unique_rows(torch.cat([_whole(space, found, fixed), best]))
    search = _Search(model=model, batch=batch, memory=memory, seed=seed, fixed=fixed)
    climbed = [search.climbed(row, moving) for row in best]
    climbed.sort(key=lambda found: -found.value)
    if not search.held:
        climbed[0] = search.slid(climbed[0])
        return unique_rows(torch.stack([*(found.row for found in climbed), *best]))
    return unique_rows(torch.cat([search.settled([found.row for found in climbed]), best]))


def _best(space: Space, rows: Tensor, scores: Tensor, fixed: Mapping[str, float], n: int) -> Tensor:
    """Rows to climb from: up to n that no better one is near to, and the best of each of the best combinations of
    listed values: [n, D]."""
    listed, moving = _free(space, fixed, "values"), _free(space, fixed, "float", "integer")
    order = scores.argsort(descending=True, stable=True)
    top = rows[order[:N_LOOKED_AT]]
    u, steps = _to_unit(space, top)[:, moving], top[:, listed]
    near = 1.5 * len(rows) ** (-1 / max(1, len(moving)))  # times what starts are apart
    is_near = (torch.cdist(u, u) < near) & (steps[:, None] == steps).all(2)
    peaks = [place for place in range(len(top)) if not bool(is_near[place, :place].any())][:n]
    chosen = peaks + [place for place in range(min(2, n, len(top))) if place not in peaks][: max(0, 2 - len(peaks))]
    seen: set[tuple[float, ...]] = set()
    for place, values in enumerate(map(tuple, steps.tolist()) if listed else ()):
        if values not in seen and len(seen) < N_COMBINATIONS:
            seen.add(values)
            chosen.append(place)
    return top[list(dict.fromkeys(chosen))]


@dataclass(frozen=True, kw_only=True)
class _Found:
    row: Tensor  # [D]
    value: float
    is_stationary: bool
    moving: Sequence[int]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Search:
    """Ways up from designs, as a batch sees them."""

    model: Model
    batch: Batch
    memory: Memory
    seed: int
    fixed: Mapping[str, float]

    @cached_property
    def floats(self) -> list[int]:
        return _free(self.model.space, self.fixed, "float")

    @cached_property
    def held(self) -> list[int]:
        """Variables with steps."""
        return _free(self.model.space, self.fixed, "integer", "values")

    def climbed(self, row: Tensor, moving: Sequence[int]) -> _Found:
        """Where a design leads to when some of its variables move."""
        plane = _Plane(model=self.model, batch=self.batch, row=row, moving=moving)
        found = climb(plane.point, plane.value, plane.edges, GAIN if self.model.has_smooth_utility else ROUGH_GAIN)
        return _Found(row=plane.at(found.point), value=found.value, is_stationary=found.is_stationary, moving=moving)

    def slid(self, found: _Found) -> _Found:
        """The same, moved on along constraints where gradients have not led to an end: those may have kinks."""
        plane = _Plane(model=self.model, batch=self.batch, row=found.row, moving=found.moving)
        if found.is_stationary or not found.moving or plane.edges is None:
            return found
        point, value = slide(plane.point, found.value, plane.edges, lambda points: self.worth(plane.all_at(points)))
        return _Found(row=plane.at(point), value=value, is_stationary=True, moving=found.moving)

    def worth(self, rows: Tensor) -> Array:
        """What is maximised, at designs [n, D]: [n]."""
        found = conditional(self.model, self.batch, rows, self.memory, seed=self.seed)
        worth = found.worth / self.model.costs(rows).numpy()
        return np.where(np.isfinite(worth), worth, -np.inf)

    def settled(self, relaxed: Sequence[Tensor]) -> Tensor:
        """Designs with whole numbers near relaxed ones, and where steps from neighbour to neighbour lead: [n, D]."""
        seen: set[tuple[float, ...]] = set()
        rounded = _rounded(self.model.space, torch.stack(list(relaxed)), self.fixed)
        found = self._climbed_each(rounded, seen)
        if not found:
            return rounded[:0]
        best = found[0]
        for _ in range(N_TURNS):
            near = self._climbed_each(torch.stack(list(self._neighbours(best.row))), seen)
            if not near:
                break
            found += near
            if near[0].value <= best.value:
                break
            best = near[0]
        found.append(self.slid(best))
        return torch.stack([each.row for each in found])

    def _climbed_each(self, rows: Tensor, seen: set[tuple[float, ...]]) -> list[_Found]:
        """Where those lead that seem best and whose steps were not seen before, the best first."""
        fresh = []
        for row in rows:
            steps = tuple(row[self.held].tolist())
            allowed = self._allowed(row) if steps not in seen else None
            if allowed is not None:
                fresh.append(allowed)
        if not fresh:
            return []
        order = np.argsort(-self.worth(torch.stack(fresh)), kind="stable").tolist()
        found: list[_Found] = []
        for place in order:
            steps = tuple(fresh[place][self.held].tolist())
            if steps not in seen and len(found) < N_NEIGHBOURS:
                seen.add(steps)
                found.append(self.climbed(fresh[place], self.floats))
        return sorted(found, key=lambda each: -each.value)

    def _allowed(self, row: Tensor) -> Tensor | None:
        """The design with its real numbers changed so that the constraints hold; None if that fails."""
        if bool(self.model.space.admits(row[None])[0]):
            return row
        plane = _Plane(model=self.model, batch=self.batch, row=row, moving=self.floats)
        point = plane.edges.restored(plane.point) if plane.edges is not None and self.floats else None
        return None if point is None else plane.at(point)

    def _neighbours(self, row: Tensor) -> Iterator[Tensor]:
        """A step up or down of one integer or listed number, or another of the labels."""
        for i in self.held:
            v, x = self.model.space.variables[i], float(row[i])
            if v.kind == "integer":
                others = [y for y in (x - v.step, x + v.step) if v.low <= y <= v.high]
            elif v.labels:
                others = [y for y in v.values if y != x]
            else:
                place, ordered = sorted(v.values).index(x), sorted(v.values)
                others = ordered[max(0, place - 1) : place] + ordered[place + 1 : place + 2]
            for other in others:
                near = row.clone()
                near[i] = other
                yield near


@dataclass(frozen=True, kw_only=True, eq=False)
class _Plane:
    """Designs that differ from a row [D] in the moving variables alone, as points [m] of the unit cube."""

    model: Model
    batch: Batch
    row: Tensor
    moving: Sequence[int]

    @cached_property
    def point(self) -> Array:
        """That of the row itself."""
        u = _to_unit(self.model.space, self.row[None])[0, list(self.moving)]
        return np.asarray(u.clamp(0, 1).numpy())

    def at(self, point: Array) -> Tensor:
        """[m] -> [D]"""
        return self.all_at(point[None])[0]

    def all_at(self, points: Array) -> Tensor:
        """[n, m] -> [n, D]"""
        rows = self._relaxed(torch.from_numpy(points))
        for i in self.moving:
            v = self.model.space.variables[i]
            rows[:, i] = rows[:, i].clamp(v.low, v.high)
        return rows

    def _relaxed(self, points: Tensor) -> Tensor:
        columns = list(self.row.expand(len(points), -1).unbind(1))
        for column, i in enumerate(self.moving):
            columns[i] = self.model.space.variables[i].relaxed(points[:, column])
        return torch.stack(columns, 1)

    def value(self, point: Array) -> tuple[float, Array]:
        if not self.moving:
            with torch.no_grad():
                return float(differentiable(self.model, self.batch, self.row[None])[0]), np.zeros(0)
        if not self.model.has_smooth_utility:
            return self._value_and_differences(point)
        at = torch.from_numpy(point[None]).requires_grad_()
        value = differentiable(self.model, self.batch, self._relaxed(at))
        # a model need not depend on what moves
        slope = torch.autograd.grad(value.sum(), at)[0] if value.requires_grad else torch.zeros_like(at)
        return float(value.detach()[0]), slope[0].nan_to_num(0.0, 0.0, 0.0).numpy()

    def _value_and_differences(self, point: Array) -> tuple[float, Array]:
        """The same where an outcome at which the utility jumps moves with the design, which a gradient at fixed
        outcomes does not see."""
        above, below = (np.clip(point + step * np.eye(len(point)), 0, 1) for step in (STEP, -STEP))
        with torch.no_grad():
            points = torch.from_numpy(np.concatenate([point[None], above, below]))
            values = useful(self.model, self.batch, self._relaxed(points)).numpy()
        up, down = values[1:].reshape(2, -1)
        return float(values[0]), np.nan_to_num((up - down) / np.diag(above - below), nan=0.0, posinf=0.0, neginf=0.0)

    @cached_property
    def edges(self) -> Edges | None:
        return Edges(admits=self._admits, margins=self._margins) if self.model.space.constraints else None

    def _admits(self, point: Array) -> bool:
        return bool(self.model.space.admits(self.at(point)[None])[0])

    def _margins(self, point: Array) -> tuple[Array, Array]:
        at = torch.from_numpy(point).requires_grad_()
        values = self.model.space.columns(self._relaxed(at[None]))
        margins, slopes = [], []
        for margin in (each for constraint in self.model.space.constraints for each in constraint.margins):
            found = margin(values).expand(1)[0]
            if found.requires_grad:
                slope = torch.autograd.grad(found, at, retain_graph=True, allow_unused=True)[0]
                if slope is not None and bool(slope.isfinite().all()) and bool(found.isfinite()):
                    margins.append(float(found.detach()))
                    slopes.append(slope.numpy())
        return np.array(margins), np.array(slopes).reshape(len(margins), len(point))


def _free(space: Space, fixed: Mapping[str, float], *kinds: str) -> list[int]:
    return [i for i, v in enumerate(space.variables) if v.kind in kinds and v.name not in fixed]


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
        scores = found.worth / model.costs(around).numpy()
        best, width = around[int(scores.argmax())][None], width / 3
    return torch.cat([best, rows])


def _whole(space: Space, rows: Tensor, fixed: Mapping[str, float]) -> Tensor:
    """Whole neighbours of relaxed integers that satisfy the constraints."""
    whole = _rounded(space, rows, fixed)
    return whole[space.admits(whole)]


def _rounded(space: Space, rows: Tensor, fixed: Mapping[str, float]) -> Tensor:
    """Every relaxed integer rounded down and up, all combinations of those furthest from whole: [n, D]."""
    loose = _free(space, fixed, "integer")
    found = []
    for row in rows:
        steps = [(float(row[i]) - space.variables[i].low) / space.variables[i].step for i in loose]
        undecided = sorted(range(len(loose)), key=lambda j: -abs(steps[j] - round(steps[j])))[:MAX_ROUNDED]
        ways = [
            sorted({math.floor(step), math.ceil(step)}) if j in undecided else [round(step)]
            for j, step in enumerate(steps)
        ]
        for way in itertools.product(*ways):
            near = row.clone()
            for i, n in zip(loose, way, strict=True):
                v = space.variables[i]
                near[i] = min(max(v.low + v.step * n, v.low), v.low + v.step * (v.size - 1))
            found.append(near)
    return torch.stack(found)
