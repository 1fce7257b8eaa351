"""Schedules: when one is due, its training is queued in the same transaction that marks it fired."""

import logging
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db import projects
from app.db.engine import Database
from app.db.tables import Project, Schedule
from app.db.types import database_time
from app.errors import Malformed, Problem
from app.services import Services
from app.settings import Settings
from app.usecases.request_training import request_training

logger = logging.getLogger(__name__)


def next_time(cron: str, timezone: str, after: datetime) -> datetime:
    try:
        zone = ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise Malformed(
            f"unknown time zone {timezone!r}; take an IANA name such as Europe/Berlin or UTC", pointer="/timezone"
        ) from error
    try:
        if len(cron.split()) != 5:  # with a sixth, CronSim would count seconds
            raise CronSimError("Wrong number of fields")
        return next(CronSim(cron, after.astimezone(zone))).astimezone(UTC)
    except (CronSimError, StopIteration) as error:
        raise Malformed(
            f"the cron {cron!r} can't be read or never fires ({error}); it takes five fields, minute hour day month "
            "weekday, e.g. '0 3 * * 1' for Mondays at 3",
            pointer="/cron",
        ) from error


def count_labels(services: Services, session: Session, project: Project, n_labels: int) -> list[str]:
    """For schedules of every N labels. The caller holds the project's lock."""
    due = []
    for schedule in session.scalars(_of(project.id).where(Schedule.every_labels.is_not(None))):
        schedule.labels_pending += n_labels
        if schedule.labels_pending >= (schedule.every_labels or 0):
            schedule.labels_pending = 0
            due.append(schedule)
    return _fire(services.settings, session, project, due)


def fire_on_round(services: Services, session: Session, project: Project) -> list[str]:
    """For schedules that wait for a round to be complete. The caller holds the project's lock."""
    due = list(session.scalars(_of(project.id).where(Schedule.on_round_complete.is_(True))))
    return _fire(services.settings, session, project, due)


def tick(database: Database, settings: Settings) -> None:
    """For cron schedules; called by every worker now and then. A time missed while nothing ran is made up once."""
    with database.read() as session:
        now = database_time(session)
        query = select(Schedule.id, Schedule.project_id).where(Schedule.next_fire_at <= now, Schedule.paused.is_(False))
        due = session.execute(query).all()
    for schedule_id, project_id in due:
        with database.write() as session:
            _fire_cron(session, settings, project_id, schedule_id)


def _fire_cron(session: Session, settings: Settings, project_id: str, schedule_id: str) -> None:
    project = projects.lock(session, project_id)
    schedule = session.get(Schedule, schedule_id, populate_existing=True)
    now = database_time(session)
    if schedule is None or schedule.paused or schedule.cron is None:
        return
    if schedule.next_fire_at is None or schedule.next_fire_at > now:
        return  # another worker was faster
    schedule.next_fire_at = next_time(schedule.cron, schedule.timezone, now)
    _fire(settings, session, project, [schedule])


def _of(project_id: str) -> Any:
    query = select(Schedule).where(Schedule.project_id == project_id, Schedule.paused.is_(False)).order_by(Schedule.id)
    return query.execution_options(populate_existing=True)


def _fire(settings: Settings, session: Session, project: Project, due: list[Schedule]) -> list[str]:
    triggered = []
    for schedule in due:
        schedule.last_fired_at = database_time(session)
        schedule.n_fired += 1
        schedule.note = None
        try:
            training = request_training(
                session,
                project,
                settings,
                **schedule.training,
                origin=f"schedule:{schedule.id}",
                schedule_id=schedule.id,
                delay_seconds=schedule.debounce_seconds,
                shared=True,
            )
        except Problem as problem:
            schedule.note = f"nothing was trained: {problem.detail}"
            logger.warning("schedule could not train", extra={"schedule_id": schedule.id, "reason": problem.detail})
            continue
        if training.created:
            triggered.append(training.job.id)
    session.flush()
    return triggered
