"""How good an ensemble is on its pool, estimated from the labelled rows themselves: no other labels are needed.

Each labelled row is predicted by models that had not seen it (out of fold). Where the rows were picked with known
probabilities, LURE weighs their losses so that they stand for the pool; else the figures are of the chosen rows alone.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sqlalchemy.orm import Session

import bensemble_core as bc
from app.db.tables import Project
from app.ensembles.collect_labels import Snapshot
from app.ensembles.known_picks import KnownPicks, known_picks
from app.projects.targets import to_targets
from app.queue.context import storable
from bensemble_core.predictive.lure import Draws, MeanEstimate, Range, lure_rounds, mean_loss

FEWEST = 10  # picks of known probability from which something is said of the pool
FEW = 50
_OUT_OF_FOLD = "Each row was predicted by models that had not seen it, which are a little worse than the ensemble."


@dataclass(frozen=True, kw_only=True)
class _Losses:
    """Of each row that was trained on, NaN where it was never held out: [N]."""

    by_name: dict[str, NDArray[np.float64]]
    rows: dict[str, NDArray[np.int64]]  # of each pool, rising
    starts: dict[str, int]  # where they begin

    def of(self, name: str, pool_id: str, wanted: NDArray[np.int64]) -> NDArray[np.float64]:
        """NaN of rows that were not trained on."""
        rows = self.rows.get(pool_id, np.zeros(0, dtype=np.int64))
        at = np.searchsorted(rows, wanted)
        found = np.full(len(wanted), np.nan)
        is_there = np.isin(wanted, rows)
        found[is_there] = self.by_name[name][self.starts.get(pool_id, 0) + at[is_there]]
        return found


def estimate(
    session: Session, project: Project, labels: Snapshot, fitted: "bc.Fitted", watermark: int
) -> dict[str, Any] | None:
    """What `metrics.estimate` says, ready for the database; None of a method that keeps no out-of-fold predictions."""
    losses = _losses(project, labels, fitted)
    if losses is None:
        return None
    is_known = ~np.isnan(next(iter(losses.by_name.values())))
    if not is_known.any():
        return None
    known = known_picks(session, project, watermark)
    picked = [draws.losses for pool in _draws(losses, known, "nll") for draws in pool]
    n_picked = sum(int((~np.isnan(some)).sum()) for some in picked)
    if n_picked >= FEWEST:
        found = _figures(losses, lambda name, within: lure_rounds(_draws(losses, known, name), within=within))
        n, population = n_picked, sum(rankings[0].n_rows for rankings in known.pools.values())
        kind, note = "lure", _note_of_pool(n, population, known)
    else:
        found = _figures(losses, lambda name, within: mean_loss(losses.by_name[name][is_known], within=within))
        n = population = int(is_known.sum())
        kind, note = "chosen_rows", _note_of_rows(n, known)
    answer = {"kind": kind, "n": n, "coverage": n / labels.n_train, "population": population, **found, "note": note}
    return storable(answer)  # type: ignore[no-any-return]


def _losses(project: Project, labels: Snapshot, fitted: "bc.Fitted") -> _Losses | None:
    kept = fitted.held_out()
    if kept is None or kept[0].n_rows != labels.n_train:
        return None
    predictive, was_held_out = kept
    parts = [part for part in labels.train if len(part.rows)]
    y = torch.from_numpy(np.concatenate([to_targets(project.task, part.values) for part in parts]))
    y = y.to(was_held_out.device)
    rows = {"nll": -predictive.log_prob(y).double()}
    if isinstance(predictive, bc.CategoricalPredictive):
        rows["error"] = (predictive.log_mean().argmax(-1) != y).double()
    else:
        squares = (predictive.mean() - predictive.targets(y)).square().double()
        rows["square"] = squares.reshape(predictive.n_rows, -1).mean(-1)
    by_name = {name: np.where(was_held_out.cpu(), values.cpu().numpy(), np.nan) for name, values in rows.items()}
    starts = np.cumsum([0, *(len(part.rows) for part in parts)])
    return _Losses(
        by_name=by_name,
        rows={part.data.pool_id: part.rows for part in parts},
        starts={part.data.pool_id: int(start) for part, start in zip(parts, starts, strict=False)},
    )


def _draws(losses: _Losses, known: KnownPicks, name: str) -> list[list[Draws]]:
    return [
        [
            Draws(
                losses=np.where(one.is_inside, losses.of(name, pool_id, one.rows), np.nan),
                probabilities=one.probabilities,
                n_rows=one.n_rows,
                known=losses.of(name, pool_id, one.gone),
            )
            for one in rankings
        ]
        for pool_id, rankings in known.pools.items()
    ]


def _figures(losses: _Losses, mean: Callable[[str, Range], MeanEstimate]) -> dict[str, Any]:
    """Accuracy or RMSE, and NLL, each with its error and interval."""
    found: dict[str, Any] = {}
    if "error" in losses.by_name:
        wrong = mean("error", "share")
        found["accuracy"] = _figure(1 - wrong.value, wrong.standard_error, 1 - wrong.high, 1 - wrong.low)
    else:
        square = mean("square", "positive")
        root = math.sqrt(square.value)
        error = square.standard_error / (2 * root) if root else math.nan
        low, high = (math.sqrt(bound) if bound >= 0 else math.nan for bound in (square.low, square.high))
        found["rmse"] = _figure(root, error, low, high)
    if np.isinf(losses.by_name["nll"]).any():  # an answer that was held to be impossible
        return {**found, "nll": _figure(math.inf, math.nan, math.nan, math.nan)}
    nll = mean("nll", "positive" if "error" in losses.by_name else "any")
    return {**found, "nll": _figure(nll.value, nll.standard_error, nll.low, nll.high)}


def _figure(value: float, error: float, low: float, high: float) -> dict[str, float]:
    return {"value": value, "standard_error": error, "low": low, "high": high}


def _note_of_pool(n: int, population: int, known: KnownPicks) -> str:
    said = [
        f"Of the {population:,} rows that had no label when the first ranking with known probabilities was made, from "
        f"{n:,} labels of rows that such rankings picked, weighed by these probabilities (LURE).",
        _OUT_OF_FOLD,
    ]
    if n < FEW:
        said.append("So few labels say little: look at the intervals.")
    return " ".join([*said, *_note_of_seeds(known)])


def _note_of_rows(n: int, known: KnownPicks) -> str:
    said = [
        f"Of the {n:,} rows that were chosen to be labelled, and not of the pool: rows that a ranking picked, or "
        "somebody chose, are no fair sample.",
        _OUT_OF_FOLD,
        f"From {FEWEST} labels on whose rows were picked by the acquisition random or the selection power, figures of "
        "the pool follow; a pool with purpose 'evaluation' gives the best ones.",
    ]
    return " ".join([*said, *_note_of_seeds(known)])


def _note_of_seeds(known: KnownPicks) -> list[str]:
    if not known.n_seed_again:
        return []
    return [
        f"{known.n_seed_again:,} ranking(s) by power do not count, since an earlier one had their seed: "
        "give each its own, or none."
    ]
