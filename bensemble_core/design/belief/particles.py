"""Particles for models that no frame follows: tempered sequential Monte Carlo (Del Moral, Doucet & Jasra 2006) on the
whole history, from Sobol draws of the prior, which will do as they are while enough of them are effective.

π_t ∝ p(θ) L(θ)^β_t with β from 0 to 1, each step as long as keeps half the particles effective; then systematic
resampling and Metropolis moves in normal scores, random walks and independent proposals by turns. The history is sorted
and counted first, and chance comes from the seed alone: the same observations in any order give the same particles.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from bensemble_core.design.belief.belief import PointBelief, normalised
from bensemble_core.design.belief.follow import weighed
from bensemble_core.design.belief.memory import Memory
from bensemble_core.design.belief.points import Array, scattered
from bensemble_core.design.spec.blocks import JointPrior
from bensemble_core.design.spec.model import Event, Model
from bensemble_core.design.spec.priors import log_normal_density
from bensemble_core.design.spec.spaces import sobol
from bensemble_core.errors import InvalidData
from bensemble_core.randomness import generator

N_PARTICLES = 2**13
ENOUGH = 0.25  # share of effective particles above which those of the prior will do
N_MOVES = 6
CELLS = 4_000_000  # log-likelihoods held at once


def particle_belief(model: Model, events: Sequence[Event], memory: Memory, *, seed: int = 0) -> PointBelief:
    start = memory.get(
        ("particles", seed),
        lambda: scattered(model.prior, *_drawn(model.prior, seed), ("particles", seed)),
        lambda p: p.n * (len(p.values) + 6),
    )
    belief = weighed(model, start, events, memory)
    variance = 1 / _effective(belief.mass) - 1 / start.n
    if variance <= (1 / ENOUGH - 1) / start.n:
        return replace(belief, spread=math.sqrt(max(0.0, variance)))
    counted = tuple(sorted(Counter(events).items()))
    return memory.get(("tempered", seed, counted), lambda: _tempered(model, counted, seed), lambda b: b.points.n * 12)


def _drawn(prior: JointPrior, seed: int) -> tuple[Tensor, Tensor]:
    return prior.draw(sobol(N_PARTICLES, prior.n_scores + len(prior.listed), seed))


@dataclass(kw_only=True)
class _Cloud:
    """Particles on their way."""

    z: Tensor  # [P, K]
    index: Tensor  # [P, B]
    log_likelihood: Tensor  # [P]
    origin: Tensor  # [P] number of the draw of the prior that a particle descends from
    rng: torch.Generator = field(repr=False)

    def take(self, chosen: Tensor) -> None:
        self.z, self.index, self.log_likelihood = self.z[chosen], self.index[chosen], self.log_likelihood[chosen]
        self.origin = self.origin[chosen]


def _tempered(model: Model, counted: Sequence[tuple[Event, int]], seed: int) -> PointBelief:
    prior = model.prior
    z, index = _drawn(prior, seed)
    history = _History(model, counted)
    cloud = _Cloud(
        z=z,
        index=index,
        log_likelihood=history(z, index),
        origin=torch.arange(len(z)),
        rng=generator(seed, len(counted), 1),
    )
    beta, log_evidence, variance, scale = 0.0, 0.0, 0.0, 1.0
    while beta < 1:
        step = _step(cloud.log_likelihood.numpy(), 1 - beta)
        mass, log_mean = normalised(step * cloud.log_likelihood.numpy() - math.log(len(z)))
        log_evidence += log_mean
        variance += 1 / _effective(mass) - 1 / len(z)
        beta = 1.0 if step == 1 - beta else beta + step
        cloud.take(_systematic(torch.from_numpy(mass), cloud.rng))
        scale = _move(prior, history, cloud, beta, scale)
    points = scattered(prior, cloud.z, cloud.index, ("tempered", seed, tuple(counted)))
    return PointBelief(
        method="particles",
        points=points,
        names=prior.names,
        mass=points.mass_array,
        log_likelihood=cloud.log_likelihood.numpy(),
        log_evidence=log_evidence,
        spread=math.sqrt(max(variance, _kinship(cloud.origin))),
    )


def _kinship(origin: Tensor) -> float:
    """The variance of the log evidence as descent tells it: how often two particles have one origin (Chan & Lai 2013;
    Lee & Whiteley 2018). It sees what single steps do not: peaks between which particles do not move."""
    counts = origin.bincount().double()
    return float((counts * (counts - 1)).sum() / (len(origin) * (len(origin) - 1)))


class _History:
    """Σ c_n log p(y_n | θ, ξ_n) over different observations with their counts, all at once."""

    def __init__(self, model: Model, counted: Sequence[tuple[Event, int]]) -> None:
        self._model = model
        self._rows = torch.tensor([event[0] for event, _ in counted], dtype=torch.float64)  # [n, D]
        self._y = torch.tensor([event[1] for event, _ in counted], dtype=torch.float64)  # [n, O]
        self._counts = torch.tensor([count for _, count in counted], dtype=torch.float64)

    def __call__(self, z: Tensor, index: Tensor) -> Tensor:
        theta, _ = self._model.prior.at(z, index)
        total = torch.zeros(len(z), dtype=torch.float64)
        stride = max(1, CELLS // len(z))
        for first in range(0, len(self._rows), stride):
            part = slice(first, first + stride)
            arguments = self._model.arguments(theta, self._rows[part, None])
            terms = self._model.log_prob(arguments, self._y[part, None])  # [n, P]
            for variable, found in zip(self._model.outcomes, arguments, strict=True):
                for _, wrong, _ in variable.family.faults(found):
                    terms = torch.where(wrong, -math.inf, terms)
            total = total + (self._counts[part, None] * terms).sum(0)
        return torch.where(total.isnan(), -math.inf, total)


def _step(log_likelihood: Array, longest: float) -> float:
    """The longest step that leaves half of the particles effective."""
    half = 0.5 * int((log_likelihood > -math.inf).sum())
    if not half:
        raise InvalidData("the model gives these observations together no chance; check them, or allow for lapses")
    low, high = 0.0, longest
    if _effective(normalised(longest * log_likelihood)[0]) >= half:
        return longest
    for _ in range(40):
        middle = 0.5 * (low + high)
        is_short = _effective(normalised(middle * log_likelihood)[0]) >= half
        low, high = (middle, high) if is_short else (low, middle)
    return max(low, 1e-9)


def _effective(mass: Array) -> float:
    """The number of equal weights that would vary as much; 0 if there are none."""
    squares = float(mass @ mass)
    return 1 / squares if squares > 0 else 0.0


def _systematic(weights: Tensor, rng: torch.Generator) -> Tensor:
    n = len(weights)
    u = (torch.arange(n, dtype=torch.float64) + torch.rand((), generator=rng, dtype=torch.float64)) / n
    return torch.searchsorted(weights.cumsum(0), u).clamp(max=n - 1)


def _move(prior: JointPrior, history: _History, cloud: _Cloud, beta: float, scale: float) -> float:
    """Metropolis-Hastings at this temperature; the step of the random walk that it ended with."""
    n, k = cloud.z.shape
    for turn in range(N_MOVES):
        mean = cloud.z.mean(0)
        covariance = torch.cov(cloud.z.mT).reshape(k, k) + 1e-12 * torch.eye(k, dtype=torch.float64)
        root = torch.linalg.cholesky(covariance)
        noise = torch.randn(n, k, generator=cloud.rng, dtype=torch.float64)
        log_ratio = torch.zeros(n, dtype=torch.float64)
        if turn % 2:
            root = 1.1 * root  # a little wider than the particles, so that tails are left again
            z = mean + noise @ root.mT
            before = torch.linalg.solve_triangular(root, (cloud.z - mean).mT, upper=False)
            log_ratio = 0.5 * (noise.square().sum(1) - before.square().sum(0))
        else:
            z = cloud.z + scale * 2.38 / math.sqrt(max(k, 1)) * noise @ root.mT
        index = cloud.index.clone()
        for column, block in enumerate(prior.listed):
            # from the prior, for half of the particles: the prior's ratio cancels
            fresh = torch.multinomial(block.log_weights.exp(), n, replacement=True, generator=cloud.rng)
            change = torch.rand(n, generator=cloud.rng) < 0.5
            index[:, column] = torch.where(change, fresh, index[:, column])
        log_likelihood = history(z, index)
        log_ratio = log_ratio + log_normal_density(z).sum(1) - log_normal_density(cloud.z).sum(1)
        log_ratio = log_ratio + beta * (log_likelihood - cloud.log_likelihood)
        accept = torch.rand(n, generator=cloud.rng, dtype=torch.float64).log() < log_ratio
        cloud.z = torch.where(accept[:, None], z, cloud.z)
        cloud.index = torch.where(accept[:, None], index, cloud.index)
        cloud.log_likelihood = torch.where(accept, log_likelihood, cloud.log_likelihood)
        if turn % 2 == 0:
            scale *= math.exp(2 * (float(accept.double().mean()) - 0.3))
    return min(max(scale, 1e-3), 3.0)
