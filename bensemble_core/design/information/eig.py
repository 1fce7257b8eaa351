"""Expected information gain, EIG(ξ) = I(y; φ | ξ) for the targets φ ⊂ θ (Lindley 1956), in nats, with its error.

    EIG(ξ) = H[p̄(y | ξ)] − E_φ H[p(y | φ, ξ)]
    p̄(y) = Σ_p w_p p(y | θ_p),    p(y | φ) = Σ_{p: φ_p = φ} w_p p(y | θ_p) / w_φ

with the sum over y an enumeration or a quadrature. Columns of weights are worked through together: the belief's own,
and those from which the error is read (every second and every fourth point of a grid; all draws but a sixteenth).
After the one large product everything is small, and in numpy, whose small operations cost a fraction of torch's.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bensemble_core.design.belief.belief import Belief, PointBelief
from bensemble_core.design.belief.convergence import remaining
from bensemble_core.design.belief.gaussian import GaussianBelief, gaussian_eig
from bensemble_core.design.belief.memory import Memory
from bensemble_core.design.belief.neighbours import neighbourhoods
from bensemble_core.design.belief.points import N_PARTS, Array, Points
from bensemble_core.design.information.bounds import bounds
from bensemble_core.design.information.coarseness import NOTE, Flags, too_coarse
from bensemble_core.design.information.expected_utility import average, beyond, rings
from bensemble_core.design.information.nodes import N_PANELS
from bensemble_core.design.information.tables import Method, Table, method_of, passed, tables
from bensemble_core.design.spec.model import Model

ROUNDING = 1e-14
TINY = 1e-300
MISSED = {1: 1e-6}  # of a quadrature, in nats, beyond which its nodes are placed anew, by the axes of the grid
MISSED_BY_MORE = 1e-4
STEADY = 0.02  # nats by which half of the draws of nuisances may differ, for what is left to be as little


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """EIG of one design in nats. `se` is how far it may be off: a standard error where particles or samples are used,
    an estimate of the error of grid and quadrature elsewhere, 0 in closed form. It is None where the grid is too coarse
    for how precise the outcome is: `method` is then "coarse_grid", and `note` says so.

    `lower` and `upper` are bounds in expectation, where it was bounded by sampling. `utility` is E[U] where the spec
    states one. `cost` is the design's.
    """

    eig: float
    se: float | None
    method: Method
    cost: float = 1.0
    utility: float | None = None
    lower: float | None = None
    upper: float | None = None
    note: str | None = None

    @property
    def score(self) -> float:
        """What is maximised: utility or else EIG, for its cost."""
        return (self.eig if self.utility is None else self.utility) / self.cost


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimates:
    """Estimates of many designs as arrays [J]. Those of a grid that is `too_coarse` have an `se` to work with, which is
    not stated."""

    eig: Array
    se: Array
    method: Method
    too_coarse: Flags
    utility: Array | None = None
    lower: Array | None = None
    upper: Array | None = None
    by_cells: Flags | None = None  # where the outcome is too precise for the grid, and cells were taken instead

    @property
    def value(self) -> Array:
        """What `se` is the error of: utility, or else EIG."""
        return self.eig if self.utility is None else self.utility

    def with_some(self, places: npt.NDArray[np.int64], new: "Estimates") -> "Estimates":
        """Those at some places [n] replaced."""
        made: dict[str, Any] = {}
        for name in ("eig", "se", "too_coarse", "utility", "by_cells"):
            values, given = getattr(self, name), getattr(new, name)
            if given is not None:
                made[name] = np.zeros(len(self.eig), dtype=given.dtype) if values is None else values.copy()
                made[name][places] = given
        return replace(self, **made)

    def stated(self, place: int) -> dict[str, Any]:
        """Error, method and note of one design, in the words of `Estimate`."""
        if self.too_coarse[place]:
            return {"se": None, "method": "coarse_grid", "note": NOTE}
        is_by_cells = self.by_cells is not None and bool(self.by_cells[place])
        return {"se": float(self.se[place]), "method": "cells" if is_by_cells else self.method, "note": None}

    def listed(self, costs: Tensor) -> list[Estimate]:
        def at(x: Array | None, place: int) -> float | None:
            return None if x is None else float(x[place])

        return [
            Estimate(
                eig=float(self.eig[place]),
                cost=cost,
                utility=at(self.utility, place),
                lower=at(self.lower, place),
                upper=at(self.upper, place),
                **self.stated(place),
            )
            for place, cost in enumerate(costs.tolist())
        ]


def plain_estimates(eig: Array, se: Array, method: Method) -> Estimates:
    return Estimates(eig=eig, se=se, method=method, too_coarse=np.zeros(len(eig), dtype=np.bool_))


def estimate(model: Model, belief: Belief, rows: Tensor, memory: Memory, *, seed: int = 0) -> Estimates:
    """EIG of each design [J, D] under a belief, by the best way there is."""
    if isinstance(belief, GaussianBelief):
        eig = gaussian_eig(model, belief, rows).numpy()
        return plain_estimates(eig, np.zeros_like(eig), "linear_gaussian")
    assert isinstance(belief, PointBelief)
    method = method_of(model, belief.points, rows, memory)
    if method == "bounds":
        return bounded(model, belief, rows, seed=seed)
    is_drawn = belief.method == "particles" and belief.points.n % N_PARTS == 0
    columns = None if is_drawn else weight_columns(belief)
    n = 1 + N_PARTS if columns is None else columns.shape[1]
    if columns is not None and model.utility is not None and belief.points.half is not None:
        columns = torch.cat([columns, belief.weights[:, None] * torch.from_numpy(rings(belief.points))], 1)
    found = gains(model, belief, rows, columns, memory)
    (eig, se), utility = judged(found.eig[:, :n]), None
    if belief.points.groups is None and model.prior.nuisances:
        shift, error = nuisance_gain(model, belief, rows)
        eig, se = eig - shift, se + error
    if model.utility is not None:
        utility, se = found.utility[:, 0], utility_error(found.utility, n)
    return Estimates(
        eig=np.maximum(eig, 0),
        se=se + (found.missing if utility is None else found.utility_error),
        method=method,
        too_coarse=too_coarse(model, belief, rows),
        utility=utility,
    )


def bounded(model: Model, belief: PointBelief, rows: Tensor, *, seed: int) -> Estimates:
    """By sampling, of designs [J, D] or batches [J, n, D]."""
    found = bounds(model, belief, rows, seed=seed)
    se = found.se if found.utility_se is None else found.utility_se
    return replace(
        plain_estimates(found.middle.numpy(), se.numpy(), "bounds"),
        lower=found.lower.numpy(),
        upper=found.upper.numpy(),
        utility=None if found.utility is None else found.utility.numpy(),
    )


def weight_columns(belief: PointBelief) -> Tensor:
    """The belief's weights, and those of every second and every fourth point of a grid: [P, c]."""
    w = belief.weights[:, None]
    if belief.points.half is None or belief.points.quarter is None:
        return w
    parts = torch.stack([belief.points.half, belief.points.quarter], 1) * w
    return torch.cat([w, parts / parts.sum(0).clamp(min=TINY)], 1)


def judged(by_column: Array) -> tuple[Array, Array]:
    """Value and error from what `weight_columns` or parts of draws give: [J, c] -> [J] twice.

    Of draws by the jackknife: entropies of averages over n of them are off by c / n, which the difference tells
    (Quenouille 1956); less evenly so for Sobol points than for independent ones, hence a third of the correction counts
    as an error.
    """
    whole, others = by_column[:, 0], by_column[:, 1:]
    if others.shape[1] < N_PARTS:
        return whole, remaining(whole, *others.T) if others.shape[1] else np.zeros(len(whole))
    mean = others.mean(1)
    spread = np.sqrt((N_PARTS - 1) / N_PARTS * ((others - mean[:, None]) ** 2).sum(1))
    correction = (N_PARTS - 1) * (whole - mean)
    return whole + correction, np.hypot(spread, correction / 3)


@dataclass(frozen=True, kw_only=True, eq=False)
class Gains:
    eig: Array  # [J, c]
    missing: Array  # [J] what nodes over y and nuisances leave out and rounding adds, in nats
    utility: Array  # [J, c], empty without a utility
    utility_error: Array  # [J] of integrals over y


def gains(model: Model, belief: PointBelief, rows: Tensor, columns: Tensor | None, memory: Memory) -> Gains:
    """EIG of designs [J, D] under each column of weights [P, c], the first of which covers all others, or of draws from
    all and from all but a sixteenth.

    Nodes lie where the outcomes of points do. Where the belief holds but a few of the points, as with several narrow
    peaks far apart, hardly any lie where something can come out: designs at which that shows are looked at again with
    nodes placed by the belief, and then with more of them.
    """
    points, weights = belief.points, belief.weights[:, None] if columns is None else columns

    def look(made: Iterable[Table]) -> Gains:
        parts = [_by_part(table, belief) if columns is None else _by_column(table, columns, points) for table in made]
        return Gains(
            **{name: np.concatenate([getattr(part, name) for part in parts]) for name in Gains.__annotations__}
        )

    enough = MISSED.get(model.prior.n_scores, MISSED_BY_MORE)
    found = look(tables(model, points, rows, memory, weights))
    for n_panels in (N_PANELS, 4 * N_PANELS):
        some = (found.missing > enough).nonzero()[0] if model.utility is None else np.empty(0, dtype=np.int64)
        if not len(some) or method_of(model, points, rows, memory) != "quadrature":
            break
        weighty = (weights.amax(1) > 0).nonzero()[:, 0]
        again = look(passed(model, points, rows[torch.from_numpy(some)], weighty, weights[:, 0].log(), n_panels))
        kept = again.missing < found.missing[some]
        found.eig[some[kept]], found.missing[some[kept]] = again.eig[kept], again.missing[kept]
    return found


def _by_column(table: Table, columns: Tensor, points: Points) -> Gains:
    sums = table.sums(columns, points.groups, points.n_groups)  # [R, G, c]
    whole = sums.sum(1)
    given = table.entropies(whole) if points.groups is None else _by_group(table, sums, columns, points).sum(1)
    return _gains(table, whole, given)


def _by_part(table: Table, belief: PointBelief) -> Gains:
    """Of draws: columns [1 + 16]."""
    points, weights = belief.points, belief.weights[:, None]
    mass = _without(belief.mass.reshape(N_PARTS, -1).sum(1))  # [1 + 16]
    if points.groups is None:
        part = torch.arange(points.n) * N_PARTS // points.n
        whole = _without(table.sums(weights, part, N_PARTS)[..., 0]) / mass
        return _gains(table, whole, table.entropies(whole))
    columns = weights if points.half_nodes is None else torch.cat([weights, weights * points.half_nodes[:, None]], 1)
    sums = table.sums(columns, points.groups, points.n_groups)
    whole = _without(sums[..., 0].reshape(len(sums), N_PARTS, -1).sum(2)) / mass
    by_group = _by_group(table, sums, columns, points)  # [J, G, c]
    given = _without(by_group[..., 0].reshape(len(by_group), N_PARTS, -1).sum(2)) / mass
    if points.half_nodes is None:
        return _gains(table, whole, given)
    share = _shares(points, columns)  # [G, c]
    halved = by_group[..., 1] * np.divide(share[:, 0], share[:, 1], out=np.zeros(len(share)), where=share[:, 1] > 0)
    change = given - _without(halved.reshape(len(halved), N_PARTS, -1).sum(2)) / mass  # by half the nodes of nuisances
    if not points.is_nested:
        found = _gains(table, whole, given)
        return replace(found, missing=found.missing + np.minimum(np.abs(change[:, 0]), 10 * change[:, 0] ** 2))
    found = _gains(table, whole, given + change)  # an entropy of an average over n draws is off by c / n
    off = np.abs(change[:, 0])  # nearly all of it is left where outcomes of single draws stand apart
    return replace(found, missing=found.missing + off / 3 * (1 + np.minimum(off / STEADY, 8.0)))


def _without(parts: Array) -> Array:
    """The sum of all parts, and the sum without each: [..., 16] -> [..., 1 + 16]."""
    whole = parts.sum(-1, keepdims=True)
    return np.concatenate([whole, whole - parts], -1)


def _gains(table: Table, whole: Array, given: Array) -> Gains:
    """From the sums over all points [R, c], and E_φ H[y | φ] [J, c]."""
    marginal = table.probs(whole)
    missing = np.full(table.n_designs, ROUNDING)
    if not table.is_complete:
        weights = None if table.node_weights is None else table.node_weights.numpy()
        mass = (marginal[..., 0] if weights is None else weights * marginal[..., 0]).sum(0)
        short = np.abs(1 - mass)
        lacks = 1 + np.abs(np.log(np.maximum(short, TINY)))
        if weights is not None:  # what is not seen can tell as much as fits into the range of the outcomes
            lacks = lacks + np.maximum(np.log(weights.sum(0)) - given[:, 0], 0)
        missing = missing + short * lacks
    stated = table.utilities(whole)
    if table.n_utilities > 1:
        utility, error = average(stated)
    else:
        utility = stated.reshape(table.n_utilities * table.n_designs, whole.shape[1])
        error = np.zeros(table.n_designs)
    return Gains(eig=entropy(table, marginal) - given, missing=missing, utility=utility, utility_error=error + ROUNDING)


def entropy(table: Table, p: Array) -> Array:
    """−Σ_y ω p log p over the first axis."""
    terms: Array = -p * np.log(np.maximum(p, TINY))  # in a third of the time of scipy's entr
    if table.node_weights is not None:
        terms *= table.node_weights.numpy().reshape(*table.node_weights.shape, *(1,) * (p.ndim - 2))
    return np.asarray(terms.sum(0))


def _by_group(table: Table, sums: Array, columns: Tensor, points: Points) -> Array:
    """w_φ H[p(y | φ)] of each group of equal targets, over which nuisances are averaged: [J, G, c]."""
    share = _shares(points, columns)
    averages = np.divide(sums, share, out=np.zeros_like(sums), where=share > 0)
    return np.asarray(entropy(table, table.probs(averages)) * share)


def _shares(points: Points, columns: Tensor) -> Array:
    """The weight of each group: [G, c]."""
    assert points.groups is not None
    return np.asarray(
        torch.zeros(points.n_groups, columns.shape[1], dtype=torch.float64)
        .index_add_(0, points.groups, columns)
        .numpy()
    )


def nuisance_gain(model: Model, belief: PointBelief, rows: Tensor) -> tuple[Array, Array]:
    """I(y; η | φ) of the nuisances at designs [J, D] by neighbourhoods of equal targets, and its error: [J] twice.

    I(y; φ) = I(y; θ) − I(y; η | φ): entropies at single φ vary much more than what η adds there. An entropy of an
    average over n neighbours is off by c / n, which their halves tell; and what the nearer half and the farther one
    differ by is how far neighbours lie apart.
    """
    grouped = neighbourhoods(model.prior, belief)
    points, weights = grouped.points, grouped.weights
    assert points.half_nodes is not None
    columns = torch.stack([weights, weights * points.half_nodes, weights * ~points.half_nodes], 1)
    share = _shares(points, columns)  # [G, 3]
    found = []
    for table in passed(model, points, rows, torch.arange(points.n), weights.log()):
        sums = table.sums(columns, points.groups, points.n_groups) / np.maximum(share, TINY)
        gain = (entropy(table, table.probs(sums)) - table.entropies(sums)) * (share / share.sum(0))  # [J, G, 3]
        whole, near, far = gain.sum(1).T
        spread = np.zeros(len(gain))
        if points.n_groups % N_PARTS == 0:
            spread = gain[..., 0].reshape(len(gain), N_PARTS, -1).sum(2).std(1, ddof=1) * N_PARTS**0.5
        correction = whole - 0.5 * (near + far)
        found.append(np.stack([whole + correction, spread + 0.5 * np.abs(near - far) + 0.5 * np.abs(correction)]))
    value, error = np.concatenate(found, 1)
    return np.maximum(value, 0.0), error


def utility_error(by_column: Array, n: int) -> Array:
    """Of an expected utility over the points, by the first n columns and what the rings of a grid give: [J]."""
    _, se = judged(by_column[:, :n])
    others = by_column[:, 1:n]
    if n == 3:  # it may bend in θ: the error need not be the square of the last change
        return np.maximum(se, np.abs(by_column[:, 0] - others[:, 0])) + beyond(*by_column[:, n:].T)
    if n == 1:
        return se
    # of a heavy tail the part with the largest contribution stands for others that no draw has
    return np.asarray(se + np.abs(others - others.mean(1, keepdims=True)).max(1))


def weighted(by_column: Array, probs: Sequence[float] | Array) -> tuple[Array, Array]:
    """Mean and spread over columns with probabilities: [J, c] -> [J] twice."""
    mean = by_column @ np.asarray(probs)
    return mean, np.sqrt((by_column - mean[:, None]) ** 2 @ np.asarray(probs))
