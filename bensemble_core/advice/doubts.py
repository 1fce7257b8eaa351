"""Labels that are contradicted by predictions which did not learn from them."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bensemble_core.errors import InvalidData

LABEL_BELOW, OTHER_ABOVE = 0.15, 0.6  # of probabilities, where a doubt is strong
FAR = 4.0  # standard deviations


@dataclass(frozen=True, kw_only=True, eq=False)
class Doubts:
    """Rows whose label is doubted, the worst first."""

    rows: NDArray[np.int64]  # [K]
    predicted: NDArray[Any]  # [K] class, or mean [K] or [K, T]
    score: NDArray[np.float64]  # [K] by which they are ordered: a difference of probabilities, or standard deviations
    is_strong: NDArray[np.bool_]  # [K]
    expected: float  # strong doubts that chance would make, if every label were right and predictions calibrated

    def __len__(self) -> int:
        return len(self.rows)


def doubt_labels(probabilities: ArrayLike, labels: ArrayLike) -> Doubts:
    """Labels that a class other than theirs contradicts, by confident learning (Northcutt et al. 2021).

    t_c, the mean probability of c over the rows labelled c, is what a right label of c usually gets. A row labelled y
    is doubted where p_y < t_y and a class k has p_k ≥ t_k and p_k > p_y; the worst has the largest p_k − p_y. The
    doubt is strong where p_y < 0.15 and p_k ≥ 0.6: this leaves out rows on which the ensemble is not sure itself, of
    which a task with noisy classes has many (of 300 rows, 72 % predicted right and none mislabelled, 38 and 39 were
    doubted, 6 and 7 of them strongly). `expected` is how many strong doubts there would be at most if the labels came
    from these probabilities: Σ_n Σ_c p_nc over classes with p_nc < 0.15 of rows where another has at least 0.6.

    probabilities [N, C] of rows by a model that did not learn from their labels, labels [N] class indices. A class
    without rows is never a contradiction.
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
    rival = rivals.argmax(1)
    above = rivals[rows, rival]
    found = np.flatnonzero((own < usual[y]) & (above > own))
    margin = above[found] - own[found]
    order = np.argsort(-margin, kind="stable")
    found = found[order]
    strong = (own[found] < LABEL_BELOW) & (above[found] >= OTHER_ABOVE)
    unlikely = np.where((p < LABEL_BELOW) & (p.max(1, keepdims=True) >= OTHER_ABOVE), p, 0.0)
    return Doubts(
        rows=found,
        predicted=rival[found],
        score=margin[order],
        is_strong=strong,
        expected=float(unlikely.sum()),
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
    each = (np.abs(target - mean) / np.sqrt(variance)).reshape(len(target), -1)
    distance = each.max(1, initial=0.0)
    found = np.flatnonzero(distance > FAR)
    found = found[np.argsort(-distance[found], kind="stable")]
    return Doubts(
        rows=found,
        predicted=mean[found],
        score=distance[found],
        is_strong=np.ones(len(found), dtype=bool),
        expected=each.size * math.erfc(FAR / math.sqrt(2)),
    )
