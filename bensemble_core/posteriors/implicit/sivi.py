"""Semi-implicit variational inference."""

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from bensemble_core.posteriors.implicit.entropies import entropy_bracket, mixing_gains
from bensemble_core.posteriors.implicit.mixing import Draws, Mixed, Mixture
from bensemble_core.randomness import generator
from bensemble_core.types import Data, Problem, Tensors


@dataclass(frozen=True, kw_only=True)
class SIVI(Mixed):
    """Weights of any shape, mixed over a hidden z, whose density is bounded by further draws of z (Yin & Zhou 2018).

    w = μ + A h(z) + σ ε with z ~ N(0, I) of `rank` numbers, A [P, rank], h a small network (`hidden`) or the identity.
    It maximises, with z⁰ that of w and z¹ … z^K (`mixing`) fresh,

        L_K = E [log p(D, w) − log (1/(K + 1)) Σ_{k=0}^K q(w | z^k)],

    a bound on the evidence lower bound from below, which grows with K and reaches it as K → ∞. Without z⁰, and with
    1/K, the same is a bound from above on it: `Fitted.bracket` gives the two, and says how far K is from enough;
    `Fitted.bound` is the lower. A small K asks for a σ that is large against A, so q spreads smoothly.

    All draws of w in a step share their K fresh z, as in the paper; a bound that is reported has fresh ones for each.
    Departures: h is a residual layer with an outer linear map (A) in place of a deep network of noise, which starts as
    a Gaussian; K does not grow along the training. The noise of a likelihood is a point with a flat prior; with
    `patience` the held-out loss is that of the network at μ.
    """

    name: Literal["sivi"] = "sivi"
    mixing: int = field(
        default=100, metadata={"ge": 1, "le": 100_000, "description": "K, fresh draws of z that the density is over"}
    )

    def entropy(self, q: Mixture, draws: Draws, seed: int) -> Tensor:
        """E −log (1/(K + 1)) Σ_{k=0}^K q(w | z^k)."""
        others = q.bend(q.draw_z(1, self.mixing, rng=generator(seed)))
        return q.conditional_entropy(draws) + mixing_gains(q.log_ratios(draws, others))[0].mean()

    def entropy_bound(self, q: Mixture, draws: Draws, seed: int) -> float:
        return entropy_bracket(q, draws, self.mixing, seed)[0]

    def bracket(
        self, problem: Problem, state: Tensors, data: Data, *, samples: int, rng: torch.Generator
    ) -> tuple[float, float]:
        """The bounds on the evidence lower bound of q, on all rows, in nats and the units of y."""
        q, draws, gained, seed = self._gained(problem, state, data, samples, rng)
        lower, upper = entropy_bracket(q, draws, self.mixing, seed)
        return gained + lower, gained + upper
