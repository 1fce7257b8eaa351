"""Projects."""

from fastapi import APIRouter, Response
from sqlalchemy import select

from app.db.tables import Project
from app.errors import Forbidden
from app.projects.change import change_project, changes_page
from app.projects.create import create_project
from app.projects.schemas import ProjectChangeOut, ProjectIn, ProjectOut, ProjectPatch
from app.projects.views import project_view
from app.web.dependencies import CanRead, CanWrite, EdgeRoute
from app.web.paging import Page, Paged, page_by_id

router = APIRouter(prefix="/v1/projects", tags=["projects"], route_class=EdgeRoute)


@router.post("", status_code=201, operation_id="create_project", summary="Create a project")
def post_project(context: CanWrite[None], wanted: ProjectIn, response: Response) -> ProjectOut:
    """State the task (classes, or numbers to predict), the shape of a row, the network and the posterior method.
    `GET /v1/methods` lists models and posteriors with their options; the defaults are a sensible start."""
    if context.caller.project_ids is not None:
        raise Forbidden("a key that is bound to projects can't create one; use a key without projects")
    project = create_project(context.session, wanted, context.services.settings)
    response.headers["Location"] = f"/v1/projects/{project.id}"
    return project_view(context.session, project)


@router.get("", summary="List projects")
def list_projects(context: CanRead[None], paging: Paged) -> Page[ProjectOut]:
    query = select(Project)
    if context.caller.project_ids is not None:
        query = query.where(Project.id.in_(context.caller.project_ids))
    return page_by_id(context.session, query, paging, lambda row: project_view(context.session, row))


@router.get("/{project_id}", summary="Get a project")
def get_project(project_id: str, context: CanRead[Project]) -> ProjectOut:
    return project_view(context.session, context.resource)


@router.patch("/{project_id}", operation_id="change_project", summary="Change a project")
def patch_project(project_id: str, context: CanWrite[Project], wanted: ProjectPatch) -> ProjectOut:
    """What its next trainings (`posterior`, `model`, `calibrate`) and rankings (`acquisition`, `selection`) take where
    they name nothing, and how items are shown to annotators (`display`). `null` for `acquisition` or `selection` goes
    back to what goes with the task. The `recommendation.body` of a backtest is such a change. Ensembles and rankings
    that are there stay as they are, and `GET /v1/projects/{id}/changes` has every change."""
    settings, key_id = context.services.settings, context.caller.key_id or None
    changed = change_project(context.session, context.resource, wanted, settings, key_id=key_id)
    return project_view(context.session, changed)


@router.get("/{project_id}/changes", summary="List a project's changes")
def list_project_changes(project_id: str, context: CanRead[Project], paging: Paged) -> Page[ProjectChangeOut]:
    """What was changed since the project was created, from what to what, and by which key."""
    return changes_page(context.session, project_id, paging)
