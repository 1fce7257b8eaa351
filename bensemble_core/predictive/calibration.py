"""Calibration after training: a few numbers, fitted on held-out rows, that correct how sure forecasts are.

They minimise the negative log-likelihood of the mixture of members, the distribution that is acted upon, in float64,
and are kept in the ensemble's own file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from scipy import optimize
from torch import Tensor

from bensemble_core import display
from bensemble_core.display import Described
from bensemble_core.errors import InvalidData, InvalidFile, InvalidOption, NotFinite
from bensemble_core.predictive import mixtures
from bensemble_core.predictive.predictive import CategoricalPredictive, GaussianPredictive, Predictive
from bensemble_core.types import Family, Likelihood, Tensors

if TYPE_CHECKING:
    from bensemble_core.ensemble import Ensemble
    from bensemble_core.ensemble.rows import Rows

Kind: TypeAlias = Literal["temperature", "vector"]
_KINDS = ("temperature", "vector")
_GRID = 25  # start values tried: a mixture's likelihood may have several maxima in the temperature
_DECADES = 3.0  # of temperatures either side of the size of the logits; labels do not determine those beyond
LOG_SCALE_SD = 0.3  # of what is believed of a scale before any row is seen
_WIDEST = 2.0  # of the logarithm of a scale that few rows give, either way
_GRADIENT = 1e-7  # nats a row: the largest slope at what counts as a minimum


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Calibration(Described):
    """A correction of all predictions of an ensemble, learnt on held-out rows.

    Classes: every member's logits become `scale` · logits + `shift` (temperature: scale 1/T, no shift).
    Numbers: the mixture is stretched by `scale` about its own mean μ̄, μ_m ← μ̄ + scale (μ_m − μ̄), σ_m ← scale σ_m, so
    that the mean and the ratio of epistemic to aleatoric variance stay as they were.
    """

    family: Family
    scale: Tensor  # [] or [C]; [] or [T]
    shift: Tensor | None = None  # [C]

    def _facts(self) -> dict[str, object]:
        shift = None if self.shift is None else display.numbers(self.shift)
        if self.scale.ndim:
            return {"family": self.family, "scale": display.numbers(self.scale), "shift": shift}
        return {"family": self.family, "temperature": f"{self.temperature:.4g}"}

    @property
    def temperature(self) -> float:
        """The T of softmax(logits / T); for numbers, with log p = −(y − μ)²/2σ² + …, the factor on the variance."""
        if self.scale.ndim:
            raise InvalidOption("vector scaling has no single temperature; read scale and shift")
        return float(1 / self.scale if self.family == "categorical" else self.scale.square())

    def __call__(self, predictive: Predictive) -> Predictive:
        """The same members, calibrated."""
        if predictive.family != self.family:
            raise InvalidData(f"this calibration is of a {self.family} predictive, got a {predictive.family} one")
        if isinstance(predictive, CategoricalPredictive):
            logits = predictive.logits * self.scale.to(predictive.logits)
            return replace(predictive, logits=logits if self.shift is None else logits + self.shift.to(logits))
        scale, mean = self.scale.to(predictive.means), predictive.mean()
        means = mean + scale * (predictive.means - mean)
        return replace(predictive, means=means, variances=scale.square() * predictive.variances)

    def to(self, device: torch.device | str) -> Calibration:
        shift = None if self.shift is None else self.shift.to(device)
        return replace(self, scale=self.scale.to(device), shift=shift)

    def to_tensors(self) -> dict[str, Tensor]:
        return {"scale": self.scale} | ({} if self.shift is None else {"shift": self.shift})

    @classmethod
    def from_tensors(cls, tensors: Tensors, likelihood: Likelihood) -> Calibration | None:
        """The inverse of `to_tensors`, checked; None where there are no tensors."""
        if not tensors:
            return None
        made = cls(family=likelihood.family, scale=tensors["scale"], shift=tensors.get("shift"))
        width = likelihood.n_outputs if likelihood.family == "categorical" else len(getattr(likelihood, "mean", ()))
        shapes = {(), (width,)} if made.shift is None else {(width,)}
        fits = tuple(made.scale.shape) in shapes and (made.shift is None or tuple(made.shift.shape) == (width,))
        if set(tensors) - {"scale", "shift"} or not fits or not all(bool(t.isfinite().all()) for t in tensors.values()):
            came = {name: list(tensor.shape) for name, tensor in tensors.items()}
            raise InvalidFile(f"a calibration has a finite scale [] or [{width}] and shift [{width}], got {came}")
        return made


def calibrate(ensemble: Ensemble, x: Rows, y: Rows, *, kind: Kind = "temperature") -> Ensemble:
    """Calibrate an ensemble's forecasts on rows that it was not trained on; an earlier calibration is replaced.

    It saves, loads, predicts and ranks as any other.

    ensemble: what predicts, from `fitted.sample(20)`.
    x: held-out rows [N, ...].
    y: their labels, class indices [N] or numbers [N(, T)] in their own units.
    kind: "temperature" (the default), one factor for all classes or outputs; or "vector", one for each (see `learn`).
    """
    raw, y = replace(ensemble, calibration=None), torch.as_tensor(y)
    if ensemble.family == "categorical":
        y = ensemble.problem.likelihood.encode(y, dtype=ensemble.problem.dtype)
    return replace(ensemble, calibration=learn(raw.predict(x), y, kind=kind), stored_plan=raw.plan)


def learn(predictive: Predictive, y: Tensor, *, kind: Kind = "temperature") -> Calibration:
    """The calibration that minimises the mixture's mean −log p(y) on these rows.

    Classes: `temperature` divides all logits by one T > 0, `vector` gives each class a factor and a shift (Guo et al.
    2017). With several members the logits of each are scaled and the mixture is what has to fit, which is not the same
    as scaling log p̄. Numbers: one factor on all standard deviations, or with `vector` one per output; for one member
    scale² = mean (y − μ)²/σ² in closed form (Laves et al. 2020), for more by descent from the closed form of the
    Gaussian with the mixture's moments.
    """
    if kind not in _KINDS:
        raise InvalidOption(f"unknown calibration {kind!r}; there are {', '.join(_KINDS)}")
    if not predictive.n_rows:
        raise InvalidData("there are no rows to calibrate on; hold some labelled rows out of the training")
    with torch.no_grad():
        if isinstance(predictive, CategoricalPredictive):
            mixture = _Mixture(predictive, predictive.classes(y))
            return _temperature(mixture) if kind == "temperature" else _vector(mixture)
        return _stretch(_widened(predictive), predictive.targets(y).double(), kind)


def learn_from_few(
    held_out: Sequence[tuple[Predictive, Tensor]], *, row_weights: Sequence[Tensor] | None = None
) -> Calibration:
    """One scale s that few held-out rows determine safely: the most probable one under log s ~ N(0, 0.3²), or 1.

    For classes s = 1/T on the logits, at most 1; for numbers the factor on the spread, at least 1: forecasts become
    less sure, never surer. Rows far out are rare among few, so that sharper forecasts look better on them and are far
    worse on the next; and members that lack a fold are less sure than those of all rows. It is 1, too, where the
    likelihood of the rows gains less than its own standard error, or with no rows; with many the prior is outweighed.

    held_out: pairs of a predictive and its labels, one for each fold where folds have members of their own.
    row_weights: [N] for each pair; None is 1 for every row.
    """
    family, device = held_out[0][0].family, held_out[0][1].device
    weights = row_weights or [torch.ones(len(y), dtype=torch.float64, device=y.device) for _, y in held_out]

    def scaled(log_s: float) -> Calibration:
        scale = torch.tensor(math.exp(log_s), dtype=torch.float64, device=device)
        return Calibration(family=family, scale=scale)

    def log_probs(log_s: float) -> Tensor:
        """Of every row, weighed: [N]."""
        calibration = scaled(log_s)
        found = [
            of_rows * calibration(predictive).log_prob(y).double()
            for (predictive, y), of_rows in zip(held_out, weights, strict=True)
            if predictive.n_rows
        ]
        return torch.cat(found) if found else torch.zeros(0, dtype=torch.float64, device=device)

    def loss(log_s: float) -> float:
        return 0.5 * (log_s / LOG_SCALE_SD) ** 2 - float(log_probs(log_s).sum())

    bounds = (0.0, _WIDEST) if family == "gaussian" else (-_WIDEST, 0.0)
    with torch.no_grad():
        found = optimize.minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-4})
        gains = log_probs(float(found.x)) - log_probs(0.0)
    n = len(gains)
    is_clear = n > 1 and float(gains.sum()) > math.sqrt(n) * float(gains.std())
    return scaled(float(found.x) if is_clear else 0.0)


class _Mixture:
    """Mean −log p̄(y) of scaled logits. Classes come first: sums over them then run along whole rows of memory."""

    def __init__(self, predictive: CategoricalPredictive, y: Tensor) -> None:
        logits = predictive.logits.detach().double()
        self.n_members, self.n_rows, self.n_classes = logits.shape
        self.logits = logits.permute(2, 0, 1).flatten(1)  # [C, M·N]
        self.size = float((self.logits - self.logits.mean(0)).square().mean().sqrt())
        self.log_weights = mixtures.normalised(predictive.log_weights, self.n_members, logits)
        self.y = y.repeat(self.n_members)[None]  # [1, M·N]
        if not self.size or not math.isfinite(self.size):
            raise InvalidData("the logits are all equal, or not finite: there is nothing to scale")

    def loss(self, scale: Tensor, shift: Tensor | None = None) -> Tensor:
        """scale [] or [C], shift [C] -> []."""
        scaled = self.logits * (scale[:, None] if scale.ndim else scale)
        scaled = scaled if shift is None else scaled + shift[:, None]
        of_members = (scaled.gather(0, self.y)[0] - torch.logsumexp(scaled, 0)).view(self.n_members, self.n_rows)
        return -torch.logsumexp(of_members + self.log_weights[:, None], 0).mean()


def _temperature(mixture: _Mixture) -> Calibration:
    def loss(log_temperature: Tensor) -> Tensor:
        return mixture.loss((-log_temperature).exp())

    grid = torch.linspace(-_DECADES, _DECADES, _GRID, dtype=torch.float64, device=mixture.logits.device)
    grid = grid * math.log(10) + math.log(mixture.size)
    losses = torch.stack([loss(t) for t in grid])
    best = int(losses.argmin())
    if best == 0:
        raise InvalidData(
            f"the lower the temperature the better, down to {math.exp(float(grid[0])):.2g}: every row is right, so "
            "the labels set no bound; calibrate on more rows, some of which are wrong"
        )
    if best == _GRID - 1 or float(losses[best]) >= math.log(mixture.n_classes):
        raise InvalidData(
            "the higher the temperature the better: the predictions are no better than chance on these labels; check "
            "that the labels belong to the rows"
        )
    return Calibration(family="categorical", scale=(-_minimise(loss, grid[best])).exp())


def _vector(mixture: _Mixture) -> Calibration:
    n_classes = mixture.n_classes
    absent = [c for c in range(n_classes) if not bool((mixture.y == c).any())]
    if absent:
        raise InvalidData(
            f"class {absent[0]} does not occur in the labels, so nothing bounds its shift; use kind='temperature', or "
            "rows of every class"
        )
    start = _temperature(mixture).scale
    unit = torch.cat([start.expand(n_classes), start.new_ones(n_classes)])  # factors move in units of the first guess

    def loss(parameters: Tensor) -> Tensor:
        scale, shift = (parameters * unit).chunk(2)
        return mixture.loss(scale, shift)

    found = _minimise(loss, torch.cat([start.new_ones(n_classes), start.new_zeros(n_classes)])) * unit
    scale, shift = found.chunk(2)
    return Calibration(family="categorical", scale=scale.clone(), shift=shift - shift.mean())


def _stretch(predictive: GaussianPredictive, y: Tensor, kind: Kind) -> Calibration:
    z2 = (y - predictive.mean()).square() / predictive.variance()  # [N] or [N, T]
    scale = (z2.mean(0) if kind == "vector" and z2.ndim == 2 else z2.mean()).sqrt()
    if not bool((scale > 0).all() & scale.isfinite().all()):
        raise InvalidData("every target lies exactly on its forecast, or some are not finite: no scale fits them")
    if predictive.n_members > 1:

        def loss(log_scale: Tensor) -> Tensor:
            stretched = Calibration(family="gaussian", scale=log_scale.exp())(predictive)
            return -stretched.log_prob(y).mean()

        scale = _minimise(loss, scale.log()).exp()
    return Calibration(family="gaussian", scale=scale)


def _minimise(loss: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
    """BFGS in float64 until the gradient vanishes; raises where it does not."""

    def value_and_slope(values: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        at = torch.from_numpy(values).to(start).reshape(start.shape).requires_grad_()
        with torch.enable_grad():
            value = loss(at)
            (slope,) = torch.autograd.grad(value, at)
        return float(value.detach()), slope.flatten().cpu().numpy()

    found = optimize.minimize(
        value_and_slope, start.flatten().cpu().numpy(), jac=True, method="BFGS", options={"gtol": 1e-9}
    )
    slope = float(np.abs(found.jac).max())
    if not slope <= _GRADIENT:
        raise NotFinite(
            f"calibration did not settle (slope {slope:.1e} a row): these rows do not bound it; use "
            "kind='temperature', or more rows"
        )
    return torch.from_numpy(found.x).to(start).reshape(start.shape)


def _widened(predictive: GaussianPredictive) -> GaussianPredictive:
    return replace(predictive, means=predictive.means.detach().double(), variances=predictive.variances.double())
