"""The status of a job as its owner sees it: one that was split is running while its parts are worked on.

In the queue it waits for them as `queued`, so that it holds no worker."""

from sqlalchemy import ColumnElement, case, exists, select
from sqlalchemy.orm import aliased, object_session

from app.db.tables import Job


def shown_status() -> ColumnElement[str]:
    """As an expression on Job."""
    part = aliased(Job)
    is_split = (Job.status == "queued") & exists().where(part.parent_id == Job.id)
    return case((is_split, "running"), else_=Job.status)


def status_of(job: Job) -> str:
    session = object_session(job)
    if job.status != "queued" or job.started_at is None or session is None:  # it has never run: it is in one piece
        return job.status
    is_split = session.execute(select(exists().where(Job.parent_id == job.id))).scalar_one()
    return "running" if is_split else job.status
