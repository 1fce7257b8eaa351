"""Jobs as the API shows them, and the state of a thing as its job tells it."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from app.db import jobs
from app.db.tables import Job
from app.web.fields import Out

JobStatus = Literal["queued", "running", "succeeded", "failed", "cancelled"]


class ProgressOut(BaseModel):
    done: float = 0
    total: float = 0
    message: str = ""


class JobOut(Out):
    """Work done by a worker. Poll this, or follow `/v1/jobs/{id}/events`."""

    id: str
    project_id: str | None
    parent_id: str | None = Field(None, description="The job that this one is a part of.")
    kind: str
    about: dict[str, str] = Field(
        default_factory=dict,
        description="Ids of what it works on or makes, such as `ensemble_id`, `pool_id`, `ranking_id` or `session_id`; "
        "and of a training its `origin`: request, round:<id> or schedule:<id>.",
    )
    queue: str
    status: JobStatus
    progress: ProgressOut | None
    attempts: int
    max_attempts: int = Field(description="After so many that failed it is given up; the setting of its worker.")
    cancel_requested: bool
    error: dict[str, Any] | None = Field(description="A problem object, once the job has failed or been tried again.")
    result: dict[str, Any] | None
    run_at: datetime
    created_at: datetime
    started_at: datetime | None
    heartbeat_at: datetime | None = Field(
        description="When its worker last said that it lives; null before the first attempt."
    )
    finished_at: datetime | None


_ABOUT = (
    "ensemble_id",
    "pool_id",
    "ranking_id",
    "round_id",
    "prediction_id",
    "backtest_id",
    "simulation_id",
    "session_id",
    "origin",
)


def job_view(session: Session, job: Job) -> JobOut:
    status, progress = jobs.shown(session, job)
    shown = ProgressOut.model_validate(progress) if progress is not None else None
    about = {name: job.payload[name] for name in _ABOUT if job.payload.get(name) is not None}
    return JobOut.model_validate(job).model_copy(update={"status": status, "progress": shown, "about": about})


def view_of_job(session: Session, job_id: str) -> JobOut:
    return job_view(session, session.get_one(Job, job_id))


def job_state(session: Session, job_id: str | None, has_result: bool) -> tuple[str, dict[str, Any] | None]:
    job = session.get(Job, job_id) if job_id else None
    if has_result:
        return "succeeded", None
    if job is None:
        return "failed", {"title": "Its job is gone", "detail": "The job's record was deleted before it ended."}
    return jobs.status_of(session, job), job.error if job.status != "succeeded" else None
