"""Tables between rounds: that of a list of designs is kept, and others are made in passing.

The last of all possible outcomes has what the others leave. The form does not depend on what was asked before: a table
that was forgotten is made again as it was, and gives the same bits.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from bensemble_core.design.belief.memory import Memory
from bensemble_core.design.belief.points import Points
from bensemble_core.design.information.nodes import Placement, can_enumerate, n_integrals, place_nodes
from bensemble_core.design.information.tables import CHUNK, Method, Stream, Table, arguments_at, build, stream
from bensemble_core.design.spec.model import Model

KEPT = 36_000_000  # numbers of a table that is kept between rounds; a larger one is worked through each time
KEPT_APART = 9_000_000  # of one on points that a single history has led to, and the next outcome may lead away from


def method_of(model: Model, points: Points, rows: Tensor, memory: Memory) -> Method:
    """How EIG is computed at these points, judged at a few of the designs and at the extremes of their arguments."""
    if not _is_list(model, rows):
        return _method_of(model, points, rows)
    return memory.get(("method", points.key), lambda: _method_of(model, points, rows), lambda _: 1)


def _method_of(model: Model, points: Points, rows: Tensor) -> Method:
    some = rows if len(rows) <= 64 else rows[torch.linspace(0, len(rows) - 1, 64).round().long()]
    arguments, _ = arguments_at(model, points, some)
    n_integrated = n_integrals(model, arguments, points.log_prior)
    if not can_enumerate(model, arguments, points.log_prior):
        return "bounds"
    return "quadrature" if n_integrated else "enumeration"


def _is_list(model: Model, rows: Tensor) -> bool:
    """Whether these are all designs of a list, which are asked for in every round."""
    return model.space.is_listed and rows is model.space.all()


def blocks(model: Model, points: Points, rows: Tensor, memory: Memory) -> Iterator[Table | Stream]:
    """The table of designs [J, D], in blocks; that of all designs of a list is kept where it is small enough."""
    kept: list[Table] = []
    if _is_list(model, rows):
        kept = memory.get(
            ("table", points.key), lambda: _kept(model, points, rows), lambda made: 1 + sum(t.size for t in made)
        )
    yield from kept or passed(model, points, rows)


def _kept(model: Model, points: Points, rows: Tensor) -> list[Table]:
    """The whole table; nothing, if it is too large."""
    if not is_kept(model, points, rows):
        return []
    n, most = n_outcomes(model, points, rows[:1]), _most(points)
    made: list[Table] = []
    size = first = 0
    while first < len(rows):
        made.append(build(model, points, rows[first : first + max(1, CHUNK // (points.n * (n + 1)))]))
        first, n, size = first + made[-1].n_designs, made[-1].n_outcomes, size + made[-1].size
        if size > most:
            return []
    return _joined(made)


def is_kept(model: Model, points: Points, rows: Tensor) -> bool:
    """Whether the table of designs [J, D] is small enough, as far as a few of them tell."""
    some = rows[torch.linspace(0, len(rows) - 1, 3).round().long()]
    return len(rows) * points.n * (n_outcomes(model, points, some) + 1) <= _most(points)


def _most(points: Points) -> int:
    return KEPT if points.is_common or points.frame is None else KEPT_APART


def passed(model: Model, points: Points, rows: Tensor, by: Placement | None = None) -> Iterator[Table | Stream]:
    """Blocks to be used once, measured by the outcomes of the design before."""
    n = n_outcomes(model, points, rows[:1], by)
    most = CHUNK if points.groups is None else 8 * CHUNK  # a stream is made again for every look at the groups
    first = 0
    while first < len(rows):
        size = points.n * (n + 1)
        some = rows[first : first + max(1, CHUNK // size)]
        made = stream(model, points, some, by) if size > most else build(model, points, some, by)
        yield made
        first, n = first + made.n_designs, made.n_outcomes


def n_outcomes(model: Model, points: Points, rows: Tensor, by: Placement | None = None) -> int:
    """How many there are to go through at these designs."""
    arguments, _ = arguments_at(model, points, rows)
    by = by or Placement(log_mass=points.log_prior)
    return len(place_nodes(model, arguments, by, len(rows)).coordinates)


def _joined(made: list[Table]) -> list[Table]:
    """Neighbours with the same nodes as one table: fewer and larger products in every later round."""
    found: list[list[Table]] = []
    for table in made:
        if found and _alike(found[-1][0], table):
            found[-1].append(table)
        else:
            found.append([table])
    return [_concatenated(run) for run in found]


def _alike(one: Table, other: Table) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in ("n_outcomes", "is_complete", "sums_to_one"))


def _concatenated(run: list[Table]) -> Table:
    first = run[0]
    parts = [table.probs[y] for y in range(first.n_outcomes - first.sums_to_one) for table in run]
    parts += [table.entropies(table.rows) for table in run]
    parts += [table.utilities(table.rows)[i] for i in range(first.n_utilities) for table in run]
    weights = [table.node_weights for table in run if table.node_weights is not None]
    return replace(
        first,
        rows=torch.cat(parts),
        n_designs=sum(table.n_designs for table in run),
        node_weights=torch.cat(weights, 1) if weights else None,
        is_closed=first.sums_to_one,
    )
