"""The 1,797 handwritten digits that come with scikit-learn, pictures of 8 by 8 pixels from 0 to 16: 500 to measure on,
the others to choose from. Always in the same order, which is random."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.errors import NotReady

CLASSES = tuple(str(digit) for digit in range(10))
SIDE, DARKEST = 8, 16
N_EVALUATION, SEED = 500, 0


@dataclass(frozen=True, kw_only=True)
class Digits:
    pool_rows: NDArray[np.float32]  # [1297, 64]
    pool_labels: list[str]
    evaluation_rows: NDArray[np.float32]  # [500, 64]
    evaluation_labels: list[str]


def load_digits() -> Digits:
    try:
        from sklearn import datasets  # a quarter of a second that only those who ask for digits need to wait
    except ImportError:
        raise NotReady(
            "the digits come with scikit-learn, which is not installed here; pip install -c constraints.txt -e '.[app]'"
        ) from None
    found: tuple[NDArray[Any], NDArray[Any]] = datasets.load_digits(return_X_y=True)
    order = np.random.default_rng(SEED).permutation(len(found[0]))
    rows, labels = found[0][order].astype(np.float32), [str(digit) for digit in found[1][order]]
    return Digits(
        pool_rows=rows[N_EVALUATION:],
        pool_labels=labels[N_EVALUATION:],
        evaluation_rows=rows[:N_EVALUATION],
        evaluation_labels=labels[:N_EVALUATION],
    )


def first_labelled(labels: list[str], n: int) -> set[int]:
    """The first row of each class, and as many of the first others as make n."""
    first_of_class = {label: row for row, label in reversed(list(enumerate(labels)))}
    chosen = set(first_of_class.values())
    others = (row for row in range(len(labels)) if row not in chosen)
    return chosen | {row for row, _ in zip(others, range(n - len(chosen)), strict=False)}
