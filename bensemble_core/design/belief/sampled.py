"""The posterior as weighted draws of a normal distribution that follows it (importance sampling).

    z = m + A u,   u ~ N(0, I),   w ∝ p(z) Π p(y_n | z, ξ_n) / q(z)

where m and A Aᵀ are the posterior's mean and covariance in scores of the prior, widened, and rounded so that the draws
of one round mostly serve the next one too: tables computed at them can be kept. u are scrambled Sobol points (Owen
1998), whose sixteenths tell the error, generously: all together they are more even than each. Each draw of the targets
has nodes of its own for the nuisances, by Gauss and Hermite, so that an average over nuisances is a sum over its group.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from bensemble_core.design.belief.belief import PointBelief, normalised
from bensemble_core.design.belief.memory import Memory
from bensemble_core.design.belief.points import N_PARTS, Array, Points
from bensemble_core.design.spec.blocks import JointPrior
from bensemble_core.design.spec.model import Event, Model
from bensemble_core.design.spec.priors import log_normal_density
from bensemble_core.design.spec.spaces import sobol
from bensemble_core.errors import InvalidData

N_POINTS = 2**14  # half as many where outcomes are integrated over: each then takes a hundred nodes
MOST, MOST_NODED = 6, 3  # scores, and where nuisances are among them
N_NODES = {1: 12, 2: 49}  # of the nuisances' scores, by how many they are
WIDER = 1.2  # sds of the draws beside the posterior's, at least
ENOUGH = 0.2  # share of effective draws
LEAST = 0.02  # below which they tell nothing
TEMPERED = 0.1  # share of effective draws that moments are taken from
MAX_MOVES = 30


@dataclass(frozen=True)
class Normal:
    """Where draws come from: hashable."""

    centre: tuple[float, ...]  # [K]
    factor: tuple[tuple[float, ...], ...]  # [K, K], lower triangular


def fits_draws(prior: JointPrior) -> bool:
    """Whether there are few enough scores, and listed values beside them."""
    n_nuisances = prior.n_scores - prior.n_target_scores
    return 3 <= prior.n_scores <= (MOST_NODED if n_nuisances else MOST) and not prior.listed


def sampled_belief(model: Model, events: Sequence[Event], memory: Memory, *, seed: int) -> PointBelief | None:
    """None where a normal distribution does not follow the posterior."""
    key = ("sampled", seed, tuple(events))
    found: list[PointBelief | None] = memory.get(
        key, lambda: [_followed(model, events, memory, seed)], lambda made: 2 * made[0].points.n if made[0] else 1
    )
    return found[0]


def _followed(model: Model, events: Sequence[Event], memory: Memory, seed: int) -> PointBelief | None:
    k = model.prior.n_scores
    source = Normal((0.0,) * k, tuple(tuple(float(i == j) for j in range(k)) for i in range(k)))
    n_points = N_POINTS if model.is_discrete else N_POINTS // 2
    best: tuple[float, PointBelief] | None = None
    for _ in range(MAX_MOVES):
        points = memory.get(
            ("draws", seed, source),
            partial(_drawn, model.prior, source, seed, n_points),
            lambda made: made.n * (len(made.values) + 8),
        )
        belief = _weighed(model, points, events, memory)
        share = _effective(points, belief.mass)
        if best is None or share > best[0]:
            best = share, belief
        if share >= ENOUGH:
            return belief
        following = _around(points.score_array, _tempered(points, belief))
        if following == source:
            break
        source = following
    assert best is not None
    return best[1] if best[0] >= LEAST else None


def _drawn(prior: JointPrior, source: Normal, seed: int, n_points: int) -> Points:
    k, n_targets = prior.n_scores, prior.n_target_scores
    n_outer = n_targets if prior.nuisances else k
    nodes, node_weights = _nodes(k - n_outer)
    n = max(N_PARTS, 2 ** int(math.log2(2 * n_points / len(nodes)))) if prior.nuisances else n_points
    outer = torch.special.ndtri(sobol(n, n_outer, seed))
    u = torch.cat([outer.repeat_interleave(len(nodes), 0), nodes.repeat(n, 1)], 1)  # [P, K]
    factor = torch.tensor(source.factor, dtype=torch.float64)
    z = torch.tensor(source.centre, dtype=torch.float64) + u @ factor.mT
    values, log_density = prior.at_scores(z)
    log_odds = (log_normal_density(z) - log_normal_density(u)).sum(1) + factor.diagonal().log().sum()
    return Points(
        key=("draws", seed, source),
        values=values,
        log_prior=log_odds + node_weights.log().repeat(n) - math.log(n),
        log_density=log_density.clamp(-745, 745),
        scores=z,
        groups=torch.arange(n).repeat_interleave(len(nodes)) if prior.nuisances else None,
        n_groups=n if prior.nuisances else 0,
        is_grouped=True,
        is_common=not any(source.centre),
    )


def _nodes(k: int) -> tuple[Tensor, Tensor]:
    """Of N(0, I) in k dimensions: [n, k] and weights [n]."""
    if not k:
        return torch.zeros(1, 0, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    x, w = np.polynomial.hermite_e.hermegauss(round(N_NODES[k] ** (1 / k)))
    grid = torch.cartesian_prod(*[torch.from_numpy(x)] * k).reshape(-1, k)
    weights = torch.cartesian_prod(*[torch.from_numpy(w / w.sum())] * k).reshape(-1, k).prod(1)
    return grid, weights


def _weighed(model: Model, points: Points, events: Sequence[Event], memory: Memory) -> PointBelief:
    log_likelihood = memory.log_likelihood(model, points, events)
    mass, log_evidence = normalised(points.prior_array + log_likelihood)
    if log_evidence == -math.inf:
        raise InvalidData("the model gives these observations together no chance; check them, or allow for lapses")
    return PointBelief(
        method="particles",
        points=points,
        names=model.prior.names,
        mass=mass,
        log_likelihood=log_likelihood,
        log_evidence=log_evidence if events else 0.0,
        spread=_spread(mass) if events else 0.0,
    )


def _spread(mass: Array) -> float:
    """What the parts tell of the error of log Σ w."""
    parts = mass.reshape(N_PARTS, -1).sum(1) * N_PARTS
    return float(parts.std(ddof=1) / math.sqrt(N_PARTS))


def _effective(points: Points, mass: Array) -> float:
    """Share of effective draws, of the targets where they have nodes of nuisances."""
    draws = mass if points.groups is None else mass.reshape(points.n_groups, -1).sum(1)
    return 1 / float(draws @ draws) / len(draws)


def _tempered(points: Points, belief: PointBelief) -> Array:
    """Weights [P] under as much of the likelihood as leaves enough of them effective."""
    if _effective(points, belief.mass) >= TEMPERED:
        return belief.mass
    known = np.where(belief.log_likelihood > -math.inf, belief.log_likelihood, -1e300)
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = 0.5 * (low + high)
        mass, _ = normalised(points.prior_array + middle * known)
        low, high = (middle, high) if _effective(points, mass) >= TEMPERED else (low, middle)
    mass, _ = normalised(points.prior_array + low * known)
    return mass


def _around(z: Array, mass: Array) -> Normal:
    """The normal distribution with these moments, widened and rounded: scales up to a power of √2, the centre to a half
    and the slopes to a quarter of a scale."""
    mean = mass @ z
    away = z - mean
    root = np.linalg.cholesky((mass * away.T) @ away + 1e-24 * np.eye(z.shape[1]))
    scales = 2 ** (np.ceil(2 * np.log2(WIDER * root.diagonal()) - 1e-9) / 2)
    slopes = np.round(4 * root / scales[:, None] * (scales / root.diagonal())) / 4  # in units of scale / scale
    factor = np.tril(slopes, -1) * scales[:, None] + np.diag(scales)
    centre = np.round(2 * mean / scales) * scales / 2
    return Normal(tuple(centre.tolist()), tuple(map(tuple, factor.tolist())))
