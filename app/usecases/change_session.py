"""Rename a session, close it or open it again."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db import sessions
from app.db.tables import DesignSession
from app.db.types import CLOCK
from app.schemas.sessions import SessionChange
from app.usecases.propose_designs import cancel_proposals


def change_session(session: Session, session_id: str, wanted: SessionChange) -> DesignSession:
    """Closing cancels the jobs that make proposals: nobody would be handed them."""
    changes: dict[str, object] = {} if wanted.name is None else {"name": wanted.name}
    if wanted.closed is not None:
        changes["closed_at"] = CLOCK if wanted.closed else None
    row = sessions.change(session, session_id, observes=False, **changes)
    if wanted.closed:
        cancel_proposals(session, select(DesignSession.id).where(DesignSession.id == session_id))
    return row
