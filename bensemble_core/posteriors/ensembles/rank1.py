"""Rank-1 Bayesian neural networks."""

import math
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from bensemble_core.ensemble import Ensemble
from bensemble_core.ensemble.tensors import split_extra
from bensemble_core.errors import InvalidOption
from bensemble_core.io import above
from bensemble_core.models.transforms import FACTOR_IN, FACTOR_OUT, RankOne
from bensemble_core.posteriors.ensembles.factors import Factored, deal, factored_layers, is_factor, sort_tensors
from bensemble_core.randomness import generator
from bensemble_core.training.descent import Run
from bensemble_core.training.objectives import Batch, Forward
from bensemble_core.types import Data, Problem, Shapes, Tensors

_LOG_SD = "log_sd/"  # before a factor's name
_NAMES = {"both": (FACTOR_IN, FACTOR_OUT), "input": (FACTOR_IN,), "output": (FACTOR_OUT,)}


@dataclass(frozen=True, kw_only=True)
class Rank1BNN(Factored):
    """A distribution over rank-one factors of weights that all members share (Dusenberry et al. 2020).

    The factors are those of W ∘ (s rᵀ), W being a point:
    q(r, s) = 1/K Σ_k N(r | μ_k, σ_k²) N(s | ν_k, τ_k²), factorised within each of K = `components`, with the prior
    N(1, prior_scale²) on every entry of r and s. Maximised over W, q and one set of biases b_k per component is

        log p(W) + 1/M Σ_m [ N/(B/M) Σ_{rows of m} log p(y | x, W, r_m, s_m, b_m) ] − KL + 1/K Σ_k log p(b_k),

    where each step draws M = `members` factors, M/K from each component, and deals the batch to them, B/M rows each
    (`split=False`: every draw sees all rows). KL is 1/K Σ_k KL(q_k ‖ p) in closed form, which for K > 1 is above the
    KL of the mixture, by at most log K: the objective stays a lower bound. W, biases and the other parameters have the
    problem's prior; `prior=None` drops log p(W) and log p(b) and keeps the KL. The component means of a mixture start
    as N(1, init_scale²), a single one at 1. Departures: no annealing of the KL, no Cauchy factors, and a component is
    of all layers together.
    """

    name: Literal["rank1_bnn"] = "rank1_bnn"
    members: int = field(
        default=4, metadata={"ge": 1, "le": 1000, "description": "draws a step, a multiple of components"}
    )
    components: int = field(default=1, metadata={"ge": 1, "le": 1000, "description": "Gaussians in the mixture"})
    factors: Literal["both", "input", "output"] = field(
        default="both", metadata={"description": "both r and s, only r (on inputs) or only s (on outputs)"}
    )
    prior_scale: float = field(default=0.1, metadata={"gt": 0, "le": 100, "description": "prior sd of r and s about 1"})
    init_scale: float = field(
        default=0.5, metadata={"ge": 0, "le": 10, "description": "spread about 1 of the means a mixture starts from"}
    )
    init_sd: float = field(default=0.03, metadata={"gt": 0, "le": 10, "description": "sd of each factor at the start"})
    split: bool = field(default=True, metadata={"description": "deal a batch to the draws, or show each all of it"})

    @property
    def n_sets(self) -> int:
        return self.components

    @property
    def factor_names(self) -> tuple[str, ...]:
        return _NAMES[self.factors]

    @property
    def n_passes(self) -> int:
        return 1 if self.split else self.members

    def check(self, problem: Problem) -> None:
        if self.members % self.components:
            raise InvalidOption(
                f"rank1_bnn: members, the draws a step, has to be a multiple of components, got {self.members} and "
                f"{self.components}; pass members={-(-self.members // self.components) * self.components}"
            )
        super().check(problem)

    def run(self, problem: Problem, data: Data, *, seeds: list[int], warm: Tensors | None) -> Run:
        run = super().run(problem, data, seeds=seeds, warm=warm)
        spread = {}
        for name, mean in sort_tensors(run.theta)[0].items():
            spread[name] = torch.full_like(mean, math.log(self.init_sd))
            if warm is not None and _LOG_SD + name in warm:
                old = warm[_LOG_SD + name][:1, : self.components].to(mean)
                spread[name][:, : old.shape[1]] = old
        return replace(run, theta={**run.theta, **above(_LOG_SD, spread)})

    def objective(self, problem: Problem, forward: Forward, theta: Tensors, batch: Batch) -> Tensor:
        """−1/N of the bound in the docstring above: [1]."""
        tensors, extra = split_extra(theta)
        factors, biases, rest = _sorted(tensors)
        component = torch.arange(self.members) * self.components // self.members  # [M]
        drawn = _drawn(factors, tensors, component, generator(batch.seeds[0]))
        own = {k: v[:, component] for k, v in biases.items()}
        x, y = deal(problem, batch, self.members, split=self.split)
        outputs = forward({**rest, **own, **drawn}, x[None])
        loss = -problem.likelihood.log_prob(outputs, y[None], extra).mean(-1)
        means = torch.cat(list(factors.values()), 2)  # [1, K, …]
        log_sds = torch.cat([tensors[_LOG_SD + name] for name in factors], 2)
        kl = self._kl(means, log_sds).sum((1, 2)) / self.components
        if problem.prior is not None and rest:
            kl = kl - problem.prior.log_prob(rest)
        if problem.prior is not None and biases:
            kl = kl - problem.prior.log_prob({k: v[0] for k, v in biases.items()}).mean()
        return loss + kl / batch.n_rows

    def sample(self, problem: Problem, state: Tensors, n: int, *, rng: torch.Generator) -> Ensemble:
        """n draws of r and s, as evenly over the components as n allows; W is shared."""
        factors, biases, rest = _sorted(state)
        device = next(iter(state.values())).device
        order = torch.randperm(self.components, generator=rng)
        component = order[torch.arange(n) % self.components]
        stacked = {**_drawn(factors, state, component, rng), **{k: v[:, component] for k, v in biases.items()}}
        return Ensemble(
            problem=problem,
            stacked={k: v[0].to(device) for k, v in stacked.items()},
            shared={k: v[0] for k, v in rest.items()},
            transform=RankOne(layers=factored_layers(state)),
        )

    def unfold(self, problem: Problem, state: Tensors) -> dict[str, Tensor]:
        """A network for each component, its factors at their means."""
        return super().unfold(problem, {k: v for k, v in state.items() if not k.startswith(_LOG_SD)})

    def expected(self, problem: Problem, state: Tensors) -> Shapes:
        shapes = super().expected(problem, state)
        return shapes | {_LOG_SD + k: v for k, v in shapes.items() if is_factor(k)}

    def draw(self, shape: tuple[int, ...], rng: torch.Generator) -> Tensor:
        if self.components == 1:
            return torch.ones(shape)
        return 1 + self.init_scale * torch.randn(shape, generator=rng)

    def _kl(self, mean: Tensor, log_sd: Tensor) -> Tensor:
        """KL(N(mean, sd²) ‖ N(1, prior_scale²)) of each entry."""
        ratio = 2 * (log_sd - math.log(self.prior_scale))
        return 0.5 * (ratio.exp() + ((mean - 1) / self.prior_scale).square() - 1 - ratio)


def _sorted(tensors: Tensors) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]:
    """Means of factors, biases, and what the components share."""
    return sort_tensors({k: v for k, v in tensors.items() if not k.startswith(_LOG_SD)})


def _drawn(factors: Tensors, tensors: Tensors, component: Tensor, rng: torch.Generator) -> dict[str, Tensor]:
    """A draw of every factor from each of the named components: [1, M, ...]."""
    drawn = {}
    for name, mean in sorted(factors.items()):  # a file does not keep the order of its tensors
        noise = torch.randn(1, len(component), mean.shape[-1], dtype=mean.dtype, generator=rng).to(mean.device)
        drawn[name] = mean[:, component] + tensors[_LOG_SD + name][:, component].exp() * noise
    return drawn
