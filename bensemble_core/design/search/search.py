"""The best of designs that cannot be listed: Sobol starts and corners in one batch, and the best of them improved by
scipy, which sees what is maximised as one black box, designs [n, D] -> values [n].

Integers too many to list are relaxed to real numbers at first. From its whole neighbours on, and with every other value
of a category, real variables are improved again with the others held, as long as that leads to something better.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from bensemble_core.design.belief.points import Array
from bensemble_core.design.search.optimise import Problem
from bensemble_core.design.spec.model import Model
from bensemble_core.design.spec.spaces import Space, sobol, unique_rows
from bensemble_core.errors import InvalidData, InvalidSpec, NotFinite

N_STARTS = 64  # for each design variable, up to four
N_TRIES = 2**16  # where hardly any design satisfies the constraints
N_CLIMBERS = 4
N_STEPS = 15  # of a climb, a usual number
N_LOOKED_AT = 64  # of the best starts, to find those that no better one is near to
N_COMBINATIONS = 4  # of categories and listed values, the best start of each of which is climbed, too
N_NEIGHBOURS = 6  # of a design with whole numbers that are climbed from, the best at a first look
N_TURNS = 9  # from neighbour to neighbour
N_ROUNDED = 64  # ways to make a design whole

Move: TypeAlias = Callable[[Problem, Array], Array]  # a point [D] -> another


def n_compared(space: Space) -> int:
    """About how many designs a search looks at."""
    return _n_starts(space) + N_CLIMBERS * N_STEPS * (1 + len(space.variables))


def _n_starts(space: Space) -> int:
    return N_STARTS * min(4, len(space.variables))


def starts(space: Space, seed: int, fixed: Mapping[str, float]) -> Tensor:
    """Sobol designs that satisfy the constraints, the same in every round: [J, D]."""
    wanted = _n_starts(space)
    for n in (wanted, 8 * wanted, 64 * wanted, N_TRIES):
        rows = space.from_unit(sobol(n, len(space.variables), seed), fixed)
        rows = rows[space.admits(rows)][:wanted]
        if len(rows) >= wanted // 4:
            break
    rows = rows if len(rows) else with_corners(space, rows, fixed)
    if not len(rows):
        raise InvalidData(
            "no design was found that satisfies the constraints; narrow low and high around those that do, or fix less"
        )
    return unique_rows(rows)


def with_corners(space: Space, rows: Tensor, fixed: Mapping[str, float]) -> Tensor:
    """The designs [J, D], and those corners of the space that satisfy the constraints: optima like to lie there."""
    corners = space.corners()
    for i, variable in enumerate(space.variables):
        if variable.name in fixed:
            corners[:, i] = fixed[variable.name]
    return unique_rows(torch.cat([rows, corners[space.admits(corners)]]))


@dataclass(frozen=True, kw_only=True, eq=False)
class Search:
    """For the designs of most value for their cost; fixed variables stay as they are."""

    model: Model
    value: Callable[[Tensor], Array]  # designs [n, D] -> [n]
    fixed: Mapping[str, float]
    is_sampled: bool = False  # the value has steps: no slopes

    def worth(self, rows: Tensor) -> Array:
        """What is maximised, at designs [n, D]: [n]; −inf where the model or the cost has no value, as it may be beyond
        the constraints."""
        try:
            value = self.value(rows) / self.model.costs(rows).numpy()
        except (NotFinite, InvalidSpec):
            return np.concatenate([self.worth(row[None]) for row in rows]) if len(rows) > 1 else np.array([-np.inf])
        return np.where(np.isfinite(value), value, -np.inf)

    def refined(self, rows: Tensor, scores: Array) -> Tensor:
        """Designs that the best of `rows` [J, D], which have these scores [J], lead to, and those: [n, D]."""
        best = self._best(rows, scores)
        moving = self._free("float", "integer")
        if not moving:
            return best
        if self.is_sampled:  # the best alone
            found = self._moved(best[:1], moving, Problem.polished)
        else:
            found = self._moved(best, moving, Problem.climbed)
        if self._free("integer", "values"):
            found = self._settled(self._rounded(found))
        return unique_rows(torch.cat([found, best]))

    def _best(self, rows: Tensor, scores: Array) -> Tensor:
        """Rows to climb from: those that no better one is near to, and the best of each of the best combinations of
        listed values: [n, D]."""
        listed, moving = self._free("values"), self._free("float", "integer")
        top = rows[torch.from_numpy(np.argsort(-scores, kind="stable")[:N_LOOKED_AT])]
        steps = top[:, listed]
        near = 1.5 * len(rows) ** (-1 / max(1, len(moving)))  # times what starts are apart
        u = self._to_unit(top, moving)
        is_near = (torch.cdist(u, u) < near) & (steps[:, None] == steps).all(2)
        chosen = [place for place in range(len(top)) if not bool(is_near[place, :place].any())][:N_CLIMBERS]
        first: dict[tuple[float, ...], int] = {}
        for place, values in enumerate(map(tuple, steps.tolist())):
            first.setdefault(values, place)
        return top[list(dict.fromkeys([*chosen, *list(first.values())[:N_COMBINATIONS]]))]

    def _moved(self, rows: Tensor, moving: Sequence[int], move: Move) -> Tensor:
        """Designs [n, D] whose moving variables are changed as `move` changes a point of the unit cube."""
        return torch.stack([self._moved_one(row, moving, move) for row in rows])

    def _moved_one(self, row: Tensor, moving: Sequence[int], move: Move) -> Tensor:
        space = self.model.space

        def at(points: Array) -> Tensor:
            rows = row.repeat(len(points), 1)
            for i, u in zip(moving, torch.from_numpy(points).unbind(1), strict=True):
                v = space.variables[i]
                inner = v.relaxed(u).clamp(v.low, v.high)
                rows[:, i] = torch.where(u <= 0, v.low, torch.where(u >= 1, v.high, inner))
            return rows

        problem = Problem(
            value=lambda points: self.worth(at(points)),
            margins=lambda points: space.margins(at(points)),
            admits=lambda point: bool(space.admits(at(point[None]))[0]),
        )
        start = self._to_unit(row[None], moving)[0].clamp(0, 1)
        return at(move(problem, start.numpy())[None])[0]

    def _settled(self, near: Tensor) -> Tensor:
        """Designs with whole numbers that steps from neighbour to neighbour lead to, from these [n, D] on: [n, D]."""
        space, floats, held = self.model.space, self._free("float"), self._free("integer", "values")
        seen: set[tuple[float, ...]] = set()
        found, top = [near[:0]], -math.inf
        for _ in range(N_TURNS):
            near = near[[tuple(steps) not in seen for steps in near[:, held].tolist()]]
            if floats and space.constraints and len(near):
                near = self._moved(near, floats, Problem.nearest)
            near = near[space.admits(near)]
            if not len(near):
                break
            fresh: dict[tuple[float, ...], Tensor] = {}
            for place in np.argsort(-self.worth(near), kind="stable").tolist():
                fresh.setdefault(tuple(near[place, held].tolist()), near[place])
            climbed = torch.stack(list(fresh.values())[:N_NEIGHBOURS])
            seen |= {tuple(steps) for steps in climbed[:, held].tolist()}
            if floats and not self.is_sampled:
                climbed = self._moved(climbed, floats, Problem.climbed)
            found.append(climbed)
            values = self.worth(climbed)
            if values.max() <= top:
                break
            top, near = float(values.max()), torch.stack(list(self._neighbours(climbed[int(values.argmax())], held)))
        return torch.cat(found)

    def _neighbours(self, row: Tensor, held: Sequence[int]) -> Iterator[Tensor]:
        """A step up or down of one integer or listed number, or another of the labels."""
        for i in held:
            v, x = self.model.space.variables[i], float(row[i])
            ordered = sorted(v.values)
            if v.kind == "integer":
                others = [y for y in (x - v.step, x + v.step) if v.low <= y <= v.high]
            elif v.labels:
                others = [y for y in ordered if y != x]
            else:
                place = ordered.index(x)
                others = ordered[max(0, place - 1) : place] + ordered[place + 1 : place + 2]
            for other in others:
                near = row.clone()
                near[i] = other
                yield near

    def _rounded(self, rows: Tensor) -> Tensor:
        """Every relaxed integer rounded to the nearest and the other way, in so many combinations: [n, D]."""
        loose, found = self._free("integer"), []
        for row in rows.tolist():
            ways = [[x] for x in row]
            for i in loose:
                v = self.model.space.variables[i]
                step = (row[i] - v.low) / v.step
                nearest = min(round(step), int(v.size) - 1)
                both = dict.fromkeys((nearest, math.floor(step), math.ceil(step)))
                ways[i] = [v.low + v.step * n for n in both if n < v.size]
            found += list(itertools.islice(itertools.product(*ways), N_ROUNDED))
        return unique_rows(torch.tensor(found, dtype=torch.float64))

    def _free(self, *kinds: str) -> list[int]:
        return [i for i, v in enumerate(self.model.space.variables) if v.kind in kinds and v.name not in self.fixed]

    def _to_unit(self, rows: Tensor, moving: Sequence[int]) -> Tensor:
        return torch.stack([v.to_unit(rows[:, i]) for i, v in enumerate(self.model.space.variables)], 1)[:, moving]
