"""Joint outcomes of several rows, enumerated or drawn, and the information that one more row would add."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from threading import local

import torch
from torch import Tensor

from bensemble_core.acquisition.progress import Tick, silent
from bensemble_core.predictive import CategoricalPredictive, mixtures
from bensemble_core.threads import in_order

_CELLS = 1 << 20  # probabilities held at once: 8 MB
_DTYPE = {True: torch.float64, False: torch.float32}
# p = 0 counts as this, so that 0 · log 0 is next to nothing; far above what a product with a belief could make 0 again
_FLOOR = {torch.float64: 1e-300, torch.float32: 1e-30}


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcomes:
    """Labels y₁…y_b that the rows picked so far could get, and what the members' weights would be after each.

    An outcome is kept as its chance and its belief, p(member | y₁…y_b) ∝ w_m Π_j p_m(y_j): normalised at every step, so
    nothing underflows however long the batch. All S ≤ C^b of them in float64 while they fit (`is_exact`), else a
    sample in float32, whose rounding is far below the noise of the draws.
    """

    chance: Tensor  # [S], sums to 1
    belief: Tensor  # [S, M], each row sums to 1
    is_exact: bool = True

    @classmethod
    def none(cls, log_weights: Tensor) -> "Outcomes":
        """Before the first pick: one outcome, and the members' own weights [M]."""
        weights = log_weights.exp()
        return cls(chance=weights.new_ones(1), belief=weights[None])

    def then(self, probs: Tensor, limit: int, u: float, tick: Tick = silent) -> "Outcomes":
        """After one more row, predicted as probs [M, C]: every outcome times every class, or `limit` draws of these.

        Systematic draws (Kitagawa 1996): the points (u + i)/limit on the cumulated chances, u in (0, 1); each outcome
        is drawn in proportion to its chance, and equal draws are kept once. The S·C chances are looked at twice, some
        at a time, and never held together: first for how many there are and what they sum to, then to be taken.
        """
        n_members, n_classes = probs.shape
        sums, n_possible = [0.0], 0
        for _, chance in self._chances(probs):
            tick()
            sums.append(sums[-1] + float(chance.sum()))
            n_possible += int(chance.count_nonzero())
        is_drawn = n_possible > limit
        is_exact = self.is_exact and not is_drawn
        belief = self.belief.new_empty(min(n_possible, limit), n_members, dtype=_DTYPE[is_exact])
        shares, n_kept, n_drawn = [], 0, 0
        points = (torch.arange(limit, dtype=probs.dtype, device=probs.device) + u) * (sums[-1] / limit)
        for (first, chance), (below, above) in zip(self._chances(probs), pairwise(sums), strict=True):
            tick()
            kept = chance.nonzero()[:, 0]
            share = chance[kept]
            if is_drawn and kept.numel():
                stop = limit if above == sums[-1] else int(torch.searchsorted(points, above, right=True))
                drawn = torch.searchsorted(below + share.cumsum(0), points[n_drawn:stop]).clamp(max=kept.numel() - 1)
                counts = torch.bincount(drawn, minlength=kept.numel())
                kept, share, n_drawn = kept[counts > 0], counts[counts > 0].to(share), max(n_drawn, stop)
            weights = self.belief[first + kept // n_classes].double() * probs.T[kept % n_classes]  # [n, M]
            belief[n_kept : n_kept + kept.numel()] = weights / weights.sum(1, keepdim=True)
            shares.append(share)
            n_kept += kept.numel()
        chance = torch.cat(shares)
        return Outcomes(chance=(chance / chance.sum()).to(belief.dtype), belief=belief[:n_kept], is_exact=is_exact)

    def _chances(self, probs: Tensor) -> Iterator[tuple[int, Tensor]]:
        """The chance of an outcome and a class, some outcomes at a time: the first one's number and [n·C] float64."""
        step = max(1, _CELLS // probs.numel())
        for at in range(0, self.chance.numel(), step):
            known = self.belief[at : at + step].double() @ probs
            yield at, (self.chance[at : at + step].double()[:, None] * known).flatten()

    def block_rows(self, n_members: int, n_classes: int) -> int:
        """How many rows `gains` takes at once."""
        return max(1, _CELLS // (n_classes * max(n_members, self.chance.numel())))

    def gains(
        self,
        predictive: CategoricalPredictive,
        at: Tensor,
        noise: Tensor | None = None,
        tick: Tick = silent,
        n_threads: int = 1,
    ) -> Tensor:
        """I(y; member | y₁…y_b) for the rows at the positions `at`: [n] -> [n] float64.

        Σ_s chance_s H[Σ_m belief_sm p_m(y)] − Σ_m w_m H[p_m], which is the joint information of the batch with the row
        minus that of the batch without it: the entropy of y₁…y_b is common to all rows and drops out. The second sum is
        `noise` [N], the same for every batch. Blocks of rows are shared by `n_threads`, with the same bits.
        """
        n_classes, n_outcomes, dtype = predictive.logits.shape[2], self.chance.numel(), self.belief.dtype
        rows = self.block_rows(predictive.n_members, n_classes)
        noise = expected_entropies(predictive, at, tick) if noise is None else noise[at]
        most = min(rows, at.numel()) * n_classes
        together = min(n_outcomes, max(1, _CELLS // max(1, most)))  # outcomes, where all are too many even for one row
        held = local()

        @torch.no_grad()  # which no thread has from the one that started it
        def block(some: Tensor) -> Tensor:
            if not hasattr(held, "cells"):
                held.cells = [self.belief.new_empty(most * together) for _ in range(2)]
            probs = _columns(predictive, some).clamp(min=_FLOOR[dtype]).to(dtype)  # [n·C, M]
            total = probs.new_zeros(probs.shape[0], dtype=torch.float64)
            for start in range(0, n_outcomes, together):
                tick()
                belief, chance = self.belief[start : start + together], self.chance[start : start + together]
                shape = probs.shape[0], belief.shape[0]
                mixed, nats = (cells[: shape[0] * shape[1]].view(shape) for cells in held.cells)
                torch.mm(probs, belief.T, out=mixed)  # [n·C, S]
                torch.log(mixed, out=nats).mul_(mixed)
                total -= nats @ chance
            return total.reshape(-1, n_classes).sum(1)

        blocks = torch.split(at, rows)
        found = in_order(block, blocks, min(n_threads, len(blocks)) if at.device.type == "cpu" else 1)
        return torch.cat([torch.zeros_like(noise[:0]), *found]) - noise


def expected_entropies(predictive: CategoricalPredictive, at: Tensor, tick: Tick = silent) -> Tensor:
    """Σ_m w_m H[p_m] of the rows at the positions `at`, what no knowledge of the member takes away: [n] float64."""
    found = [torch.zeros(0, dtype=torch.float64, device=at.device)]
    for some in torch.split(at, max(1, _CELLS // predictive.logits[:, :1].numel())):
        tick()
        log_probs = mixtures.log_softmax(predictive.logits[:, some].double())  # [M, n, C]
        found.append(mixtures.member_average(mixtures.categorical_entropy(log_probs), predictive.log_weights))
    return torch.cat(found)


def _columns(predictive: CategoricalPredictive, at: Tensor) -> Tensor:
    """Class probabilities in float64, members side by side: [n·C, M]."""
    logits = predictive.logits[:, at].double().permute(1, 2, 0).contiguous()  # [n, C, M]
    return torch.softmax(logits, 1).flatten(0, 1)


def probabilities(predictive: CategoricalPredictive, row: int) -> Tensor:
    """One row's class probabilities by each member, in float64: [M, C]."""
    return mixtures.log_softmax(predictive.logits[:, row, None].double())[:, 0].exp()
