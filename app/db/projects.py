"""Queries about projects; a project's row is also the lock under which its changeable rows are changed."""

from sqlalchemy import bindparam, select, update
from sqlalchemy.orm import Session

from app.db.tables import Base, Ensemble, EnsembleResult, Project
from app.errors import NotFound

_PROJECT = Base.metadata.tables[Project.__tablename__]
_TAKE = (  # built once and without the mapper: every label goes through it
    update(_PROJECT)
    .where(_PROJECT.c.id == bindparam("project_id"))
    .values(last_seq=_PROJECT.c.last_seq + bindparam("n"))
    .returning(_PROJECT.c.last_seq)
)


def lock(session: Session, project_id: str) -> Project:
    """Hold the project until the transaction ends: label order, versions, rounds and schedules depend on it."""
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


def take_label_numbers(session: Session, project_id: str, n: int) -> int:
    """Reserve n consecutive label numbers; returns the first. Holds the project's lock."""
    last: int | None = session.execute(_TAKE, {"project_id": project_id, "n": n}).scalar_one_or_none()
    if last is None:
        raise NotFound(f"there is no project {project_id!r}")
    return last - n + 1
