"""p(y | outputs of the network): categorical, Gaussian, and Gaussian with noise that depends on x.

A likelihood is written by the caller (`Gaussian(noise=0.3)`) and then bound to the labels, which give the number
of classes or targets and their scale. Standardised targets are (y − mean) / scale; predictives are in the units of y.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import softplus

from bensemble_core.errors import InvalidData, InvalidModel, InvalidOption
from bensemble_core.options import is_number, whole
from bensemble_core.predictive import CategoricalPredictive, GaussianPredictive
from bensemble_core.predictive.mixtures import LOG_2PI
from bensemble_core.types import Family, Likelihood, Tensors

LOG_NOISE = "likelihood/log_noise"  # the slash keeps it apart from any parameter of a module
FLOOR = 1e-6  # least noise variance that can be learnt, in units of the variance of y
_COARSE = 0.01  # sd of targets: predictions may be rounded to this much of it
_ROOM = 1e-3  # largest sd of targets, as a share of what can be squared: forecasts may be a thousand sd wide


@dataclass(frozen=True, kw_only=True)
class Categorical:
    """Labels are classes: p(y = c) = softmax(outputs)_c.

    n_classes: default the outputs of the module handed in, else max(y) + 1.
    classes: names of classes 0, 1, … (a list will do), kept in files; they set `n_classes` too.
    """

    family: ClassVar[Family] = "categorical"
    n_classes: int | None = None
    classes: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.classes is not None:
            names = _names(self.classes)
            if self.n_classes not in (None, len(names)):
                raise InvalidOption(f"Categorical: {len(names)} classes are named and n_classes={self.n_classes!r}")
            object.__setattr__(self, "classes", names)
            object.__setattr__(self, "n_classes", len(names))
        if self.n_classes is not None and whole(self.n_classes, "Categorical: n_classes") < 2:
            raise InvalidOption(f"Categorical: n_classes is at least 2, got {self.n_classes!r}")

    def bind(self, y: Tensor, *, n_outputs: int | None, standardise: bool) -> "Categorical":
        if self.n_classes is not None:
            return self
        if n_outputs is None and not y.numel():
            raise InvalidData("there are no labels to count the classes of; pass likelihood=Categorical(n_classes=…)")
        if n_outputs is None:
            _refuse_codes(y)
        n_classes = n_outputs if n_outputs is not None else max(2, int(y.max()) + 1)
        if n_classes < 2:
            raise InvalidModel("the network has one output; a categorical likelihood needs one per class, also for two")
        return replace(self, n_classes=n_classes)

    @property
    def n_outputs(self) -> int:
        if self.n_classes is None:
            raise InvalidOption("Categorical without n_classes has to be bound to labels first")
        return self.n_classes

    def encode(self, y: Tensor, *, dtype: torch.dtype) -> Tensor:
        y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
        _refuse_numbers(y)
        y = y.to(torch.int64)
        if y.numel() and (int(y.min()) < 0 or int(y.max()) >= self.n_outputs):
            row = int(((y < 0) | (y >= self.n_outputs)).nonzero()[0])
            hint = "; subtract 1 from all labels" if (int(y.min()), int(y.max())) == (1, self.n_outputs) else ""
            raise InvalidData(f"classes run from 0 to {self.n_outputs - 1}, row {row} has {int(y[row])}{hint}")
        return y

    def start(self, *, dtype: torch.dtype) -> dict[str, Tensor]:
        return {}

    def log_prob(self, outputs: Tensor, y: Tensor, extra: Tensors) -> Tensor:
        """log softmax(outputs)_y: [..., N, C], [..., N] -> [..., N]."""
        by_class = outputs.mT  # rows as columns: three times as fast on a CPU, where classes are few
        return torch.log_softmax(by_class, -2).gather(-2, y.unsqueeze(-2)).squeeze(-2)

    def cross_entropy(self, outputs: Tensor, probs: Tensor) -> Tensor:
        """E −log p(y | outputs) for y of these probabilities: [..., N, C], [..., N, C] -> [..., N].

        −Σ_c probs_c log softmax(outputs)_c, with 0 log 0 = 0, also where an output is −∞.
        """
        log_probs = torch.log_softmax(outputs, -1)
        return -(probs * log_probs.masked_fill(probs == 0, 0)).sum(-1)

    def fisher_root(self, outputs: Tensor, extra: Tensors) -> Tensor:
        """S [N, C, C−1] with SSᵀ = diag(p) − ppᵀ.

        diag(√p) − p√pᵀ is a root with the null vector √p; the reflection that takes √p to −e_C moves the null to the
        last column, which is dropped.
        """
        p = torch.softmax(outputs, -1)
        root = p.sqrt()
        v = root.clone()
        v[..., -1] += 1  # |v|² = 2 (1 + √p_C)
        whole = torch.diag_embed(root) - p[..., :, None] * root[..., None, :]
        along = (whole @ v[..., None]) / (1 + root[..., -1:, None])  # [N, C, 1]
        return (whole - along * v[..., None, :])[..., :-1]

    def predictive(self, outputs: Tensor, extra: Tensors, log_weights: Tensor | None) -> CategoricalPredictive:
        return CategoricalPredictive(logits=outputs, log_weights=log_weights)

    def to_json(self) -> dict[str, Any]:
        named = {} if self.classes is None else {"classes": list(self.classes)}
        return {"name": "categorical", "n_classes": None if self.n_classes is None else int(self.n_classes), **named}


@dataclass(frozen=True, kw_only=True)
class Gaussian:
    """Labels are numbers with Gaussian noise of one level: p(y) = N(y | output, noise²), outputs independent.

    `noise` is a standard deviation in the units of y, and fixed unless `learn_noise=True` makes it the start. Without
    it the noise is learnt, one log-sd per target and member, from sd(y) downwards, with a flat prior; learnt variances
    stay above 10⁻⁶ of the variance of y. The last three fields are set by `bind`.
    """

    family: ClassVar[Family] = "gaussian"
    noise: float | None = None
    learn_noise: bool | None = None
    mean: tuple[float, ...] = ()  # [T]
    scale: tuple[float, ...] = ()  # [T]
    spread: tuple[float, ...] = ()  # [T] sd of the standardised targets: 1 where standardised

    def __post_init__(self) -> None:
        if self.noise is not None and not (is_number(self.noise) and self.noise > 0):
            raise InvalidOption(f"Gaussian: noise is a finite standard deviation above 0, got {self.noise!r}")
        if self.learn_noise not in (None, True, False):
            raise InvalidOption(f"Gaussian: learn_noise is true or false, got {self.learn_noise!r}")
        if self.noise is None and self.learn_noise is False:
            raise InvalidOption("Gaussian: learn_noise=False needs the noise; pass noise=…")
        _check_moments(self.mean, self.scale, self.spread)

    @property
    def learns(self) -> bool:
        return self.noise is None if self.learn_noise is None else self.learn_noise

    def bind(self, y: Tensor, *, n_outputs: int | None, standardise: bool) -> "Gaussian":
        return self if self.mean else replace(self, **_moments(y, standardise))

    @property
    def n_outputs(self) -> int:
        return len(self.mean)

    def encode(self, y: Tensor, *, dtype: torch.dtype) -> Tensor:
        return _standardised(y, self.mean, self.scale, self.spread, dtype)

    def start(self, *, dtype: torch.dtype) -> dict[str, Tensor]:
        if not self.learns:
            return {}
        return {LOG_NOISE: torch.tensor(self._noise(), dtype=torch.float64).log().to(dtype)}  # [T]

    def variance(self, extra: Tensors, like: Tensor) -> Tensor:
        """Noise variance of the standardised targets, broadcast against outputs: [..., 1, T] or [T]."""
        if not self.learns:
            return torch.tensor(self._noise(), dtype=torch.float64).square().to(like)
        floor = FLOOR * torch.tensor(self.spread, dtype=torch.float64).square().to(like)
        return (2 * extra[LOG_NOISE]).exp().unsqueeze(-2) + floor

    def log_prob(self, outputs: Tensor, y: Tensor, extra: Tensors) -> Tensor:
        """Σ_t log N(y_t | output_t, noise_t²): [..., N, T], [..., N, T] -> [..., N]."""
        return _log_normal(y, outputs, self.variance(extra, outputs))

    def expected_log_prob(self, means: Tensor, variances: Tensor, y: Tensor, extra: Tensors) -> Tensor:
        """E log p(y | f) for f ~ N(means, variances): log p(y | means) − ½ Σ_t variance_t / noise_t²."""
        noise = self.variance(extra, means)
        return _log_normal(y, means, noise) - 0.5 * (variances / noise).sum(-1)

    def fisher_root(self, outputs: Tensor, extra: Tensors) -> Tensor:
        """S [N, T, T] with SSᵀ = diag(1 / noise²)."""
        return torch.diag_embed(self.variance(extra, outputs).rsqrt().expand_as(outputs))

    def predictive(self, outputs: Tensor, extra: Tensors, log_weights: Tensor | None) -> GaussianPredictive:
        variance = self.variance(extra, outputs).expand_as(outputs)
        return _in_units(outputs, variance, self.mean, self.scale, log_weights)

    def to_json(self) -> dict[str, Any]:
        return {"name": "gaussian", **asdict(self), "noise": None if self.noise is None else float(self.noise)}

    def _noise(self) -> list[float]:
        return list(self.spread) if self.noise is None else [self.noise / s for s in self.scale]


@dataclass(frozen=True, kw_only=True)
class HeteroscedasticGaussian:
    """Labels are numbers with Gaussian noise that depends on x: p(y) = N(y | μ(x), σ²(x)).

    The network has two outputs per target, all means first, then all raw variances:
    σ² = Var(y) (softplus(raw) + 10⁻⁶) (Lakshminarayanan et al. 2017, with the floor in units of the variance of y).
    The fields are set by `bind`.
    """

    family: ClassVar[Family] = "gaussian"
    mean: tuple[float, ...] = ()  # [T]
    scale: tuple[float, ...] = ()  # [T]
    spread: tuple[float, ...] = ()  # [T]

    def __post_init__(self) -> None:
        _check_moments(self.mean, self.scale, self.spread)

    def bind(self, y: Tensor, *, n_outputs: int | None, standardise: bool) -> "HeteroscedasticGaussian":
        return self if self.mean else replace(self, **_moments(y, standardise))

    @property
    def n_outputs(self) -> int:
        return 2 * len(self.mean)

    def encode(self, y: Tensor, *, dtype: torch.dtype) -> Tensor:
        return _standardised(y, self.mean, self.scale, self.spread, dtype)

    def start(self, *, dtype: torch.dtype) -> dict[str, Tensor]:
        return {}

    def log_prob(self, outputs: Tensor, y: Tensor, extra: Tensors) -> Tensor:
        """Σ_t log N(y_t | μ_t, σ_t²): [..., N, 2T], [..., N, T] -> [..., N]."""
        means, variances = self._split(outputs)
        return _log_normal(y, means, variances)

    def cross_entropy(self, outputs: Tensor, means: Tensor, variances: Tensor) -> Tensor:
        """E −log p(y | outputs) for standardised y of these moments, of whatever shape: [..., N, T] -> [..., N].

        −log p(means | outputs) + ½ Σ_t variance_t / σ_t².
        """
        centres, noise = self._split(outputs)
        return 0.5 * (variances / noise).sum(-1) - _log_normal(means, centres, noise)

    def fisher_root(self, outputs: Tensor, extra: Tensors) -> Tensor:
        """S [N, 2T, 2T], diagonal: Fisher information 1/σ² of a mean and (dσ²/draw)² / 2σ⁴ of a raw variance."""
        _, variances = self._split(outputs)
        _, raw = outputs.chunk(2, dim=-1)
        slope = torch.tensor(self.spread, dtype=torch.float64).square().to(outputs) * torch.sigmoid(raw)
        return torch.diag_embed(torch.cat([variances.rsqrt(), slope / (math.sqrt(2) * variances)], -1))

    def predictive(self, outputs: Tensor, extra: Tensors, log_weights: Tensor | None) -> GaussianPredictive:
        means, variances = self._split(outputs)
        return _in_units(means, variances, self.mean, self.scale, log_weights)

    def to_json(self) -> dict[str, Any]:
        return {"name": "heteroscedastic_gaussian", **asdict(self)}

    def _split(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        means, raw = outputs.chunk(2, dim=-1)
        spread = torch.tensor(self.spread, dtype=torch.float64).square().to(outputs)
        return means, spread * (softplus(raw) + FLOOR)


LIKELIHOODS = {
    "categorical": Categorical,
    "gaussian": Gaussian,
    "heteroscedastic_gaussian": HeteroscedasticGaussian,
}


def likelihood_named(likelihood: str | Likelihood) -> Likelihood:
    """A likelihood by its name, or itself."""
    if not isinstance(likelihood, str):
        if isinstance(likelihood, type) or not hasattr(likelihood, "log_prob"):
            raise InvalidOption(
                f"likelihood has to be a name ({', '.join(LIKELIHOODS)}) or an instance such as Gaussian(noise=0.3), "
                f"got {likelihood!r}"
            )
        return likelihood
    if likelihood not in LIKELIHOODS:
        raise InvalidOption(f"unknown likelihood {likelihood!r}; there are {', '.join(LIKELIHOODS)}")
    named: Likelihood = LIKELIHOODS[likelihood]()
    return named


def standardised_like(asked: Likelihood, old: Likelihood) -> Likelihood:
    """What is asked for, under the standardisation of the fit that is gone on from.

    Another kind of likelihood reads the network's outputs in another way, so no weights could be gone on from.
    """
    if type(asked) is not type(old):
        raise InvalidOption(
            f"the warm start was fitted with {type(old).__name__}, got {type(asked).__name__}: outputs would change "
            "their meaning; ask for the same likelihood, or start afresh without warm"
        )
    if isinstance(asked, Categorical) and isinstance(old, Categorical):
        if asked.n_classes not in (None, old.n_classes):
            raise InvalidOption(
                f"the warm start has {old.n_classes} classes, got n_classes={asked.n_classes}; ask for as "
                "many, or start afresh without warm"
            )
        if None not in (asked.classes, old.classes) and asked.classes != old.classes:
            raise InvalidOption(
                f"the warm start calls its classes {_shown(old.classes)}, got {_shown(asked.classes)}; name them alike "
                "and in the same order, or start afresh without warm"
            )
        return old if asked.classes is None else asked
    if isinstance(asked, (Gaussian, HeteroscedasticGaussian)) and isinstance(old, (Gaussian, HeteroscedasticGaussian)):
        return replace(asked, mean=old.mean, scale=old.scale, spread=old.spread)
    return old


def likelihood_from_json(spec: Mapping[str, Any]) -> Likelihood:
    """The inverse of `to_json`."""
    if spec.get("name") not in LIKELIHOODS:
        raise InvalidOption(f"unknown likelihood {spec.get('name')!r}; there are {', '.join(LIKELIHOODS)}")
    options = {k: tuple(v) if isinstance(v, list) else v for k, v in spec.items() if k != "name"}
    made: Likelihood = LIKELIHOODS[spec["name"]](**options)
    return made


def _names(classes: Any) -> tuple[str, ...]:
    is_list = isinstance(classes, Sequence) and not isinstance(classes, str)
    if not is_list or not all(isinstance(name, str) for name in classes):
        raise InvalidOption(f"Categorical: classes are a list of names, the first is of class 0; got {classes!r:.100}")
    names = tuple(classes)
    if len(names) < 2 or len(set(names)) < len(names):
        raise InvalidOption(f"Categorical: classes are at least 2 names, each once, got {_shown(names)}")
    return names


def _shown(classes: Sequence[str] | None) -> str:
    return repr(list(classes or ()))[:100]


def _refuse_numbers(y: Tensor) -> None:
    if y.ndim != 1 or y.is_floating_point() or y.is_complex():
        raise InvalidData(f"expected one whole class index a row, got {y.dtype} of shape {tuple(y.shape)}")


def _refuse_codes(y: Tensor) -> None:
    """Labels that are no class indices 0, 1, …: each number between would silently become a class without an example.

    A few classes without a label are usual: refused are labels of which most are missing, or the first.
    """
    if y.dtype == torch.bool:
        return  # true and false are two classes
    _refuse_numbers(y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y)
    seen = torch.unique(y)
    low, high, count = int(seen[0]), int(seen[-1]), seen.numel()
    if low >= 1 and count == high:
        raise InvalidData(
            f"labels run from 1 to {high}, and classes are counted from 0: subtract 1, or pass "
            f"likelihood=Categorical(n_classes={high + 1}) if class 0 just has no example yet"
        )
    if low >= 1 or (low == 0 and high + 1 > 2 * count):
        raise InvalidData(
            f"{count} different labels from {low} to {high} would become {high + 1} classes: number them 0, 1, … with "
            f"numpy.unique(y, return_inverse=True)[1], or pass likelihood=Categorical(n_classes={high + 1}) if the "
            "others just have no example yet"
        )


def _targets(y: Tensor) -> Tensor:
    if y.ndim not in (1, 2) or y.is_complex() or (y.ndim == 2 and y.shape[1] == 0):
        raise InvalidData(f"expected targets [rows] or [rows, outputs], got {y.dtype} of shape {tuple(y.shape)}")
    y = y.to(torch.float64).reshape(y.shape[0], math.prod(y.shape[1:]))  # also where there are no rows
    if not bool(y.isfinite().all()):
        row = int((~y.isfinite()).any(1).nonzero()[0])
        raise InvalidData(f"targets have to be finite, row {row} has {y[row].tolist()}")
    return y


def _check_moments(mean: tuple[float, ...], scale: tuple[float, ...], spread: tuple[float, ...]) -> None:
    """What `bind` sets, or a file: as many of each as there are targets, and scales that can be divided by."""
    if not len(mean) == len(scale) == len(spread):
        raise InvalidOption(
            f"mean, scale and spread have one entry for each target, got {len(mean)}, {len(scale)} and {len(spread)}"
        )
    if not all(map(is_number, (*mean, *scale, *spread))) or min((*scale, *spread), default=1) <= 0:
        raise InvalidOption(
            f"mean, scale and spread are finite, the last two above 0, got {mean!r}, {scale!r} and {spread!r}"
        )


def _moments(y: Tensor, standardise: bool) -> dict[str, Any]:
    y = _targets(y)
    if not y.shape[0]:
        raise InvalidData("regression needs at least one labelled row to know the scale of its targets")
    mean, sd = y.mean(0), y.std(0, correction=0)
    sd = torch.where(sd > 1e-12 * (1 + mean.abs()), sd, torch.ones_like(sd))  # a constant target keeps its units
    one, zero = torch.ones_like(sd), torch.zeros_like(sd)
    mean, scale, spread = (mean, sd, one) if standardise else (zero, one, sd)
    return {"mean": tuple(mean.tolist()), "scale": tuple(scale.tolist()), "spread": tuple(spread.tolist())}


def _standardised(
    y: Tensor, mean: tuple[float, ...], scale: tuple[float, ...], spread: tuple[float, ...], dtype: torch.dtype
) -> Tensor:
    widest = max((a * b for a, b in zip(scale, spread, strict=True)), default=0.0)
    if widest > _ROOM * math.sqrt(torch.finfo(dtype).max):
        raise InvalidData(
            f"targets vary by {widest:.3g}, and {dtype} does not hold the square of that, their variance; give them in "
            "a larger unit (y / 1e6, say), or pass x and y in float64"
        )
    y = _targets(y)
    if y.shape[1] != len(mean):
        raise InvalidData(f"expected {len(mean)} target(s) a row, got {y.shape[1]}")
    for level, unit, width in zip(mean, scale, spread, strict=True):
        if torch.finfo(dtype).eps * abs(level) > _COARSE * unit * width:
            raise InvalidData(
                f"targets lie near {level:.3g} and vary by {unit * width:.3g}: {dtype} does not tell them apart at "
                "that height; subtract a constant from them, or pass x and y in float64"
            )
    return ((y - y.new_tensor(mean)) / y.new_tensor(scale)).to(dtype)  # [N, T]


def _log_normal(y: Tensor, means: Tensor, variances: Tensor) -> Tensor:
    return -0.5 * ((y - means).square() / variances + variances.log() + LOG_2PI).sum(-1)


def _in_units(
    means: Tensor, variances: Tensor, mean: tuple[float, ...], scale: tuple[float, ...], log_weights: Tensor | None
) -> GaussianPredictive:
    means = means * means.new_tensor(scale) + means.new_tensor(mean)
    variances = variances * variances.new_tensor(scale).square()
    if len(mean) == 1:
        means, variances = means.squeeze(-1), variances.squeeze(-1)
    return GaussianPredictive(means=means, variances=variances, log_weights=log_weights)
