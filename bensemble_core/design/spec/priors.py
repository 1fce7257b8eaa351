"""Priors of one parameter. A continuous one is a map from normal scores: θ = F⁻¹(Φ(z)) with z ~ N(0, 1).

In z every prior is the same standard normal, so that one grid (±8, equally spaced) suits them all. Quantiles are taken
from the nearer tail: F⁻¹(1 − ε) is computed from ε, because Φ(8) is 1 to the last bit but one.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from scipy import special
from torch import Tensor

from bensemble_core.predictive.mixtures import LOG_2PI

Fault: TypeAlias = tuple[str, str]  # the field that is wrong, and what is expected of it
Array: TypeAlias = npt.NDArray[np.float64]

_POSITIVE = {"gt": 0.0}


class Prior(Protocol):
    """A continuous distribution of one parameter."""

    def at(self, z: Tensor) -> Tensor:
        """The value at normal score z."""
        ...

    def log_density(self, theta: Tensor) -> Tensor:
        """log p(θ) in the units of θ."""
        ...

    def fault(self) -> Fault | None:
        """What no single field shows: low above high, and the like."""
        ...


def log_normal_density(x: Tensor) -> Tensor:
    return -0.5 * (x.square() + LOG_2PI)


def _from_tails(z: Tensor, lower: Callable[[Array], Any], upper: Callable[[Array], Any]) -> Tensor:
    """lower(Φ(z)) for z ≤ 0 and upper(Φ(−z)) above: quantile functions of the nearer tail's probability."""
    tail: Array = torch.special.ndtr(-z.abs()).numpy()
    return torch.where(z <= 0, torch.as_tensor(lower(tail)), torch.as_tensor(upper(tail)))


class _Plain:
    def fault(self) -> Fault | None:
        return None


class _Ordered:
    low: Any
    high: Any

    def fault(self) -> Fault | None:
        return None if self.low < self.high else ("high", f"expected a value above low = {self.low:g}")


@dataclass(frozen=True, kw_only=True)
class Normal(_Plain):
    """N(loc, scale²)."""

    loc: float
    scale: float = field(metadata=_POSITIVE)

    def at(self, z: Tensor) -> Tensor:
        return self.loc + self.scale * z

    def log_density(self, theta: Tensor) -> Tensor:
        return log_normal_density((theta - self.loc) / self.scale) - math.log(self.scale)


@dataclass(frozen=True, kw_only=True)
class LogNormal(_Plain):
    """log θ ~ N(loc, scale²)."""

    loc: float
    scale: float = field(metadata=_POSITIVE)

    def at(self, z: Tensor) -> Tensor:
        return (self.loc + self.scale * z).exp()

    def log_density(self, theta: Tensor) -> Tensor:
        log_theta = theta.log()
        return log_normal_density((log_theta - self.loc) / self.scale) - math.log(self.scale) - log_theta


@dataclass(frozen=True, kw_only=True)
class StudentT(_Plain):
    """loc + scale · t, with t of `df` degrees of freedom."""

    loc: float
    scale: float = field(metadata=_POSITIVE)
    df: float = field(default=3.0, metadata={"ge": 0.5, "le": 1e6})

    def at(self, z: Tensor) -> Tensor:
        def quantile(p: Array) -> Array:
            return np.asarray(special.stdtrit(self.df, p))

        return self.loc + self.scale * _from_tails(z, quantile, lambda p: -quantile(p))

    def log_density(self, theta: Tensor) -> Tensor:
        t = (theta - self.loc) / self.scale
        norm = math.lgamma((self.df + 1) / 2) - math.lgamma(self.df / 2) - 0.5 * math.log(self.df * math.pi)
        return norm - math.log(self.scale) - 0.5 * (self.df + 1) * torch.log1p(t.square() / self.df)


@dataclass(frozen=True, kw_only=True)
class HalfNormal(_Plain):
    """|N(0, scale²)|."""

    scale: float = field(metadata=_POSITIVE)

    def at(self, z: Tensor) -> Tensor:
        # from below: F⁻¹(p) = Φ⁻¹((1 + p) / 2) = √2 erf⁻¹(p), which keeps small p; from above: −Φ⁻¹(p / 2)
        return self.scale * _from_tails(z, lambda p: math.sqrt(2) * special.erfinv(p), lambda p: -special.ndtri(p / 2))

    def log_density(self, theta: Tensor) -> Tensor:
        return log_normal_density(theta / self.scale) + math.log(2 / self.scale)


@dataclass(frozen=True, kw_only=True)
class Uniform(_Ordered):
    """Between low and high."""

    low: float
    high: float

    def at(self, z: Tensor) -> Tensor:
        width = self.high - self.low
        return _from_tails(z, lambda p: self.low + width * p, lambda p: self.high - width * p)

    def log_density(self, theta: Tensor) -> Tensor:
        return torch.full_like(theta, -math.log(self.high - self.low))


@dataclass(frozen=True, kw_only=True)
class LogUniform(_Ordered):
    """log θ uniform between log low and log high."""

    low: float = field(metadata=_POSITIVE)
    high: float = field(metadata=_POSITIVE)

    def at(self, z: Tensor) -> Tensor:
        return Uniform(low=math.log(self.low), high=math.log(self.high)).at(z).exp()

    def log_density(self, theta: Tensor) -> Tensor:
        return -theta.log() - math.log(math.log(self.high / self.low))


@dataclass(frozen=True, kw_only=True)
class Beta(_Plain):
    """p(θ) ∝ θ^(a−1) (1−θ)^(b−1)."""

    a: float = field(metadata=_POSITIVE)
    b: float = field(metadata=_POSITIVE)

    def at(self, z: Tensor) -> Tensor:
        return _from_tails(
            z, lambda p: special.betaincinv(self.a, self.b, p), lambda p: special.betainccinv(self.a, self.b, p)
        )

    def log_density(self, theta: Tensor) -> Tensor:
        norm = math.lgamma(self.a + self.b) - math.lgamma(self.a) - math.lgamma(self.b)
        return norm + torch.special.xlogy(self.a - 1, theta) + torch.special.xlog1py(self.b - 1, -theta)  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True)
class Gamma(_Plain):
    """p(θ) ∝ θ^(shape−1) exp(−rate θ)."""

    shape: float = field(metadata=_POSITIVE)
    rate: float = field(metadata=_POSITIVE)

    def at(self, z: Tensor) -> Tensor:
        scaled = _from_tails(
            z, lambda p: special.gammaincinv(self.shape, p), lambda p: special.gammainccinv(self.shape, p)
        )
        return scaled / self.rate

    def log_density(self, theta: Tensor) -> Tensor:
        norm = self.shape * math.log(self.rate) - math.lgamma(self.shape)
        return norm + torch.special.xlogy(self.shape - 1, theta) - self.rate * theta  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True)
class TruncNormal(_Ordered):
    """N(loc, scale²) between low and high; without a bound, on that side as far as it goes."""

    loc: float
    scale: float = field(metadata=_POSITIVE)
    low: float = -math.inf
    high: float = math.inf

    def fault(self) -> Fault | None:
        if not self.low < self.high:
            return super().fault()
        # mirrored where it lies in the upper tail, as the two tails are what floating point can tell apart
        if max(self._edges()[0], -self._edges()[1]) > 30:
            return "low", "expected bounds within 30 scales of loc: nothing of the normal is left between these"
        return None

    def _edges(self) -> tuple[float, float]:
        return (self.low - self.loc) / self.scale, (self.high - self.loc) / self.scale

    def at(self, z: Tensor) -> Tensor:
        a, b = self._edges()
        if a > 0:  # in the upper tail: take the mirror image
            mirrored = TruncNormal(loc=-self.loc, scale=self.scale, low=-self.high, high=-self.low)
            return -mirrored.at(-z)
        below, above = float(special.ndtr(a)), float(special.ndtr(-b))  # mass cut off on either side
        kept = float(special.ndtr(b)) - below

        def lower(p: Array) -> Array:
            return np.asarray(special.ndtri(np.minimum(below + p * kept, 1 - above)))

        def upper(p: Array) -> Array:
            return np.asarray(-special.ndtri(above + p * kept))

        theta = self.loc + self.scale * _from_tails(z, lower, upper)
        return theta.clamp(min=self.low, max=self.high)

    def log_density(self, theta: Tensor) -> Tensor:
        a, b = self._edges()
        a, b = (-b, -a) if a > 0 else (a, b)
        kept = float(special.ndtr(b)) - float(special.ndtr(a))
        return log_normal_density((theta - self.loc) / self.scale) - math.log(self.scale) - math.log(kept)


PRIORS: dict[str, type[Any]] = {
    "normal": Normal,
    "lognormal": LogNormal,
    "student_t": StudentT,
    "halfnormal": HalfNormal,
    "uniform": Uniform,
    "loguniform": LogUniform,
    "beta": Beta,
    "gamma": Gamma,
    "truncnormal": TruncNormal,
}
