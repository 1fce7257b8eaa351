"""MAP: one set of weights."""

from dataclasses import dataclass
from typing import Literal

from bensemble_core.posteriors.networks import Networks


@dataclass(frozen=True, kw_only=True)
class MAP(Networks):
    """One network at the peak of the posterior: no spread, a baseline.

        θ* = argmax Σ log p(y | x, θ) + log p(θ);   with `prior=None` maximum likelihood.

    A module's own weights are the start, and with `epochs=0` they are the answer.
    """

    name: Literal["map"] = "map"
