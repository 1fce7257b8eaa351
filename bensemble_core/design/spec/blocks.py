"""The joint prior: independent blocks of parameters, each a map from normal scores or a list of weighted points.

Axes of this package: P points of the parameters, J designs, Y outcomes (or quadrature nodes), K normal scores, B lists
of points.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from bensemble_core.design.spec.priors import Normal, Prior, log_normal_density

POINT = "#point"  # the number of a point, by which a likelihood table is looked up; no expression can name it


@dataclass(frozen=True, kw_only=True, eq=False)
class Scalar:
    """One parameter with a continuous prior."""

    name: str
    prior: Prior

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    n_scores = 1

    def at(self, z: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Scores [P, 1] -> values by name [P], log density [P]."""
        theta = self.prior.at(z[:, 0])
        return {self.name: theta}, self.prior.log_density(theta)


@dataclass(frozen=True, kw_only=True, eq=False)
class MultivariateNormal:
    """θ = mean + L z with L Lᵀ the covariance; L is lower triangular, so the first names need the first scores only."""

    names: tuple[str, ...]
    mean: Tensor  # [k]
    factor: Tensor  # [k, k]

    @property
    def n_scores(self) -> int:
        return len(self.names)

    def at(self, z: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        theta = self.mean + z @ self.factor.mT
        log_density = log_normal_density(z).sum(1) - self.factor.diagonal().log().sum()
        return dict(zip(self.names, theta.unbind(1), strict=True)), log_density

    def ordered(self, first: Sequence[str]) -> "MultivariateNormal":
        """The same distribution with its names in another order, those of `first` in front."""
        order = sorted(range(len(self.names)), key=lambda i: (self.names[i] not in first, self.names[i]))
        covariance = self.factor @ self.factor.mT
        return MultivariateNormal(
            names=tuple(self.names[i] for i in order),
            mean=self.mean[order],
            factor=torch.linalg.cholesky(covariance[order][:, order]),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Listed:
    """Weighted points: the values of a categorical or a grid, draws from elsewhere, or the columns of a table."""

    names: tuple[str, ...]
    values: Tensor  # [V, k]
    log_weights: Tensor  # [V], normalised
    numbered: bool = False

    @property
    def n_points(self) -> int:
        return len(self.values)

    def pick(self, index: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Numbers of points [P] -> values by name [P], log mass [P]."""
        found = dict(zip(self.names, self.values[index].unbind(1), strict=True))
        if self.numbered:
            found[POINT] = index.to(torch.float64)
        return found, self.log_weights[index]


@dataclass(frozen=True, kw_only=True, eq=False)
class JointPrior:
    """All blocks, those with targets first: then points that agree in the leading scores agree in every target."""

    continuous: tuple[Scalar | MultivariateNormal, ...]
    listed: tuple[Listed, ...]
    targets: tuple[str, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(name for block in (*self.continuous, *self.listed) for name in block.names))

    @cached_property
    def nuisances(self) -> tuple[str, ...]:
        return tuple(name for name in self.names if name not in self.targets)

    @cached_property
    def n_scores(self) -> int:
        return sum(block.n_scores for block in self.continuous)

    @cached_property
    def n_target_scores(self) -> int:
        """Leading scores that the targets depend on."""
        return sum(name in self.targets for block in self.continuous for name in block.names)

    @cached_property
    def n_listed(self) -> int:
        return math.prod(block.n_points for block in self.listed)

    @property
    def is_gaussian(self) -> bool:
        return not self.listed and all(
            isinstance(block, MultivariateNormal) or isinstance(block.prior, Normal) for block in self.continuous
        )

    def at(self, z: Tensor, index: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Scores [P, K] and numbers of points [P, B] -> values by name [P], log p(θ) [P] in the units of θ."""
        values, log_density = self.at_scores(z)
        for column, listed in enumerate(self.listed):
            found, term = listed.pick(index[:, column])
            values |= found
            log_density = log_density + term
        return values, log_density

    def at_scores(self, z: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """The same of the continuous parameters alone."""
        values: dict[str, Tensor] = {}
        log_density = z.new_zeros(z.shape[0])
        start = 0
        for block in self.continuous:
            found, term = block.at(z[:, start : start + block.n_scores])
            values |= found
            log_density = log_density + term
            start += block.n_scores
        return values, log_density

    def coordinate(self, name: str) -> tuple[int, list[float], float, Prior | None]:
        """A continuous parameter as a map of o + Σ m_j z_j: its axis, m [K] (0 beyond that axis), o, and the prior that
        maps it, or None for the sum itself."""
        start = 0
        for block in self.continuous:
            if name in block.names:
                i, slopes = block.names.index(name), [0.0] * self.n_scores
                if isinstance(block, Scalar):
                    slopes[start] = 1.0
                    return start, slopes, 0.0, block.prior
                slopes[start : start + block.n_scores] = block.factor[i].tolist()
                return start + i, slopes, float(block.mean[i]), None
            start += block.n_scores
        raise KeyError(name)

    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean and covariance [k] of a Gaussian prior, names sorted."""
        means, rows = [], []
        for name in self.names:
            _, slopes, offset, prior = self.coordinate(name)
            if isinstance(prior, Normal):
                slopes, offset = [prior.scale * slope for slope in slopes], prior.loc
            means.append(offset)
            rows.append(slopes)
        factor = torch.tensor(rows, dtype=torch.float64)
        return torch.tensor(means, dtype=torch.float64), factor @ factor.mT

    def draw(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Uniforms [P, K + B] in (0, 1) -> scores [P, K], numbers of points [P, B]."""
        index = torch.empty(len(u), len(self.listed), dtype=torch.int64)
        for i, block in enumerate(self.listed):
            reached = block.log_weights.exp().cumsum(0)
            index[:, i] = torch.searchsorted(reached, u[:, self.n_scores + i].contiguous()).clamp(max=len(reached) - 1)
        return torch.special.ndtri(u[:, : self.n_scores]), index


def joint_prior(blocks: Sequence[Scalar | MultivariateNormal | Listed], targets: Sequence[str]) -> JointPrior:
    """Blocks in one fixed order, whatever the order in which they were stated.

    A multivariate block that holds targets and others puts its targets first; its other scores must still come after
    every target's, so such a block goes last among those with targets (and there is at most one).
    """
    wanted = set(targets)

    def rank(block: Scalar | MultivariateNormal | Listed) -> tuple[int, str]:
        n = len(wanted.intersection(block.names))
        return (0 if n == len(block.names) else 1 if n else 2), min(block.names)

    ordered = [block.ordered(targets) if isinstance(block, MultivariateNormal) else block for block in blocks]
    ordered.sort(key=rank)
    return JointPrior(
        continuous=tuple(block for block in ordered if not isinstance(block, Listed)),
        listed=tuple(block for block in ordered if isinstance(block, Listed)),
        targets=tuple(sorted(targets)),
    )
