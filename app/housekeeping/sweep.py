"""Remove files that no row speaks of: left by workers that were killed, or by requests that failed half-way."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from app.db import projects
from app.db.engine import Database
from app.db.tables import (
    Ensemble,
    EnsembleResult,
    Job,
    Pool,
    PoolData,
    Prediction,
    Project,
    Ranking,
    RankingResult,
    StoredAnswer,
)
from app.db.types import database_time
from app.queue import queue
from app.queue.context import JobContext
from app.services import job_services

EVERY = timedelta(hours=6)
OLD = timedelta(days=1)
OWNERS: dict[str, type[Pool | Ensemble | Ranking | Prediction]] = {
    "pools": Pool,
    "uploads": Pool,
    "scores": Pool,
    "ensembles": Ensemble,
    "snapshots": Ensemble,
    "rankings": Ranking,
    "figures": Ranking,
    "predictions": Prediction,
}


def queue_sweep(database: Database) -> None:
    """Called by every worker now and then; one sweep is queued when the last was long ago."""
    with database.read() as session:
        last = session.execute(select(func.max(Job.created_at)).where(Job.kind == "sweep_storage")).scalar_one()
        if last is not None and database_time(session) - last < EVERY:
            return
    with database.write() as session:
        queue.enqueue(session, kind="sweep_storage", queue="ingest", payload={}, dedup_key="sweep_storage")


def sweep_storage(job: JobContext) -> None:
    services = job_services(job)
    objects = services.objects
    n_files = objects.sweep(older_than=OLD.total_seconds())
    old = datetime.now(UTC) - OLD
    found: dict[tuple[str, str], list[str]] = {}
    for stored in objects.list():
        kind, _, rest = stored.key.partition("/")
        if kind in OWNERS and stored.modified < old:
            found.setdefault((kind, rest.partition("/")[0]), []).append(stored.key)
    for i, ((kind, owner_id), keys) in enumerate(found.items()):
        with job.database.read() as session:
            kept = _kept(session, kind, owner_id)
        stray = [key for key in keys if kept is None or not key.startswith(kept)]
        objects.delete(stray)
        n_files += len(stray)
        job.progress(i + 1, len(found), "sweeping")
    keep = timedelta(days=job.settings.keep_replays_days)
    with job.finish({"n_files": n_files}) as session:
        session.execute(delete(StoredAnswer).where(StoredAnswer.created_at < database_time(session) - keep))


def _kept(session: Session, kind: str, owner_id: str) -> str | None:
    """The prefix under which an owner's files stay: all of them while it has no result, those of the attempt that was
    published once it has one, scores only of the current ensemble; None if the owner is gone."""
    if session.get(OWNERS[kind], owner_id) is None:
        return None
    everything = f"{kind}/{owner_id}/"
    if kind == "pools":
        data = session.get(PoolData, owner_id)
        return f"{data.prefix}/" if data else everything
    if kind == "scores":
        project_id = session.get_one(Pool, owner_id).project_id
        current = projects.current_ensemble_id(session, session.get_one(Project, project_id))
        return f"{everything}{current}/" if current else None
    if kind == "ensembles":
        result = session.get(EnsembleResult, owner_id)
        return f"{result.file_key.rpartition('/')[0]}/" if result else everything
    if kind == "figures":
        ranked = session.get(RankingResult, owner_id)
        return ranked.figures_key if ranked else everything
    return everything
