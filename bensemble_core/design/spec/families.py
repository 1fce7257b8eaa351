"""Distributions of a discrete outcome: log p(y), how many outcomes to enumerate, draws, and which arguments are wrong.

A family is stateless; its arguments come evaluated, by name, as tensors that broadcast against each other and y. A list
argument (logits, probs, cuts) has its entries along a new first axis. Draws invert the distribution function at given
uniforms, so that designs can be compared on common random numbers.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from bensemble_core.design.spec.counting import (
    MANY,
    first_counts,
    negative_binomial_log_prob,
    panels,
    poisson_entropy,
    poisson_log_prob,
)

Arguments: TypeAlias = Mapping[str, Tensor]
Fault: TypeAlias = tuple[str, Tensor, str]  # the argument, where it is wrong, what is expected of it

MAX_COUNT = 4096  # outcomes of one variable that are enumerated
LARGEST = 1e15  # mean of a count: beyond that its neighbours are not told apart in floating point
BETWEEN = (-9.0, -7.0, -5.0, -4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 9.0)  # normal scores
MILLION = 1e6  # a rate beyond which scipy inverts slowly, or gives NaN
LAST_WHOLE = 2.0**53  # beyond, neighbours are the same number in floating point
SLACK = 1e-9  # rounding that a probability may show


class Check(NamedTuple):
    """What an argument has to be: a mask over the points where it is, the entries of a list taken together."""

    holds: Callable[[Tensor], Tensor]
    expected: str


def within(low: float, high: float, expected: str) -> Check:
    return Check(lambda x: (x >= low) & (x <= high), expected)


FINITE = Check(torch.isfinite, "a finite number")
POSITIVE = Check(lambda x: (x > 0) & (x < math.inf), "a number above 0")
FINITE_LIST = Check(lambda x: x.isfinite().all(0), "finite numbers")
PROBABILITY = within(-SLACK, 1 + SLACK, "a probability within [0, 1]")
MEAN_COUNT = Check(lambda x: (x > 0) & (x <= LARGEST), f"a number above 0 and at most {LARGEST:g}")


class Family(ABC):
    """What discrete and continuous families share.

    signatures: the ways in which arguments may be stated
    checks: what each argument has to be
    lists: arguments that are lists of numbers
    fixed: arguments that may not depend on parameters
    support: where outcomes end, if they do
    """

    is_discrete: ClassVar[bool]
    signatures: ClassVar[tuple[tuple[str, ...], ...]] = ()
    checks: ClassVar[Mapping[str, tuple[Check, ...]]] = {}
    lists: ClassVar[tuple[str, ...]] = ()
    fixed: ClassVar[tuple[str, ...]] = ()
    support: ClassVar[tuple[float | None, float | None]] = (None, None)

    def faults(self, arguments: Arguments) -> Iterator[Fault]:
        for name, checks in self.checks.items():
            for check in checks if name in arguments else ():
                yield name, ~check.holds(arguments[name]), check.expected

    @abstractmethod
    def log_prob(self, arguments: Arguments, y: Tensor) -> Tensor: ...

    @abstractmethod
    def quantile(self, arguments: Arguments, u: Tensor) -> Tensor: ...

    @abstractmethod
    def mean(self, arguments: Arguments) -> Tensor: ...

    @abstractmethod
    def admits(self, y: float) -> str | None:
        """What is expected of an outcome, if this is not one."""


class DiscreteFamily(Family):
    """Outcomes 0, 1, … Counts have `place` of a continuous family too, and those without an end `entropy`: many of them
    are integrated over."""

    is_discrete = True
    is_finite: ClassVar[bool] = True  # whether `count` is all there is
    support = (0.0, None)

    @abstractmethod
    def count(self, arguments: Arguments) -> int:
        """Outcomes to enumerate: all, or all but 10⁻¹³ of the mass at every argument."""

    def outcomes(self, arguments: Arguments, n_axes: int = 0) -> Tensor:
        """All outcomes along a new first axis, before at least `n_axes` others: [count, 1, ...]."""
        n_axes = max([n_axes, *(a.ndim - (name in self.lists) for name, a in arguments.items())])
        return torch.arange(self.count(arguments), dtype=torch.float64).reshape(-1, *(1,) * n_axes)

    def quantile(self, arguments: Arguments, u: Tensor) -> Tensor:
        """The first y whose distribution function reaches u."""
        reached = self.log_prob(arguments, self.outcomes(arguments, u.ndim)).exp().cumsum(0)
        return (reached[:-1] < u).sum(0).to(torch.float64)

    def mean(self, arguments: Arguments) -> Tensor:
        y = self.outcomes(arguments)
        return (y * self.log_prob(arguments, y).exp()).sum(0)

    def admits(self, y: float) -> str | None:
        return None if 0 <= y <= LAST_WHOLE and y == int(y) else "a whole number from 0 to 2**53"


def _log_chance(arguments: Arguments, is_success: Tensor) -> Tensor:
    """log P of success or failure, from logit or prob."""
    if "logit" in arguments:
        return logsigmoid(torch.where(is_success, arguments["logit"], -arguments["logit"]))
    p = arguments["prob"].clamp(0, 1)
    return torch.where(is_success, p.log(), torch.log1p(-p))


def _log_pair(arguments: Arguments) -> tuple[Tensor, Tensor]:
    """log P(success), log P(failure)."""
    return _log_chance(arguments, torch.tensor(True)), _log_chance(arguments, torch.tensor(False))


class Bernoulli(DiscreteFamily):
    """P(y = 1) = prob, or sigmoid(logit)."""

    signatures = (("logit",), ("prob",))
    checks: ClassVar = {"logit": (FINITE,), "prob": (PROBABILITY,)}

    def log_prob(self, arguments: Arguments, y: Tensor) -> Tensor:
        return _log_chance(arguments, y > 0.5)

    def count(self, arguments: Arguments) -> int:
        return 2

    def admits(self, y: float) -> str | None:
        return None if y in (0, 1) else "0 or 1"


class Binomial(DiscreteFamily):
    """Successes in n independent trials."""

    signatures = (("n", "logit"), ("n", "prob"))
    fixed = ("n",)
    checks: ClassVar = {
        "n": (
            Check(lambda n: (n >= 1) & (n < MAX_COUNT) & (n == n.round()), f"a whole number from 1 to {MAX_COUNT - 1}"),
        ),
        **Bernoulli.checks,
    }

    def log_prob(self, arguments: Arguments, y: Tensor) -> Tensor:
        n = arguments["n"]
        rest = (n - y).clamp(min=0)
        ways = torch.lgamma(n + 1) - torch.lgamma(y + 1) - torch.lgamma(rest + 1)
        yes, no = (torch.where(k == 0, 0.0, k * p) for k, p in zip((y, rest), _log_pair(arguments), strict=True))
        return torch.where(y <= n, ways + yes + no, -math.inf)

    def place(self, arguments: Arguments, score: float) -> Tensor:
        """About where the count lies at a normal score."""
        n = arguments["n"]
        yes, no = (log_p.exp() for log_p in _log_pair(arguments))
        return n * yes + score * (n * yes * no).sqrt()

    def count(self, arguments: Arguments) -> int:
        return int(arguments["n"].max()) + 1


class Categorical(DiscreteFamily):
    """One of C classes, 0 … C − 1: softmax(logits), or probs that sum to 1."""

    signatures = (("logits",), ("probs",))
    lists = ("logits", "probs")
    checks: ClassVar = {
        "logits": (FINITE_LIST,),
        "probs": (
            Check(lambda p: PROBABILITY.holds(p).all(0), "probabilities within [0, 1]"),
            Check(lambda p: (p.sum(0) - 1).abs() <= 1e-6, "probabilities that sum to 1"),
        ),
    }

    def log_prob(self, arguments: Arguments, y: Tensor) -> Tensor:
        if "logits" in arguments:
            return _pick(torch.log_softmax(arguments["logits"], 0), y)
        probs = arguments["probs"].clamp(min=0)
        return _pick((probs / probs.sum(0)).log(), y)

    def count(self, arguments: Arguments) -> int:
        return len(next(iter(arguments.values())))


class Ordinal(DiscreteFamily):
    """P(y ≤ k) = sigmoid(cuts_k − eta) for ordered classes 0 … len(cuts) (McCullagh 1980)."""

    signatures = (("eta", "cuts"),)
    lists = ("cuts",)
    checks: ClassVar = {
        "eta": (FINITE,),
        "cuts": (FINITE_LIST, Check(lambda cuts: (cuts.diff(dim=0) > 0).all(0), "numbers in increasing order")),
    }

    def log_prob(self, arguments: Arguments, y: Tensor) -> Tensor:
        gaps = _aligned(arguments["cuts"], arguments["eta"].ndim) - arguments["eta"]  # [C − 1, ...]
        first, last = logsigmoid(gaps[:1]), logsigmoid(-gaps[-1:])
        # log(σ(b) − σ(a)) = log σ(b) + log σ(−a) + log(1 − e^(a − b))
        middle = logsigmoid(gaps[1:]) + logsigmoid(-gaps[:-1]) + torch.log(-torch.expm1(gaps[:-1] - gaps[1:]))
        return _pick(torch.cat([first, middle, last]), y)

    def count(self, arguments: Arguments) -> int:
        return len(arguments["cuts"]) + 1


def _aligned(entries: Tensor, n_axes: int) -> Tensor:
    """A list [C, ...] with so many axes behind the first that it broadcasts against what has them."""
    return entries.reshape(len(entries), *(1,) * (n_axes + 1 - entries.ndim), *entries.shape[1:])


def _pick(logs: Tensor, y: Tensor) -> Tensor:
    """Entries of logs [C, ...] at y, which broadcasts against [...]; −inf where there is no such class."""
    n = len(logs)
    shape = torch.broadcast_shapes(y.shape, logs.shape[1:])  # type: ignore[no-untyped-call]
    index = y.expand(shape).to(torch.int64)
    found = _aligned(logs, len(shape)).expand(n, *shape).gather(0, index.clamp(0, n - 1).unsqueeze(0)).squeeze(0)
    return torch.where((index >= 0) & (index < n), found, -math.inf)


class Poisson(DiscreteFamily):
    """Counts with the given rate, or exp(log_rate)."""

    is_finite = False
    signatures = (("rate",), ("log_rate",))
    checks: ClassVar = {
        "rate": (MEAN_COUNT,),
        "log_rate": (within(-700, math.log(LARGEST), f"a number from -700 to {math.log(LARGEST):.4g}"),),
    }

    def log_prob(self, arguments: Arguments, y: Tensor) -> Tensor:
        return poisson_log_prob(arguments["log_rate"] if "log_rate" in arguments else arguments["rate"].log(), y)

    def mean(self, arguments: Arguments) -> Tensor:
        return arguments["rate"] if "rate" in arguments else arguments["log_rate"].exp()

    def entropy(self, arguments: Arguments) -> Tensor:
        """As a series where the rate is large, by summing where it is not."""
        rate = self.mean(arguments)
        series = poisson_entropy(rate.clamp(min=MANY))
        if not bool((rate < MANY).any()):
            return series
        small = {"rate": rate.clamp(max=MANY)}
        return torch.where(rate < MANY, summed_entropy(self.log_prob(small, self.outcomes(small))), series)

    def place(self, arguments: Arguments, score: float) -> Tensor:
        return _place(self.mean(arguments), score)

    def quantile(self, arguments: Arguments, u: Tensor) -> Tensor:
        from scipy import stats  # half a second to import, and rarely needed

        rate, z = self.mean(arguments), torch.special.ndtri(u)
        few = torch.as_tensor(stats.poisson.ppf(u.numpy(), rate.clamp(max=MILLION).numpy())).clamp(min=0)
        many = (rate + z * rate.sqrt() + (z.square() - 1) / 6).round()  # Cornish & Fisher (1938)
        return torch.where(rate > MILLION, many, few)

    def count(self, arguments: Arguments) -> int:
        rate = float(self.mean(arguments).max())
        return _reach(rate, math.sqrt(rate), 1.0)


class NegativeBinomial(DiscreteFamily):
    """Counts with mean m and variance m + dispersion · m²; dispersion → 0 is Poisson."""

    is_finite = False
    signatures = (("mean", "dispersion"),)
    checks: ClassVar = {"mean": (MEAN_COUNT,), "dispersion": (POSITIVE,)}

    def log_prob(self, arguments: Arguments, y: Tensor) -> Tensor:
        return negative_binomial_log_prob(arguments["mean"], 1 / arguments["dispersion"], y)

    def mean(self, arguments: Arguments) -> Tensor:
        return arguments["mean"]

    def entropy(self, arguments: Arguments) -> Tensor:
        """Few counts summed, many integrated over in log y, wherever they lie."""
        places = torch.stack([self.place(arguments, score) for score in BETWEEN])
        log_y, share = panels(places.clamp(min=MANY).log())
        found = summed_entropy(self.log_prob(arguments, log_y.exp()), share * log_y.exp())
        is_few = places[0] <= MANY
        if not bool(is_few.any()):
            return found
        first, weights = (t.reshape(-1, *(1,) * is_few.ndim) for t in first_counts())
        # where all lie beyond MANY, nothing is left for the rule that joins sum and integral
        return found + torch.where(is_few, summed_entropy(self.log_prob(arguments, first), weights), 0.0)

    def place(self, arguments: Arguments, score: float) -> Tensor:
        """Poisson's, of a rate from the gamma distribution that mixes them."""
        from scipy import special  # slow to import, and rarely needed

        size, tail = (1 / arguments["dispersion"]).numpy(), float(special.ndtr(-abs(score)))
        invert = special.gammaincinv if score < 0 else special.gammainccinv
        return _place(arguments["mean"] * torch.as_tensor(invert(size, tail) / size), score)

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


def summed_entropy(log_p: Tensor, weights: Tensor | float = 1.0) -> Tensor:
    """−Σ ω p log p over the first axis, where p = 0 gives 0."""
    return -(log_p.exp() * log_p.clamp(min=-1e4) * weights).sum(0)


def _reach(mean: float, sd: float, length: float) -> int:
    """Outcomes up to where less than 10⁻¹³ is left; more than MAX_COUNT of them are not worth enumerating."""
    far = mean + 10 * sd + 30 * length
    return int(far) + 1 if far < MAX_COUNT - 1 else MAX_COUNT + 1


class Table(DiscreteFamily):
    """p[design, point, outcome] as data; arguments are the numbers of design and point."""

    def __init__(self, log_probs: Tensor) -> None:
        self._log_probs = log_probs  # [J, V, Y]

    def log_prob(self, arguments: Arguments, y: Tensor) -> Tensor:
        design, point = arguments["design"].to(torch.int64), arguments["point"].to(torch.int64)
        return self._log_probs[design, point, y.to(torch.int64)]

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
