"""Ask for a new ensemble version; its labels are fixed when the training starts."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from app.db import projects
from app.db.tables import Ensemble, Job, Label, Pool, Project
from app.db.types import new_id
from app.errors import Conflict, Malformed
from app.queue import queue
from app.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Training:
    job: Job
    ensemble: Ensemble
    created: bool  # False: one that was asked for earlier and has not started serves this request too


def request_training(
    session: Session,
    project: Project,
    settings: Settings,
    *,
    posterior: dict[str, Any] | None = None,
    n_members: int = 20,
    seed: int = 0,
    warm_start: bool = False,
    calibrate: bool | str | None = None,
    tune: dict[str, Any] | None = None,
    origin: str = "request",
    schedule_id: str | None = None,
    delay_seconds: float = 0.0,
    shared: bool = False,
) -> Training:
    """`shared` trainings (set off by schedules and rounds) join one of the project that is still waiting."""
    project = projects.lock(session, project.id)
    if n_members > settings.max_members:
        raise Malformed(f"n_members is {n_members:,}; the cap is {settings.max_members:,}", pointer="/n_members")
    if not has_labels(session, project.id):
        raise Conflict(
            "there is nothing to train on: no row of a candidate pool is labelled. Label some rows first, "
            f"with POST /v1/projects/{project.id}/labels or with `labels` in a pool."
        )
    parent_id = projects.current_ensemble_id(session, project)
    if warm_start and parent_id is None:
        raise Conflict("warm_start needs an ensemble to start from, and this project has none yet; leave it out")
    ensemble_id = new_id()
    enqueued = queue.enqueue(
        session,
        kind="train_ensemble",
        queue="train",
        payload={
            "ensemble_id": ensemble_id,
            "schedule_ids": [schedule_id] if schedule_id else [],
            "calibrate": calibrate,
            "tune": tune,
            "origin": origin,
        },
        project_id=project.id,
        delay_seconds=delay_seconds,
        dedup_key=f"train:{project.id}" if shared else None,
    )
    job = enqueued.job
    if not enqueued.created:
        waiting = session.get_one(Ensemble, job.payload["ensemble_id"])
        if schedule_id and schedule_id not in job.payload["schedule_ids"]:
            job.payload = {**job.payload, "schedule_ids": [*job.payload["schedule_ids"], schedule_id]}
        return Training(job=job, ensemble=waiting, created=False)
    project.last_version += 1
    ensemble = Ensemble(
        id=ensemble_id,
        project_id=project.id,
        version=project.last_version,
        posterior=posterior or project.posterior,
        n_members=n_members,
        seed=seed,
        warm_start=warm_start,
        parent_id=parent_id,
        job_id=job.id,
        origin=origin,
    )
    session.add(ensemble)
    session.flush()
    return Training(job=job, ensemble=ensemble, created=True)


def has_labels(session: Session, project_id: str) -> bool:
    """Whether any candidate row was ever labelled; the training itself looks at what still stands."""
    labelled = exists().where(
        Label.project_id == project_id, Label.action == "label", Label.pool_id == Pool.id, Pool.purpose == "candidates"
    )
    return bool(session.execute(select(labelled)).scalar_one())
