"""Expected predictive information gain: the information of a label about the labels of target rows."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from bensemble_core.acquisition.entries import Rows
from bensemble_core.acquisition.fused import kernels
from bensemble_core.acquisition.progress import Tick, silent
from bensemble_core.acquisition.scores.information import agreed
from bensemble_core.errors import InvalidData, InvalidOption
from bensemble_core.options import STRICT
from bensemble_core.predictive import CategoricalPredictive, GaussianPredictive, Predictive, mixtures

_CELLS = 1 << 17  # numbers of a joint distribution held at once: 1 MB, which stays near the processor
_FLOOR = 1e-150  # p = 0 counts as this, so that a product of two of them has a logarithm
_NEAR = 1e-6  # below this value of 1 − ρ² too many of its digits are rounding


def epig(
    log_probs: Tensor, target_log_probs: Tensor, log_weights: Tensor | None = None, *, tick: Tick = silent
) -> Tensor:
    """Information of a label about those of target rows x*, on average (Bickford Smith et al. 2023).

    [M, N, C], [M, R, C] -> [N]: I(y; y* | x, x*) = H[p̄] + H[p̄*] − H[Σ_m w_m p_m(y) p_m(y*)], at most `bald`, so at
    most H[w]. Against rounding it is kept between 0 and H[w], and exactly 0 where all members predict the same. Both
    come from the same members. Summed in float64 over blocks of rows and target rows, each one matrix product over the
    members, so that no [N, R, C, C] is held.
    """
    log_probs, target_log_probs = (kernels.checked(given, None) for given in (log_probs, target_log_probs))
    mixtures.check_weights(log_weights, log_probs.shape[0])
    if log_probs.shape[0] != target_log_probs.shape[0]:
        raise InvalidData(
            f"rows and target rows are predicted by the same members, got {log_probs.shape[0]} and "
            f"{target_log_probs.shape[0]} of them"
        )
    n_targets = _count_targets(target_log_probs.shape[1])
    # normalised again: probabilities of single precision add up to 1 ± 1e-7, which is no smaller than many a score
    p, q = log_probs.double().log_softmax(-1), target_log_probs.double().log_softmax(-1)
    weights = mixtures.normalised(log_weights, p.shape[0], p).exp()  # [M]
    separate = mixtures.categorical_entropy(mixtures.log_mean(p, log_weights))  # [N]
    separate = separate + mixtures.categorical_entropy(mixtures.log_mean(q, log_weights)).mean()
    p = (weights[:, None, None] * p.exp()).clamp(min=_FLOOR).permute(1, 2, 0).contiguous()  # [N, C, M]
    q = q.exp().clamp(min=_FLOOR)  # [M, R, C]
    cells = p.shape[1] * q.shape[2]
    held = None if p.requires_grad or q.requires_grad else p.new_empty(2, max(_CELLS, cells))
    totals = []
    for rows, targets in _blocks(p.shape[0], n_targets, cells):
        left, together = p[rows.start : rows.stop].flatten(0, 1), p.new_zeros(len(rows))
        for target in targets:
            tick()
            sums = _plogp(left, q[:, target.start : target.stop].flatten(1), held)
            together = together - sums.reshape(len(rows), -1).sum(1)
        totals.append(together)
    if not totals:
        return log_probs.new_empty(0)
    most = mixtures.weight_entropy(log_weights, log_probs.shape[0])
    gained = (separate - torch.cat(totals) / n_targets).clamp(min=0, max=most).to(log_probs.dtype)
    return gained.masked_fill(agreed(log_probs) | agreed(target_log_probs).all(), 0.0)


def _plogp(left: Tensor, right: Tensor, held: Tensor | None) -> Tensor:
    """Σ_j x_ij log x_ij of the product x of both, worked out in the memory `held` unless a gradient is asked for:
    [a, M], [M, b], [2, at least ab] -> [a].
    """
    if held is None:
        joint = left @ right
        return (joint * joint.log()).sum(1)
    shape = left.shape[0], right.shape[1]
    product, nats = (part[: shape[0] * shape[1]].view(shape) for part in held)
    torch.mm(left, right, out=product)
    return torch.log(product, out=nats).mul_(product).sum(1)


def gaussian_epig(predictive: GaussianPredictive, target: GaussianPredictive, *, tick: Tick = silent) -> Tensor:
    """EPIG for regression, (y, y*) replaced by the Gaussian with its moments: -> [N].

    −½ log(1 − ρ²), ρ = Cov_m(μ, μ*) / √((Var_m μ + σ̄²)(Var_m μ* + σ̄*²)); with T outputs −½ log det(I − K Kᵀ), where
    K = L⁻¹ Cov_m(μ, μ*) L*⁻ᵀ and L, L* are Cholesky factors of the rows' own covariances, noise included. Pairs that
    determine each other almost completely, their noise being far below the members' spread, are computed again
    without cancellation (`_information_by_qr`).
    """
    if predictive.n_members != target.n_members:
        raise InvalidData(
            f"rows and target rows are predicted by the same members, got {predictive.n_members} and "
            f"{target.n_members} of them"
        )
    n_targets = _count_targets(target.n_rows)
    parts, target_parts = _parts(predictive), _parts(target)
    a, b = _whitened(*parts), _whitened(*target_parts)  # [N, T, M], [R, T*, M]
    totals = []
    for rows, targets in _blocks(a.shape[0], n_targets, a.shape[1] * max(a.shape[1], b.shape[1])):
        gained = torch.zeros(len(rows), dtype=a.dtype, device=a.device)
        for target_rows in targets:
            tick()
            k = torch.einsum("ntm,rsm->nrts", a[rows.start : rows.stop], b[target_rows.start : target_rows.stop])
            nats, left = _information(k)
            near = ~(left > _NEAR)  # NaN too, where a member is not finite
            if mixtures.can_be_read(near) and bool(near.any()):
                i, j = near.nonzero(as_tuple=True)
                nats, _ = _information(k.masked_fill(near[..., None, None], 0.0))
                one = [part[rows.start + i] for part in parts]
                other = [part[target_rows.start + j] for part in target_parts]
                nats = nats.index_put((i, j), _information_by_qr(one, other))
            gained = gained + nats.sum(1)
        totals.append(gained)
    if not totals:
        return a.new_empty(0)
    gained = (torch.cat(totals) / n_targets).clamp(min=0).to(predictive.means.dtype)
    return gained.masked_fill(agreed(predictive.means) | agreed(target.means).all(), 0.0)


def _information(k: Tensor) -> tuple[Tensor, Tensor]:
    """−½ log det(I − K Kᵀ), and the smallest pivot of that matrix: [..., T, T*] -> [...], [...]."""
    if k.shape[-2] == 1:
        shared = k.square().sum((-2, -1))
        return -0.5 * torch.log1p(-shared), 1 - shared
    identity = torch.eye(k.shape[-2], dtype=k.dtype, device=k.device)
    factor, failed = torch.linalg.cholesky_ex(identity - k @ k.mT)
    pivots = torch.diagonal(factor, dim1=-2, dim2=-1)
    return -pivots.log().sum(-1), pivots.square().amin(-1).masked_fill(failed != 0, 0.0)


def _parts(predictive: GaussianPredictive) -> tuple[Tensor, Tensor]:
    """√w_m (μ_m − μ̄) and σ̄ in float64: [N, T, M], [N, T]."""
    shape = (predictive.n_members, predictive.n_rows, predictive.n_outputs)
    means, noise = predictive.means.double(), predictive.aleatoric_variance().double()
    weights = mixtures.normalised(predictive.log_weights, shape[0], means).exp()
    spread = mixtures.deviations(means, predictive.log_weights).reshape(shape).permute(1, 2, 0) * weights.sqrt()
    return spread, noise.reshape(shape[1:]).sqrt()


def _whitened(spread: Tensor, deviation: Tensor) -> Tensor:
    """L⁻¹(μ_m − μ̄)√w_m, L Lᵀ = Cov_m(μ) + diag σ̄²: [N, T, M]."""
    factor, failed = torch.linalg.cholesky_ex(spread @ spread.mT + torch.diag_embed(deviation.square()))
    whitened: Tensor = torch.linalg.solve_triangular(factor, spread, upper=False)
    return whitened.masked_fill((failed != 0)[:, None, None], math.nan)  # a member that is not finite; the row is named


def _information_by_qr(one: Sequence[Tensor], other: Sequence[Tensor]) -> Tensor:
    """½ log det Σ + ½ log det Σ* − ½ log det of both together, of pairs of rows as `_parts` has them: -> [P].

    ½ log det(A Aᵀ + diag σ²) is the logarithm of the pivots of [Aᵀ; diag σ] made triangular by reflections, in which a
    row that another one repeats leaves its noise and nothing cancels.
    """

    def nats(spread: Tensor, deviation: Tensor) -> Tensor:
        triangle = torch.linalg.qr(torch.cat([spread.mT, torch.diag_embed(deviation)], 1)).R
        return torch.diagonal(triangle, dim1=-2, dim2=-1).abs().log().sum(-1)

    return nats(*one) + nats(*other) - nats(*(torch.cat(both, 1) for both in zip(one, other, strict=True)))


def _blocks(n_rows: int, n_targets: int, cells: int) -> Iterator[tuple[range, list[range]]]:
    """Blocks of rows, each with all blocks of target rows; `cells` numbers for a pair of rows."""
    pairs = max(1, _CELLS // cells)
    step = max(1, min(n_targets, math.isqrt(pairs)))
    targets = [range(at, min(at + step, n_targets)) for at in range(0, n_targets, step)]
    for at in range(0, n_rows, max(1, pairs // step)):
        yield range(at, min(at + max(1, pairs // step), n_rows)), targets


def _count_targets(n_targets: int) -> int:
    if n_targets == 0:
        raise InvalidData("the target set has no rows; epig is an average over at least one")
    return n_targets


@dataclass(frozen=True, kw_only=True)
class Epig:
    """Expected information of the label about the labels of a target set: rows that help to predict those."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    name: Literal["epig"] = "epig"


def score_epig(predictive: Predictive, options: Epig, rows: Rows) -> Tensor:
    target = rows.target
    if target is None:
        raise InvalidOption("epig needs a target set; pass target=…, the rows whose labels are to be predicted well")
    if isinstance(predictive, CategoricalPredictive) and isinstance(target, CategoricalPredictive):
        return epig(predictive.log_probs, target.log_probs, predictive.log_weights, tick=rows.tick)
    if isinstance(predictive, GaussianPredictive) and isinstance(target, GaussianPredictive):
        return gaussian_epig(predictive, target, tick=rows.tick)
    raise InvalidData(
        f"the rows' predictive is {predictive.family} and the target's {target.family}; both come from one ensemble"
    )


def epig_ceiling(options: Epig, family: str, log_weights: Tensor | None, n_members: int) -> float | None:
    """H[w] (ln M with equal weights), as for `bald`; the Gaussian form has none."""
    return None if family == "gaussian" else mixtures.weight_entropy(log_weights, n_members)
