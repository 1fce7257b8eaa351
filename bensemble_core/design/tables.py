"""p(y | θ, ξ) on designs × points × outcomes, laid out so that an adaptive step is one matrix product.

A table depends on the points and the designs, not on what has been observed: between rounds only the weights change.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from bensemble_core.design.families import Arguments
from bensemble_core.design.memory import Memory, refuse_unless_rare
from bensemble_core.design.model import Model
from bensemble_core.design.nodes import Nodes, can_enumerate, place_nodes
from bensemble_core.design.points import Points

CHUNK = 131_072  # numbers worked on at once: a block that fits the cache is made in half the time
KEPT = 36_000_000  # numbers of a table that is kept between rounds; a larger one is computed block by block each time

Method = Literal["enumeration", "quadrature", "bounds", "linear_gaussian"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """A block of designs. `matrix` has Y·J rows of p(y | θ, ξ), then J of H[y | θ, ξ], then, with a utility, J of
    E[U | θ, ξ]; P columns."""

    matrix: Tensor  # [(Y + 1 or 2) J, P]
    n_outcomes: int
    n_designs: int
    has_utility: bool
    node_weights: Tensor | None  # [Y, J]
    is_complete: bool

    @property
    def probs(self) -> Tensor:
        """[Y, J, P]"""
        return self.matrix[: self.n_outcomes * self.n_designs].reshape(self.n_outcomes, self.n_designs, -1)

    @property
    def entropies(self) -> Tensor:
        """[J, P]"""
        first = self.n_outcomes * self.n_designs
        return self.matrix[first : first + self.n_designs]

    @property
    def utilities(self) -> Tensor | None:
        """[J, P]"""
        return self.matrix[-self.n_designs :] if self.has_utility else None


def method_of(model: Model, points: Points, rows: Tensor) -> Method:
    """How EIG is computed at these points, judged at a few of the designs and at the extremes of their arguments."""
    some = rows if len(rows) <= 64 else rows[torch.linspace(0, len(rows) - 1, 64).round().long()]
    arguments, _ = _arguments(model, points, some)
    if not can_enumerate(model, arguments, points.log_prior):
        return "bounds"
    return "enumeration" if model.is_discrete else "quadrature"


def blocks(model: Model, points: Points, rows: Tensor, memory: Memory) -> Iterator[Table]:
    """The table of designs [J, D], in blocks; kept in memory where it is small enough."""
    key = ("table", points.key, rows.numpy().tobytes())
    kept: list[Table] | None = memory.find(key)
    if kept is not None:
        yield from kept
        return
    arguments, _ = _arguments(model, points, rows[:1])
    n_outcomes = len(place_nodes(model, arguments, points.log_prior, 1).coordinates)
    made: list[Table] = []
    size, first = 0, 0
    while first < len(rows):
        stride = max(1, CHUNK // (points.n * (n_outcomes + 1)))
        table = build(model, points, rows[first : first + stride])
        yield table
        first, n_outcomes = first + table.n_designs, table.n_outcomes
        size += table.matrix.numel()
        made = [*made, table] if size <= KEPT else []
    if size <= KEPT:
        memory.keep(key, _joined(made), size)


def _joined(made: list[Table]) -> list[Table]:
    """Neighbours with the same nodes as one table: fewer and larger products in every later round."""
    found: list[list[Table]] = []
    for table in made:
        if found and found[-1][0].n_outcomes == table.n_outcomes and found[-1][0].is_complete == table.is_complete:
            found[-1].append(table)
        else:
            found.append([table])
    return [run[0] if len(run) == 1 else _concatenated(run) for run in found]


def _concatenated(run: list[Table]) -> Table:
    first = run[0]
    n_designs = sum(table.n_designs for table in run)
    parts = [torch.cat([table.probs for table in run], 1).flatten(0, 1)]
    parts += [table.entropies for table in run]
    parts += [table.utilities for table in run if table.utilities is not None]
    weights = [table.node_weights for table in run if table.node_weights is not None]
    return Table(
        matrix=torch.cat(parts),
        n_outcomes=first.n_outcomes,
        n_designs=n_designs,
        has_utility=first.has_utility,
        node_weights=torch.cat(weights, 1) if weights else None,
        is_complete=first.is_complete,
    )


def build(model: Model, points: Points, rows: Tensor) -> Table:
    """One block; differentiable in the designs (nodes stay where they are)."""
    n_designs = len(rows)
    arguments, undefined = _arguments(model, points, rows)
    nodes = place_nodes(model, arguments, points.log_prior, n_designs)
    shape = (len(nodes.coordinates), n_designs, points.n)
    log_p = torch.zeros((), dtype=torch.float64)
    entropy = torch.zeros((), dtype=torch.float64)
    for i, (variable, found) in enumerate(zip(model.outcomes, arguments, strict=True)):
        at = nodes.coordinates[..., i, None]  # [Y, J, 1]
        if variable.family.is_discrete:
            term = variable.family.log_prob(found, at)
            log_p = log_p + term
            if len(model.outcomes) > 1:
                n = int(at.max()) + 1
                term = variable.family.log_prob(found, torch.arange(n, dtype=torch.float64)[:, None, None])
            entropy = entropy + _entropy(term)
        else:
            log_p = log_p + variable.family.log_density(found, at)
            entropy = entropy + variable.family.entropy(found)
    p = log_p.exp().expand(shape)
    entropy = entropy.expand(shape[1:])
    if undefined is not None:  # a sliver of the prior: leaves no trace beyond its mass
        p, entropy = torch.where(undefined, 0.0, p), torch.where(undefined, 0.0, entropy)
    parts = [p.reshape(-1, points.n), entropy]
    if model.utility is not None:
        parts.append(_utility(model, points, rows, nodes, p))
    return Table(
        matrix=torch.cat(parts),
        n_outcomes=shape[0],
        n_designs=n_designs,
        has_utility=model.utility is not None,
        node_weights=nodes.weights,
        is_complete=nodes.is_complete,
    )


def _entropy(log_p: Tensor) -> Tensor:
    """−Σ p log p over the first axis; p = 0 gives 0, in value and gradient."""
    return (-log_p.exp() * log_p.clamp(min=-1e4)).sum(0)


def _arguments(model: Model, points: Points, rows: Tensor) -> tuple[Sequence[Arguments], Tensor | None]:
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


def _utility(model: Model, points: Points, rows: Tensor, nodes: Nodes, p: Tensor) -> Tensor:
    """E[U(θ, ξ, y) | θ, ξ]: [J, P]."""
    assert model.utility is not None
    values = model.values(points.values, rows[:, None, :])
    for i, variable in enumerate(model.outcomes):
        y = nodes.coordinates[..., i, None]
        values[variable.name] = y if variable.family.is_discrete else variable.family.outcome(y)
    worth = model.utility(values).expand(p.shape)
    terms = torch.where(p > 0, p * worth, 0.0)
    return terms.sum(0) if nodes.weights is None else (terms * nodes.weights[..., None]).sum(0)
