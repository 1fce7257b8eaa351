"""Status and progress of a job as its owner sees them: one that was split is running while its parts are worked on.

In the queue it waits for them as `queued`, so that it holds no worker."""

from collections import Counter
from typing import Any

from sqlalchemy import ColumnElement, case, exists, or_, select
from sqlalchemy.orm import Session, aliased

from app.db.tables import Job

FAILED = ("failed", "cancelled")
ENDED = ("succeeded", *FAILED)
_WORDS = {"succeeded": "done", "running": "running", "queued": "waiting", "failed": "failed", "cancelled": "cancelled"}


def shown_status() -> ColumnElement[str]:
    """As an expression on Job."""
    part = aliased(Job)
    is_split = (Job.status == "queued") & exists().where(part.parent_id == Job.id)
    return case((is_split, "running"), else_=Job.status)


def status_of(session: Session, job: Job) -> str:
    if not _may_wait(job):
        return job.status
    is_split = session.execute(select(exists().where(Job.parent_id == job.id))).scalar_one()
    return "running" if is_split else job.status


def shown(session: Session, job: Job) -> tuple[str, dict[str, Any] | None]:
    """Status and progress. A split job's own progress counts whole parts; here it has what is done of those under way,
    too, and says how many parts are where."""
    if not _may_wait(job):
        return job.status, job.progress
    # in one statement: a part that ends between two would be counted twice, or not at all
    family = select(Job.id, Job.status, Job.progress).where(or_(Job.id == job.id, Job.parent_id == job.id))
    found = {id_: (status, progress) for id_, status, progress in session.execute(family)}
    status, progress = found.pop(job.id, (job.status, job.progress))
    if not found or status != "queued":
        return status, progress
    return "running", progress and _with_parts(progress, list(found.values()))


def _with_parts(own: dict[str, Any], parts: list[tuple[str, dict[str, Any] | None]]) -> dict[str, Any]:
    under_way = sum((progress or {}).get("done") or 0 for status, progress in parts if status == "running")
    counts = Counter(status for status, _ in parts)
    states = ", ".join(f"{counts[status]} {word}" for status, word in _WORDS.items() if counts[status])
    return {**own, "done": min(own["done"] + under_way, own["total"]), "message": f"{own['message']}: {states}"}


def _may_wait(job: Job) -> bool:
    """For its parts; one that has never run is in one piece."""
    return job.status == "queued" and job.started_at is not None
