"""p(y | θ, ξ) on designs × points × outcomes, laid out so that an adaptive step is one matrix product.

A table depends on the points and the designs, not on what has been observed: between rounds only the weights change.
That of a list of designs is kept where it is small enough, and others are made in passing, in blocks that fit the cache
and at those points alone that have weight. The form does not depend on what was asked before: a table that was
forgotten is made again as it was, and gives the same bits.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from bensemble_core.design.belief.memory import Memory, refuse_unless_rare
from bensemble_core.design.belief.points import Array, Points
from bensemble_core.design.deadline import check
from bensemble_core.design.information.expected_utility import N_ROWS, expected, n_nodes, shifts
from bensemble_core.design.information.nodes import Nodes, can_enumerate, n_integrals, place_nodes
from bensemble_core.design.spec.families import Arguments, summed_entropy
from bensemble_core.design.spec.model import Model

CHUNK = 131_072  # numbers worked on at once: a block that fits the cache is made in half the time
KEPT = 36_000_000  # numbers of a table that is kept between rounds
LIGHT = 1e-15  # weight of a point beside the greatest, without which a table used once is made
N_JUDGED = 64  # designs by which it is judged how all are computed

Method = Literal["enumeration", "quadrature", "bounds", "linear_gaussian", "cells", "coarse_grid"]
Piece = tuple[Tensor | slice, Tensor]  # numbers of points, and the rows at these


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """Of J designs and Y outcomes: Y·J rows of p(y | θ, ξ), without those of the last outcome where it has what the
    others leave; J of H[y | θ, ξ], unless it is averages over groups whose entropies are wanted; and U·J of
    E[U | θ, ξ], with U the rows of `expected` where y is integrated over."""

    n_outcomes: int  # Y
    n_designs: int  # J
    n_utilities: int  # U: 0 without a utility
    node_weights: Tensor | None  # [Y, J] in a sum over y
    is_complete: bool  # all outcomes are there
    is_closed: bool  # without the last one
    has_entropies: bool
    pieces: Callable[[], Iterable[Piece]]

    def sums(self, columns: Tensor, groups: Tensor | None, n_groups: int) -> Array:
        """Σ_p w_p row_p over the points of each group [P], of columns of weights [P, c]: [R, G, c]."""
        found: Tensor | None = None
        for some, rows in self.pieces():
            part = _by_group(rows, columns[some], None if groups is None else groups[some], n_groups)
            found = part if found is None else found.add_(part)
        assert found is not None
        return np.asarray(found.numpy())

    def probs(self, sums: Array) -> Array:
        """p(y) from sums [R, ..., c] whose weights sum to 1: [Y, J, ..., c]."""
        n = self.n_outcomes - self.is_closed
        found = sums[: n * self.n_designs].reshape(n, self.n_designs, *sums.shape[1:])
        if not self.is_closed:
            return found
        return np.concatenate([found, np.maximum(1 - found.sum(0, keepdims=True), 0)])

    def entropies(self, sums: Array) -> Array:
        """Σ w H[y | θ, ξ] from sums [R, ..., c]: [J, ..., c]."""
        first = (self.n_outcomes - self.is_closed) * self.n_designs
        return sums[first : first + self.n_designs]

    def utilities(self, sums: Array) -> Array:
        """Σ w E[U | θ, ξ] from sums [R, ..., c]: [U, J, ..., c]."""
        first = (self.n_outcomes - self.is_closed + self.has_entropies) * self.n_designs
        return sums[first:].reshape(self.n_utilities, self.n_designs, *sums.shape[1:])


def _by_group(rows: Tensor, columns: Tensor, groups: Tensor | None, n_groups: int) -> Tensor:
    """Σ w_p row_p of rows [R, n] and columns [n, c] over the points of each group, which lie together: [R, G, c]."""
    if groups is None:
        return (rows @ columns)[:, None]
    present, sizes = groups.unique_consecutive(return_counts=True)  # type: ignore[no-untyped-call]
    if bool((sizes == sizes[0]).all()):
        size = int(sizes[0])
        apart = rows.unflatten(1, (-1, size)).transpose(0, 1)  # type: ignore[no-untyped-call]
        found = torch.bmm(apart, columns.reshape(-1, size, columns.shape[1])).transpose(0, 1)
    else:
        starts = (sizes.cumsum(0) - sizes).numpy()
        parts = [np.add.reduceat(rows.numpy() * w, starts, axis=1) for w in columns.mT.numpy()]
        found = torch.from_numpy(np.stack(parts, -1))
    if len(present) == n_groups:
        return found
    return torch.zeros(len(rows), n_groups, columns.shape[1], dtype=torch.float64).index_add_(1, present, found)


def tables(model: Model, points: Points, rows: Tensor, memory: Memory, columns: Tensor) -> Iterator[Table]:
    """Of designs [J, D], in blocks, for columns of weights [P, c]; that of all designs of a list is kept where it is
    small enough."""
    if is_list(model, rows) and is_kept(model, points, rows, memory):
        made: list[Table] = memory.get(
            ("table", points.key), lambda: _kept(model, points, rows), lambda made: sum(_size(table) for table in made)
        )
        yield from made
    else:
        greatest = columns.amax(1)
        some = (greatest > LIGHT * greatest.max()).nonzero()[:, 0]
        yield from passed(model, points, rows, some, points.mass.log())


def passed(
    model: Model, points: Points, rows: Tensor, some: Tensor, log_mass: Tensor, n_panels: int = 0
) -> Iterator[Table]:
    """Tables made at some of the points, by number, with nodes where outcomes of points with these masses [P] lie."""
    n, first = _n_outcomes(model, points, rows[:1]), 0
    while first < len(rows):
        part = rows[first : first + max(1, CHUNK // (points.n * (n + 1)))]
        arguments, undefined = arguments_at(model, points, part)
        nodes = place_nodes(model, arguments, log_mass, len(part), n_panels)
        n = len(nodes.coordinates)
        filling = _Filling(
            model=model, points=points, designs=part, nodes=nodes, undefined=undefined, arguments=arguments
        )
        stride = max(1, CHUNK // (len(part) * (n + 1)))
        yield filling.table(some.split(stride))  # type: ignore[no-untyped-call]
        first += len(part)


def _kept(model: Model, points: Points, rows: Tensor) -> list[Table]:
    """The whole table: neighbours with the same nodes as one, for fewer and larger products in every later round."""
    found: list[list[tuple[Table, Tensor]]] = []
    for table in passed(model, points, rows, torch.arange(points.n), points.mass.log()):
        made = torch.cat([part for _, part in table.pieces()], 1)
        alike = found and all(
            getattr(found[-1][0][0], name) == getattr(table, name)
            for name in ("n_outcomes", "is_complete", "is_closed", "has_entropies")
        )
        if alike:
            found[-1].append((table, made))
        else:
            found.append([(table, made)])
    return [_joined(run) for run in found]


def _joined(run: Sequence[tuple[Table, Tensor]]) -> Table:
    first = run[0][0]
    blocks = [(made.unflatten(0, (-1, table.n_designs))) for table, made in run]  # type: ignore[no-untyped-call]
    rows = torch.cat(blocks, 1).flatten(0, 1)
    weights = [table.node_weights for table, _ in run if table.node_weights is not None]
    return Table(
        n_outcomes=first.n_outcomes,
        n_designs=sum(table.n_designs for table, _ in run),
        n_utilities=first.n_utilities,
        node_weights=torch.cat(weights, 1) if weights else None,
        is_complete=first.is_complete,
        is_closed=first.is_closed,
        has_entropies=first.has_entropies,
        pieces=lambda: [(slice(None), rows)],
    )


def _size(table: Table) -> int:
    return sum(rows.numel() for _, rows in table.pieces())


def is_list(model: Model, rows: Tensor) -> bool:
    """Whether these are all designs of a list, which are asked for in every round."""
    return model.space.is_listed and rows is model.space.all()


def is_kept(model: Model, points: Points, rows: Tensor, memory: Memory) -> bool:
    """Whether the table of designs [J, D] is small enough, as far as a few of them tell."""

    def judged() -> bool:
        some = rows[torch.linspace(0, len(rows) - 1, 3).round().long()]
        return len(rows) * points.n * (_n_outcomes(model, points, some) + 1) <= KEPT

    return bool(memory.get(("is kept", points.key), lambda: [judged()], lambda _: 1)[0])


def _n_outcomes(model: Model, points: Points, rows: Tensor) -> int:
    arguments, _ = arguments_at(model, points, rows)
    return len(place_nodes(model, arguments, points.mass.log(), len(rows)).coordinates)


def n_numbers(model: Model, points: Points, rows: Tensor) -> int:
    """Of the table of a design at these points, as far as a few designs tell."""
    return points.n * (_n_outcomes(model, points, rows) + 1)


def method_of(model: Model, points: Points, rows: Tensor, memory: Memory) -> Method:
    """How EIG is computed at these points, judged at a few of the designs and at the extremes of their arguments."""
    if not is_list(model, rows):
        return _method_of(model, points, rows)
    return memory.get(("method", points.key), lambda: _method_of(model, points, rows), lambda _: 1)


def _method_of(model: Model, points: Points, rows: Tensor) -> Method:
    few = rows if len(rows) <= N_JUDGED else rows[torch.linspace(0, len(rows) - 1, N_JUDGED).round().long()]
    arguments, _ = arguments_at(model, points, few)
    log_mass = points.mass.log()
    if not can_enumerate(model, arguments, log_mass):
        return "bounds"
    return "quadrature" if n_integrals(model, arguments, log_mass) else "enumeration"


@dataclass(frozen=True, kw_only=True, eq=False)
class _Filling:
    """What a table is made of."""

    model: Model
    points: Points
    designs: Tensor  # [J, D]
    nodes: Nodes
    arguments: Sequence[Arguments]  # [J, P] each
    undefined: Tensor | None  # [J, P]

    def table(self, parts: Sequence[Tensor]) -> Table:
        nodes = self.nodes
        is_closed = nodes.is_complete and nodes.weights is None and self.undefined is None
        is_shifted = nodes.integrated is not None
        return Table(
            n_outcomes=len(nodes.coordinates),
            n_designs=len(self.designs),
            n_utilities=0 if self.model.utility is None else N_ROWS if is_shifted else 1,
            node_weights=nodes.weights,
            is_complete=nodes.is_complete,
            is_closed=is_closed,
            has_entropies=self.has_entropies,
            pieces=lambda: ((some, self.rows(some, is_closed)) for some in parts),
        )

    @property
    def has_entropies(self) -> bool:
        return self.points.groups is None or self.points.frame is None

    def rows(self, some: Tensor, is_closed: bool) -> Tensor:
        """At points by number [n]: [R, n]."""
        check()
        model, nodes, n_all = self.model, self.nodes, self.points.n
        theta = {name: column[some] for name, column in self.points.values.items()}
        arguments = [
            {name: a[..., some] if a.ndim and a.shape[-1] == n_all else a for name, a in found.items()}
            for found in self.arguments
        ]
        undefined = None if self.undefined is None else self.undefined[:, some]
        log_p = torch.zeros((), dtype=torch.float64)
        entropy = torch.zeros((), dtype=torch.float64)
        for i, (variable, found) in enumerate(zip(model.outcomes, arguments, strict=True)):
            at = nodes.coordinates[..., i, None]  # [Y, J, 1]
            term = (variable.family.log_prob if variable.family.is_discrete else variable.family.log_density)(found, at)
            log_p = log_p + term
            if not self.has_entropies:
                continue
            if i == nodes.integrated:
                entropy = entropy + variable.family.entropy(found)
                continue
            if len(model.outcomes) > 1:
                every = torch.arange(int(at.max()) + 1, dtype=torch.float64)[:, None, None]
                term = variable.family.log_prob(found, every)
            entropy = entropy + summed_entropy(term)
        shape = (len(nodes.coordinates), len(self.designs), len(some))
        p, entropy = log_p.exp().expand(shape), entropy.expand(shape[1:])
        if undefined is not None:  # a sliver of the prior: leaves no trace beyond its mass
            p, entropy = torch.where(undefined, 0.0, p), torch.where(undefined, 0.0, entropy)
        parts = [(p[:-1] if is_closed else p).reshape(-1, len(some)), *([entropy] if self.has_entropies else [])]
        if model.utility is not None and nodes.integrated is not None:
            shift, n = shifts(self.points)[some], n_nodes(model, self.points)
            utility = expected(model, theta, self.designs, arguments, nodes.integrated, shift, n)
            parts.append((utility if undefined is None else torch.where(undefined, 0.0, utility)).flatten(0, 1))
        elif model.utility is not None:
            parts.append(_utility(model, theta, self.designs, nodes, p))
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
