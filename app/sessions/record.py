"""Record an outcome, say what it taught, and propose the next design in the same breath."""

import logging
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db.tables import Job, Observation, Proposal
from app.db.types import new_id
from app.errors import Conflict, NotFound, Problem
from app.experiments.refusals import refusals
from app.services import Services
from app.sessions import state as sessions
from app.sessions.learn_outcome import learnt, plain_stop, stop_state
from app.sessions.propose import (
    TOO_EXPENSIVE,
    Draft,
    Expensive,
    affordable_draft,
    pending_of,
    propose_designs,
    queue_proposal,
    write_proposals,
)
from app.sessions.read_experiment import experiment_of
from app.sessions.read_trials import refresh
from app.sessions.schemas import ObservationIn, ProposalIn
from app.sessions.state import Pair, State
from bensemble_core import design

logger = logging.getLogger(__name__)
NOT_LOOKED = "whether the best design still promises enough was not looked at"
MAX_OBSERVATIONS = 10_000  # of one session: beliefs are computed from all of them


@dataclass(frozen=True, kw_only=True)
class Recorded:
    observation: Observation
    revision: int
    next: list[Proposal]
    next_job: Job | None = None
    next_problem: str | None = None


def record_observation(
    services: Services, session: Session, session_id: str, given: ObservationIn, *, proposes: bool, cap: float
) -> Recorded:
    """The same outcome of the same proposal is recorded once, however often it is sent."""

    def attempt() -> Recorded:
        with services.database.read() as reading:
            state = sessions.read(reading, session_id)
            proposal = _proposal(reading, state, given)
            earlier = _earlier(reading, proposal)
        experiment = experiment_of(services, state)
        if earlier is not None:
            _refuse_another(experiment, earlier, given)
            return _again(services, session, state, earlier, proposes=proposes, cap=cap)
        _check(state, given)
        if proposal is None:
            proposal = _meant(experiment, state, given)
        ran = _ran(experiment, proposal, given)
        client_id = given.client_id or (proposal.client_id if proposal is not None else None)
        answered = proposal.id if proposal is not None else None
        after = [p for p in state.pending if p.id != answered]
        own = [p for p in after if client_id is not None and p.client_id == client_id] if proposes else []
        wanted = ProposalIn(client_id=client_id)
        observations = [*state.observations, ran]
        pending = [p.design for p in after]
        taught = learnt(services, experiment, state, observations, n=state.last_n + 1)
        ahead = _ahead(
            services, experiment, state, observations, pending, wanted, cap=cap, proposes=proposes and not own
        )
        draft = ahead.draft
        answer = {**taught, "stop": ahead.stop}
        number = sessions.take(session, state, observes=True)
        following = write_proposals(session, state, draft, wanted, revision=number) if draft else own
        row = Observation(
            id=new_id(),
            session_id=session_id,
            n=state.last_n + 1,
            proposal_id=answered,
            client_id=client_id,
            design=ran[0],
            outcome=ran[1],
            answer={**answer, "next_ids": [each.id for each in following]},
        )
        session.add(row)
        if answered is not None:
            session.get_one(Proposal, answered).status = "observed"
        session.flush()
        job = queue_proposal(session, session_id, wanted, version=state.version + 1) if ahead.is_too_expensive else None
        return Recorded(observation=row, revision=number, next=following, next_job=job, next_problem=ahead.problem)

    return sessions.settle(session, attempt)


def _proposal(session: Session, state: State, given: ObservationIn) -> Proposal | None:
    if given.proposal_id is None:
        return None
    proposal = session.get(Proposal, given.proposal_id)
    if proposal is None or proposal.session_id != state.id:
        raise NotFound(f"this session has no proposal {given.proposal_id!r}")
    return proposal


def _earlier(session: Session, proposal: Proposal | None) -> Observation | None:
    """The outcome that this proposal has already; none, where it was taken back meanwhile."""
    if proposal is None or proposal.status != "observed":
        return None
    return session.scalars(select(Observation).where(Observation.proposal_id == proposal.id)).one_or_none()


def _refuse_another(experiment: design.Experiment, found: Observation, given: ObservationIn) -> None:
    same = _labelled(experiment, found.outcome) == _labelled(experiment, given.outcome)
    if not same or (given.design is not None and found.design != given.design):
        raise Conflict(
            f"this proposal has the outcome {found.outcome} at {found.design} already; to correct it, take that back "
            f"with DELETE /v1/sessions/{found.session_id}/observations/{found.n} first"
        )


def _again(
    services: Services, session: Session, state: State, earlier: Observation, *, proposes: bool, cap: float
) -> Recorded:
    refresh(services, state.id, [earlier])
    told = earlier.answer.get("next_ids", [])
    following: list[Proposal] = []
    job = problem = None
    if proposes and told and not state.is_closed:
        query = select(Proposal).where(Proposal.id.in_(told)).order_by(Proposal.number)
        following = list(session.scalars(query))
    elif proposes:
        try:
            found = propose_designs(services, session, state.id, ProposalIn(client_id=earlier.client_id), cap=cap)
            following, job = ([], found.job) if isinstance(found, Expensive) else (found, None)
        except Problem as refusal:  # of the proposal, not of the outcome, which is recorded
            problem = refusal.detail
    return Recorded(observation=earlier, revision=state.revision, next=following, next_job=job, next_problem=problem)


def _check(state: State, given: ObservationIn) -> None:
    sessions.refuse_closed(state.is_closed)
    if given.revision is not None and given.revision != state.revision:
        raise Conflict(
            f"the session is at revision {state.revision}, not {given.revision}: somebody else has changed its "
            "observations; look at them, and send the outcome again with the new revision"
        )
    if len(state.observed) >= MAX_OBSERVATIONS:
        raise Conflict(f"a session has at most {MAX_OBSERVATIONS:,} observations; open another one")


def _meant(experiment: design.Experiment, state: State, given: ObservationIn) -> Proposal | None:
    """The pending proposal that an outcome without its id answers: of that client or design, the oldest."""
    with refusals("/design"):
        row = experiment.spec.model.space.encode(given.design or {})
    same = [p for p in state.pending if experiment.spec.model.space.encode(p.design) == row]
    own = [p for p in same if p in pending_of(state, given.client_id)]
    return next(iter([*own, *same]), None)


def _ran(experiment: design.Experiment, proposal: Proposal | None, given: ObservationIn) -> Pair:
    """Design and outcome, checked; an outcome with labels by its label, also where its number came."""
    ran = given.design if given.design is not None else (proposal.design if proposal is not None else {})
    with refusals("/design"):
        space = experiment.spec.model.space
        for variable, x in zip(space.variables, space.encode(ran), strict=False):
            variable.refuse_far(x)
    with refusals("/outcome"):
        experiment.spec.model.event((ran, given.outcome))
    return dict(ran), _labelled(experiment, given.outcome)


def _labelled(experiment: design.Experiment, outcome: dict[str, Any]) -> dict[str, Any]:
    """One form for what is stored and compared: "solves" and 1 are the same outcome of a table."""
    named = {each.name: each for each in experiment.spec.model.outcomes if each.labels and each.name in outcome}
    with refusals("/outcome"):
        return {**outcome, **{name: each.decode(each.encode(outcome[name])) for name, each in named.items()}}


@dataclass(frozen=True, kw_only=True)
class _Ahead:
    """What comes after an outcome. Whatever happens to it, the outcome is recorded."""

    stop: dict[str, Any]
    draft: Draft | None = None
    is_too_expensive: bool = False  # the draft takes a job
    problem: str | None = None  # why there is no draft


def _ahead(
    services: Services,
    experiment: design.Experiment,
    state: State,
    observations: list[Pair],
    pending: list[dict[str, Any]],
    wanted: ProposalIn,
    *,
    cap: float,
    proposes: bool,
) -> _Ahead:
    is_too_expensive, problem = False, None
    try:
        if proposes:
            found = affordable_draft(services, state, experiment, observations, pending, wanted, cap=cap)
            if isinstance(found, Draft):
                return _Ahead(stop=found.stop, draft=found)
            is_too_expensive = True
        else:
            return _Ahead(stop=stop_state(services, state, experiment, observations, cap=cap))
    except Problem as refusal:
        problem = refusal.detail
    except Exception:
        logger.exception("the proposal after an outcome failed", extra={"session_id": state.id})
        problem = "an unforeseen error, which is in the log of the service"
    note = TOO_EXPENSIVE if problem is None else f"{NOT_LOOKED}: {problem}"
    stop = plain_stop(services, state, experiment, observations, note=note)
    failed = None if problem is None or not proposes else f"the outcome is recorded, the next design is not: {problem}"
    return _Ahead(stop=stop, is_too_expensive=is_too_expensive, problem=failed)
