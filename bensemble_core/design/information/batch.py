"""Designs that are run before their outcomes are known: what another design adds to them.

I(y_1 … y_k; φ) = I(y_1 … y_{k−1}; φ) + E_{y_1 … y_{k−1}} I(y_k; φ | y_1 … y_{k−1}): the belief after each joint outcome
of the members is a column of weights, and a candidate's gain is the average of its EIG over the columns. Joint outcomes
are enumerated as long as there are few, and beyond that drawn. Where outcomes are too precise for the points cells are
fitted to each of a few joint outcomes instead (`design.cells`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from bensemble_core.design.belief.belief import PointBelief
from bensemble_core.design.belief.gaussian import GaussianBelief, spread_after
from bensemble_core.design.belief.infer import infer
from bensemble_core.design.belief.memory import Memory
from bensemble_core.design.belief.neighbours import neighbourhoods
from bensemble_core.design.belief.points import Array
from bensemble_core.design.cells.pending import added_gains, rough_gains
from bensemble_core.design.cells.precise import uses_cells
from bensemble_core.design.information.accuracy import estimated
from bensemble_core.design.information.coarseness import CLOSE, FAR, too_coarse
from bensemble_core.design.information.eig import Estimates, bounded, estimate, gains, plain_estimates, weighted
from bensemble_core.design.information.tables import method_of, passed
from bensemble_core.design.spec.model import Event, Model
from bensemble_core.design.spec.spread import spread
from bensemble_core.randomness import generator

MAX_JOINT = 256  # joint outcomes that are told apart
N_LOOKED_AT = 48  # designs that tell whether outcomes are too precise
LEFT = 0.25  # of what every second point says differently
SMOOTH = 2e-3  # nats by which these may differ, for the error to be smaller by as much again
TINY = 1e-300
MISSED = 0.5  # of all outcomes of a member, without which nothing is known of what it tells
LEAST = 0.01  # of the weight after a joint outcome, on fewer points, below which these do not see it


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Members whose outcomes are not known yet, as seen from a belief."""

    belief: PointBelief | GaussianBelief  # of a Gaussian: after the members, which does not depend on their outcomes
    alone: PointBelief | GaussianBelief  # what single designs are valued by: draws without groups, of which it has some
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

    def fewer(self) -> "Batch":
        """The same as seen from fewer points, unless joint outcomes are lost between those."""
        if isinstance(self.belief, GaussianBelief):
            return self
        keep = self.belief.telling()
        if self.columns is None:
            some = self.belief.only(keep)
            return replace(self, belief=some, alone=some)
        weights = self.columns[keep].sum(0)
        if bool((weights < LEAST).any()):
            return self
        return replace(self, belief=self.belief.only(keep), columns=self.columns[keep] / weights)


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
        return plain_estimates(*added_gains(model, self.events, self._members, rows.numpy(), memory), "cells")

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
    no_rows = torch.empty(0, len(model.space.names) + model.space.numbered, dtype=torch.float64)
    if isinstance(belief, PointBelief) and uses_cells(model):
        corners = model.space.corners()
        some = torch.cat([spread(model.space, N_LOOKED_AT, seed), corners[model.space.admits(corners)][:N_LOOKED_AT]])
        some = some if rows is None else torch.cat([some, rows])
        far = FAR if is_alone else CLOSE
        if method_of(model, belief.points, some, memory) == "bounds":
            return CellBatch(events=events, rows=no_rows)
        if belief.method == "particles" or too_coarse(model, belief, some, far=far).any():
            return CellBatch(events=events, rows=no_rows)
    alone = belief
    if isinstance(belief, PointBelief) and model.prior.nuisances and belief.points.groups is None and not is_alone:
        belief = neighbourhoods(model.prior, belief)
    return Batch(belief=belief, alone=alone, rows=no_rows)


def joined(
    model: Model, batch: Batch | CellBatch, row: Sequence[float], memory: Memory, *, seed: int = 0
) -> Batch | CellBatch:
    """The batch with one more member."""
    added = torch.tensor([list(row)], dtype=torch.float64)
    own = conditional(model, batch, added, memory, seed=seed)
    gain, se = batch.gain + float(own.eig[0]), batch.se + float(own.se[0])
    grown = replace(batch, rows=torch.cat([batch.rows, added]), gain=gain, se=se)
    if isinstance(grown, CellBatch):
        return grown
    grown = replace(grown, is_too_coarse=grown.is_too_coarse or bool(own.too_coarse[0]))
    if isinstance(grown.belief, GaussianBelief):
        shrunk = spread_after(model, grown.belief, added)
        return replace(grown, belief=shrunk, alone=shrunk)
    if own.method == "bounds":
        return grown
    belief, points = grown.belief, grown.belief.points
    columns = belief.weights[:, None] if grown.columns is None else grown.columns
    probs = torch.ones(1, dtype=torch.float64) if grown.probs is None else grown.probs
    (table,) = passed(model, points, added, torch.arange(points.n), belief.weights.log())
    rows = torch.cat([rows for _, rows in table.pieces()], 1).numpy()
    p = torch.from_numpy(table.probs(rows)[:, 0])  # [Y, P]
    marginal = p @ columns  # [Y, O]
    weights = marginal if table.node_weights is None else marginal * table.node_weights
    joint = (weights * probs).flatten()  # [Y O]
    if float(joint.sum()) < 1 - MISSED:  # outcomes of the points stand apart, and the nodes lie between them
        return replace(grown, columns=columns, probs=probs, is_too_coarse=True)
    joint = joint / joint.sum()
    chosen, is_sampled = joint.nonzero()[:, 0], grown.is_sampled
    kept = joint[chosen]
    if len(chosen) > MAX_JOINT:
        shift = torch.rand((), generator=generator(seed, len(grown.rows)), dtype=torch.float64)
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
        return estimate(model, batch.alone, rows, memory, seed=seed)
    belief = batch.belief
    if batch.columns is None or batch.probs is None:
        together = torch.cat([batch.rows.expand(len(rows), *batch.rows.shape), rows[:, None]], 1)
        found = bounded(model, belief, together, seed=seed)
        return replace(found, eig=np.maximum(found.eig - batch.gain, 0), lower=None, upper=None)
    probs, n = batch.probs.numpy(), batch.columns.shape[1]
    half = batch.columns[:, :0] if belief.points.half is None else batch.columns * belief.points.half[:, None]
    columns = torch.cat([belief.weights[:, None], batch.columns, half / half.sum(0).clamp(min=TINY)], 1)
    by_outcome = gains(model, belief, rows, columns, memory)
    mean, spread = weighted(by_outcome.eig[:, 1 : 1 + n], probs)
    error, shift = np.zeros(len(rows)), np.zeros(len(rows))
    if belief.points.half is not None:
        change = np.abs(mean - by_outcome.eig[:, 1 + n :] @ probs)
        error = LEFT * np.where(change < SMOOTH, change**2 / SMOOTH, change)
    elif belief.method == "particles":  # fewer of them are effective after an outcome, and the error is greater
        alone = estimate(model, batch.alone, rows, memory, seed=seed)
        shift = alone.eig - by_outcome.eig[:, 0]
        thinner = float(batch.columns.square().sum(0) @ batch.probs / belief.weights.square().sum())
        error = thinner * (alone.se + np.abs(shift))
    return Estimates(
        eig=np.maximum(mean + shift, 0),
        se=error + by_outcome.missing + spread / len(probs) ** 0.5 * batch.is_sampled,
        method=method_of(model, belief.points, rows, memory),
        too_coarse=too_coarse(model, belief, rows) | batch.is_too_coarse,
        utility=by_outcome.utility[:, 1 : 1 + n] @ probs if model.utility is not None else None,
    )
