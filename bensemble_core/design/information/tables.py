"""p(y | θ, ξ) on designs × points × outcomes, laid out so that an adaptive step is one matrix product.

A table depends on the points and the designs, not on what has been observed: between rounds only the weights change.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from bensemble_core.design.belief.memory import refuse_unless_rare
from bensemble_core.design.belief.points import N_PARTS, Array, Points
from bensemble_core.design.deadline import check
from bensemble_core.design.information.expected_utility import N_ROWS, expected, n_nodes, shifts
from bensemble_core.design.information.nodes import Nodes, Placement, place_nodes
from bensemble_core.design.spec.families import Arguments, summed_entropy
from bensemble_core.design.spec.model import Model

CHUNK = 131_072  # numbers worked on at once: a block that fits the cache is made in half the time
DROPPED = 1e-15  # of the weights in all, without which a table used once is made

Numbers = TypeVar("Numbers", Tensor, Array)
Method = Literal["enumeration", "quadrature", "bounds", "linear_gaussian", "cells", "coarse_grid"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Layout:
    """A block of designs: Y·J rows of p(y | θ, ξ), then J of H[y | θ, ξ], then U·J of E[U | θ, ξ]: with a utility
    one value, or where y is integrated over those of `expected`; P columns. Where it `is_closed` the rows of the last
    outcome are left out."""

    n_outcomes: int
    n_designs: int
    n_utilities: int  # U: 0 without a utility
    node_weights: Tensor | None  # [Y, J]
    is_complete: bool  # all outcomes are there
    sums_to_one: bool  # at every point
    is_closed: bool = False

    def outcomes(self, product: Numbers) -> Numbers:
        """The part of a product that belongs to p(y | θ, ξ), without the last outcome where it is closed: [Y, J, c]."""
        n = self.n_outcomes - self.is_closed
        return product[: n * self.n_designs].reshape(n, self.n_designs, -1)

    def entropies(self, product: Numbers) -> Numbers:
        """The part that belongs to H[y | θ, ξ]: [J, c]."""
        first = (self.n_outcomes - self.is_closed) * self.n_designs
        return product[first : first + self.n_designs]

    def utilities(self, product: Numbers) -> Numbers:
        """The part that belongs to E[U | θ, ξ]: [U, J, c]."""
        first = (self.n_outcomes - self.is_closed + 1) * self.n_designs
        return product[first:].reshape(self.n_utilities, self.n_designs, product.shape[-1])


@dataclass(frozen=True, kw_only=True, eq=False)
class Table(Layout):
    """A block that is held."""

    points: Points
    rows: Tensor  # [(Y + 1 + U) J, P]

    @property
    def size(self) -> int:
        """Numbers held."""
        return self.rows.numel()

    def times(self, x: Tensor) -> Tensor:
        """The matrix times x [P, c]."""
        return self.rows @ x

    def by_part(self, weights: Tensor) -> Tensor:
        """The matrix times the weights [P] of each sixteenth of the points: [(Y + 1 + U) J, 16]."""
        parts = self.rows.unflatten(1, (N_PARTS, -1)).transpose(0, 1)  # type: ignore[no-untyped-call]
        return torch.bmm(parts, weights.reshape(N_PARTS, -1, 1))[..., 0].mT

    def by_group(self, columns: Tensor) -> Tensor:
        """The matrix times columns of weights [P, c] within each group of equal targets: [(Y + 1 + U) J, G, c]."""
        points = self.points
        assert points.groups is not None
        order = points.group_order
        if order is None:
            return grouped(self.rows, columns, points.groups, points.n_groups)
        return grouped(self.rows[:, order], columns[order], points.groups[order], points.n_groups)

    @property
    def probs(self) -> Tensor:
        """p(y | θ, ξ) where nothing is left out: [Y, J, P]."""
        assert not self.is_closed
        return self.outcomes(self.rows)


@dataclass(frozen=True, kw_only=True, eq=False)
class Stream(Layout):
    """A block too large for the cache and used once: made and multiplied by slices of the points, and only of those
    that have weight."""

    model: Model
    points: Points
    designs: Tensor  # [J, D]
    placed: "Placed"

    def times(self, x: Tensor) -> Tensor:
        """The matrix times columns of weights x [P, c], up to DROPPED of their sum."""
        return torch.stack([self._at(some) @ x[some] for some in self._slices(_weighty(x))]).sum(0)

    def by_part(self, weights: Tensor) -> Tensor:
        """The matrix times the weights [P] of each sixteenth of the points: [(Y + 1 + U) J, 16]."""
        part = torch.arange(len(weights)) * N_PARTS // len(weights)
        return self.times(weights[:, None] * (part[:, None] == torch.arange(N_PARTS)))

    def by_group(self, columns: Tensor) -> Tensor:
        """The matrix times columns of weights [P, c] within each group of equal targets: [(Y + 1 + U) J, G, c]."""
        points = self.points
        assert points.groups is not None
        some, order = _weighty(columns), points.group_order
        if order is not None:
            has_weight = torch.zeros(points.n, dtype=torch.bool)
            has_weight[some] = True
            some = order[has_weight[order]]
        return sum(  # type: ignore[return-value]
            grouped(self._at(part), columns[part], points.groups[part], points.n_groups) for part in self._slices(some)
        )

    def _slices(self, some: Tensor) -> Sequence[Tensor]:
        stride = max(1, CHUNK // (self.n_designs * (self.n_outcomes + 1)))
        return some.split(stride)  # type: ignore[no-any-return, no-untyped-call]

    def _at(self, some: Tensor) -> Tensor:
        theta = {name: column[some] for name, column in self.points.values.items()}
        return filled(self.model, theta, self.designs, self.placed.at(some, self.points.n))


def grouped(rows: Tensor, columns: Tensor, groups: Tensor, n_groups: int) -> Tensor:
    """Σ w_p row_p over the points of each group, of rows [R, n] and columns of weights [n, c] at points that lie group
    after group, groups [n]: [R, G, c].

    The groups of a grid are of one size, and their sums a small product each.
    """
    present, sizes = groups.unique_consecutive(return_counts=True)  # type: ignore[no-untyped-call]
    n_rows, n_columns = len(rows), columns.shape[1]
    if len(sizes) and bool((sizes == sizes[0]).all()):
        size = int(sizes[0])
        apart = rows.unflatten(1, (-1, size)).transpose(0, 1)  # type: ignore[no-untyped-call]
        sums = torch.bmm(apart, columns.reshape(-1, size, n_columns)).transpose(0, 1)
    else:
        starts = (sizes.cumsum(0) - sizes).numpy()
        parts = [np.add.reduceat(rows.numpy() * w, starts, axis=1) for w in columns.mT.numpy()]
        sums = torch.from_numpy(np.stack(parts, -1))
    if len(present) == n_groups:
        return sums
    found = torch.zeros(n_rows, n_groups, n_columns, dtype=torch.float64)
    found[:, present] = sums
    return found


def _weighty(x: Tensor) -> Tensor:
    """Numbers of the points that hold all but DROPPED of every column of weights [P, c]: [n].

    Points are told apart by powers of two, which is much quicker than to sort them.
    """
    greatest = x.numpy().max(1)
    _, power = np.frexp(greatest)
    power -= power.min()
    few = np.bincount(power, greatest).cumsum() <= DROPPED
    return torch.from_numpy((~few[power] & (greatest > 0)).nonzero()[0])


@dataclass(frozen=True, kw_only=True, eq=False)
class Placed:
    """Arguments of the outcomes at designs × points, and the outcomes to sum over."""

    arguments: Sequence[Arguments]  # [J, P] each
    undefined: Tensor | None  # [J, P]
    nodes: Nodes
    shifts: Tensor  # [P] of nodes over which a utility is averaged
    n_shifted: int  # of those nodes

    def at(self, some: Tensor, n_points: int) -> "Placed":
        """The same at some of the points, by number."""
        return Placed(
            arguments=[
                {name: a[..., some] if a.ndim and a.shape[-1] == n_points else a for name, a in found.items()}
                for found in self.arguments
            ],
            undefined=None if self.undefined is None else self.undefined[:, some],
            nodes=self.nodes,
            shifts=self.shifts[some],
            n_shifted=self.n_shifted,
        )


def build(model: Model, points: Points, rows: Tensor, by: Placement | None = None) -> Table:
    """One block."""
    placed = _placed(model, points, rows, by)
    made = filled(model, points.values, rows, placed)
    return Table(points=points, rows=made, **_layout(model, placed, rows))


def stream(model: Model, points: Points, rows: Tensor, by: Placement | None = None) -> Stream:
    placed = _placed(model, points, rows, by)
    return Stream(model=model, points=points, designs=rows, placed=placed, **_layout(model, placed, rows))


def _placed(model: Model, points: Points, rows: Tensor, by: Placement | None) -> Placed:
    """With nodes by the prior unless it is said by what: a table that is kept must not depend on observations."""
    arguments, undefined = arguments_at(model, points, rows)
    nodes = place_nodes(model, arguments, by or Placement(log_mass=points.log_prior), len(rows))
    return Placed(
        arguments=arguments,
        undefined=undefined,
        nodes=nodes,
        shifts=shifts(points),
        n_shifted=n_nodes(model, points),
    )


def _layout(model: Model, placed: Placed, rows: Tensor) -> dict[str, Any]:
    nodes = placed.nodes
    is_shifted = nodes.integrated is not None
    return {
        "n_outcomes": len(nodes.coordinates),
        "n_designs": len(rows),
        "n_utilities": 0 if model.utility is None else N_ROWS if is_shifted else 1,
        "node_weights": nodes.weights,
        "is_complete": nodes.is_complete,
        "sums_to_one": nodes.is_complete and nodes.weights is None and placed.undefined is None,
    }


def filled(model: Model, theta: Mapping[str, Tensor], rows: Tensor, placed: Placed) -> Tensor:
    """The rows of a block at designs [J, D] and points θ [P]: [(Y + 1 + U) J, P]."""
    check()
    nodes, undefined = placed.nodes, placed.undefined
    n_points = next(iter(theta.values())).shape[0]
    shape = (len(nodes.coordinates), len(rows), n_points)
    log_p = torch.zeros((), dtype=torch.float64)
    entropy = torch.zeros((), dtype=torch.float64)
    for i, (variable, found) in enumerate(zip(model.outcomes, placed.arguments, strict=True)):
        at = nodes.coordinates[..., i, None]  # [Y, J, 1]
        term = (variable.family.log_prob if variable.family.is_discrete else variable.family.log_density)(found, at)
        log_p = log_p + term
        if i == nodes.integrated:
            entropy = entropy + variable.family.entropy(found)
            continue
        if len(model.outcomes) > 1:
            n = int(at.max()) + 1
            term = variable.family.log_prob(found, torch.arange(n, dtype=torch.float64)[:, None, None])
        entropy = entropy + summed_entropy(term)
    p = log_p.exp().expand(shape)
    entropy = entropy.expand(shape[1:])
    if undefined is not None:  # a sliver of the prior: leaves no trace beyond its mass
        p, entropy = torch.where(undefined, 0.0, p), torch.where(undefined, 0.0, entropy)
    parts = [p.reshape(-1, n_points), entropy]
    if model.utility is not None and nodes.integrated is not None:
        utility = expected(model, theta, rows, placed.arguments, nodes.integrated, placed.shifts, placed.n_shifted)
        parts.append((utility if undefined is None else torch.where(undefined, 0.0, utility)).flatten(0, 1))
    elif model.utility is not None:
        parts.append(_utility(model, theta, rows, nodes, p))
    return torch.cat(parts)


def arguments_at(model: Model, points: Points, rows: Tensor) -> tuple[Sequence[Arguments], Tensor | None]:
    """Arguments at [J, P], with those of a good point where they are not defined; and where that is."""
    found = model.arguments(points.values, rows[:, None, :])
    undefined: Tensor | None = None
    for variable, arguments in zip(model.outcomes, found, strict=True):
        for _, wrong, _ in variable.family.faults(arguments):
            if wrong.any():
                undefined = wrong if undefined is None else undefined | wrong
    if undefined is None:
        return found, None
    undefined = undefined.expand(len(rows), points.n)
    for j in undefined.any(1).nonzero()[:, 0].tolist():
        refuse_unless_rare(model, undefined[j], points, f"the design {model.space.decode(rows[j].tolist())}")
    good = int(torch.where(undefined.any(0), -torch.inf, points.log_prior).argmax())
    cleaned = [
        {
            name: torch.where(undefined, a[..., good : good + 1], a) if a.ndim and a.shape[-1] == points.n else a
            for name, a in arguments.items()
        }
        for arguments in found
    ]
    return cleaned, undefined


def _utility(model: Model, theta: Mapping[str, Tensor], rows: Tensor, nodes: Nodes, p: Tensor) -> Tensor:
    """E[U(θ, ξ, y) | θ, ξ] as the sum over the nodes: [J, P]."""
    assert model.utility is not None
    values = model.values(theta, rows[:, None, :])
    for i, variable in enumerate(model.outcomes):
        y = nodes.coordinates[..., i, None]
        values[variable.name] = y if variable.family.is_discrete else variable.family.outcome(y)
    terms = torch.where(p > 0, p * model.utility(values).expand(p.shape), 0.0)
    return (terms if nodes.weights is None else terms * nodes.weights[..., None]).sum(0)
