"""Hierarchical variational models."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from bensemble_core.posteriors.implicit.entropies import auxiliary_gain, exact_reverse
from bensemble_core.posteriors.implicit.mixing import Draws, Mixed, Mixture
from bensemble_core.types import Aim, Shapes

SLOPE, SHIFT, ROOT = "reverse/slope", "reverse/shift", "reverse/root"


@dataclass(frozen=True, kw_only=True)
class HVI(Mixed):
    """Weights that move together, mixed over a hidden z that a second Gaussian infers back (Ranganath et al. 2016).

    w = μ + A h(z) + σ ε with z ~ N(0, I) of `rank` numbers, A [P, rank], h the identity or (`hidden`) a small network.
    The density of w is an integral over z, so it maximises a bound on the evidence lower bound,

        L = E [log p(D, w) − log q(w | z) − log q(z) + log r(z | w)],

    with r(z | w) = N(z | B (w − μ)/σ + b, (ΛΛᵀ)⁻¹), linear in w with a full covariance. What r costs is the gap
    E KL(q(z | w) ‖ r(z | w)). With h the identity the best r is exact and known, and is used: q is a Gaussian with
    covariance AAᵀ + diag σ², and with `rank` ≥ P it meets any posterior that is a Gaussian; L is then the log evidence.
    With h a network, r is learnt, by how it differs from that of the identity, which follows A and σ (learnt from
    nothing it lags behind them). It is too simple then, and the gap holds q back: `sivi` and `uivi` do without r.

    Departures from the paper: one z for all weights (theirs is a flow or a mixture over the parameters of a mean
    field), and an r that is linear in w. The noise of a likelihood is a point with a flat prior; with `patience` the
    held-out loss is that of the network at μ.
    """

    name: Literal["hvi"] = "hvi"
    hidden: int = field(
        default=0,
        metadata={"ge": 0, "le": 1000, "description": "units of the network h that bends z; 0 is the identity"},
    )
    aims: ClassVar[Aim] = "exact"

    def entropy(self, q: Mixture, draws: Draws, seed: int) -> Tensor:
        """E [−log q(w | z) − log q(z) + log r(z | w)]."""
        units = (draws.weights - q.mean) * (-q.log_sd).exp()
        root, slope = exact_reverse(q)
        shift = torch.zeros_like(draws.z[0])
        if self.hidden:
            more = q.tensors[ROOT][0]
            root = root @ (more.tril(-1) + torch.diag(more.diagonal().exp()))
            slope, shift = slope + q.tensors[SLOPE][0], q.tensors[SHIFT][0]
        return q.conditional_entropy(draws) + auxiliary_gain(draws.z, units, slope, shift, root)

    def entropy_bound(self, q: Mixture, draws: Draws, seed: int) -> float:
        with torch.no_grad():
            return float(self.entropy(q, draws, seed))

    def start_more(self, q: Mixture) -> dict[str, Tensor]:
        """r by how it differs from the exact one of h the identity: not at all."""
        like = q.matrix.detach()
        return {name: like.new_zeros(shape) for name, shape in self.more_shapes(len(like)).items()}

    def more_shapes(self, size: int) -> Shapes:
        if not self.hidden:
            return {}
        return {SLOPE: (1, self.rank, size), SHIFT: (1, self.rank), ROOT: (1, self.rank, self.rank)}
