"""Scores in nats: how uncertain the label is, and how much of that the members disagree about.

The kernels are pure functions of normalised log-probabilities [M, N, C] -> [N]; −inf (p = 0) is allowed and gives
no NaN, neither in the value nor in the gradient.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from torch import Tensor

from bensemble_core.acquisition.entries import Rows
from bensemble_core.acquisition.fused import kernels
from bensemble_core.options import STRICT
from bensemble_core.predictive import CategoricalPredictive, Estimate, Predictive, mixtures

_ESTIMATE = {
    "description": "Regression only: moment_match is ½ log(1 + Var_epistemic/σ²), mixture is the exact entropy of the "
    "members' mixture by quadrature (one output). Classification is always exact."
}
_ESTIMATE_OF_INFORMATION = {
    "description": _ESTIMATE["description"] + " moment_match sees the members' means alone: where they disagree only "
    "about the noise it is 0, and mixture is not."
}


@kernels.fused("entropy")
def entropy(log_probs: Tensor, log_weights: Tensor | None = None) -> Tensor:
    """Entropy of the mixture in nats, H[p̄] = −Σ_c p̄_c log p̄_c, p̄ = Σ_m w_m p_m (Shannon 1948): [M, N, C] -> [N]."""
    return mixtures.categorical_entropy(mixtures.log_mean(log_probs, log_weights))


@kernels.fused("bald")
def bald(log_probs: Tensor, log_weights: Tensor | None = None) -> Tensor:
    """Information of the label about the member, in nats (Houlsby et al. 2011): [M, N, C] -> [N].

    I(y; θ | x) = H[p̄] − Σ_m w_m H[p_m], kept between 0 and H[w] against rounding, and exactly 0 where members agree.
    """
    expected = mixtures.member_average(mixtures.categorical_entropy(log_probs), log_weights)
    gained = entropy(log_probs, log_weights) - expected
    most = mixtures.weight_entropy(log_weights, log_probs.shape[0])
    return gained.clamp(min=0, max=most).masked_fill(agreed(log_probs), 0.0)


def agreed(values: Tensor) -> Tensor:
    """Rows for which all members predict the same: [M, N, ...] -> [N]."""
    same = (values == values[:1]).all(0)
    return same if same.ndim == 1 else same.flatten(1).all(1)


def eig(log_probs: Tensor, log_weights: Tensor | None = None) -> Tensor:
    """Expected information gain of observing the label (Lindley 1956), the same number as `bald`: [M, N, C] -> [N]."""
    return bald(log_probs, log_weights)


@dataclass(frozen=True, kw_only=True)
class Bald:
    """Mutual information between the label and the member: rows the members disagree about.

    For numbers, by default, rows whose means they disagree about. Two members with one mean and noise sds 1 and 10 have
    0, with estimate="mixture" .433.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    name: Literal["bald"] = "bald"
    column: ClassVar[str] = "bald"
    estimate: Estimate = field(default="moment_match", metadata=_ESTIMATE_OF_INFORMATION)


@dataclass(frozen=True, kw_only=True)
class Eig:
    """Expected information gain of the label about the model; equal to BALD."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    name: Literal["eig"] = "eig"
    column: ClassVar[str] = "bald"
    estimate: Estimate = field(default="moment_match", metadata=_ESTIMATE_OF_INFORMATION)


@dataclass(frozen=True, kw_only=True)
class Entropy:
    """Total uncertainty of the label, noise included."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    name: Literal["entropy"] = "entropy"
    column: ClassVar[str] = "entropy"
    estimate: Estimate = field(default="moment_match", metadata=_ESTIMATE)


def score_information(predictive: Predictive, options: Bald | Eig, rows: Rows) -> Tensor:
    if isinstance(predictive, CategoricalPredictive):
        return bald(kernels.inputs(predictive), predictive.log_weights)
    gained = predictive.mutual_information(method=options.estimate)
    same = agreed(predictive.means)
    if options.estimate == "mixture":
        gained = gained.clamp(max=mixtures.weight_entropy(predictive.log_weights, predictive.n_members))
        same &= agreed(predictive.variances)
    return gained.masked_fill(same, 0.0)


def score_entropy(predictive: Predictive, options: Entropy, rows: Rows) -> Tensor:
    if isinstance(predictive, CategoricalPredictive):
        return entropy(kernels.inputs(predictive), predictive.log_weights)
    return predictive.entropy(method=options.estimate)


def information_ceiling(options: Bald | Eig, family: str, log_weights: Tensor | None, n_members: int) -> float | None:
    """The most that a plug-in estimate can reach, H[w] (ln M with equal weights); the moment match has none."""
    if family == "gaussian" and options.estimate == "moment_match":
        return None
    return mixtures.weight_entropy(log_weights, n_members)
