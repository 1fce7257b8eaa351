"""The learning curve, carried on: what more labels would bring, and how many another curve would need."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from bensemble_core.errors import InvalidData

Kind = Literal["accuracy", "error"]
FEWEST = 3  # numbers of labels that differ
LEVEL = 0.95
SHARED = 0.5  # of the variance of a measured value: points that are measured on the same rows err together
FINEST = 0.02  # of an error: no closer does a law fit, nor the grid resolve it
_EXPONENTS = np.geomspace(0.1, 2.0, 25)
_LOG_EXPONENT = (math.log(0.6), 0.8)  # mean and sd of its prior
_SHARES = np.square((np.arange(40) + 0.5) / 40)  # of equal weight under Beta(½, 1)
_SCATTER = ((1.0, 0.5), (2.0, 0.3), (4.0, 0.2))  # of the rest of the variance, by training: factors of sd and priors
_NODES = ndtri((np.arange(21) + 0.5) / 21)  # of equal weight

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A median with the ends of a central interval of 95 %."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True, eq=False)
class LearningCurve:
    """A posterior over laws: error(n) = today · (share + (1 − share) (n / n_labels)^−exponent), as weighted points."""

    kind: Kind
    n_labels: int  # the largest number of labels that was measured
    today: Floats  # [P] error at that number
    share: Floats  # [P] of it that no number of labels takes away
    exponent: Floats  # [P]
    weight: Floats  # [P], sum 1

    def at(self, n_labels: float) -> Interval:
        """The value, accuracy or error, with so many labels."""
        if not n_labels > 0:
            raise InvalidData(f"a curve is asked for at a positive number of labels, got {n_labels}")
        error = self._error(n_labels)
        return _interval(1 - error if self.kind == "accuracy" else error, self.weight)

    def gain(self, more: float, *, since: float | None = None) -> Interval:
        """By how much the value improves with so many more labels: rising accuracy, falling error.

        Than with `since` labels, by default the most that were measured. Never negative, by the law.
        """
        start = self.n_labels if since is None else since
        if not (start > 0 and more >= 0):
            raise InvalidData(f"a gain is from a positive number of labels by so many more, got {start} and {more}")
        return _interval(self._error(start) - self._error(start + more), self.weight)

    def needed(self, value: float, standard_error: float = 0.0) -> Interval:
        """How many labels reach a value that was measured with this standard error; infinite where none do."""
        target = 1 - value if self.kind == "accuracy" else value
        targets = (target + standard_error * _NODES)[:, None]  # [Q, 1]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = (targets / self.today - self.share) / (1 - self.share)
            n = self.n_labels * np.where(ratio > 0, np.abs(ratio), 0.0) ** (-1 / self.exponent)
        return _interval(n.ravel(), np.tile(self.weight / len(targets), len(targets)))

    def _error(self, n_labels: float) -> Floats:
        return self.today * _shape(self.share, self.exponent, n_labels / self.n_labels)


def extrapolate(
    n_labels: Sequence[int], values: Sequence[float], standard_errors: Sequence[float], *, kind: Kind
) -> LearningCurve:
    """Fit error = a + b n^−c to values by numbers of labels, and keep how uncertain that leaves the law.

    Priors: the share a / error(today) ~ Beta(½, 1), log c ~ N(log 0.6, 0.8²) on [0.1, 2], error(today) flat above
    0. A measured error has the law's plus what all points have in common, since they are measured on the same rows
    (half the variance given), plus its own: the other half times a factor 1, 4 or 16, with priors 0.5, 0.3 and 0.2,
    since trainings scatter by more than the rows they are measured on. Standard errors are smoothed along the law, and
    at least 2 % of it. a, c and the factor are on a grid; given these the error is Gaussian.

    Measured on nine curves of `auto` on random rows (digits and two made sets), carried on from 15, 30 and 60 labels:
    of the accuracies with 120, 240 and 480 labels the 95 % intervals held 8, 9 and 8 of 9, and the labels that `needed`
    asks for these 8, 9 and 9; with a uniform share 7, 6 and 6, as errors went on to fall.

    `values` are accuracies (kind "accuracy": error = 1 − accuracy) or errors such as the RMSE ("error"), each with
    its standard error. InvalidData where fewer than 3 numbers of labels differ.
    """
    n, value, se = (np.asarray(column, dtype=np.float64) for column in (n_labels, values, standard_errors))
    if not n.shape == value.shape == se.shape or n.ndim != 1:
        raise InvalidData(f"expected as many labels, values and errors, got {n.shape}, {value.shape} and {se.shape}")
    if len(np.unique(n)) < FEWEST:
        raise InvalidData(
            f"a learning curve is carried on from {FEWEST} different numbers of labels, got {len(np.unique(n))}; "
            "label more rows and train again"
        )
    if not (np.isfinite(value).all() and np.isfinite(se).all() and (se > 0).all() and (n > 0).all()):
        raise InvalidData("expected positive numbers of labels, finite values, and standard errors above 0")
    error = 1 - value if kind == "accuracy" else value
    usual = float(np.sqrt(np.square(se).mean()))
    first = _posterior(n, error, np.full_like(se, max(usual, FINEST * float(np.abs(error).mean()))), kind)
    # errors of errors by the law: by what was measured, points that happen to be low would count for more
    law = np.array([float(first.weight @ first._error(each)) for each in n])
    spread = np.sqrt(law * (1 - law)) if kind == "accuracy" else law
    smooth = usual * spread / np.sqrt(np.square(spread).mean())
    return _posterior(n, error, np.maximum(smooth, FINEST * law), kind)


def _posterior(n: Floats, error: Floats, se: Floats, kind: Kind) -> LearningCurve:
    last = n.max()
    share, exponent = (grid.ravel() for grid in np.meshgrid(_SHARES, _EXPONENTS, indexing="ij"))
    shape = np.stack([_shape(share, exponent, each / last) for each in n])  # [k, G]
    log_prior = -0.5 * np.square((np.log(exponent) - _LOG_EXPONENT[0]) / _LOG_EXPONENT[1])
    shared = SHARED * np.square(se[n.argmax()]) * np.ones((len(n), len(n)))
    parts = []
    for factor, prior in _SCATTER:
        covariance = shared + (1 - SHARED) * factor**2 * np.diag(se**2)
        precision = np.linalg.inv(covariance)
        information = np.einsum("kg,kj,jg->g", shape, precision, shape, optimize=True)
        mean = shape.T @ (precision @ error) / information
        misfit = error @ precision @ error - information * np.square(mean)
        log_weight = log_prior + math.log(prior) - 0.5 * (np.linalg.slogdet(covariance)[1] + np.log(information))
        parts.append((mean, 1 / np.sqrt(information), log_weight - 0.5 * misfit))
    mean, sd, log_weight = (np.concatenate(column) for column in zip(*parts, strict=True))
    today = (mean + sd * _NODES[:, None]).ravel()
    weight = np.tile(np.exp(log_weight - log_weight.max()), len(_NODES))
    weight = np.where((today > 0) & ((today < 1) | (kind != "accuracy")), weight, 0.0)
    if not weight.sum() > 0:
        raise InvalidData("these values are no learning curve: no law of errors above 0 comes near them")
    times = len(_SCATTER) * len(_NODES)
    kept = weight > 1e-9 * weight.max()
    return LearningCurve(
        kind=kind,
        n_labels=int(last),
        today=today[kept],
        share=np.tile(share, times)[kept],
        exponent=np.tile(exponent, times)[kept],
        weight=weight[kept] / weight[kept].sum(),
    )


def binomial_error(share: float, n: int) -> float:
    """Standard error of a share of n rows, above 0 also where all or none are counted (one of each is added)."""
    if n < 1:
        raise InvalidData(f"a share is of at least 1 row, got {n}")
    p = (share * n + 1) / (n + 2)
    return math.sqrt(p * (1 - p) / n)


def _shape(share: Floats, exponent: Floats, ratio: float) -> Floats:
    return share + (1 - share) * ratio**-exponent


def _interval(values: Floats, weights: Floats) -> Interval:
    order = np.argsort(values)
    below = weights[order].cumsum()
    levels = (0.5, (1 - LEVEL) / 2, (1 + LEVEL) / 2)
    at = np.searchsorted(below, np.array(levels) * below[-1]).clip(max=len(values) - 1)
    value, low, high = (float(each) for each in values[order][at])
    return Interval(value=value, low=low, high=high)
