"""Schedules: when one is due, its training is queued in the same transaction that marks it fired.

Each fires by itself: one that raises what nobody foresaw is paused with the reason in its note, and neither the others
nor the labels that made it due are lost. An error of the connection or of a lock is not its own; it is tried again.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError
from sqlalchemy import select
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from app.db import projects
from app.db.engine import Database
from app.db.tables import Project, Schedule
from app.db.types import database_time
from app.ensembles.request import request_training
from app.errors import Malformed, NotFound, Problem
from app.queue.context import storable
from app.settings import Settings

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


def count_labels(settings: Settings, session: Session, project: Project, n_labels: int) -> list[str]:
    """For schedules of every N labels. The caller holds the project's lock."""
    due = []
    for schedule in session.scalars(_of(project.id).where(Schedule.every_labels.is_not(None))):
        schedule.labels_pending += n_labels
        if schedule.labels_pending >= (schedule.every_labels or 0):
            schedule.labels_pending = 0
            due.append(schedule)
    return _fire(settings, session, project, due)


def fire_on_round(settings: Settings, session: Session, project: Project) -> list[str]:
    """For schedules that wait for a round to be complete. The caller holds the project's lock."""
    due = list(session.scalars(_of(project.id).where(Schedule.on_round_complete.is_(True))))
    return _fire(settings, session, project, due)


def tick(database: Database, settings: Settings) -> None:
    """For cron schedules; called by every worker now and then. A time missed while nothing ran is made up once."""
    with database.read() as session:
        now = database_time(session)
        query = select(Schedule.id, Schedule.project_id).where(Schedule.next_fire_at <= now, Schedule.paused.is_(False))
        due = session.execute(query).all()
    for schedule_id, project_id in due:
        try:
            with database.write() as session:
                _fire_cron(session, settings, project_id, schedule_id)
        except OperationalError as error:
            logger.warning("a schedule has to wait", extra={"schedule_id": schedule_id, "reason": str(error.orig)})


def _fire_cron(session: Session, settings: Settings, project_id: str, schedule_id: str) -> None:
    try:
        project = projects.lock(session, project_id)
    except NotFound:
        return  # deleted meanwhile
    schedule = session.get(Schedule, schedule_id, populate_existing=True)
    now = database_time(session)
    if schedule is None or schedule.paused or schedule.cron is None:
        return
    if schedule.next_fire_at is None or schedule.next_fire_at > now:
        return  # another worker was faster
    with parking(session, schedule):
        schedule.next_fire_at = next_time(schedule.cron, schedule.timezone, now)
    if not schedule.paused:
        _fire(settings, session, project, [schedule])


def _of(project_id: str) -> Any:
    query = select(Schedule).where(Schedule.project_id == project_id, Schedule.paused.is_(False)).order_by(Schedule.id)
    return query.execution_options(populate_existing=True)


def _fire(settings: Settings, session: Session, project: Project, due: list[Schedule]) -> list[str]:
    triggered: list[str] = []
    for schedule in due:
        with parking(session, schedule):
            triggered += _train(settings, session, project, schedule)
    session.flush()
    return triggered


def _train(settings: Settings, session: Session, project: Project, schedule: Schedule) -> list[str]:
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
        return []
    return [training.job.id] if training.created else []


@contextmanager
def parking(session: Session, schedule: Schedule) -> Iterator[None]:
    """Undo what the block did if it raises, and pause the schedule in its place."""
    schedule_id = schedule.id
    try:
        with session.begin_nested():
            yield
    except OperationalError:
        raise
    except Exception as error:
        logger.exception("a schedule failed and is paused", extra={"schedule_id": schedule_id})
        reason = error.detail if isinstance(error, Problem) else f"{type(error).__name__}: {error}"
        schedule.paused = True
        schedule.note = storable(
            f"paused after an unforeseen error, which is in the log of the service: {reason:.1000}; resume it with "
            f'PATCH /v1/schedules/{schedule_id} {{"paused": false}}'
        )
        session.flush()
