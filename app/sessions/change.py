"""Rename a session, close it or open it again."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db.tables import DesignSession
from app.db.types import CLOCK
from app.queue import queue
from app.sessions import state as sessions
from app.sessions.propose import proposing_jobs
from app.sessions.schemas import SessionChange


def change_session(session: Session, session_id: str, wanted: SessionChange) -> DesignSession:
    """Closing cancels the jobs that make proposals: nobody would be handed them."""
    changes: dict[str, object] = {} if wanted.name is None else {"name": wanted.name}
    if wanted.closed is not None:
        changes["closed_at"] = CLOCK if wanted.closed else None
    row = sessions.change(session, session_id, observes=False, **changes)
    if wanted.closed:
        own = select(DesignSession.id).where(DesignSession.id == session_id)
        queue.request_cancels(session, proposing_jobs(session, own))
    return row
