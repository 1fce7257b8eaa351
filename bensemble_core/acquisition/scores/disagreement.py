"""Scores from probabilities, votes and spreads: confidence, margins, vote shares, variances.

The kernels are pure functions of normalised log-probabilities [M, N, C] -> [N], finite in value and gradient at p = 0.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from bensemble_core.acquisition.entries import Rows
from bensemble_core.acquisition.fused import kernels
from bensemble_core.errors import InvalidOption
from bensemble_core.options import STRICT
from bensemble_core.predictive import CategoricalPredictive, GaussianPredictive, Predictive, mixtures

Part = Literal["total", "epistemic"]


@kernels.fused("least_confidence")
def least_confidence(log_probs: Tensor, log_weights: Tensor | None = None) -> Tensor:
    """One minus the largest class probability, 1 − max_c p̄_c (Lewis & Gale 1994): [M, N, C] -> [N]."""
    return _doubt(mixtures.log_mean(log_probs, log_weights).exp())[0]


@kernels.fused("margin")
def margin(log_probs: Tensor, log_weights: Tensor | None = None) -> Tensor:
    """One minus the gap of the two best classes, 1 − (p̄₍₁₎ − p̄₍₂₎) (Scheffer et al. 2001): [M, N, C] -> [N]."""
    doubt, rest = _doubt(mixtures.log_mean(log_probs, log_weights).exp())
    return doubt + rest.amax(-1)


@kernels.fused("variation_ratio")
def variation_ratio(log_probs: Tensor, log_weights: Tensor | None = None) -> Tensor:
    """Share of member votes outside the majority, 1 − max_c v_c (Freeman 1965): [M, N, C] -> [N].

    v_c is the share of members that find class c most probable. With few members, and so few values, most rows tie.
    """
    majority = CategoricalPredictive(logits=log_probs, log_weights=log_weights).votes().amax(-1)
    if log_weights is not None:
        return (1 - majority).clamp(min=0)
    n_members = log_probs.shape[0]
    # whole votes again: equal counts must give equal bits, or ties are broken by rounding
    return (n_members - (majority * n_members).round()) / n_members


def predictive_variance(log_probs: Tensor, log_weights: Tensor | None = None, *, part: Part = "total") -> Tensor:
    """Variance of the one-hot label, summed over classes: [M, N, C] -> [N].

    `total` is 1 − Σ_c p̄_c², `epistemic` the members' part of it, Σ_c Var_m(p_mc) by 1/M.
    """
    if part == "epistemic":
        return _epistemic_variance(log_probs, log_weights)
    if part != "total":
        raise InvalidOption(f'part is "total" or "epistemic", got {part!r}')
    return _total_variance(log_probs, log_weights)


@kernels.fused("total_variance")
def _total_variance(log_probs: Tensor, log_weights: Tensor | None = None) -> Tensor:
    mean = mixtures.log_mean(log_probs, log_weights).exp()
    return (mean * (1 - mean)).sum(-1).clamp(min=0)


@kernels.fused("epistemic_variance")
def _epistemic_variance(log_probs: Tensor, log_weights: Tensor | None = None) -> Tensor:
    return mixtures.variance(log_probs.exp(), log_weights).sum(-1)


@kernels.fused("mean_std")
def mean_std(log_probs: Tensor, log_weights: Tensor | None = None) -> Tensor:
    """Standard deviation over members (by 1/M), averaged over classes (Kampffmeyer et al. 2016): [M, N, C] -> [N]."""
    return _root(mixtures.variance(log_probs.exp(), log_weights)).mean(-1)


def _doubt(probs: Tensor) -> tuple[Tensor, Tensor]:
    """Σ of all but the largest, and these others with the largest set to 0: [N, C] -> [N], [N, C].

    Equal to 1 − max p, without the cancellation that makes all confident rows tie in float32.
    """
    rest = probs.scatter(-1, probs.argmax(-1, keepdim=True), 0.0)
    top = probs.detach().amax(-1)
    return rest.sum(-1) + (top - top), rest  # + 0, or NaN where the largest was NaN and is gone from the rest


def _root(variance: Tensor) -> Tensor:
    """√v whose gradient is 0, not infinite, at v = 0."""
    zero = variance == 0
    return torch.where(zero, torch.ones_like(variance), variance).sqrt().masked_fill(zero, 0.0)


@dataclass(frozen=True, kw_only=True)
class LeastConfidence:
    """One minus the probability of the most probable class."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    name: Literal["least_confidence"] = "least_confidence"
    column: ClassVar[str] = "least_confidence"


@dataclass(frozen=True, kw_only=True)
class Margin:
    """One minus the gap between the two most probable classes."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    name: Literal["margin"] = "margin"
    column: ClassVar[str] = "margin"


@dataclass(frozen=True, kw_only=True)
class VariationRatio:
    """Share of member votes outside the majority; coarse with few members."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    name: Literal["variation_ratio"] = "variation_ratio"
    column: ClassVar[str] = "variation_ratio"


@dataclass(frozen=True, kw_only=True)
class PredictiveVariance:
    """Variance of the label (total) or of the members' means (epistemic), summed over classes or outputs."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    name: Literal["predictive_variance"] = "predictive_variance"
    part: Part = field(default="total", metadata={"description": "total: noise included; epistemic: members' spread"})

    @property
    def column(self) -> str:
        return f"{self.part}_variance"


@dataclass(frozen=True, kw_only=True)
class MeanStd:
    """Standard deviation over members of the class probabilities (or of the predicted means), averaged."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    name: Literal["mean_std"] = "mean_std"
    column: ClassVar[str] = "mean_std"


def _of_classes(formula: kernels.Formula) -> Callable[[Predictive, Any, Rows], Tensor]:
    """The score of an acquisition that is a formula of class probabilities, without options."""

    def score(predictive: Predictive, options: Any, rows: Rows) -> Tensor:
        if not isinstance(predictive, CategoricalPredictive):
            raise InvalidOption("this acquisition counts classes and is not defined for regression")
        return formula(kernels.inputs(predictive), predictive.log_weights)

    return score


score_least_confidence = _of_classes(least_confidence)
score_margin = _of_classes(margin)
score_variation_ratio = _of_classes(variation_ratio)


def score_predictive_variance(predictive: Predictive, options: PredictiveVariance, rows: Rows) -> Tensor:
    if isinstance(predictive, GaussianPredictive):
        variance = predictive.variance() if options.part == "total" else predictive.epistemic_variance()
        return variance.reshape(predictive.n_rows, predictive.n_outputs).sum(-1)
    return predictive_variance(kernels.inputs(predictive), predictive.log_weights, part=options.part)


def score_mean_std(predictive: Predictive, options: MeanStd, rows: Rows) -> Tensor:
    """Regression: the standard deviation over members of the predicted mean, averaged over outputs."""
    if isinstance(predictive, GaussianPredictive):
        spread = predictive.epistemic_variance().reshape(predictive.n_rows, predictive.n_outputs)
        return _root(spread).mean(-1)
    return mean_std(kernels.inputs(predictive), predictive.log_weights)
