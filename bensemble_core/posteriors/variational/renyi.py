"""Variational Rényi inference."""

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from bensemble_core.ensemble import Ensemble
from bensemble_core.ensemble.members import gather
from bensemble_core.ensemble.tensors import split_extra
from bensemble_core.errors import InvalidOption
from bensemble_core.io import below
from bensemble_core.posteriors.gaussian import (
    LOG_SD,
    PRIOR_MEAN,
    PRIOR_SD,
    PRUNED,
    Earlier,
    Factorised,
    check_rows,
    in_units,
    log_prior_of_points,
    noise,
    one_group,
    prior_in,
    reparameterised,
    split_points,
    with_points,
)
from bensemble_core.randomness import generator
from bensemble_core.training.descent import Run
from bensemble_core.training.objectives import Batch, Forward
from bensemble_core.types import Aim, Data, Problem, Tensors

LARGEST_ALPHA = 1e4  # beyond it (1 − α) ℓ leaves float32 where ℓ is large, and L_α is its limit
_AT_ONCE = 64  # draws in one pass of `bound`
_ROWS = 512  # in one pass of `bound`
_AWAY = (
    "renyi with alpha = {alpha} maximises a bound from above, which leads away from the posterior: on a conjugate "
    "model its means end 2 to 3 posterior sds off; for a posterior use alpha from 0 to 1"
)


@dataclass(frozen=True, kw_only=True)
class Renyi(Factorised):
    """A Gaussian with independent weights as in `mfvi`, under a family of other divergences (Li & Turner 2016).

    It maximises the variational Rényi bound of order α,

        L_α = 1/(1 − α) log (1/K) Σ_k exp((1 − α) ℓ_k),    ℓ_k = log p(D, θ_k) − log q(θ_k),    θ_k ~ q,

    with K = `samples`. α = 1 is the evidence lower bound, (1/K) Σ ℓ_k; α = 0 the importance-weighted one; α → −∞,
    alpha="max", is max_k ℓ_k. The gradient through θ_k = μ + σ ε_k weighs the draws by w_k ∝ exp((1 − α) ℓ_k). For α
    from 0 to 1 and K > 1 it is the doubly reparameterised one (Tucker et al. 2019): log q is held at its μ and σ, and
    the slope through θ_k counts α w_k + (1 − α) w_k² instead of w_k. Its mean is the same; the plain one drowns in
    noise as α falls to 0 (Rainforth et al. 2018).

    With α < 0 and "max" the objective itself leads away from the posterior: as K grows it is a bound from above, which
    is tight at the posterior and larger anywhere else, and maximising it asks for some draw with a large ℓ_k. On a
    conjugate linear model with K = 100 the means end 2 to 3 posterior sds off (α from 0 to 1: below .1), and the sds up
    to five times too large. Ensembles drawn from such a fit say so in their `notes`.

    Small α covers the mass of the posterior, α = 1 seeks a mode. With K = 1 every α is α = 1: what α does needs draws,
    and with K draws the bound lies between the evidence lower bound and its limit. That α > 0 bounds the evidence from
    below and α < 0 from above holds for the exact expectation only. On batches log p(D | θ) is (N/B) Σ_batch: inside
    the log and the power this is biased, for every α but 1; batch_size ≥ N is free of it. Draws are shared by all rows
    of a step (no local reparameterisation:ℓ_k is a property of the weights). Points are MAP estimates, as in mfvi.
    `update` takes q as the prior of new rows, see gaussian.py.
    """

    name: Literal["renyi"] = "renyi"
    alpha: float | Literal["max"] = field(
        default=0.5,
        metadata={
            "description": 'order of the divergence; 1 is the ELBO, 0 IWAE, "max" the limit −∞; below 0 and "max" lead '
            "away from the posterior"
        },
    )
    samples: int = field(default=10, metadata={"ge": 1, "le": 100_000, "description": "K, draws a step"})
    aims: ClassVar[Aim] = "none"

    def check(self, problem: Problem) -> None:
        if self.alpha != "max" and abs(self.alpha) > LARGEST_ALPHA:
            raise InvalidOption(
                f'renyi: alpha is from −{LARGEST_ALPHA:g} to {LARGEST_ALPHA:g}, got {self.alpha!r}; alpha="max" is the '
                "limit −∞"
            )
        super().check(problem)

    def run(self, start: Run, prior: Tensors, earlier: Earlier | None = None) -> Run:
        objective = _Objective(
            alpha=self.alpha, samples=self.samples, prior=prior, twice=self._twice, earlier=earlier or Earlier()
        )
        return replace(start, objective=objective)

    def sample(self, problem: Problem, state: Tensors, n: int, *, rng: torch.Generator) -> Ensemble:
        """n draws of the weights."""
        drawn = super().sample(problem, state, n, rng=rng)
        return replace(drawn, notes=(_AWAY.format(alpha=self.alpha),)) if self._leads_away else drawn

    def bound(self, problem: Problem, state: Tensors, data: Data, *, samples: int, rng: torch.Generator) -> float:
        """L_α on all rows with K = `samples`, in nats and the units of y, given the points."""
        ratios = self.log_ratios(problem, state, data, samples=samples, rng=rng)
        return float(renyi_bound(ratios, self.alpha)) + in_units(problem, data.n_rows)

    def log_ratios(self, problem: Problem, state: Tensors, data: Data, *, samples: int, rng: torch.Generator) -> Tensor:
        """ℓ_k of draws of q, for targets as the network sees them: [samples], float64."""
        check_rows(state, data)
        pruned = below(PRUNED, state)
        prior = prior_in(state)
        theta = {k: v for part in split_points(state) for k, v in part.items()}
        network = {k: v for k, v in theta.items() if "/" not in k}
        members = gather(problem, network, {})
        found = []
        with torch.no_grad():
            for start in range(0, samples, _AT_ONCE):
                n = min(_AT_ONCE, samples - start)
                weights = with_points(theta, reparameterised(theta, noise(theta, n, rng=rng), pruned), n)
                total = log_prior_less_q(theta, weights, prior, pruned).double()
                for row in range(0, data.n_rows, _ROWS):
                    x, y = data.x[row : row + _ROWS], data.y[row : row + _ROWS]
                    outputs = members(weights, {}, x)
                    each = problem.likelihood.log_prob(outputs, y.expand(n, *y.shape), split_extra(theta)[1])
                    total = total + each.sum(-1, dtype=torch.float64)
                found.append(total)
        return torch.cat(found)

    @property
    def _leads_away(self) -> bool:
        return self.samples > 1 and (self.alpha == "max" or self.alpha < 0)

    @property
    def _twice(self) -> bool:
        return self.samples > 1 and self.alpha != "max" and 0 <= self.alpha <= 1


@dataclass(frozen=True, kw_only=True, eq=False)
class _Objective:
    """−(L_α + log p(points)) / N as an objective of the descent, for one member."""

    alpha: float | Literal["max"]
    samples: int
    prior: Tensors
    twice: bool  # doubly reparameterised
    earlier: Earlier = field(default_factory=Earlier)

    def prior_of(self, theta: Tensors) -> dict[str, Tensor]:
        return dict(self.prior)

    def __call__(self, problem: Problem, forward: Forward, theta: Tensors, batch: Batch) -> Tensor:
        x, y = one_group(problem, batch.x), batch.y[0]
        drawn = reparameterised(theta, noise(theta, self.samples, rng=generator(batch.seeds[0])), self.earlier.pruned)
        q = {k: v.detach() for k, v in theta.items()} if self.twice else theta
        share = x.new_ones(self.samples)  # [K] of the slope through θ_k that counts; known once ℓ is

        def scaled(slope: Tensor) -> Tensor:
            return slope * share.view(-1, *[1] * (slope.ndim - 1))

        if self.twice:
            for draw in drawn.values():
                draw.register_hook(scaled)  # type: ignore[no-untyped-call]
        weights = with_points(theta, drawn, self.samples)
        outputs = forward(weights, x)
        each = problem.likelihood.log_prob(outputs, y.expand(self.samples, *y.shape), split_extra(theta)[1])  # [K, B]
        ratios = each.mean(-1) * batch.n_rows + log_prior_less_q(q, weights, self.prior, self.earlier.pruned)
        if self.twice and self.alpha != "max":
            share = self.alpha + (1 - self.alpha) * torch.softmax((1 - self.alpha) * ratios.detach(), 0)
        loss = -renyi_bound(ratios, self.alpha) / batch.n_rows
        if self.earlier.belief is not None:
            loss = loss - self.earlier.belief.log_prob(theta) / batch.n_rows
        return (loss - log_prior_of_points(problem, theta) / batch.n_rows)[None]


def renyi_bound(ratios: Tensor, alpha: float | Literal["max"]) -> Tensor:
    """1/(1 − α) log (1/K) Σ_k exp((1 − α) ℓ_k) for ℓ [K], continuous through α = 1 (the mean); "max" is the largest.

    Written as mean(ℓ) + log mean exp(z) / (1 − α) with z = (1 − α)(ℓ − mean ℓ), so that nothing cancels near α = 1.
    """
    if alpha == "max":
        return ratios.max(-1).values
    centre = ratios.mean(-1)
    if alpha == 1:
        return centre
    z = (1 - alpha) * (ratios - centre.unsqueeze(-1))
    if float(z.detach().abs().max()) < 0.5:
        excess = z.expm1().mean(-1).log1p()
    else:
        excess = z.logsumexp(-1) - math.log(ratios.shape[-1])
    return centre + excess / (1 - alpha)


def log_prior_less_q(theta: Tensors, weights: Tensors, prior: Tensors, pruned: Tensors) -> Tensor:
    """log p(θ_k) − log q(θ_k) of draws θ_k; a pruned weight is 0 under both: [K]."""
    parts = []
    for name, log_sd in below(LOG_SD, theta).items():
        z = (weights[name] - theta[name]) * (-log_sd).exp()
        sd = prior[PRIOR_SD + name]
        u = (weights[name] - prior[PRIOR_MEAN + name]) / sd
        each = 0.5 * (z.square() - u.square()) + log_sd - sd.log()
        if name in pruned:
            each = each.masked_fill(pruned[name], 0.0)
        parts.append(each.flatten(1).sum(1))
    return torch.stack(parts).sum(0)
