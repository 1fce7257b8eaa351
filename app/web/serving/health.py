"""Methods, health and metrics."""

from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse, RedirectResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from app.db.migrate import schema_problem
from app.errors import NotReady, problem_response
from app.methods.schemas import method_schemas
from app.queue import queue
from app.services import Services
from app.web.dependencies import Context, EdgeRoute, anyone
from app.web.problems import only_problems, problems
from app.web.serving.monitoring import JOBS

router = APIRouter(prefix="/v1", tags=["methods"], route_class=EdgeRoute)
plain = APIRouter(tags=["health"])


@router.get("/methods", responses=problems(), summary="List models, posteriors, acquisitions and selections")
def get_methods(context: Annotated[Context[None], anyone("read")]) -> dict[str, dict[str, Any]]:
    """Each with the JSON schema of its options, ready to drive a form."""
    return method_schemas()


@plain.get("/", include_in_schema=False)
def get_root() -> RedirectResponse:
    return RedirectResponse("/docs")


@plain.get("/healthz", summary="Is the process alive?")
async def get_health() -> dict[str, str]:  # on the loop: all threads may be waiting
    return {"status": "ok"}


@plain.get(
    "/readyz",
    summary="Can it serve?",
    responses=only_problems(503),
)
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


@plain.get("/metrics", response_class=PlainTextResponse, summary="Prometheus metrics")
def get_metrics(request: Request) -> Response:
    services: Services = request.app.state.services
    with services.database.read() as session:
        JOBS.clear()
        for (name, status), n in queue.depths(session).items():
            JOBS.labels(queue=name, status=status).set(n)
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)
