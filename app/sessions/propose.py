"""Propose what to run next: computed in the request, or by a job where that takes long."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from app.db.tables import Job, Proposal
from app.db.types import database_time, new_id
from app.errors import Conflict, Problem
from app.experiments.refusals import refusals
from app.queue import queue
from app.queue.context import JobContext, JobFailed
from app.services import Services, job_services
from app.sessions import state as sessions
from app.sessions.read_experiment import experiment_of
from app.sessions.schemas import ProposalIn
from app.sessions.state import Pair, State
from bensemble_core import design

TOLD_SECONDS = 60  # how long a client is told that its job failed; then it may try again
_ENDED = {"failed": "failed", "cancelled": "was cancelled"}
TOO_EXPENSIVE = "whether the best design still promises enough was not looked at: that takes a job; ask for a proposal"


@dataclass(frozen=True, kw_only=True)
class Expensive:
    """`reason` is the number that says why."""

    job: Job
    work: design.Work
    reason: str


@dataclass(frozen=True, kw_only=True)
class Draft:
    """Proposals as computed, and what the stopping rule says at that."""

    proposals: list[design.Proposal]
    stop: dict[str, Any]


def propose_designs(
    services: Services, session: Session, session_id: str, wanted: ProposalIn, *, cap: float
) -> list[Proposal] | Expensive:
    """The client's own pending proposals, if it has any and they are what it asks for; else new ones, for which all
    pending ones count as run."""

    def attempt() -> list[Proposal] | Expensive:
        with services.database.read() as reading:
            state = sessions.read(reading, session_id)
        sessions.refuse_closed(state.is_closed)
        own = pending_of(state, wanted.client_id)
        if own and not (wanted.fixed or wanted.excluded):
            return as_asked(None, own, wanted)
        experiment = experiment_of(services, state)
        check_choice(experiment, wanted)
        if own:
            return as_asked(experiment, own, wanted)
        pending = [proposal.design for proposal in state.pending]
        work = experiment.work(len(state.observations), wanted.count, len(pending))
        draft = affordable_draft(services, state, experiment, state.observations, pending, wanted, cap=cap)
        if isinstance(draft, str):
            job = queue_proposal(session, session_id, wanted, version=state.version)
            _refuse_other_wish(job, wanted)
            return Expensive(job=job, work=work, reason=draft)
        if not draft.proposals:
            raise Conflict("no design is left that is allowed and affordable; fix or exclude fewer, or stop here")
        sessions.take(session, state, observes=False)
        return write_proposals(session, state, draft, wanted, revision=state.revision)

    return sessions.settle(session, attempt)


def pending_of(state: State, client_id: str | None) -> list[Proposal]:
    return [p for p in state.pending if client_id is not None and p.client_id == client_id]


def as_asked(experiment: design.Experiment | None, own: list[Proposal], wanted: ProposalIn) -> list[Proposal]:
    """A client's pending proposals, refused where they are not what it asks for now."""
    why = None
    if "count" in wanted.model_fields_set and wanted.count != len(own):
        why = f"{len(own)} of them, not {wanted.count}"
    if experiment is not None:
        space = experiment.spec.model.space
        fixed, excluded = space.partial(wanted.fixed), [space.encode(each) for each in wanted.excluded]
        for proposal in own:
            at = space.partial(proposal.design)
            if any(at[name] != value for name, value in fixed.items()):
                why = f"{proposal.design}, which has not the fixed {wanted.fixed}"
            elif space.encode(proposal.design) in excluded:
                why = f"{proposal.design}, which is excluded"
    if why is None:
        return own
    raise Conflict(
        f"client {wanted.client_id!r} has proposals pending already: {why}. Answer them, or abandon them with POST "
        f"/v1/proposals/{own[0].id}/abandon, and ask again; or ask for what is pending, without these",
        proposal_ids=[proposal.id for proposal in own],
    )


def _refuse_other_wish(job: Job, wanted: ProposalIn) -> None:
    """A client has one job at a time: it must not take what it asks for now to be what that job makes."""
    under_way = ProposalIn.model_validate(job.payload["wanted"])
    asked = wanted.model_dump(include={"count", "fixed", "excluded"}, exclude_unset=True)
    for name, value in asked.items():
        made = getattr(under_way, name)
        if value not in ({}, [], made):
            raise Conflict(
                f"a job makes a proposal for client {wanted.client_id!r} already, with {name} {made}, not {value}; "
                "wait for it and answer or abandon what it proposes, or cancel it",
                job_id=job.id,
            )


def queue_proposal(session: Session, session_id: str, wanted: ProposalIn, *, version: int) -> Job:
    """One job for one client, however often it asks, until it has ended. One that failed for the same wish, the session
    being as it is now, is told for a while: who asks in a loop would otherwise have it tried for ever."""
    payload = {
        "session_id": session_id,
        "wanted": wanted.model_dump(mode="json", exclude_unset=True),
        "version": version,
    }
    if wanted.client_id is None:
        return queue.enqueue(session, kind="propose", queue="design", payload=payload).job
    of_client = _jobs_of(session, session_id, wanted.client_id)
    under_way = next((job for job in of_client if job.status not in _ENDED), None)
    ended = next((job for job in of_client if job.payload == payload), None)
    if under_way is not None and under_way.dedup_key is None:  # one with a key has not begun, and is found by it
        return under_way
    if under_way is None and ended is not None:
        why = f": {ended.error['detail']}" if ended.error else ""
        raise Conflict(
            f"the job that was to make this proposal {_ENDED[ended.status]}{why} (ask again in {TOLD_SECONDS} s to "
            "have it tried once more)",
            job_id=ended.id,
        )
    key = f"propose:{session_id}:{wanted.client_id}"
    return queue.enqueue(session, kind="propose", queue="design", payload=payload, dedup_key=key).job


def _jobs_of(session: Session, session_id: str, client_id: str) -> list[Job]:
    """Those that are under way, and those that came to nothing lately; the newest first."""
    lately = database_time(session) - timedelta(seconds=TOLD_SECONDS)
    query = (
        select(Job)
        .where(
            Job.queue == "design",
            Job.status.in_(("queued", "running", *_ENDED)),
            Job.kind == "propose",
            Job.finished_at.is_(None) | (Job.finished_at > lately),
            Job.payload["session_id"].as_string() == session_id,
        )
        .order_by(Job.id.desc())
    )
    return [job for job in session.scalars(query) if job.payload["wanted"].get("client_id") == client_id]


def proposing_jobs(session: Session, session_ids: Select[Any]) -> Sequence[str]:
    """Ids of the jobs that make proposals for these sessions: to be cancelled where nobody would be handed them."""
    query = select(Job.id).where(
        Job.queue == "design",
        Job.status.in_(("queued", "running")),
        Job.kind == "propose",
        Job.payload["session_id"].as_string().in_(session_ids),
    )
    return session.scalars(query).all()


def check_choice(experiment: design.Experiment, wanted: ProposalIn) -> None:
    space = experiment.spec.model.space
    with refusals("/excluded"):
        for excluded in wanted.excluded:
            space.encode(excluded)
    with refusals("/fixed"):
        space.partial(wanted.fixed)


def affordable_draft(
    services: Services,
    state: State,
    experiment: design.Experiment,
    observations: list[Pair],
    pending: list[dict[str, Any]],
    wanted: ProposalIn,
    *,
    cap: float,
) -> Draft | str:
    """Computed as long as a request may, or why it takes a job."""
    work = experiment.work(len(observations), wanted.count, len(pending))
    if work.evaluations > cap:
        return f"{work.explanation}: {work.evaluations:,} evaluations, over the cap of {cap:,.0f}"
    seconds = services.settings.design_seconds
    too_long = f"{work.explanation}: {work.evaluations:,} evaluations take more than {seconds:g} s"
    what = ("proposal", state.spec_hash)
    if services.compute.is_too_expensive(what, work.evaluations):
        return too_long
    try:
        with design.limited(seconds):
            return draft_proposals(experiment, observations, len(state.prior), pending, wanted)
    except design.TooMuchWork:
        services.compute.remember_too_expensive(what, work.evaluations)
        return too_long


def draft_proposals(
    experiment: design.Experiment,
    observations: list[Pair],
    n_prior: int,
    pending: list[dict[str, Any]],
    wanted: ProposalIn,
) -> Draft:
    with refusals("/fixed" if wanted.fixed else None):
        found = experiment.propose(
            observations,
            wanted.count,
            pending=pending,
            fixed=wanted.fixed,
            excluded=wanted.excluded,
            n_prior=n_prior,
        )
    is_free = not (pending or wanted.fixed or wanted.excluded)
    best = found[0].max_eig if found and is_free else None
    with refusals():
        return Draft(proposals=found, stop=asdict(experiment.stop(observations, max_eig=best, n_prior=n_prior)))


def write_proposals(
    session: Session, state: State, draft: Draft, wanted: ProposalIn, *, revision: int
) -> list[Proposal]:
    last = session.scalar(select(func.max(Proposal.number)).where(Proposal.session_id == state.id)) or 0
    lasts = None if wanted.expires_in is None else state.now + timedelta(seconds=wanted.expires_in)
    rows = [
        Proposal(
            id=new_id(),
            session_id=state.id,
            number=last + i,
            client_id=wanted.client_id,
            design=made.design,
            eig=made.eig,
            se=made.se,
            method=made.method,
            details={
                **{name: getattr(made, name) for name in ("joint_eig", "score", "cost", "utility", "note")},
                "chosen": made.reason,
                "runner_up": None if made.runner_up is None else asdict(made.runner_up),
                "stop": draft.stop,
                "round": revision,  # as older versions know it
            },
            status="pending",
            expires_at=lasts,
        )
        for i, made in enumerate(draft.proposals, 1)
    ]
    session.add_all(rows)
    session.flush()
    return rows


def propose(job: JobContext) -> None:
    """The same as a job: it computes whatever that takes."""
    services = job_services(job)
    wanted = ProposalIn.model_validate(job.payload["wanted"])
    job.progress(0, 1, "computing")
    result: dict[str, Any] = {"session_id": job.payload["session_id"]}
    for _ in range(sessions.ATTEMPTS):
        try:
            _propose_once(services, job, wanted, result)
            return
        except sessions.Outdated:
            job.progress(0, 1, "computing again: the session has changed")
        except Problem as problem:
            raise JobFailed(**problem.body()) from problem
    raise JobFailed(Conflict.title, "the session kept changing meanwhile; ask again")


def _propose_once(services: Services, job: JobContext, wanted: ProposalIn, result: dict[str, Any]) -> None:
    with job.database.read() as reading:
        state = sessions.read(reading, job.payload["session_id"])
    if state.is_closed:
        raise Conflict("the session was closed before its proposal was computed")
    experiment = experiment_of(services, state)
    if own := pending_of(state, wanted.client_id):
        summaries = [_summary(row) for row in as_asked(experiment, own, wanted)]
        with job.finish({**result, "proposals": summaries}):
            return
    pending = [proposal.design for proposal in state.pending]
    draft = draft_proposals(experiment, state.observations, len(state.prior), pending, wanted)
    if not draft.proposals:
        raise Conflict("no design is left that is allowed and affordable; fix or exclude fewer, or stop here")
    job.progress(1, 1, "computed")
    with job.finish(result) as session:
        sessions.take(session, state, observes=False)
        rows = write_proposals(session, state, draft, wanted, revision=state.revision)
        result["proposals"] = [_summary(row) for row in rows]


def _summary(row: Proposal) -> dict[str, Any]:
    columns = {name: getattr(row, name) for name in ("id", "design", "eig", "se", "method")}
    return {**columns, **{name: row.details.get(name) for name in ("note", "runner_up", "stop")}}
