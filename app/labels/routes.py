"""Labels: append-only events, and what they add up to."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db import consensus
from app.db.tables import Job, Label, PoolData, Project, Round
from app.labels.record import in_round, read_labels, record_labels
from app.labels.schemas import ConsensusOut, LabelOut, LabelsIn, LabelsOut, RoundLabelsIn
from app.services import Services
from app.web.csv import cell, line
from app.web.dependencies import Context, EdgeRoute, on
from app.web.job_view import job_view
from app.web.paging import Cursor, Limit, Page, decode_cursor, encode_cursor
from app.web.problems import problems, problems_of_change
from app.web.waiting import First, waits_for

router = APIRouter(prefix="/v1/projects/{project_id}/labels", tags=["labels"], route_class=EdgeRoute)
of_rounds = APIRouter(prefix="/v1/rounds", tags=["rounds"], route_class=EdgeRoute)
EXPORT_AT_ONCE = 1000


def triggered_jobs(first: First) -> list[str]:
    return list(first["triggered"])


def labels_with_jobs(services: Services, session: Session, first: First) -> LabelsOut:
    query = select(Job).where(Job.id.in_(first["triggered"])).order_by(Job.id)
    return LabelsOut(**{**first, "jobs": [job_view(session, job) for job in session.scalars(query)]})


@router.post("", status_code=201, responses=problems_of_change(404), summary="Label, skip or retract rows")
@waits_for(triggered_jobs, labels_with_jobs)
def post_labels(
    project_id: str,
    context: Annotated[Context[Project], on(Project, "label", parameter="project_id")],
    wanted: LabelsIn,
) -> LabelsOut:
    """All or none are taken. Each entry is an event about one row by one annotator; the annotator's latest event
    counts, so send another to correct one. `skip` says that it can't be labelled, `retract` takes one's answer back.
    `triggered` names the trainings that these labels set off; with `Prefer: wait` the answer comes when they have
    ended, and `jobs` says how."""
    labels = read_labels(wanted.labels, cap=context.services.settings.max_labels_per_request)
    recorded = record_labels(
        context.services,
        context.session,
        context.resource,
        [(label.pool_id, label) for label in labels],
        default_annotator=context.caller.name,
        key_id=context.caller.key_id or None,
    )
    return LabelsOut(accepted=len(recorded.labels), labels=recorded.labels, triggered=recorded.triggered)


@router.get(
    "",
    responses={
        **problems(404),
        200: {"content": {"text/csv": {"schema": {"type": "string"}}}, "description": "A page, or all as CSV."},
    },
    response_model=Page[LabelOut] | Page[ConsensusOut],
    summary="Export labels",
)
def list_labels(
    project_id: str,
    context: Annotated[Context[Project], on(Project, "read", parameter="project_id")],
    format: Literal["json", "csv"] = "json",
    history: Annotated[bool, Query(description="Every event rather than the consensus of each row.")] = False,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Any:
    """The consensus of each row (majority of the latest of each annotator; a tie leaves it `open`), or with
    `history=true` every event in order. Any label beats any number of skips. `format=csv` streams all of it, whatever
    `limit` says; text that a spreadsheet would run as a formula (`=…`) gets a leading apostrophe, numbers never do."""
    if format == "csv":
        lines = _csv(context.services, context.resource, history=history)
        return StreamingResponse(
            lines, media_type="text/csv", headers={"Content-Disposition": 'attachment; filename="labels.csv"'}
        )
    return _page(context.services, context.session, context.resource, history, cursor, limit)


def _page(
    services: Services, session: Session, project: Project, history: bool, cursor: str | None, limit: int
) -> Page[Any]:
    return (_events if history else _consensus)(services, session, project, cursor, limit)


def _events(services: Services, session: Session, project: Project, cursor: str | None, limit: int) -> Page[Any]:
    after = decode_cursor(cursor, int)
    query = select(Label).where(Label.project_id == project.id, Label.seq > (after[0] if after else 0))
    events = list(session.scalars(query.order_by(Label.seq).limit(limit + 1)))
    keys = _keys(services, session, [(event.pool_id, event.row) for event in events[:limit]])
    fields = [name for name in LabelOut.model_fields if name != "key"]
    items = [
        LabelOut(**{name: getattr(event, name) for name in fields}, key=key)
        for event, key in zip(events[:limit], keys, strict=True)
    ]
    return Page(items=items, next_cursor=encode_cursor(items[-1].seq) if len(events) > limit else None)


def _consensus(services: Services, session: Session, project: Project, cursor: str | None, limit: int) -> Page[Any]:
    after = decode_cursor(cursor, str, int)
    found = list(
        consensus.verdict_pages(
            session,
            project.id,
            kind=project.task["kind"],
            after=(after[0], after[1]) if after else None,
            limit=limit + 1,
        )
    )
    more, found = len(found) > limit, found[:limit]
    keys = _keys(services, session, [(verdict.pool_id, verdict.row) for verdict in found])
    items = [
        ConsensusOut(pool_id=v.pool_id, row=v.row, key=key, status=v.status, value=v.value, n_annotators=v.n_annotators)
        for v, key in zip(found, keys, strict=True)
    ]
    return Page(items=items, next_cursor=encode_cursor(items[-1].pool_id, items[-1].row) if more else None)


def _keys(services: Services, session: Session, places: list[tuple[str, int]]) -> list[str]:
    found: dict[tuple[str, int], str] = {}
    for pool_id in {pool_id for pool_id, _ in places}:
        rows = sorted({row for other, row in places if other == pool_id})
        keys = services.pool(session.get_one(PoolData, pool_id)).keys(np.array(rows, dtype=np.int64))
        found.update({(pool_id, row): key for row, key in zip(rows, keys, strict=True)})
    return [found[place] for place in places]


def _csv(services: Services, project: Project, *, history: bool) -> Iterator[str]:
    """Page by page, each in a transaction of its own: none is open while the client reads."""
    fields = list((LabelOut if history else ConsensusOut).model_fields)
    yield line(fields)
    cursor: str | None = None
    while True:
        with services.database.read() as session:
            page = _page(services, session, project, history, cursor, EXPORT_AT_ONCE)
        yield "".join(line([cell(getattr(item, name)) for name in fields]) for item in page.items)
        cursor = page.next_cursor
        if cursor is None:
            return


@of_rounds.post(
    "/{round_id}/labels", status_code=201, responses=problems_of_change(404), summary="Label items of a round"
)
@waits_for(triggered_jobs, labels_with_jobs)
def post_round_labels(
    round_id: str, context: Annotated[Context[Round], on(Round, "label", parameter="round_id")], wanted: RoundLabelsIn
) -> LabelsOut:
    """As `POST /v1/projects/{id}/labels`, for rows of this round only."""
    with context.services.database.read() as session:
        project = session.get_one(Project, context.resource.project_id)
    labels = read_labels(wanted.labels, cap=context.services.settings.max_labels_per_request)
    recorded = record_labels(
        context.services,
        context.session,
        project,
        in_round(context.resource, labels),
        default_annotator=context.caller.name,
        key_id=context.caller.key_id or None,
        within=context.resource,
    )
    return LabelsOut(accepted=len(recorded.labels), labels=recorded.labels, triggered=recorded.triggered)
