"""The baseline: a random score, a function of the row and the seed."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from bensemble_core.acquisition import counter
from bensemble_core.acquisition.entries import Rows
from bensemble_core.options import STRICT


def random(seed: int, first_row: int, n_rows: int) -> Tensor:
    """A random number in (0, 1) for each row, a function of (seed, pool row): [N] float64 (float32 would often tie)."""
    rows = np.arange(first_row, first_row + n_rows, dtype=np.int64)
    return torch.from_numpy(counter.uniform(seed, rows, counter.RANDOM_SCORE))


@dataclass(frozen=True, kw_only=True)
class Random:
    """Uniformly random rows: the baseline every other score has to beat."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    name: Literal["random"] = "random"


def score_random(predictive: None, options: Random, rows: Rows) -> Tensor:
    return random(rows.seed, rows.first, rows.count)
