"""Sums over counts that are too many to go through: their probabilities, and an integral in place of the sum.

Gauss-Legendre on panels is shared by everything that is integrated over. Where counts may be few as well as many, the
first are summed and the others integrated over, joined by Gregory's rule:

    Σ_{k ≥ n} f(k) = ∫_n^∞ f + Σ_i c_i Δ^i f(n)

whose differences fall by 1/√n each for a distribution that is not narrower than Poisson's.

Probabilities and entropies are written without the large terms that cancel each other (Loader 2000): lgamma of a count
of 1e9 is known to 1e-6 only. scipy's own lose those digits.
"""

import math
from functools import cache

import numpy as np
import torch
from torch import Tensor

from bensemble_core.predictive.mixtures import LOG_2PI

N_LEGENDRE = 6
MANY = 300.0  # from here on a count is large: what Stirling's series leaves out is below 1e-15
GREGORY = (1 / 2, -1 / 12, 1 / 24, -19 / 720, 3 / 160, -863 / 60480)
NONE = 1e-20  # stands for a count of 0, whose logarithm would be infinite: p is the same to the last digit
_LEGENDRE = np.polynomial.legendre.leggauss(N_LEGENDRE)


def panels(edges: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes and weights of Gauss-Legendre between neighbours of ascending edges [E, ...]: [(E − 1) · 6, ...] twice."""
    x, w = (torch.as_tensor(0.5 * each).reshape(1, N_LEGENDRE, *(1,) * (edges.ndim - 1)) for each in _LEGENDRE)
    widths = edges.diff(dim=0).unsqueeze(1)
    return (edges[:-1].unsqueeze(1) + widths * (x + 0.5)).flatten(0, 1), (widths * w).flatten(0, 1)


@cache
def first_counts() -> tuple[Tensor, Tensor]:
    """The counts from 0 on, and their weights beside an integral from MANY on: [n] twice."""
    n = int(MANY)
    weights = [1.0] * n + [0.0] * len(GREGORY)
    for order, c in enumerate(GREGORY):
        for k in range(order + 1):
            weights[n + k] += c * (-1) ** (order - k) * math.comb(order, k)
    return torch.arange(len(weights), dtype=torch.float64), torch.tensor(weights, dtype=torch.float64)


def remainder(x: Tensor) -> Tensor:
    """What log Γ(x + 1) has beyond (x + ½) log x − x + log √2π: Stirling's series where x is large."""
    series = (1 / 12 - (1 / 360) / x.square()) / x
    if bool((x >= MANY).all()):
        return series
    exact = torch.lgamma(x + 1) - (x + 0.5) * x.log() + x - 0.5 * LOG_2PI
    return torch.where(x >= MANY, series, exact)


def digamma_remainder(x: Tensor) -> Tensor:
    """What ψ(x) has beyond log x − 1 / 2x."""
    series = (-1 / 12 + (1 / 120) / x.square()) / x.square()
    return torch.where(x >= MANY, series, torch.special.digamma(x) - x.log() + 0.5 / x)


def _log_ratio(change: Tensor, log_ratio: Tensor) -> Tensor:
    """log(1 + change), which is given as log_ratio too: that is exact where the change is not small."""
    return torch.where(change.abs() < 0.5, torch.log1p(change), log_ratio)


def poisson_log_prob(log_rate: Tensor, y: Tensor) -> Tensor:
    rate = log_rate.exp()
    if not bool((y > MANY).any()):  # three times as fast
        return y * log_rate - rate - torch.lgamma(y + 1)
    y = y.clamp(min=NONE)
    change = (rate - y) / y
    return y * (_log_ratio(change, log_rate - y.log()) - change) - 0.5 * (2 * math.pi * y).log() - remainder(y)


def negative_binomial_log_prob(mean: Tensor, size: Tensor, y: Tensor) -> Tensor:
    """size / (size + y) times the binomial probability of `size` successes in size + y trials."""
    y = y.clamp(min=NONE)
    total = size + y
    log_size, log_total, log_y, log_mean = size.log(), total.log(), y.log(), mean.log()
    log_sum = log_size + torch.log1p(mean / size)
    excess = (y - mean) / (1 + mean / size)  # of y over what is expected among so many trials
    of_size = size * _log_ratio(excess / size, log_total - log_sum)
    of_y = y * _log_ratio(-excess / y, log_total + log_mean - log_sum - log_y)
    scale = 0.5 * (log_size - log_total - log_y - LOG_2PI)
    return scale + of_size + of_y + remainder(total) - remainder(size) - remainder(y)


def poisson_entropy(rate: Tensor) -> Tensor:
    """Evans, Boersma, Blachman & Jagers (1988), for rates above MANY: the next term is below 1e-10."""
    return 0.5 * (2 * math.pi * math.e * rate).log() - 1 / (12 * rate) - 1 / (24 * rate**2) - 19 / (360 * rate**3)
