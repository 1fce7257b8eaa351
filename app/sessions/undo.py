"""Take an observation back. Beliefs are computed from those that are left; what later ones taught is stale now."""

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from app.db.tables import Observation, Proposal
from app.errors import Forbidden, NotFound
from app.sessions import state as sessions


def undo_observation(session: Session, session_id: str, n: int, *, only_last: bool) -> None:
    """The proposal that it answered, if any, becomes stale: an outcome for it is taken all the same."""
    sessions.change_open(session, session_id, observes=True)
    query = select(Observation).where(Observation.session_id == session_id, Observation.n == n)
    found = session.scalars(query).one_or_none()
    if found is None:
        raise NotFound(f"this session has no observation {n}; GET /v1/sessions/{session_id}/trials lists them")
    last = select(func.max(Observation.n)).where(Observation.session_id == session_id)
    if only_last and n != (newest := session.scalar(last)):
        raise Forbidden(
            f"a session's token and a key with scope 'label' take back the last observation only, which is {newest}; "
            f"to take {n} back, use a key with scope 'write'"
        )
    if found.proposal_id is not None:
        proposal = session.get_one(Proposal, found.proposal_id)
        proposal.status, proposal.reason = "stale", "its outcome was taken back"
    session.delete(found)
    later = update(Observation).where(Observation.session_id == session_id, Observation.n > n)
    session.execute(later.values(is_stale=True))
    session.flush()
