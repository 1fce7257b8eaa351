"""Rounds."""

from fastapi import APIRouter
from sqlalchemy import select

from app.db.tables import Project, Round
from app.rankings.round_request import RoundIn, stored_round
from app.rounds.close import close_round
from app.rounds.open import open_round
from app.rounds.release import release_items
from app.rounds.reserve import reserve_items
from app.rounds.schemas import NextIn, NextOut, ReleaseIn, ReleaseOut, RoundJobOut, RoundOut
from app.rounds.views import next_view, round_job_view, round_view
from app.web.dependencies import CanLabel, CanRead, CanWrite, EdgeRoute
from app.web.paging import Page, Paged, page_by_id
from app.web.waiting import waits

router = APIRouter(prefix="/v1", tags=["rounds"], route_class=EdgeRoute)


@router.post("/projects/{project_id}/rounds", status_code=202, operation_id="open_round", summary="Open a round")
@waits(round_job_view, round=Round)
def post_round(project_id: str, context: CanWrite[Project], wanted: RoundIn) -> RoundJobOut:
    """Ranks the pool and queues the k best rows for annotators, who take them with `next`. When every item has been
    labelled or skipped by `overlap` annotators the round is complete, and a new ensemble is trained."""
    opened = open_round(context.session, context.resource, context.services.settings, stored_round(wanted))
    return round_job_view(context.services, context.session, round=opened.round)


@router.get("/projects/{project_id}/rounds", summary="List rounds")
def list_rounds(project_id: str, context: CanRead[Project], paging: Paged) -> Page[RoundOut]:
    query = select(Round).where(Round.project_id == project_id)
    return page_by_id(context.session, query, paging, lambda row: round_view(context.session, row))


@router.get("/rounds/{round_id}", summary="Get a round")
def get_round(round_id: str, context: CanRead[Round]) -> RoundOut:
    return round_view(context.session, context.resource)


@router.post("/rounds/{round_id}/next", operation_id="next_items", summary="Take the next items to label")
def post_next(round_id: str, context: CanLabel[Round], wanted: NextIn) -> NextOut:
    """Items that this annotator has open come first, then the best that nobody holds. Nobody else gets them until
    they are answered, released or the hold lapses. An empty list means that there is nothing for this annotator now;
    `free_at` says when there may be, while others hold what is left."""
    services, session = context.services, context.session
    seconds = services.settings.reserve_seconds
    handed_out = reserve_items(
        session,
        context.resource,
        annotator=wanted.annotator or context.caller.name,
        count=wanted.count,
        reserve_seconds=seconds,
        features=wanted.features,
    )
    return next_view(services, session, context.resource, handed_out, expires_in=seconds, features=wanted.features)


@router.post("/rounds/{round_id}/release", operation_id="release_items", summary="Give items back")
def post_release(round_id: str, context: CanLabel[Round], wanted: ReleaseIn) -> ReleaseOut:
    """Ends this annotator's holds on items that they have not answered, so that the next annotator who asks gets them
    at once. Answers stay, and a late answer to an item that was given back still counts."""
    released = release_items(
        context.session, context.resource, annotator=wanted.annotator or context.caller.name, rows=wanted.rows
    )
    return ReleaseOut(released=released)


@router.post("/rounds/{round_id}/close", operation_id="close_round", summary="Close a round early")
def post_close(round_id: str, context: CanWrite[Round]) -> RoundOut:
    """What was labelled stays labelled; no training is set off."""
    return round_view(context.session, close_round(context.session, context.resource))
