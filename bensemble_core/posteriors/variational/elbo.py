"""The evidence lower bound of a factorised Gaussian: as an objective of the descent, and estimated on all rows."""

import math
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from bensemble_core.ensemble.members import gather
from bensemble_core.ensemble.tensors import split_extra
from bensemble_core.io import below
from bensemble_core.posteriors.gaussian import (
    LOG_SD,
    PRIOR_SD,
    check_rows,
    in_units,
    log_prior_of_points,
    noise,
    one_group,
    prior_in,
    reparameterised,
    split_points,
    total_kl,
    with_points,
)
from bensemble_core.posteriors.noise_belief import NoiseBelief
from bensemble_core.posteriors.variational.local import SD, LocalNoise
from bensemble_core.randomness import borrowed, derive, draw_seed, generator
from bensemble_core.training.objectives import Batch, Forward
from bensemble_core.types import Data, Problem, Tensors

_ROWS = 1024  # a forward pass of `estimate_elbo`


@runtime_checkable
class Expects(Protocol):
    """A likelihood with E log p(y | f) over Gaussian outputs f in closed form."""

    def expected_log_prob(self, means: Tensor, variances: Tensor, y: Tensor, extra: Tensors) -> Tensor: ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Elbo:
    """−L/N as an objective of the descent, for one member."""

    samples: int
    prior: Tensors
    extra: Tensors  # the likelihood's own that are not trained
    pruned: Tensors
    belief: NoiseBelief | None = None  # of an update: what the rows before it said of the noise
    temperature: float = 1.0
    learn: Literal["fixed", "learnt", "ard"] = "fixed"
    travel: float = 0.0  # how far the log of a learnt scale may fall in all
    local: frozenset[str] = frozenset()  # parameters whose noise the layer draws itself
    takes_moments: bool = False  # the network gives means and variances of its outputs
    worst: float = 0.0  # share of the loss that is taken at worse noise than was drawn
    worse_steps: int = 0
    worse_size: float = 0.0  # of a step of ε

    def __call__(self, problem: Problem, forward: Forward, theta: Tensors, batch: Batch) -> Tensor:
        x = one_group(problem, batch.x)
        each = self.log_likelihood(problem, forward, theta, x, batch.y[0], self.samples, batch.seeds[0])
        prior = self.prior_of(theta, batch.done)
        gained = each.mean()
        if self.belief is not None:
            gained = gained + self.belief.log_prob(theta) / batch.n_rows
        loss = -gained / self.temperature + total_kl(theta, prior, self.pruned) / batch.n_rows
        loss = loss - log_prior_of_points(problem, theta) / batch.n_rows
        if self.worst:
            epsilon = self.worse_noise(problem, forward, theta, x, batch.y[0], batch.seeds[0])
            worse = self.under_noise(problem, forward, theta, x, batch.y[0], epsilon, self.samples)
            loss = (1 - self.worst) * loss - self.worst * worse.mean() / self.temperature
        return loss[None]

    def log_likelihood(
        self, problem: Problem, forward: Forward, theta: Tensors, x: Tensor, y: Tensor, samples: int, seed: int
    ) -> Tensor:
        """log p(y | x, θ) under draws of q, or its expectation over the last layer: [samples, B]."""
        epsilon = noise(theta, samples, rng=generator(seed), but=self.local)
        return self.under_noise(problem, forward, theta, x, y, epsilon, samples)

    def worse_noise(
        self, problem: Problem, forward: Forward, theta: Tensors, x: Tensor, y: Tensor, seed: int
    ) -> dict[str, Tensor]:
        """The noise of a step, moved to where the batch is less likely: ε ← ε + α sign ∇_ε(−log p), some times."""
        still = {k: v.detach() for k, v in theta.items()}
        epsilon = noise(still, self.samples, rng=generator(seed), but=self.local)
        for _ in range(self.worse_steps):
            leaves = {k: v.requires_grad_() for k, v in epsilon.items()}
            loss = -self.under_noise(problem, forward, still, x, y, leaves, self.samples).sum()
            slopes = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
            moved = zip(leaves.items(), slopes, strict=True)
            epsilon = {k: v.detach() + self.worse_size * slope.sign() for (k, v), slope in moved}
        return epsilon

    def under_noise(
        self, problem: Problem, forward: Forward, theta: Tensors, x: Tensor, y: Tensor, epsilon: Tensors, samples: int
    ) -> Tensor:
        """`log_likelihood` with the noise of the weights given, [samples, ...] each."""
        extra = {**self.extra, **split_extra(theta)[1]}
        drawn = reparameterised(theta, epsilon, self.pruned)
        weights = with_points(theta, drawn, samples)
        for name in self.local:
            mean, sd = theta[name], theta[LOG_SD + name].exp()
            if name in self.pruned:
                mean, sd = (t.masked_fill(self.pruned[name], 0.0) for t in (mean, sd))
            weights[name], weights[name + SD] = (t.expand(samples, *t.shape[1:]) for t in (mean, sd))
        outputs = forward(weights, x)
        targets = y.expand(samples, *y.shape)
        if not self.takes_moments:
            return problem.likelihood.log_prob(outputs, targets, extra)
        means, variances = outputs.chunk(2, -1)
        assert isinstance(problem.likelihood, Expects)
        return problem.likelihood.expected_log_prob(means, variances, targets, extra)

    def prior_of(self, theta: Tensors, done: float = 1.0) -> dict[str, Tensor]:
        """The prior in use: given, or the best for this q that is in reach after a share of the steps."""
        prior = dict(self.prior)
        if self.learn == "fixed":
            return prior
        for name, log_sd in below(LOG_SD, theta).items():
            second = (2 * log_sd).exp() + theta[name].square()
            kept = {0, 2} if self.learn == "ard" and second.ndim > 2 else {0}
            axes = [axis for axis in range(second.ndim) if axis not in kept]
            best = second.mean(axes, keepdim=True) if axes else second
            least = self.prior[PRIOR_SD + name] * math.exp(-self.travel * done)
            prior[PRIOR_SD + name] = best.sqrt().detach().maximum(least)  # at the best s the bound has no slope in s
        return prior


def estimate_elbo(
    objective: Elbo,
    transform: LocalNoise | None,
    problem: Problem,
    state: Tensors,
    data: Data,
    *,
    samples: int,
    rng: torch.Generator,
) -> float:
    """L on all rows, under the prior in a state: in nats and the units of y, given the points, from `samples` draws."""
    check_rows(state, data)
    theta, points = split_points(state)
    prior = prior_in(state)
    members = gather(problem, {**theta, **points}, {}, transform=transform, mode=None if transform is None else "loop")
    shared = {k: v[0] for k, v in points.items()}
    forward = lambda theta, x: members(theta, shared, x)  # noqa: E731
    seed = draw_seed(rng)
    total = 0.0
    with torch.no_grad(), borrowed(derive(seed, 0), data.x.device):
        for start in range(0, data.n_rows, _ROWS):
            x, y = data.x[start : start + _ROWS], data.y[start : start + _ROWS]
            for s in range(samples):
                each = objective.log_likelihood(problem, forward, theta, x, y, 1, derive(seed, 1, s))
                total += float(each.sum(dtype=torch.float64)) / samples
    wide = {k: v.double() for k, v in {**theta, **prior}.items()}
    kl = float(total_kl(wide, wide, objective.pruned))
    return (total + in_units(problem, data.n_rows)) / objective.temperature - kl
