"""Linear-Gaussian models in closed form: y = a(ξ) + X(ξ) θ + ε with θ ~ N(m, S) and ε ~ N(0, diag s²(ξ)).

Posterior by the usual conjugate update; EIG = ½ log det(I + X S Xᵀ / s²) (Lindley 1956; Chaloner & Verdinelli 1995).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from bensemble_core.design.belief.belief import Belief, Method
from bensemble_core.design.belief.marginals import Marginal, normal
from bensemble_core.design.spec.model import Event, Model
from bensemble_core.errors import InvalidData, NotFinite
from bensemble_core.predictive.mixtures import LOG_2PI
from bensemble_core.randomness import generator


@dataclass(frozen=True, kw_only=True, eq=False)
class GaussianBelief(Belief):
    """N(centre, spread), names sorted. There are no points: nothing to be off, and no edge."""

    names: tuple[str, ...]
    centre: Tensor  # [k]
    spread: Tensor  # [k, k]
    log_evidence: float
    method: Method = "gaussian"

    @cached_property
    def mean(self) -> dict[str, float]:
        return dict(zip(self.names, self.centre.tolist(), strict=True))

    @cached_property
    def entropy(self) -> float:
        return 0.5 * float(torch.logdet(self.spread)) + 0.5 * len(self.names) * (LOG_2PI + 1)

    def covariance(self) -> Tensor:
        return self.spread

    def _distribution(self, name: str) -> Marginal:
        return normal(self.mean[name], self.sd[name])

    def _draws(self, n: int, seed: int) -> dict[str, Tensor]:
        noise = torch.randn(n, len(self.names), generator=generator(seed), dtype=torch.float64)
        draws = self.centre + noise @ torch.linalg.cholesky(self.spread).mT
        return dict(zip(self.names, draws.unbind(1), strict=True))


def linear_form(model: Model, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Designs [J, D] -> offsets [J, O], slopes X [J, O, k] and noise sd [J, O]."""
    names = model.prior.names
    basis = torch.cat([torch.zeros(1, len(names)), torch.eye(len(names))]).to(torch.float64)  # [1 + k, k]
    theta = dict(zip(names, basis.unbind(1), strict=True))
    shape = (len(rows), 1 + len(names))
    found = model.arguments(theta, rows[:, None, :])
    means = torch.stack([arguments["mean"].expand(shape) for arguments in found], 1)  # [J, O, 1 + k]
    sds = torch.stack([arguments["sd"].expand(shape)[:, 0] for arguments in found], 1)
    if not (bool(means.isfinite().all()) and bool((sds > 0).all()) and bool(sds.isfinite().all())):
        raise NotFinite("a mean is not finite or an sd not above 0 at one of the designs; check the designs asked for")
    return means[..., 0], means[..., 1:] - means[..., :1], sds


def gaussian_belief(model: Model, events: Sequence[Event]) -> GaussianBelief:
    mean, covariance = model.prior.moments()
    names = model.prior.names
    if not events:
        return GaussianBelief(names=names, centre=mean, spread=covariance, log_evidence=0.0)
    rows = torch.tensor([row for row, _ in events], dtype=torch.float64)
    y = torch.tensor([outcome for _, outcome in events], dtype=torch.float64)
    offset, slopes, sd = linear_form(model, rows)
    x = (slopes / sd[..., None]).flatten(0, 1)  # [nO, k], in units of the noise
    residual = ((y - offset) / sd).flatten() - x @ mean
    # in coordinates θ = mean + L v with v ~ N(0, I) nothing is inverted but I + (XL)ᵀ(XL)
    factor = torch.linalg.cholesky(covariance)
    inner = x @ factor
    precision = torch.eye(len(names), dtype=torch.float64) + inner.mT @ inner
    root = torch.linalg.cholesky(precision)
    v = torch.cholesky_solve((inner.mT @ residual)[:, None], root)[:, 0]
    half = torch.linalg.solve_triangular(root, factor.mT, upper=False)  # [k, k]: spread = halfᵀ half
    misfit = residual.square().sum() - (inner.mT @ residual) @ v
    log_evidence = -0.5 * float(misfit) - float(root.diagonal().log().sum())
    log_evidence -= float(sd.log().sum()) + 0.5 * residual.numel() * LOG_2PI
    if not math.isfinite(log_evidence):
        raise InvalidData("these observations lie too far from anything the model expects to be computed with")
    return GaussianBelief(names=names, centre=mean + factor @ v, spread=half.mT @ half, log_evidence=log_evidence)


def gaussian_eig(model: Model, belief: GaussianBelief, rows: Tensor) -> Tensor:
    """EIG of each design about the targets: [J, D] -> [J]."""
    _, slopes, sd = linear_form(model, rows)
    return _information(model, belief, slopes / sd[..., None])


def spread_after(model: Model, belief: GaussianBelief, rows: Tensor) -> GaussianBelief:
    """After these designs; whatever comes out, the spread is the same."""
    _, slopes, sd = linear_form(model, rows)
    x = (slopes / sd[..., None]).flatten(0, 1)
    gram = torch.eye(len(x), dtype=torch.float64) + x @ belief.spread @ x.mT
    left = belief.spread - belief.spread @ x.mT @ torch.linalg.solve(gram, x @ belief.spread)
    return replace(belief, spread=(left + left.mT) / 2)


def _information(model: Model, belief: GaussianBelief, x: Tensor) -> Tensor:
    """½ log det(I + X S Xᵀ) − ½ log det(I + X S_c Xᵀ), S_c the covariance given the targets: [J, O, k] -> [J]."""
    whole = 0.5 * _log_det(x, belief.spread)
    kept = [i for i, name in enumerate(belief.names) if name in model.prior.targets]
    if len(kept) == len(belief.names):
        return whole
    others = [i for i in range(len(belief.names)) if i not in kept]
    cross = belief.spread[others][:, kept]
    known = torch.linalg.cholesky(belief.spread[kept][:, kept])
    left = belief.spread[others][:, others] - cross @ torch.cholesky_solve(cross.mT, known)
    return whole - 0.5 * _log_det(x[..., others], left)


def _log_det(x: Tensor, spread: Tensor) -> Tensor:
    n = x.shape[-2]
    if n == 1:
        return torch.log1p((x @ spread * x).sum((-1, -2)))
    return torch.logdet(torch.eye(n, dtype=torch.float64) + x @ spread @ x.mT)
