"""Sessions of experiments."""

from fastapi import APIRouter, Response
from sqlalchemy import select

from app.db.tables import DesignSession, Experiment
from app.sessions.change import change_session
from app.sessions.open import open_session
from app.sessions.read_experiment import read_form
from app.sessions.reissue_token import reissue_token, revoke_token
from app.sessions.schemas import NewSessionOut, SessionChange, SessionIn, SessionItem, SessionOut, SessionTokenOut
from app.sessions.views import session_item, session_view
from app.web.dependencies import CanRead, CanWrite, TokenRoute
from app.web.paging import Page, Paged, page_by_id

router = APIRouter(prefix="/v1", tags=["sessions"], route_class=TokenRoute)


@router.post(
    "/experiments/{experiment_id}/sessions", status_code=201, operation_id="open_session", summary="Open a session"
)
def post_session(
    experiment_id: str, context: CanWrite[Experiment], wanted: SessionIn, response: Response
) -> NewSessionOut:
    """One participant or sample. `token` is shown in this answer only, and a replay leaves it out."""
    form = read_form(context.services, experiment_id)
    opened = open_session(context.session, context.resource, wanted)
    response.headers["Location"] = f"/v1/sessions/{opened.session.id}"
    return NewSessionOut(**session_view(context.session, opened.session, form).model_dump(), token=opened.token)


@router.get("/experiments/{experiment_id}/sessions", summary="List an experiment's sessions")
def list_sessions(experiment_id: str, context: CanRead[Experiment], paging: Paged) -> Page[SessionItem]:
    """Without their forms: each session by itself has it."""
    query = select(DesignSession).where(DesignSession.experiment_id == experiment_id)
    return page_by_id(context.session, query, paging, lambda row: session_item(context.session, row))


@router.get("/sessions/{session_id}", summary="Get a session")
def get_session(session_id: str, context: CanRead[DesignSession]) -> SessionOut:
    """With the form of its trials: what a design consists of, how its outcome is entered, what to tell people."""
    form = read_form(context.services, context.resource.experiment_id)
    return session_view(context.session, context.resource, form)


@router.patch("/sessions/{session_id}", operation_id="change_session", summary="Rename, close or reopen a session")
def patch_session(session_id: str, context: CanWrite[DesignSession], wanted: SessionChange) -> SessionOut:
    form = read_form(context.services, context.resource.experiment_id)
    return session_view(context.session, change_session(context.session, session_id, wanted), form)


@router.post(
    "/sessions/{session_id}/token", status_code=201, operation_id="reissue_session_token", summary="Reissue a token"
)
def post_token(session_id: str, context: CanWrite[DesignSession]) -> SessionTokenOut:
    """A new token for the session; the one before is refused from now on. Shown in this answer only, and a replay
    leaves it out."""
    return SessionTokenOut(session_id=session_id, token=reissue_token(context.session, session_id))


@router.delete(
    "/sessions/{session_id}/token",
    status_code=204,
    operation_id="revoke_session_token",
    summary="Revoke a session's token",
)
def remove_token(session_id: str, context: CanWrite[DesignSession]) -> None:
    """It is refused from now on. The session stays as it is, and can be given a new one."""
    revoke_token(context.session, session_id)
