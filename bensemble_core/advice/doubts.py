"""Labels that are contradicted by predictions which did not learn from them."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bensemble_core.errors import InvalidData

SURE = 0.3  # share of the rows: those that predictions are surest of
FAR = 4.0  # standard deviations


@dataclass(frozen=True, kw_only=True, eq=False)
class Doubts:
    """Rows whose label is doubted, the worst first."""

    rows: NDArray[np.int64]  # [K]
    predicted: NDArray[Any]  # [K] class, or mean [K] or [K, T]
    score: NDArray[np.float64]  # [K] by which they are ordered: a difference of probabilities, or standard deviations
    is_strong: NDArray[np.bool_]  # [K] of rows that predictions are sure of
    sure: NDArray[np.int64]  # rows that could be doubted strongly
    expected: float  # strong doubts that there would be if every label were right and predictions calibrated

    @property
    def n_sure(self) -> int:
        return len(self.sure)

    def __len__(self) -> int:
        return len(self.rows)


def doubt_labels(probabilities: ArrayLike, labels: ArrayLike) -> Doubts:
    """Labels that a class other than theirs contradicts, by confident learning (Northcutt et al. 2021).

    t_c, the mean probability of c over the rows labelled c, is what a right label of c usually gets. A row labelled y
    is doubted where p_y < t_y and a class k has p_k ≥ t_k and p_k > p_y; the worst has the largest p_k − p_y.

    The doubt is strong where the row is among the 30 % that predictions are surest of (the largest max_c p_c) and their
    class is not y; `expected` is Σ (1 − max_c p_c) over these. Wrong labels are everywhere, hard rows are seldom among
    them: of 160 to 200 rows of digits and breast cancer, chosen at random or by margin, 0 to 2 right labels were
    doubted strongly, and with 5 % of the labels changed 1 to 10, of which 28 of 32 were changed ones. Where a model is
    often wrong (three classes, 70 % predicted right) it were 2 to 8 with right labels: one that contradicts a quarter
    of all labels cannot judge them. That there are more than `expected` tells little: calibrated on labels of which
    some are wrong, probabilities expect wrong ones.

    probabilities [N, C] of rows by a model that did not learn from their labels, labels [N] class indices. A class
    without rows is a contradiction only where predictions are sure of it.
    """
    p, y = np.asarray(probabilities, dtype=np.float64), np.asarray(labels)
    if p.ndim != 2 or y.shape != p.shape[:1]:
        raise InvalidData(f"expected probabilities [rows, classes] and a label a row, got {p.shape} and {y.shape}")
    rows = np.arange(len(p))
    own = p[rows, y]
    counts = np.bincount(y, minlength=p.shape[1])
    usual = np.full(p.shape[1], np.inf)
    np.divide(np.bincount(y, own, minlength=p.shape[1]), counts, out=usual, where=counts > 0)
    rivals = np.where(p >= usual, p, -1.0)
    rivals[rows, y] = -1.0
    sure = np.argsort(-p.max(1), kind="stable")[: math.ceil(SURE * len(p))]
    is_strong = np.zeros(len(p), dtype=bool)
    is_strong[sure] = p[sure].argmax(1) != y[sure]
    rival = np.where(is_strong, p.argmax(1), rivals.argmax(1))
    is_doubted = is_strong | ((own < usual[y]) & (rivals.max(1) > own))
    found = np.flatnonzero(is_doubted)
    margin = p[found, rival[found]] - own[found]
    order = np.argsort(-margin, kind="stable")
    found = found[order]
    return Doubts(
        rows=found,
        predicted=rival[found],
        score=margin[order],
        is_strong=is_strong[found],
        sure=sure,
        expected=float((1 - p[sure].max(1)).sum()),
    )


def doubt_numbers(y: ArrayLike, means: ArrayLike, variances: ArrayLike) -> Doubts:
    """Numbers that lie more than 4 standard deviations from their prediction: |y − mean| / sd > 4.

    All such doubts are strong. Of N right labels with Gaussian errors N · 6.3·10⁻⁵ lie so far out, `expected`; real
    errors have longer tails. y, means and variances (of y, noise included) [N] or [N, T]; of several outputs the one
    that is furthest out counts.
    """
    target, mean, variance = (np.asarray(values, dtype=np.float64) for values in (y, means, variances))
    if not target.shape == mean.shape == variance.shape or not target.ndim:
        raise InvalidData(f"expected three arrays of one shape, got {target.shape}, {mean.shape} and {variance.shape}")
    each = (np.abs(target - mean) / np.sqrt(variance)).reshape(len(target), math.prod(target.shape[1:]))
    distance = each.max(1, initial=0.0)
    found = np.flatnonzero(distance > FAR)
    found = found[np.argsort(-distance[found], kind="stable")]
    return Doubts(
        rows=found,
        predicted=mean[found],
        score=distance[found],
        is_strong=np.ones(len(found), dtype=bool),
        sure=np.arange(len(target)),
        expected=each.size * math.erfc(FAR / math.sqrt(2)),
    )
