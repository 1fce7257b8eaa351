"""Change a project: what its next trainings and rankings take, checked as at its creation, and recorded."""

from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.db import projects
from app.db.tables import Project, ProjectChange
from app.methods.schemas import as_json_or_none, posterior_of
from app.projects.choice import check_project_choice
from app.projects.create import check_training
from app.projects.display import stored_display
from app.projects.schemas import ProjectChangeOut, ProjectPatch
from app.settings import Settings
from app.web.paging import Page, Paging, encode_cursor

METHODS = ("acquisition", "selection", "posterior", "model")
CHECKED = ("task", "input", "calibrate", *METHODS)


def change_project(
    session: Session, project: Project, wanted: ProjectPatch, settings: Settings, *, key_id: str | None
) -> Project:
    """Looked at before the project is locked, since that may take a while; and again if somebody else changed it."""
    values: dict[str, Any] = {
        name: as_json_or_none(given) if name in METHODS else given
        for name, given in ((name, getattr(wanted, name)) for name in wanted.model_fields_set)
    }
    if "display" in values:
        values["display"] = stored_display(wanted.display, project.input["shape"])
    _check(project, values, settings)
    locked = projects.lock(session, project.id)
    if any(getattr(locked, name) != getattr(project, name) for name in CHECKED):
        _check(locked, values, settings)
    changes = {name: [getattr(locked, name), new] for name, new in values.items() if getattr(locked, name) != new}
    if not changes:
        return locked
    for name in changes:
        setattr(locked, name, values[name])
    newest = select(func.coalesce(func.max(ProjectChange.n), 0)).where(ProjectChange.project_id == project.id)
    n = session.execute(newest).scalar_one() + 1
    session.add(ProjectChange(project_id=project.id, n=n, changes=changes, key_id=key_id))
    session.flush()
    return locked


def _check(project: Project, values: dict[str, Any], settings: Settings) -> None:
    changed = Project(**{name: values.get(name, getattr(project, name)) for name in CHECKED})
    if values.keys() & {"posterior", "model", "calibrate"}:
        check_training(changed, posterior_of(changed.posterior), settings, calibrate=changed.calibrate)
    if "acquisition" in values or "selection" in values:
        check_project_choice(changed)


def changes_page(session: Session, project_id: str, paging: Paging) -> Page[ProjectChangeOut]:
    query = select(ProjectChange).where(ProjectChange.project_id == project_id)
    if (after := paging.after(int)) is not None:
        query = query.where(paging.beyond(ProjectChange.n, after[0]))
    found = list(session.scalars(query.order_by(*paging.sorted_by(ProjectChange.n)).limit(paging.limit + 1)))
    items = [ProjectChangeOut.of(change) for change in found[: paging.limit]]
    return Page(items=items, next_cursor=encode_cursor(items[-1].n) if len(found) > paging.limit else None)
