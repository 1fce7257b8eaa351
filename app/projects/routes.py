"""Projects."""

from typing import Annotated

from fastapi import APIRouter, Response
from sqlalchemy import select

from app.db import projects
from app.db.tables import Ensemble, EnsembleResult, Project
from app.ensembles.queries import finished_ensemble
from app.ensembles.schemas import CurrentIn, CurvePoint, LearningCurve
from app.errors import Forbidden
from app.housekeeping.delete import delete_project
from app.projects.create import create_project
from app.projects.schemas import ProjectIn, ProjectOut
from app.projects.views import project_view
from app.web.dependencies import Context, EdgeRoute, anyone, on
from app.web.paging import Cursor, Limit, Page, page_by_id
from app.web.problems import problems, problems_of_change

router = APIRouter(prefix="/v1/projects", tags=["projects"], route_class=EdgeRoute)


@router.post("", status_code=201, responses=problems_of_change(), summary="Create a project")
def post_project(
    context: Annotated[Context[None], anyone("write")], wanted: ProjectIn, response: Response
) -> ProjectOut:
    """State the task (classes, or numbers to predict), the shape of a row, the network and the posterior method.
    `GET /v1/methods` lists models and posteriors with their options; the defaults are a sensible start."""
    if context.caller.project_ids is not None:
        raise Forbidden("a key that is bound to projects can't create one; use a key without projects")
    project = create_project(context.session, wanted, context.services.settings)
    response.headers["Location"] = f"/v1/projects/{project.id}"
    return project_view(context.session, project)


@router.get("", responses=problems(), summary="List projects")
def list_projects(
    context: Annotated[Context[None], anyone("read")], cursor: Cursor = None, limit: Limit = 100
) -> Page[ProjectOut]:
    query = select(Project)
    if context.caller.project_ids is not None:
        query = query.where(Project.id.in_(context.caller.project_ids))
    return page_by_id(context.session, query, Project.id, cursor, limit, lambda row: project_view(context.session, row))


@router.get("/{project_id}", responses=problems(404), summary="Get a project")
def get_project(
    project_id: str, context: Annotated[Context[Project], on(Project, "read", parameter="project_id")]
) -> ProjectOut:
    return project_view(context.session, context.resource)


@router.delete("/{project_id}", status_code=204, responses=problems(404), summary="Delete a project")
def remove_project(
    project_id: str, context: Annotated[Context[Project], on(Project, "admin", parameter="project_id")]
) -> None:
    """With everything in it: pools, labels, ensembles, rankings. Its jobs are cancelled. There is no way back, so it
    takes a key with scope `admin`."""
    delete_project(context.session, context.resource)


@router.post("/{project_id}/current", responses=problems_of_change(404), summary="Pin or unpin the current ensemble")
def post_current(
    project_id: str,
    context: Annotated[Context[Project], on(Project, "write", parameter="project_id")],
    wanted: CurrentIn,
) -> ProjectOut:
    """Rankings use the newest ensemble unless one is pinned here: roll back by pinning an older one, and go on by
    sending null."""
    if wanted.ensemble_id is not None:
        finished_ensemble(context.session, project_id, wanted.ensemble_id)
    project = projects.lock(context.session, project_id)
    project.pinned_ensemble_id = wanted.ensemble_id
    context.session.flush()
    return project_view(context.session, project)


@router.get("/{project_id}/learning-curve", responses=problems(404), summary="Metrics against labels")
def get_learning_curve(
    project_id: str, context: Annotated[Context[Project], on(Project, "read", parameter="project_id")]
) -> LearningCurve:
    """One point for each trained ensemble, oldest first: how many labels it saw and how well it does."""
    query = (
        select(Ensemble, EnsembleResult)
        .join(EnsembleResult, EnsembleResult.ensemble_id == Ensemble.id)
        .where(Ensemble.project_id == project_id)
        .order_by(Ensemble.version)
    )
    points = [
        CurvePoint(
            ensemble_id=ensemble.id,
            version=ensemble.version,
            n_labels=result.n_labels,
            metrics=result.metrics,
            origin=ensemble.origin,
            created_at=result.created_at,
        )
        for ensemble, result in context.session.execute(query)
    ]
    measured = points[-1].metrics.get("measured_on", "none") if points else "none"
    return LearningCurve(metric_set=measured, points=points)
