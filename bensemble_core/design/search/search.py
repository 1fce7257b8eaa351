"""The best of designs that cannot be listed: Sobol starts and corners in one batch, and the best of them improved, with
what is maximised seen as one black box, designs [n, D] -> values [n].

Whole numbers too many to list are real numbers at first. Then their neighbours and the other listed values are tried,
with real variables improved again for each, as long as that leads to something better.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

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
NEAR = 1e-12  # to an end of a variable, in the unit cube: that end is meant


def n_compared(space: Space) -> int:
    """About how many designs a search looks at."""
    return _n_starts(space) + N_CLIMBERS * N_STEPS * (1 + len(space.variables))


def _n_starts(space: Space) -> int:
    return N_STARTS * min(4, len(space.variables))


def starts(space: Space, seed: int, fixed: Mapping[str, float]) -> Tensor:
    """Sobol designs that satisfy the constraints, the same in every round: [J, D]."""
    rows = allowed(space, _n_starts(space), seed, fixed)
    if not len(rows):
        raise InvalidData(
            "no design was found that satisfies the constraints; narrow low and high around those that do, or fix less"
        )
    return unique_rows(rows)


def allowed(space: Space, n: int, seed: int, fixed: Mapping[str, float]) -> Tensor:
    """At most n Sobol designs that satisfy the constraints, or corners where no other is found, if any: [J, D]."""
    for n_tried in (n, 8 * n, 64 * n, N_TRIES):
        rows = space.from_unit(sobol(n_tried, len(space.variables), seed), fixed)
        rows = rows[space.admits(rows)][:n]
        if len(rows) >= max(1, n // 4):
            break
    return rows if len(rows) else with_corners(space, rows, fixed)


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
        best, moving = self._best(rows, scores), self._free("float", "integer")
        if not moving:
            return best
        found = self._climbed(best[:1] if self.is_sampled else best, moving)
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

    def _climbed(self, rows: Tensor, moving: Sequence[int]) -> Tensor:
        """Designs [n, D] at the optima of the moving variables, the others held."""
        return torch.stack([self._climbed_one(row, moving) for row in rows])

    def _climbed_one(self, row: Tensor, moving: Sequence[int]) -> Tensor:
        space = self.model.space

        def at(points: Array) -> Tensor:
            rows = row.repeat(len(points), 1)
            for i, u in zip(moving, torch.from_numpy(points).unbind(1), strict=True):
                v = space.variables[i]
                inner = v.relaxed(u).clamp(v.low, v.high)
                rows[:, i] = torch.where(u < NEAR, v.low, torch.where(u > 1 - NEAR, v.high, inner))
            return rows

        problem = Problem(
            value=lambda points: self.worth(at(points)),
            margins=lambda points: space.margins(at(points)),
            admits=lambda points: space.admits(at(points)).numpy(),
        )
        start = self._to_unit(row[None], moving)[0].clamp(0, 1).numpy()
        return at((problem.poll(start) if self.is_sampled else problem.climb(start))[None])[0]

    def _settled(self, near: Tensor) -> Tensor:
        """Designs with whole numbers that steps from neighbour to neighbour lead to, from these [n, D] on: [n, D]."""
        space, held = self.model.space, self._free("integer", "values")
        floats = [] if self.is_sampled else self._free("float")
        seen: set[tuple[float, ...]] = set()
        found, top = [near[:0]], -math.inf
        for _ in range(N_TURNS):
            near = near[[tuple(steps) not in seen for steps in near[:, held].tolist()]]
            near = near if floats else near[space.admits(near)]
            if not len(near):
                break
            near = near[np.argsort(-self.worth(near), kind="stable")]
            first = np.unique(near[:, held].numpy(), axis=0, return_index=True)[1]  # the best of those held alike
            near = near[np.sort(first)[:N_NEIGHBOURS]]
            seen |= {tuple(steps) for steps in near[:, held].tolist()}
            near = self._climbed(near, floats) if floats else near
            near = near[space.admits(near)]
            values = self.worth(near) if len(near) else np.array([-math.inf])
            if values.max() <= top:
                break
            found.append(near)
            top, near = float(values.max()), torch.stack(list(self._neighbours(near[int(values.argmax())], held)))
        return torch.cat(found)

    def _neighbours(self, row: Tensor, held: Sequence[int]) -> Iterator[Tensor]:
        """A step up or down of one whole number, or another of the listed values."""
        for i in held:
            v, x = self.model.space.variables[i], float(row[i])
            for other in v.values or (x - v.step, x + v.step):
                if other != x and (v.values or v.low <= other <= v.high):
                    near = row.clone()
                    near[i] = other
                    yield near

    def _rounded(self, rows: Tensor) -> Tensor:
        """Every relaxed integer rounded to the nearest and the other way, in so many combinations: [n, D]."""
        found = []
        for row in rows.tolist():
            ways = [[x] for x in row]
            for i in self._free("integer"):
                v = self.model.space.variables[i]
                step = (row[i] - v.low) / v.step
                both = dict.fromkeys((round(step), math.floor(step), math.ceil(step)))
                ways[i] = [v.low + v.step * n for n in both if n < v.size]
            found += list(itertools.islice(itertools.product(*ways), N_ROUNDED))
        return unique_rows(torch.tensor(found, dtype=torch.float64))

    def _free(self, *kinds: str) -> list[int]:
        """Places of the variables of these kinds that may vary."""
        found = enumerate(self.model.space.variables)
        return [i for i, v in found if v.kind in kinds and v.name not in self.fixed and v.size > 1]

    def _to_unit(self, rows: Tensor, moving: Sequence[int]) -> Tensor:
        return torch.stack([v.to_unit(rows[:, i]) for i, v in enumerate(self.model.space.variables)], 1)[:, moving]
