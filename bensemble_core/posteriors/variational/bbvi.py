"""Black-box variational inference."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from bensemble_core.ensemble.tensors import split_extra
from bensemble_core.errors import InvalidModel, InvalidOption
from bensemble_core.io import below
from bensemble_core.models.spec import outline
from bensemble_core.posteriors.gaussian import (
    LOG_SD,
    PRIOR_MEAN,
    PRIOR_SD,
    PRUNED,
    Earlier,
    Factorised,
    bayesian_names,
    check_rows,
    in_units,
    log_prior_of_points,
    noise,
    one_group,
    prior_in,
    reparameterised,
    total_kl,
    with_points,
)
from bensemble_core.posteriors.log_posterior import log_likelihoods
from bensemble_core.predictive.mixtures import LOG_2PI
from bensemble_core.randomness import generator
from bensemble_core.training.descent import Run
from bensemble_core.training.objectives import Batch, Forward
from bensemble_core.types import Aim, Data, Problem, Tensors

LARGEST = 500  # weights: the variance of a score-function gradient grows with their number


@dataclass(frozen=True, kw_only=True)
class BBVI(Factorised):
    """The Gaussian of `mfvi`, for a likelihood that cannot be differentiated (Ranganath et al. 2014).

    The evidence lower bound is the mean of f(θ) = log p(D, θ) − log q(θ), and its gradient in μ and log σ is

        ∇L = E_q [f(θ) ∇ log q(θ)],    estimated by    (1/K) Σ_k (f(θ_k) − b_k) ∇ log q(θ_k),    θ_k ~ q,

    with the leave-one-out baseline b_k = (1/(K − 1)) Σ_{j ≠ k} f(θ_j) (Kool et al. 2019), which costs nothing, keeps
    the mean and takes away what all draws have in common: a constant added to log p changes no step. The likelihood is
    only evaluated, so that a 0–1 loss will do: log p(y | x, θ) = log(1 − ε) where the network is right, else log ε.

    The price is variance, which grows with the number of weights: up to 500 of them, and K = `samples` draws a step.
    Where the likelihood can be differentiated, `mfvi` gets to the same place in a fraction of the steps.

    Departures: the baseline in place of the paper's control variate and Rao-Blackwell terms, and Adam in place of
    AdaGrad. Points (biases and normalisation by option, a learnt noise) are MAP estimates that follow the slope of
    log p(D | θ) itself, as in mfvi; under a likelihood without a slope they are refused, and `map_epochs` has to be 0.
    """

    name: Literal["bbvi"] = "bbvi"
    samples: int = field(default=100, metadata={"ge": 2, "le": 100_000, "description": "K, draws a step"})
    aims: ClassVar[Aim] = "mean_field"

    def check(self, problem: Problem) -> None:
        super().check(problem)
        names = set(bayesian_names(problem, self))
        size = sum(p.numel() for name, p in outline(problem.model).named_parameters() if name in names)
        if size > LARGEST:
            raise InvalidOption(
                f"bbvi is for up to {LARGEST} weights, as its gradients get noisier with each, and this network has "
                f"{size:,}; use mfvi, which differentiates the likelihood, or a smaller network"
            )

    def run(self, start: Run, prior: Tensors, earlier: Earlier | None = None) -> Run:
        return replace(start, objective=_Objective(samples=self.samples, prior=prior, earlier=earlier or Earlier()))

    def bound(self, problem: Problem, state: Tensors, data: Data, *, samples: int, rng: torch.Generator) -> float:
        """The evidence lower bound on all rows, in nats and the units of y, given the points: from `samples` draws."""
        check_rows(state, data)
        pruned = below(PRUNED, state)
        drawn = reparameterised(state, noise(state, samples, rng=rng), pruned)
        network, extra = split_extra(state)
        centre = {k: v[0] for k, v in {**network, **extra}.items() if "/" not in k or k in extra}
        gained = float(log_likelihoods(problem, centre, drawn, data).mean())
        wide = {k: v.double() for k, v in state.items() if v.is_floating_point()}
        return gained + in_units(problem, data.n_rows) - float(total_kl(wide, prior_in(wide), pruned))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Objective:
    """−(L + log p(points)) / N by value, with the score-function estimate as its gradient; for one member."""

    samples: int
    prior: Tensors
    earlier: Earlier = field(default_factory=Earlier)

    def prior_of(self, theta: Tensors) -> dict[str, Tensor]:
        return dict(self.prior)

    def __call__(self, problem: Problem, forward: Forward, theta: Tensors, batch: Batch) -> Tensor:
        x, y = one_group(problem, batch.x), batch.y[0]
        epsilon = noise(theta, self.samples, rng=generator(batch.seeds[0]))
        drawn = {k: v.detach() for k, v in reparameterised(theta, epsilon, self.earlier.pruned).items()}
        outputs = forward(with_points(theta, drawn, self.samples), x)
        each = problem.likelihood.log_prob(outputs, y.expand(self.samples, *y.shape), split_extra(theta)[1])  # [K, B]
        log_likelihood = each.mean(-1) * batch.n_rows
        _refuse_points_without_slope(theta, log_likelihood)
        if self.earlier.belief is not None:
            log_likelihood = log_likelihood + self.earlier.belief.log_prob(theta)
        log_q = log_density(drawn, theta, below(LOG_SD, theta), self.earlier.pruned)
        sds = {k: v.log() for k, v in below(PRIOR_SD, self.prior).items()}
        log_p = log_density(drawn, below(PRIOR_MEAN, self.prior), sds, self.earlier.pruned)
        gain = log_likelihood + log_p - log_q.detach()  # f [K]; of θ it follows the points alone
        surrogate = score_surrogate(gain.detach(), log_q)
        value = gain.mean() + surrogate - surrogate.detach()
        return (-(value + log_prior_of_points(problem, theta)) / batch.n_rows)[None]


def score_surrogate(gains: Tensor, log_q: Tensor) -> Tensor:
    """(1/K) Σ_k (f_k − b_k) log q(θ_k), b_k the mean of the other f: [..., K] -> [...].

    Where f and the θ_k are held, its gradient is the leave-one-out estimate of ∇ E_q f. f_k − b_k is computed as
    K/(K − 1) (f_k − mean f).
    """
    k = gains.shape[-1]
    apart = (gains - gains.mean(-1, keepdim=True)) * (k / (k - 1))
    return (apart.detach() * log_q).mean(-1)


def log_density(values: Tensors, means: Tensors, log_sds: Mapping[str, Tensor], pruned: Tensors) -> Tensor:
    """Σ log N(θ | mean, sd²) over all weights of each draw that are not pruned: named [K, ...] -> [K]."""
    parts = []
    for name, value in values.items():
        z = (value - means[name]) * (-log_sds[name]).exp()
        each = -0.5 * z.square() - log_sds[name] - 0.5 * LOG_2PI
        parts.append((each.masked_fill(pruned[name], 0.0) if name in pruned else each).flatten(1).sum(1))
    return torch.stack(parts).sum(0)


def _refuse_points_without_slope(theta: Tensors, log_likelihood: Tensor) -> None:
    points = [k for k in theta if not k.startswith(LOG_SD) and LOG_SD + k not in theta]
    if points and not log_likelihood.requires_grad:
        raise InvalidModel(
            f"bbvi: {points[0]} has no distribution, and this likelihood no slope by which to train a point; give it "
            "one (bayesian_biases=True, bayesian_norms=True), or freeze it"
        )
