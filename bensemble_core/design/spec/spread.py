"""Designs spread over a space, to draw what is to be known of all of them from a few."""

import torch
from torch import Tensor

from bensemble_core.design.spec.spaces import Space, Variable, unique_rows
from bensemble_core.errors import InvalidData

TABLE = 20  # designs of a space of three variables and more: a table is shown of them, not a curve


def spread(space: Space, points: int, seed: int) -> Tensor:
    """At most `points` designs [J, D] that the constraints admit, in lexicographic order.

    All of a list, or of a longer one evenly many; of one variable values that are even on its scale, both ends
    included; of two a grid; of more a Latin hypercube of 20 (McKay, Beckman & Conover 1979). Variables with one value
    do not count.
    """
    free = [variable for variable in space.variables if variable.size > 1]
    if space.is_listed and (len(space.all()) <= points or space.rows is not None or len(free) > 2 or space.constraints):
        rows = space.all()
        return rows[torch.linspace(0, len(rows) - 1, min(len(rows), points), dtype=torch.float64).round().long()]
    rows = _grid(space, free, points) if len(free) <= 2 else _scattered(space, min(TABLE, points), seed)
    if not len(rows):
        raise InvalidData(
            f"none of {points} designs that are spread evenly satisfies the constraints; name designs that do"
        )
    return unique_rows(rows)


def _grid(space: Space, free: list[Variable], points: int) -> Tensor:
    """All combinations of values of one or two variables; what the smaller one does not need the other has."""
    sides, left = {}, points
    for i, variable in enumerate(sorted(free, key=lambda variable: variable.size)):
        sides[variable.name] = int(min(variable.size, left ** (1 / (len(free) - i)) + 1e-9))
        left //= sides[variable.name]
    axes = [axis(variable, sides.get(variable.name, 1)) for variable in space.variables]
    rows: Tensor = torch.cartesian_prod(*axes).reshape(-1, len(axes))
    return rows[space.admits(rows)]


def _scattered(space: Space, n: int, seed: int) -> Tensor:
    """n rows of a Latin hypercube, of a finer one where constraints leave too few."""
    for n_slices in (n, 8 * n, 64 * n, 512 * n):
        rows = space.from_unit(_latin_hypercube(n_slices, len(space.variables), seed))
        rows = rows[space.admits(rows)][:n]
        if len(rows) == n:
            break
    return rows


def axis(variable: Variable, n: int) -> Tensor:
    """n values from end to end; all, where there are no more."""
    if variable.size <= n:
        return variable.listed()
    return unique_rows(variable.from_unit(torch.linspace(0, 1, n, dtype=torch.float64)))


def _latin_hypercube(n: int, dimension: int, seed: int) -> Tensor:
    """One point in each of n slices of every axis: [n, dimension]."""
    generator = torch.Generator().manual_seed(seed)
    slices = torch.stack([torch.randperm(n, generator=generator) for _ in range(dimension)], 1)
    return (slices + torch.rand(n, dimension, generator=generator, dtype=torch.float64)) / n
