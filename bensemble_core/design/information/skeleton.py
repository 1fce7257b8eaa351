"""A few rows of a matrix from which all its rows follow: an interpolative decomposition (Cheng et al. 2005), with rows
chosen from a random sketch (Halko, Martinsson & Tropp 2011, §5.2).

p(y | θ, ξ) is smooth in ξ, so that the rows of a thousand designs span a hundred dimensions to the last digit. For
weights w that sum to 1, |M w − mix · (rows w)| is at most the greatest error of an entry, which is measured, not
estimated: a decomposition that is not exact to rounding is not used.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import linalg
from torch import Tensor

from bensemble_core.design.deadline import check
from bensemble_core.randomness import generator

LARGE = 2_000_000  # numbers of a matrix beyond which the search for its rows pays: they no longer fit the cache
TALL = 6000  # rows beyond which to look for the telling ones takes seconds, as long as a hundred products with all
FIRST, MOST = 96, 384  # dimensions looked for
SPARE = 8  # that must be left over, to know that they suffice
NEGLIGIBLE = 5e-15  # of the greatest pivot; what rounding leaves differs from processor to processor
AT_ONCE = 64  # rows compared at a time
EXACT = 1e-12  # error of an entry, beside the greatest


@dataclass(frozen=True, kw_only=True, eq=False)
class Skeleton:
    """matrix = mix · rows, up to `error` in each entry."""

    rows: Tensor  # [k, P]
    mix: Tensor  # [R, k]
    error: float


def skeleton(matrix: Tensor) -> Skeleton | None:
    """Of a matrix [R, P]; None where there is none, or it would save too little."""
    n_rows, n_columns = matrix.shape
    if n_rows * n_columns < LARGE or n_rows > TALL:
        return None
    rng = generator(0)
    most = min(MOST, n_rows // 3, n_columns // 3)
    sketch = torch.empty(n_rows, 0, dtype=torch.float64)
    while (known := sketch.shape[1]) < most:
        check()
        n = min(max(known, FIRST), most - known)
        sketch = torch.cat([sketch, matrix @ torch.randn(n_columns, n, generator=rng, dtype=torch.float64)], 1)
        _, upper, order = linalg.qr(sketch.numpy().T, mode="economic", pivoting=True)
        pivots = np.abs(upper.diagonal())
        k = int((pivots > NEGLIGIBLE * pivots[0]).sum())
        if k <= sketch.shape[1] - SPARE:
            return _measured(matrix, upper, order, k)
    return None


def _measured(matrix: Tensor, upper: Any, order: Any, k: int) -> Skeleton | None:
    """The first k rows in this order, the others as they follow from the triangle [n, R]; None if not to rounding."""
    mix = np.empty((len(order), k))
    mix[order[:k]] = np.eye(k)
    mix[order[k:]] = linalg.solve_triangular(upper[:k, :k], upper[:k, k:]).T
    found, rows = torch.from_numpy(mix), matrix[torch.from_numpy(order[:k].astype(np.int64))]
    error = greatest = 0.0
    for part, mixed in zip(matrix.split(AT_ONCE), found.split(AT_ONCE), strict=True):  # type: ignore[no-untyped-call]
        error = max(error, float((mixed @ rows).sub_(part).abs_().max()))
        greatest = max(greatest, float(part.max()), -float(part.min()))
    return Skeleton(rows=rows, mix=found, error=error) if error <= EXACT * greatest else None
