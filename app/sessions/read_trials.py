"""What was observed, with what each outcome taught: as it was told then or, after an undo, computed anew when it is
read. An undo itself computes nothing, however many trials follow the one that is taken back."""

import time
from typing import Any

from sqlalchemy import select, update

from app.db.tables import DesignSession, Observation, Proposal
from app.errors import Problem
from app.services import Services
from app.sessions import state as sessions
from app.sessions.learn_outcome import FAILED, NOT_LEARNT, PATIENCE, UNKNOWN, learnt, plain_stop
from app.sessions.read_experiment import experiment_of, read_session

Columns = tuple[list[str], list[str], list[str]]
STALE = "an earlier outcome was taken back since; what this one taught was not yet computed anew: read the trials again"
NOT_AGAIN = "whether the best design still promised enough is not looked at again after an undo"


def read_trials(
    services: Services,
    session_id: str,
    *,
    after: int | None = None,
    limit: int | None = None,
    is_descending: bool = False,
) -> list[tuple[Observation, Proposal | None]]:
    query = (
        select(Observation, Proposal)
        .outerjoin(Proposal, Proposal.id == Observation.proposal_id)
        .where(Observation.session_id == session_id)
        .order_by(Observation.n.desc() if is_descending else Observation.n)
        .limit(limit)
    )
    if after is not None:
        query = query.where(Observation.n < after if is_descending else Observation.n > after)
    with services.database.read() as session:
        found: list[tuple[Observation, Proposal | None]] = [(row, proposal) for row, proposal in session.execute(query)]
    refresh(services, session_id, [row for row, _ in found])
    return found


def read_columns(services: Services, session_id: str) -> Columns:
    """The names of its designs, outcomes and parameters."""
    model = sessions.settle(None, lambda: read_session(services, session_id))[1].spec.model
    return sorted(model.space.names), sorted(each.name for each in model.outcomes), sorted(model.prior.names)


def refresh(services: Services, session_id: str, rows: list[Observation]) -> None:
    """Compute anew what stale observations taught, and keep it. Those that take too long stay stale, and say so."""
    stale = [row for row in rows if row.is_stale]
    if not stale:
        return
    state, made = sessions.settle(None, lambda: _computed(services, session_id, stale))
    for row in stale:
        if row.id in made:
            row.answer, row.is_stale = made[row.id], False
        else:
            row.answer = {**row.answer, **UNKNOWN, "warnings": [STALE], "stop": _unknown_stop()}
    with services.database.write() as session:
        is_same = select(DesignSession.id).where(DesignSession.id == session_id, DesignSession.version == state.version)
        if session.scalar(is_same.with_for_update()) is not None:
            for row_id, answer in made.items():
                kept = update(Observation).where(Observation.id == row_id)
                session.execute(kept.values(answer=answer, is_stale=False))


def _computed(
    services: Services, session_id: str, stale: list[Observation]
) -> tuple[sessions.State, dict[str, dict[str, Any]]]:
    seen = (
        select(Observation.n, Observation.design, Observation.outcome)
        .where(Observation.session_id == session_id)
        .order_by(Observation.n)
    )
    with services.database.read() as session:
        state = sessions.read(session, session_id)
        pairs = [(n, (design, outcome)) for n, design, outcome in session.execute(seen)]
    experiment = experiment_of(services, state)
    end = time.thread_time() + PATIENCE * services.settings.design_seconds
    made: dict[str, dict[str, Any]] = {}
    for row in stale:
        if time.thread_time() > end:
            break
        observations = [*state.prior, *(pair for n, pair in pairs if n <= row.n)]
        try:
            taught = learnt(services, experiment, state, observations, n=row.n)
            stop = plain_stop(services, state, experiment, observations, note=NOT_AGAIN)
        except Problem:  # it can't be computed any more; who asks for the posterior is told why
            continue
        if not {NOT_LEARNT, FAILED} & set(taught["warnings"]):
            made[row.id] = {**row.answer, **taught, "stop": stop}
    return state, made


def _unknown_stop() -> dict[str, Any]:
    return {"stop": False, "reasons": [], "note": STALE}
