"""Ensembles, predictions and the learning curve as the API shows them."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db import projects
from app.db.tables import Ensemble, EnsembleResult, Job, Prediction, PredictionResult, Project
from app.ensembles.predict import read_predictions
from app.ensembles.schemas import (
    CurvePoint,
    DiagnosticsOut,
    EnsembleOut,
    LearningCurve,
    PredictionJobOut,
    PredictionOut,
    TrainingOut,
    TuningOut,
)
from app.services import Services
from app.web.job_view import job_state, job_view
from app.web.paging import encode_cursor


def ensemble_view(session: Session, ensemble: Ensemble) -> EnsembleOut:
    result = session.get(EnsembleResult, ensemble.id)
    status, error = job_state(session, ensemble.job_id, result is not None)
    project = session.get_one(Project, ensemble.project_id)
    return EnsembleOut(
        id=ensemble.id,
        project_id=ensemble.project_id,
        version=ensemble.version,
        status=status,
        is_current=projects.current_ensemble_id(session, project) == ensemble.id,
        posterior=ensemble.posterior,
        n_members=result.n_members if result else ensemble.n_members,
        seed=ensemble.seed,
        warm_start=ensemble.warm_start,
        parent_id=ensemble.parent_id,
        job_id=ensemble.job_id,
        origin=ensemble.origin,
        n_labels=result.n_labels if result else None,
        watermark=result.watermark if result else None,
        snapshot_hash=result.snapshot_hash if result else None,
        metrics=result.metrics if result else None,
        diagnostics=DiagnosticsOut.model_validate(result.diagnostics) if result and result.diagnostics else None,
        log_evidence=result.log_evidence if result else None,
        bound=result.bound if result else None,
        tuning=TuningOut.model_validate(result.tuning) if result and result.tuning else None,
        n_bytes=result.n_bytes if result else None,
        seconds=result.seconds if result else None,
        error=error,
        created_at=ensemble.created_at,
    )


def prediction_view(
    services: Services, session: Session, prediction: Prediction, *, start: int = 0, limit: int = 1000
) -> tuple[PredictionOut, int | None]:
    """The view, and where its next page starts."""
    result = session.get(PredictionResult, prediction.id)
    status, error = job_state(session, prediction.job_id, result is not None)
    items = read_predictions(services, result, start=start, limit=limit) if result else None
    view = PredictionOut(
        id=prediction.id,
        ensemble_id=prediction.ensemble_id,
        pool_id=prediction.pool_id,
        status=status,
        job_id=prediction.job_id,
        n_rows=result.n_rows if result else None,
        items=items,
        next_cursor=None,
        error=error,
    )
    following = start + limit
    return view, following if result and following < result.n_rows else None


AT_ONCE = 1000


def training_view(services: Services, session: Session, *, job: Job, ensemble: Ensemble) -> TrainingOut:
    return TrainingOut(job=job_view(session, job), ensemble=ensemble_view(session, ensemble))


def prediction_job_view(services: Services, session: Session, *, job: Job, prediction: Prediction) -> PredictionJobOut:
    return PredictionJobOut(job=job_view(session, job), prediction=prediction_page(services, session, prediction))


def prediction_page(
    services: Services, session: Session, prediction: Prediction, start: int = 0, limit: int = AT_ONCE
) -> PredictionOut:
    view, following = prediction_view(services, session, prediction, start=start, limit=limit)
    return view.model_copy(update={"next_cursor": encode_cursor(following) if following is not None else None})


def learning_curve(session: Session, project_id: str) -> LearningCurve:
    query = (
        select(Ensemble, EnsembleResult)
        .join(EnsembleResult, EnsembleResult.ensemble_id == Ensemble.id)
        .where(Ensemble.project_id == project_id)
        .order_by(Ensemble.version)
    )
    points = [
        CurvePoint(
            ensemble_id=ensemble.id,
            version=ensemble.version,
            n_labels=result.n_labels,
            metrics=result.metrics,
            origin=ensemble.origin,
            created_at=result.created_at,
        )
        for ensemble, result in session.execute(query)
    ]
    measured = points[-1].metrics.get("measured_on", "none") if points else "none"
    return LearningCurve(metric_set=measured, points=points)
