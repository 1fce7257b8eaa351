"""Sums over counts that are too many to go through: their probabilities, and the integral in place of the sum.

Gauss-Legendre on panels is shared by everything that is integrated over. Where counts may be few as well as many, the
first are summed and the others integrated over, joined by Gregory's rule:

    Σ_{k ≥ n} f(k) = ∫_n^∞ f + Σ_i c_i Δ^i f(n)

whose differences fall by 1/√n each for a distribution that is not narrower than Poisson's.
"""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bensemble_core.predictive.mixtures import LOG_2PI

Array = npt.NDArray[np.float64]
N_LEGENDRE = 6
MANY = 300.0  # from here on a count is large: what Stirling's series leaves out is below 1e-15
GREGORY = (1 / 2, -1 / 12, 1 / 24, -19 / 720, 3 / 160, -863 / 60480)


def panels(edges: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes and weights of Gauss-Legendre between neighbours of ascending edges [E, ...]: [(E − 1) · 6, ...] twice."""
    x, w = _legendre()
    shape = (1, N_LEGENDRE, *(1,) * (edges.ndim - 1))
    at, share = torch.as_tensor(0.5 * (x + 1)).reshape(shape), torch.as_tensor(0.5 * w).reshape(shape)
    widths = edges.diff(dim=0).unsqueeze(1)
    return (edges[:-1].unsqueeze(1) + widths * at).flatten(0, 1), (widths * share).flatten(0, 1)


@cache
def _legendre() -> tuple[Array, Array]:
    return np.polynomial.legendre.leggauss(N_LEGENDRE)


@cache
def first_counts() -> tuple[Tensor, Tensor]:
    """The counts from 0 on, and their weights beside an integral from MANY on: [n] twice."""
    n = int(MANY)
    weights = [1.0] * n + [0.0] * len(GREGORY)
    for order, c in enumerate(GREGORY):
        for k in range(order + 1):
            weights[n + k] += c * (-1) ** (order - k) * math.comb(order, k)
    return torch.arange(len(weights), dtype=torch.float64), torch.tensor(weights, dtype=torch.float64)


def by_size(y: Tensor, few: Callable[[Tensor], Tensor], many: Callable[[Tensor], Tensor]) -> Tensor:
    """What `few` gives where y is up to MANY and `many` beyond, each evaluated on hardly more than it is asked for: the
    first axis of y is taken apart where large ones begin."""
    large = y > MANY
    if not bool(large.any()):
        return few(y)
    if y.ndim == 0:
        return many(y)
    n = int(large.flatten(1).any(1).to(torch.uint8).argmax()) if y.ndim > 1 else int(large.to(torch.uint8).argmax())
    rest = many(y[n:].clamp(min=MANY))
    if not bool(large[n:].all()):
        rest = torch.where(large[n:], rest, few(y[n:].clamp(max=MANY)))
    return torch.cat([few(y[:n]), rest]) if n else rest


def remainder(y: Tensor) -> Tensor:
    """What log Γ(y + 1) has beyond (y + ½) log y − y + log √2π."""
    large = y.clamp(min=MANY)
    series = (1 / 12 - (1 / 360) / large.square()) / large
    if bool((y >= MANY).all()):
        return series
    small = y.clamp(max=MANY)
    plain = torch.lgamma(small + 1) - (small + 0.5) * small.log() + small - 0.5 * LOG_2PI
    return torch.where(y >= MANY, series, plain)


def digamma_remainder(x: Tensor) -> Tensor:
    """What ψ(x) has beyond log x − 1 / 2x."""
    large = x.clamp(min=MANY)
    series = (-1 / 12 + (1 / 120) / large.square()) / large.square()
    small = x.clamp(max=MANY)
    return torch.where(x >= MANY, series, torch.special.digamma(small) - small.log() + 0.5 / small)


def log_ratio(away: Tensor, log_plainly: Tensor) -> Tensor:
    """log(1 + away), from the logarithms themselves where `away` is not small."""
    near = away.abs() < 0.5
    return torch.where(near, torch.log1p(torch.where(near, away, 0.0)), log_plainly)


def poisson_log_prob(rate: Tensor, log_rate: Tensor, y: Tensor) -> Tensor:
    """At large y, without the large terms that cancel each other (Loader 2000)."""
    away = (rate - y) / y
    return y * (log_ratio(away, log_rate - y.log()) - away) - 0.5 * (2 * math.pi * y).log() - remainder(y)


def negative_binomial_log_prob(mean: Tensor, size: Tensor, y: Tensor) -> Tensor:
    """At large y in the same way: size / (size + y) times a binomial probability of `size` in size + y trials."""
    above = size * (y - mean) / (size + mean)  # of y over what is expected among so many trials
    total = size + y
    few = size * log_ratio(above / size, total.log() - (size + mean).log())
    many = y * log_ratio(-above / y, total.log() + mean.log() - (size + mean).log() - y.log())
    scale = 0.5 * (size.log() - total.log() - (2 * math.pi * y).log())
    return scale + few + many + remainder(total) - remainder(size) - remainder(y)


def poisson_entropy(rate: Tensor) -> Tensor:
    """Evans, Boersma, Blachman & Jagers (1988), for rates above MANY: the next term is below 1e-10."""
    return 0.5 * (2 * math.pi * math.e * rate).log() - 1 / (12 * rate) - 1 / (24 * rate**2) - 19 / (360 * rate**3)
