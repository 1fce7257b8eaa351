"""Deletions that reach over several nouns."""

from fastapi import APIRouter

from app.db.tables import DesignSession, Experiment, Pool, Project
from app.housekeeping.delete import delete_experiment, delete_pool, delete_project, delete_session
from app.web.dependencies import CanAdminister, CanWrite, EdgeRoute

router = APIRouter(prefix="/v1", route_class=EdgeRoute)


@router.delete(
    "/projects/{project_id}",
    tags=["projects"],
    status_code=204,
    operation_id="delete_project",
    summary="Delete a project",
)
def remove_project(project_id: str, context: CanAdminister[Project]) -> None:
    """With everything in it: pools, labels, ensembles, rankings, backtests. Its jobs are cancelled. There is no way
    back, so it takes a key with scope `admin`."""
    delete_project(context.session, context.resource)


@router.delete("/pools/{pool_id}", tags=["pools"], status_code=204, operation_id="delete_pool", summary="Delete a pool")
def remove_pool(pool_id: str, context: CanWrite[Pool]) -> None:
    """With its labels, rankings, rounds and backtests. Ensembles trained on it stay."""
    delete_pool(context.session, context.resource)


@router.delete(
    "/experiments/{experiment_id}",
    tags=["experiments"],
    status_code=204,
    operation_id="delete_experiment",
    summary="Delete an experiment",
)
def remove_experiment(experiment_id: str, context: CanWrite[Experiment]) -> None:
    """With its sessions, their observations and its simulations. There is no way back."""
    delete_experiment(context.session, context.resource)


@router.delete(
    "/sessions/{session_id}",
    tags=["sessions"],
    status_code=204,
    operation_id="delete_session",
    summary="Delete a session",
)
def remove_session(session_id: str, context: CanWrite[DesignSession]) -> None:
    """With its proposals and observations; jobs that make proposals are cancelled. Sessions that started from it keep
    what they took over."""
    delete_session(context.session, session_id)
