"""What is known of the parameters: moments, quantiles, intervals, draws; and the posterior as weighted points."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bensemble_core.design.belief.marginals import Marginal, draws_of_grid, of_grid, of_points
from bensemble_core.design.belief.points import Points
from bensemble_core.errors import InvalidOption
from bensemble_core.randomness import generator

Method = Literal["grid", "listed", "particles", "gaussian"]
Array = npt.NDArray[np.float64]
NEGLIGIBLE = 2e-9  # of the greatest weight, for a first look
SUMMARY = (0.025, 0.25, 0.5, 0.75, 0.975)


class Belief(ABC):
    """p(θ | observations). `mean` and `sd` are by name; all numbers are in the units of the parameters."""

    method: Method
    names: tuple[str, ...]
    log_evidence: float  # log p(y_1 … y_n | ξ_1 … ξ_n)

    @cached_property
    def error(self) -> float:
        """How far log_evidence may be off, as estimated."""
        return 0.0

    @cached_property
    def ess(self) -> float:
        """Effective number of points, 1 / Σ w²."""
        return math.inf

    @cached_property
    def edge_mass(self) -> float:
        """Mass on the outermost points of a grid: more than a trace means that the grid cuts the posterior."""
        return 0.0

    @property
    @abstractmethod
    def entropy(self) -> float:
        """−E log p(θ | observations), differential for continuous parameters, in the units of θ."""

    @property
    @abstractmethod
    def mean(self) -> dict[str, float]: ...

    @cached_property
    def sd(self) -> dict[str, float]:
        return dict(zip(self.names, self.covariance().diagonal().sqrt().tolist(), strict=True))

    @abstractmethod
    def covariance(self) -> Tensor:
        """In the order of the names: [k, k]."""

    @abstractmethod
    def _distribution(self, name: str) -> Marginal: ...

    @abstractmethod
    def _draws(self, n: int, seed: int) -> dict[str, Tensor]: ...

    def quantile(self, q: float, name: str | None = None) -> Any:
        """The q-quantile of each parameter by name, or of one."""
        if not 0 < q < 1:
            raise InvalidOption(f"a quantile is asked for at a probability between 0 and 1, got {q}")
        if name is None:
            return {each: self.quantile(q, each) for each in self.names}
        return float(self.distribution(name).quantile(np.array(q)))

    def hdi(self, mass: float = 0.95) -> dict[str, tuple[float, float]]:
        """The shortest interval of each parameter that holds this mass."""
        if not 0 < mass < 1:
            raise InvalidOption(f"the mass of an interval is between 0 and 1, got {mass}")
        return {name: self.distribution(name).shortest(mass) for name in self.names}

    def marginal(self, name: str, n: int = 201) -> tuple[list[float], list[float]]:
        """Values and densities of one parameter (masses, if it takes few values), to be drawn."""
        return self.distribution(name).density(n)

    def samples(self, n: int, seed: int = 0) -> dict[str, Tensor]:
        """Continuous parameters on a grid take values between its points too, those of a list only their own."""
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise InvalidOption(f"expected a whole number of draws, at least 1, got {n}")
        drawn = self._draws(n, seed)
        return {name: drawn[name] for name in self.names}

    def distribution(self, name: str) -> Marginal:
        if name not in self.names:
            raise InvalidOption(f"there is no parameter {name!r}; there is {', '.join(self.names)}")
        if name not in self._distributions:
            self._distributions[name] = self._distribution(name)
        return self._distributions[name]

    @cached_property
    def _distributions(self) -> dict[str, Marginal]:
        return {}


def summary(belief: Belief) -> dict[str, dict[str, Any]]:
    """Mean, sd and quantiles of each parameter, as plain numbers."""
    found = {}
    for name in belief.names:
        quantiles = belief.distribution(name).quantile(np.array(SUMMARY)).tolist()
        told = dict(zip(map(str, SUMMARY), quantiles, strict=True))
        found[name] = {"mean": belief.mean[name], "sd": belief.sd[name], "quantiles": told}
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class PointBelief(Belief):
    """Weighted points."""

    method: Method
    points: Points
    names: tuple[str, ...]
    mass: Array  # [P], which sum to 1
    log_likelihood: Array  # [P] of all observations
    log_evidence: float
    spread: float = 0.0  # how far log_evidence may be off

    @cached_property
    def weights(self) -> Tensor:
        """[P]"""
        return torch.from_numpy(self.mass)

    @cached_property
    def error(self) -> float:
        return self.spread

    @cached_property
    def _table(self) -> Tensor:
        return torch.stack([self.points.values[name] for name in self.names])  # [k, P]

    @cached_property
    def mean(self) -> dict[str, float]:
        return dict(zip(self.names, self._average(self._table).tolist(), strict=True))

    def _average(self, x: Tensor) -> Tensor:
        """Σ w x, where a point without weight may have any value: [..., P] -> [...]."""
        return torch.where(self.weights > 0, x, 0) @ self.weights

    def covariance(self) -> Tensor:
        centred = torch.where(self.weights > 0, self._table - self._average(self._table)[:, None], 0)
        return (centred * self.weights) @ centred.mT

    @cached_property
    def ess(self) -> float:
        return float(1 / self.weights.square().sum())

    @cached_property
    def edge_mass(self) -> float:
        return 0.0 if self.points.edge is None else float(self.mass[self.points.edge.numpy()].sum())

    @cached_property
    def entropy(self) -> float:
        log_posterior = self.points.log_density + torch.from_numpy(self.log_likelihood) - self.log_evidence
        return -float(self._average(log_posterior))

    def _distribution(self, name: str) -> Marginal:
        of = of_grid if self.points.prior is not None and name not in self.points.listed else of_points
        return of(self.points, self.mass, name)

    def _draws(self, n: int, seed: int) -> dict[str, Tensor]:
        if self.points.prior is not None:
            return draws_of_grid(self.points, self.mass, n, seed)
        index = self.draw(n, seed)
        return {name: self.points.values[name][index] for name in self.names}

    def draw(self, n: int, seed: int = 0) -> Tensor:
        """Numbers of n points drawn by weight, in random order: [n]."""
        u = torch.rand(n, generator=generator(seed), dtype=torch.float64)
        return torch.searchsorted(self.weights.cumsum(0), u).clamp(max=self.points.n - 1)

    def telling(self) -> Tensor:
        """Which points are enough for a first look: every second of a grid along each axis, or a quarter of the draws,
        and none that hardly has weight: a mask [P]."""
        keep = self.weights > self.weights.max() * NEGLIGIBLE
        if self.points.half is not None and bool((keep & self.points.half).any()):  # all may lie between them
            return keep & self.points.half
        return keep & (torch.arange(self.points.n) % 4 == 0) if self.method == "particles" else keep

    def only(self, keep: Tensor) -> "PointBelief":
        """The belief on some of its points, by a mask [P]."""
        mass, log_likelihood = self.mass[keep.numpy()], self.log_likelihood[keep.numpy()]
        return replace(self, points=self.points.only(keep), mass=mass / mass.sum(), log_likelihood=log_likelihood)


def normalised(log_joint: Array) -> tuple[Array, float]:
    """Weights that sum to 1, and the logarithm of what they summed to. In numpy, as torch.logsumexp takes ten times as
    long."""
    top = float(log_joint.max())
    if top == -math.inf:
        return np.zeros_like(log_joint), top
    mass = np.exp(log_joint - top)
    total = float(mass.sum())
    mass /= total
    return mass, top + math.log(total)
