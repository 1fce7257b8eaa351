"""Experiments."""

from typing import Annotated, Any

from fastapi import APIRouter, Body, Response
from sqlalchemy import select
from sqlalchemy.orm import defer

from app.db.tables import Experiment
from app.errors import Forbidden
from app.experiments.create import change_experiment, checked, create_experiment, understood
from app.experiments.schemas import EXAMPLE, ExperimentChange, ExperimentItem, ExperimentOut, ModelOut, Spec
from app.experiments.views import experiment_item, experiment_view
from app.web.dependencies import CanRead, CanWrite, EdgeRoute, computes
from app.web.paging import Page, Paged, page_by_id

router = APIRouter(prefix="/v1", tags=["experiments"], route_class=EdgeRoute)
Stated = Annotated[Spec, Body(examples=[EXAMPLE])]


@router.post("/models/validate", operation_id="validate_model", summary="Check a model")
@computes
def post_validate(context: CanRead[None], spec: Stated) -> ModelOut:
    """The body is a spec, as for an experiment. Nothing is stored: the answer is what was understood, and how much a
    proposal would cost. A model that takes longer to try out than a proposal may compute is a 409."""
    return understood(context.services.settings, spec)


@router.post("/experiments", status_code=201, operation_id="create_experiment", summary="Create an experiment")
@computes
def post_experiment(context: CanWrite[None], spec: Stated, response: Response) -> ExperimentOut:
    """The body is the spec: what you want to know (`parameters`, with their priors), where you may measure
    (`designs`), and how outcomes come about (`outcome`: a family whose arguments are numbers or expressions). It is
    read and tried out; a mistake is answered with a pointer to it."""
    if context.caller.project_ids is not None:
        raise Forbidden("experiments belong to no project; use a key without projects")
    row = create_experiment(context.session, spec, checked(spec))
    response.headers["Location"] = f"/v1/experiments/{row.id}"
    return experiment_view(context.session, row)


@router.get("/experiments", summary="List experiments")
def list_experiments(context: CanRead[None], paging: Paged) -> Page[ExperimentItem]:
    """Without their specs: each experiment by itself has it."""
    if context.caller.project_ids is not None:
        return Page(items=[], next_cursor=None)
    query = select(Experiment).options(defer(Experiment.spec, raiseload=True))
    return page_by_id(context.session, query, paging, lambda row: experiment_item(context.session, row))


@router.get("/experiments/{experiment_id}", summary="Get an experiment")
def get_experiment(experiment_id: str, context: CanRead[Experiment]) -> ExperimentOut:
    return experiment_view(context.session, context.resource)


@router.patch("/experiments/{experiment_id}", operation_id="change_experiment", summary="Change an experiment")
@computes
def patch_experiment(experiment_id: str, context: CanWrite[Experiment], wanted: ExperimentChange) -> ExperimentOut:
    """Its name at any time; its spec until a session has a proposal or an observation."""
    made: Any = checked(wanted.spec) if wanted.spec is not None else None
    return experiment_view(context.session, change_experiment(context.session, experiment_id, wanted, made))
