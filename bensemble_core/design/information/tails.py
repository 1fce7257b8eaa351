"""Averages of something with heavy tails: what lies beyond the edge of the grid, or the largest value that a particle
has seen.

The largest contributions follow a generalised Pareto distribution (Pickands 1975), whose shape k is fitted as Zhang &
Stephens (2009) do. Where k is near 1 the average rests on values that no particle has.
"""

import math

import numpy as np

from bensemble_core.design.belief.points import Array

HEAVIEST = 0.95  # shape: at 1 the mean no longer exists
ROUNDING = 1e-15  # of a sum
HOPELESS = 3.0  # error beyond that, of all that was seen


def unseen(values: Array, weights: Array) -> Array:
    """By how much Σ w x is probably off because of its tails, beyond what it varies by: [J, P], [P] -> [J]."""
    centred = values - (values @ weights)[:, None]
    return np.array([_unseen(np.sort(np.abs(row * weights))) for row in centred])


def _unseen(ordered: Array) -> float:
    n = len(ordered)
    n_tail = min(n // 5, int(3 * math.sqrt(n)))
    threshold = float(ordered[-n_tail - 1])
    excess = ordered[-n_tail:] - threshold
    if n_tail < 5 or not excess[-1] > 0:
        return 0.0
    shape, scale = pareto(excess[excess > 0])
    if shape > HEAVIEST:
        return HOPELESS * float(ordered.sum())
    expected = scale / (1 - shape) if shape > 0 else 0.0
    return max(0.0, n_tail * expected - float(excess.sum()))


def beyond(whole: Array, inner: Array, innermost: Array) -> Array:
    """What a sum over a grid probably lacks beyond its edges, from sums over the inner 7/8 and 3/4 of it: [J] thrice.

    The rings add ever less, by a factor that does not grow; where the last adds more, the sum lies outside.
    """
    last, before = np.abs(whole - inner), np.abs(inner - innermost)
    last = np.where(last <= ROUNDING * np.abs(whole), 0.0, last)
    ratio = last / np.maximum(before, 1e-300)
    return np.asarray(last * ratio / (1 - np.minimum(ratio, 0.9)))


def pareto(excess: Array) -> tuple[float, float]:
    """Shape and scale of a generalised Pareto distribution from ascending numbers above 0."""
    n = len(excess)
    m = 30 + int(math.sqrt(n))
    quartile = excess[int(n / 4 + 0.5) - 1]
    b = (1 - np.sqrt(m / (np.arange(1, m + 1) - 0.5))) / (3 * quartile) + 1 / excess[-1]
    shapes = np.log1p(-b[:, None] * excess).mean(1)
    fit = n * (np.log(-b / shapes) - shapes - 1)
    weights = np.exp(fit - fit.max())
    best = float(b @ weights / weights.sum())
    shape = float(np.log1p(-best * excess).mean())
    # a prior of ten observations at one half steadies it, as in Pareto smoothed importance sampling
    return (n * shape + 5) / (n + 10), -shape / best
