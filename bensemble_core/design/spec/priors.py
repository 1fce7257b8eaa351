"""Priors of one parameter. A continuous one is a map from normal scores: θ = F⁻¹(Φ(z)) with z ~ N(0, 1).

In z every prior is the same standard normal, so that one grid (±8, equally spaced) suits them all. Quantiles are taken
from the nearer tail: F⁻¹(1 − ε) is computed from ε, because Φ(8) is 1 to the last bit but one.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from scipy import special
from torch import Tensor

from bensemble_core.predictive.mixtures import LOG_2PI

Fault: TypeAlias = tuple[str, str]  # the field that is wrong, and what is expected of it
Array: TypeAlias = npt.NDArray[np.float64]


class Prior:
    """A continuous distribution of one parameter. Its fields are numbers, with their bounds as metadata."""

    def at(self, z: Tensor) -> Tensor:
        """The value at normal score z."""
        raise NotImplementedError

    def log_density(self, theta: Tensor) -> Tensor:
        """log p(θ) in the units of θ."""
        raise NotImplementedError

    def fault(self) -> Fault | None:
        """What no single field shows: low above high, and the like."""
        low, high = getattr(self, "low", -math.inf), getattr(self, "high", math.inf)
        return None if low < high else ("high", f"expected a value above low = {low:g}")


def log_normal_density(x: Tensor) -> Tensor:
    return -0.5 * (x.square() + LOG_2PI)


def _from_tails(z: Tensor, lower: Callable[[Array], Any], upper: Callable[[Array], Any]) -> Tensor:
    """lower(Φ(z)) for z ≤ 0 and upper(Φ(−z)) above: quantile functions of the nearer tail's probability."""
    tail = special.ndtr(-z.abs().numpy())  # at -8 torch's own ndtr is 2 % off
    return torch.where(z <= 0, torch.as_tensor(lower(tail)), torch.as_tensor(upper(tail)))


def _positive() -> Any:
    return field(metadata={"gt": 0.0})


@dataclass(frozen=True, kw_only=True)
class Normal(Prior):
    """N(loc, scale²)."""

    loc: float
    scale: float = _positive()

    def at(self, z: Tensor) -> Tensor:
        return self.loc + self.scale * z

    def log_density(self, theta: Tensor) -> Tensor:
        return log_normal_density((theta - self.loc) / self.scale) - math.log(self.scale)


@dataclass(frozen=True, kw_only=True)
class LogNormal(Prior):
    """log θ ~ N(loc, scale²)."""

    loc: float
    scale: float = _positive()

    def at(self, z: Tensor) -> Tensor:
        return Normal(loc=self.loc, scale=self.scale).at(z).exp()

    def log_density(self, theta: Tensor) -> Tensor:
        return Normal(loc=self.loc, scale=self.scale).log_density(theta.log()) - theta.log()


@dataclass(frozen=True, kw_only=True)
class StudentT(Prior):
    """loc + scale · t, with t of `df` degrees of freedom."""

    loc: float
    scale: float = _positive()
    df: float = field(default=3.0, metadata={"ge": 0.5, "le": 1e6})

    def at(self, z: Tensor) -> Tensor:
        t = _from_tails(z, lambda p: special.stdtrit(self.df, p), lambda p: -special.stdtrit(self.df, p))
        return self.loc + self.scale * t

    def log_density(self, theta: Tensor) -> Tensor:
        t = (theta - self.loc) / self.scale
        norm = math.lgamma((self.df + 1) / 2) - math.lgamma(self.df / 2) - 0.5 * math.log(self.df * math.pi)
        return norm - math.log(self.scale) - 0.5 * (self.df + 1) * torch.log1p(t.square() / self.df)


@dataclass(frozen=True, kw_only=True)
class HalfNormal(Prior):
    """|N(0, scale²)|."""

    scale: float = _positive()

    def at(self, z: Tensor) -> Tensor:
        # from below: F⁻¹(p) = Φ⁻¹((1 + p) / 2) = √2 erf⁻¹(p), which keeps small p; from above: −Φ⁻¹(p / 2)
        return self.scale * _from_tails(z, lambda p: math.sqrt(2) * special.erfinv(p), lambda p: -special.ndtri(p / 2))

    def log_density(self, theta: Tensor) -> Tensor:
        return log_normal_density(theta / self.scale) + math.log(2 / self.scale)


@dataclass(frozen=True, kw_only=True)
class Uniform(Prior):
    """Between low and high."""

    low: float
    high: float

    def at(self, z: Tensor) -> Tensor:
        width = self.high - self.low
        return _from_tails(z, lambda p: self.low + width * p, lambda p: self.high - width * p)

    def log_density(self, theta: Tensor) -> Tensor:
        return torch.full_like(theta, -math.log(self.high - self.low))


@dataclass(frozen=True, kw_only=True)
class LogUniform(Prior):
    """log θ uniform between log low and log high."""

    low: float = _positive()
    high: float = _positive()

    def at(self, z: Tensor) -> Tensor:
        return Uniform(low=math.log(self.low), high=math.log(self.high)).at(z).exp()

    def log_density(self, theta: Tensor) -> Tensor:
        return -theta.log() - math.log(math.log(self.high / self.low))


@dataclass(frozen=True, kw_only=True)
class Beta(Prior):
    """p(θ) ∝ θ^(a−1) (1−θ)^(b−1)."""

    a: float = _positive()
    b: float = _positive()

    def at(self, z: Tensor) -> Tensor:
        a, b = self.a, self.b
        return _from_tails(z, lambda p: special.betaincinv(a, b, p), lambda p: special.betainccinv(a, b, p))

    def log_density(self, theta: Tensor) -> Tensor:
        norm = math.lgamma(self.a + self.b) - math.lgamma(self.a) - math.lgamma(self.b)
        return norm + torch.special.xlogy(self.a - 1, theta) + torch.special.xlog1py(self.b - 1, -theta)  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True)
class Gamma(Prior):
    """p(θ) ∝ θ^(shape−1) exp(−rate θ)."""

    shape: float = _positive()
    rate: float = _positive()

    def at(self, z: Tensor) -> Tensor:
        shape = self.shape
        return (
            _from_tails(z, lambda p: special.gammaincinv(shape, p), lambda p: special.gammainccinv(shape, p))
            / self.rate
        )

    def log_density(self, theta: Tensor) -> Tensor:
        norm = self.shape * math.log(self.rate) - math.lgamma(self.shape)
        return norm + torch.special.xlogy(self.shape - 1, theta) - self.rate * theta  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True)
class TruncNormal(Prior):
    """N(loc, scale²) between low and high; without a bound, on that side as far as it goes."""

    loc: float
    scale: float = _positive()
    low: float = -math.inf
    high: float = math.inf

    def fault(self) -> Fault | None:
        if (fault := super().fault()) is not None or -self._bounds()[1] <= 30:
            return fault
        return "low", "expected bounds within 30 scales of loc: nothing of the normal is left between these"

    def _bounds(self) -> tuple[float, float, float]:
        """Both bounds in scales, and 1 or −1: mirrored out of the upper tail, where floating point tells less apart."""
        a, b = (self.low - self.loc) / self.scale, (self.high - self.loc) / self.scale
        return (-b, -a, -1.0) if a > 0 else (a, b, 1.0)

    def at(self, z: Tensor) -> Tensor:
        a, b, sign = self._bounds()
        below, above = special.ndtr(a), special.ndtr(-b)  # mass cut off on either side
        kept = special.ndtr(b) - below
        x = _from_tails(
            sign * z,
            lambda p: special.ndtri(np.minimum(below + p * kept, 1 - above)),
            lambda p: -special.ndtri(above + p * kept),
        )
        return (self.loc + sign * self.scale * x).clamp(min=self.low, max=self.high)

    def log_density(self, theta: Tensor) -> Tensor:
        a, b, _ = self._bounds()
        kept = special.ndtr(b) - special.ndtr(a)
        return Normal(loc=self.loc, scale=self.scale).log_density(theta) - math.log(kept)


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
