"""Labels: append-only events, and what they add up to."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from app.db.tables import Project, Round
from app.labels.record import in_round, read_labels, record_labels
from app.labels.schemas import ConsensusOut, LabelOut, LabelsIn, LabelsOut, RoundLabelIn, RoundLabelsIn
from app.labels.summary import SummaryOut, summarise_labels
from app.labels.views import label_lines, label_page, labels_view, labels_with_jobs
from app.web.dependencies import CanLabel, CanRead, Context, EdgeRoute
from app.web.paging import Page, Paged
from app.web.waiting import First, waits_for

router = APIRouter(prefix="/v1/projects/{project_id}/labels", tags=["labels"], route_class=EdgeRoute)
of_rounds = APIRouter(prefix="/v1/rounds", tags=["rounds"], route_class=EdgeRoute)


def triggered_jobs(first: First) -> list[str]:
    return list(first["triggered"])


@router.post("", status_code=201, operation_id="record_labels", summary="Label, skip or retract rows")
@waits_for(triggered_jobs, labels_with_jobs)
def post_labels(project_id: str, context: CanLabel[Project], wanted: LabelsIn) -> LabelsOut:
    """All or none are taken. Each entry is an event about one row by one annotator; the annotator's latest event
    counts, so send another to correct one. `skip` says that it can't be labelled, `retract` takes one's answer back.
    `triggered` names the trainings that these labels set off; with `Prefer: wait` the answer comes when they have
    ended, and `jobs` says how."""
    labels = read_labels(wanted.labels, cap=context.services.settings.max_labels_per_request)
    return _record(context, context.resource, [(label.pool_id, label) for label in labels])


@router.get(
    "",
    responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}, "description": "A page, or all as CSV."}},
    response_model=Page[LabelOut] | Page[ConsensusOut],
    summary="Export labels",
)
def list_labels(
    project_id: str,
    context: CanRead[Project],
    paging: Paged,
    format: Literal["json", "csv"] = "json",
    history: Annotated[bool, Query(description="Every event rather than the consensus of each row.")] = False,
) -> Any:
    """The consensus of each row (majority of the latest of each annotator; a tie leaves it `open`), by pool and row, or
    with `history=true` every event in order. Any label beats any number of skips. `format=csv` streams all of it,
    whatever `limit` says; text that a spreadsheet would run as a formula (`=…`) gets a leading apostrophe, numbers
    never do."""
    if format == "csv":
        lines = label_lines(context.services, context.resource, paging.order, history=history)
        return StreamingResponse(
            lines, media_type="text/csv", headers={"Content-Disposition": 'attachment; filename="labels.csv"'}
        )
    return label_page(context.services, context.session, context.resource, paging, history=history)


@router.get("/summary", operation_id="summarise_labels", summary="What the labels add up to")
def get_summary(project_id: str, context: CanRead[Project]) -> SummaryOut:
    """How many rows are of each class, or what the numbers are like, and how much each annotator said. Of candidate
    pools only, which trainings learn from; of each annotator and row the newest event counts."""
    return summarise_labels(context.session, context.resource)


@of_rounds.post(
    "/{round_id}/labels", status_code=201, operation_id="record_round_labels", summary="Label items of a round"
)
@waits_for(triggered_jobs, labels_with_jobs)
def post_round_labels(round_id: str, context: CanLabel[Round], wanted: RoundLabelsIn) -> LabelsOut:
    """As `POST /v1/projects/{id}/labels`, for rows of this round only."""
    with context.services.database.read() as session:
        project = session.get_one(Project, context.resource.project_id)
    labels = read_labels(wanted.labels, cap=context.services.settings.max_labels_per_request)
    return _record(context, project, in_round(context.resource, labels), within=context.resource)


def _record(
    context: Context[Any], project: Project, said: Sequence[tuple[str, RoundLabelIn]], within: Round | None = None
) -> LabelsOut:
    annotator, key_id = context.caller.name, context.caller.key_id or None
    recorded = record_labels(
        context.services, context.session, project, said, default_annotator=annotator, key_id=key_id, within=within
    )
    return labels_view(recorded.labels, recorded.triggered)
