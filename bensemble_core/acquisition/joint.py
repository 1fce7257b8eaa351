"""What several rows tell together: their joint outcomes, enumerated or drawn, and what one more row would add."""

from dataclasses import dataclass

import torch
from torch import Tensor

from bensemble_core import mixtures
from bensemble_core.acquisition.progress import Tick, silent
from bensemble_core.predictive import CategoricalPredictive

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

    def then(self, probs: Tensor, limit: int, u: float) -> "Outcomes":
        """After one more row, predicted as probs [M, C]: every outcome times every class, or `limit` draws of these.

        Systematic draws (Kitagawa 1996): the points (u + i)/limit on the cumulated chances, u in (0, 1); each outcome
        is drawn in proportion to its chance, and equal draws are kept once.
        """
        before = self.belief.double()
        chance = (self.chance.double()[:, None] * (before @ probs)).flatten()  # [S·C]
        kept = chance.nonzero()[:, 0]
        share, is_exact = chance[kept], self.is_exact
        if kept.numel() > limit:
            edges = share.cumsum(0)
            points = (torch.arange(limit, dtype=edges.dtype, device=edges.device) + u) * (edges[-1] / limit)
            drawn = torch.searchsorted(edges, points).clamp(max=kept.numel() - 1)
            counts = torch.bincount(drawn, minlength=kept.numel())
            kept, share, is_exact = kept[counts > 0], counts[counts > 0].to(share), False
        n_classes = probs.shape[1]
        belief = before[kept // n_classes] * probs.T[kept % n_classes]  # [S', M]
        belief, share, dtype = belief / belief.sum(1, keepdim=True), share / share.sum(), _DTYPE[is_exact]
        return Outcomes(chance=share.to(dtype), belief=belief.to(dtype), is_exact=is_exact)

    def block_rows(self, n_members: int, n_classes: int) -> int:
        """How many rows `gains` takes at once."""
        return max(1, _CELLS // (n_classes * max(n_members, self.chance.numel())))

    def gains(
        self, predictive: CategoricalPredictive, at: Tensor, noise: Tensor | None = None, tick: Tick = silent
    ) -> Tensor:
        """I(y; member | y₁…y_b) for the rows at the positions `at`: [n] -> [n] float64.

        Σ_s chance_s H[Σ_m belief_sm p_m(y)] − Σ_m w_m H[p_m], which is the joint information of the batch with the row
        minus that of the batch without it: the entropy of y₁…y_b is common to all rows and drops out. The second sum is
        `noise` [N], the same for every batch.
        """
        n_classes, n_outcomes, dtype = predictive.logits.shape[2], self.chance.numel(), self.belief.dtype
        rows = self.block_rows(predictive.n_members, n_classes)
        noise = expected_entropies(predictive, at, tick) if noise is None else noise[at]
        mixed, nats = (self.belief.new_empty(min(rows, at.numel()) * n_classes, n_outcomes) for _ in range(2))
        found = [torch.zeros_like(noise[:0])]
        for some in torch.split(at, rows):
            tick()
            probs = _columns(predictive, some).clamp(min=_FLOOR[dtype]).to(dtype)  # [n·C, M]
            size = probs.shape[0]
            torch.mm(probs, self.belief.T, out=mixed[:size])  # [n·C, S]
            torch.log(mixed[:size], out=nats[:size]).mul_(mixed[:size])
            found.append(-(nats[:size] @ self.chance).double().reshape(-1, n_classes).sum(1))
        return torch.cat(found) - noise


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
