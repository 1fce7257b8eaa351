"""Priors over the network's raw parameters, the same for every weight and bias, and independent."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from bensemble_core.errors import InvalidOption
from bensemble_core.options import is_number
from bensemble_core.predictive.mixtures import LOG_2PI
from bensemble_core.types import Prior, Tensors


def _check_above_0(what: str, value: Any) -> None:
    if not (is_number(value) and value > 0):
        raise InvalidOption(f"{what} above 0, got {value!r}")


@dataclass(frozen=True, kw_only=True)
class Normal:
    """Every weight and bias is Gaussian around 0: p(θ) = Π N(θ_i | 0, scale²). `Normal(scale=1.0)` is the default.

    It enters the objective as log p(θ) beside the likelihood of all N rows: the pull of the prior fades as rows come,
    and is not the weight decay of an optimiser.
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        _check_above_0("Normal prior: scale is a finite standard deviation", self.scale)

    def log_prob(self, theta: Tensors) -> Tensor:
        """−½ Σ θ²/scale² − n log(scale √2π): named [M, ...] -> [M]."""
        squares = torch.stack([t.flatten(1).square().sum(1) for t in theta.values()]).sum(0)  # [M]
        n = sum(t[0].numel() for t in theta.values())
        return -0.5 * squares / self.scale**2 - n * (math.log(self.scale) + 0.5 * LOG_2PI)

    def to_json(self) -> dict[str, Any]:
        return {"name": "normal", "scale": float(self.scale)}


@dataclass(frozen=True, kw_only=True)
class DoubleExponential:
    """p(θ) = Π exp(−|θ_i|/scale)/(2 scale), Laplace's first law: its MAP is the lasso, many weights at 0.

    |θ|/scale enters the objective with the subgradient sign(θ), 0 at 0. A descent does not stop exactly at the kink but
    steps over it: its weights are about lr away from 0, less as the schedule lowers lr. The standard deviation of a
    weight is √2 scale. Methods that need a Normal prior refuse this one.
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        _check_above_0("DoubleExponential prior: scale is a finite mean of |θ|", self.scale)

    def log_prob(self, theta: Tensors) -> Tensor:
        """−Σ |θ|/scale − n log(2 scale): named [M, ...] -> [M]."""
        sizes = torch.stack([t.flatten(1).abs().sum(1) for t in theta.values()]).sum(0)  # [M]
        n = sum(t[0].numel() for t in theta.values())
        return -sizes / self.scale - n * math.log(2 * self.scale)

    def to_json(self) -> dict[str, Any]:
        return {"name": "double_exponential", "scale": float(self.scale)}


@dataclass(frozen=True, kw_only=True)
class StudentT:
    """p(θ) = Π t(θ_i | df, 0, scale): heavy tails, so that a few weights may be large at little cost.

    log t(θ) = log Γ((df + 1)/2) − log Γ(df/2) − ½ log(π df) − log scale − ½ (df + 1) log(1 + θ²/(df scale²)).
    df → ∞ is Normal(scale), df = 1 Cauchy; the variance, df/(df − 2) scale², is finite for df > 2. It is not concave:
    the MAP need not be one point. Methods that need a Normal prior refuse this one.
    """

    df: float = 3.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        _check_above_0("StudentT prior: df is a finite number of degrees of freedom", self.df)
        _check_above_0("StudentT prior: scale is a finite number", self.scale)

    def log_prob(self, theta: Tensors) -> Tensor:
        """Σ log t(θ | df, 0, scale): named [M, ...] -> [M]."""
        wide = self.df**0.5 * self.scale
        sums = torch.stack([(t.flatten(1) / wide).square().log1p().sum(1) for t in theta.values()]).sum(0)  # [M]
        n = sum(t[0].numel() for t in theta.values())
        peak = math.lgamma((self.df + 1) / 2) - math.lgamma(self.df / 2) - 0.5 * math.log(math.pi) - math.log(wide)
        return -0.5 * (self.df + 1) * sums + n * peak

    def to_json(self) -> dict[str, Any]:
        return {"name": "student_t", "df": float(self.df), "scale": float(self.scale)}


DEFAULT_PRIOR: Final = Normal(scale=1.0)  # itself, where the caller named none; an equal one of the caller's is another

PRIORS: dict[str, type[Any]] = {"normal": Normal, "double_exponential": DoubleExponential, "student_t": StudentT}


def checked_prior(prior: Prior | None) -> Prior | None:
    """A prior as it was handed in, or a refusal of what is none."""
    if prior is not None and (isinstance(prior, type) or not hasattr(prior, "log_prob")):
        raise InvalidOption(
            "prior has to be Normal(scale=…), DoubleExponential(scale=…) or StudentT(df=…, scale=…), or None for "
            f"maximum likelihood, got {prior!r}"
        )
    return prior


def prior_from_json(spec: Mapping[str, Any] | None) -> Prior | None:
    """The inverse of `to_json`; None is maximum likelihood."""
    if spec is None:
        return None
    if spec.get("name") not in PRIORS:
        raise InvalidOption(f"unknown prior {spec.get('name')!r}; there is {', '.join(PRIORS)}")
    made: Prior = PRIORS[spec["name"]](**{k: v for k, v in spec.items() if k != "name"})
    return made
