"""Ways to the entropy of weights that are mixed over a hidden z, as functions of draws."""

import math

import torch
from torch import Tensor

from bensemble_core.posteriors.implicit.mixing import Draws, Mixture
from bensemble_core.randomness import generator

_AT_ONCE = 1 << 22  # numbers in the mixing draws of a pass of `entropy_bracket`


def exact_reverse(q: Mixture) -> tuple[Tensor, Tensor]:
    """q(z | w) where h is the identity: the lower root Λ of its precision [R, R], and the slope of its mean [R, P].

    The precision is I + G, the mean (I + G)⁻¹ (A/σ)ᵀ u with u = (w − μ)/σ.
    """
    factor = torch.linalg.cholesky(torch.eye(len(q.gram), dtype=q.gram.dtype, device=q.gram.device) + q.gram)
    return factor, torch.cholesky_solve(q.scaled.mT, factor)


def auxiliary_gain(z: Tensor, units: Tensor, slope: Tensor, shift: Tensor, root: Tensor) -> Tensor:
    """E [log r(z | w) − log q(z)] over draws z [S, R] with their u = (w − μ)/σ [S, P]: [].

    r(z | w) = N(z | B u + b, (ΛΛᵀ)⁻¹) by B [R, P], b [R] and the lower root Λ [R, R]; q(z) = N(0, I).
    """
    apart = (z - units @ slope.mT - shift) @ root
    return root.diagonal().log().sum() + 0.5 * (z.square() - apart.square()).sum(-1).mean()


def mixing_gains(log_ratios: Tensor) -> tuple[Tensor, Tensor]:
    """What the entropy of w is above that of w given z, from below and from above: [S, K] -> [S] and [S].

    From log q(w | z^k) − log q(w | z⁰), k = 1 … K: −log (1/(K + 1)) (1 + Σ_k exp(·)), whose mean is at most the
    difference, and −log (1/K) Σ_k exp(·), whose mean is at least that. K = 0 has no second.
    """
    k = log_ratios.shape[-1]
    own = torch.cat([log_ratios.new_zeros(*log_ratios.shape[:-1], 1), log_ratios], -1)
    lower = math.log(k + 1) - own.logsumexp(-1)
    return lower, (math.log(k) - log_ratios.logsumexp(-1) if k else torch.full_like(lower, math.inf))


def entropy_bracket(q: Mixture, draws: Draws, n_mixing: int, seed: int) -> tuple[float, float]:
    """Estimates of a lower and an upper bound on the entropy of q, from K fresh z for each of the draws."""
    at_once = max(1, _AT_ONCE // (max(1, n_mixing) * draws.z.shape[1]))
    rng, lower, upper = generator(seed), 0.0, 0.0
    with torch.no_grad():
        for first in range(0, len(draws.z), at_once):
            some = draws.take(slice(first, first + at_once))
            ratios = q.log_ratios(some, q.bend(q.draw_z(len(some.z), n_mixing, rng=rng)))
            low, high = mixing_gains(ratios)
            lower, upper = lower + float(low.sum()), upper + float(high.sum())
        own = float(q.conditional_entropy(draws))
    return own + lower / len(draws.z), own + upper / len(draws.z)
