"""How well a trained ensemble does: on the rows that are there to be measured on, and by its labels alone."""

import math
from dataclasses import replace
from typing import Any

import torch

import bensemble_core as bc
from app.db.tables import Project
from app.ensembles.calibrate import Calibrated
from app.ensembles.collect_labels import FEW, Part, Snapshot, gather
from app.ensembles.estimate import estimate
from app.queue.context import JobContext, storable
from app.services import Services

MEASURED_AT_ONCE = 8192
N_BINS = 10  # of a reliability diagram: few enough to hold some rows each
UNCALIBRATED = ("nll", "ece", "brier", "crps")  # what a scale changes


def measure(
    job: JobContext,
    services: Services,
    project: Project,
    labels: Snapshot,
    calibrated: Calibrated,
    *,
    fitted: "bc.Fitted",
    watermark: int,
) -> dict[str, Any]:
    """The metrics of an ensemble, ready for the database."""
    metrics = measure_rows(job, services, project, labels, calibrated)
    if (told := calibrated.told()) is not None:
        metrics["calibration"] = told
    with job.database.read() as session:
        by_labels = estimate(session, project, labels, fitted, watermark)
    if by_labels is not None:
        metrics["estimate"] = by_labels
        if labels.n_measure == 0:
            metrics["warning"] = (
                "Nothing to measure on: `estimate` has what the labelled rows themselves say, read its `note`. "
                "For better figures add a pool with purpose 'evaluation' and labels."
            )
    return storable(metrics)  # type: ignore[no-any-return]


def measure_rows(
    job: JobContext, services: Services, project: Project, labels: Snapshot, calibrated: Calibrated
) -> dict[str, Any]:
    """Of the calibrated predictions, and beside them what calibration changes, as it was before."""
    if labels.n_measure == 0:
        return {
            "n": 0,
            "measured_on": "none",
            "warning": "Nothing to measure on: add a pool with purpose 'evaluation' and labels.",
        }
    calibration = calibrated.ensemble.calibration
    raw = replace(calibrated.ensemble, calibration=None)
    before, evaluation = bc.metrics.Evaluation(), bc.metrics.Evaluation(n_bins=N_BINS)
    done = 0
    for part in labels.measure:
        for start in range(0, len(part.rows), MEASURED_AT_ONCE):
            piece = slice(start, start + MEASURED_AT_ONCE)
            chunk = Part(data=part.data, rows=part.rows[piece], values=part.values[piece])
            x, y = gather(services, project, [chunk])
            answers = torch.from_numpy(y).to(job.device)
            predicted = raw.predict(x)
            if calibration is None:
                evaluation.add(predicted, answers)
            else:
                before.add(predicted, answers)
                for rows, own in calibrated.by_rows(done, len(y)):
                    evaluation.add(own(predicted.take(rows)), answers[rows])
            done += len(y)
            job.progress(done, labels.n_measure, "measuring")
    errors = {name: error for name, error in evaluation.standard_errors().items() if math.isfinite(error)}
    metrics: dict[str, Any] = {**evaluation.result(), **errors, "measured_on": labels.measured_on}
    if calibration is not None:
        metrics["uncalibrated"] = {name: value for name, value in before.result().items() if name in UNCALIBRATED}
    if project.task["kind"] == "classification":
        metrics |= _by_class(evaluation.by_class(), project.task["classes"])
        metrics["reliability"] = _reliability(evaluation.reliability())
    else:
        metrics["coverage"] = _coverage(evaluation.coverage_curve())
    if labels.measured_on == "holdout" and labels.n_measure < FEW:
        metrics["warning"] = (
            f"Measured on only {labels.n_measure} held-out rows; add a pool with purpose 'evaluation' to trust this."
        )
    return metrics


def _by_class(found: "bc.metrics.ClassMetrics", names: list[str]) -> dict[str, Any]:
    columns = (found.precision.tolist(), found.recall.tolist(), found.n.tolist())
    rows = zip(names, *columns, strict=True)
    told: dict[str, Any] = {"auroc": found.auroc}
    told["classes"] = {name: {"precision": precision, "recall": recall, "n": n} for name, precision, recall, n in rows}
    if found.confusion is not None:
        told["confusion"] = {"classes": names, "counts": found.confusion.tolist()}
    return told


def _reliability(found: "bc.metrics.Reliability") -> list[dict[str, Any]]:
    """Without empty bins."""
    columns = zip(found.confidence.tolist(), found.accuracy.tolist(), found.count.tolist(), strict=True)
    return [{"confidence": sure, "accuracy": right, "n": int(n)} for sure, right, n in columns if n]


def _coverage(found: "bc.metrics.Reliability") -> list[dict[str, Any]]:
    pairs = zip(found.confidence.tolist(), found.accuracy.tolist(), strict=True)
    return [{"expected": level, "observed": share} for level, share in pairs]
