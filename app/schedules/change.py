"""Create, pause, resume and delete schedules."""

from typing import Any

from sqlalchemy import delete
from sqlalchemy.orm import Session

from app.db import pools, projects
from app.db.tables import Project, Schedule
from app.db.types import database_time, new_id
from app.ensembles.schemas import stored_training
from app.errors import Malformed
from app.rankings.request import check_methods, with_defaults
from app.rankings.round_request import stored_round
from app.schedules.fire import next_time
from app.schedules.schemas import ScheduleIn
from app.settings import Settings


def create_schedule(session: Session, project: Project, wanted: ScheduleIn, settings: Settings) -> Schedule:
    project = projects.lock(session, project.id)
    next_fire_at = None
    if wanted.cron is not None:
        next_fire_at = next_time(wanted.cron, wanted.timezone, database_time(session))
    if wanted.training.n_members > settings.max_members:
        raise Malformed(f"n_members is over the cap of {settings.max_members:,}", pointer="/training/n_members")
    then_open_round = stored_round(wanted.then_open_round) if wanted.then_open_round else None
    if then_open_round is not None:
        _check_round(session, project, then_open_round, settings)
    schedule = Schedule(
        id=new_id(),
        project_id=project.id,
        **wanted.model_dump(exclude={"training", "then_open_round"}),
        training=stored_training(wanted.training),
        then_open_round=then_open_round,
        next_fire_at=next_fire_at,
    )
    session.add(schedule)
    session.flush()
    return schedule


def _check_round(session: Session, project: Project, wanted: dict[str, Any], settings: Settings) -> None:
    """All that can be known of it now: whoever stores a schedule is not there when it opens the round."""
    pool = pools.pool_of(session, project.id, wanted["pool_id"])
    pools.refuse_ranking(pool)
    if wanted["k"] > settings.max_k:
        raise Malformed(f"k is over the cap of {settings.max_k:,}", pointer="/then_open_round/k")
    acquisition, selection, _ = with_defaults(project, wanted["acquisition"], wanted["selection"], is_first=False)
    choice = acquisition, selection, wanted["target"]
    check_methods(session, project, *choice, for_round=True, within="/then_open_round")


def pause_schedule(session: Session, schedule: Schedule, paused: bool) -> Schedule:
    projects.lock(session, schedule.project_id)
    schedule = session.get_one(Schedule, schedule.id, populate_existing=True)
    if schedule.paused and not paused:
        schedule.note = None
        if schedule.cron is not None:
            schedule.next_fire_at = next_time(schedule.cron, schedule.timezone, database_time(session))
    schedule.paused = paused
    session.flush()
    return schedule


def delete_schedule(session: Session, schedule: Schedule) -> None:
    """Not while labels are counted for it: whoever counts holds the project."""
    projects.lock(session, schedule.project_id)
    session.execute(delete(Schedule).where(Schedule.id == schedule.id))
