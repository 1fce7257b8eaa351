"""Ensembles, predictions and the learning curve as the API shows them."""

import math
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

import bensemble_core as bc
from app.db import projects
from app.db.tables import Ensemble, EnsembleResult, Prediction, PredictionResult, Project
from app.ensembles.metrics_schema import without_long
from app.ensembles.predict import read_predictions
from app.ensembles.schemas import (
    ClassRow,
    CurvePoint,
    EnsembleOut,
    EvaluationOut,
    LearningCurve,
    PredictionJobOut,
    PredictionOut,
    TrainingOut,
)
from app.errors import Conflict
from app.services import Services
from app.web.job_view import job_state, view_of_job
from app.web.paging import encode_cursor


def ensemble_view(session: Session, ensemble: Ensemble, *, in_list: bool = False) -> EnsembleOut:
    result = session.get(EnsembleResult, ensemble.id)
    shorter = {"metrics": without_long(result.metrics)} if in_list and result is not None else {}
    status, error = job_state(session, ensemble.job_id, result is not None)
    project = session.get_one(Project, ensemble.project_id)
    return EnsembleOut.of(
        ensemble,
        result,
        status=status,
        is_current=projects.current_ensemble_id(session, project) == ensemble.id,
        n_members=(result or ensemble).n_members,
        error=error,
        **shorter,
    )


NOT_MEASURED = "Trained before {what} measured; train again to see it."


def evaluation_view(session: Session, ensemble: Ensemble) -> EvaluationOut:
    result = session.get(EnsembleResult, ensemble.id)
    if result is None:
        raise Conflict(f"this ensemble is not trained; look at its job {ensemble.job_id}")
    metrics, task = result.metrics, session.get_one(Project, ensemble.project_id).task
    notes = [metrics["warning"]] if "warning" in metrics else []
    is_measured = metrics["measured_on"] != "none"
    if is_measured and task["kind"] == "classification" and "reliability" not in metrics:
        notes.append(NOT_MEASURED.format(what="reliability was"))
    if is_measured and task["kind"] == "regression" and "coverage" not in metrics:
        notes.append(NOT_MEASURED.format(what="coverage was"))
    by_name = metrics.get("classes")
    return EvaluationOut(
        ensemble_id=ensemble.id,
        version=ensemble.version,
        measured_on=metrics["measured_on"],
        n=metrics["n"],
        confusion=metrics.get("confusion"),
        classes=None if by_name is None else [ClassRow(name=name, **by_name[name]) for name in task["classes"]],
        reliability=metrics.get("reliability"),
        coverage=metrics.get("coverage"),
        note=" ".join(notes) or None,
    )


AT_ONCE = 1000  # predicted rows a page


def training_view(services: Services, session: Session, *, ensemble: Ensemble) -> TrainingOut:
    return TrainingOut(job=view_of_job(session, ensemble.job_id), ensemble=ensemble_view(session, ensemble))


def prediction_job_view(services: Services, session: Session, *, prediction: Prediction) -> PredictionJobOut:
    job = view_of_job(session, prediction.job_id)
    return PredictionJobOut(job=job, prediction=prediction_page(services, session, prediction))


def prediction_page(
    services: Services, session: Session, prediction: Prediction, start: int = 0, limit: int = AT_ONCE
) -> PredictionOut:
    result = session.get(PredictionResult, prediction.id)
    status, error = job_state(session, prediction.job_id, result is not None)
    items = read_predictions(services, result, start=start, limit=limit) if result else None
    following = encode_cursor(start + limit) if result and start + limit < result.n_rows else None
    return PredictionOut.of(prediction, result, status=status, error=error, items=items, next_cursor=following)


def learning_curve(session: Session, project_id: str) -> LearningCurve:
    query = (
        select(Ensemble, EnsembleResult, EnsembleResult.retrospect["control"]["points"])
        .join(EnsembleResult, EnsembleResult.ensemble_id == Ensemble.id)
        .where(Ensemble.project_id == project_id)
        .order_by(Ensemble.version)
    )
    points = [
        CurvePoint.of(result, ensemble, metrics=with_errors(without_long(result.metrics)), control=control or [])
        for ensemble, result, control in session.execute(query)
    ]
    measured = points[-1].metrics.get("measured_on", "none") if points else "none"
    return LearningCurve(metric_set=measured, points=points)


def with_errors(metrics: dict[str, Any]) -> dict[str, Any]:
    """Metrics of older trainings have no standard errors: of an accuracy it is the binomial one, of an RMSE that of
    Gaussian errors."""
    n = metrics.get("n", 0)
    if n and "accuracy" in metrics:
        return {"accuracy_se": bc.advice.binomial_error(metrics["accuracy"], n), **metrics}
    if n and metrics.get("rmse") is not None:
        return {"rmse_se": metrics["rmse"] / math.sqrt(2 * n), **metrics}
    return metrics
