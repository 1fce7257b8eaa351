"""Mean and variance of a hidden unit f(a), a ~ N(m, s²), by importance draws; f is ReLU or tanh.

With a = m + s ε, ε ~ N(0, 1) = φ, the proposal of least variance for E f is r* ∝ |f(m + s ε)| φ(ε). Its mean c and
variance d² are known, and the draws come from

    r(ε) = 0.9 N(ε | c, d²) + 0.1 φ(ε),    E f ≈ (1/M) Σ_j γ_j f(m + s ε_j),    γ = φ/r ≤ 10.

Without the part of φ the variance of γf is infinite wherever N(c, d²) is too narrow: for ReLU, m < .38 s. The draws are
stratified: the j-th has the j-th of M equal parts of the mixture's probability. ε and γ are held, so that a gradient
goes through m and s of f alone; it is that of E f, without bias.
"""

import math
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

Nonlinearity: TypeAlias = Literal["relu", "tanh"]
SHARE = 0.9  # of the proposal that follows r*
_LEAST_RATIO = -5.0  # m/s under which a ReLU is off: the proposal is that of this ratio
_NODES = 32  # of the Gauss-Hermite rule for tanh


def unit_moments(kind: Nonlinearity, mean: Tensor, sd: Tensor, draws: int) -> tuple[Tensor, Tensor]:
    """Estimates of E f and Var f of units with a ~ N(mean, sd²), of any shape, each with draws of its own.

    The noise is that of torch's global generator. The variance is the weighted mean of (f − E f)², never below 0.
    """
    with torch.no_grad():
        centre, spread = proposal(kind, mean, sd)
        parts = torch.arange(draws, dtype=mean.dtype, device=mean.device).view(-1, *[1] * mean.ndim)
        uniform = (parts + torch.rand(draws, *mean.shape, dtype=mean.dtype, device=mean.device)) / draws
        epsilon = from_mixture(uniform, centre, spread)
        weights = importance(epsilon, centre, spread)  # [draws, ...]
    values = mean + sd * epsilon
    values = values.relu() if kind == "relu" else values.tanh()
    first = (weights * values).mean(0)
    return first, (weights * (values - first).square()).mean(0)


def proposal(kind: Nonlinearity, mean: Tensor, sd: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and sd of ε under r* ∝ |f(m + s ε)| φ(ε).

    ReLU, with t = m/s and J = tΦ(t) + φ(t), which is E f / s: mean Φ/J, variance 1 + φ/J − (Φ/J)². tanh: by a
    Gauss-Hermite rule.
    """
    if kind == "relu":
        t = (mean.double() / sd.double()).clamp_min(_LEAST_RATIO)  # in float32, J has no digits left at −5
        density = (-0.5 * t.square()).exp() / math.sqrt(2 * math.pi)
        below = torch.special.ndtr(t)
        total = t * below + density
        centre = below / total
        return centre.to(mean), (1 + density / total - centre.square()).sqrt().to(mean)
    nodes, masses = (torch.from_numpy(v).to(mean) for v in np.polynomial.hermite_e.hermegauss(_NODES))
    sizes = masses * (mean[..., None] + sd[..., None] * nodes).tanh().abs()
    sizes = sizes / sizes.sum(-1, keepdim=True).clamp_min(torch.finfo(mean.dtype).tiny)
    centre = (sizes * nodes).sum(-1)
    second = (sizes * (nodes - centre[..., None]).square()).sum(-1)
    dead = second <= 0  # |f| under the smallest number: any proposal is as good
    return centre, second.masked_fill(dead, 1.0).sqrt()


def from_mixture(uniform: Tensor, centre: Tensor, spread: Tensor) -> Tensor:
    """Draws of r from uniform numbers: those under SHARE are of N(c, d²), the others of φ."""
    follows = uniform < SHARE
    own = torch.where(follows, uniform / SHARE, (uniform - SHARE) / (1 - SHARE))
    edge = torch.finfo(uniform.dtype).eps
    z = torch.special.ndtri(own.clamp(edge, 1 - edge))
    return torch.where(follows, centre + spread * z, z)


def importance(epsilon: Tensor, centre: Tensor, spread: Tensor) -> Tensor:
    """γ = φ/r at ε: 1/(0.9 N(ε | c, d²)/φ(ε) + 0.1)."""
    z = (epsilon - centre) / spread
    log_ratio = 0.5 * (epsilon.square() - z.square()) - spread.log()
    return 1 / (SHARE * log_ratio.exp() + (1 - SHARE))
