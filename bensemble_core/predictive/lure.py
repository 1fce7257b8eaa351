"""How good an ensemble is on a whole pool, from rows that were not picked evenly but with known probabilities.

Rows that a score picked are harder (or easier) than the others, so their mean loss is not the pool's. Where it is known
how probable each pick was, weights undo that: the levelled unbiased risk estimator, LURE (Farquhar, Gal & Rainforth
2021). `lure` is for one sequence of picks, `lure_rounds` for several rankings of one or more pools.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from scipy import special

from bensemble_core.errors import InvalidData, InvalidOption
from bensemble_core.predictive.predictive import Values

Doubles: TypeAlias = npt.NDArray[np.float64]
Range: TypeAlias = Literal["any", "positive", "share"]
_RANGES = ("any", "positive", "share")
_PRIOR_ROWS = 2.0  # for how many errors the design effect of the weights counts, in the interval of a share
_ROUNDING = 1e-9
_MORE_DEGREES = 4.0  # of freedom, of that interval: the rows above make it wider already


@dataclass(frozen=True, kw_only=True, eq=False)
class Draws:
    """One ranking's picks, in their order, from the rows of a pool that were left then.

    A loss of NaN says that the row has none: it was skipped, or is not of the population.
    """

    losses: Values  # [M]
    probabilities: Values  # [M] of each pick given the earlier ones
    n_rows: int  # that could be picked first
    known: Values = field(default_factory=lambda: np.zeros(0))  # [K] losses of rows of the population it could not pick


@dataclass(frozen=True, kw_only=True)
class MeanEstimate:
    """A mean loss with its error; the interval is not symmetric where losses have a bound."""

    value: float
    standard_error: float  # NaN of one pick
    low: float
    high: float
    n: int  # picks that have a loss
    population: int  # rows whose mean it is


def lure(
    losses: Values, probabilities: Values, n_pool: int, *, within: Range = "any", level: float = 0.95
) -> MeanEstimate:
    """The mean loss of all n_pool rows from M of them, picked one after another with known probabilities.

    (1/M) Σ_m v_m L_m,  v_m = 1 + (N − M)/(N − m) · (1/((N − m + 1) q_m) − 1)   (Farquhar et al. 2021)

    losses [M], probabilities q [M] of each pick given the earlier ones, in the order of the picks. Unbiased if every
    row that was left could be picked each time; the plain mean if all were as likely. `within` says where losses lie:
    anywhere, "positive" (from 0) or "share" (from 0 to 1), and the interval stays there.
    """
    return lure_rounds([[Draws(losses=losses, probabilities=probabilities, n_rows=n_pool)]], within=within, level=level)


def lure_rounds(pools: Sequence[Sequence[Draws]], *, within: Range = "any", level: float = 0.95) -> MeanEstimate:
    """LURE over several rankings, oldest first, of each of several pools.

    What is estimated: the mean loss of the rows that could be picked when the first ranking of each pool was made, N of
    them. LURE is a weighted mean of one estimate a pick, each unbiased given what came before,

        g_m = known + L_1 + … + L_{m−1} + L_m / q_m,   weights ∝ 1/(n_m (n_m − 1)),

    of the population's summed loss, with n_m rows left to pick from. A later ranking goes on with its own `known`: the
    losses of all rows of the population that it could not pick, whoever labelled them. So rows may leave between
    rankings without a known probability, and with none leaving it is the LURE of one long sequence.

    Rows without a loss (NaN) stay in the sequence. The estimate is then of the rows that have one: the ratio of the
    summed loss to the number of such rows, both by LURE, with a bias of order 1/M. It counts the missing as missing
    wherever they are, and does not assume that they are like the others. Estimates of pools are added as strata.

    Losses have to be fixed before the picks, or nearly so: those of out-of-fold predictions depend on the other picks,
    and are of models with fewer rows, a small bias that no weight removes.

    Standard error: the g_m − Σ are martingale differences, so that the variance is Σ_m w_m² E(g_m − Σ)², estimated by
    Σ_m w_m² (g_m − ĝ)² / (1 − w_m); for a ratio, of the residuals L − mean. Intervals: Student's t with Satterthwaite's
    degrees of freedom, for "positive" losses of the log mean; for a "share" Wilson's, of as many rows as would have
    this error in an even draw. Where few losses of 0 (or of 1) were seen, that number is drawn towards the one that the
    weights alone imply (Kish 1965), so that no error seen does not mean that there is none.
    """
    if within not in _RANGES:
        raise InvalidOption(f"within is one of {', '.join(_RANGES)}, got {within!r}")
    if not 0 < level < 1:
        raise InvalidOption(f"level lies strictly between 0 and 1, got {level}")
    strata = [_Stratum.of([draws for draws in pool if np.size(draws.losses)]) for pool in pools if len(pool)]
    strata = [stratum for stratum in strata if len(stratum.weights)]
    has_loss = np.concatenate([~np.isnan(s.losses) for s in strata]) if strata else np.zeros(0, dtype=bool)
    n, population = int(has_loss.sum()), sum(s.n_rows for s in strata)
    if not n:
        raise InvalidData("no pick has a loss; label rows that a ranking with known probabilities picked")
    total = sum(s.total(np.nan_to_num) for s in strata)
    count = float(population)
    shift = 0.0
    if any(s.has_missing for s in strata):
        count = sum(s.total(lambda losses: (~np.isnan(losses)).astype(np.float64)) for s in strata)
        shift = total / count
    terms = np.concatenate([s.squares(shift) for s in strata]) / count**2
    variance = float(terms.sum())
    mean = total / count
    error = math.sqrt(variance) if math.isfinite(variance) else math.nan
    is_spread = error > _ROUNDING * abs(mean)  # else every pick says the same
    degrees = variance**2 / float((terms**2).sum()) if is_spread else float(n)
    if within == "share":
        weights = np.concatenate([s.relative for s in strata])[has_loss]
        kish = n * float((weights**2).sum()) / float(weights.sum()) ** 2
        left = max(1 - sum(len(s.weights) for s in strata) / population, 0.0)
        losses = np.concatenate([s.losses for s in strata])[has_loss]
        rarer = min(float(losses.sum()), float((1 - losses).sum()))
        bounds = _share(mean, error, n, rarer, kish * left, _quantile(degrees + _MORE_DEGREES, level))
        mean = min(max(mean, 0.0), 1.0)
    else:
        bounds = _bounds(mean, error, _quantile(max(degrees - 1, 1.0), level), positive=within == "positive")
    return MeanEstimate(value=mean, standard_error=error, low=bounds[0], high=bounds[1], n=n, population=population)


def mean_loss(losses: Values, *, within: Range = "any", level: float = 0.95) -> MeanEstimate:
    """The plain mean of losses [N] with the error that it would have as of an even sample of endlessly many rows."""
    values = _doubles(losses, "losses")
    n = len(values)
    if not n:
        raise InvalidData("there are no losses to average")
    mean = float(values.mean())
    error = float(values.std(ddof=1)) / math.sqrt(n) if n > 1 else math.nan
    if within == "share":
        low, high = _wilson(mean, float(n), _quantile(math.inf, level))
    else:
        low, high = _bounds(mean, error, _quantile(max(n - 1.0, 1.0), level), positive=within == "positive")
    return MeanEstimate(value=mean, standard_error=error, low=low, high=high, n=n, population=n)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Stratum:
    """The picks of one pool's rankings, one after another."""

    rankings: list[tuple[Doubles, Doubles, Doubles]]  # losses, probabilities, known losses
    weights: Doubles  # [M] of the estimates g, sum 1
    relative: Doubles  # [M] 1/(n q): how much rarer than by an even draw a pick was
    losses: Doubles  # [M]
    n_rows: int
    has_missing: bool

    @classmethod
    def of(cls, rankings: Sequence[Draws]) -> "_Stratum":
        read = [(_doubles(d.losses, "losses"), _probabilities(d), _doubles(d.known, "known losses")) for d in rankings]
        left = [d.n_rows - np.arange(len(losses)) for d, (losses, _, _) in zip(rankings, read, strict=True)]
        n_left = np.concatenate([np.zeros(0), *left])
        losses = np.concatenate([np.zeros(0), *(losses for losses, _, _ in read)])
        if (n_left == 1).any():  # the last row was picked: nothing is left to estimate
            weights = (n_left == 1).astype(np.float64)
        else:
            weights = 1 / (n_left * (n_left - 1))
        return cls(
            rankings=read,
            weights=weights / weights.sum() if len(weights) else weights,
            relative=1 / (n_left * np.concatenate([np.ones(0), *(q for _, q, _ in read)])),
            losses=losses,
            n_rows=rankings[0].n_rows if rankings else 0,
            has_missing=any(bool(np.isnan(some).any()) for losses, _, known in read for some in (losses, known)),
        )

    def steps(self, value: Any) -> Doubles:
        """Of each pick the estimate g of Σ value(L) over the population: [M]."""
        found = []
        for losses, probabilities, known in self.rankings:
            values = value(losses)
            before = np.cumsum(values) - values
            found.append(value(known).sum() + before + values / probabilities)
        return np.concatenate(found)

    def total(self, value: Any) -> float:
        return float(self.weights @ self.steps(value))

    def squares(self, shift: float) -> Doubles:
        """What each pick adds to the variance of the summed losses, less `shift` a row: [M]."""
        steps = self.steps(lambda losses: np.nan_to_num(losses - shift))
        errors = steps - self.weights @ steps
        if len(errors) == 1 and self.n_rows > 1:
            return np.array([math.nan])
        with np.errstate(invalid="ignore"):
            return np.where(self.weights == 1, 0.0, (self.weights * errors) ** 2 / (1 - self.weights))


def _doubles(values: Any, what: str) -> Doubles:
    found = torch.as_tensor(values).detach().double().flatten().cpu().numpy() if np.size(values) else np.zeros(0)
    if np.isinf(found).any():
        raise InvalidData(
            f"{what} have to be finite, or NaN where there is none; entry {np.isinf(found).argmax()} is not"
        )
    return np.asarray(found, dtype=np.float64)


def _probabilities(draws: Draws) -> Doubles:
    found = _doubles(draws.probabilities, "probabilities")
    n = int(np.size(draws.losses))
    if len(found) != n:
        raise InvalidData(f"expected a probability for each of {n} losses, got {len(found)}")
    if n > draws.n_rows:
        raise InvalidData(f"{n} rows cannot be picked out of {draws.n_rows}")
    if not bool(((found > 0) & (found <= 1 + 1e-9)).all()):
        at = int((~((found > 0) & (found <= 1 + 1e-9))).argmax())
        raise InvalidData(f"probabilities of picks lie above 0 and at most at 1, pick {at} has {found[at]}")
    return found


def _quantile(degrees: float, level: float) -> float:
    """Half the width of a central interval in standard errors, by Student's t."""
    upper = (1 + level) / 2
    return float(special.stdtrit(degrees, upper) if math.isfinite(degrees) else special.ndtri(upper))


def _bounds(mean: float, error: float, quantile: float, *, positive: bool) -> tuple[float, float]:
    if positive and mean > 0:
        factor = math.exp(min(quantile * error / mean, 700.0)) if math.isfinite(error) else math.nan
        return mean / factor, mean * factor
    return mean - quantile * error, mean + quantile * error


def _share(mean: float, error: float, n: int, rarer: float, prior: float, quantile: float) -> tuple[float, float]:
    """Wilson's interval with n / d rows, d the design effect: that of the error, and `prior` for a few rows more."""
    mean = min(max(mean, 0.0), 1.0)
    spread = mean * (1 - mean)
    own = error**2 * n / spread if spread > 0 and math.isfinite(error) else prior
    effect = (rarer * own + _PRIOR_ROWS * prior) / (rarer + _PRIOR_ROWS)
    return _wilson(mean, n / effect, quantile) if effect > 0 else (mean, mean)


def _wilson(share: float, n: float, quantile: float) -> tuple[float, float]:
    """The shares p with |share − p| ≤ quantile √(p (1 − p)/n) (Wilson 1927)."""
    square = quantile**2 / n
    centre = (share + square / 2) / (1 + square)
    half = math.sqrt(square) / (1 + square) * math.sqrt(share * (1 - share) + square / 4)
    return max(centre - half, 0.0), min(centre + half, 1.0)
