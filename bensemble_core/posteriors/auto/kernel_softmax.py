"""Softmax regression on the features of a kernel, for many prior scales and several subsets of the rows at once."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy import optimize
from torch import Tensor

from bensemble_core.kernels import correlation, squared_distances

BIAS_VARIANCE = 4.0
_NEGLIGIBLE = 1e-8  # of the largest eigenvalue: directions below it add nothing but rounding
_CURVATURE = 0.01  # least mean of p (1 − p) that scales the search
_ITERATIONS = 150
_TOLERANCE = 1e-3  # largest slope at what counts as the maximum, in units in which its curvature is about 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Features:
    """Rows as points whose inner products are a kernel: φ(x)·φ(x') = k(x, x'), with ΦᵀΦ diagonal over the rows."""

    rows: Tensor  # Φ [N, R]
    back: Tensor  # [P, R] weights w of φ are coefficients `back` w of the P centres (or inputs)

    @classmethod
    def of(cls, gram: Tensor, cross: Tensor) -> "Features":
        """From a kernel between centres [P, P] and between rows and centres [N, P]: Nyström's, exact at the centres."""
        values, vectors = torch.linalg.eigh(gram)
        kept = values > _NEGLIGIBLE * values[-1].clamp(min=1e-300)
        return cls._rotated(cross, vectors[:, kept] * values[kept].rsqrt())

    @classmethod
    def linear(cls, x: Tensor) -> "Features":
        """Of k(x, x') = xᵀx'/D, from the inputs themselves or, where these are more than rows, from the rows."""
        n, d = x.shape
        if d <= n:
            return cls._rotated(x, torch.eye(d, dtype=x.dtype, device=x.device) * d**-0.5)
        values, vectors = torch.linalg.eigh(x @ x.mT / d)
        kept = values > _NEGLIGIBLE * values[-1].clamp(min=1e-300)
        return cls._rotated(x, x.mT @ (vectors[:, kept] * values[kept].rsqrt()) / d)

    @classmethod
    def rbf(cls, x: Tensor, centres: Tensor, squared_length: float) -> "Features":
        """Of k(x, x') = exp(−|x − x'|² / (2 ℓ²))."""
        scaled, at = x * squared_length**-0.5, centres * squared_length**-0.5
        near = correlation("rbf", squared_distances(scaled, at))
        return cls.of(correlation("rbf", squared_distances(at, at)), near)

    @classmethod
    def _rotated(cls, inputs: Tensor, back: Tensor) -> "Features":
        rows = inputs @ back
        _, turn = torch.linalg.eigh(rows.mT @ rows)
        return cls(rows=rows @ turn, back=back @ turn)


@dataclass(frozen=True, kw_only=True, eq=False)
class Fits:
    """MAP estimates of S subsets of the rows under one prior variance."""

    variance: float
    weights: Tensor  # [S, R, C]
    bias: Tensor  # [S, C]

    def logits(self, rows: Tensor) -> Tensor:
        """[N, R] -> [S, N, C]."""
        return rows @ self.weights + self.bias[:, None]


def fit_path(
    features: Features, y: Tensor, row_weights: Tensor, n_classes: int, variances: Sequence[float]
) -> Iterator[Fits]:
    """The maximum of Σ_i v_si log softmax(Φ_i W + b)_{y_i} + log N(W | 0, s²) + log N(b | 0, 4), one s² after another.

    y [N] classes, row_weights v [S, N], 0 for a row that a subset does not have. The S problems are separate, and one
    search does them all: L-BFGS from the solution before, along variables scaled by the curvature that the diagonal of
    ΦᵀΦ and the mean of p (1 − p) there suggest.
    """
    rows, n_subsets = features.rows, len(row_weights)
    target = torch.nn.functional.one_hot(y, n_classes).to(rows)  # [N, C]
    squares = rows.square().sum(0)  # [R]
    size = torch.cat([squares, rows.new_tensor([float(len(rows))])])[:, None]  # [R + 1, 1], the bias last
    design = torch.cat([rows, rows.new_ones(len(rows), 1)], 1)  # [N, R + 1]
    shape = (n_subsets, design.shape[1], n_classes)
    found = rows.new_zeros(shape)
    curvature = (1 - 1 / n_classes) / n_classes
    for variance in variances:
        precision = torch.full_like(size, 1 / variance)
        precision[-1] = 1 / BIAS_VARIANCE
        scale = (precision + curvature * size).rsqrt()  # [R + 1, 1]
        value_and_slope = _objective(design, target, row_weights, precision, scale, shape)
        start = (found / scale).flatten().cpu().numpy()
        ended = optimize.minimize(
            value_and_slope,
            start,
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": _ITERATIONS, "gtol": _TOLERANCE, "ftol": 1e-9},
        )
        found = torch.from_numpy(np.asarray(ended.x)).to(rows).reshape(shape) * scale
        p = (design @ found).softmax(-1)
        spread = (p * (1 - p)).sum(-1) / n_classes  # [S, N]
        curvature = max(_CURVATURE, float((row_weights * spread).sum() / row_weights.sum()))
        yield Fits(variance=variance, weights=found[:, :-1], bias=found[:, -1])


def _objective(
    design: Tensor, target: Tensor, row_weights: Tensor, precision: Tensor, scale: Tensor, shape: tuple[int, int, int]
) -> Callable[[npt.NDArray[np.float64]], tuple[float, npt.NDArray[np.float64]]]:
    """Negative log posterior and its slope as functions of the scaled variables."""
    weights = row_weights[:, :, None]  # [S, N, 1]

    def value_and_slope(values: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        theta = torch.from_numpy(values).to(design).reshape(shape) * scale
        logits = design @ theta  # [S, N, C]
        log_p = logits - logits.logsumexp(-1, keepdim=True)
        value = -(weights * target * log_p).sum() + 0.5 * (precision * theta.square()).sum()
        slope = design.mT @ (weights * (log_p.exp() - target)) + precision * theta
        return float(value), (slope * scale).flatten().cpu().numpy()

    return value_and_slope
