"""Fewer weighted draws that stand for many: threshold resampling (Fearnhead & Clifford 2003)."""

import math

import torch
from torch import Tensor

from bensemble_core.errors import InvalidOption
from bensemble_core.predictive.mixtures import check_weights


def resample(log_weights: Tensor, n: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """n different ones of S weighted draws, with new weights whose expectation is the old: [S] -> rows [n], [n].

    With the c for which Σ_i min(1, w_i / c) = n, every draw of weight w_i ≥ c is kept as it is; of the others n − k
    are chosen, draw i with probability w_i / c, and each has weight c. So E[new weight of i] = w_i for every i, and the
    sum of the weights stays exactly what it was; of all such schemes with n draws this one has the least expected
    squared change of the weights. The others are chosen by systematic sampling, in the order they came in (the paper's
    appendix).

    Rows come in ascending order. All S come back as they are where n ≥ S. A draw of weight 0 is never chosen: where
    fewer than n have a weight, those are what comes back.
    """
    n_draws = log_weights.shape[0] if log_weights.ndim else 0
    check_weights(log_weights, n_draws)
    if n < 1:
        raise InvalidOption(f"resample keeps at least 1 draw, got {n}")
    wide = log_weights.detach().to("cpu", torch.float64)
    rows = torch.arange(n_draws)
    if n < n_draws:
        rows = rows[wide > -math.inf]
    if n < len(rows):
        log_c = threshold(wide[rows], n)
        is_kept = wide[rows] >= log_c
        kept, rest = rows[is_kept], rows[~is_kept]
        u = float(torch.rand((), generator=rng, dtype=torch.float64, device=rng.device))
        chosen = rest[systematic((wide[rest] - log_c).exp(), n - len(kept), u)]
        wide = wide.clone()
        wide[chosen] = log_c
        rows = torch.cat([kept, chosen]).sort().values
    return rows.to(log_weights.device), wide[rows].to(log_weights.device)


def threshold(log_weights: Tensor, n: int) -> float:
    """log c with Σ_i min(1, w_i / c) = n, of more than n weights above 0: [S] -> a number.

    If the k heaviest are kept, c = (w_{k+1} + … + w_S) / (n − k); k is the smallest number for which no other weight is
    above that c. Sums are of logarithms: weights may lie e^1000 apart.
    """
    heaviest = log_weights.sort(descending=True).values
    tails = heaviest.flip(0).logcumsumexp(0).flip(0)[:n]  # log (w_{k+1} + … + w_S) for k = 0 … n − 1
    log_c = tails - torch.arange(n, 0, -1).to(tails).log()
    log_c[-1] = log_c[-1].maximum(heaviest[n - 1])  # rounding: n − 1 kept always do
    return float(log_c[int((heaviest[:n] <= log_c).nonzero()[0])])


def systematic(shares: Tensor, n: int, u: float) -> Tensor:
    """n different places of shares [R] in [0, 1] that sum to n, i with probability shares[i] over u ~ U(0, 1): [n].

    Those in whose part of the line, shares laid end to end, lies one of the points u, u + 1, …, u + n − 1.
    """
    if not n:
        return torch.zeros(0, dtype=torch.int64)
    ends = shares.cumsum(0)
    ends = ends * (n / ends[-1])
    counts = torch.arange(n)
    found = torch.searchsorted(ends, u + counts, right=True)
    found = (found - counts).cummax(0).values + counts  # two points in a part of length 1 + ε would be one choice
    return found.minimum(len(shares) - n + counts)
