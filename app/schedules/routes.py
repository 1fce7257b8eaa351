"""Schedules."""

from fastapi import APIRouter, Response
from sqlalchemy import select

from app.db.tables import Project, Schedule
from app.ensembles.check_request import check_request
from app.schedules.change import create_schedule, delete_schedule, pause_schedule
from app.schedules.schemas import ScheduleIn, ScheduleOut, SchedulePatch
from app.web.dependencies import CanRead, CanWrite, EdgeRoute
from app.web.paging import Page, Paged, page_by_id

router = APIRouter(prefix="/v1", tags=["schedules"], route_class=EdgeRoute)


@router.post(
    "/projects/{project_id}/schedules", status_code=201, operation_id="create_schedule", summary="Train by itself"
)
def post_schedule(project_id: str, context: CanWrite[Project], wanted: ScheduleIn, response: Response) -> ScheduleOut:
    """By the clock (`cron` and `timezone`), after `every_labels`, or `on_round_complete`. With `then_open_round` the
    next labelling round is opened as soon as the new ensemble is there, so the loop runs by itself."""
    check_request(context.session, context.resource, wanted.training, context.services.settings)
    schedule = create_schedule(context.session, context.resource, wanted, context.services.settings)
    response.headers["Location"] = f"/v1/schedules/{schedule.id}"
    return ScheduleOut.model_validate(schedule)


@router.get("/projects/{project_id}/schedules", summary="List schedules")
def list_schedules(project_id: str, context: CanRead[Project], paging: Paged) -> Page[ScheduleOut]:
    query = select(Schedule).where(Schedule.project_id == project_id)
    return page_by_id(context.session, query, paging, ScheduleOut.model_validate)


@router.get("/schedules/{schedule_id}", summary="Get a schedule")
def get_schedule(schedule_id: str, context: CanRead[Schedule]) -> ScheduleOut:
    return ScheduleOut.model_validate(context.resource)


@router.patch("/schedules/{schedule_id}", operation_id="change_schedule", summary="Pause or resume a schedule")
def patch_schedule(schedule_id: str, context: CanWrite[Schedule], wanted: SchedulePatch) -> ScheduleOut:
    """A cron that is resumed goes on with its next time. What came while it was paused, times or labels, is not made
    up for. A schedule that failed in a way nobody foresaw pauses itself, and its `note` says why."""
    return ScheduleOut.model_validate(pause_schedule(context.session, context.resource, wanted.paused))


@router.delete("/schedules/{schedule_id}", status_code=204, operation_id="delete_schedule", summary="Delete a schedule")
def remove_schedule(schedule_id: str, context: CanWrite[Schedule]) -> None:
    delete_schedule(context.session, context.resource)
