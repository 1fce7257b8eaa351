"""Weighted points of the parameters: a tensor grid in normal scores that can be moved to where the posterior is.

z = centre + A u, with A lower triangular and u equally spaced on ±8 along each axis. For a smooth integrand that dies
out before the edges the trapezoid rule converges geometrically: every second point gives about the square root of the
error, which is what `coarse` is for. Frames are rounded, so that the grid of one round mostly serves the next one too,
and tables computed on it can be kept.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bensemble_core.design.blocks import JointPrior
from bensemble_core.design.priors import log_normal_density

REACH = 8.0  # half-width of a grid, in u
PER_AXIS = {1: 161, 2: 61, 3: 31}
MAX_AXES = max(PER_AXIS)
MAX_POINTS = 2**18

Key: TypeAlias = tuple[object, ...] | str
Array = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Frame:
    """Where a grid lies."""

    n: int  # points along each axis, odd
    centre: tuple[float, ...]  # [K]
    factor: tuple[tuple[float, ...], ...]  # [K, K], lower triangular

    @property
    def spacing(self) -> float:
        return 2 * REACH / (self.n - 1)

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
    listed: frozenset[str] = frozenset()  # parameters that take the values of a list
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
    def coarse_array(self) -> npt.NDArray[np.bool_] | None:
        return None if self.coarse is None else self.coarse.numpy()

    @cached_property
    def edge_array(self) -> npt.NDArray[np.int64] | None:
        """Numbers of the outermost points."""
        return None if self.edge is None else self.edge.numpy().nonzero()[0]

    @cached_property
    def group_order(self) -> Tensor | None:
        """Numbers of the points, one group after the other; None where they lie like that."""
        if self.groups is None or bool((self.groups.diff() >= 0).all()):
            return None
        return self.groups.argsort(stable=True)


def taken(points: Points, chosen: Tensor) -> Points:
    """Some of the points, by mask or number; no longer a grid."""
    return Points(
        key=("taken", points.key, chosen.numpy().tobytes()),
        values={name: column[chosen] for name, column in points.values.items()},
        log_prior=points.log_prior[chosen],
        log_density=points.log_density[chosen],
        scores=points.scores[chosen],
        groups=None if points.groups is None else points.groups[chosen],
        n_groups=points.n_groups,
        listed=points.listed,
    )


def _identity(k: int) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(i == j) for j in range(k)) for i in range(k))


@cache
def home(k: int, level: int = 0) -> Frame:
    """The prior's own grid; each level halves the spacing."""
    n = (PER_AXIS[k] - 1) * 2**level + 1 if k else 1
    return Frame(n=n, centre=(0.0,) * k, factor=_identity(k))


def fits_grid(prior: JointPrior, level: int = 0) -> bool:
    k = prior.n_scores
    return k <= MAX_AXES and home(k, level).n ** k * prior.n_listed <= MAX_POINTS


def moved(frame: Frame, mean: Array, covariance: Array) -> Frame:
    """The frame around a posterior with these moments of z, rounded: scales up to a power of √2, the centre and the
    slopes to a fraction of a scale."""
    # a posterior that falls between two nodes seems to have no width: give it half the spacing
    least = (0.5 * frame.spacing) ** 2
    k = len(frame.centre)
    lower = [[0.0] * k for _ in range(k)]  # Cholesky's, by hand: k is 3 at most
    for i in range(k):
        for j in range(i + 1):
            floor = least * _dot(frame.factor[i], frame.factor[j])
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


def widened(frame: Frame) -> Frame:
    return Frame(n=frame.n, centre=frame.centre, factor=tuple(tuple(2 * x for x in row) for row in frame.factor))


def grid(prior: JointPrior, frame: Frame) -> Points:
    """The tensor grid of a frame times every combination of listed points."""
    k, n = prior.n_scores, frame.n
    axis = torch.linspace(-REACH, REACH, n, dtype=torch.float64) if k else torch.zeros(1, dtype=torch.float64)
    steps = torch.cartesian_prod(*[torch.arange(n)] * k).reshape(-1, k) if k else torch.zeros(1, 0, dtype=torch.int64)
    sizes = [block.n_points for block in prior.listed]
    if sizes:
        index = torch.cartesian_prod(*(torch.arange(size) for size in sizes)).reshape(-1, len(sizes))
    else:
        index = torch.zeros(1, 0, dtype=torch.int64)
    n_grid, n_listed = len(steps), len(index)
    steps = steps.repeat_interleave(n_listed, 0)  # [P, K]
    index = index.repeat(n_grid, 1)  # [P, B]
    factor = torch.tensor(frame.factor, dtype=torch.float64).reshape(k, k)
    z = torch.tensor(frame.centre, dtype=torch.float64) + axis[steps] @ factor.mT
    values, log_density = prior.at(z, index)
    log_prior = log_normal_density(z).sum(1) + factor.diagonal().log().sum() + k * math.log(frame.spacing if k else 1)
    for column, block in enumerate(prior.listed):
        log_prior = log_prior + block.log_weights[index[:, column]]
    groups, n_groups = _groups(prior, steps, index, n)
    return Points(
        key=repr(frame),  # whose hash is computed once
        values=values,
        log_prior=log_prior,
        log_density=log_density.clamp(-745, 745),
        scores=z,
        frame=frame,
        coarse=(steps % 2 == 0).all(1) if k else None,
        edge=((steps == 0) | (steps == n - 1)).any(1) if k else None,
        groups=groups,
        n_groups=n_groups,
        listed=frozenset(name for block in prior.listed for name in block.names),
        is_common=frame.is_home,
    )


def _groups(prior: JointPrior, steps: Tensor, index: Tensor, n: int) -> tuple[Tensor | None, int]:
    """Points that agree in every target. A is lower triangular and targets come first: equal leading steps will do."""
    if not prior.nuisances:
        return None, 0
    columns = [steps[:, i] for i in range(prior.n_target_scores)]
    for column, block in enumerate(prior.listed):
        wanted = [i for i, name in enumerate(block.names) if name in prior.targets]
        if wanted:
            _, same = block.values[:, wanted].unique(dim=0, return_inverse=True)  # type: ignore[no-untyped-call]
            columns.append(same[index[:, column]])
    _, groups = torch.stack(columns, 1).unique(dim=0, return_inverse=True)  # type: ignore[no-untyped-call]
    return groups, int(groups.max()) + 1
