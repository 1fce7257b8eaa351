"""What an ensemble predicts for rows: M members' categorical or Gaussian distributions, and the mixture they form.

The only place that knows the family: acquisitions, metrics and selections ask these two classes. Nats throughout.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeAlias

import numpy.typing as npt
import torch
from torch import Tensor

from bensemble_core import display
from bensemble_core.display import Described
from bensemble_core.errors import InvalidData, InvalidOption
from bensemble_core.predictive import mixtures

Values: TypeAlias = Tensor | npt.NDArray[Any]
Estimate = Literal["moment_match", "mixture"]
Form = Literal["entropy", "variance"]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Uncertainty(Described):
    """Uncertainty of each row, split into noise of the label (aleatoric) and disagreement of the members (epistemic).

    total = aleatoric + epistemic, each [N] or [N, T]. More labels reduce the epistemic part only.
    """

    total: Tensor
    aleatoric: Tensor
    epistemic: Tensor

    def _facts(self) -> dict[str, object]:
        means = {f"mean_{name}": f"{float(values.mean()):.4g}" for name, values in vars(self).items()}
        return {"shape": list(self.total.shape), **means}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CategoricalPredictive(Described):
    """Class probabilities of N rows by each of M members, and by the mixture that the members form.

    p_m(y = c | x) = softmax(logits)_c, and p̄ = Σ_m w_m p_m. Logits of half precision are converted to float32.
    """

    family: ClassVar[Literal["categorical"]] = "categorical"
    logits: Tensor  # [M, N, C]
    log_weights: Tensor | None = None  # [M], un-normalised; None is equal weights

    def __post_init__(self) -> None:
        if self.logits.ndim != 3:
            raise InvalidData(f"expected logits [members, rows, classes], got shape {tuple(self.logits.shape)}")
        mixtures.check_weights(self.log_weights, self.logits.shape[0])
        object.__setattr__(self, "logits", mixtures.at_least_single(self.logits))

    def _facts(self) -> dict[str, object]:
        weights = None if self.log_weights is None else "unequal"
        sizes = {"members": self.n_members, "rows": self.n_rows, "classes": self.logits.shape[-1]}
        return {**sizes, "weights": weights, **display.kind(self.logits)}

    @property
    def n_members(self) -> int:
        return self.logits.shape[0]

    @property
    def n_rows(self) -> int:
        return self.logits.shape[1]

    @cached_property
    def log_probs(self) -> Tensor:  # [M, N, C]
        return mixtures.log_softmax(self.logits)

    def log_mean(self) -> Tensor:
        """Log-probabilities of the mixture, log p̄: [N, C]."""
        return mixtures.log_mean(self.log_probs, self.log_weights)

    def mean(self) -> Tensor:
        """Class probabilities of the mixture, p̄: [N, C]."""
        return self.log_mean().exp()

    def entropy(self) -> Tensor:
        """Entropy of the mixture, H[p̄] in nats, the total uncertainty: [N]."""
        return mixtures.categorical_entropy(self.log_mean())

    def expected_entropy(self) -> Tensor:
        """Mean entropy of the members, Σ_m w_m H[p_m] in nats, the aleatoric part: [N]."""
        return mixtures.member_average(mixtures.categorical_entropy(self.log_probs), self.log_weights)

    def mutual_information(self) -> Tensor:
        """Information of the label about which member is right, I(y; member) = H[p̄] − Σ_m w_m H[p_m] ≥ 0, nats: [N]."""
        return (self.entropy() - self.expected_entropy()).clamp(min=0)

    def probability_variance(self) -> Tensor:
        """Var_m(p_mc) = Σ_m w_m (p_mc − p̄_c)², of each class on its own (divided by M, not M − 1): [N, C].

        Its root says by how much the members differ about a class. Rows do not mix, so chunks of a large pool give what
        the whole gives; the sum over the classes is the epistemic part of `decompose("variance")`.
        """
        return mixtures.variance(self.log_probs.exp(), self.log_weights)

    def decompose(self, form: Form = "entropy") -> Uncertainty:
        """What is uncertain because the label is noisy, and what because the members disagree: each [N].

        `entropy`, nats: H[p̄] = Σ_m w_m H[p_m] + I(y; member) (Depeweg et al. 2018).
        `variance` of the one-hot label: 1 − Σ_c p̄_c² = Σ_m w_m (1 − Σ_c p_mc²) + Σ_c Var_m(p_c).
        """
        if _checked(form) == "entropy":
            aleatoric, epistemic = self.expected_entropy(), self.mutual_information()
        else:
            probs = self.log_probs.exp()
            aleatoric = mixtures.member_average((probs * (1 - probs)).sum(-1), self.log_weights)
            epistemic = self.probability_variance().sum(-1)
        return Uncertainty(total=aleatoric + epistemic, aleatoric=aleatoric, epistemic=epistemic)

    def log_prob(self, y: Values) -> Tensor:
        """Log-probability of labels under the mixture, log p̄(y): y [N] class indices -> [N]."""
        return self.log_mean().gather(1, self.classes(y)[:, None])[:, 0]

    def votes(self) -> Tensor:
        """Share of the members (by weight) whose most probable class is c, ties to the lower class: [N, C].

        NaN where a member's logits are no distribution (NaN, +inf or nothing but −inf): argmax has a class for them.
        """
        winners = self.logits.argmax(-1)  # [M, N]
        ballots = torch.nn.functional.one_hot(winners, self.logits.shape[-1]).to(self.logits.dtype)  # [M, N, C]
        if self.log_weights is None:  # whole votes are counted before the division: 2 of 5 is 2/5 to the last bit
            shares = ballots.sum(0) / self.n_members
        else:
            shares = mixtures.member_average(ballots, self.log_weights)
        is_sound = self.logits.detach().amax(-1).isfinite().all(0)  # [N]
        return shares.masked_fill(~is_sound[:, None], math.nan)

    def classes(self, y: Values) -> Tensor:
        """`y` (an array will do) as int64 class indices [N], checked against the number of rows and classes."""
        n_classes = self.logits.shape[-1]
        y = torch.as_tensor(y)
        if y.shape != (self.n_rows,) or y.is_floating_point():
            raise InvalidData(f"expected {self.n_rows} whole class indices, got {y.dtype} of shape {tuple(y.shape)}")
        if y.numel() and (int(y.min()) < 0 or int(y.max()) >= n_classes):
            raise InvalidData(f"class indices run from 0 to {n_classes - 1}, got {int(y.min())} to {int(y.max())}")
        return y.to(self.logits.device, torch.int64)

    def take(self, rows: Tensor) -> "CategoricalPredictive":
        """The predictive of some rows: positions or a mask."""
        return replace(self, logits=self.logits[:, rows])

    @classmethod
    def cat(cls, chunks: Iterable["CategoricalPredictive"]) -> "CategoricalPredictive":
        """Chunks of rows from the same members, joined in order."""
        parts = list(chunks)
        return cls(logits=torch.cat([p.logits for p in parts], dim=1), log_weights=parts[0].log_weights)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class GaussianPredictive(Described):
    """Gaussians for the numbers of N rows, one by each of M members, and the mixture that the members form.

    p_m(y | x) = N(μ_m, σ_m²), outputs independent given the member; σ² is observation noise. Half precision is
    converted to float32.
    """

    family: ClassVar[Literal["gaussian"]] = "gaussian"
    means: Tensor  # [M, N] or [M, N, T]
    variances: Tensor  # same shape
    log_weights: Tensor | None = None  # [M], un-normalised; None is equal weights

    def __post_init__(self) -> None:
        shape = tuple(self.means.shape)
        if self.means.ndim not in (2, 3) or self.variances.shape != self.means.shape:
            raise InvalidData(
                "expected means and variances of one shape, [members, rows] or [members, rows, outputs], "
                f"got {shape} and {tuple(self.variances.shape)}"
            )
        mixtures.check_weights(self.log_weights, self.means.shape[0])
        object.__setattr__(self, "means", mixtures.at_least_single(self.means))
        object.__setattr__(self, "variances", mixtures.at_least_single(self.variances))

    def _facts(self) -> dict[str, object]:
        weights = None if self.log_weights is None else "unequal"
        sizes = {"members": self.n_members, "rows": self.n_rows, "outputs": self.n_outputs}
        return {**sizes, "weights": weights, **display.kind(self.means)}

    @property
    def n_members(self) -> int:
        return self.means.shape[0]

    @property
    def n_rows(self) -> int:
        return self.means.shape[1]

    @property
    def n_outputs(self) -> int:
        return math.prod(self.means.shape[2:])

    def mean(self) -> Tensor:
        """Mean of the mixture, Σ_m w_m μ_m: [N] or [N, T]."""
        return mixtures.member_average(self.means, self.log_weights)

    def variance(self) -> Tensor:
        """Variance of the mixture, Var_m(μ_m) + Σ_m w_m σ_m²: [N] or [N, T]."""
        return self.epistemic_variance() + self.aleatoric_variance()

    def epistemic_variance(self) -> Tensor:
        """Variance of the members' means, Var_m(μ_m) (divided by M, not M − 1): [N] or [N, T]."""
        return mixtures.variance(self.means, self.log_weights)

    def aleatoric_variance(self) -> Tensor:
        """Mean noise variance of the members, Σ_m w_m σ_m²: [N] or [N, T]."""
        return mixtures.member_average(self.variances, self.log_weights)

    def entropy(self, *, method: Estimate = "moment_match") -> Tensor:
        """Differential entropy of y, nats: [N].

        `moment_match`: ½ log det 2πe(Cov_epistemic + diag σ̄²), an upper bound. `mixture`: −∫ q log q by quadrature,
        absolute error below 1e-8 (one output only).
        """
        if method == "mixture":
            return mixtures.gaussian_entropy(self._single(self.means), self._single(self.variances), self.log_weights)
        return self._moment_match_information() + self._noise_entropy()

    def expected_entropy(self) -> Tensor:
        """Mean entropy of the members, Σ_m w_m ½ Σ_t log 2πe σ_mt² in nats: [N]."""
        per_member = 0.5 * (1 + mixtures.LOG_2PI + self.variances.log())  # [M, N] or [M, N, T]
        return mixtures.member_average(
            per_member.reshape(self.n_members, self.n_rows, self.n_outputs).sum(-1), self.log_weights
        )

    def mutual_information(self, *, method: Estimate = "moment_match") -> Tensor:
        """Information of the label about which member is right, I(y; member) ≥ 0, nats: [N].

        `moment_match`: ½ log(1 + Var_epistemic/σ̄²), with T outputs ½ log det(I + D^-½ Cov_epistemic D^-½), D = diag σ̄²,
        σ̄² the members' mean noise; not bounded by ln M, so it is of use with few members too; 0 where members
        disagree about the noise alone (sds 1 and 10: 0, by `mixture` .433).
        `mixture`: mixture entropy minus expected entropy, never above ln M (one output only).
        """
        if method == "mixture":
            return (self.entropy(method="mixture") - self.expected_entropy()).clamp(min=0)
        return self._moment_match_information()

    def decompose(self, form: Form = "variance", *, method: Estimate = "moment_match") -> Uncertainty:
        """What is uncertain because the target is noisy, and what because the members disagree.

        `variance`: Σ_m w_m σ_m² + Var_m(μ_m), in squared units of y: each [N] or [N, T]. `entropy`, nats, each [N]:
        with `moment_match` ½ log det 2πe diag σ̄² + mutual information, with `mixture` (one output) Σ_m w_m H[p_m] +
        mutual information; a differential entropy may be negative.
        """
        if _checked(form) == "variance":
            aleatoric, epistemic = self.aleatoric_variance(), self.epistemic_variance()
        elif method == "mixture":
            aleatoric, epistemic = self.expected_entropy(), self.mutual_information(method="mixture")
        else:
            aleatoric, epistemic = self._noise_entropy(), self.mutual_information()
        return Uncertainty(total=aleatoric + epistemic, aleatoric=aleatoric, epistemic=epistemic)

    def log_prob(self, y: Values) -> Tensor:
        """Log-density of a row's outputs under the mixture, log Σ_m w_m Π_t N(y_t; μ_mt, σ_mt²): [N]."""
        density = mixtures.gaussian_log_density(self.targets(y), self.means, self.variances)
        per_member = density.reshape(self.n_members, self.n_rows, self.n_outputs).sum(-1)  # [M, N]
        return mixtures.log_mean(per_member[..., None], self.log_weights)[:, 0]

    def cdf(self, y: Values) -> Tensor:
        """Distribution function F(y) of each output's own mixture: [N] or [N, T]."""
        return mixtures.gaussian_cdf(self.targets(y), self.means, self.variances, self.log_weights)

    def quantile(self, q: float | Sequence[float]) -> Tensor:
        """Quantile F⁻¹(q) of each output's own mixture: [N] or [N, T]; several q give [Q, N] or [Q, N, T]."""
        levels = [q] if isinstance(q, (int, float)) else list(q)
        if not levels or not all(0 < level < 1 for level in levels):
            raise InvalidData(f"quantile levels lie strictly between 0 and 1, got {q}")
        found = [mixtures.gaussian_quantile(v, self.means, self.variances, self.log_weights) for v in levels]
        return found[0] if isinstance(q, (int, float)) else torch.stack(found)

    def targets(self, y: Values) -> Tensor:
        """`y` (an array will do) in the shape of one member's mean, finite; [N] and [N, 1] are the same thing."""
        shape = self.means.shape[1:]
        y = torch.as_tensor(y)
        if y.shape[:1] != shape[:1] or y.numel() != shape.numel():
            raise InvalidData(f"expected targets of shape {tuple(shape)}, got {tuple(y.shape)}")
        if not bool(y.isfinite().all()):
            row = int((~y.reshape(y.shape[0], -1).isfinite()).any(1).nonzero()[0])
            raise InvalidData(f"targets have to be finite, row {row} has {y[row].tolist()}; drop it")
        return y.reshape(shape).to(self.means)

    def take(self, rows: Tensor) -> "GaussianPredictive":
        """The predictive of some rows: positions or a mask."""
        return replace(self, means=self.means[:, rows], variances=self.variances[:, rows])

    @classmethod
    def cat(cls, chunks: Iterable["GaussianPredictive"]) -> "GaussianPredictive":
        """Chunks of rows from the same members, joined in order."""
        parts = list(chunks)
        return cls(
            means=torch.cat([p.means for p in parts], dim=1),
            variances=torch.cat([p.variances for p in parts], dim=1),
            log_weights=parts[0].log_weights,
        )

    def _noise_entropy(self) -> Tensor:
        """½ log det 2πe diag σ̄²: [N]."""
        noise = self.aleatoric_variance().reshape(self.n_rows, self.n_outputs)  # [N, T]
        return 0.5 * (1 + mixtures.LOG_2PI + noise.log()).sum(-1)

    def _moment_match_information(self) -> Tensor:
        if self.n_outputs == 1:
            ratio = self.epistemic_variance() / self.aleatoric_variance()
            return 0.5 * torch.log1p(ratio.reshape(self.n_rows))
        weights = mixtures.normalised(self.log_weights, self.n_members, self.means).exp()  # [M]
        noise = self.aleatoric_variance()
        spread = mixtures.deviations(self.means, self.log_weights) / noise.sqrt() * weights.sqrt()[:, None, None]
        a = spread.transpose(0, 1)  # [N, M, T]; det(I + AᵀA) = det(I + AAᵀ), so the smaller of M and T is factorised
        gram = a @ a.mT if a.shape[1] <= a.shape[2] else a.mT @ a
        identity = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
        factor, failed = torch.linalg.cholesky_ex(gram + identity)  # fails only where a member is not finite
        information = torch.diagonal(factor, dim1=-2, dim2=-1).log().sum(-1).clamp(min=0)
        return information.masked_fill(failed != 0, math.nan)

    def _single(self, values: Tensor) -> Tensor:
        if self.n_outputs != 1:
            raise InvalidData(
                f"the mixture estimate is for one output, this predictive has {self.n_outputs}; "
                'take the estimate "moment_match"'
            )
        return values.reshape(self.n_members, self.n_rows)


Predictive: TypeAlias = CategoricalPredictive | GaussianPredictive


def join(chunks: Iterable[Predictive]) -> Predictive:
    """Chunks of rows from the same members, joined in order."""
    parts = list(chunks)
    if isinstance(parts[0], CategoricalPredictive):
        return CategoricalPredictive.cat(p for p in parts if isinstance(p, CategoricalPredictive))
    return GaussianPredictive.cat(p for p in parts if isinstance(p, GaussianPredictive))


def _checked(form: Form) -> Form:
    if form not in ("entropy", "variance"):
        raise InvalidOption(f'uncertainty comes in the form "entropy" or "variance", got {form!r}')
    return form
