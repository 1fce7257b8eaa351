"""The posterior as weighted points: moments, quantiles, draws, and the entropy that observations have removed."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from scipy import special
from torch import Tensor

from bensemble_core.design.belief.convergence import axis_errors
from bensemble_core.design.belief.marginals import curve, draws
from bensemble_core.design.belief.points import Points, taken
from bensemble_core.errors import InvalidOption
from bensemble_core.randomness import generator

Method = Literal["grid", "listed", "particles", "gaussian"]
Array = npt.NDArray[np.float64]
KERNEL = 0.35  # width of the smoothing of a grid seen askew, in posterior sds
NEGLIGIBLE = 2e-9  # of the greatest weight, for a first look
N_ZOOMS = 3
SUMMARY = (0.025, 0.25, 0.5, 0.75, 0.975)


class Belief(Protocol):
    """p(θ | observations). `mean` and `sd` are by name; all numbers are in the units of the parameters."""

    @property
    def method(self) -> Method: ...
    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def mean(self) -> dict[str, float]: ...
    @property
    def sd(self) -> dict[str, float]: ...
    @property
    def log_evidence(self) -> float:
        """log p(y_1 … y_n | ξ_1 … ξ_n)."""
        ...

    @property
    def error(self) -> float:
        """How far log_evidence may be off, as estimated."""
        ...

    @property
    def ess(self) -> float:
        """Effective number of points, 1 / Σ w²."""
        ...

    @property
    def edge_mass(self) -> float:
        """Mass on the outermost points of a grid: more than a trace means that the grid cuts the posterior."""
        ...

    @property
    def entropy(self) -> float:
        """−E log p(θ | observations), differential for continuous parameters, in the units of θ."""
        ...

    def covariance(self) -> Tensor: ...
    def quantile(self, q: float, name: str | None = None) -> Any:
        """The q-quantile of each parameter by name, or of one."""
        ...

    def hdi(self, mass: float = 0.95) -> dict[str, tuple[float, float]]:
        """The shortest interval of each parameter that holds this mass."""
        ...

    def marginal(self, name: str, n: int = 201) -> tuple[list[float], list[float]]:
        """Values and densities of one parameter (masses, if it takes few values), to be drawn."""
        ...

    def samples(self, n: int, seed: int = 0) -> dict[str, Tensor]: ...


def refuse_draws(n: int) -> None:
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise InvalidOption(f"expected a whole number of draws, at least 1, got {n}")


def summary(belief: Belief) -> dict[str, dict[str, Any]]:
    """Mean, sd and quantiles of each parameter, as plain numbers."""
    quantiles = {q: belief.quantile(q) for q in SUMMARY}
    return {
        name: {
            "mean": belief.mean[name],
            "sd": belief.sd[name],
            "quantiles": {str(q): found[name] for q, found in quantiles.items()},
        }
        for name in belief.names
    }


@dataclass(frozen=True, kw_only=True, eq=False)
class PointBelief:
    """Weighted points."""

    method: Method
    points: Points
    names: tuple[str, ...]
    mass: Array  # [P], which sum to 1
    log_likelihood: Array  # [P] of all observations
    log_evidence: float
    spread: float = 0.0  # of log_evidence, where it was sampled or peaks were passed by

    @cached_property
    def weights(self) -> Tensor:
        """[P]"""
        return torch.from_numpy(self.mass)

    @cached_property
    def error(self) -> float:
        """Of a grid, from what fewer of its points would give."""
        return self.spread + (0.0 if self.points.frame is None else sum(axis_errors(self.mass, self.points.frame.n)))

    @cached_property
    def _table(self) -> Tensor:
        return torch.stack([self.points.values[name] for name in self.names])  # [k, P]

    @cached_property
    def mean(self) -> dict[str, float]:
        return dict(zip(self.names, self._average(self._table).tolist(), strict=True))

    @cached_property
    def sd(self) -> dict[str, float]:
        return dict(zip(self.names, self.covariance().diagonal().sqrt().tolist(), strict=True))

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
        return 0.0 if self.points.edge is None else float(self.mass[self.points.edge_array].sum())

    @cached_property
    def entropy(self) -> float:
        log_posterior = self.points.log_density + torch.from_numpy(self.log_likelihood) - self.log_evidence
        return -float(self._average(log_posterior))

    def quantile(self, q: float, name: str | None = None) -> Any:
        if not 0 < q < 1:
            raise InvalidOption(f"a quantile is asked for at a probability between 0 and 1, got {q}")
        if name is None:
            return {each: float(self._inverse(each, np.array(q))) for each in self.names}
        return float(self._inverse(self._known(name), np.array(q)))

    def hdi(self, mass: float = 0.95) -> dict[str, tuple[float, float]]:
        if not 0 < mass < 1:
            raise InvalidOption(f"the mass of an interval is between 0 and 1, got {mass}")
        return {name: self._shortest(name, mass) for name in self.names}

    def _shortest(self, name: str, mass: float) -> tuple[float, float]:
        """Looked for on a mesh of where it begins, and again on a finer one around the best."""
        low, high, best = 0.0, 1 - mass, 0.0
        for _ in range(1 if name in self.points.listed else N_ZOOMS):
            starts = np.linspace(low, high, 202)[1:-1]
            widths = self._inverse(name, starts + mass) - self._inverse(name, starts)
            best = float(starts[int(widths.argmin())])
            low, high = max(0.0, best - starts[1] + starts[0]), min(1 - mass, best + starts[1] - starts[0])
        ends = self._inverse(name, np.array([best, best + mass]))
        return float(ends[0]), float(ends[1])

    def marginal(self, name: str, n: int = 201) -> tuple[list[float], list[float]]:
        if self._known(name) in self.points.listed:
            values, weights = self._sorted(name)
            return values.tolist(), weights.tolist()
        at, below = self._curve(name)
        edges = np.linspace(np.interp(0.0005, below, at), np.interp(0.9995, below, at), n + 1)
        rise, width = np.diff(np.interp(edges, at, below)), np.diff(edges)
        density = np.divide(rise, width, out=np.zeros_like(rise), where=width > 0)
        return (0.5 * (edges[1:] + edges[:-1])).tolist(), density.tolist()

    def samples(self, n: int, seed: int = 0) -> dict[str, Tensor]:
        """Continuous parameters on a grid take values between its points too, those of a list only their own."""
        refuse_draws(n)
        if self.method == "grid" and self.points.prior is not None:
            drawn = draws(self.points, self.mass, n, seed)
            return {name: drawn[name] for name in self.names}
        index = self.draw(n, seed)
        return {name: self.points.values[name][index] for name in self.names}

    def draw(self, n: int, seed: int = 0) -> Tensor:
        """Numbers of n points drawn by weight, in random order: [n]."""
        u = torch.rand(n, generator=generator(seed), dtype=torch.float64)
        return torch.searchsorted(self.weights.cumsum(0), u).clamp(max=self.points.n - 1)

    def telling(self) -> Tensor:
        """Fewer points for a first look: every second of a grid, a quarter of the particles; none without weight."""
        keep = self.weights > self.weights.max() * NEGLIGIBLE
        if self.points.coarse is not None:
            thinned = keep & self.points.coarse
            return thinned if bool(thinned.any()) else keep  # all the weight may lie between them
        if self.method == "particles" and (self.points.groups is None or self.points.is_grouped):
            return torch.arange(self.points.n) < self.points.n // 4  # of its sixteen parts four
        return keep

    def only(self, keep: Tensor) -> "PointBelief":
        """The belief on some of its points, by a mask [P]."""
        return PointBelief(
            method=self.method,
            points=taken(self.points, keep),
            names=self.names,
            mass=self.mass[keep.numpy()] / self.mass[keep.numpy()].sum(),
            log_likelihood=self.log_likelihood[keep.numpy()],
            log_evidence=self.log_evidence,
        )

    def _known(self, name: str) -> str:
        if name not in self.names:
            raise InvalidOption(f"there is no parameter {name!r}; there is {', '.join(self.names)}")
        return name

    def _sorted(self, name: str) -> tuple[Array, Array]:
        """Different values of a parameter in order, and the weight of each."""
        values, where = np.unique(self.points.values[name].numpy(), return_inverse=True)
        return values, np.bincount(where, self.mass, len(values)).astype(np.float64)

    def _inverse(self, name: str, q: Array) -> Array:
        """Quantiles of one parameter."""
        if name in self.points.listed:
            values, weights = self._sorted(name)
            places = np.searchsorted(weights.cumsum(), q - 1e-12)
            return values[np.minimum(places, len(values) - 1)]
        at, below = self._curve(name)
        if self.method == "particles":
            return np.interp(q, below, at)
        if name not in self._inverses:
            from scipy.interpolate import PchipInterpolator  # slow to import, and only summaries need it

            below, first = np.unique(below, return_index=True)
            at = at[first]
            try:
                with np.errstate(all="ignore"):
                    self._inverses[name] = PchipInterpolator(below, at)
            except ValueError:  # slopes beyond what floating point holds, or a single value
                self._inverses[name] = lambda q: np.interp(q, below, at)
        return np.asarray(self._inverses[name](q))

    @cached_property
    def _inverses(self) -> dict[str, Callable[[Array], Array]]:
        return {}

    def _curve(self, name: str) -> tuple[Array, Array]:
        """The distribution function of one parameter on a fine mesh: values and the mass below each."""
        if name not in self._curves:
            if self.method == "grid" and self.points.prior is not None:
                self._curves[name] = curve(self.points, self.mass, name)
            else:
                values, weights = self._sorted(name)
                width = 0.0 if self.method == "particles" else KERNEL * self.sd[name]
                self._curves[name] = across(values, weights, width)
        return self._curves[name]

    @cached_property
    def _curves(self) -> dict[str, tuple[Array, Array]]:
        return {}


def across(values: Array, weights: Array, width: float, n_bins: int = 2048) -> tuple[Array, Array]:
    """From weighted points that lie anyhow. A lattice seen askew leaves gaps: it is smoothed by a normal kernel of this
    width after the points were drawn together, which keeps mean and variance (West 1993)."""
    if width == 0:
        return values, weights.cumsum() - 0.5 * weights
    mean = weights @ values
    sd = math.sqrt(weights @ (values - mean) ** 2)
    near = mean + (values - mean) * math.sqrt(1 - (width / sd) ** 2)
    edges = np.linspace(max(near[0], mean - 12 * sd), min(near[-1], mean + 12 * sd), n_bins + 1)
    mass, _ = np.histogram(np.clip(near, edges[0], edges[-1]), edges, weights=weights)
    kept = mass > 1e-12
    centres = 0.5 * (edges[1:] + edges[:-1])[kept]
    mesh = np.linspace(centres[0] - 5 * width, centres[-1] + 5 * width, 801)
    below = special.ndtr((mesh[:, None] - centres) / width) @ mass[kept]
    return mesh, below / below[-1]


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
