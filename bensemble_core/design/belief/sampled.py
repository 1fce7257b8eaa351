"""The posterior as weighted draws of a normal distribution that follows it (importance sampling).

    z = m + A u,   u ~ N(0, I),   w ∝ p(z) Π p(y_n | z, ξ_n) / q(z)

where m and A Aᵀ are the posterior's mean and covariance in scores of the prior, widened, and rounded so that the draws
of one round mostly serve the next one too: tables computed at them can be kept. u are scrambled Sobol points (Owen
1998), whose sixteenths tell the error, generously: all together they are more even than each. Each draw of the targets
has nodes of its own for the nuisances, those of the trapezoidal rule, so that an average over nuisances is a sum over
its group, and every second node tells its error. Where these are too few for the posterior plain draws show it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

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
NODES = {1: (17, 5.5), 2: (11, 5.5)}  # along each of the nuisances' scores, and how far out, by how many they are
LEAST_DRAWS = 2**9  # with nodes
NODED, FEWEST = 0.5, 0.05  # least shares of effective nodes, and of effective draws that have some
WIDER = 1.2  # sds of the draws beside the posterior's, at least
ENOUGH = 0.2  # share of effective draws
LEAST = 0.02  # below which they tell nothing
TEMPERED = 0.1  # share of effective draws that moments are taken from
MAX_MOVES = 30
TINY = 1e-300


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
    """From the prior on, a distribution is moved to the moments that its draws tell, until enough of them are
    effective; and where there are nuisances, until their nodes suffice, too."""
    k = model.prior.n_scores
    source = Normal((0.0,) * k, tuple(tuple(float(i == j) for j in range(k)) for i in range(k)))
    n_points = N_POINTS if model.is_discrete else N_POINTS // 2
    best: tuple[float, PointBelief] | None = None

    def weighed(source: Normal, *, has_nodes: bool) -> PointBelief:
        points = memory.get(
            ("draws", seed, source, has_nodes),
            partial(_drawn, model.prior, source, seed, n_points, has_nodes=has_nodes),
            lambda made: made.n * (len(made.values) + 8),
        )
        return _weighed(model, points, events, memory)

    for _ in range(MAX_MOVES):
        plain = weighed(source, has_nodes=False)
        share = _effective(plain.mass)
        if best is None or share > best[0]:
            best = share, plain
        if share >= ENOUGH:
            if not model.prior.nuisances:
                return plain
            noded = weighed(source, has_nodes=True)
            if _suffice(noded, plain):
                return noded
        following = _around(plain.points.score_array, _tempered(plain))
        if following == source:
            break
        source = following
    return best[1] if best is not None and best[0] >= LEAST and not model.prior.nuisances else None


def _suffice(noded: PointBelief, plain: PointBelief) -> bool:
    """Whether nodes of the nuisances are as many as the posterior asks for: enough of those of a draw are effective,
    and the evidence is that of plain draws."""
    off = abs(noded.log_evidence - plain.log_evidence)
    return are_enough(noded.points, noded.mass) and off <= 4 * (noded.error + plain.error) + 1e-3


def are_enough(points: Points, mass: Array) -> bool:
    """Whether enough draws with nodes, and of the nodes of a draw, are effective under weights [P]."""
    cube = mass.reshape(points.n_groups, -1)
    draws = cube.sum(1)
    _, rule, _ = _nodes(points.n_nodes)
    # on average over the draws, beside those of the rule itself
    share = (draws**3 / np.maximum((cube**2).sum(1), TINY)).sum() * float(rule.square().sum())
    return bool(share >= NODED and _effective(draws) >= FEWEST)


def _drawn(prior: JointPrior, source: Normal, seed: int, n_points: int, *, has_nodes: bool) -> Points:
    n_outer = prior.n_target_scores if has_nodes else prior.n_scores
    n_nodes = prior.n_scores - n_outer
    nodes, node_weights, is_half = _nodes(n_nodes)
    n = max(LEAST_DRAWS, 2 ** round(math.log2(2 * n_points / len(nodes)))) if has_nodes else n_points
    outer = torch.special.ndtri(sobol(n, n_outer, seed))
    u = torch.cat([outer.repeat_interleave(len(nodes), 0), nodes.repeat(n, 1)], 1)  # [P, K]
    factor = torch.tensor(source.factor, dtype=torch.float64)
    z = torch.tensor(source.centre, dtype=torch.float64) + u @ factor.mT
    values, log_density = prior.at_scores(z)
    log_odds = (log_normal_density(z) - log_normal_density(u)).sum(1) + factor.diagonal().log().sum()
    return Points(
        key=("draws", seed, source, has_nodes),
        values=values,
        log_prior=log_odds + node_weights.log().repeat(n) - math.log(n),
        log_density=log_density.clamp(-745, 745),
        scores=z,
        groups=torch.arange(n).repeat_interleave(len(nodes)) if has_nodes else None,
        n_groups=n if has_nodes else 0,
        is_grouped=True,
        n_nodes=n_nodes,
        half=is_half.repeat(n) if has_nodes else None,
        is_common=not any(source.centre),
    )


@lru_cache
def _nodes(k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Of N(0, I) in k dimensions: [n, k], weights [n], and which of them are every second one along each axis [n]."""
    if not k:
        return torch.zeros(1, 0, dtype=torch.float64), torch.ones(1, dtype=torch.float64), torch.ones(1).bool()
    n, reach = NODES[k]
    places = torch.cartesian_prod(*[torch.arange(n)] * k).reshape(-1, k)
    nodes = (places / (n - 1) * 2 - 1).to(torch.float64) * reach
    weights = log_normal_density(nodes).sum(1).exp()
    return nodes, weights / weights.sum(), (places % 2 == 0).all(1)


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


def _effective(mass: Array) -> float:
    """Share of effective draws."""
    return 1 / float(mass @ mass) / len(mass)


def _tempered(belief: PointBelief) -> Array:
    """Weights [P] under as much of the likelihood as leaves enough of them effective."""
    points = belief.points
    if _effective(belief.mass) >= TEMPERED:
        return belief.mass
    known = np.where(belief.log_likelihood > -math.inf, belief.log_likelihood, -1e300)
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = 0.5 * (low + high)
        mass, _ = normalised(points.prior_array + middle * known)
        low, high = (middle, high) if _effective(mass) >= TEMPERED else (low, middle)
    mass, _ = normalised(points.prior_array + low * known)
    return mass


def _around(z: Array, mass: Array) -> Normal:
    """The normal distribution with these moments, widened and rounded: scales up to a power of √2, the centre to a half
    and the slopes to a quarter of a scale."""
    mean = mass @ z
    away = z - mean
    covariance = (mass * away.T) @ away
    root = np.linalg.cholesky(covariance + 1e-10 * np.diag(covariance.diagonal()) + 1e-24 * np.eye(len(covariance)))
    scales = 2 ** (np.ceil(2 * np.log2(WIDER * root.diagonal()) - 1e-9) / 2)
    slopes = np.round(4 * root / scales[:, None] * (scales / root.diagonal())) / 4  # in units of scale / scale
    factor = np.tril(slopes, -1) * scales[:, None] + np.diag(scales)
    centre = np.round(2 * mean / scales) * scales / 2
    return Normal(tuple(centre.tolist()), tuple(map(tuple, factor.tolist())))
