"""Expected information gain, EIG(ξ) = I(y; φ | ξ) for the targets φ ⊂ θ (Lindley 1956), in nats, with its error.

    EIG(ξ) = H[p̄(y | ξ)] − E_φ H[p(y | φ, ξ)]
    p̄(y) = Σ_p w_p p(y | θ_p),    p(y | φ) = Σ_{p: φ_p = φ} w_p p(y | θ_p) / w_φ

with the sum over y an enumeration or a quadrature. Columns of weights are worked through together: the belief's own,
and those from which the error is read (every second point of a grid; eighths of a cloud of particles). After the one
large product everything is small, and in numpy, whose small operations cost a fraction of torch's.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy import special
from torch import Tensor

from bensemble_core.design.belief import Belief, PointBelief
from bensemble_core.design.bounds import Bounds, bounds
from bensemble_core.design.convergence import remaining
from bensemble_core.design.gaussian import GaussianBelief, gaussian_eig
from bensemble_core.design.memory import Memory
from bensemble_core.design.model import Model
from bensemble_core.design.points import Array, Points
from bensemble_core.design.shelf import blocks, method_of
from bensemble_core.design.tables import Layout, Method, Stream, Table

N_PARTS = 8  # of a cloud, to see how much its estimates vary
ROUNDING = 1e-14
LOG_TINY = 40.0  # −p log p changes by so many times what a p changes by, unless that is smaller still


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """EIG of one design in nats. `se` is how far it may be off: a standard error where particles or samples are used,
    an estimate of the error of grid and quadrature elsewhere, 0 in closed form.

    `lower` and `upper` are bounds in expectation, where it was bounded by sampling. `utility` is E[U] where the spec
    states one. `cost` is the design's.
    """

    eig: float
    se: float
    method: Method
    cost: float = 1.0
    utility: float | None = None
    lower: float | None = None
    upper: float | None = None

    @property
    def score(self) -> float:
        """What is maximised: utility or else EIG, for its cost."""
        return (self.eig if self.utility is None else self.utility) / self.cost


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimates:
    """Estimates of many designs as arrays [J]."""

    eig: Array
    se: Array
    method: Method
    utility: Array | None = None
    lower: Array | None = None
    upper: Array | None = None

    def listed(self, costs: Tensor) -> list[Estimate]:
        def column(x: Array | None) -> Sequence[float | None]:
            return [None] * len(self.eig) if x is None else x.tolist()

        return [
            Estimate(eig=e, se=s, method=self.method, cost=c, utility=u, lower=low, upper=high)
            for e, s, c, u, low, high in zip(
                self.eig.tolist(),
                self.se.tolist(),
                costs.tolist(),
                column(self.utility),
                column(self.lower),
                column(self.upper),
                strict=True,
            )
        ]


def estimate(model: Model, belief: Belief, rows: Tensor, memory: Memory, *, seed: int = 0) -> Estimates:
    """EIG of each design [J, D] under a belief, by the best way there is."""
    if isinstance(belief, GaussianBelief):
        eig = gaussian_eig(model, belief, rows).numpy()
        return Estimates(eig=eig, se=np.zeros_like(eig), method="linear_gaussian")
    assert isinstance(belief, PointBelief)
    method = method_of(model, belief.points, rows, memory)
    if method == "bounds":
        return bounded(bounds(model, belief, rows, seed=seed))
    columns = weight_columns(belief)
    parts = [gains(table, columns, belief.points) for table in blocks(model, belief.points, rows, memory)]
    by_column = joined([part.eig for part in parts])  # [J, c]
    utility = joined([part.utility for part in parts]) if model.utility is not None else None  # [J, c]
    return Estimates(
        eig=np.maximum(by_column[:, 0], 0),
        se=_error(by_column if utility is None else utility, belief) + joined([part.missing for part in parts]),
        method=method,
        utility=None if utility is None else utility[:, 0],
    )


def bounded(found: Bounds) -> Estimates:
    return Estimates(
        eig=found.middle.numpy(),
        se=found.se.numpy(),
        method="bounds",
        lower=found.lower.numpy(),
        upper=found.upper.numpy(),
        utility=None if found.utility is None else found.utility.numpy(),
    )


def joined(parts: list[Array]) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


@dataclass(frozen=True, kw_only=True, eq=False)
class Gains:
    eig: Array  # [J, c]
    missing: Array  # [J] what the nodes over y leave out and rounding adds, in nats
    utility: Array  # [J, c], empty without a utility


def weight_columns(belief: PointBelief) -> Tensor:
    """The belief's weights, then those from which its error is read: [P, c]."""
    w = belief.mass
    if belief.points.strides is not None:
        columns = np.zeros((len(w), 3))
        columns[:, 0] = w
        for column, places in enumerate(belief.points.strides, 1):
            some = w[places]
            columns[places, column] = some / (some.sum() or 1.0)
        return torch.from_numpy(columns)
    if belief.method == "particles":
        # blocks of neighbours: each is spread over the prior, where every eighth Sobol point is not
        part = np.arange(len(w)) * N_PARTS // len(w)
        split = w[:, None] * (part[:, None] == np.arange(N_PARTS))
        return torch.from_numpy(np.concatenate([w[:, None], split / split.sum(0)], 1))
    return belief.weights[:, None]


def gains(table: Table | Stream, columns: Tensor, points: Points) -> Gains:
    """EIG of a block of designs under each column of weights [P, c]: one matrix product."""
    product: Array = table.times(columns).numpy()  # [(Y + …) J, c]
    marginal = _marginals(table, product)
    given = table.entropies(product) if points.groups is None else _grouped(table, columns, points)
    missing = np.full(table.n_designs, ROUNDING + LOG_TINY * table.n_outcomes * table.error)
    if not table.is_complete:
        mass = marginal[..., 0] if table.node_weights is None else table.node_weights.numpy() * marginal[..., 0]
        short = np.abs(1 - mass.sum(0))
        missing = missing + short * (1 + np.abs(np.log(np.maximum(short, 1e-300))))
    return Gains(eig=_entropy(marginal, table) - given, missing=missing, utility=table.utilities(product))


def _marginals(table: Layout, product: Array) -> Array:
    """p(y) from what the table gave for columns of weights that sum to 1: [Y, J, c]."""
    found = table.outcomes(product)
    if not table.is_closed:
        return found
    whole = np.empty((table.n_outcomes, *found.shape[1:]))
    whole[:-1] = found
    np.maximum(1 - (found[0] if len(found) == 1 else found.sum(0)), 0, out=whole[-1])
    return whole


def _entropy(p: Array, table: Layout) -> Array:
    """−Σ_y ω p log p over the first axis."""
    terms: Array = special.entr(np.maximum(p, 0))  # what is mixed from other rows may be a rounding below 0
    if table.node_weights is not None:
        terms *= table.node_weights.numpy().reshape(*table.node_weights.shape, *(1,) * (p.ndim - 2))
    return np.asarray(terms.sum(0))


def _grouped(table: Table | Stream, columns: Tensor, points: Points) -> Array:
    """E_φ H[p(y | φ)]: nuisances are averaged within each group of equal targets: [J, c]."""
    found = []
    for weights in columns.unbind(1):
        given, total = _within(table, weights, points)
        found.append(_entropy(_marginals(table, given.numpy()), table) @ total.numpy())
    return np.stack(found, 1)


def _within(table: Table | Stream, weights: Tensor, points: Points) -> tuple[Tensor, Tensor]:
    """The table averaged within groups of equal targets, [(Y + …) J, G], and the weight of each group [G]."""
    assert points.groups is not None
    total = torch.from_numpy(np.bincount(points.groups.numpy(), weights.numpy(), points.n_groups))
    inside = total > 0
    return table.by_group(weights)[:, inside] / total[inside], total[inside]


def _error(by_column: Array, belief: PointBelief) -> Array:
    """How far the first column may be off: [J, c] -> [J]."""
    if by_column.shape[1] == 1:
        return np.zeros(len(by_column))
    if belief.method == "particles":
        return np.asarray(by_column[:, 1:].std(1, ddof=1) / math.sqrt(N_PARTS))
    return remaining(*by_column.T)


def slope(table: Table, columns: Tensor, points: Points) -> tuple[Tensor, Tensor]:
    """EIG and utility like those of `gains`, in torch and with gradients, of a table that was just built: [J, c]."""
    product = table.times(columns)
    eig = _smooth_entropy(table.outcomes(product), table)
    if points.groups is None:
        return eig - table.entropies(product), table.utilities(product)
    terms = []
    for weights in columns.unbind(1):
        given, total = _within(table, weights, points)
        terms.append(_smooth_entropy(table.outcomes(given), table) @ total)
    return eig - torch.stack(terms, 1), table.utilities(product)


def _smooth_entropy(p: Tensor, table: Layout) -> Tensor:
    """−Σ_y ω p log p over the first axis; p = 0 gives 0, in value and gradient."""
    terms = torch.special.entr(p.clamp(min=1e-300))
    if table.node_weights is None:
        return terms.sum(0)  # type: ignore[no-any-return]
    return (terms * table.node_weights.reshape(*table.node_weights.shape, *(1,) * (p.ndim - 2))).sum(0)  # type: ignore[no-any-return]
