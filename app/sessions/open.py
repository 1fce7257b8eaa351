"""Open a session: what it starts from is fixed here, so that its proposals can be computed again."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db.tables import DesignSession, Experiment, Observation
from app.db.types import new_id
from app.errors import Malformed
from app.sessions.record import MAX_OBSERVATIONS
from app.sessions.schemas import OtherSession, SessionIn
from app.web.auth import digest, new_token


@dataclass(frozen=True, kw_only=True)
class Opened:
    session: DesignSession
    token: str


def open_session(session: Session, experiment: Experiment, wanted: SessionIn) -> Opened:
    token = new_token()
    row = DesignSession(
        id=new_id(),
        experiment_id=experiment.id,
        name=wanted.name,
        seed=wanted.seed,
        prior={"from": wanted.prior} if isinstance(wanted.prior, str) else wanted.prior.model_dump(),
        prior_observations=_inherited(session, experiment, wanted),
        token_digest=digest(token),
    )
    session.add(row)
    session.flush()
    return Opened(session=row, token=token)


def _inherited(session: Session, experiment: Experiment, wanted: SessionIn) -> list[dict[str, Any]]:
    """Others' observations, those that they inherited themselves included, each once."""
    if wanted.prior == "spec":
        return []
    query = select(DesignSession).where(DesignSession.experiment_id == experiment.id).order_by(DesignSession.id)
    if not isinstance(wanted.prior, str):
        is_one = isinstance(wanted.prior, OtherSession)
        asked = [wanted.prior.session_id] if isinstance(wanted.prior, OtherSession) else wanted.prior.session_ids
        query = query.where(DesignSession.id.in_(asked))
        known = set(session.scalars(query.with_only_columns(DesignSession.id)))
        for i, each in enumerate(asked):
            if each not in known:
                raise Malformed(
                    f"this experiment has no session {each!r} to start from",
                    pointer="/prior/session_id" if is_one else f"/prior/session_ids/{i}",
                )
    found: dict[str, dict[str, Any]] = {}
    for other in session.scalars(query):
        found.update({each["id"]: each for each in other.prior_observations})
        own = select(Observation).where(Observation.session_id == other.id).order_by(Observation.n)
        found.update({o.id: {"id": o.id, "design": o.design, "outcome": o.outcome} for o in session.scalars(own)})
    if len(found) > MAX_OBSERVATIONS:
        raise Malformed(
            f"these sessions have {len(found):,} observations; a prior is made of at most {MAX_OBSERVATIONS:,}",
            pointer="/prior",
        )
    return list(found.values())
