"""Delete projects, pools, experiments and sessions: rows at once, files by a job that can be tried again."""

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from app.db import projects
from app.db.tables import Backtest, DesignSession, Ensemble, Experiment, Pool, Prediction, Project, Ranking, Simulation
from app.queue import queue
from app.queue.context import JobContext
from app.services import job_services
from app.sessions import state as sessions
from app.sessions.propose import proposing_jobs


def delete_project(session: Session, project: Project) -> None:
    projects.lock(session, project.id)
    prefixes = [
        f"{kind}/{thing_id}/"
        for table, kinds in (
            (Pool, ("pools", "uploads", "scores")),
            (Ensemble, ("ensembles", "snapshots")),
            (Ranking, ("rankings", "figures")),
            (Prediction, ("predictions",)),
        )
        for thing_id in session.scalars(select(table.id).where(table.project_id == project.id))
        for kind in kinds
    ]
    # deleting the job rows fences off whoever runs them: their next beat or write finds the lease lost
    session.execute(delete(Project).where(Project.id == project.id))
    _queue_deletion(session, prefixes)


def delete_pool(session: Session, pool: Pool) -> None:
    projects.lock(session, pool.project_id)
    rankings = session.execute(select(Ranking.id, Ranking.job_id).where(Ranking.pool_id == pool.id)).all()
    predictions = session.execute(select(Prediction.id, Prediction.job_id).where(Prediction.pool_id == pool.id)).all()
    backtests = session.scalars(select(Backtest.job_id).where(Backtest.pool_id == pool.id)).all()
    ingest = session.scalars(select(Pool.ingest_job_id).where(Pool.id == pool.id)).one_or_none()
    job_ids = [*(job_id for _, job_id in (*rankings, *predictions)), *backtests, *([ingest] if ingest else [])]
    prefixes = [f"pools/{pool.id}/", f"uploads/{pool.id}/", f"scores/{pool.id}/"]
    prefixes += [f"{kind}/{ranking_id}/" for ranking_id, _ in rankings for kind in ("rankings", "figures")]
    prefixes += [f"predictions/{prediction_id}/" for prediction_id, _ in predictions]
    session.execute(delete(Pool).where(Pool.id == pool.id))
    queue.request_cancels(session, job_ids)
    _queue_deletion(session, prefixes)


def delete_experiment(session: Session, experiment: Experiment) -> None:
    session.get_one(Experiment, experiment.id, with_for_update=True)
    ids = select(DesignSession.id).where(DesignSession.experiment_id == experiment.id)
    session.execute(ids.order_by(DesignSession.id).with_for_update())
    simulations = session.scalars(select(Simulation.job_id).where(Simulation.experiment_id == experiment.id)).all()
    job_ids = [*proposing_jobs(session, ids), *simulations]
    session.execute(delete(Experiment).where(Experiment.id == experiment.id))
    queue.request_cancels(session, job_ids)


def delete_session(session: Session, session_id: str) -> None:
    sessions.change(session, session_id, observes=False)
    job_ids = proposing_jobs(session, select(DesignSession.id).where(DesignSession.id == session_id))
    session.execute(delete(DesignSession).where(DesignSession.id == session_id))
    queue.request_cancels(session, job_ids)


def _queue_deletion(session: Session, prefixes: list[str]) -> None:
    if prefixes:
        queue.enqueue(session, kind="delete_objects", queue="ingest", payload={"prefixes": prefixes})


def delete_objects(job: JobContext) -> None:
    objects = job_services(job).objects
    for i, prefix in enumerate(job.payload["prefixes"]):
        objects.delete_prefix(prefix)
        job.progress(i + 1, len(job.payload["prefixes"]), "deleting files")
