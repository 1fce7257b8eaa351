"""Open the rounds that schedules ask for once their ensemble is trained."""

import logging

from sqlalchemy.orm import Session

from app.db.tables import Schedule
from app.errors import Problem
from app.events import EnsembleTrained
from app.rounds.open import Opened, open_following_round
from app.schedules.fire import parking

logger = logging.getLogger(__name__)


def open_following_rounds(session: Session, trained: EnsembleTrained) -> list[str]:
    """If a round can't be, its schedule says why and the training stands. Returns the jobs that rank."""
    return [job_id for schedule_id in trained.schedule_ids for job_id in _open(session, trained, schedule_id)]


def _open(session: Session, trained: EnsembleTrained, schedule_id: str) -> list[str]:
    schedule = session.get(Schedule, schedule_id)
    if schedule is None or schedule.paused or schedule.then_open_round is None:
        return []
    wanted, origin = schedule.then_open_round, f"schedule:{schedule_id}"
    opened: Opened | None = None
    with parking(session, schedule):
        try:
            with session.begin_nested():
                opened = open_following_round(session, trained.project, trained.settings, wanted, origin=origin)
            schedule.note = _shortfall(opened, wanted["k"])
        except Problem as problem:
            schedule.note = f"no round was opened: {problem.detail}"
            logger.warning(
                "schedule could not open a round", extra={"schedule_id": schedule_id, "reason": problem.detail}
            )
    return [opened.job_id] if opened is not None else []


def _shortfall(opened: Opened | None, wanted: int) -> str | None:
    if opened is None:
        return "no round was opened: every row is labelled or skipped"
    return f"the round has {opened.k} items, not {wanted}: no more rows are left" if opened.k < wanted else None
