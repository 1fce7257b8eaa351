"""From scores to k rows: the best ones, or a random draw that prefers good ones."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bensemble_core.acquisition import counter
from bensemble_core.acquisition.entries import Candidates, Context
from bensemble_core.errors import InvalidOption, NotFinite
from bensemble_core.options import STRICT


@dataclass(frozen=True, kw_only=True)
class TopK:
    """The k highest scores, best first; equal scores in the order of their rows."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    name: Literal["top_k"] = "top_k"

    def __call__(self, candidates: Candidates, k: int, context: Context) -> Tensor:
        scores, rows = _scores(candidates, k)
        return torch.from_numpy(rows[highest(scores, k)])


@dataclass(frozen=True, kw_only=True)
class Power:
    """k rows drawn one after another without replacement, each with probability ∝ score^β.

    Gumbel top-k on β log s (Kirsch et al. 2023, stochastic batch acquisition): cheap diversity for a batch. Rows with
    score 0 have probability 0 and follow, in a seeded order, only when the others run out. A row's noise is a function
    of (seed, row), so rows that are excluded or added elsewhere don't change it.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    name: Literal["power"] = "power"
    beta: float = field(
        default=1.0,
        metadata={"ge": 0.0, "le": 1000.0, "description": "0 is uniform over positive scores, large is top_k"},
    )

    def __call__(self, candidates: Candidates, k: int, context: Context) -> Tensor:
        scores, rows = _scores(candidates, k)
        if scores.size and scores.min() < 0:
            at = int(scores.argmin())
            raise InvalidOption(
                f"power needs scores of at least 0, row {rows[at]} has {scores[at]:.6g}; "
                "use an information or disagreement score, or selection top_k"
            )
        keys = counter.gumbel(context.seed, rows, counter.POWER_NOISE)
        positive = np.flatnonzero(scores > 0)
        first = min(k, positive.size)
        logs = np.log(scores[positive].astype(np.float64))
        picked = positive[highest(self.beta * logs + keys[positive], first)]
        if first < k:
            zero = np.flatnonzero(scores == 0)
            picked = np.concatenate([picked, zero[highest(keys[zero], k - first)]])
        return torch.from_numpy(rows[picked])


def highest(scores: npt.NDArray[np.floating], k: int) -> npt.NDArray[np.int64]:
    """Positions of the k largest, descending, ties by lower position; linear in the number of scores: [n] -> [k]."""
    if k == 0:
        return np.empty(0, dtype=np.int64)
    cut = np.partition(scores, scores.size - k)[scores.size - k]  # the k-th largest
    above = np.flatnonzero(scores > cut)
    level = np.flatnonzero(scores == cut)[: k - above.size]
    chosen = np.concatenate([above, level])
    return chosen[np.argsort(-scores[chosen], kind="stable")].astype(np.int64)  # both parts ascend, so ties keep order


def _scores(candidates: Candidates, k: int) -> tuple[npt.NDArray[np.floating], npt.NDArray[np.int64]]:
    if candidates.scores is None:
        raise InvalidOption("this selection needs a score for every candidate")
    scores, rows = candidates.scores.detach().cpu().numpy(), candidates.rows.cpu().numpy()
    if not 0 <= k <= rows.size:
        raise InvalidOption(f"k = {k} rows were asked for and there are {rows.size} to choose from")
    finite = np.isfinite(scores)
    if not finite.all():
        at = int(finite.argmin())
        raise NotFinite(f"row {rows[at]} has the score {scores[at]}; a score must be finite")
    return scores, rows
