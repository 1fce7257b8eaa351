"""Jobs."""

import json
from collections.abc import AsyncIterator
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db.jobs import shown_status
from app.db.tables import Job, Project
from app.errors import Conflict, NotReady
from app.queue import queue
from app.services import Services
from app.web.dependencies import CanRead, CanWrite, EdgeRoute
from app.web.job_view import JobOut, job_view, view_of_job
from app.web.paging import Page, Paged, page_by_id
from app.web.waiting import First, waits_for
from app.web.watcher import News

router = APIRouter(prefix="/v1", tags=["jobs"], route_class=EdgeRoute)
_EVENT = {
    "type": "object",
    "properties": {
        "event": {"enum": ["job", "problem"]},
        "data": {"type": "string", "description": "The job, or the problem, as JSON."},
    },
}


@router.get("/projects/{project_id}/jobs", summary="List a project's jobs")
def list_jobs(
    project_id: str,
    context: CanRead[Project],
    paging: Paged,
    status: Annotated[Literal["queued", "running", "succeeded", "failed", "cancelled"] | None, Query()] = None,
) -> Page[JobOut]:
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
    responses={200: {"content": {"text/event-stream": {"schema": _EVENT}}}},
    response_class=StreamingResponse,
    operation_id="follow_job",
    summary="Follow a job",
)
async def get_events(job_id: str, context: CanRead[Job], request: Request) -> StreamingResponse:
    """Server-sent events: one `job` event now and whenever something changes, the last when the job has ended. A
    `problem` event says that the database does not answer; the next `job` event, that it does again. The stream also
    ends when the service stops: ask again then."""
    news_of_job = request.app.state.watcher.watch(job_id)

    async def lines() -> AsyncIterator[str]:
        async for news in news_of_job:
            yield _event(news)

    return StreamingResponse(lines(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


def _event(news: News) -> str:
    if news is None:
        return ": still here\n\n"
    name, data = ("problem", news.body()) if isinstance(news, NotReady) else ("job", news)
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"
