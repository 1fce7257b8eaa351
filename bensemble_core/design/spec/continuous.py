"""Distributions of a continuous outcome, with what the quadrature over y needs.

Each family has a coordinate c in which its density is smooth on the whole line: y itself, log y or logit y. Entropies
and quadrature nodes are in c; the information gained does not depend on the choice.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from scipy import special
from torch import Tensor
from torch.nn.functional import logsigmoid

from bensemble_core.design.spec.counting import digamma_remainder, remainder
from bensemble_core.design.spec.families import POSITIVE, Arguments, Check, Family, within
from bensemble_core.predictive.mixtures import LOG_2PI

TINY, HUGE = 1e-40, 1e80  # of an sd, of a mean: the square of their ratio is a number still
SMALLEST = 1e-200  # of a quantile, before its logarithm is taken from elsewhere
FARTHEST = 1e100  # place of an outcome

Array = npt.NDArray[np.float64]


class Coordinate(NamedTuple):
    """How c belongs to y: both directions, log |dy/dc|, and what y is expected to be."""

    outcome: Callable[[Tensor], Tensor]
    inverse: Callable[[Tensor], Tensor]
    log_slope: Callable[[Tensor], Tensor]
    expected: str = "a number"


REAL = Coordinate(lambda c: c, lambda y: y, torch.zeros_like)
LOG = Coordinate(torch.exp, torch.log, lambda c: c, "a number above 0")
LOGIT = Coordinate(
    lambda c: torch.sigmoid(c).clamp(1e-300, 1 - 2.0**-53),
    lambda y: y.log() - torch.log1p(-y),
    lambda c: logsigmoid(c) + logsigmoid(-c),
    "a number between 0 and 1, the ends not included",
)


class ContinuousFamily(Family):
    is_discrete = False
    coordinate: ClassVar[Coordinate] = REAL

    @abstractmethod
    def log_density(self, arguments: Arguments, c: Tensor) -> Tensor:
        """log density of the coordinate."""

    @abstractmethod
    def entropy(self, arguments: Arguments) -> Tensor:
        """Differential entropy of the coordinate, in closed form."""

    @abstractmethod
    def place(self, arguments: Arguments, score: float | Tensor) -> Tensor:
        """The coordinate at a normal score: the median at 0, the tail of mass 6e-16 at 8."""

    def outcome(self, c: Tensor) -> Tensor:
        """Coordinate -> y."""
        return self.coordinate.outcome(c)

    def log_prob(self, arguments: Arguments, y: Tensor) -> Tensor:
        c = self.coordinate.inverse(y)
        return self.log_density(arguments, c) - self.coordinate.log_slope(c)

    def quantile(self, arguments: Arguments, u: Tensor) -> Tensor:
        return self.outcome(self.place(arguments, torch.special.ndtri(u)))

    def mean(self, arguments: Arguments) -> Tensor:
        return arguments["mean"]

    def admits(self, y: float) -> str | None:
        low, high = self.support
        is_inside = (low is None or y > low) and (high is None or y < high)
        return None if is_inside else self.coordinate.expected


def _tail(score: float | Tensor) -> tuple[Tensor, Array]:
    """A normal score, and the probability beyond it. At -8 torch's own ndtr is 2 % off."""
    found = torch.as_tensor(score, dtype=torch.float64)
    return found, special.ndtr(-found.abs().numpy())


MEAN_SD: dict[str, tuple[Check, ...]] = {
    "mean": (within(-HUGE, HUGE, f"a finite number within ±{HUGE:g}"),),
    "sd": (within(TINY, HUGE, f"a number above 0, from {TINY:g} to {HUGE:g}"),),
}


class Normal(ContinuousFamily):
    """N(mean, sd²)."""

    signatures = (("mean", "sd"),)
    checks = MEAN_SD

    def log_density(self, arguments: Arguments, c: Tensor) -> Tensor:
        sd = arguments["sd"]
        return -0.5 * (((c - arguments["mean"]) / sd).square() + LOG_2PI) - sd.log()

    def entropy(self, arguments: Arguments) -> Tensor:
        return arguments["sd"].log() + 0.5 * (LOG_2PI + 1)

    def place(self, arguments: Arguments, score: float | Tensor) -> Tensor:
        return arguments["mean"] + score * arguments["sd"]


class LogNormal(Normal):
    """log y ~ N(mean, sd²): both are of the logarithm."""

    coordinate = LOG
    support = (0.0, None)

    def mean(self, arguments: Arguments) -> Tensor:
        return (arguments["mean"] + 0.5 * arguments["sd"].square()).exp()


class StudentT(ContinuousFamily):
    """mean + sd · t with t of `df` degrees of freedom. `sd` is the scale: the standard deviation is √(df/(df−2)) of it,
    and for df ≤ 2 there is none."""

    signatures = (("df", "mean", "sd"),)
    checks: ClassVar = {"df": (within(0.5, 1e6, "a number from 0.5 to 1e6"),), **MEAN_SD}

    def log_density(self, arguments: Arguments, c: Tensor) -> Tensor:
        df, sd = arguments["df"], arguments["sd"]
        t = (c - arguments["mean"]) / sd
        norm = torch.lgamma((df + 1) / 2) - torch.lgamma(df / 2) - 0.5 * (df * math.pi).log() - sd.log()
        return norm - 0.5 * (df + 1) * torch.log1p(t.square() / df)

    def entropy(self, arguments: Arguments) -> Tensor:
        df = arguments["df"]
        half = (df + 1) / 2
        log_beta = torch.lgamma(df / 2) + math.lgamma(0.5) - torch.lgamma(half)
        gap = torch.special.digamma(half) - torch.special.digamma(df / 2)
        return arguments["sd"].log() + half * gap + 0.5 * df.log() + log_beta  # type: ignore[no-any-return]

    def place(self, arguments: Arguments, score: float | Tensor) -> Tensor:
        score, tail = _tail(score)
        t = torch.as_tensor(special.stdtrit(arguments["df"].numpy(), tail))
        return arguments["mean"] - score.sign() * arguments["sd"] * t


class Exponential(ContinuousFamily):
    """p(y) = rate · exp(−rate y); the coordinate log y is a Gumbel variable of entropy 1 + γ whatever the rate."""

    signatures = (("rate",),)
    checks: ClassVar = {"rate": (POSITIVE,)}
    coordinate = LOG
    support = (0.0, None)

    def mean(self, arguments: Arguments) -> Tensor:
        return 1 / arguments["rate"]

    def log_density(self, arguments: Arguments, c: Tensor) -> Tensor:
        scaled = arguments["rate"].log() + c
        return scaled - scaled.exp()

    def entropy(self, arguments: Arguments) -> Tensor:
        return torch.full_like(arguments["rate"], 1 + np.euler_gamma)

    def place(self, arguments: Arguments, score: float | Tensor) -> Tensor:
        # the quantile is −log(1 − Φ(score)), from whichever tail is the smaller
        score, tail = _tail(score)
        scaled = torch.as_tensor(np.where(score < 0, -np.log1p(-tail), -np.log(tail)))
        return scaled.log() - arguments["rate"].log()


class Beta(ContinuousFamily):
    """On (0, 1), with a = mean · concentration and b = (1 − mean) · concentration; the coordinate is logit y."""

    signatures = (("mean", "concentration"),)
    checks: ClassVar = {
        "mean": (Check(lambda mean: (mean > 0) & (mean < 1), "a number between 0 and 1"),),
        "concentration": (within(1e-300, 1e12, "a number above 0 and at most 1e12"),),
    }
    coordinate = LOGIT
    support = (0.0, 1.0)

    def log_density(self, arguments: Arguments, c: Tensor) -> Tensor:
        """−n KL(mean ‖ σ(c)) and what Stirling's series adds: without the large terms that cancel each other."""
        a, b = _shapes(arguments)
        n, mean = a + b, arguments["mean"]
        away = c - torch.logit(mean)
        small = away.clamp(-1, 1)  # log(σ(c) / mean) = −log(mean + (1 − mean) e^(−away))
        near = -a * torch.log1p((1 - mean) * torch.expm1(-small)) - b * torch.log1p(mean * torch.expm1(small))
        far = a * (logsigmoid(c) - mean.log()) + b * (logsigmoid(-c) - torch.log1p(-mean))
        rest = remainder(n) - remainder(a) - remainder(b) + 0.5 * (a.log() + b.log() - n.log() - LOG_2PI)
        return torch.where(away.abs() < 1, near, far) + rest

    def entropy(self, arguments: Arguments) -> Tensor:
        """log B(a, b) − a ψ(a) − b ψ(b) + n ψ(n), in the same way."""
        a, b = _shapes(arguments)
        n = a + b
        gap = [remainder(x) - x * digamma_remainder(x) for x in (a, b, n)]
        return 0.5 + 0.5 * (LOG_2PI + n.log() - a.log() - b.log()) + gap[0] + gap[1] - gap[2]

    def place(self, arguments: Arguments, score: float | Tensor) -> Tensor:
        """log y − log(1 − y) with y the quantile: the two from either side, so that both have all their digits."""
        a, b = (t.numpy() for t in _shapes(arguments))
        score, tail = _tail(score)
        near, far = np.where(score < 0, a, b), np.where(score < 0, b, a)
        here = _log_quantile(special.betaincinv(near, far, tail), near, far, np.log(tail))
        there = _log_quantile(special.betainccinv(far, near, tail), far, near, np.log1p(-tail))
        return torch.as_tensor(np.where(score < 0, here - there, there - here))


def _log_quantile(y: Any, a: Array, b: Array, log_p: Array) -> Array:
    """log of the p-quantile y of Beta(a, b); where y itself underflows by P(Y < y) = y^a / (a B(a, b)) for small y."""
    log_small = (log_p + np.log(a) + special.betaln(a, b)) / a
    with np.errstate(divide="ignore"):
        return np.asarray(np.where(y > SMALLEST, np.log(y), np.clip(log_small, -FARTHEST, math.log(SMALLEST))))


def _shapes(arguments: Arguments) -> tuple[Tensor, Tensor]:
    mean, concentration = arguments["mean"], arguments["concentration"]
    return mean * concentration, (1 - mean) * concentration


CONTINUOUS: dict[str, Any] = {
    "normal": Normal(),
    "lognormal": LogNormal(),
    "student_t": StudentT(),
    "beta": Beta(),
    "exponential": Exponential(),
}
