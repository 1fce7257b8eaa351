"""Weighted points of the parameters: a tensor grid in normal scores that can be moved to where the posterior is.

z = centre + A u, with A lower triangular and u equally spaced along each axis, on ±8 or more, as finely as that axis
needs: a lapse rate is seen by 25 points where a threshold takes 200. For a smooth integrand that dies out before the
edges the trapezoid rule converges geometrically: every second point gives about the square root of the error, which is
what `coarse` is for, and every fourth tells whether the convergence is of that kind. Frames are rounded, so that the
grid of one round mostly serves the next one too, and tables computed on it can be kept.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bensemble_core.design.spec.blocks import JointPrior
from bensemble_core.design.spec.priors import log_normal_density

REACH = 8.0  # half-width of a grid, in u
N_PARTS = 16  # of draws, by which their error is told
PER_AXIS = {1: 161, 2: 49, 3: 25}  # to begin with; one more than a multiple of four
MAX_AXES = 2  # beyond them points are drawn; a grid of three axes only tries a model out
MAX_POINTS = 2**18

Key: TypeAlias = tuple[object, ...] | str
Array = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Frame:
    """Where a grid lies."""

    n: tuple[int, ...]  # [K] points along each axis, one more than a multiple of four
    centre: tuple[float, ...]  # [K]
    factor: tuple[tuple[float, ...], ...]  # [K, K], lower triangular

    @cached_property
    def spacing(self) -> tuple[float, ...]:
        """[K] of u"""
        return tuple(2 * REACH / (n - 1) for n in self.n)

    @property
    def size(self) -> int:
        return math.prod(self.n)

    @cached_property
    def is_home(self) -> bool:
        """Whether this is the grid of the prior itself."""
        k = len(self.centre)
        return not any(self.centre) and self.factor == _identity(k)


@dataclass(frozen=True, kw_only=True, eq=False)
class Points:
    key: Key  # points with the same key are the same points
    values: dict[str, Tensor]  # [P] by name
    log_prior: Tensor  # [P] log of the prior mass that a point stands for
    log_density: Tensor  # [P] log p(θ) in the units of θ
    scores: Tensor  # [P, K]
    frame: Frame | None = None
    coarse: Tensor | None = None  # [P] bool: every second point along each axis
    edge: Tensor | None = None  # [P] bool: the outermost points
    groups: Tensor | None = None  # [P] points with equal targets have equal numbers; None if all parameters are targets
    n_groups: int = 0
    is_grouped: bool = False  # draws with groups of exactly equal targets, or without nuisances
    n_nodes: int = 0  # scores that have nodes, of those draws
    half: Tensor | None = None  # [P] bool, of draws: every second node of the nuisances along each axis
    listed: frozenset[str] = frozenset()  # parameters that take the values of a list
    prior: JointPrior | None = None  # of a grid: what leads from scores to values between the points
    is_common: bool = False  # every history is looked at from these points, and not only one whose posterior led there

    @property
    def n(self) -> int:
        return int(self.log_prior.shape[0])

    # the same in numpy, for what is done in every round: to look at a tensor as an array takes longer than to add it

    @cached_property
    def prior_array(self) -> Array:
        return np.asarray(self.log_prior.numpy())

    @cached_property
    def score_array(self) -> Array:
        return np.asarray(self.scores.numpy())

    @cached_property
    def strides(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
        """Numbers of every second and of every fourth point along each axis of a grid."""
        if self.frame is None or not self.frame.n:
            return None
        places = np.arange(self.n).reshape(*self.frame.n, -1)
        half, quarter = (places[(slice(None, None, step),) * len(self.frame.n)].ravel() for step in (2, 4))
        return half, quarter

    @cached_property
    def group_order(self) -> Tensor | None:
        """Numbers of the points, one group after the other; None where they lie like that."""
        if self.groups is None or bool((self.groups.diff() >= 0).all()):
            return None
        return self.groups.argsort(stable=True)


def taken(points: Points, chosen: Tensor) -> Points:
    """Some of the points, by mask or number; no longer a grid. Of draws of groups the first."""
    groups = None if points.groups is None else points.groups[chosen]
    return Points(
        key=("taken", points.key, chosen.numpy().tobytes()),
        values={name: column[chosen] for name, column in points.values.items()},
        log_prior=points.log_prior[chosen],
        log_density=points.log_density[chosen],
        scores=points.scores[chosen],
        groups=groups,
        n_groups=int(groups.max()) + 1 if groups is not None and points.is_grouped else points.n_groups,
        is_grouped=points.is_grouped,
        n_nodes=points.n_nodes,
        half=None if points.half is None else points.half[chosen],
        listed=points.listed,
    )


def _identity(k: int) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(i == j) for j in range(k)) for i in range(k))


@cache
def home(k: int, level: int = 0) -> Frame:
    """The prior's own grid; each level halves the spacing."""
    return Frame(n=((PER_AXIS[k] - 1) * 2**level + 1,) * k if k else (), centre=(0.0,) * k, factor=_identity(k))


def fits_grid(prior: JointPrior, level: int = 0) -> bool:
    return prior.n_scores <= MAX_AXES and fits(prior, home(prior.n_scores, level))


def fits(prior: JointPrior, frame: Frame) -> bool:
    return frame.size * prior.n_listed <= MAX_POINTS


def moved(frame: Frame, mean: Array, covariance: Array) -> Frame:
    """The frame around a posterior with these moments of z, rounded: scales up to a power of √2, the centre and the
    slopes to a fraction of a scale."""
    k = len(frame.centre)
    lower = [[0.0] * k for _ in range(k)]  # Cholesky's, by hand: k is 3 at most
    for i in range(k):
        for j in range(i + 1):
            # a posterior that falls between two nodes seems to have no width: give it half the spacing
            steps = [(0.5 * h) ** 2 * a for h, a in zip(frame.spacing, frame.factor[i], strict=True)]
            floor = _dot(steps, frame.factor[j])
            left = float(covariance[i, j]) + floor - _dot(lower[i][:j], lower[j][:j])
            lower[i][j] = math.sqrt(left) if i == j else left / lower[j][j]
    scales = [2 ** (math.ceil(2 * math.log2(lower[i][i]) - 1e-9) / 2) for i in range(k)]
    factor = [[0.0] * k for _ in range(k)]
    for i in range(k):
        factor[i][i] = scales[i]
        for j in range(i):
            step = scales[i] / scales[j] / 4
            factor[i][j] = round(lower[i][j] / lower[j][j] / step) * step * scales[j]
    centre = tuple(round(2 * float(mean[i]) / scales[i]) * scales[i] / 2 for i in range(k))
    return Frame(n=frame.n, centre=centre, factor=tuple(map(tuple, factor)))


def _dot(x: Sequence[float], y: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(x, y, strict=True))


def finer(frame: Frame, axes: Sequence[int]) -> Frame:
    """Half the spacing along these axes."""
    return replace(frame, n=tuple(2 * n - 1 if i in axes else n for i, n in enumerate(frame.n)))


def widened(frame: Frame, axes: Sequence[int]) -> Frame:
    """Twice as far along these axes, and as fine as before."""
    factor = tuple(tuple(2 * x if j in axes else x for j, x in enumerate(row)) for row in frame.factor)
    return replace(finer(frame, axes), factor=factor)


def grid(prior: JointPrior, frame: Frame) -> Points:
    """The tensor grid of a frame times every combination of listed points."""
    k = prior.n_scores
    steps = (
        torch.cartesian_prod(*(torch.arange(n) for n in frame.n)).reshape(-1, k)
        if k
        else torch.zeros(1, 0, dtype=torch.int64)
    )
    sizes = [block.n_points for block in prior.listed]
    if sizes:
        index = torch.cartesian_prod(*(torch.arange(size) for size in sizes)).reshape(-1, len(sizes))
    else:
        index = torch.zeros(1, 0, dtype=torch.int64)
    n_grid, n_listed = len(steps), len(index)
    steps = steps.repeat_interleave(n_listed, 0)  # [P, K]
    index = index.repeat(n_grid, 1)  # [P, B]
    factor = torch.tensor(frame.factor, dtype=torch.float64).reshape(k, k)
    spacing = torch.tensor(frame.spacing, dtype=torch.float64)
    z = torch.tensor(frame.centre, dtype=torch.float64) + (steps * spacing - REACH) @ factor.mT
    values, log_density = prior.at(z, index)
    log_prior = log_normal_density(z).sum(1) + (factor.diagonal() * spacing).log().sum()
    for column, block in enumerate(prior.listed):
        log_prior = log_prior + block.log_weights[index[:, column]]
    groups, n_groups = _groups(prior, frame, steps, index)
    return Points(
        key=repr(frame),  # whose hash is computed once
        values=values,
        log_prior=log_prior,
        log_density=log_density.clamp(-745, 745),
        scores=z,
        frame=frame,
        coarse=(steps % 2 == 0).all(1) if k else None,
        edge=((steps == 0) | (steps == torch.tensor(frame.n) - 1)).any(1) if k else None,
        groups=groups,
        n_groups=n_groups,
        listed=frozenset(name for block in prior.listed for name in block.names),
        prior=prior,
        is_common=frame.is_home,
    )


def _groups(prior: JointPrior, frame: Frame, steps: Tensor, index: Tensor) -> tuple[Tensor | None, int]:
    """Points that agree in every target. A is lower triangular and targets come first: equal leading steps will do.

    A group's number has the places of its targets as digits; all combinations occur.
    """
    if not prior.nuisances:
        return None, 0
    digits = [(steps[:, i], frame.n[i]) for i in range(prior.n_target_scores)]
    for column, block in enumerate(prior.listed):
        wanted = [i for i, name in enumerate(block.names) if name in prior.targets]
        if wanted:
            found, same = block.values[:, wanted].unique(dim=0, return_inverse=True)  # type: ignore[no-untyped-call]
            digits.append((same[index[:, column]], len(found)))
    groups, n_groups = torch.zeros(len(steps), dtype=torch.int64), 1
    for digit, base in digits:
        groups, n_groups = groups * base + digit, n_groups * base
    return groups, n_groups
