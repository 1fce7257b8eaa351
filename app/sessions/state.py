"""Queries about sessions of experiments. A session is read, computed from with no transaction open, and written only
if it is still the same; its row is the only one that is locked."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from app.db.tables import DesignSession, Experiment, Observation, Proposal
from app.db.types import database_time
from app.errors import Conflict, NotFound

T = TypeVar("T")
Pair = tuple[dict[str, Any], dict[str, Any]]  # design, outcome
ATTEMPTS = 20


class Outdated(Exception):
    """The session was changed since it was read."""


@dataclass(frozen=True, kw_only=True)
class State:
    """All of a session that is computed from."""

    id: str
    experiment_id: str
    spec_hash: str
    seed: int | None
    revision: int
    version: int
    is_closed: bool
    prior: list[Pair]
    observed: list[Pair]
    last_n: int
    pending: list[Proposal]
    expired: list[str]  # ids of proposals that wait in vain
    now: datetime

    @property
    def observations(self) -> list[Pair]:
        """The prior's first."""
        return [*self.prior, *self.observed]


def read(session: Session, session_id: str) -> State:
    query = (
        select(DesignSession, Experiment.spec_hash)
        .join(Experiment, Experiment.id == DesignSession.experiment_id)
        .where(DesignSession.id == session_id)
    )
    found = session.execute(query).one_or_none()
    if found is None:
        raise NotFound(f"there is no session {session_id!r} any more")
    row, spec_hash = found
    seen = (
        select(Observation.design, Observation.outcome)
        .where(Observation.session_id == session_id)
        .order_by(Observation.n)
    )
    observed = session.execute(seen).all()
    waiting = (
        select(Proposal)
        .where(Proposal.session_id == session_id, Proposal.status == "pending")
        .order_by(Proposal.number)
    )
    now = database_time(session)
    proposals = list(session.scalars(waiting))
    lapsed = [p.id for p in proposals if p.expires_at is not None and p.expires_at <= now]
    return State(
        id=row.id,
        experiment_id=row.experiment_id,
        spec_hash=spec_hash,
        seed=row.seed,
        revision=row.revision,
        version=row.version,
        is_closed=row.closed_at is not None,
        prior=[(each["design"], each["outcome"]) for each in row.prior_observations],
        observed=[(design, outcome) for design, outcome in observed],
        last_n=row.last_n,
        pending=[p for p in proposals if p.id not in lapsed],
        expired=lapsed,
        now=now,
    )


def take(session: Session, state: State, *, observes: bool) -> int:
    """Lock the session, if it is still as it was read, for a change; its new revision. Who observes takes the next
    number of an observation, too. Lapsed proposals become stale."""
    query = (
        update(DesignSession)
        .where(DesignSession.id == state.id, DesignSession.version == state.version)
        .values(
            version=DesignSession.version + 1,
            revision=DesignSession.revision + int(observes),
            last_n=DesignSession.last_n + int(observes),
        )
        .returning(DesignSession.revision)
    )
    number = session.execute(query).scalar_one_or_none()
    if number is None:
        raise Outdated
    if state.expired:
        lapse = update(Proposal).where(Proposal.id.in_(state.expired), Proposal.status == "pending")
        session.execute(lapse.values(status="stale", reason="no outcome came in time"))
    return number


def change(session: Session, session_id: str, *, observes: bool, **columns: Any) -> DesignSession:
    """Lock the session for a change that depends on nothing computed."""
    query = (
        update(DesignSession)
        .where(DesignSession.id == session_id)
        .values(version=DesignSession.version + 1, revision=DesignSession.revision + int(observes), **columns)
        .returning(DesignSession)
    )
    row = session.execute(query, execution_options={"populate_existing": True}).scalar_one_or_none()
    if row is None:
        raise NotFound(f"there is no session {session_id!r} any more")
    return row


def change_open(session: Session, session_id: str, *, observes: bool) -> DesignSession:
    """The same, refused where the session is closed: it is then only read."""
    row = change(session, session_id, observes=observes)
    refuse_closed(row.closed_at is not None)
    return row


def refuse_closed(is_closed: bool) -> None:
    if is_closed:
        raise Conflict("this session is closed and can only be read; reopen it with PATCH, or open another")


def settle(session: Session | None, attempt: Callable[[], T]) -> T:
    """Read, compute and write (with this session, if at all), again if others were faster."""
    for _ in range(ATTEMPTS):
        try:
            return attempt()
        except Outdated:
            if session is not None:
                session.rollback()
    raise Conflict("this session is being changed by others faster than can be computed; try again")
