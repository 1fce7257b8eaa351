"""Rows as the API shows them: a thing's status is computed from its result and its job."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.db import jobs, projects
from app.db.tables import (
    Ensemble,
    EnsembleResult,
    Job,
    Pool,
    PoolData,
    Prediction,
    PredictionResult,
    Project,
    Ranking,
    RankingItem,
    RankingResult,
    Round,
    RoundItem,
)
from app.ensembles.predict import read_predictions
from app.ensembles.schemas import EnsembleOut, PredictionOut
from app.pools.schemas import PoolOut
from app.projects.schemas import ProjectOut
from app.rankings.schemas import RankedItem, RankingOut
from app.rounds.schemas import RoundOut
from app.services import Services
from app.web.fields import JobOut, ProgressOut


def job_view(session: Session, job: Job) -> JobOut:
    status, progress = jobs.shown(session, job)
    shown = ProgressOut.model_validate(progress) if progress is not None else None
    return JobOut.model_validate(job).model_copy(update={"status": status, "progress": shown})


def project_view(session: Session, project: Project) -> ProjectOut:
    columns = {name: getattr(project, name) for name in ProjectOut.model_fields if hasattr(project, name)}
    current = projects.current_ensemble_id(session, project)
    return ProjectOut(**columns, current_ensemble_id=current, is_pinned=project.pinned_ensemble_id is not None)


def job_state(session: Session, job_id: str | None, has_result: bool) -> tuple[str, dict[str, Any] | None]:
    job = session.get(Job, job_id) if job_id else None
    if has_result:
        return "succeeded", None
    if job is None:
        return "failed", {"title": "Its job is gone", "detail": "The job's record was deleted before it ended."}
    return jobs.status_of(session, job), job.error if job.status != "succeeded" else None


def pool_view(session: Session, pool: Pool) -> PoolOut:
    data = session.get(PoolData, pool.id)
    status, error = ("empty", None)
    if data is not None:
        status = "ready"
    elif pool.ingest_job_id is not None:
        state, error = job_state(session, pool.ingest_job_id, False)
        status = "ingesting" if state in ("queued", "running") else "failed"
    return PoolOut(
        id=pool.id,
        project_id=pool.project_id,
        name=pool.name,
        purpose=pool.purpose,
        status=status,
        n_rows=data.n_rows if data else 0,
        n_bytes=data.n_bytes if data else 0,
        n_labelled=pool.n_labelled,
        n_skipped=pool.n_skipped,
        error=error if status == "failed" else None,
        job_id=pool.ingest_job_id,
        created_at=pool.created_at,
    )


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
        n_bytes=result.n_bytes if result else None,
        seconds=result.seconds if result else None,
        error=error,
        created_at=ensemble.created_at,
    )


def ranking_view(
    services: Services, session: Session, ranking: Ranking, *, with_items: bool, explain: bool = False
) -> RankingOut:
    result = session.get(RankingResult, ranking.id)
    status, error = job_state(session, ranking.job_id, result is not None)
    columns = {name: getattr(ranking, name) for name in RankingOut.model_fields if hasattr(ranking, name)}
    return RankingOut(
        **columns,
        status=status,
        error=error,
        n_scored=result.n_scored if result else None,
        seconds=result.seconds if result else None,
        notes=result.notes if result else [],
        measure=result.measure if result else None,
        ceiling=result.ceiling if result else None,
        items=ranked_items(services, session, ranking, explain=explain) if result and with_items else None,
    )


def ranked_items(services: Services, session: Session, ranking: Ranking, *, explain: bool) -> list[RankedItem]:
    query = select(RankingItem).where(RankingItem.ranking_id == ranking.id).order_by(RankingItem.rank)
    items = list(session.scalars(query))
    payloads = payloads_of(services, session, ranking.pool_id, [item.row for item in items])
    return [
        RankedItem(
            rank=item.rank,
            row=item.row,
            key=item.key,
            score=item.score,
            value=item.value,
            payload=payload,
            explanation=item.explanation if explain else None,
        )
        for item, payload in zip(items, payloads, strict=True)
    ]


def payloads_of(services: Services, session: Session, pool_id: str, rows: Sequence[int]) -> list[Any]:
    if not rows:
        return []
    return list(services.pool(session.get_one(PoolData, pool_id)).payloads(np.array(rows, dtype=np.int64)))


def round_view(session: Session, round_: Round) -> RoundOut:
    counts = select(func.count(), func.count().filter(RoundItem.n_done >= round_.overlap))
    n_items, n_done = session.execute(counts.where(RoundItem.round_id == round_.id)).one()
    status, error = round_.status, None
    if status == "ranking":  # a ranking that came to nothing ends its round
        ranking = session.get_one(Ranking, round_.ranking_id)
        state, error = job_state(session, ranking.job_id, False)
        status = "closed" if state in ("failed", "cancelled") else "ranking"
    columns = {name: getattr(round_, name) for name in RoundOut.model_fields if hasattr(round_, name)}
    return RoundOut(**{**columns, "status": status}, n_items=n_items, n_done=n_done, error=error)


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
