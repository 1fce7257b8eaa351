"""Priors over the network's raw parameters, independent and the same for every one, and over functions."""

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Final, Protocol, get_args

import torch
from torch import Tensor

from bensemble_core.errors import InvalidData, InvalidOption
from bensemble_core.kernels import KernelName, correlation, squared_distances
from bensemble_core.options import is_number, whole
from bensemble_core.predictive.mixtures import LOG_2PI
from bensemble_core.types import Over, Prior, Tensors


def _check_above_0(what: str, value: Any) -> None:
    if not (is_number(value) and value > 0):
        raise InvalidOption(f"{what} above 0, got {value!r}")


@dataclass(frozen=True, kw_only=True)
class Normal:
    """Every weight and bias is Gaussian around 0: p(θ) = Π N(θ_i | 0, scale²). `Normal(scale=1.0)` is the default.

    It enters the objective as log p(θ) beside the likelihood of all N rows: the pull of the prior fades as rows come,
    and is not the weight decay of an optimiser.
    """

    scale: float = 1.0
    over: ClassVar[Over] = "weights"

    def __post_init__(self) -> None:
        _check_above_0("Normal prior: scale is a finite standard deviation", self.scale)

    def log_prob(self, theta: Tensors) -> Tensor:
        """−½ Σ θ²/scale² − n log(scale √2π): named [M, ...] -> [M]."""
        squares = torch.stack([t.flatten(1).square().sum(1) for t in theta.values()]).sum(0)  # [M]
        n = sum(t[0].numel() for t in theta.values())
        return -0.5 * squares / self.scale**2 - n * (math.log(self.scale) + 0.5 * LOG_2PI)

    def to_json(self) -> dict[str, Any]:
        return {"name": "normal", "scale": float(self.scale)}


@dataclass(frozen=True, kw_only=True)
class DoubleExponential:
    """p(θ) = Π exp(−|θ_i|/scale)/(2 scale), Laplace's first law: its MAP is the lasso, many weights at 0.

    |θ|/scale enters the objective with the subgradient sign(θ), 0 at 0. A descent does not stop exactly at the kink but
    steps over it: its weights are about lr away from 0, less as the schedule lowers lr. The standard deviation of a
    weight is √2 scale. Methods that need a Normal prior refuse this one.
    """

    scale: float = 1.0
    over: ClassVar[Over] = "weights"

    def __post_init__(self) -> None:
        _check_above_0("DoubleExponential prior: scale is a finite mean of |θ|", self.scale)

    def log_prob(self, theta: Tensors) -> Tensor:
        """−Σ |θ|/scale − n log(2 scale): named [M, ...] -> [M]."""
        sizes = torch.stack([t.flatten(1).abs().sum(1) for t in theta.values()]).sum(0)  # [M]
        n = sum(t[0].numel() for t in theta.values())
        return -sizes / self.scale - n * math.log(2 * self.scale)

    def to_json(self) -> dict[str, Any]:
        return {"name": "double_exponential", "scale": float(self.scale)}


@dataclass(frozen=True, kw_only=True)
class StudentT:
    """p(θ) = Π t(θ_i | df, 0, scale): heavy tails, so that a few weights may be large at little cost.

    log t(θ) = log Γ((df + 1)/2) − log Γ(df/2) − ½ log(π df) − log scale − ½ (df + 1) log(1 + θ²/(df scale²)).
    df → ∞ is Normal(scale), df = 1 Cauchy; the variance, df/(df − 2) scale², is finite for df > 2. It is not concave:
    the MAP need not be one point. Methods that need a Normal prior refuse this one.
    """

    df: float = 3.0
    scale: float = 1.0
    over: ClassVar[Over] = "weights"

    def __post_init__(self) -> None:
        _check_above_0("StudentT prior: df is a finite number of degrees of freedom", self.df)
        _check_above_0("StudentT prior: scale is a finite number", self.scale)

    def log_prob(self, theta: Tensors) -> Tensor:
        """Σ log t(θ | df, 0, scale): named [M, ...] -> [M]."""
        wide = self.df**0.5 * self.scale
        sums = torch.stack([(t.flatten(1) / wide).square().log1p().sum(1) for t in theta.values()]).sum(0)  # [M]
        n = sum(t[0].numel() for t in theta.values())
        peak = math.lgamma((self.df + 1) / 2) - math.lgamma(self.df / 2) - 0.5 * math.log(math.pi) - math.log(wide)
        return -0.5 * (self.df + 1) * sums + n * peak

    def to_json(self) -> dict[str, Any]:
        return {"name": "student_t", "df": float(self.df), "scale": float(self.scale)}


@dataclass(frozen=True, kw_only=True)
class GP:
    """A Gaussian process, a prior over functions: f ~ GP(0, scale² k(|x − x'| / lengthscale)).

    lengthscale: how far apart in x values of f are alike, in the units of x handed in; one for all inputs or one each.
    scale: the sd of f anywhere, in the units of y handed in. The mean is 0 in those units too: subtract from y what
        you expect of it.
    kernel: "rbf" exp(−r²/2), infinitely smooth; "matern52" (1 + √5 r + 5r²/3) exp(−√5 r), twice differentiable.

    It is for posteriors over functions, such as `gp`; one over weights refuses it. Several targets are independent.
    """

    lengthscale: float | tuple[float, ...]
    scale: float
    kernel: KernelName = "rbf"
    over: ClassVar[Over] = "functions"

    def __post_init__(self) -> None:
        if isinstance(self.lengthscale, (tuple, list)):
            object.__setattr__(self, "lengthscale", tuple(self.lengthscale))
        lengths = self.lengthscale if isinstance(self.lengthscale, tuple) else (self.lengthscale,)
        if not lengths or not all(is_number(length) and length > 0 for length in lengths):
            raise InvalidOption(
                f"GP prior: lengthscale is a finite number above 0, or one for each input, got {self.lengthscale!r}"
            )
        if not (is_number(self.scale) and self.scale > 0):
            raise InvalidOption(f"GP prior: scale is a finite standard deviation above 0, got {self.scale!r}")
        if self.kernel not in get_args(KernelName):
            raise InvalidOption(f"GP prior: kernel is one of {', '.join(get_args(KernelName))}, got {self.kernel!r}")

    def mean(self, x: Tensor) -> Tensor:
        """0: [N, ...] -> [N, 1]."""
        return x.new_zeros(len(x), 1, dtype=torch.float64)

    def gram(self, a: Tensor, b: Tensor) -> Tensor:
        """scale² k of flattened rows, in float64: [N, ...], [P, ...] -> [N, P]."""
        scaled = [rows.flatten(1).to(torch.float64) / self.lengths(rows[0].numel()).to(rows.device) for rows in (a, b)]
        return self.scale**2 * correlation(self.kernel, squared_distances(scaled[0], scaled[1]))

    def lengths(self, n_inputs: int) -> Tensor:
        """The lengthscale of every input, in float64: [D]."""
        if isinstance(self.lengthscale, tuple) and len(self.lengthscale) != n_inputs:
            raise InvalidData(
                f"GP prior: rows have {n_inputs} inputs, and there are {len(self.lengthscale)} lengthscales; pass one "
                "for each, or one number for all"
            )
        return torch.tensor(self.lengthscale, dtype=torch.float64).expand(n_inputs)

    def log_prob(self, theta: Tensors) -> Tensor:
        """Refused: weights have no density under it."""
        raise InvalidOption("GP is a prior over functions and has no density of weights; pass prior=Normal(scale=…)")

    def to_json(self) -> dict[str, Any]:
        lengths = self.lengthscale
        own = [float(length) for length in lengths] if isinstance(lengths, tuple) else float(lengths)
        return {"name": "gp", "lengthscale": own, "scale": float(self.scale), "kernel": self.kernel}


class Draw(Protocol):
    """Functions drawn at rows: x [N, ...] in the units handed in, n of them -> [n, N, T], or [n, N] for all targets.

    All chance comes from `rng`, so that the same seed gives the same bits.
    """

    def __call__(self, x: Tensor, n: int, rng: torch.Generator, /) -> Tensor: ...


@dataclass(frozen=True)
class FunctionSamples:
    """A prior over functions that can be drawn and has no formula: a simulator, a process with kinks, a network.

    draw: a function (x [N, ...], n, rng: torch.Generator) -> [n, N, T], or [n, N] for targets that are alike, in the
        units of x and y handed in; of classes T are the logits.
    draws: how many functions a step draws, of whose mean and covariance S at its rows it makes use.
    shrinkage: λ of (1 − λ) S + λ diag(S), which has an inverse where S of few draws has none.

    It is for `fbnn`, which knows it by those moments; others refuse it. `draw` is code: a file does not keep it, and
    the service does not take it. What was fitted under it is saved, read and predicts as any other; to fit again,
    pass it again.
    """

    draw: Draw
    _: KW_ONLY
    draws: int = 500
    shrinkage: float = 0.0
    over: ClassVar[Over] = "functions"

    def __post_init__(self) -> None:
        if not callable(self.draw):
            raise InvalidOption(f"FunctionSamples takes a function (x, n, rng) -> [n, N, T], got {self.draw!r}")
        if whole(self.draws, "FunctionSamples prior: draws") < 2:
            raise InvalidOption(f"FunctionSamples prior: a covariance needs at least 2 draws, got {self.draws}")
        if not (is_number(self.shrinkage) and 0 <= self.shrinkage <= 1):
            raise InvalidOption(f"FunctionSamples prior: shrinkage is from 0 to 1, got {self.shrinkage!r}")

    @property
    def is_lost(self) -> bool:
        """Whether it was read from a file, which does not hold the function."""
        return self.draw is _lost

    def moments(self, x: Tensor, n_targets: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """Mean and covariance of the draws in float64, targets apart: [N, ...] -> [T or 1, N], [T or 1, N, N]."""
        with torch.no_grad():
            drawn = self.draw(x, self.draws, rng)
        shapes = [(self.draws, len(x)), (self.draws, len(x), n_targets)]
        if not isinstance(drawn, Tensor) or tuple(drawn.shape) not in shapes:
            came = list(drawn.shape) if isinstance(drawn, Tensor) else type(drawn).__name__
            raise InvalidData(
                f"FunctionSamples: expected {self.draws} functions at {len(x)} rows as a tensor [n, N] or [n, N, T], "
                f"{' or '.join(str(list(shape)) for shape in shapes)}, got {came}"
            )
        if not bool(drawn.isfinite().all()):
            raise InvalidData("FunctionSamples: the function drew a NaN or an infinity; check it on wider rows")
        values = drawn.to(x.device, torch.float64).reshape(self.draws, len(x), -1).permute(2, 0, 1)  # [T, n, N]
        mean = values.mean(1)
        apart = values - mean[:, None]
        covariance = apart.mT @ apart / (self.draws - 1)
        largest = covariance.diagonal(dim1=-2, dim2=-1).amax(-1)  # [T]
        if len(x) and bool((largest <= _SAME * values.square().amax((1, 2))).any()):
            raise InvalidData(
                f"FunctionSamples: the draws do not vary at {len(x)} rows, so that they say nothing of how far a "
                f"function may be from their mean; draw has to return {self.draws} functions that differ from each "
                "other, for each target"
            )
        own = torch.diag_embed(covariance.diagonal(dim1=-2, dim2=-1))
        return mean, torch.lerp(covariance, own, float(self.shrinkage))

    def log_prob(self, theta: Tensors) -> Tensor:
        """Refused: weights have no density under it."""
        raise InvalidOption(
            "FunctionSamples is a prior over functions and has no density of weights; pass prior=Normal(scale=…)"
        )

    def to_json(self) -> dict[str, Any]:
        """Its numbers: the function is code."""
        return {"name": _SAMPLES, "draws": int(self.draws), "shrinkage": float(self.shrinkage)}


_SAMPLES = "function_samples"
_SAME = 1e-24  # variance of draws as a share of their largest square, below which they differ by rounding alone


def _lost(x: Tensor, n: int, rng: torch.Generator, /) -> Tensor:
    """In place of a function that a file does not hold."""
    raise InvalidOption("the prior was a function, which a file does not hold; pass prior=FunctionSamples(…) again")


DEFAULT_PRIOR: Final = Normal(scale=1.0)  # itself, where the caller named none; an equal one of the caller's is another

PRIORS: dict[str, type[Any]] = {
    "normal": Normal,
    "double_exponential": DoubleExponential,
    "student_t": StudentT,
    "gp": GP,
}


def checked_prior(prior: Prior | None) -> Prior | None:
    """A prior as it was handed in, or a refusal of what is none."""
    if prior is not None and (isinstance(prior, type) or not hasattr(prior, "log_prob")):
        raise InvalidOption(
            "prior has to be Normal(scale=…), DoubleExponential(scale=…) or StudentT(df=…, scale=…), or None for "
            f"maximum likelihood, got {prior!r}"
        )
    return prior


def prior_from_json(spec: Mapping[str, Any] | None) -> Prior | None:
    """The inverse of `to_json`; None is maximum likelihood."""
    if spec is None:
        return None
    if spec.get("name") == _SAMPLES:
        return FunctionSamples(_lost, **{k: v for k, v in spec.items() if k != "name"})
    if spec.get("name") not in PRIORS:
        raise InvalidOption(f"unknown prior {spec.get('name')!r}; there is {', '.join(PRIORS)}")
    made: Prior = PRIORS[spec["name"]](**{k: v for k, v in spec.items() if k != "name"})
    return made
