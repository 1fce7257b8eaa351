"""Gather what is drawn of a ranking, while its scores are at hand."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import bensemble_core as bc
from app.rankings.figures import MAX_SAMPLE, Figures, histogram
from app.rankings.score_shards import ShardScores
from bensemble_core.acquisition import resolve_acquisition
from bensemble_core.ranking.kept import column_of
from bensemble_core.ranking.scoring import CHUNK_ROWS

Split = tuple[Tensor, Tensor]  # aleatoric and epistemic [S]
Gather = Callable[[NDArray[np.int64]], NDArray[np.float32]]  # rows -> their inputs [n, ...]

# Scores that are kept of every row and of which the two parts follow, by family: the whole, and the members' part.
PARTS = {
    "categorical": ({"name": "entropy"}, {"name": "bald"}),
    "gaussian": (
        {"name": "predictive_variance", "part": "total"},
        {"name": "predictive_variance", "part": "epistemic"},
    ),
}


def draw_figures(
    scores: Tensor,
    picked: Tensor,
    *,
    excluded: NDArray[np.int64],
    seed: int,
    kept: ShardScores | None,
    ensemble: bc.Ensemble | None,
    gather: Gather,
    tick: Callable[[], None],
) -> Figures:
    """`scores` [N] are the pool's, `picked` [k] the rows chosen. The two parts of the uncertainty are read from what
    scoring has kept; only where it kept nothing the ensemble predicts the sample once more."""
    could_be = np.ones(len(scores), dtype=np.bool_)
    could_be[excluded] = False
    of_candidates = scores[torch.from_numpy(could_be)]
    edges, counts = histogram(of_candidates)
    shown = picked[: MAX_SAMPLE // 2].numpy()
    could_be[picked.numpy()] = False
    others = np.flatnonzero(could_be)
    n_others = min(len(others), MAX_SAMPLE - len(shown))
    drawn = np.random.default_rng(seed).choice(len(others), n_others, replace=False)
    rows = np.concatenate([shown, others[drawn]])
    split = None
    if ensemble is not None:
        split = _from_kept(kept, rows, ensemble.family) or _predicted(ensemble, rows, gather, tick)
    return Figures(
        edges=edges,
        counts=counts,
        picks=scores[picked[:MAX_SAMPLE]].double(),
        n_picked=torch.tensor([len(shown)]),
        rows=torch.from_numpy(rows),
        scores=scores[torch.from_numpy(rows)].double(),
        aleatoric=split[0] if split is not None else None,
        epistemic=split[1] if split is not None else None,
    )


def _from_kept(kept: ShardScores | None, rows: NDArray[np.int64], family: bc.Family) -> Split | None:
    if kept is None or not kept.is_shared:
        return None
    columns = [column_of(resolve_acquisition(part), family) for part in PARTS[family]]
    if None in columns:
        return None
    total, epistemic = (kept.read_rows(rows, column).double() for column in columns if column is not None)
    return _in_units((total - epistemic).clamp(min=0), epistemic, family)


def _predicted(ensemble: bc.Ensemble, rows: NDArray[np.int64], gather: Gather, tick: Callable[[], None]) -> Split:
    parts: list[Split] = []
    for start in range(0, len(rows), CHUNK_ROWS):
        tick()
        predictive = ensemble.predict(gather(rows[start : start + CHUNK_ROWS]))
        found = predictive.decompose("entropy" if predictive.family == "categorical" else "variance")
        n = predictive.n_rows
        parts.append(
            (found.aleatoric.cpu().double().reshape(n, -1).sum(1), found.epistemic.cpu().double().reshape(n, -1).sum(1))
        )
    aleatoric, epistemic = (torch.cat(column) for column in zip(*parts, strict=True))
    return _in_units(aleatoric, epistemic, ensemble.family)


def _in_units(aleatoric: Tensor, epistemic: Tensor, family: bc.Family) -> Split:
    """Nats of classes; of numbers the roots of variances, which are in the units of the labels."""
    return (aleatoric, epistemic) if family == "categorical" else (aleatoric.sqrt(), epistemic.sqrt())
