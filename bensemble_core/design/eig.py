"""Expected information gain, EIG(ξ) = I(y; φ | ξ) for the targets φ ⊂ θ (Lindley 1956), in nats, with its error.

    EIG(ξ) = H[p̄(y | ξ)] − E_φ H[p(y | φ, ξ)]
    p̄(y) = Σ_p w_p p(y | θ_p),    p(y | φ) = Σ_{p: φ_p = φ} w_p p(y | θ_p) / w_φ

with the sum over y an enumeration or a quadrature. Columns of weights are worked through together: the belief's own,
and those from which the error is read (every second point of a grid; eighths of a cloud of particles).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bensemble_core.design.belief import Belief, PointBelief
from bensemble_core.design.bounds import bounds
from bensemble_core.design.gaussian import GaussianBelief, gaussian_eig
from bensemble_core.design.memory import Memory
from bensemble_core.design.model import Model
from bensemble_core.design.points import Points
from bensemble_core.design.tables import Method, Table, blocks, method_of

N_PARTS = 8  # of a cloud, to see how much its estimates vary
ROUNDING = 1e-14


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
    """Estimates of many designs as tensors [J]."""

    eig: Tensor
    se: Tensor
    method: Method
    utility: Tensor | None = None
    lower: Tensor | None = None
    upper: Tensor | None = None

    def listed(self, costs: Tensor) -> list[Estimate]:
        def column(x: Tensor | None) -> Sequence[float | None]:
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
        eig = gaussian_eig(model, belief, rows)
        return Estimates(eig=eig, se=torch.zeros_like(eig), method="linear_gaussian")
    assert isinstance(belief, PointBelief)
    method = _method(model, belief.points, rows, memory)
    if method == "bounds":
        found = bounds(model, belief, rows, seed=seed)
        return Estimates(
            eig=found.middle, se=found.se, method="bounds", lower=found.lower, upper=found.upper, utility=found.utility
        )
    columns = weight_columns(belief)
    parts = [gains(table, columns, belief.points) for table in blocks(model, belief.points, rows, memory)]
    by_column = _joined([part.eig for part in parts])  # [J, c]
    missing = _joined([part.missing for part in parts])
    utility = _joined([part.utility for part in parts]) if model.utility is not None else None  # [J, c]
    return Estimates(
        eig=by_column[:, 0].clamp(min=0),
        se=_error(by_column if utility is None else utility, belief) + missing,
        method=method,
        utility=None if utility is None else utility[:, 0],
    )


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _method(model: Model, points: Points, rows: Tensor, memory: Memory) -> Method:
    key = ("method", points.key, rows.numpy().tobytes())
    return memory.get(key, lambda: method_of(model, points, rows), lambda _: 1)


@dataclass(frozen=True, kw_only=True, eq=False)
class Gains:
    eig: Tensor  # [J, c]
    missing: Tensor  # [J] what the nodes over y leave out, in nats
    utility: Tensor  # [J, c], empty without a utility


def weight_columns(belief: PointBelief) -> Tensor:
    """The belief's weights, then those from which its error is read: [P, c]."""
    w = belief.weights[:, None]
    if belief.points.coarse is not None:
        rough = torch.where(belief.points.coarse[:, None], w, 0.0)
        return torch.cat([w, rough / rough.sum()], 1)
    if belief.method == "particles":
        # blocks of neighbours: each is spread over the prior, where every eighth Sobol point is not
        part = torch.arange(len(w)) * N_PARTS // len(w)
        split = w * (part[:, None] == torch.arange(N_PARTS))
        return torch.cat([w, split / split.sum(0)], 1)
    return w


def gains(table: Table, columns: Tensor, points: Points) -> Gains:
    """EIG of a block of designs under each column of weights [P, c]: one matrix product."""
    n_y, n_j = table.n_outcomes, table.n_designs
    product = table.matrix @ columns  # [(Y + …) J, c]
    marginal = product[: n_y * n_j].reshape(n_y, n_j, -1)
    eig = _entropy(marginal, table)
    if points.groups is None:
        eig = eig - product[n_y * n_j : (n_y + 1) * n_j]
    else:
        eig = eig - _grouped(table, columns, points)
    missing = torch.full((n_j,), ROUNDING, dtype=torch.float64)
    if not table.is_complete:
        mass = marginal[..., 0] if table.node_weights is None else table.node_weights * marginal[..., 0]
        short = (1 - mass.sum(0)).abs()
        missing = missing + short * (1 + short.clamp(min=1e-300).log().abs())
    utility = product[-n_j:] if table.has_utility else product[:0]
    return Gains(eig=eig, missing=missing, utility=utility)


def _entropy(p: Tensor, table: Table) -> Tensor:
    """−Σ_y ω p log p over the first axis; p = 0 gives 0, in value and gradient."""
    if p.requires_grad:
        p = p.clamp(min=1e-300)
    terms = torch.special.entr(p)
    if table.node_weights is None:
        return terms.sum(0)  # type: ignore[no-any-return]
    return (terms * table.node_weights.reshape(*table.node_weights.shape, *(1,) * (p.ndim - 2))).sum(0)  # type: ignore[no-any-return]


def _grouped(table: Table, columns: Tensor, points: Points) -> Tensor:
    """E_φ H[p(y | φ)]: nuisances are averaged within each group of equal targets: [J, c]."""
    assert points.groups is not None
    found = []
    for weights in columns.unbind(1):
        total = torch.zeros(points.n_groups, dtype=torch.float64).index_add(0, points.groups, weights)
        shape = (table.n_outcomes, table.n_designs, points.n_groups)
        joint = torch.zeros(shape, dtype=torch.float64).index_add(2, points.groups, table.probs * weights)
        inside = total > 0
        given = joint[..., inside] / total[inside]
        found.append(_entropy(given, table) @ total[inside])
    return torch.stack(found, 1)


def _error(by_column: Tensor, belief: PointBelief) -> Tensor:
    """How far the first column may be off: [J, c] -> [J]."""
    if by_column.shape[1] == 1:
        return torch.zeros(len(by_column), dtype=torch.float64)
    if belief.method == "particles":
        return by_column[:, 1:].std(1) / math.sqrt(N_PARTS)
    difference = (by_column[:, 0] - by_column[:, 1]).abs()
    return torch.minimum(difference, 10 * difference.square())
