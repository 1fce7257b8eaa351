"""Bounds on EIG by sampling, where outcomes can be neither enumerated nor integrated over.

With θ_0, θ_1 … θ_L drawn from the belief and y ~ p(y | θ_0, ξ),

    PCE:  E log p(y | θ_0) − log (1/(L+1)) Σ_{l=0}^{L} p(y | θ_l)   ≤  EIG  ≤   NMC:  the same without l = 0, over L

(Foster et al. 2020, eq. 7 and 9; Rainforth et al. 2018). The bounds hold in expectation. Draws are common to all
designs: what two designs share in luck cancels in their comparison. With nuisance parameters p(y | θ_0) is an average
over points that share the targets of θ_0, and the bounds are approximate.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bensemble_core.design.belief.belief import PointBelief
from bensemble_core.design.deadline import check
from bensemble_core.design.spec.model import Model
from bensemble_core.randomness import derive, generator

N_OUTER = 512
N_INNER = 512
N_SHARED = 128  # points with the targets of θ_0
CELLS = 4_000_000


@dataclass(frozen=True, kw_only=True, eq=False)
class Bounds:
    """All [J]."""

    lower: Tensor
    lower_se: Tensor
    upper: Tensor
    upper_se: Tensor
    utility: Tensor | None = None
    utility_se: Tensor | None = None

    @property
    def middle(self) -> Tensor:
        return (0.5 * (self.lower + self.upper)).clamp(min=0)

    @property
    def se(self) -> Tensor:
        """Half the gap between the bounds and their standard error, together."""
        return (0.25 * (self.upper - self.lower).square() + torch.maximum(self.lower_se, self.upper_se).square()).sqrt()


def bounds(
    model: Model, belief: PointBelief, rows: Tensor, *, n_outer: int = N_OUTER, n_inner: int = N_INNER, seed: int = 0
) -> Bounds:
    """Designs [J, D], or batches of n designs run together [J, n, D] -> bounds [J]."""
    batches = rows[:, None] if rows.ndim == 2 else rows
    values = belief.points.values
    outer = _stratified(belief.weights, n_outer, seed)
    inner = belief.draw(n_inner, derive(seed, 1))
    size = (batches.shape[1], n_outer, len(model.outcomes))
    u = torch.rand(size, generator=generator(seed, 2), dtype=torch.float64)
    shared = None if belief.points.groups is None else _sharing(belief, outer, seed)
    first = {name: column[outer] for name, column in values.items()}  # [N]
    others = {name: column[inner] for name, column in values.items()}  # [L]
    lowers, uppers, worths = [], [], []
    for batch in batches:
        check()
        flat, deep = batch[:, None], batch[:, None, None]  # against [n, N] and [n, N, L]
        y = model.draw(first, flat, u)  # [n, N, O]
        own = model.log_prob(model.arguments(first, flat), y).sum(0)  # [N]
        top = own
        if shared is not None:
            near = {name: column[shared] for name, column in values.items()}  # [N, S]
            top = _log_mean(model.log_prob(model.arguments(near, deep), y[:, :, None]).sum(0))
        arguments = model.arguments(others, deep)
        stride = max(1, CELLS // (n_inner * size[0]))
        rest = torch.cat(
            [torch.logsumexp(model.log_prob(arguments, part[:, :, None]).sum(0), 1) for part in y.split(stride, 1)]  # type: ignore[no-untyped-call]
        )  # [N]
        lowers.append(top - torch.logaddexp(rest, own) + math.log(n_inner + 1))
        uppers.append(top - rest + math.log(n_inner))
        if model.utility is not None:
            named = dict(zip((v.name for v in model.outcomes), y.unbind(-1), strict=True))
            worths.append(model.utility({**model.values(first, flat), **named}).expand(size[:2]).mean(0))
    lower, upper = torch.stack(lowers), torch.stack(uppers)
    return Bounds(
        lower=lower.mean(1),
        lower_se=lower.std(1) / n_outer**0.5,
        upper=upper.mean(1),
        upper_se=upper.std(1) / n_outer**0.5,
        utility=torch.stack(worths).mean(1) if worths else None,
        utility_se=torch.stack(worths).std(1) / n_outer**0.5 if worths else None,
    )


def _log_mean(log_p: Tensor) -> Tensor:
    return torch.logsumexp(log_p, 1) - math.log(log_p.shape[1])


def _stratified(weights: Tensor, n: int, seed: int) -> Tensor:
    """n points by weight, one from each n-th of the mass."""
    jitter = torch.rand(n, generator=generator(seed, 0), dtype=torch.float64)
    u = (torch.arange(n, dtype=torch.float64) + jitter) / n
    return torch.searchsorted(weights.cumsum(0), u).clamp(max=len(weights) - 1)


def _sharing(belief: PointBelief, outer: Tensor, seed: int) -> Tensor:
    """For each point of `outer`, points drawn by weight from those with its targets: [N, S]."""
    assert belief.points.groups is not None
    order = belief.points.groups.argsort(stable=True)
    reached = belief.weights[order].cumsum(0)
    group = belief.points.groups[order]
    ends = reached[torch.searchsorted(group, torch.arange(belief.points.n_groups), right=True) - 1]
    starts = torch.cat([torch.zeros(1, dtype=torch.float64), ends[:-1]])
    mine = belief.points.groups[outer]
    u = torch.rand(len(outer), N_SHARED, generator=generator(seed, 3), dtype=torch.float64)
    places = starts[mine, None] + u * (ends - starts)[mine, None]
    return order[torch.searchsorted(reached, places).clamp(max=len(order) - 1)]
