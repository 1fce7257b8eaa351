"""How sure an ensemble's forecasts may be: one scale, learnt from rows that its training did not see."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch

import bensemble_core as bc
from app.db.tables import Project
from app.ensembles.collect_labels import FEW, Part, Snapshot, gather
from app.projects.create import FOLDS
from app.services import Services
from bensemble_core.predictive.calibration import learn_from_few

Way = Literal["own folds", "folds", "holdout", "none"]
MOST_ROWS = 4_096
MOST_NUMBERS = 2**27  # members × rows × classes held at once: half a gigabyte


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibrated:
    """An ensemble as it predicts and scores from now on, and how it came to that."""

    ensemble: "bc.Ensemble"
    way: Way
    n_rows: int = 0
    halves: "tuple[bc.Calibration, bc.Calibration] | None" = None
    """For even and for odd rows of the hold-out, each learnt from the others: no row measures what it taught."""
    note: str | None = None

    def by_rows(self, start: int, n: int) -> "list[tuple[torch.Tensor, bc.Calibration]]":
        """What calibrates the n measured rows from `start` on, for the metrics: [(rows of these, calibration), …]."""
        rows = torch.arange(n)
        if self.halves is None:
            assert self.ensemble.calibration is not None
            return [(rows, self.ensemble.calibration)]
        return [(rows[(start + rows) % 2 == half], self.halves[half]) for half in (0, 1)]

    def told(self) -> dict[str, Any] | None:
        """For the metrics; None where nothing was asked for."""
        calibration = self.ensemble.calibration
        if calibration is None:
            return None if self.note is None else {"by": "none", "note": self.note}
        return {"by": self.way, "n": self.n_rows, "temperature": calibration.temperature}


def calibrate_ensemble(
    services: Services,
    project: Project,
    labels: Snapshot,
    ensemble: "bc.Ensemble",
    *,
    calibrate: bool | str,
    by_folds: "bc.Calibrated | None",
) -> Calibrated:
    """`by_folds` is what folds gave, where they were asked for. Rows of an evaluation pool are never learnt from."""
    if not calibrate:
        return Calibrated(ensemble=replace(ensemble, calibration=None), way="none")
    if ensemble.calibration is not None:
        return Calibrated(ensemble=ensemble, way="own folds", n_rows=labels.n_train)
    if by_folds is not None:
        if by_folds.n_rows:
            made = replace(ensemble, calibration=by_folds.calibration)
            return Calibrated(ensemble=made, way="folds", n_rows=by_folds.n_rows)
        note = f"Not calibrated: {FOLDS} folds need at least {2 * FOLDS} labels."
        return Calibrated(ensemble=ensemble, way="none", note=note)
    if labels.measured_on == "holdout" and labels.n_measure >= FEW:
        return _by_holdout(services, project, labels, ensemble)
    note = f'Not calibrated: there are fewer than {FEW} held-out rows to learn it from; ask for `calibrate: "folds"`.'
    if labels.measured_on == "evaluation":
        note = 'Not calibrated: rows of an evaluation pool only measure; ask for `calibrate: "folds"`.'
    return Calibrated(ensemble=ensemble, way="none", note=note)


def _by_holdout(services: Services, project: Project, labels: Snapshot, ensemble: "bc.Ensemble") -> Calibrated:
    n_outputs = len(project.task.get("classes", ())) or project.task["outputs"]
    most = max(FEW, min(MOST_ROWS, MOST_NUMBERS // (ensemble.n_members * n_outputs)))
    chosen = np.arange(labels.n_measure)
    if len(chosen) > most:
        chosen = np.unique(np.linspace(0, len(chosen) - 1, most).astype(np.int64))
    parts, start = [], 0
    for part in labels.measure:
        own = chosen[(chosen >= start) & (chosen < start + len(part.rows))] - start
        parts.append(Part(data=part.data, rows=part.rows[own], values=[part.values[i] for i in own]))
        start += len(part.rows)
    x, y = gather(services, project, parts)
    answers = torch.from_numpy(y).to(ensemble.device)
    halves = []
    for half in (1, 0):
        own = np.flatnonzero(chosen % 2 == half)
        halves.append(learn_from_few([(ensemble.predict(x[own]), answers[own])]))
    whole = learn_from_few([(ensemble.predict(x), answers)])
    return Calibrated(
        ensemble=replace(ensemble, calibration=whole), way="holdout", n_rows=len(chosen), halves=(halves[0], halves[1])
    )
