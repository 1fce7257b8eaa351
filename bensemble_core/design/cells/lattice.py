"""The standard normal distribution as a mixture of narrower ones, N(0, I) = Σ_a w_a N(g_a, h² I)."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
RATIO = 0.75  # of a cell's sd to the distance of its neighbours: the sum is then flat to 1.5e-5


@dataclass(frozen=True, kw_only=True, eq=False)
class Lattice:
    centres: Array  # [A, K]
    weights: Array  # [A]
    sd: float


@lru_cache(maxsize=64)
def lattice(k: int, spacing: float, reach: float) -> Lattice:
    """Cells on a tensor grid out to `reach`, their sd such that the mixture's covariance is exactly I."""
    spread = 1 - (RATIO * spacing) ** 2  # variance of the centres
    n = int(np.ceil(reach / spacing))
    axis = spacing * np.arange(-n, n + 1)
    centres = np.stack(np.meshgrid(*[axis] * k, indexing="ij"), -1).reshape(-1, k)
    distance = (centres**2).sum(1)
    kept = distance <= reach**2 + 1e-9
    centres, weights = centres[kept], np.exp(-0.5 * distance[kept] / spread)
    weights /= weights.sum()
    return Lattice(centres=centres, weights=weights, sd=float(np.sqrt(1 - weights @ centres[:, 0] ** 2)))
