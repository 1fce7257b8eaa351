"""Jobs."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db.jobs import shown_status
from app.db.tables import Job, Project
from app.errors import Conflict, NotFound, NotReady
from app.queue import queue
from app.services import Services
from app.web.auth import Caller
from app.web.dependencies import CanRead, CanWrite, EdgeRoute, is_id
from app.web.fields import WITHOUT_NUL
from app.web.job_view import JobOut, JobStatus, job_view, view_of_job
from app.web.news import News
from app.web.paging import Page, Paged, page_by_id
from app.web.problems import problems
from app.web.waiting import First, waits_for

router = APIRouter(prefix="/v1", tags=["jobs"], route_class=EdgeRoute)
Status = Annotated[JobStatus | None, Query(description="Only those that stand so.")]


def _stream_of(*names: str) -> dict[int | str, Any]:
    said = {
        "event": {"enum": [*names, "problem"]},
        "data": {"type": "string", "description": "What it is about, or the problem, as JSON."},
    }
    return {200: {"content": {"text/event-stream": {"schema": {"type": "object", "properties": said}}}}}


@router.get("/jobs", responses=problems(404), operation_id="list_all_jobs", summary="List jobs")
def list_all_jobs(
    context: CanRead[None],
    paging: Paged,
    status: Status = None,
    kind: Annotated[
        str | None, Query(max_length=40, pattern=WITHOUT_NUL, description="Such as `train_ensemble`.")
    ] = None,
    project_id: Annotated[str | None, Query(max_length=36, description="Only those of this project.")] = None,
    parts: Annotated[bool, Query(description="Also the parts of jobs that were split.")] = False,
) -> Page[JobOut]:
    """Of all projects that the key sees; a key without projects also sees jobs of experiments and of housekeeping."""
    seen = _projects_seen(context.session, context.caller, project_id)
    query = select(Job) if seen is None else select(Job).where(Job.project_id.in_(seen))
    if not parts:
        query = query.where(Job.parent_id.is_(None))
    if status is not None:
        query = query.where(shown_status() == status)
    if kind is not None:
        query = query.where(Job.kind == kind)
    return page_by_id(context.session, query, paging, lambda job: job_view(context.session, job))


def _projects_seen(session: Session, caller: Caller, project_id: str | None) -> frozenset[str] | None:
    """None is all of them, and what belongs to none."""
    if project_id is None:
        return caller.project_ids
    if not is_id(project_id) or not caller.sees(project_id) or session.get(Project, project_id) is None:
        raise NotFound(f"there is no project {project_id[:64]!r} that this key can see")
    return frozenset({project_id})


@router.get("/projects/{project_id}/jobs", summary="List a project's jobs")
def list_jobs(project_id: str, context: CanRead[Project], paging: Paged, status: Status = None) -> Page[JobOut]:
    query = select(Job).where(Job.project_id == project_id)
    if status is not None:
        query = query.where(shown_status() == status)
    return page_by_id(context.session, query, paging, lambda job: job_view(context.session, job))


@router.get("/jobs/{job_id}", summary="Get a job")
def get_job(job_id: str, context: CanRead[Job]) -> JobOut:
    return job_view(context.session, context.resource)


@router.post("/jobs/{job_id}/cancel", operation_id="cancel_job", summary="Cancel a job")
def post_cancel(job_id: str, context: CanWrite[Job]) -> JobOut:
    """A waiting job is cancelled at once; a running one is told, and killed if it does not listen. One that has ended
    stays as it is."""
    return job_view(context.session, queue.request_cancel(context.session, job_id))


def _as_it_is(services: Services, session: Session, first: First) -> JobOut:
    return view_of_job(session, first["id"])


@router.post("/jobs/{job_id}/retry", operation_id="retry_job", summary="Try a job again")
@waits_for(lambda job: [job["id"]], _as_it_is)
def post_retry(job_id: str, context: CanWrite[Job]) -> JobOut:
    """For a failed or cancelled job; it goes on from its last checkpoint."""
    try:
        return job_view(context.session, queue.retry(context.session, job_id))
    except queue.NotRetryable as error:
        raise Conflict(str(error)) from error


@router.get(
    "/jobs/{job_id}/events",
    responses=_stream_of("job"),
    response_class=StreamingResponse,
    operation_id="follow_job",
    summary="Follow a job",
)
async def get_events(job_id: str, context: CanRead[Job], request: Request) -> StreamingResponse:
    """Server-sent events: one `job` event now and whenever something changes, the last when the job has ended. A
    `problem` event says that the database does not answer; the next `job` event, that it does again. The stream also
    ends when the service stops: ask again then."""
    return _stream(request.app.state.watcher.watch(job_id))


@router.get(
    "/events",
    responses={**_stream_of("job", "round", "ensemble", "labels", "ready"), **problems(404)},
    response_class=StreamingResponse,
    operation_id="follow_all",
    summary="Follow all that happens",
)
async def get_all_events(
    context: CanRead[None],
    request: Request,
    project_id: Annotated[str | None, Query(max_length=36, description="Only what happens in this project.")] = None,
) -> StreamingResponse:
    """Server-sent events, one stream in place of many. First a `job` event for every job that is queued or running,
    then `ready`, then one for whatever changes in the projects that the key sees: `job` (a JobOut), `round` (a
    RoundOut), `ensemble` (an EnsembleOut, as in lists; one whose training goes on, or that has become the current one),
    `labels` (a LabelsChange). A key without projects is told of jobs that belong to no project, too. Parts of jobs are
    told of by the job that was split.

    A `problem` event says that the database does not answer; when it does again, what changed meanwhile follows, then
    all as at the beginning. What happened while nobody listened is not told: ask for it after `ready`. A comment comes
    every 15 seconds when there is nothing to tell. The stream ends when the service stops, when the key is revoked, and
    when its reader is far behind: ask again then."""
    services, caller = context.services, context.caller
    seen = await run_in_threadpool(_projects_followed, services, caller, project_id)
    return _stream(request.app.state.watcher.follow(seen, key_id=caller.key_id))


def _projects_followed(services: Services, caller: Caller, project_id: str | None) -> frozenset[str] | None:
    with services.database.read() as session:
        return _projects_seen(session, caller, project_id)


def _stream(told: AsyncGenerator[News, None]) -> StreamingResponse:
    async def lines() -> AsyncIterator[str]:
        async with aclosing(told):
            async for news in told:
                yield _event(news)

    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # nginx would keep events back
    return StreamingResponse(lines(), media_type="text/event-stream", headers=headers)


def _event(news: News) -> str:
    if news is None:
        return ": still here\n\n"
    name, data = ("problem", news.body()) if isinstance(news, NotReady) else (news.event, news.data)
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"
