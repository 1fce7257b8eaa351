"""Whether the service lives and can serve, and what it counts; no key needed."""

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from app.db.migrate import schema_problem
from app.errors import NotReady, problem_response
from app.queue import queue
from app.services import Services
from app.web.problems import problems
from app.web.serving.monitoring import JOBS

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="Is the process alive?")
async def get_health() -> dict[str, str]:  # on the loop: all threads may be waiting
    return {"status": "ok"}


@router.get("/readyz", operation_id="get_readiness", summary="Can it serve?", responses=problems(503))
def get_ready(request: Request) -> Any:
    """200 when the database is migrated and reachable and the storage answers."""
    services: Services = request.app.state.services
    try:
        if (problem := schema_problem(services.database)) is not None:
            return problem_response(problem)
        services.objects.ping()
    except Exception as error:  # whatever is wrong, the answer is "not ready"
        return problem_response(NotReady(f"{type(error).__name__}: {str(error)[:300]}"))
    return {"status": "ready"}


@router.get("/metrics", response_class=PlainTextResponse, summary="Prometheus metrics")
def get_metrics(request: Request) -> Response:
    services: Services = request.app.state.services
    with services.database.read() as session:
        JOBS.clear()
        for (name, status), n in queue.depths(session).items():
            JOBS.labels(queue=name, status=status).set(n)
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)
