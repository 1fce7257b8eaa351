"""Give a session a new token, or none: the one before is unknown from then on."""

from sqlalchemy.orm import Session

from app.sessions import state as sessions
from app.web.auth import digest, new_token


def reissue_token(session: Session, session_id: str) -> str:
    token = new_token()
    sessions.change(session, session_id, observes=False, token_digest=digest(token))
    return token


def revoke_token(session: Session, session_id: str) -> None:
    reissue_token(session, session_id)  # to nobody
