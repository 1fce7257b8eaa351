"""How good a predictive is against known answers; functions of a predictive and y, and one accumulator for long pools.

Everything is measured on the mixture of members, the distribution that is acted upon. Lower is better but for accuracy.
"""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bensemble_core import mixtures
from bensemble_core.errors import InvalidData
from bensemble_core.predictive import CategoricalPredictive, GaussianPredictive, Predictive

N_BINS = 15


def accuracy(predictive: CategoricalPredictive, y: Tensor) -> float:
    """Share of rows whose most probable class under p̄ is y."""
    return _mean(_hits(predictive, y))


def nll(predictive: Predictive, y: Tensor) -> float:
    """Mean −log p(y) of the mixture, nats a row: infinite if any answer had probability 0."""
    return _mean(-predictive.log_prob(y))


def brier(predictive: CategoricalPredictive, y: Tensor) -> float:
    """Mean Σ_c (p̄_c − 1[y = c])² (Brier 1950): the sum over all classes, between 0 and 2, not its half nor its mean."""
    return _mean(_brier_rows(predictive, y))


def ece(predictive: CategoricalPredictive, y: Tensor) -> float:
    """Expected calibration error Σ_b n_b/n |accuracy_b − confidence_b| (Guo et al. 2017).

    15 bins of equal width over the confidence max_c p̄_c, (i/15, (i+1)/15].
    """
    return _ece(_calibration(predictive, y))


def rmse(predictive: GaussianPredictive, y: Tensor) -> float:
    """Root of the mean squared error of the mixture's mean, over rows and outputs, in y's units."""
    return math.sqrt(_mean((predictive.mean() - predictive.targets(y)).square()))


def crps(predictive: GaussianPredictive, y: Tensor) -> float:
    """Mean continuous ranked probability score ∫ (F(z) − 1[z ≥ y])² dz of each output's mixture, in y's units."""
    return _mean(crps_rows(predictive, y))


def crps_rows(predictive: GaussianPredictive, y: Tensor) -> Tensor:
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


def evaluate(predictive: Predictive, y: Tensor) -> dict[str, float]:
    """{n, accuracy, nll, ece, brier} for classes, {n, rmse, nll, crps} for numbers."""
    evaluation = Evaluation()
    evaluation.add(predictive, y)
    return evaluation.result()


@dataclass(kw_only=True)
class Evaluation:
    """`evaluate` for a pool that comes in chunks: sums in float64, nothing of a chunk is kept."""

    family: str | None = None
    n: int = 0
    n_values: int = 0  # rows × outputs
    sums: dict[str, float] = field(default_factory=dict)
    bins: Tensor = field(default_factory=lambda: torch.zeros(3, N_BINS, dtype=torch.float64))

    def add(self, predictive: Predictive, y: Tensor) -> None:
        if self.family not in (None, predictive.family):
            raise InvalidData(f"this evaluation holds {self.family} rows and was given {predictive.family} ones")
        with torch.no_grad():
            if isinstance(predictive, CategoricalPredictive):
                self.bins = self.bins + _calibration(predictive, y)
                rows = {"accuracy": _hits(predictive, y), "brier": _brier_rows(predictive, y)}
            else:
                squares = (predictive.mean() - predictive.targets(y)).square()
                rows = {"rmse": squares, "crps": crps_rows(predictive, y)}
            rows["nll"] = -predictive.log_prob(y)
        for name, values in rows.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(values.double().sum())
        self.family = predictive.family
        self.n += predictive.n_rows
        self.n_values += next(iter(rows.values())).numel()

    def result(self) -> dict[str, float]:
        if self.n == 0:
            raise InvalidData("there are no rows to evaluate on")
        nll_mean = self.sums["nll"] / self.n
        if self.family == "categorical":
            right, brier_mean = self.sums["accuracy"] / self.n, self.sums["brier"] / self.n
            return {"n": self.n, "accuracy": right, "nll": nll_mean, "ece": _ece(self.bins), "brier": brier_mean}
        error, score = math.sqrt(self.sums["rmse"] / self.n_values), self.sums["crps"] / self.n_values
        return {"n": self.n, "rmse": error, "nll": nll_mean, "crps": score}


def _mean(values: Tensor) -> float:
    if values.numel() == 0:
        raise InvalidData("there are no rows to evaluate on")
    return float(values.detach().double().mean())


def _hits(predictive: CategoricalPredictive, y: Tensor) -> Tensor:
    return predictive.log_mean().argmax(-1) == predictive.classes(y)


def _brier_rows(predictive: CategoricalPredictive, y: Tensor) -> Tensor:
    probs = predictive.mean().double()
    truth = torch.nn.functional.one_hot(predictive.classes(y), probs.shape[-1])
    return (probs - truth).square().sum(-1)


def _calibration(predictive: CategoricalPredictive, y: Tensor) -> Tensor:
    """Rows, summed confidence and hits of every bin: [3, B] float64."""
    confidence = predictive.mean().double().amax(-1).clamp(max=1.0).cpu()
    edges = torch.arange(1, N_BINS, dtype=torch.float64) / N_BINS
    at = torch.bucketize(confidence, edges)  # right-closed: edges[i-1] < c <= edges[i]
    values = torch.stack([torch.ones_like(confidence), confidence, _hits(predictive, y).double().cpu()])
    return torch.zeros(3, N_BINS, dtype=torch.float64).index_add(1, at, values)


def _ece(bins: Tensor) -> float:
    count, confidence, hits = bins
    if not count.sum():
        raise InvalidData("there are no rows to evaluate on")
    return float((hits - confidence).abs().sum() / count.sum())


def _absolute(d: Tensor, variance: Tensor) -> Tensor:
    """E|d + s·Z| for Z ~ N(0, 1)."""
    s = variance.sqrt()
    z = d / s
    density = torch.exp(-0.5 * (z.square() + mixtures.LOG_2PI))
    return 2 * s * density + d * (2 * mixtures.normal_cdf(z) - 1)
