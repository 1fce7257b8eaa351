"""Give a proposal up: it no longer counts as pending."""

from sqlalchemy.orm import Session

from app.db.tables import Proposal
from app.errors import Conflict
from app.sessions import state as sessions


def abandon_proposal(session: Session, proposal: Proposal, reason: str) -> Proposal:
    """Of no effect on one that was abandoned before; an outcome that comes later is taken all the same."""
    sessions.change_open(session, proposal.session_id, observes=False)
    found = session.get_one(Proposal, proposal.id, populate_existing=True)
    if found.status == "observed":
        raise Conflict("this proposal has its outcome already; there is nothing to abandon")
    if found.status != "abandoned":
        found.status, found.reason = "abandoned", reason or None
    session.flush()
    return found
