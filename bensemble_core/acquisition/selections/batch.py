"""BatchBALD: the batch whose labels together carry most information about which member is right."""

import itertools
import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from bensemble_core.acquisition import counter
from bensemble_core.acquisition.entries import Candidates, Context, Picks
from bensemble_core.acquisition.progress import Tick, ticking
from bensemble_core.acquisition.selections import shortlist
from bensemble_core.acquisition.selections.joint import Outcomes, expected_entropies, probabilities
from bensemble_core.acquisition.selections.selection import check_count
from bensemble_core.acquisition.selections.tie_break import best
from bensemble_core.errors import InvalidOption, NotFinite
from bensemble_core.options import STRICT
from bensemble_core.predictive import CategoricalPredictive, GaussianPredictive, mixtures
from bensemble_core.threads import one_thread

# Nats; gains that differ by less are equal but for rounding, and the seed decides: of enumerated and of drawn outcomes.
TIE, DRAWN_TIE = 1e-10, 1e-6
MOST_MEMBERS = 1000  # largest ensemble that a note advises
ONE_MEMBER = "one member cannot disagree with itself: no row adds information, and the seed alone decides"


@dataclass(frozen=True, kw_only=True)
class BatchBald:
    """The rows whose labels together carry most information about which member is right, taken one by one.

    Greedily the row that adds most to I(y₁…y_b; member), the information of the whole batch.

    Classification (Kirsch et al. 2019): the joint outcomes of the batch are enumerated while there are at most
    `outcomes` of them, C^(b−1) for the b-th pick. A gain can then only shrink as the batch grows (submodularity), so
    last step's gain bounds this step's and most rows are never looked at again (Minoux 1978). Beyond it `outcomes` of
    them are drawn from the members' mixture, as in the paper's section 3.3.2, and every row is looked at, for a noisy
    gain bounds nothing. Two departures: what is averaged is H[y | y₁…y_b], not the joint entropy, which differs by a
    number common to all rows; and draws are systematic and extended pick by pick, not drawn anew.

    Regression: ½ log det(I + D^-½ Cov_m(μ) D^-½) over the batch, D its noise (moment match; with the covariance of the
    members' predictions it is the black-box batch of Kirsch 2023, the kernel form of Holzmüller et al. 2023).

    Scores only make the short list; bald fits best. Weights of members are respected. The measure of a pick is the
    information it added, in nats; of classes all together at most H[w], and an estimate at most what is left of it.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    name: Literal["batchbald"] = "batchbald"
    outcomes: int = field(
        default=10_000,
        metadata={
            "ge": 1,
            "le": 1_000_000,
            "description": "Joint outcomes of a batch: enumerated up to this many, drawn beyond; memory grows with it",
        },
    )
    short_list: int | None = field(default=None, metadata=shortlist.OPTION)

    def __call__(self, candidates: Candidates, k: int, context: Context) -> Picks:
        check_count(candidates, k)
        predictive = candidates.predictive
        if predictive is None:
            raise InvalidOption("batchbald needs the members' predictions for every candidate; pass predictive=…")
        n_threads = torch.get_num_threads()
        with torch.no_grad(), one_thread():  # of torch's own: blocks of rows have a thread each
            if isinstance(predictive, CategoricalPredictive):
                picked, gains, notes = self._classes(predictive, candidates.rows, k, context, n_threads)
            else:
                picked, gains = covariance_picks(predictive, candidates.rows, k, context)
                notes = _rank_notes(predictive, k)
                _check_finite(torch.tensor(gains), candidates.rows[picked])
        values = torch.tensor(gains, dtype=torch.float64).clamp(min=0)
        rows = candidates.rows.cpu()[torch.tensor(picked, dtype=torch.int64)]
        return Picks(rows=rows, measure="information_gained", values=values, notes=tuple(notes))

    def _classes(
        self, predictive: CategoricalPredictive, rows: Tensor, k: int, context: Context, n_threads: int
    ) -> tuple[list[int], list[float], list[str]]:
        picked, gains, drawn_from = list[int](), list[float](), 0
        ceiling = mixtures.weight_entropy(predictive.log_weights, predictive.n_members)
        tick = ticking(context.report, picked, k)
        log_weights = mixtures.normalised(
            predictive.log_weights, predictive.n_members, predictive.logits[:, :0].double()
        )
        history = [Outcomes.none(log_weights)]  # after 0, 1, … picks
        everyone = torch.arange(predictive.n_rows, device=predictive.logits.device)
        noise = expected_entropies(predictive, everyone, tick)
        bounds = history[0].gains(predictive, everyone, noise, tick, n_threads) if k else torch.empty(0)
        _check_finite(bounds, rows)
        known = torch.zeros_like(everyone)  # how many picks a row's bound takes into account
        for step in range(k):
            tick()
            if step:
                last = picked[-1]
                u = counter.uniform(context.seed, np.array([int(rows[last])]), counter.JOINT_OUTCOMES)[0]
                history.append(history[-1].then(probabilities(predictive, last), self.outcomes, float(u), tick))
                if history[-1].is_exact:
                    _tighten(bounds, known, history, predictive, noise, tick)
                else:
                    history, drawn_from = history[-1:], drawn_from or step + 1
                    left = (bounds > -math.inf).nonzero()[:, 0]
                    bounds[left] = history[-1].gains(predictive, left, noise, tick, n_threads)
            at = best(bounds, TIE if history[-1].is_exact else DRAWN_TIE, context.seed, rows)
            picked.append(at)
            gains.append(max(0.0, min(float(bounds[at]), ceiling - sum(gains))))
            bounds[at] = -math.inf
        notes = _ceiling_notes(predictive.n_members, ceiling, gains, k * math.log(predictive.logits.shape[2]))
        if drawn_from:
            notes.append(
                f"from pick {drawn_from} on the information gained is an estimate from {self.outcomes} drawn outcomes"
            )
        return picked, gains, notes


def _tighten(
    bounds: Tensor,
    known: Tensor,
    history: list[Outcomes],
    predictive: CategoricalPredictive,
    noise: Tensor,
    tick: Tick,
) -> None:
    """Replace bounds by gains, highest first, until no bound that is left reaches the best gain: [n], [n], in place.

    One more pick taken into account costs C times as much, so a row climbs pick by pick, as far as its bound is high.
    """
    highest = -math.inf
    while True:
        is_open = (known < len(history) - 1) & (bounds > -math.inf) & (bounds >= highest - TIE)
        if not is_open.any():
            return
        open_bounds = bounds.masked_fill(~is_open, -math.inf)
        n_picks = int(known[open_bounds.argmax()]) + 1
        alike = (is_open & (known == n_picks - 1)).nonzero()[:, 0]
        outcomes = history[n_picks]
        n_together = min(alike.numel(), outcomes.block_rows(predictive.n_members, predictive.logits.shape[2]))
        some = alike[open_bounds[alike].topk(n_together).indices]
        bounds[some] = outcomes.gains(predictive, some, noise, tick)
        known[some] = n_picks
        if n_picks == len(history) - 1:
            highest = max(highest, float(bounds[some].max()))


def covariance_picks(
    predictive: GaussianPredictive, rows: Tensor, k: int, context: Context
) -> tuple[list[int], list[float]]:
    """k positions that greedily maximise ½ log det(I + Σ_i A_i A_iᵀ), A_i [M, T] = √w_m (μ_m − μ̄)/σ̄; and their gains.

    V_i = (I + Σ_picked A Aᵀ)^-½ A_i is held for every row, so that a gain is ½ log det(I + V_iᵀ V_i); a pick's output v
    changes it by one rank, V ← (I − c v vᵀ) V with (1 − c|v|²)² = 1/(1 + |v|²). O(n M T) a pick, and no [n, n].
    """
    shape = (predictive.n_members, predictive.n_rows, predictive.n_outputs)
    means, noise = predictive.means.double(), predictive.aleatoric_variance().double()
    weights = mixtures.normalised(predictive.log_weights, shape[0], means).exp()
    spread = mixtures.deviations(means, predictive.log_weights) / noise.sqrt()
    v = spread.reshape(shape) * weights.sqrt()[:, None, None]  # [M, n, T]
    identity = torch.eye(shape[2], dtype=v.dtype, device=v.device)
    open_rows = torch.ones(shape[1], dtype=torch.bool, device=v.device)
    picked, gains = list[int](), list[float]()
    tick = ticking(context.report, picked, k)
    for _ in range(k):
        tick()
        if shape[2] == 1:
            gain = 0.5 * torch.log1p(v[..., 0].square().sum(0))
        else:
            gain = 0.5 * torch.logdet(identity + torch.einsum("mnt,mns->nts", v, v))
        at = best(gain.masked_fill(~open_rows, -math.inf), TIE, context.seed, rows)
        picked.append(at)
        gains.append(float(gain[at]))
        open_rows[at] = False
        for output in range(shape[2]):
            one = v[:, at, output].clone()
            size = float(one @ one)
            if size > 0:
                v -= ((1 - 1 / math.sqrt(1 + size)) / size) * one[:, None, None] * torch.tensordot(one, v, 1)
    return picked, gains


def _check_finite(gains: Tensor, rows: Tensor) -> None:
    finite = gains.isfinite()
    if not finite.all():
        at = int((~finite).nonzero()[0])
        raise NotFinite(f"row {int(rows[at])} adds {float(gains[at])} nats; check the ensemble's predictions for it")


def _ceiling_notes(n_members: int, ceiling: float, gains: list[float], most: float) -> list[str]:
    """A note where the picks use up what M members can distinguish; k labels hold `most` nats whoever predicts."""
    k, joint = len(gains), sum(gains)
    if ceiling == 0:
        return [ONE_MEMBER]
    if joint <= 0.9 * ceiling:
        return []
    needed = max(n_members + 1, math.ceil(math.exp(joint / 0.9)))
    enough = max(needed, math.ceil(math.exp(min(most, 20.0) / 0.9)))
    used_up = f"{n_members} members hold at most {ceiling:.4g} nats and these {k} rows use up {joint:.4g}"
    if enough <= MOST_MEMBERS:
        return [
            f"{used_up}: the later picks are noise. More than {needed:,} members are needed, {enough:,} would do for a "
            "batch of this size"
        ]
    if k == 1:
        return [f"{used_up}: more than {needed:,} members are needed to rank such rows"]
    n_sound = max(1, sum(joint_so_far <= 0.9 * ceiling for joint_so_far in itertools.accumulate(gains)))
    return [
        f"{used_up}: the picks after {n_sound} are noise. More than {needed:,} members are needed, up to "
        f"10^{math.ceil(most / 0.9 / math.log(10))} for a batch of this size, which are more than can be trained: ask "
        f"for k = {n_sound} and train again in between, or take the selection power"
    ]


def _rank_notes(predictive: GaussianPredictive, k: int) -> list[str]:
    """The covariance of M members has M − 1 directions, and a pick uses up one an output."""
    weights = predictive.log_weights
    n_members = predictive.n_members if weights is None else int((weights > -math.inf).sum())
    n_outputs = predictive.n_outputs
    if n_members == 1:
        return [ONE_MEMBER]
    n_new = -(-(n_members - 1) // n_outputs)  # picks that can have a direction of their own
    if k <= n_new:
        return []
    many, enough = "ways" if n_members > 2 else "way", k * n_outputs + 1
    instead = f"{enough:,} members or k = {n_new} would do" if enough <= MOST_MEMBERS else f"k = {n_new} would do"
    return [
        f"{n_members} members can differ in {n_members - 1} {many}: from pick {n_new + 1} on a row repeats what "
        f"earlier ones measure, and its gain is that of measuring twice. {instead}"
    ]
