"""Distributions of a continuous outcome, with what the quadrature over y needs.

Each family has a coordinate c in which its density is smooth on the whole line: y itself, log y or logit y. Entropies
and quadrature nodes are in c; the information gained does not depend on the choice.
"""

import math
from collections.abc import Iterator
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import torch
from scipy import special
from torch import Tensor
from torch.nn.functional import logsigmoid

from bensemble_core.design.spec.counting import digamma_remainder, remainder
from bensemble_core.design.spec.families import Arguments, Family, Fault, not_positive, outside
from bensemble_core.predictive.mixtures import LOG_2PI

EULER = 0.5772156649015329
TINY, HUGE = 1e-40, 1e80  # of an sd, of a mean: the square of their ratio is a number still
SMALLEST = 1e-200  # of a quantile, before its logarithm is taken from elsewhere
FARTHEST = 1e100  # place of an outcome

Array = npt.NDArray[np.float64]


class ContinuousFamily(Family, Protocol):
    def log_density(self, arguments: Arguments, c: Tensor) -> Tensor:
        """log density of the coordinate."""
        ...

    def entropy(self, arguments: Arguments) -> Tensor:
        """Differential entropy of the coordinate, in closed form."""
        ...

    def place(self, arguments: Arguments, score: float) -> Tensor:
        """The coordinate at a normal score: the median at 0, the tail of mass 6e-16 at 8; roughly is enough."""
        ...

    def outcome(self, c: Tensor) -> Tensor:
        """Coordinate -> y."""
        ...


class _Plain:
    is_discrete: ClassVar[bool] = False
    lists: ClassVar[tuple[str, ...]] = ()
    fixed: ClassVar[tuple[str, ...]] = ()
    support: ClassVar[tuple[float | None, float | None]] = (None, None)

    def outcome(self, c: Tensor) -> Tensor:
        return c

    def mean(self, arguments: Arguments) -> Tensor:
        return arguments["mean"]

    def admits(self, y: float) -> str | None:
        return None


class _Positive(_Plain):
    support: ClassVar[tuple[float | None, float | None]] = (0.0, None)

    def outcome(self, c: Tensor) -> Tensor:
        return c.exp()

    def admits(self, y: float) -> str | None:
        return None if y > 0 else "a number above 0"


def _mean_sd_faults(arguments: Arguments) -> Iterator[Fault]:
    yield "mean", outside(arguments["mean"], -HUGE, HUGE), f"a finite number within ±{HUGE:g}"
    yield "sd", outside(arguments["sd"], TINY, HUGE), f"a number above 0, from {TINY:g} to {HUGE:g}"


class Normal(_Plain):
    """N(mean, sd²)."""

    signatures: ClassVar[tuple[tuple[str, ...], ...]] = (("mean", "sd"),)

    def faults(self, arguments: Arguments) -> Iterator[Fault]:
        yield from _mean_sd_faults(arguments)

    def log_density(self, arguments: Arguments, c: Tensor) -> Tensor:
        sd = arguments["sd"]
        return -0.5 * (((c - arguments["mean"]) / sd).square() + LOG_2PI) - sd.log()

    def log_prob(self, arguments: Arguments, y: Tensor) -> Tensor:
        return self.log_density(arguments, y)

    def entropy(self, arguments: Arguments) -> Tensor:
        return arguments["sd"].log() + 0.5 * (LOG_2PI + 1)

    def place(self, arguments: Arguments, score: float) -> Tensor:
        return arguments["mean"] + score * arguments["sd"]

    def quantile(self, arguments: Arguments, u: Tensor) -> Tensor:
        return self.outcome(arguments["mean"] + arguments["sd"] * torch.special.ndtri(u))


class LogNormal(Normal):
    """log y ~ N(mean, sd²): both are of the logarithm."""

    support: ClassVar[tuple[float | None, float | None]] = (0.0, None)

    def outcome(self, c: Tensor) -> Tensor:
        return c.exp()

    def mean(self, arguments: Arguments) -> Tensor:
        return (arguments["mean"] + 0.5 * arguments["sd"].square()).exp()

    def admits(self, y: float) -> str | None:
        return None if y > 0 else "a number above 0"

    def log_prob(self, arguments: Arguments, y: Tensor) -> Tensor:
        return self.log_density(arguments, y.log()) - y.log()


class StudentT(_Plain):
    """mean + sd · t with t of `df` degrees of freedom. `sd` is the scale: the standard deviation is √(df/(df−2)) of it,
    and for df ≤ 2 there is none."""

    signatures: ClassVar[tuple[tuple[str, ...], ...]] = (("df", "mean", "sd"),)

    def faults(self, arguments: Arguments) -> Iterator[Fault]:
        yield "df", outside(arguments["df"], 0.5, 1e6), "a number from 0.5 to 1e6"
        yield from _mean_sd_faults(arguments)

    def log_density(self, arguments: Arguments, c: Tensor) -> Tensor:
        df, sd = arguments["df"], arguments["sd"]
        t = (c - arguments["mean"]) / sd
        norm = torch.lgamma((df + 1) / 2) - torch.lgamma(df / 2) - 0.5 * (df * math.pi).log() - sd.log()
        return norm - 0.5 * (df + 1) * torch.log1p(t.square() / df)

    def log_prob(self, arguments: Arguments, y: Tensor) -> Tensor:
        return self.log_density(arguments, y)

    def entropy(self, arguments: Arguments) -> Tensor:
        df = arguments["df"]
        half = (df + 1) / 2
        log_beta = torch.lgamma(df / 2) + math.lgamma(0.5) - torch.lgamma(half)
        gap = torch.special.digamma(half) - torch.special.digamma(df / 2)
        return arguments["sd"].log() + half * gap + 0.5 * df.log() + log_beta  # type: ignore[no-any-return]

    def place(self, arguments: Arguments, score: float) -> Tensor:
        tail = torch.as_tensor(special.stdtrit(arguments["df"].detach().numpy(), float(special.ndtr(-abs(score)))))
        return arguments["mean"] - math.copysign(1.0, score) * arguments["sd"] * tail

    def quantile(self, arguments: Arguments, u: Tensor) -> Tensor:
        t = torch.as_tensor(special.stdtrit(arguments["df"].numpy(), u.numpy()))
        return arguments["mean"] + arguments["sd"] * t


class Exponential(_Positive):
    """p(y) = rate · exp(−rate y); the coordinate log y is a Gumbel variable of entropy 1 + γ whatever the rate."""

    signatures: ClassVar[tuple[tuple[str, ...], ...]] = (("rate",),)

    def mean(self, arguments: Arguments) -> Tensor:
        return 1 / arguments["rate"]

    def faults(self, arguments: Arguments) -> Iterator[Fault]:
        yield "rate", not_positive(arguments["rate"]), "a number above 0"

    def log_density(self, arguments: Arguments, c: Tensor) -> Tensor:
        scaled = arguments["rate"].log() + c
        return scaled - scaled.exp()

    def log_prob(self, arguments: Arguments, y: Tensor) -> Tensor:
        return arguments["rate"].log() - arguments["rate"] * y

    def entropy(self, arguments: Arguments) -> Tensor:
        return torch.zeros_like(arguments["rate"]) + 1 + EULER

    def place(self, arguments: Arguments, score: float) -> Tensor:
        # the quantile is −log(1 − Φ(score)), from whichever tail is the smaller
        tail = float(special.ndtr(-abs(score)))
        return math.log(-math.log1p(-tail) if score < 0 else -math.log(tail)) - arguments["rate"].log()

    def quantile(self, arguments: Arguments, u: Tensor) -> Tensor:
        return -torch.log1p(-u) / arguments["rate"]


class Beta(_Plain):
    """On (0, 1), with a = mean · concentration and b = (1 − mean) · concentration; the coordinate is logit y."""

    signatures: ClassVar[tuple[tuple[str, ...], ...]] = (("mean", "concentration"),)
    support: ClassVar[tuple[float | None, float | None]] = (0.0, 1.0)

    def faults(self, arguments: Arguments) -> Iterator[Fault]:
        mean = arguments["mean"]
        yield "mean", ~((mean > 0) & (mean < 1)), "a number between 0 and 1"
        yield "concentration", not_positive(arguments["concentration"]), "a number above 0"

    def admits(self, y: float) -> str | None:
        return None if 0 < y < 1 else "a number between 0 and 1, the ends not included"

    def outcome(self, c: Tensor) -> Tensor:
        return torch.sigmoid(c)

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

    def log_prob(self, arguments: Arguments, y: Tensor) -> Tensor:
        log_y, log_rest = y.log(), torch.log1p(-y)
        return self.log_density(arguments, log_y - log_rest) - log_y - log_rest

    def entropy(self, arguments: Arguments) -> Tensor:
        """log B(a, b) − a ψ(a) − b ψ(b) + n ψ(n), in the same way."""
        a, b = _shapes(arguments)
        n = a + b
        gap = [remainder(x) - x * digamma_remainder(x) for x in (a, b, n)]
        return 0.5 + 0.5 * (LOG_2PI + n.log() - a.log() - b.log()) + gap[0] + gap[1] - gap[2]

    def place(self, arguments: Arguments, score: float) -> Tensor:
        a, b = (t.detach().numpy() for t in _shapes(arguments))
        tail = float(special.ndtr(-abs(score)))
        near, far = (a, b) if score < 0 else (b, a)
        # from 0 and from 1: whichever is near is known to all its digits
        c = _log_quantile(near, far, tail) - _log_quantile(far, near, 1 - tail, above=tail)
        return torch.as_tensor(c if score < 0 else -c)

    def quantile(self, arguments: Arguments, u: Tensor) -> Tensor:
        a, b = _shapes(arguments)
        y = special.betaincinv(a.numpy(), b.numpy(), u.numpy())
        return torch.as_tensor(np.clip(y, 1e-300, np.nextafter(1.0, 0.0)))


def _log_quantile(a: Array, b: Array, p: float, *, above: float | None = None) -> Array:
    """log of the p-quantile of Beta(a, b), also where the quantile itself underflows; `above` is 1 − p, if known."""
    y = special.betaincinv(a, b, p) if above is None else special.betainccinv(a, b, above)
    # P(Y < y) = y^a / (a B(a, b)) for small y
    log_small = (math.log(p) + np.log(a) + special.betaln(a, b)) / a
    with np.errstate(divide="ignore"):
        return np.asarray(np.where(y > SMALLEST, np.log(y), np.clip(log_small, -FARTHEST, math.log(SMALLEST))))


def _shapes(arguments: Arguments) -> tuple[Tensor, Tensor]:
    mean, concentration = torch.broadcast_tensors(arguments["mean"], arguments["concentration"])  # type: ignore[no-untyped-call]
    return mean * concentration, (1 - mean) * concentration


CONTINUOUS: dict[str, Any] = {
    "normal": Normal(),
    "lognormal": LogNormal(),
    "student_t": StudentT(),
    "beta": Beta(),
    "exponential": Exponential(),
}
