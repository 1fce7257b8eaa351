"""Ensembles of networks trained apart."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from bensemble_core.ensemble.tensors import split_extra
from bensemble_core.errors import InvalidData, InvalidOption
from bensemble_core.likelihoods import Gaussian
from bensemble_core.posteriors.networks import Networks
from bensemble_core.priors import Normal
from bensemble_core.randomness import generator
from bensemble_core.training.descent import Run
from bensemble_core.training.objectives import Batch, Forward, Objective, log_joint
from bensemble_core.types import Data, Problem, Tensors

_BOOTSTRAP, _ANCHOR, _LABELS = 7, 8, 10  # branches of a member's seed


@dataclass(frozen=True, kw_only=True)
class DeepEnsemble(Networks):
    """Several networks trained apart, each from its own start and order of rows (Lakshminarayanan et al. 2017).

    Each of the `members` is a MAP estimate. The weights of a module handed in are not used: each member is initialised
    afresh from its own seed. Member m has the same start and order of rows in an ensemble of any size, and the same
    weights but for rounding, which a long training in float32 magnifies (see training/descent.py). Any likelihood will
    do; the paper's regression is HeteroscedasticGaussian.

    `adversarial=0.01`, the paper's: every step also trains on x' = x + ε sign ∇ₓℓ(θ, x, y), with ℓ(θ, x, y) +
    ℓ(θ, x', y) in place of ℓ(θ, x, y) = −log p(y | x, θ); ε is that share of the range of each input over the rows.
    Beside it the prior counts once: it is as if there were twice as many rows.

    `anchored`: member m draws θ_m from the prior and minimises −Σ log p(ỹ | x, θ) + |θ − θ_m|²/(2 scale²), with
    targets ỹ = y + noise · ε where the noise is known, `Gaussian(noise=…)` (Osband et al. 2018; Pearce et al.
    2020, who leave y as it is). On a linear model a member is then an exact draw of the posterior: mean P⁻¹Xᵀy/noise²
    and covariance P⁻¹, P = XᵀX/noise² + I/scale². With other likelihoods y stays as it is and the spread is the
    prior's part only. Anchors depend on the seed alone, and a row's ε on its place, so they last through `update`.

    `bootstrap`: each member sees N rows drawn with replacement.
    """

    name: Literal["deep_ensemble"] = "deep_ensemble"
    members: int = field(default=5, metadata={"ge": 1, "le": 1000, "description": "networks to train"})
    bootstrap: bool = field(default=False, metadata={"description": "each member sees its own resampled rows"})
    adversarial: float | None = field(
        default=None,
        metadata={"gt": 0, "le": 1, "description": "train on rows moved against the loss by this share of their range"},
    )
    anchored: bool = field(
        default=False, metadata={"description": "each member is pulled to its own draw of the prior instead of to 0"}
    )
    starts_from_weights: ClassVar[bool] = False

    @property
    def n_networks(self) -> int:
        return self.members

    def check(self, problem: Problem) -> None:
        if self.bootstrap and self.patience is not None:
            raise InvalidOption(
                "deep_ensemble: bootstrap repeats rows, so a held-out row may also be trained on; drop patience"
            )
        if self.anchored and self.bootstrap:
            raise InvalidOption("deep_ensemble: anchored members differ by their own targets already; drop bootstrap")
        if self.anchored and not isinstance(problem.prior, Normal):
            raise InvalidOption(
                f"deep_ensemble: anchors are drawn from the prior, which has to be Normal, got {problem.prior!r}; "
                "pass prior=Normal(scale=…), or drop anchored"
            )
        if self.adversarial is not None and problem.model.integers:
            raise InvalidData(
                "deep_ensemble: rows that are indices into an embedding cannot be moved a little; drop adversarial"
            )
        super().check(problem)

    def run(self, problem: Problem, data: Data, *, seeds: list[int], warm: Tensors | None) -> Run:
        run = super().run(problem, data, seeds=seeds, warm=warm)
        objective: Objective = _Anchored(anchors(problem, run.theta, seeds)) if self.anchored else log_joint
        if self.adversarial is not None and data.n_rows:
            objective = _Adversarial(objective, self.adversarial * (data.x.amax(0) - data.x.amin(0)))
        return replace(
            run,
            rows=_resampled(seeds, data) if self.bootstrap else None,
            targets=noisy_targets(problem, data, seeds) if self.anchored else None,
            objective=objective,
        )

    def cost(self, n_parameters: int) -> int:
        return super().cost(n_parameters) * (1 if self.adversarial is None else 2)


@dataclass(frozen=True, eq=False)
class _Anchored:
    """log_joint with the prior centred on each member's anchor."""

    anchors: Tensors  # [M, ...]

    def __call__(self, problem: Problem, forward: Forward, theta: Tensors, batch: Batch) -> Tensor:
        weights, extra = split_extra(theta)
        assert problem.prior is not None
        away = {k: v - self.anchors[k][batch.group] for k, v in weights.items()}
        loss = -problem.likelihood.log_prob(forward(weights, batch.x), batch.y, extra).mean(-1)
        return loss - problem.prior.log_prob(away) / batch.n_rows


@dataclass(frozen=True, eq=False)
class _Adversarial:
    """The objective on the rows, and the loss on the rows moved by the sign of its gradient."""

    objective: Objective
    step: Tensor  # of one row's shape

    def __call__(self, problem: Problem, forward: Forward, theta: Tensors, batch: Batch) -> Tensor:
        weights, extra = split_extra(theta)
        own = batch.x if batch.x.ndim > self.step.ndim + 1 else batch.x.expand(len(batch.y), *batch.x.shape)
        still = {k: v.detach() for k, v in weights.items()}
        x = own.detach().requires_grad_()
        loss = -problem.likelihood.log_prob(forward(still, x), batch.y, {k: v.detach() for k, v in extra.items()})
        (uphill,) = torch.autograd.grad(loss.sum(), x)
        moved = x.detach() + self.step * uphill.sign()
        against = -problem.likelihood.log_prob(forward(weights, moved), batch.y, extra).mean(-1)
        return self.objective(problem, forward, theta, batch) + against


def anchors(problem: Problem, theta: Tensors, seeds: Sequence[int]) -> dict[str, Tensor]:
    """One draw of the prior for each member, a function of its seed: [M, ...]."""
    assert isinstance(problem.prior, Normal)
    weights, _ = split_extra(theta)
    drawn: dict[str, list[Tensor]] = {k: [] for k in weights}
    for seed in seeds:
        g = generator(seed, _ANCHOR)
        for k, v in weights.items():
            drawn[k].append(problem.prior.scale * torch.randn(v.shape[1:], generator=g, dtype=v.dtype))
    return {k: torch.stack(v).to(weights[k].device) for k, v in drawn.items()}


def noisy_targets(problem: Problem, data: Data, seeds: Sequence[int]) -> Tensor | None:
    """y + noise · ε for each member, [M, N, T]; None where the noise is not known beforehand."""
    likelihood = problem.likelihood
    if not isinstance(likelihood, Gaussian) or likelihood.learns:
        return None
    noise = likelihood.variance({}, data.y).sqrt()  # [T]
    drawn = [torch.randn(data.y.shape, generator=generator(s, _LABELS), dtype=data.y.dtype) for s in seeds]
    return data.y + noise * torch.stack(drawn).to(data.y.device)


def _resampled(seeds: list[int], data: Data) -> Tensor:
    """[M, N] rows drawn with replacement."""
    n = data.n_rows
    drawn = [torch.randint(max(n, 1), (n,), generator=generator(s, _BOOTSTRAP)) for s in seeds]
    return torch.stack(drawn).to(data.x.device)
