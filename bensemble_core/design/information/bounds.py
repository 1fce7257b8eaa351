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
from bensemble_core.design.belief.neighbours import neighbourhoods
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
    others = _drawn(belief, n_inner, derive(seed, 1))  # [L]
    size = (batches.shape[1], n_outer, len(model.outcomes))
    u = torch.rand(size, generator=generator(seed, 2), dtype=torch.float64)
    first, near = _outer(model, belief, n_outer, seed)  # [N], [N, S]
    lowers, uppers, utilities = [], [], []
    for batch in batches:
        check()
        flat, deep = batch[:, None], batch[:, None, None]  # against [n, N] and [n, N, L]
        y = model.draw(first, flat, u)  # [n, N, O]
        own = model.log_prob(model.arguments(first, flat), y).sum(0)  # [N]
        top = own
        if near is not None:
            log_p = model.log_prob(model.arguments(near, deep), y[:, :, None]).sum(0)
            top = torch.logsumexp(log_p, 1) - math.log(log_p.shape[1])
        arguments = model.arguments(others, deep)
        stride = max(1, CELLS // (n_inner * size[0]))
        rest = torch.cat(
            [torch.logsumexp(model.log_prob(arguments, part[:, :, None]).sum(0), 1) for part in y.split(stride, 1)]  # type: ignore[no-untyped-call]
        )  # [N]
        lowers.append(top - torch.logaddexp(rest, own) + math.log(n_inner + 1))
        uppers.append(top - rest + math.log(n_inner))
        if model.utility is not None:
            named = dict(zip((v.name for v in model.outcomes), y.unbind(-1), strict=True))
            utilities.append(model.utility({**model.values(first, flat), **named}).expand(size[:2]).mean(0))

    def mean(found: list[Tensor]) -> tuple[Tensor, Tensor]:
        every = torch.stack(found)
        return every.mean(1), every.std(1) / n_outer**0.5

    (lower, lower_se), (upper, upper_se) = mean(lowers), mean(uppers)
    utility, utility_se = mean(utilities) if utilities else (None, None)
    return Bounds(
        lower=lower, lower_se=lower_se, upper=upper, upper_se=upper_se, utility=utility, utility_se=utility_se
    )


def _drawn(belief: PointBelief, n: int, seed: int) -> dict[str, Tensor]:
    """Between the points of a grid too: a precise outcome would tell from which one it came."""
    if belief.points.prior is not None and not belief.points.listed:
        return belief.samples(n, seed)
    return _at(belief, belief.draw(n, seed))


def _at(belief: PointBelief, chosen: Tensor) -> dict[str, Tensor]:
    return {name: column[chosen] for name, column in belief.points.values.items()}


def _outer(model: Model, belief: PointBelief, n: int, seed: int) -> tuple[dict[str, Tensor], dict[str, Tensor] | None]:
    """θ_0 [n]; and where there are nuisances one from each n-th of the mass, and points with its targets [n, S]."""
    if not model.prior.nuisances:
        return _drawn(belief, n, derive(seed, 0)), None
    jitter = torch.rand(n, generator=generator(seed, 0), dtype=torch.float64)
    if belief.points.groups is None:
        belief = neighbourhoods(model.prior, belief)
    weights = belief.weights
    u = (torch.arange(n, dtype=torch.float64) + jitter) / n
    reached = weights.cumsum(0)
    outer = torch.searchsorted(reached, u * reached[-1]).clamp(max=len(weights) - 1)
    groups = belief.points.groups
    assert groups is not None
    mine = groups[outer]
    ends = reached[torch.searchsorted(groups, mine, right=True) - 1]
    first = torch.searchsorted(groups, mine)
    starts = torch.where(first > 0, reached[first - 1], 0.0)
    share = torch.rand(n, N_SHARED, generator=generator(seed, 3), dtype=torch.float64)
    places = starts[:, None] + share * (ends - starts)[:, None]
    return _at(belief, outer), _at(belief, torch.searchsorted(reached, places).clamp(max=len(weights) - 1))
