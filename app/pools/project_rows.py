"""Rows of a pool on a plane: principal components of a sample, computed once, since a pool never changes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.storage.pools import Pool

MAX_SAMPLE = 5_000
MAX_NUMBERS = 20_000_000  # of the sample, 80 MB: of wider rows fewer are taken
EXACT_WIDTH = 512  # up to which the covariance is decomposed; of wider rows its first directions are iterated to
SPARE, ROUNDS = 8, 12  # directions beyond the two that are wanted, and multiplications
SEED = 0

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Projection:
    """In a random order: the beginning is a fair sample, too."""

    rows: NDArray[np.int64]  # [n]
    points: NDArray[np.float32]  # [n, 2]
    explained: tuple[float, float]  # shares of the variance of all columns


def project_rows(pool: Pool) -> Projection:
    """By the seed alone: every process draws the same rows, and so the same picture."""
    n = min(pool.n_rows, MAX_SAMPLE, max(2, MAX_NUMBERS // pool.width))
    rows = np.random.default_rng(SEED).choice(pool.n_rows, n, replace=False)
    in_order = np.argsort(rows)  # read from the files in their order
    x = np.empty((n, pool.width), dtype=np.float32)
    x[in_order] = pool.rows(rows[in_order])
    points, explained = principal_components(x)
    return Projection(rows=rows, points=points.astype(np.float32), explained=explained)


def principal_components(x: NDArray[np.float32]) -> tuple[Floats, tuple[float, float]]:
    """The first two of columns that are standardised, constant ones left out: [n, D] -> [n, 2], and their shares.

    A direction and its opposite are the same component: we take the one whose largest loading is positive.
    """
    scale = np.abs(x).max(axis=0, initial=0.0).astype(np.float64)
    varies = x.min(axis=0, initial=np.inf) < x.max(axis=0, initial=-np.inf)
    z = x[:, varies].astype(np.float64) / scale[varies]  # numbers as large as float32 has can be squared then
    z -= z.mean(axis=0)
    z /= np.maximum(z.std(axis=0), np.finfo(np.float64).tiny)
    points = np.zeros((len(x), 2))
    width = z.shape[1]
    if width == 0:
        return points, (0.0, 0.0)
    variances, directions = _leading(z)
    for i in range(min(2, width)):
        loadings = np.abs(directions[:, i])
        largest = int(np.argmax(loadings > (1 - 1e-6) * loadings.max()))  # the first of equal ones, on any machine
        points[:, i] = z @ (directions[:, i] * np.sign(directions[largest, i]))
    shares = [*(float(max(v, 0.0) / width) for v in variances[:2]), 0.0]
    return points, (shares[0], shares[1])


def _leading(z: Floats) -> tuple[Floats, Floats]:
    """Variances in falling order and their directions [D, ≥ 2], of columns of variance 1."""
    if z.shape[1] <= EXACT_WIDTH:
        variances, directions = np.linalg.eigh(z.T @ z / len(z))
        return variances[::-1], directions[:, ::-1]
    # subspace iteration: the covariance of 3,072 columns alone would take five seconds
    basis = np.random.default_rng(SEED).normal(size=(z.shape[1], 2 + SPARE))
    for _ in range(ROUNDS):
        basis, _ = np.linalg.qr(z.T @ (z @ basis))
    along = z @ basis
    variances, turned = np.linalg.eigh(along.T @ along / len(z))
    return variances[::-1], basis @ turned[:, ::-1]
