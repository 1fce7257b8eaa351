"""Distributions of a discrete outcome: log p(y), how many outcomes to enumerate, draws, and which arguments are wrong.

A family is stateless; its arguments come evaluated, by name, as tensors that broadcast against each other and y. A list
argument (logits, probs, cuts) has its entries along a new first axis. Draws invert the distribution function at given
uniforms, so that designs can be compared on common random numbers.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Protocol, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from bensemble_core.design.spec.counting import (
    MANY,
    by_size,
    first_counts,
    negative_binomial_log_prob,
    panels,
    poisson_entropy,
    poisson_log_prob,
)

Arguments: TypeAlias = Mapping[str, Tensor]
Fault: TypeAlias = tuple[str, Tensor, str]  # the argument, where it is wrong, what is expected of it

NEAR_POISSON = 1e4  # a size (1 / dispersion) beyond which the third term of Stirling's series is below 1e-14
MAX_COUNT = 4096  # outcomes of one variable that are enumerated
LARGEST = 1e15  # mean of a count: beyond that its neighbours are not told apart in floating point
BETWEEN = (-9.0, -7.0, -5.0, -4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 9.0)  # normal scores
LAST_WHOLE = 2.0**53  # beyond, neighbours are the same number in floating point
SLACK = 1e-9  # rounding that a probability may show


class Family(Protocol):
    """What discrete and continuous families share. `signatures` are the ways in which arguments may be stated."""

    is_discrete: ClassVar[bool]
    signatures: ClassVar[tuple[tuple[str, ...], ...]]
    lists: ClassVar[tuple[str, ...]]
    fixed: ClassVar[tuple[str, ...]]  # arguments that may not depend on parameters
    support: ClassVar[tuple[float | None, float | None]]  # where outcomes end, if they do

    def faults(self, arguments: Arguments) -> Iterator[Fault]:
        """Masks over the points, the entries of a list taken together."""
        ...

    def log_prob(self, arguments: Arguments, y: Tensor) -> Tensor: ...
    def quantile(self, arguments: Arguments, u: Tensor) -> Tensor: ...
    def mean(self, arguments: Arguments) -> Tensor: ...
    def admits(self, y: float) -> str | None:
        """What is expected of an outcome, if this is not one."""
        ...


class DiscreteFamily(Family, Protocol):
    """Counts have `place` of a continuous family too, and those that are not finite `entropy`: many of them are
    integrated over."""

    is_finite: ClassVar[bool]  # whether `count` is all there is

    def count(self, arguments: Arguments) -> int:
        """Outcomes 0, 1, … to enumerate: all, or all but 10⁻¹³ of the mass at every argument."""
        ...


class _Plain:
    is_discrete: ClassVar[bool] = True
    is_finite: ClassVar[bool] = True
    lists: ClassVar[tuple[str, ...]] = ()
    fixed: ClassVar[tuple[str, ...]] = ()
    support: ClassVar[tuple[float | None, float | None]] = (0.0, None)

    def mean(self: Any, arguments: Arguments) -> Tensor:
        n = self.count(arguments)
        one = self.log_prob(arguments, torch.zeros((), dtype=torch.float64))
        y = torch.arange(n, dtype=torch.float64).reshape(n, *(1,) * one.ndim)
        total: Tensor = (y * self.log_prob(arguments, y).exp()).sum(0)
        return total

    def admits(self, y: float) -> str | None:
        return None if 0 <= y <= LAST_WHOLE and y == int(y) else "a whole number from 0 to 2**53"


def outside(x: Tensor, low: float, high: float) -> Tensor:
    """Where x is not within [low, high]; NaN is not."""
    return ~((x >= low) & (x <= high))


def not_a_mean(x: Tensor) -> Tensor:
    """Where x is no mean of a count."""
    return ~((x > 0) & (x <= LARGEST))


def not_positive(x: Tensor) -> Tensor:
    return ~((x > 0) & (x < math.inf))


def _log_pair(arguments: Arguments) -> tuple[Tensor, Tensor]:
    """log P(success), log P(failure) from logit or prob."""
    return _log_chance(arguments, is_success=True), _log_chance(arguments, is_success=False)


def _log_chance(arguments: Arguments, *, is_success: bool) -> Tensor:
    if "logit" in arguments:
        return logsigmoid(arguments["logit"] if is_success else -arguments["logit"])
    p = arguments["prob"].clamp(0, 1)
    return p.log() if is_success else torch.log1p(-p)


def _times(count: Tensor, log_p: Tensor) -> Tensor:
    """count · log p with 0 · −inf = 0, in value and gradient."""
    idle = count == 0
    return torch.where(idle, torch.zeros_like(log_p), count * torch.where(idle, torch.zeros_like(log_p), log_p))


def _pair_faults(arguments: Arguments) -> Iterator[Fault]:
    if "logit" in arguments:
        yield "logit", ~arguments["logit"].isfinite(), "a finite number"
    else:
        yield "prob", outside(arguments["prob"], -SLACK, 1 + SLACK), "a probability within [0, 1]"


def _invert(family: DiscreteFamily, arguments: Arguments, u: Tensor) -> Tensor:
    """The first y whose distribution function reaches u."""
    n = family.count(arguments)
    shapes = [a.shape[1:] if name in family.lists else a.shape for name, a in arguments.items()]
    shape = torch.broadcast_shapes(u.shape, *shapes)  # type: ignore[no-untyped-call]
    y = torch.arange(n, dtype=torch.float64).reshape(n, *(1,) * len(shape))
    below = family.log_prob(arguments, y).exp().cumsum(0).expand(n, *shape)
    return (below[:-1] < u).sum(0).to(torch.float64)


class Bernoulli(_Plain):
    """P(y = 1) = prob, or sigmoid(logit)."""

    signatures: ClassVar[tuple[tuple[str, ...], ...]] = (("logit",), ("prob",))

    def faults(self, arguments: Arguments) -> Iterator[Fault]:
        yield from _pair_faults(arguments)

    def log_prob(self, arguments: Arguments, y: Tensor) -> Tensor:
        if y.ndim == 0:  # one outcome, that of an observation
            return _log_chance(arguments, is_success=bool(y > 0.5))
        yes, no = _log_pair(arguments)
        return torch.where(y > 0.5, yes, no)

    def quantile(self, arguments: Arguments, u: Tensor) -> Tensor:
        return (u > _log_pair(arguments)[1].exp()).to(torch.float64)

    def count(self, arguments: Arguments) -> int:
        return 2

    def admits(self, y: float) -> str | None:
        return None if y in (0, 1) else "0 or 1"


class Binomial(_Plain):
    """Successes in n independent trials."""

    signatures: ClassVar[tuple[tuple[str, ...], ...]] = (("n", "logit"), ("n", "prob"))
    fixed: ClassVar[tuple[str, ...]] = ("n",)

    def faults(self, arguments: Arguments) -> Iterator[Fault]:
        n = arguments["n"]
        yield "n", outside(n, 1, MAX_COUNT - 1) | (n != n.round()), f"a whole number from 1 to {MAX_COUNT - 1}"
        yield from _pair_faults(arguments)

    def log_prob(self, arguments: Arguments, y: Tensor) -> Tensor:
        n = arguments["n"]
        yes, no = _log_pair(arguments)
        rest = (n - y).clamp(min=0)
        ways = torch.lgamma(n + 1) - torch.lgamma(y + 1) - torch.lgamma(rest + 1)
        value = ways + _times(y, yes) + _times(rest, no)
        return torch.where(y <= n, value, -math.inf)

    def quantile(self, arguments: Arguments, u: Tensor) -> Tensor:
        return _invert(self, arguments, u)

    def place(self, arguments: Arguments, score: float) -> Tensor:
        """About where the count lies at a normal score."""
        n = arguments["n"]
        yes, no = (log_p.exp() for log_p in _log_pair(arguments))
        return n * yes + score * (n * yes * no).sqrt()

    def count(self, arguments: Arguments) -> int:
        return int(arguments["n"].max()) + 1


class Categorical(_Plain):
    """One of C classes, 0 … C − 1: softmax(logits), or probs that sum to 1."""

    signatures: ClassVar[tuple[tuple[str, ...], ...]] = (("logits",), ("probs",))
    lists: ClassVar[tuple[str, ...]] = ("logits", "probs")

    def faults(self, arguments: Arguments) -> Iterator[Fault]:
        if "logits" in arguments:
            yield "logits", (~arguments["logits"].isfinite()).any(0), "finite numbers"
        else:
            probs = arguments["probs"]
            yield "probs", outside(probs, -SLACK, 1 + SLACK).any(0), "probabilities within [0, 1]"
            yield "probs", (probs.sum(0) - 1).abs() > 1e-6, "probabilities that sum to 1"

    def log_probs(self, arguments: Arguments) -> Tensor:
        if "logits" in arguments:
            return torch.log_softmax(arguments["logits"], 0)
        probs = arguments["probs"].clamp(min=0)
        return (probs / probs.sum(0)).log()

    def log_prob(self, arguments: Arguments, y: Tensor) -> Tensor:
        return _pick(self.log_probs(arguments), y)

    def quantile(self, arguments: Arguments, u: Tensor) -> Tensor:
        return _invert(self, arguments, u)

    def count(self, arguments: Arguments) -> int:
        return int(next(iter(arguments.values())).shape[0])


class Ordinal(_Plain):
    """P(y ≤ k) = sigmoid(cuts_k − eta) for ordered classes 0 … len(cuts) (McCullagh 1980)."""

    signatures: ClassVar[tuple[tuple[str, ...], ...]] = (("eta", "cuts"),)
    lists: ClassVar[tuple[str, ...]] = ("cuts",)

    def faults(self, arguments: Arguments) -> Iterator[Fault]:
        yield "eta", ~arguments["eta"].isfinite(), "a finite number"
        yield "cuts", (~arguments["cuts"].isfinite()).any(0), "finite numbers"
        yield "cuts", (~(arguments["cuts"].diff(dim=0) > 0)).any(0), "numbers in increasing order"

    def log_prob(self, arguments: Arguments, y: Tensor) -> Tensor:
        gaps = self._gaps(arguments)
        first, last = logsigmoid(gaps[:1]), logsigmoid(-gaps[-1:])
        # log(σ(b) − σ(a)) = log σ(b) + log σ(−a) + log(1 − e^(a − b))
        middle = logsigmoid(gaps[1:]) + logsigmoid(-gaps[:-1]) + torch.log(-torch.expm1(gaps[:-1] - gaps[1:]))
        return _pick(torch.cat([first, middle, last]), y)

    def quantile(self, arguments: Arguments, u: Tensor) -> Tensor:
        return (torch.sigmoid(_aligned(self._gaps(arguments), u.ndim)) < u).sum(0).to(torch.float64)

    def _gaps(self, arguments: Arguments) -> Tensor:
        """cuts − eta: [C − 1, ...]"""
        return _aligned(arguments["cuts"], arguments["eta"].ndim) - arguments["eta"]

    def count(self, arguments: Arguments) -> int:
        return int(arguments["cuts"].shape[0]) + 1


def _aligned(entries: Tensor, n_axes: int) -> Tensor:
    """A list [C, ...] with so many axes behind the first that it broadcasts against what has them."""
    while entries.ndim - 1 < n_axes:
        entries = entries.unsqueeze(1)
    return entries


def _pick(logs: Tensor, y: Tensor) -> Tensor:
    """Entries of logs [C, ...] at y, which broadcasts against [...]; −inf where there is no such class."""
    n = logs.shape[0]
    shape = torch.broadcast_shapes(y.shape, logs.shape[1:])  # type: ignore[no-untyped-call]
    index = y.expand(shape).to(torch.int64)
    found = _aligned(logs, len(shape)).expand(n, *shape).gather(0, index.clamp(0, n - 1).unsqueeze(0)).squeeze(0)
    return torch.where((index >= 0) & (index < n), found, -math.inf)


class Poisson(_Plain):
    """Counts with the given rate, or exp(log_rate)."""

    is_finite: ClassVar[bool] = False
    signatures: ClassVar[tuple[tuple[str, ...], ...]] = (("rate",), ("log_rate",))

    def faults(self, arguments: Arguments) -> Iterator[Fault]:
        if "rate" in arguments:
            yield "rate", not_a_mean(arguments["rate"]), f"a number above 0 and at most {LARGEST:g}"
        else:
            log_rate, most = arguments["log_rate"], math.log(LARGEST)
            yield "log_rate", outside(log_rate, -700, most), f"a number from -700 to {most:.4g}"

    def log_prob(self, arguments: Arguments, y: Tensor) -> Tensor:
        log_rate = arguments["log_rate"] if "log_rate" in arguments else arguments["rate"].log()
        rate = log_rate.exp()
        return by_size(
            y,
            lambda few: few * log_rate - rate - torch.lgamma(few + 1),
            lambda many: poisson_log_prob(rate, log_rate, many),
        )

    def entropy(self, arguments: Arguments) -> Tensor:
        """As a series where the rate is large, by summing where it is not."""
        rate = arguments["rate"] if "rate" in arguments else arguments["log_rate"].exp()
        series = poisson_entropy(rate.clamp(min=MANY))
        if not bool((rate < MANY).any()):
            return series
        small = {"rate": rate.clamp(max=MANY)}
        y = torch.arange(self.count(small), dtype=torch.float64).reshape(-1, *(1,) * rate.ndim)
        return torch.where(rate < MANY, summed_entropy(self.log_prob(small, y)), series)

    def mean(self, arguments: Arguments) -> Tensor:
        return arguments["rate"] if "rate" in arguments else arguments["log_rate"].exp()

    def place(self, arguments: Arguments, score: float) -> Tensor:
        return _place(arguments["rate"] if "rate" in arguments else arguments["log_rate"].exp(), score)

    def quantile(self, arguments: Arguments, u: Tensor) -> Tensor:
        from scipy import stats  # half a second to import, and rarely needed

        rate = arguments["rate"] if "rate" in arguments else arguments["log_rate"].exp()
        return torch.as_tensor(stats.poisson.ppf(u.numpy(), rate.numpy())).clamp(min=0)

    def count(self, arguments: Arguments) -> int:
        rate = float((arguments["rate"] if "rate" in arguments else arguments["log_rate"].exp()).detach().max())
        return _reach(rate, math.sqrt(rate), 1.0)


class NegativeBinomial(_Plain):
    """Counts with mean m and variance m + dispersion · m²; dispersion → 0 is Poisson."""

    is_finite: ClassVar[bool] = False
    signatures: ClassVar[tuple[tuple[str, ...], ...]] = (("mean", "dispersion"),)

    def faults(self, arguments: Arguments) -> Iterator[Fault]:
        yield "mean", not_a_mean(arguments["mean"]), f"a number above 0 and at most {LARGEST:g}"
        yield "dispersion", not_positive(arguments["dispersion"]), "a number above 0"

    def log_prob(self, arguments: Arguments, y: Tensor) -> Tensor:
        mean, size = arguments["mean"], 1 / arguments["dispersion"]

        def few(y: Tensor) -> Tensor:
            log_ways = torch.lgamma(y + size) - torch.lgamma(size) - torch.lgamma(y + 1)
            plain = log_ways - size * torch.log1p(mean / size) - y * torch.log1p(size / mean)
            return torch.where(size > NEAR_POISSON, _near_poisson(mean, size, y), plain)

        return by_size(y, few, lambda many: negative_binomial_log_prob(mean, size, many))

    def entropy(self, arguments: Arguments) -> Tensor:
        """Few counts summed, many integrated over in log y, wherever they lie."""
        mean, dispersion = torch.broadcast_tensors(arguments["mean"], arguments["dispersion"])  # type: ignore[no-untyped-call]
        stated = {"mean": mean, "dispersion": dispersion}
        with torch.no_grad():
            places = torch.stack([self.place(stated, score) for score in BETWEEN])
            log_y, share = panels(places.clamp(min=MANY).log())
        log_p = self.log_prob(stated, log_y.exp())
        found = summed_entropy(log_p, share * log_y.exp())
        if bool((places[0] <= MANY).any()):
            first, weights = (t.reshape(-1, *(1,) * mean.ndim) for t in first_counts())
            # where all lie beyond MANY, nothing is left for the rule that joins sum and integral
            found = found + torch.where(places[0] <= MANY, summed_entropy(self.log_prob(stated, first), weights), 0.0)
        return found

    def mean(self, arguments: Arguments) -> Tensor:
        return arguments["mean"]

    def place(self, arguments: Arguments, score: float) -> Tensor:
        """Poisson's, of a rate from the gamma distribution that mixes them."""
        from scipy import special  # slow to import, and rarely needed

        size, tail = (1 / arguments["dispersion"]).detach().numpy(), float(special.ndtr(-abs(score)))
        invert = special.gammaincinv if score < 0 else special.gammainccinv
        rate = arguments["mean"] / torch.as_tensor(size) * torch.as_tensor(invert(size, tail))
        return _place(rate, score)

    def quantile(self, arguments: Arguments, u: Tensor) -> Tensor:
        from scipy import stats  # half a second to import, and rarely needed

        mean, size = arguments["mean"].numpy(), 1 / arguments["dispersion"].numpy()
        return torch.as_tensor(stats.nbinom.ppf(u.numpy(), size, size / (size + mean))).clamp(min=0)

    def count(self, arguments: Arguments) -> int:
        mean, dispersion = torch.broadcast_tensors(arguments["mean"], arguments["dispersion"])  # type: ignore[no-untyped-call]
        sd = (mean + dispersion * mean.square()).sqrt()
        # the tail falls by mean / (mean + size) a step: as an exponential of this length
        length = 1 + dispersion * mean
        worst = int((mean + 10 * sd + 30 * length).argmax())
        return _reach(*(float(t.flatten()[worst]) for t in (mean, sd, length)))


def _place(rate: Tensor, score: float) -> Tensor:
    """About where a count lies at a normal score; its square root is as good as normal: √y ≈ √rate + score / 2."""
    return (rate.sqrt() + 0.5 * score).clamp(min=0).square()


def summed_entropy(log_p: Tensor, weights: Tensor | None = None) -> Tensor:
    """−Σ ω p log p over the first axis; p = 0 gives 0, in value and gradient."""
    terms = -log_p.exp() * log_p.clamp(min=-1e4)
    return (terms if weights is None else terms * weights).sum(0)


def _near_poisson(mean: Tensor, size: Tensor, y: Tensor) -> Tensor:
    """The same where size is so large that its lgammas would cancel each other: by Stirling's series, in which what
    cancels is gone."""
    rise = (size + y - 0.5) * torch.log1p(y / size) - y + (1 / (size + y) - 1 / size) / 12  # lΓ(y+r) − lΓ(r) − y log r
    return rise - (size + y) * torch.log1p(mean / size) + torch.xlogy(y, mean) - torch.lgamma(y + 1)


def _reach(mean: float, sd: float, length: float) -> int:
    """Outcomes up to where less than 10⁻¹³ is left; more than MAX_COUNT of them are not worth enumerating."""
    far = mean + 10 * sd + 30 * length
    return int(far) + 1 if far < MAX_COUNT - 1 else MAX_COUNT + 1


class Table(_Plain):
    """p[design, point, outcome] as data; arguments are the numbers of design and point."""

    signatures: ClassVar[tuple[tuple[str, ...], ...]] = ()

    def __init__(self, log_probs: Tensor) -> None:
        self._log_probs = log_probs  # [J, V, Y]

    def faults(self, arguments: Arguments) -> Iterator[Fault]:
        return iter(())

    def log_prob(self, arguments: Arguments, y: Tensor) -> Tensor:
        design, point = arguments["design"].to(torch.int64), arguments["point"].to(torch.int64)
        return self._log_probs[design, point, y.to(torch.int64)]

    def quantile(self, arguments: Arguments, u: Tensor) -> Tensor:
        return _invert(self, arguments, u)

    def count(self, arguments: Arguments) -> int:
        return int(self._log_probs.shape[2])


DISCRETE: dict[str, Any] = {
    "bernoulli": Bernoulli(),
    "binomial": Binomial(),
    "categorical": Categorical(),
    "ordinal": Ordinal(),
    "poisson": Poisson(),
    "negative_binomial": NegativeBinomial(),
}
