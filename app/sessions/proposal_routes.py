"""Proposals: what to run next."""

from typing import Any

from fastapi import APIRouter, Response
from sqlalchemy import select

from app.db.tables import DesignSession, Proposal
from app.sessions.abandon import abandon_proposal
from app.sessions.propose import Expensive, propose_designs
from app.sessions.schemas import AbandonIn, ExpensiveOut, ProposalBase, ProposalIn, ProposalOut
from app.sessions.views import expensive_view, proposal_view, proposals_view, proposed_view
from app.web.dependencies import CanLabel, CanRead, EdgeRoute, computes
from app.web.paging import Page, Paged, page_by_id
from app.web.waiting import its_job, waits_for

router = APIRouter(prefix="/v1", tags=["sessions"], route_class=EdgeRoute)


@router.post(
    "/sessions/{session_id}/proposals",
    status_code=201,
    responses={
        200: {"model": ExpensiveOut, "description": "With `Prefer: wait`: the job ended without one; `job` says why."},
        202: {"model": ExpensiveOut, "description": "Too expensive for a request: a job computes it."},
    },
    response_model=ProposalOut,
    operation_id="propose_design",
    summary="Propose what to run next",
)
@waits_for(its_job, proposed_view)
@computes
def post_proposal(session_id: str, context: CanLabel[DesignSession], wanted: ProposalIn) -> Any:
    """The design with the highest expected information gain (or utility) for its cost, given what was observed and
    what is pending. The same spec, seed and outcomes give the same proposals. A `client_id` gets its pending ones
    again, as they were; where those are not what `count`, `fixed` and `excluded` ask for now, that is a 409. A stopping
    rule that holds is told and does not keep you from going on."""
    cap = context.services.settings.max_design_work
    found = propose_designs(context.services, context.session, session_id, wanted, cap=cap)
    if not isinstance(found, Expensive):
        return proposals_view(found)
    body = expensive_view(context.session, found, cap=cap)
    headers = {"Location": f"/v1/jobs/{found.job.id}"}
    return Response(body.model_dump_json(), 202, headers=headers, media_type="application/json")


@router.get("/sessions/{session_id}/proposals", summary="List a session's proposals")
def list_proposals(session_id: str, context: CanRead[DesignSession], paging: Paged) -> Page[ProposalBase]:
    query = select(Proposal).where(Proposal.session_id == session_id)
    return page_by_id(context.session, query, paging, proposal_view)


@router.get("/proposals/{proposal_id}", summary="Get a proposal")
def get_proposal(proposal_id: str, context: CanRead[Proposal]) -> ProposalBase:
    return proposal_view(context.resource)


@router.post("/proposals/{proposal_id}/abandon", operation_id="abandon_proposal", summary="Abandon a proposal")
def post_abandon(proposal_id: str, context: CanLabel[Proposal], wanted: AbandonIn) -> ProposalBase:
    """It no longer counts as pending. An outcome that comes all the same is still taken."""
    return proposal_view(abandon_proposal(context.session, context.resource, wanted.reason))
