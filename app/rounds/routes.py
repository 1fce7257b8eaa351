"""Rounds."""

from typing import Annotated

from fastapi import APIRouter, Response
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db.tables import Job, PoolData, Project, Round
from app.pools.views import payloads_of
from app.rankings.round_request import RoundIn, stored_round
from app.rounds.advance import count_open
from app.rounds.close import close_round
from app.rounds.open import open_round
from app.rounds.reserve import reserve_items
from app.rounds.schemas import NextIn, NextItem, NextOut, RoundJobOut, RoundOut
from app.rounds.views import round_view
from app.services import Services
from app.web.dependencies import Context, EdgeRoute, on
from app.web.job_view import job_view
from app.web.paging import Cursor, Limit, Page, page_by_id
from app.web.problems import problems, problems_of_change
from app.web.waiting import waits

router = APIRouter(prefix="/v1", tags=["rounds"], route_class=EdgeRoute)


def _round(services: Services, session: Session, *, job: Job, round: Round) -> RoundJobOut:
    return RoundJobOut(job=job_view(session, job), round=round_view(session, round))


@router.post(
    "/projects/{project_id}/rounds", status_code=202, responses=problems_of_change(404), summary="Open a round"
)
@waits(_round, job=Job, round=Round)
def post_round(
    project_id: str,
    context: Annotated[Context[Project], on(Project, "write", parameter="project_id")],
    wanted: RoundIn,
    response: Response,
) -> RoundJobOut:
    """Ranks the pool and queues the k best rows for annotators, who take them with `next`. When every item has been
    labelled or skipped by `overlap` annotators the round is complete, and a new ensemble is trained."""
    opened = open_round(context.session, context.resource, context.services.settings, stored_round(wanted))
    response.headers["Location"] = f"/v1/jobs/{opened.job.id}"
    return _round(context.services, context.session, job=opened.job, round=opened.round)


@router.get("/projects/{project_id}/rounds", responses=problems(404), summary="List rounds")
def list_rounds(
    project_id: str,
    context: Annotated[Context[Project], on(Project, "read", parameter="project_id")],
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Page[RoundOut]:
    query = select(Round).where(Round.project_id == project_id)
    return page_by_id(context.session, query, Round.id, cursor, limit, lambda row: round_view(context.session, row))


@router.get("/rounds/{round_id}", responses=problems(404), summary="Get a round")
def get_round(round_id: str, context: Annotated[Context[Round], on(Round, "read", parameter="round_id")]) -> RoundOut:
    return round_view(context.session, context.resource)


@router.post("/rounds/{round_id}/next", responses=problems_of_change(404), summary="Take the next items to label")
def post_next(
    round_id: str, context: Annotated[Context[Round], on(Round, "label", parameter="round_id")], wanted: NextIn
) -> NextOut:
    """Items that this annotator has open come first, then the best that nobody holds. Nobody else gets them until
    they are answered or the hold lapses. An empty list means there is nothing left for this annotator."""
    services, session = context.services, context.session
    reserved = reserve_items(
        session,
        context.resource,
        annotator=wanted.annotator or context.caller.name,
        count=wanted.count,
        reserve_seconds=services.settings.reserve_seconds,
    )
    rows = [item.row for item in reserved]
    payloads = payloads_of(services, session, context.resource.pool_id, rows)
    keys = services.pool(session.get_one(PoolData, context.resource.pool_id)).keys(rows) if rows else []
    items = [
        NextItem(rank=item.rank, row=item.row, key=key, payload=payload, expires_at=item.expires_at)
        for item, key, payload in zip(reserved, keys, payloads, strict=True)
    ]
    return NextOut(items=items, n_left=count_open(session, context.resource))


@router.post("/rounds/{round_id}/close", responses=problems_of_change(404), summary="Close a round early")
def post_close(round_id: str, context: Annotated[Context[Round], on(Round, "write", parameter="round_id")]) -> RoundOut:
    """What was labelled stays labelled; no training is set off."""
    return round_view(context.session, close_round(context.session, context.resource))
