"""From scores to k rows: the best ones, or a random draw that prefers good ones."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from bensemble_core.acquisition import counter
from bensemble_core.acquisition.entries import Candidates, Context, Picks
from bensemble_core.acquisition.selections.tie_break import Floats, highest, largest, ranks
from bensemble_core.errors import InvalidOption, NotFinite
from bensemble_core.options import STRICT

Doubles: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class TopK:
    """The k highest scores, best first; equal scores in an order that the seed draws.

    Of random scores (`random`) they are a uniform draw, and the measure of pick i of n rows is its probability given
    the earlier ones, 1/(n − i + 1); else it is the score.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    name: Literal["top_k"] = "top_k"

    def __call__(self, candidates: Candidates, k: int, context: Context) -> Picks:
        scores, rows = checked_scores(candidates, k)
        picked = highest(scores, k, context.seed, rows)
        if context.is_uniform:
            return _picks(rows[picked], "probability", 1 / (rows.size - np.arange(k, dtype=np.float64)))
        return _picks(rows[picked], "score", scores[picked])


@dataclass(frozen=True, kw_only=True)
class Power:
    """Rows drawn at random, those with higher scores more often: cheap diversity.

    One after another without replacement, a row with probability ∝ exp(β u).

    Stochastic batch acquisition (Kirsch et al. 2023, table 1): u = log s (`power`, s^β), u = s (`softmax`) or
    u = −log r (`softrank`, r = 1 for the highest score, equal scores ranked by the seed), drawn at once as the k
    highest of β u + Gumbel noise. In the `power` form rows with score 0 have probability 0 and follow, in a seeded
    order, only when the others run out. A row's noise is a function of (seed, row), so rows that are excluded or added
    elsewhere don't change it. The measure of a pick is its probability given the earlier ones.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    name: Literal["power"] = "power"
    beta: float = field(
        default=1.0,
        metadata={"ge": 0.0, "le": 1000.0, "description": "0 is uniform over positive scores, large is top_k"},
    )
    form: Literal["power", "softmax", "softrank"] = field(
        default="power",
        metadata={"description": "probability ∝ score^β, exp(β·score) or rank^-β; power needs scores of at least 0"},
    )

    def __call__(self, candidates: Candidates, k: int, context: Context) -> Picks:
        scores, rows = checked_scores(candidates, k)
        noise = counter.gumbel(context.seed, rows, counter.POWER_NOISE)
        utility = self._utility(scores.astype(np.float64), rows, context.seed)
        possible = np.flatnonzero(utility > -np.inf)
        first = min(k, possible.size)
        picked, chances = _draw(self.beta * utility[possible], noise[possible], first)
        picked = possible[picked]
        if first < k:
            zero = np.flatnonzero(utility == -np.inf)
            later, later_chances = _draw(np.zeros(zero.size), noise[zero], k - first)
            picked, chances = np.concatenate([picked, zero[later]]), np.concatenate([chances, later_chances])
        return _picks(rows[picked], "probability", chances)

    def _utility(self, scores: Doubles, rows: npt.NDArray[np.int64], seed: int) -> Doubles:
        """u: [n] -> [n]."""
        if self.form == "softmax":
            return scores
        if self.form == "softrank":
            return -np.log(ranks(scores, seed, rows))
        if scores.size and scores.min() < 0:
            at = int(scores.argmin())
            raise InvalidOption(
                f"power needs scores of at least 0, row {rows[at]} has {scores[at]:.6g}; "
                "use an information or disagreement score, form softmax or softrank, or selection top_k"
            )
        logs = np.full(scores.size, -np.inf)
        np.log(scores, out=logs, where=scores > 0)
        return logs


def _draw(log_weights: Doubles, noise: Doubles, k: int) -> tuple[npt.NDArray[np.int64], Doubles]:
    """Gumbel top-k: k positions in the order of a draw without replacement, and each one's chance given the earlier."""
    picked = largest(log_weights + noise, k)
    if k == 0:
        return picked, np.empty(0)
    weights = np.exp(log_weights - log_weights.max())
    rest = weights.copy()
    rest[picked] = 0.0
    left = rest.sum() + weights[picked][::-1].cumsum()[::-1]  # Σ over those not drawn before, added and never taken off
    chances = np.zeros(k)  # a weight that underflows has, to double precision, no chance
    np.divide(weights[picked], left, out=chances, where=left > 0)
    return picked, chances


def check_count(candidates: Candidates, k: int) -> None:
    n_rows = candidates.rows.numel()
    if not 0 <= k <= n_rows:
        raise InvalidOption(f"k = {k} rows were asked for and there are {n_rows} to choose from")


def checked_scores(candidates: Candidates, k: int) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Finite scores [n] and their pool rows [n], of which k can be chosen."""
    if candidates.scores is None:
        raise InvalidOption("this selection needs a score for every candidate")
    check_count(candidates, k)
    scores, rows = candidates.scores.detach().cpu().numpy(), candidates.rows.cpu().numpy()
    finite = np.isfinite(scores)
    if not finite.all():
        at = int(finite.argmin())
        raise NotFinite(f"row {rows[at]} has the score {scores[at]}; a score must be finite")
    return scores, rows


def _picks(rows: npt.NDArray[np.int64], measure: str, values: Floats) -> Picks:
    return Picks(rows=torch.from_numpy(rows), measure=measure, values=torch.from_numpy(values.astype(np.float64)))
