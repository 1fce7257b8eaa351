"""The rows that `epig` is about. A long list is represented by some of its rows, the same for a file as for a pool."""

import numpy as np
from numpy.typing import NDArray

import bensemble_core as bc

TARGET_ROWS = 1000  # enough to average over


def drawn_rows(n_rows: int, seed: int) -> tuple[NDArray[np.int64], str | None]:
    """Ascending, and what a reader of the ranking should know if these are not all."""
    if n_rows <= TARGET_ROWS:
        return np.arange(n_rows), None
    order = bc.acquisition.random(seed, 0, n_rows).numpy()
    rows = np.sort(np.argpartition(order, TARGET_ROWS)[:TARGET_ROWS])
    return rows, f"the target set has {n_rows:,} rows; {TARGET_ROWS:,} drawn by the seed stand for it"
