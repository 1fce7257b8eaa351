"""How good a predictive is against known answers; functions of a predictive and y, and one accumulator for long pools.

Everything is measured on the mixture of members, the distribution that is acted upon. Lower is better but for accuracy
and AUROC; a coverage is good where it is near its level.
"""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bensemble_core import display
from bensemble_core.display import Described
from bensemble_core.errors import InvalidData, InvalidOption
from bensemble_core.options import whole
from bensemble_core.predictive import mixtures
from bensemble_core.predictive.by_class import ClassCounts
from bensemble_core.predictive.by_class import ClassMetrics as ClassMetrics
from bensemble_core.predictive.by_class import by_class as by_class
from bensemble_core.predictive.predictive import CategoricalPredictive, GaussianPredictive, Predictive, Values

N_BINS = 15  # of confidence, in `ece` and `reliability`
N_LEVELS = 9  # of central intervals, 10 % to 90 %, in an evaluation's coverage


def accuracy(predictive: CategoricalPredictive, y: Values) -> float:
    """Share of rows whose most probable class under p̄ is y."""
    return _mean(_hits(predictive, y))


def nll(predictive: Predictive, y: Values) -> float:
    """Negative log-likelihood, the mean −log p(y) of the mixture in nats: infinite if any answer had probability 0."""
    return _mean(-predictive.log_prob(y))


def brier(predictive: CategoricalPredictive, y: Values) -> float:
    """Brier score, the mean of Σ_c (p̄_c − 1[y = c])² over rows (Brier 1950): from 0 to 2, a sum over all classes."""
    return _mean(_brier_rows(predictive, y))


def ece(predictive: CategoricalPredictive, y: Values) -> float:
    """Expected calibration error Σ_b n_b/n |accuracy_b − confidence_b| (Guo et al. 2017).

    15 bins of equal width over the confidence max_c p̄_c, (i/15, (i+1)/15].
    """
    return _ece(_calibration(predictive, y))


def rmse(predictive: GaussianPredictive, y: Values) -> float:
    """Root of the mean squared error of the mixture's mean, over rows and outputs, in y's units."""
    return math.sqrt(_mean((predictive.mean() - predictive.targets(y)).square()))


def crps(predictive: GaussianPredictive, y: Values) -> float:
    """Mean continuous ranked probability score ∫ (F(z) − 1[z ≥ y])² dz of each output's mixture, in y's units."""
    return _mean(crps_rows(predictive, y))


def crps_rows(predictive: GaussianPredictive, y: Values) -> Tensor:
    """CRPS by row and output, in closed form (Grimit et al. 2006): [N] or [N, T].

    Σ_i w_i A(y − μ_i, σ_i²) − ½ Σ_ij w_i w_j A(μ_i − μ_j, σ_i² + σ_j²),  A(d, s²) = 2sφ(d/s) + d(2Φ(d/s) − 1).
    """
    means, variances = predictive.means.double(), predictive.variances.double()
    weights = mixtures.normalised(predictive.log_weights, predictive.n_members, means).exp()
    error = mixtures.member_average(_absolute(predictive.targets(y).double() - means, variances), weights.log())
    spread = torch.zeros_like(error)
    for i in range(predictive.n_members):  # one member against all at a time: M² rows are never held
        between = _absolute(means[i] - means, variances[i] + variances)
        spread = spread + weights[i] * mixtures.member_average(between, weights.log())
    return error - 0.5 * spread


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Reliability(Described):
    """Bins of forecasts: how sure they were, and how often they came true; NaN in an empty bin."""

    count: Tensor  # [B] rows in the bin
    confidence: Tensor  # [B] mean of what was forecast
    accuracy: Tensor  # [B] share that came true

    def _facts(self) -> dict[str, object]:
        return {name: display.numbers(values) for name, values in vars(self).items()}


def reliability(predictive: CategoricalPredictive, y: Values, *, n_bins: int | None = None) -> Reliability:
    """The bins behind `ece`: equal widths over the confidence max_c p̄_c, 15 by default: each [B]."""
    return _reliability(_calibration(predictive, y, n_bins))


def interval_coverage(predictive: GaussianPredictive, y: Values, *, level: float = 0.9) -> float:
    """Share of targets inside the mixture's central interval, from its (1 − level)/2 quantile to (1 + level)/2."""
    return _mean(_covered(predictive, y, level))


def interval_width(predictive: GaussianPredictive, *, level: float = 0.9) -> float:
    """Mean width of the mixture's central interval, in y's units."""
    return _mean(_widths(predictive, level))


def coverage_curve(predictive: GaussianPredictive, y: Values, *, n_levels: int = 15) -> Reliability:
    """Levels 1/(L + 1), …, L/(L + 1) of central intervals against the share of targets inside each: each [L].

    On the diagonal for a calibrated forecast (Kuleshov et al. 2018); below it for one that is too sure.
    """
    inside = _inside(predictive, y, _counted(n_levels, "n_levels"))
    n_values = math.prod(predictive.means.shape[1:])
    _require_rows(n_values)
    return _coverage(inside, n_values)


def sharpness(predictive: GaussianPredictive) -> float:
    """Mean standard deviation of the mixture, in y's units: how precise a forecast is, right or wrong."""
    return _mean(predictive.variance().double().sqrt())


def auroc(scores: Values, positive: Values) -> float:
    """P(a positive row scores above a negative one), ties counting one half: the area under the ROC curve.

    By mid-ranks (Mann & Whitney 1947): scores [N], positive [N] true or false.
    """
    scores = torch.as_tensor(scores).detach().flatten()
    positive = torch.as_tensor(positive).flatten().to(scores.device, torch.bool)
    if scores.shape != positive.shape:
        raise InvalidData(f"expected as many marks as scores, got {positive.numel()} and {scores.numel()}")
    if not bool(scores.isfinite().all()):
        row = int((~scores.isfinite()).nonzero()[0])
        raise InvalidData(f"scores have to be finite, row {row} has {float(scores[row])}")
    n_positive = int(positive.sum())
    n_negative = scores.numel() - n_positive
    if not n_positive or not n_negative:
        raise InvalidData(f"auroc needs rows of both kinds, got {n_positive} positive and {n_negative} negative")
    place, count = _places(scores)
    mid_ranks = count.cumsum(0).double() - (count - 1) / 2  # of each distinct score, from 1
    above = float(mid_ranks[place][positive].sum()) - n_positive * (n_positive + 1) / 2
    return above / (n_positive * n_negative)


def ood_auroc(inside: Values, outside: Values) -> float:
    """AUROC of an uncertainty score that should be higher for rows from elsewhere: scores [N], scores [K]."""
    inside, outside = torch.as_tensor(inside), torch.as_tensor(outside)
    marks = torch.cat([torch.zeros(inside.numel()), torch.ones(outside.numel())])
    return auroc(torch.cat([inside.flatten(), outside.flatten().to(inside)]), marks)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RiskCoverage(Described):
    """The mean loss of the k least uncertain rows, for every k."""

    coverage: Tensor  # [N] k/N
    risk: Tensor  # [N]

    def _facts(self) -> dict[str, object]:
        return {"rows": self.risk.numel(), "area": f"{self.area:.4g}"}

    @property
    def area(self) -> float:
        """AURC, the mean of the risks (Geifman et al. 2019)."""
        return _mean(self.risk)


def risk_coverage(uncertainty: Values, losses: Values) -> RiskCoverage:
    """Mean loss of the k least uncertain rows, for every k: uncertainty [N], losses [N] (0 or 1 for classes).

    Rows of equal uncertainty count as in random order, in expectation, so that the order of rows is of no matter.
    """
    uncertainty = torch.as_tensor(uncertainty).detach().flatten()
    losses = torch.as_tensor(losses).detach().flatten().double().to(uncertainty.device)
    if uncertainty.shape != losses.shape:
        raise InvalidData(f"expected as many losses as rows, got {losses.numel()} and {uncertainty.numel()}")
    _require_rows(uncertainty.numel())
    if not bool(uncertainty.isfinite().all()):
        raise InvalidData(f"uncertainty has to be finite, row {int((~uncertainty.isfinite()).nonzero()[0])} is not")
    place, count = _places(uncertainty)
    tied = torch.zeros(len(count), dtype=losses.dtype, device=losses.device).index_add(0, place, losses) / count
    answered = torch.arange(1, losses.numel() + 1, dtype=losses.dtype, device=losses.device)
    risk = tied.repeat_interleave(count).cumsum(0) / answered
    return RiskCoverage(coverage=answered / losses.numel(), risk=risk)


def aurc(predictive: Predictive, y: Values, *, uncertainty: Values | None = None) -> float:
    """Area under the risk-coverage curve: of errors by 1 − max_c p̄_c, or of squared errors by the total variance.

    With several outputs a row's error and its uncertainty are sums over them. `uncertainty` [N] is another order.
    """
    if isinstance(predictive, CategoricalPredictive):
        losses, own = ~_hits(predictive, y), -predictive.log_mean().amax(-1)
    else:
        squares = (predictive.mean() - predictive.targets(y)).square()
        losses = squares.reshape(predictive.n_rows, -1).sum(-1)
        own = predictive.variance().reshape(predictive.n_rows, -1).sum(-1)
    return risk_coverage(own if uncertainty is None else uncertainty, losses).area


def evaluate(predictive: Predictive, y: Values, *, level: float | None = None) -> dict[str, float]:
    """All metrics: {n, accuracy, nll, ece, brier} for classes, {n, rmse, nll, crps} for numbers.

    With `level` also {coverage, width} of the central interval of that level.
    """
    evaluation = Evaluation(level=level)
    evaluation.add(predictive, y)
    return evaluation.result()


@dataclass(kw_only=True)
class Evaluation:
    """`evaluate` for a pool that comes in chunks: sums in float64, nothing of a chunk is kept."""

    level: float | None = None  # of intervals, for numbers
    n_bins: int = N_BINS  # of `reliability`, for classes; those of `ece` are always 15
    family: str | None = None
    n: int = 0
    n_values: int = 0  # rows × outputs
    sums: dict[str, float] = field(default_factory=dict)
    squares: dict[str, float] = field(default_factory=dict)  # of a row's mean over outputs
    bins: Tensor = field(default_factory=lambda: torch.zeros(3, N_BINS, dtype=torch.float64))
    wide_bins: Tensor | None = None  # [3, n_bins], where these are not those of `ece`
    inside: Tensor = field(default_factory=lambda: torch.zeros(N_LEVELS, dtype=torch.float64))
    counts: ClassCounts = field(default_factory=ClassCounts)

    def add(self, predictive: Predictive, y: Values) -> None:
        if self.family not in (None, predictive.family):
            raise InvalidData(f"this evaluation holds {self.family} rows and was given {predictive.family} ones")
        with torch.no_grad():
            if isinstance(predictive, CategoricalPredictive):
                self.bins = self.bins + _calibration(predictive, y)
                if self.n_bins != N_BINS:
                    found = _calibration(predictive, y, self.n_bins)
                    self.wide_bins = found if self.wide_bins is None else self.wide_bins + found
                self.counts.add(predictive, y)
                rows = {"accuracy": _hits(predictive, y), "brier": _brier_rows(predictive, y)}
            else:
                squares = (predictive.mean() - predictive.targets(y)).square()
                rows = {"rmse": squares, "crps": crps_rows(predictive, y)}
                self.inside = self.inside + _inside(predictive, y, N_LEVELS)
                if self.level is not None:
                    rows["coverage"] = _covered(predictive, y, self.level)
                    rows["width"] = _widths(predictive, self.level)
            rows["nll"] = -predictive.log_prob(y)
        for name, values in rows.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(values.double().sum())
            by_row = values.double() if values.ndim == 1 else values.double().mean(1)
            self.squares[name] = self.squares.get(name, 0.0) + float(by_row.square().sum())
        self.family = predictive.family
        self.n += predictive.n_rows
        self.n_values += next(iter(rows.values())).numel()

    def result(self) -> dict[str, float]:
        _require_rows(self.n)
        nll_mean = self.sums["nll"] / self.n
        if self.family == "categorical":
            right, brier_mean = self.sums["accuracy"] / self.n, self.sums["brier"] / self.n
            return {"n": self.n, "accuracy": right, "nll": nll_mean, "ece": _ece(self.bins), "brier": brier_mean}
        error, score = math.sqrt(self.sums["rmse"] / self.n_values), self.sums["crps"] / self.n_values
        intervals = {k: v / self.n_values for k, v in self.sums.items() if k in ("coverage", "width")}
        return {"n": self.n, "rmse": error, "nll": nll_mean, "crps": score, **intervals}

    def standard_errors(self) -> dict[str, float]:
        """Standard errors {accuracy_se, nll_se, brier_se} or {rmse_se, nll_se, crps_se} of what `result` says.

        Of a mean over n independent rows √(Var / n), with variances of the rows (divided by n); that of the RMSE is
        the mean square's over 2 RMSE. NaN where a metric is infinite.
        """
        _require_rows(self.n)
        found = {}
        for name in self.sums:
            mean = self.sums[name] / (self.n if name == "nll" else self.n_values)
            variance = max(0.0, self.squares[name] / self.n - mean**2) if math.isfinite(mean) else math.nan
            error = math.sqrt(variance / self.n)
            found[f"{name}_se"] = error / (2 * math.sqrt(mean)) if name == "rmse" and mean > 0 else error
        return found

    def reliability(self) -> Reliability:
        """`n_bins` bins of confidence, of class predictions; by default those behind `ece`."""
        if self.family != "categorical":
            raise InvalidData("reliability bins are of class predictions; this evaluation holds none")
        return _reliability(self.bins if self.wide_bins is None else self.wide_bins)

    def coverage_curve(self) -> Reliability:
        """Levels .1, …, .9 of central intervals against the share of targets inside each, of predicted numbers."""
        if self.family != "gaussian":
            raise InvalidData("coverage of intervals is of predicted numbers; this evaluation holds none")
        return _coverage(self.inside, self.n_values)

    def by_class(self) -> ClassMetrics:
        """Confusion matrix, precision, recall and AUROC, of class predictions."""
        if self.family != "categorical":
            raise InvalidData("precision and recall are of class predictions; this evaluation holds none")
        return self.counts.result()


def _require_rows(n_rows: int) -> None:
    if not n_rows:
        raise InvalidData("there are no rows to evaluate on")


def _mean(values: Tensor) -> float:
    _require_rows(values.numel())
    return float(values.detach().double().mean())


def _hits(predictive: CategoricalPredictive, y: Values) -> Tensor:
    return predictive.log_mean().argmax(-1) == predictive.classes(y)


def _brier_rows(predictive: CategoricalPredictive, y: Values) -> Tensor:
    probs = predictive.mean().double()
    truth = torch.nn.functional.one_hot(predictive.classes(y), probs.shape[-1])
    return (probs - truth).square().sum(-1)


def _covered(predictive: GaussianPredictive, y: Values, level: float) -> Tensor:
    """By the distribution function, where no quantile has to be searched: [N] or [N, T]."""
    below = predictive.cdf(y).double()
    return (below - 0.5).abs() <= 0.5 * _checked(level)


def _levels(n_levels: int) -> Tensor:
    return torch.arange(1, n_levels + 1, dtype=torch.float64) / (n_levels + 1)


def _inside(predictive: GaussianPredictive, y: Values, n_levels: int) -> Tensor:
    """How many targets lie inside the central interval of each level: [L] float64."""
    depth = (2 * predictive.cdf(y).double().flatten().cpu() - 1).abs()  # y is on the edge of the interval of this level
    return torch.searchsorted(depth.sort().values, _levels(n_levels), right=True).double()


def _coverage(inside: Tensor, n_values: int) -> Reliability:
    count = torch.full_like(inside, n_values)
    return Reliability(count=count, confidence=_levels(len(inside)), accuracy=inside / count)


def _widths(predictive: GaussianPredictive, level: float) -> Tensor:
    edges = predictive.quantile([(1 - _checked(level)) / 2, (1 + level) / 2])  # [2, N(, T)]
    return edges[1] - edges[0]


def _places(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Which of the distinct scores, in rising order, a row has: [N]; and how many rows have each."""
    _, place, count = torch.unique(scores, return_inverse=True, return_counts=True)
    return place, count


def _counted(count: int, what: str) -> int:
    if whole(count, what) < 1:
        raise InvalidOption(f"{what} is at least 1, got {count}")
    return count


def _checked(level: float) -> float:
    if not 0 < level < 1:
        raise InvalidOption(f"the level of an interval lies strictly between 0 and 1, got {level}")
    return level


def _reliability(bins: Tensor) -> Reliability:
    count, confidence, hits = bins
    return Reliability(count=count, confidence=confidence / count, accuracy=hits / count)


def _calibration(predictive: CategoricalPredictive, y: Values, n_bins: int | None = None) -> Tensor:
    """Rows, summed confidence and hits of every bin: [3, B] float64."""
    n_bins = _counted(N_BINS if n_bins is None else n_bins, "n_bins")
    confidence = predictive.mean().double().amax(-1).clamp(max=1.0).cpu()
    edges = torch.arange(1, n_bins, dtype=torch.float64) / n_bins
    at = torch.bucketize(confidence, edges)  # right-closed: edges[i-1] < c <= edges[i]
    values = torch.stack([torch.ones_like(confidence), confidence, _hits(predictive, y).double().cpu()])
    return torch.zeros(3, n_bins, dtype=torch.float64).index_add(1, at, values)


def _ece(bins: Tensor) -> float:
    count, confidence, hits = bins
    _require_rows(int(count.sum()))
    return float((hits - confidence).abs().sum() / count.sum())


def _absolute(d: Tensor, variance: Tensor) -> Tensor:
    """E|d + s·Z| for Z ~ N(0, 1)."""
    s = variance.sqrt()
    z = d / s
    density = torch.exp(-0.5 * (z.square() + mixtures.LOG_2PI))
    return 2 * s * density + d * (2 * mixtures.normal_cdf(z) - 1)
