"""Learning curves of strategies, compared with random rows seed by seed: areas, labels saved, which one to take.

Every interval is at 95 %, mean ± t · se with Student's t on the number of seeds less one: over a handful of seeds a
bootstrap would be too narrow.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

DEFAULT, RANDOM = "default", "random"
NEAR_ALL = 0.95  # of the way from no labels to all of them
ROUNDING = 1e-9  # of sums of a few float64
FEW_SEEDS = 5  # below this an interval by Student's t may be narrow by accident
Floats: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """What was measured with n labels: accuracy, nll, ece, brier, or rmse, nll, crps."""

    n: int
    metrics: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class BacktestRun:
    """One strategy played with one seed, as far as it has come."""

    strategy: str
    seed: int
    points: tuple[CurvePoint, ...]  # one a round
    rows: tuple[int, ...] = ()  # labelled so far, those of the next round included; none once the run has ended
    notes: tuple[str, ...] = ()  # of the first ranking by an ensemble
    seconds: float | None = field(default=None, compare=False)


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean over seeds, its standard error and its 95 % interval; NaN where one seed says nothing of the spread."""

    mean: float
    se: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class LabelsSaved:
    """How many labels fewer than random rows a strategy took to a goal; negative: it took more."""

    goal: float  # of the metric, mean over the seeds compared
    of_random: float  # labels that random rows took
    labels: Estimate  # saved
    share: float  # of those that random rows took
    n_seeds: int  # in which random rows arrived: those that are compared
    n_arrived: int  # of these, in which the strategy arrived; where fewer, `labels` is an upper limit


@dataclass(frozen=True, kw_only=True)
class StrategyCurve:
    """A strategy over all seeds."""

    strategy: str
    n: tuple[int, ...]  # labels, a round after another
    mean: Mapping[str, tuple[float, ...]]  # of each metric, by round
    se: Mapping[str, tuple[float, ...]]
    area: Estimate  # the metric's mean over all rounds
    gain: Estimate  # in area over random rows, paired by seed; positive is better, for RMSE too
    saved: LabelsSaved | None  # to what random rows reach in the end; None of random rows themselves
    saved_near_all: LabelsSaved | None  # to 95 % of what all labels give; None where random rows do not arrive


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The strategy to take, and why, in a sentence."""

    strategy: str
    reason: str


def estimate(values: Sequence[float] | Floats) -> Estimate:
    """Mean, standard error and the 95 % interval by Student's t of independent values."""
    found = np.asarray(values, dtype=np.float64)
    mean = float(found.mean())
    if len(found) < 2:
        return Estimate(mean=mean, se=math.nan, low=math.nan, high=math.nan)
    se = _se(found)
    reach = float(stdtrit(len(found) - 1, 0.975)) * se
    return Estimate(mean=mean, se=se, low=mean - reach, high=mean + reach)


def labels_to(n: Sequence[int], values: Sequence[float] | Floats, goal: float) -> float:
    """Labels at which a curve first has the goal, by a straight line between rounds; infinite where it never has."""
    if values[0] >= goal:
        return float(n[0])
    for i in range(1, len(n)):
        if values[i] >= goal:
            share = (goal - values[i - 1]) / (values[i] - values[i - 1])
            return float(n[i - 1] + share * (n[i] - n[i - 1]))
    return math.inf


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """Runs of several strategies, `random` among them, all with the same seeds and rounds."""

    metric: str  # accuracy or rmse
    n: tuple[int, ...]
    runs: Mapping[str, Sequence[BacktestRun]]  # by strategy, in the order of the seeds
    limits: Sequence[tuple[float, float]] | None = None  # the metric without labels and with all of them, by seed
    smallest: float = 0.0  # difference of areas that counts; below it two strategies are equally good

    def curves(self) -> tuple[StrategyCurve, ...]:
        return tuple(self._curve(name) for name in self.runs)

    def choice(self) -> Choice:
        """The highest mean area whose advantage over the default counts and is above one standard error, and that
        random rows are not clearly above; else the default, if it is not so far below random rows; else those."""
        areas = {name: self._values(name).mean(1) for name in self.runs}
        over_random = {name: areas[name] - areas[RANDOM] for name in areas}
        of_what = f"({'RMSE' if self.metric == 'rmse' else self.metric}, mean over all rounds ± standard error)"
        for name in sorted(areas, key=lambda name: -areas[name].mean()):
            ahead = areas[name] - areas[DEFAULT]
            if name != DEFAULT and self._is_above(ahead) and not self._is_above(-over_random[name]):
                beside = "" if name == RANDOM else f", and {self._told(over_random[name], 'random rows')}"
                told = f"{self._told(ahead, 'the default')}{beside} {of_what}"
                doubt = self._doubt(ahead, over_random[name] if beside else ahead)
                return Choice(strategy=name, reason=f"The strategy {name} was {told}.{doubt}")
        behind = over_random[DEFAULT]
        told = f"the default was {self._told(behind, 'random rows')} {of_what}.{self._doubt(behind)}"
        if self._is_above(-behind):
            return Choice(strategy=RANDOM, reason=f"No strategy was clearly better than random rows; {told}")
        return Choice(strategy=DEFAULT, reason=f"No strategy was clearly better than the default; {told}")

    def _is_above(self, ahead: Floats) -> bool:
        """By what counts, and by more than one standard error."""
        return bool(self._counts(ahead) and ahead.mean() > _se(ahead))

    def _counts(self, ahead: Floats) -> bool:
        """Whether areas differ by at least what counts, but for rounding."""
        return bool(abs(ahead.mean()) > self.smallest * (1 - ROUNDING))

    def _told(self, ahead: Floats, than: str) -> str:
        """By how much areas differ, as a part of a sentence."""
        if not self._counts(ahead):
            return f"as good as {than}"
        better, by = "better" if ahead.mean() > 0 else "worse", abs(ahead.mean())
        spread = f"± {_se(ahead):.2g}" if _se(ahead) > ROUNDING * by else "with every seed"
        return f"{better} than {than} by {by:.3g} {spread}"

    def _doubt(self, *found: Floats) -> str:
        """Said of few seeds, whatever they show, and where the 95 % interval of a difference that is told has 0 in it:
        one standard error is not much."""
        n_seeds = len(found[0])
        intervals = [estimate(ahead) for ahead in found if self._counts(ahead)]
        if n_seeds >= FEW_SEEDS and not any(each.low <= 0 <= each.high for each in intervals):
            return ""
        return f" Over {n_seeds} seeds this may still be chance; more seeds would tell."

    def _curve(self, name: str) -> StrategyCurve:
        metrics = self.runs[name][0].points[0].metrics
        found = {each: self._measured(name, each) for each in metrics}
        own, random = self._values(name), self._values(RANDOM)
        is_random = name == RANDOM
        return StrategyCurve(
            strategy=name,
            n=self.n,
            mean={each: tuple(values.mean(0).tolist()) for each, values in found.items()},
            se={each: tuple(_se(column) for column in values.T) for each, values in found.items()},
            area=estimate(found[self.metric].mean(1)),
            gain=estimate(own.mean(1) - random.mean(1)),
            saved=None if is_random else self._saved(own, random, random[:, -1]),
            saved_near_all=None if is_random else self._saved_near_all(own, random),
        )

    def _saved_near_all(self, own: Floats, random: Floats) -> LabelsSaved | None:
        if self.limits is None:
            return None
        none, whole = self._sign * np.asarray(self.limits, dtype=np.float64).T
        return self._saved(own, random, none + NEAR_ALL * (whole - none))

    def _saved(self, own: Floats, random: Floats, goals: Floats) -> LabelsSaved | None:
        """The seeds in which random rows arrive are compared. Where a strategy does not, it counts as if it had with
        its last label: what it saved is then at most this much, and there is no lower end."""
        by_random = np.array([labels_to(self.n, values, goal) for values, goal in zip(random, goals, strict=True)])
        by_own = np.array([labels_to(self.n, values, goal) for values, goal in zip(own, goals, strict=True)])
        kept = np.isfinite(by_random)
        if not kept.any():
            return None
        arrived = np.isfinite(by_own[kept])
        saved = estimate(by_random[kept] - np.minimum(by_own[kept], self.n[-1]))
        if not arrived.all():
            saved = Estimate(mean=saved.mean, se=saved.se, low=-math.inf, high=saved.high)
        of_random = float(by_random[kept].mean())
        return LabelsSaved(
            goal=self._sign * float(goals[kept].mean()),
            of_random=of_random,
            labels=saved,
            share=saved.mean / of_random,
            n_seeds=int(kept.sum()),
            n_arrived=int(arrived.sum()),
        )

    @property
    def _sign(self) -> float:
        return -1.0 if self.metric == "rmse" else 1.0

    def _measured(self, name: str, metric: str) -> Floats:
        """[seeds, rounds]"""
        return np.array([[point.metrics[metric] for point in run.points] for run in self.runs[name]])

    def _values(self, name: str) -> Floats:
        """The metric, the sign changed where lower is better: [seeds, rounds]."""
        return self._sign * self._measured(name, self.metric)


def _se(values: Floats) -> float:
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan
