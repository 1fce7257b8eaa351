"""How far two versions of an ensemble say the same of the same rows."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bensemble_core.errors import InvalidData


def kappa(first: ArrayLike, second: ArrayLike) -> float:
    """Agreement of two lists of classes beyond chance (Cohen 1960): (p_o − p_e) / (1 − p_e), at most 1.

    p_o is the share of rows with equal classes, p_e = Σ_c p_c q_c what two independent lists with these shares of
    classes would have. [N], [N]. Where both lists hold one and the same class it is 1. Predictions are called stable
    where the mean of the last three is at least 0.99 (Bloodgood & Vijay-Shanker 2009).
    """
    a, b = _pair(first, second)
    if a.ndim != 1:
        raise InvalidData(f"kappa compares two lists of classes, got arrays of shape {a.shape}")
    _, both = np.unique(np.concatenate([a, b]), return_inverse=True)
    shares = [np.bincount(half, minlength=int(both.max()) + 1) / len(a) for half in np.split(both, 2)]
    expected = float(shares[0] @ shares[1])
    if expected == 1.0:
        return 1.0
    return (float((a == b).mean()) - expected) / (1 - expected)


def concordance(first: ArrayLike, second: ArrayLike) -> float:
    """Agreement of two lists of numbers (Lin 1989): 1 − E(a − b)² / (Var a + Var b + (Ē a − Ē b)²), at most 1.

    What `kappa` is for classes: 0 in expectation for independent lists, 1 where they are equal. Variances are divided
    by N. [N] or [N, T], [N, T]; of several outputs the lowest.
    """
    a, b = (values.reshape(len(values), -1).astype(np.float64) for values in _pair(first, second))
    apart = np.square(a - b).mean(0)
    spread = a.var(0) + b.var(0) + np.square(a.mean(0) - b.mean(0))
    return float(np.min(1 - np.divide(apart, spread, out=np.zeros_like(apart), where=spread > 0)))


def relative_change(first: ArrayLike, second: ArrayLike) -> float:
    """Root mean square of b − a over the standard deviation of b; of several outputs the largest. [N] or [N, T]."""
    a, b = (values.reshape(len(values), -1).astype(np.float64) for values in _pair(first, second))
    moved, spread = np.sqrt(np.square(b - a).mean(0)), b.std(0)
    still = np.where(moved > 0, np.inf, 0.0)
    return float(np.max(np.divide(moved, spread, out=still, where=spread > 0)))


def _pair(first: ArrayLike, second: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    a, b = np.asarray(first), np.asarray(second)
    if a.shape != b.shape or not a.ndim or not len(a):
        raise InvalidData(f"two versions are compared on the same rows, at least one; got {a.shape} and {b.shape}")
    return a, b
