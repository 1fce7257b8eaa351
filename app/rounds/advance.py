"""Count answers towards the rounds they belong to, and end a round when its last item is done."""

from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.db.tables import Project, Reservation, Round, RoundItem
from app.db.types import database_time
from app.ensembles.request import has_labels, request_training
from app.errors import Conflict, Malformed
from app.schedules.fire import fire_on_round
from app.services import Services


def advance_rounds(
    services: Services, session: Session, project: Project, events: list[dict[str, Any]], *, within: Round | None
) -> list[str]:
    """An answer counts in every open round that asks for its row, wherever it was posted. Returns jobs set off.

    The caller holds the project's lock, so the counts can't race.
    """
    pool_ids = {event["pool_id"] for event in events}
    query = select(Round).where(Round.pool_id.in_(pool_ids), Round.status == "open").order_by(Round.number)
    open_rounds = list(session.scalars(query.execution_options(populate_existing=True)))
    if within is not None and within.id not in {round_.id for round_ in open_rounds}:
        raise Conflict("this round is no longer open")
    triggered: list[str] = []
    for round_ in open_rounds:
        concerned = [(i, event) for i, event in enumerate(events) if event["pool_id"] == round_.pool_id]
        touched = _count(session, round_, concerned, strict=within is not None and round_.id == within.id)
        if touched and count_open(session, round_) == 0:
            triggered += complete(services, session, project, round_)
    return triggered


def _count(session: Session, round_: Round, events: list[tuple[int, dict[str, Any]]], *, strict: bool) -> bool:
    rows = {event["row"] for _, event in events}
    items = {
        item.row: item
        for item in session.scalars(select(RoundItem).where(RoundItem.round_id == round_.id, RoundItem.row.in_(rows)))
    }
    now = database_time(session)
    for i, event in events:
        item = items.get(event["row"])
        if item is None:
            if strict:
                raise Malformed(f"row {event['row']} is not in this round", pointer=f"/labels/{i}/row")
            continue
        done = event["action"] != "retract"
        held = session.get(Reservation, (round_.id, event["row"], event["annotator"]))
        if held is None:
            held = Reservation(
                round_id=round_.id, row=event["row"], annotator=event["annotator"], expires_at=now, done=False
            )
            session.add(held)
        item.n_done += int(done) - int(held.done)
        held.done = done
    session.flush()
    return bool(items)


def count_open(session: Session, round_: Round) -> int:
    query = select(func.count()).where(RoundItem.round_id == round_.id, RoundItem.n_done < round_.overlap)
    return session.execute(query).scalar_one()


def complete(services: Services, session: Session, project: Project, round_: Round) -> list[str]:
    """The round's own retraining and the schedules that wait for a round share one training."""
    round_.status = "complete"
    round_.ended_at = database_time(session)
    if not has_labels(session, project.id):
        return []  # every item was skipped, and nothing was labelled before
    triggered = fire_on_round(services.settings, session, project)
    if round_.retrain:
        training = request_training(session, project, services.settings, origin=f"round:{round_.id}", shared=True)
        round_.ensemble_id = training.ensemble.id
        if training.created:
            triggered.append(training.job.id)
    session.flush()
    return triggered
