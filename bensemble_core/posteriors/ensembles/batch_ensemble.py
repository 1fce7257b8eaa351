"""BatchEnsemble: members that share every weight matrix but for a rank-one factor."""

import math
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from bensemble_core.ensemble import Ensemble
from bensemble_core.ensemble.tensors import split_extra
from bensemble_core.models.transforms import RankOne
from bensemble_core.posteriors.ensembles.factors import Factored, deal, factored_layers, sort_tensors
from bensemble_core.posteriors.start import thinned
from bensemble_core.predictive.mixtures import LOG_2PI
from bensemble_core.training.objectives import Batch, Forward
from bensemble_core.types import Problem, Tensors


@dataclass(frozen=True, kw_only=True)
class BatchEnsemble(Factored):
    """Cheap members that share every weight matrix but for a rank-one factor of their own (Wen, Tran & Ba 2020).

    Member m has W_m = W ∘ (s_m r_mᵀ) in every linear and convolution layer, and biases b_m.
    W and all other tensors (normalisation, embeddings, buffers, noise) are shared, so that a member costs D + 2 O
    numbers a layer. The point that is found maximises the average of the members' log joints, with the data counted
    once against log p(W):

        log p(W) + 1/M Σ_m [ N/(B/M) Σ_{rows of m} log p(y | x, W, r_m, s_m, b_m) + log p(r_m, s_m, b_m) ].

    A batch is dealt to the members, B/M rows each, as in the paper; with `split=False` every member sees all of it. The
    problem's prior is on W, b and the other parameters. The paper has no prior on r and s, and then none on W ∘ (s rᵀ)
    either, since W may shrink as r grows; here they have N(1, factor_scale²), after `init="signs"` ½ N(1, ·) +
    ½ N(−1, ·), unless `factor_scale` is None. Without a prior on the weights there is none on the factors. Weights
    inside nn.LSTM or nn.MultiheadAttention, which are not called as layers, have no factors. The weights of a module
    handed in are not used, and early stopping asks one member for each held-out row.
    """

    name: Literal["batch_ensemble"] = "batch_ensemble"
    members: int = field(default=4, metadata={"ge": 1, "le": 1000, "description": "rank-one members"})
    init: Literal["signs", "normal"] = field(
        default="signs", metadata={"description": "r and s start as random signs, or as N(1, init_scale²)"}
    )
    init_scale: float = field(default=0.5, metadata={"ge": 0, "le": 10, "description": "spread of a normal start"})
    factor_scale: float | None = field(
        default=0.5, metadata={"gt": 0, "le": 100, "description": "sd of the prior on r and s; null is none"}
    )
    split: bool = field(default=True, metadata={"description": "deal a batch to the members, or show each all of it"})

    @property
    def n_sets(self) -> int:
        return self.members

    @property
    def n_passes(self) -> int:
        return 1 if self.split else self.members

    def objective(self, problem: Problem, forward: Forward, theta: Tensors, batch: Batch) -> Tensor:
        """−1/N of the sum in the docstring above: [1]."""
        weights, extra = split_extra(theta)
        x, y = deal(problem, batch, self.members, split=self.split)
        loss = -problem.likelihood.log_prob(forward(weights, x[None]), y[None], extra).mean(-1)
        if problem.prior is None:
            return loss
        factors, biases, rest = sort_tensors(weights)
        log_prior = loss.new_zeros(1)
        if rest:
            log_prior = log_prior + problem.prior.log_prob(rest)
        if biases:
            log_prior = log_prior + problem.prior.log_prob({k: v[0] for k, v in biases.items()}).mean()
        if self.factor_scale is not None:
            each = torch.cat(list(factors.values()), 2)  # [1, M, …]
            log_prior = log_prior + self._log_prior(each, self.factor_scale).sum((1, 2)) / self.members
        return loss - log_prior / batch.n_rows

    def sample(self, problem: Problem, state: Tensors, n: int, *, rng: torch.Generator) -> Ensemble:
        """min(n, members), evenly thinned: r, s and biases stacked, W shared."""
        factors, biases, rest = sort_tensors(state)
        stacked = thinned({k: v[0] for k, v in {**factors, **biases}.items()}, n)
        shared = {k: v[0] for k, v in rest.items()}
        return Ensemble(
            problem=problem, stacked=stacked, shared=shared, transform=RankOne(layers=factored_layers(state))
        )

    def draw(self, shape: tuple[int, ...], rng: torch.Generator) -> Tensor:
        if self.init == "signs":
            return 2.0 * torch.randint(2, shape, generator=rng) - 1
        return 1 + self.init_scale * torch.randn(shape, generator=rng)

    def _log_prior(self, factor: Tensor, scale: float) -> Tensor:
        constant = -math.log(scale) - 0.5 * LOG_2PI
        above = -0.5 * ((factor - 1) / scale).square()
        if self.init == "normal":
            return above + constant
        below = -0.5 * ((factor + 1) / scale).square()
        return torch.logaddexp(above, below) - math.log(2) + constant
