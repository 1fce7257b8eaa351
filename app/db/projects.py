"""Queries about projects, and the order in which rows are locked.

Every transaction takes its locks in this order, so that no two of them wait for each other:

1. The project's row (`lock` or `take_label_numbers`), before anything that belongs to the project is written: pools,
   labels, ensembles, rankings, predictions, rounds, reservations, schedules. What was read before is read again. An
   experiment's row, then those of its sessions by id, are the same for what belongs to an experiment.
2. Whatever belongs to it, in any order: nobody else writes there meanwhile. On PostgreSQL, a row that is inserted locks
   those that it refers to, and a row that is deleted those that refer to it.
3. Jobs, children before their parents, several of them by id. Workers claim, renew and end jobs without the project's
   lock; whoever holds a job that was there before takes no lock of the kinds above any more.

SQLite has one writer at a time, so there the order does not matter.
"""

from datetime import datetime

from sqlalchemy import bindparam, select, update
from sqlalchemy.orm import Session

from app.db.tables import Base, Ensemble, EnsembleResult, Project
from app.db.types import CLOCK
from app.errors import NotFound

_PROJECT = Base.metadata.tables[Project.__tablename__]
_TAKE = (  # built once and without the mapper: every label goes through it
    update(_PROJECT)
    .where(_PROJECT.c.id == bindparam("project_id"))
    .values(last_seq=_PROJECT.c.last_seq + bindparam("n"))
    .returning(_PROJECT.c.last_seq, CLOCK.label("now"))
)


def lock(session: Session, project_id: str) -> Project:
    """Hold the project until the transaction ends, as everybody does before they write anything that belongs to it."""
    query = update(Project).where(Project.id == project_id).values(last_seq=Project.last_seq).returning(Project)
    project = session.execute(query, execution_options={"populate_existing": True}).scalar_one_or_none()
    if project is None:
        raise NotFound(f"there is no project {project_id!r}")
    return project


def latest_ensemble_id(session: Session, project_id: str) -> str | None:
    newest = (
        select(Ensemble.id)
        .join(EnsembleResult, EnsembleResult.ensemble_id == Ensemble.id)
        .where(Ensemble.project_id == project_id)
        .order_by(Ensemble.version.desc())
        .limit(1)
    )
    return session.execute(newest).scalar_one_or_none()


def current_ensemble_id(session: Session, project: Project) -> str | None:
    """The pinned ensemble, or else the newest that is finished."""
    return project.pinned_ensemble_id or latest_ensemble_id(session, project.id)


def take_label_numbers(session: Session, project_id: str, n: int) -> tuple[int, datetime]:
    """Reserve n consecutive label numbers; the first of them, and the time. Holds the project's lock."""
    taken = session.execute(_TAKE, {"project_id": project_id, "n": n}).one_or_none()
    if taken is None:
        raise NotFound(f"there is no project {project_id!r}")
    return taken.last_seq - n + 1, taken.now
