"""Designs that are run before their outcomes are known: what another design adds to them.

I(y_1 … y_k; θ) = I(y_1 … y_{k−1}; θ) + E_{y_1 … y_{k−1}} I(y_k; θ | y_1 … y_{k−1}): the belief after each joint outcome
of the members is a column of weights, and a candidate's gain is the average of its EIG over the columns. Joint outcomes
are enumerated as long as there are few, and beyond that drawn. Where outcomes are too precise for the points cells are
fitted to each of a few joint outcomes instead (`design.cells`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch
from torch import Tensor

from bensemble_core.design.belief.belief import NEGLIGIBLE, PointBelief
from bensemble_core.design.belief.gaussian import GaussianBelief, linear_form
from bensemble_core.design.belief.infer import infer
from bensemble_core.design.belief.memory import Memory
from bensemble_core.design.belief.points import Array
from bensemble_core.design.cells.pending import added_gains, rough_gains
from bensemble_core.design.cells.precise import uses_cells
from bensemble_core.design.information.accuracy import by_cells, estimated
from bensemble_core.design.information.bounds import bounds
from bensemble_core.design.information.coarseness import CLOSE, FAR, too_coarse
from bensemble_core.design.information.eig import (
    Estimates,
    bounded,
    estimate,
    grid_error,
    jackknife,
    overlooked,
    resolved,
    weight_columns,
)
from bensemble_core.design.information.nodes import Placement
from bensemble_core.design.information.shelf import method_of
from bensemble_core.design.information.tables import build
from bensemble_core.design.spec.model import Event, Model
from bensemble_core.design.spec.spread import spread
from bensemble_core.randomness import generator

MAX_JOINT = 256  # joint outcomes that are told apart
LEAST = 0.01  # of the weight after a joint outcome, on fewer points, below which these do not see it
LOST = 1e-6  # probability of such outcomes, beyond which fewer points will not do
N_LOOKED_AT = 48  # designs that tell whether outcomes are too precise
LEFT = 0.25  # of what every second point says differently
SMOOTH = 2e-3  # nats by which these may differ, for the error to be smaller by as much again
TINY = 1e-300
MISSED = 0.5  # of all outcomes of a member, without which nothing is known of what it tells


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Members whose outcomes are not known yet, as seen from a belief."""

    belief: PointBelief | GaussianBelief  # of a Gaussian: after the members, which does not depend on their outcomes
    rows: Tensor  # [n, D] the members
    gain: float = 0.0  # joint EIG of the members
    se: float = 0.0
    columns: Tensor | None = None  # [P, O] weights after each joint outcome
    probs: Tensor | None = None  # [O]
    is_sampled: bool = False
    is_too_coarse: bool = False  # the grid, for at least one of the members

    @property
    def is_empty(self) -> bool:
        return self.rows.shape[0] == 0

    def thinned(self) -> "Batch":
        """The same as seen from fewer points, unless joint outcomes are lost between those."""
        if isinstance(self.belief, GaussianBelief):
            return self
        keep = self.belief.telling()
        if self.columns is not None and self.probs is not None:
            is_lost = self.columns[keep].sum(0) < LEAST
            if float(self.probs[is_lost].sum()) > LOST:
                return self.weighty()
        return self._only(self.belief, keep)

    def weighty(self) -> "Batch":
        """The same as seen from all points but those without weight."""
        if isinstance(self.belief, GaussianBelief):
            return self
        return self._only(self.belief, self.belief.weights > self.belief.weights.max() * NEGLIGIBLE)

    def _only(self, belief: PointBelief, keep: Tensor) -> "Batch":
        """On some of the points, without joint outcomes that none of these can have had."""
        if self.columns is None or self.probs is None:
            return replace(self, belief=belief.only(keep))
        columns = self.columns[keep]
        weights = columns.sum(0)
        is_seen = weights > 0
        probs = self.probs[is_seen]
        return replace(
            self,
            belief=belief.only(keep),
            columns=columns[:, is_seen] / weights[is_seen],
            probs=probs / probs.sum(),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class CellBatch:
    """The same where outcomes are too precise for a grid."""

    events: Sequence[Event]
    rows: Tensor  # [n, D] the members
    gain: float = 0.0
    se: float = 0.0

    @property
    def is_empty(self) -> bool:
        return self.rows.shape[0] == 0

    def rough(self, model: Model, rows: Tensor, memory: Memory) -> Array:
        """What designs [J, D] would add, about: [J]."""
        return rough_gains(model, self.events, self._members, rows.numpy(), memory)

    def added(self, model: Model, rows: Tensor, memory: Memory, seed: int) -> Estimates:
        if self.is_empty:
            return estimated(model, self.events, rows, memory, seed=seed)
        return by_cells(*added_gains(model, self.events, self._members, rows.numpy(), memory))

    @property
    def _members(self) -> list[tuple[float, ...]]:
        return [tuple(row) for row in self.rows.tolist()]


def begun(
    model: Model, events: Sequence[Event], memory: Memory, *, seed: int, is_alone: bool, rows: Tensor | None = None
) -> Batch | CellBatch:
    """A batch without members. Whether by cells is judged at designs all over the space and at those given [J, D];
    where no design `is_alone` a grid also has to resolve what the outcomes of others leave."""
    belief = infer(model, events, memory, seed=seed)
    assert isinstance(belief, (PointBelief, GaussianBelief))
    if isinstance(belief, PointBelief) and uses_cells(model):
        some = torch.cat([_over(model, seed), *([] if rows is None else [rows])])
        if belief.points.frame is None or too_coarse(model, belief, some, far=FAR if is_alone else CLOSE).any():
            return CellBatch(events=events, rows=_no_rows(some.shape[1]))
    return empty(model, belief)


def _over(model: Model, seed: int) -> Tensor:
    """Designs all over the space."""
    corners = model.space.corners()
    corners = corners[model.space.admits(corners)]
    return torch.cat([spread(model.space, N_LOOKED_AT, seed), corners[:N_LOOKED_AT]])


def empty(model: Model, belief: PointBelief | GaussianBelief) -> Batch:
    return Batch(belief=belief, rows=_no_rows(len(model.space.names) + model.space.numbered))


@cache
def _no_rows(n_columns: int) -> Tensor:
    return torch.empty(0, n_columns, dtype=torch.float64)


def joined(
    model: Model, batch: Batch | CellBatch, row: Sequence[float], memory: Memory, *, seed: int = 0
) -> Batch | CellBatch:
    """The batch with one more member."""
    added = torch.tensor([list(row)], dtype=torch.float64)
    rows = torch.cat([batch.rows, added])
    own = conditional(model, batch, added, memory, seed=seed)
    if isinstance(batch, CellBatch):
        return replace(batch, rows=rows, gain=batch.gain + float(own.eig[0]), se=batch.se + float(own.se[0]))
    grown = replace(
        batch,
        rows=rows,
        gain=batch.gain + float(own.eig[0]),
        se=batch.se + float(own.se[0]),
        is_too_coarse=batch.is_too_coarse or bool(own.too_coarse[0]),
    )
    if isinstance(batch.belief, GaussianBelief):
        return replace(grown, belief=_told(model, batch.belief, added))
    if own.method == "bounds":
        return grown
    table = build(model, batch.belief.points, added, Placement(log_mass=batch.belief.weights.log()))
    columns = batch.belief.weights[:, None] if batch.columns is None else batch.columns
    probs = torch.ones(1, dtype=torch.float64) if batch.probs is None else batch.probs
    p = table.probs[:, 0]  # [Y, P]
    marginal = p @ columns  # [Y, O]
    weights = marginal if table.node_weights is None else marginal * table.node_weights
    joint = (weights * probs).flatten()  # [Y O]
    if float(joint.sum()) < 1 - MISSED:  # outcomes of the points stand apart, and the nodes lie between them
        return replace(grown, columns=columns, probs=probs, is_too_coarse=True)
    joint = joint / joint.sum()
    chosen, is_sampled = joint.nonzero()[:, 0], batch.is_sampled
    kept = joint[chosen]
    if len(chosen) > MAX_JOINT:
        shift = torch.rand((), generator=generator(seed, len(rows)), dtype=torch.float64)
        u = (torch.arange(MAX_JOINT, dtype=torch.float64) + shift) / MAX_JOINT
        chosen = torch.searchsorted(joint.cumsum(0), u).clamp(max=len(joint) - 1)
        kept, is_sampled = torch.full((MAX_JOINT,), 1 / MAX_JOINT, dtype=torch.float64), True
    outcome, column = chosen // len(probs), chosen % len(probs)
    after = columns[:, column] * p[outcome].mT  # [P, O']
    return replace(grown, columns=after / after.sum(0), probs=kept, is_sampled=is_sampled)


def conditional(model: Model, batch: Batch | CellBatch, rows: Tensor, memory: Memory, *, seed: int = 0) -> Estimates:
    """What each design [J, D] would add to the batch."""
    if isinstance(batch, CellBatch):
        return batch.added(model, rows, memory, seed)
    if batch.is_empty or isinstance(batch.belief, GaussianBelief):
        return estimate(model, batch.belief, rows, memory, seed=seed)
    points = batch.belief.points
    if batch.columns is None or batch.probs is None:
        together = torch.cat([batch.rows.expand(len(rows), *batch.rows.shape), rows[:, None]], 1)
        found = bounded(bounds(model, batch.belief, together, seed=seed))
        return replace(found, eig=np.maximum(found.eig - batch.gain, 0), lower=None, upper=None)
    probs = batch.probs.numpy()
    own = weight_columns(batch.belief)
    own = own[:, :1] if batch.belief.points.groups is not None and batch.belief.method == "particles" else own
    half = _half(batch)
    gained = resolved(model, batch.belief, rows, torch.cat([own, batch.columns, half], 1), memory)
    n, m = own.shape[1], own.shape[1] + len(probs)
    mean, spread = average(gained.eig[:, n:m], probs)
    shift, error = _alone(model, batch, rows, gained.eig[:, :n], memory, seed)
    if half.shape[1]:
        change = np.abs(mean - gained.eig[:, m:] @ probs)
        error = np.maximum(error, LEFT * np.where(change < SMOOTH, change**2 / SMOOTH, change))
    return Estimates(
        eig=np.maximum(mean + shift, 0),
        se=error + overlooked(gained) + spread / len(probs) ** 0.5 * batch.is_sampled,
        method=method_of(model, points, rows, memory),
        too_coarse=too_coarse(model, batch.belief, rows) | batch.is_too_coarse,
        utility=gained.utility[:, n:m] @ probs if model.utility is not None else None,
    )


def _half(batch: Batch) -> Tensor:
    """The columns of a batch on every second point of a grid, by which their error is told; none of other points."""
    assert isinstance(batch.belief, PointBelief)
    assert batch.columns is not None
    strides = batch.belief.points.strides
    if strides is None:
        return batch.columns[:, :0]
    some = torch.zeros_like(batch.columns)
    places = torch.from_numpy(strides[0])
    some[places] = batch.columns[places]
    return some / some.sum(0).clamp(min=TINY)


def average(by_column: Array, probs: Array) -> tuple[Array, Array]:
    """Mean and spread over the columns: [J] each."""
    mean = by_column @ probs
    return mean, np.sqrt((by_column - mean[:, None]) ** 2 @ probs)


def _alone(
    model: Model, batch: Batch, rows: Tensor, by_column: Array, memory: Memory, seed: int
) -> tuple[Array, Array]:
    """How far points are off, judged by designs [J, D] on their own: what to add, and the error that is left.

    After an outcome of the members fewer particles are effective, and the error is greater by as much.
    """
    assert isinstance(batch.belief, PointBelief)
    nothing = np.zeros(len(rows))
    if batch.belief.method != "particles":
        return nothing, grid_error(by_column)
    assert batch.columns is not None
    assert batch.probs is not None
    thinner = float(batch.columns.square().sum(0) @ batch.probs / batch.belief.weights.square().sum())
    if batch.belief.points.groups is None:
        return nothing, thinner * jackknife(by_column)[1]
    exact = estimate(model, batch.belief, rows, memory, seed=seed)
    shift = exact.eig - by_column[:, 0]
    return shift, thinner * (exact.se + np.abs(shift))


def _told(model: Model, belief: GaussianBelief, rows: Tensor) -> GaussianBelief:
    """The spread after these designs; whatever comes out, it is the same."""
    _, slopes, sd = linear_form(model, rows)
    x = (slopes / sd[..., None]).flatten(0, 1)
    gram = torch.eye(len(x), dtype=torch.float64) + x @ belief.spread @ x.mT
    left = belief.spread - belief.spread @ x.mT @ torch.linalg.solve(gram, x @ belief.spread)
    return replace(belief, spread=(left + left.mT) / 2)
