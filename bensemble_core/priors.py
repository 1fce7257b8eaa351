"""Priors over the network's raw parameters."""

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


@dataclass(frozen=True, kw_only=True)
class Normal:
    """Every weight and bias is Gaussian around 0: p(θ) = Π N(θ_i | 0, scale²). `Normal(scale=1.0)` is the default.

    It enters the objective as log p(θ) beside the likelihood of all N rows: the pull of the prior fades as rows come,
    and is not the weight decay of an optimiser.
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        if not (is_number(self.scale) and self.scale > 0):
            raise InvalidOption(f"Normal prior: scale is a finite standard deviation above 0, got {self.scale!r}")

    def log_prob(self, theta: Tensors) -> Tensor:
        """−½ Σ θ²/scale² − n log(scale √2π): named [M, ...] -> [M]."""
        squares = torch.stack([t.flatten(1).square().sum(1) for t in theta.values()]).sum(0)  # [M]
        n = sum(t[0].numel() for t in theta.values())
        return -0.5 * squares / self.scale**2 - n * (math.log(self.scale) + 0.5 * LOG_2PI)

    def to_json(self) -> dict[str, Any]:
        return {"name": "normal", "scale": float(self.scale)}


DEFAULT_PRIOR: Final = Normal(scale=1.0)  # itself, where the caller named none; an equal one of the caller's is another

PRIORS = {"normal": Normal}


def checked_prior(prior: Prior | None) -> Prior | None:
    """A prior as it was handed in, or a refusal of what is none."""
    if prior is not None and (isinstance(prior, type) or not hasattr(prior, "log_prob")):
        raise InvalidOption(f"prior has to be Normal(scale=…), or None for maximum likelihood, got {prior!r}")
    return prior


def prior_from_json(spec: Mapping[str, Any] | None) -> Prior | None:
    """The inverse of `to_json`; None is maximum likelihood."""
    if spec is None:
        return None
    if spec.get("name") not in PRIORS:
        raise InvalidOption(f"unknown prior {spec.get('name')!r}; there is {', '.join(PRIORS)}")
    return PRIORS[spec["name"]](**{k: v for k, v in spec.items() if k != "name"})
