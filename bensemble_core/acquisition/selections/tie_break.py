"""Equal values are ordered by a random key of each row, a function of (seed, pool row) alone.

So which of equal rows is taken depends neither on their order in the pool nor on how it is cut into shards.
"""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from torch import Tensor

from bensemble_core.acquisition import counter

Floats: TypeAlias = npt.NDArray[np.floating]
Positions: TypeAlias = npt.NDArray[np.int64]


def tie_keys(seed: int, rows: Positions) -> npt.NDArray[np.float64]:
    """Of rows with equal values the one with the larger key comes first: [n] -> [n]."""
    return counter.uniform(seed, rows, counter.TIES)


def highest(scores: Floats, k: int, seed: int, rows: Positions) -> Positions:
    """Positions of the k largest, descending, ties by `tie_keys`, made for the rows concerned only: [n] -> [k]."""
    above, level = _around_the_cut(scores, k)
    if above.size + level.size > k:
        level = level[largest(tie_keys(seed, rows[level]), k - above.size)]
    chosen = np.concatenate([above, level])
    return chosen[np.lexsort((-tie_keys(seed, rows[chosen]), -scores[chosen]))]


def largest(keys: Floats, k: int) -> Positions:
    """Positions of the k largest of keys that do not tie, descending; linear in their number: [n] -> [k]."""
    above, level = _around_the_cut(keys, k)
    chosen = np.concatenate([above, level[: k - above.size]])
    return chosen[np.argsort(-keys[chosen], kind="stable")]


def ranks(scores: Floats, seed: int, rows: Positions) -> npt.NDArray[np.float64]:
    """1 for the highest score, 2 for the next, …, ties by `tie_keys`: [n] -> [n]."""
    found = np.empty(scores.size)
    found[np.lexsort((-tie_keys(seed, rows), -scores))] = np.arange(1, scores.size + 1)
    return found


def best(values: Tensor, tolerance: float, seed: int, rows: Tensor) -> int:
    """The position of the largest value; of those within the tolerance, and of NaN, the one with the largest key."""
    near = (values.isnan() | (values >= values.max() - tolerance)).nonzero()[:, 0]
    if near.numel() == 1:
        return int(near)
    return int(near[int(tie_keys(seed, rows.to(near.device)[near].cpu().numpy()).argmax())])


def _around_the_cut(keys: Floats, k: int) -> tuple[Positions, Positions]:
    """Positions above the k-th largest, and at it: both ascending."""
    if k == 0:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    cut = np.partition(keys, keys.size - k)[keys.size - k]
    return np.flatnonzero(keys > cut), np.flatnonzero(keys == cut)
