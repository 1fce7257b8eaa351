"""Sessions, proposals and observations as the API shows them."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from fastapi import Response
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.db.jobs import FAILED
from app.db.tables import DesignSession, Job, Observation, Proposal
from app.db.types import CLOCK
from app.experiments.schemas import FormOut
from app.services import Services
from app.sessions.propose import Expensive
from app.sessions.read_trials import Columns
from app.sessions.record import Recorded
from app.sessions.schemas import (
    ExpensiveOut,
    ObservationOut,
    ProposalBase,
    ProposalOut,
    SessionItem,
    SessionOut,
    TrialOut,
)
from app.web.csv import cell, lines
from app.web.job_view import job_view
from app.web.waiting import First


def session_view(session: Session, row: DesignSession, form: FormOut) -> SessionOut:
    return SessionOut(**session_item(session, row).model_dump(exclude={"round"}), form=form)


def session_item(session: Session, row: DesignSession) -> SessionItem:
    seen = select(func.count()).select_from(Observation).where(Observation.session_id == row.id)
    waiting = (
        select(func.count())
        .select_from(Proposal)
        .where(Proposal.session_id == row.id, Proposal.status == "pending")
        .where(Proposal.expires_at.is_(None) | (Proposal.expires_at > CLOCK))
    )
    return SessionItem.of(
        row,
        status="open" if row.closed_at is None else "closed",
        n_prior_observations=len(row.prior_observations),
        n_observations=session.scalar(seen) or 0,
        n_pending=session.scalar(waiting) or 0,
    )


def proposal_view(row: Proposal) -> ProposalBase:
    return ProposalBase.of(row, **row.details, revision=row.details["round"])


def proposals_view(rows: Sequence[Proposal]) -> ProposalOut:
    views = [proposal_view(row) for row in rows]
    return ProposalOut(**views[0].model_dump(), batch=views if len(views) > 1 else None)


def proposals_of_job(session: Session, job: Job) -> ProposalOut | None:
    """What a job has proposed; None as long as it has not succeeded."""
    if job.status != "succeeded" or job.result is None:
        return None
    made = Proposal.id.in_([proposal["id"] for proposal in job.result["proposals"]])
    return proposals_view(session.scalars(select(Proposal).where(made).order_by(Proposal.number)).all())


def observation_view(session: Session, recorded: Recorded) -> ObservationOut:
    return ObservationOut.of(
        recorded.observation,
        **recorded.observation.answer,
        revision=recorded.revision,
        next=proposals_view(recorded.next) if recorded.next else None,
        next_job=job_view(session, recorded.next_job) if recorded.next_job is not None else None,
        next_problem=recorded.next_problem,
    )


def trial_view(row: Observation, proposal: Proposal | None) -> TrialOut:
    return TrialOut.of(
        row,
        **row.answer,
        proposed=proposal.design if proposal is not None else None,
        eig=proposal.eig if proposal is not None else None,
    )


def followed_view(services: Services, session: Session, first: First) -> ObservationOut:
    """With what the job for the next design has come to."""
    job = session.get_one(Job, first["next_job"]["id"])
    ended = job.error["detail"] if job.error else f"its job is {job.status}"
    news = {
        "next": proposals_of_job(session, job),
        "next_job": job_view(session, job),
        "next_problem": f"the outcome is recorded, the next design is not: {ended}" if job.status in FAILED else None,
    }
    return ObservationOut(**{**first, **news})


def trials_csv(trials: list[TrialOut], columns: Columns) -> str:
    """One line an observation; designs, outcomes and parameters have a column each, also where nothing was observed."""
    designs, outcomes, parameters = columns
    learnt = [f"{name}_{what}" for name in parameters for what in ("mean", "sd")]
    figures = ("eig", "entropy_drop", "kl", "surprise", "log_evidence")
    fields = (*figures, "proposal_id", "client_id", "created_at", "is_stale")
    rows: list[Iterable[Any]] = [["n", *designs, *outcomes, *learnt, *fields]]
    for each in trials:
        known = each.posterior or {}
        believed = [getattr(known.get(name), what, None) for name in parameters for what in ("mean", "sd")]
        ran = [each.design.get(name) for name in designs] + [each.outcome.get(name) for name in outcomes]
        plain = [value if not isinstance(value, dict) else json.dumps(value) for value in ran]
        rows.append(map(cell, [each.n, *plain, *believed, *(getattr(each, name) for name in fields)]))
    return lines(rows)


def proposed_view(services: Services, session: Session, first: First) -> ExpensiveOut | Response:
    """As if it had been computed in the request, once the job has succeeded."""
    job = session.get_one(Job, first["job"]["id"])
    if (made := proposals_of_job(session, job)) is not None:
        return Response(made.model_dump_json(), 201, media_type="application/json")
    return ExpensiveOut(**{**first, "job": job_view(session, job)})


def expensive_view(session: Session, found: Expensive, *, cap: float) -> ExpensiveOut:
    return ExpensiveOut(
        job=job_view(session, found.job), evaluations=found.work.evaluations, cap=cap, explanation=found.reason
    )
