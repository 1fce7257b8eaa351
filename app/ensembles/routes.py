"""Ensembles: trained versions, their files, their predictions."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from sqlalchemy import select

from app.db import projects
from app.db.jobs import ENDED
from app.db.tables import Ensemble, EnsembleResult, Prediction, Project
from app.ensembles.check_request import check_request
from app.ensembles.predict import request_prediction
from app.ensembles.queries import finished_ensemble
from app.ensembles.request import request_training
from app.ensembles.schemas import (
    CurrentIn,
    EnsembleOut,
    EvaluationOut,
    LearningCurve,
    PredictionIn,
    PredictionJobOut,
    PredictionOut,
    TrainingIn,
    TrainingOut,
    stored_training,
)
from app.ensembles.views import (
    AT_ONCE,
    ensemble_view,
    evaluation_view,
    learning_curve,
    prediction_job_view,
    prediction_page,
    training_view,
)
from app.errors import Conflict, NotFound
from app.projects.schemas import ProjectOut
from app.projects.views import project_view
from app.web.dependencies import CanRead, CanWrite, Context, EdgeRoute
from app.web.paging import Cursor, Limit, Page, Paged, decode_cursor, page_by_id
from app.web.problems import problems
from app.web.waiting import waits

router = APIRouter(prefix="/v1", tags=["ensembles"], route_class=EdgeRoute)
of_projects = APIRouter(prefix="/v1/projects", tags=["projects"], route_class=EdgeRoute)


@router.post(
    "/projects/{project_id}/ensembles", status_code=202, operation_id="train_ensemble", summary="Train an ensemble"
)
@waits(training_view, ensemble=Ensemble)
def post_ensemble(project_id: str, context: CanWrite[Project], wanted: TrainingIn) -> TrainingOut:
    """Queues a training on all labels there are when it starts. Fresh from the seed unless `warm_start`. With `tune`
    the job first tries settings of the posterior, and then trains with the best. When the job has succeeded the new
    version is the project's current ensemble, unless another is pinned."""
    settings = context.services.settings
    check_request(context.session, context.resource, wanted, settings)
    training = request_training(context.session, context.resource, settings, **stored_training(wanted))
    return training_view(context.services, context.session, ensemble=training.ensemble)


@router.get("/projects/{project_id}/ensembles", summary="List ensembles")
def list_ensembles(project_id: str, context: CanRead[Project], paging: Paged) -> Page[EnsembleOut]:
    query = select(Ensemble).where(Ensemble.project_id == project_id)
    return page_by_id(context.session, query, paging, lambda row: ensemble_view(context.session, row, in_list=True))


@router.get("/ensembles/{ensemble_id}", summary="Get an ensemble")
def get_ensemble(ensemble_id: str, context: CanRead[Ensemble]) -> EnsembleOut:
    return ensemble_view(context.session, context.resource)


@router.get("/ensembles/{ensemble_id}/evaluation", responses=problems(409), summary="Get how an ensemble does by class")
def get_evaluation(ensemble_id: str, context: CanRead[Ensemble]) -> EvaluationOut:
    """What to draw of an ensemble: confusion matrix, precision and recall by class, and how far its probabilities can
    be trusted: a reliability diagram of classes, the coverage of intervals of numbers."""
    return evaluation_view(context.session, context.resource)


@router.get(
    "/ensembles/{ensemble_id}/file",
    responses={
        **problems(409),
        200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}},
    },
    response_class=StreamingResponse,
    operation_id="download_ensemble",
    summary="Download an ensemble",
)
def get_file(ensemble_id: str, context: CanRead[Ensemble]) -> StreamingResponse:
    """A safetensors file: `bensemble_core.load(path)` reads it, and `bensemble rank --ensemble` ranks with it."""
    with context.services.database.read() as session:
        result = session.get(EnsembleResult, ensemble_id)
    if result is None:
        raise Conflict(f"this ensemble is not trained; look at its job {context.resource.job_id}")

    async def chunks() -> AsyncIterator[bytes]:
        async for chunk in context.services.objects.stream_async(result.file_key):
            yield bytes(chunk)

    name = f"ensemble-{context.resource.version}.safetensors"
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Content-Length": str(result.n_bytes)}
    return StreamingResponse(chunks(), media_type="application/octet-stream", headers=headers)


@router.post(
    "/ensembles/{ensemble_id}/predictions", status_code=202, operation_id="create_prediction", summary="Predict rows"
)
@waits(prediction_job_view, prediction=Prediction)
def post_prediction(
    ensemble_id: str, context: CanRead[Ensemble], wanted: PredictionIn, response: Response
) -> PredictionJobOut:
    """For `rows` sent here, or all of a pool. With `Prefer: wait=30` the answer has the predictions in it, those of the
    first 1,000 rows; `GET /v1/predictions/{id}` has the others, page by page, and all of them without that header."""
    with context.services.database.read() as session:
        project = session.get_one(Project, context.resource.project_id)
    prediction = request_prediction(context.services, context.session, project, context.resource, wanted)
    response.headers["Location"] = f"/v1/predictions/{prediction.id}"
    return prediction_job_view(context.services, context.session, prediction=prediction)


@router.get("/predictions/{prediction_id}", summary="Get predictions")
async def get_prediction(
    prediction_id: str,
    context: CanRead[Prediction],
    request: Request,
    wait: Annotated[float, Query(ge=0, le=30, description="Seconds to wait for the job to end.")] = 0.0,
    cursor: Cursor = None,
    limit: Limit = AT_ONCE,
) -> PredictionOut:
    after = decode_cursor(cursor, int)
    start = max(after[0], 0) if after else 0
    view = await run_in_threadpool(_read, context, start, limit)
    if wait and view.status not in ENDED:
        await request.app.state.watcher.wait(view.job_id, wait)
        view = await run_in_threadpool(_read, context, start, limit)
    return view


def _read(context: Context[Prediction], start: int, limit: int) -> PredictionOut:
    with context.services.database.read() as session:
        prediction = session.get(Prediction, context.resource.id)
        if prediction is None:
            raise NotFound("this prediction was deleted")
        return prediction_page(context.services, session, prediction, start, limit)


@of_projects.post(
    "/{project_id}/current", operation_id="set_current_ensemble", summary="Pin or unpin the current ensemble"
)
def post_current(project_id: str, context: CanWrite[Project], wanted: CurrentIn) -> ProjectOut:
    """Rankings use the newest ensemble unless one is pinned here: roll back by pinning an older one, and go on by
    sending null."""
    if wanted.ensemble_id is not None:
        finished_ensemble(context.session, project_id, wanted.ensemble_id)
    project = projects.lock(context.session, project_id)
    project.pinned_ensemble_id = wanted.ensemble_id
    context.session.flush()
    return project_view(context.session, project)


@of_projects.get("/{project_id}/learning-curve", summary="Metrics against labels")
def get_learning_curve(project_id: str, context: CanRead[Project]) -> LearningCurve:
    """One point for each trained ensemble, oldest first: how many labels it saw and how well it does. Without rows to
    measure on, `metrics.estimate` of a point has what its labels say themselves."""
    return learning_curve(context.session, project_id)
