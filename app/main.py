"""The web application: routers, middleware, and the one place where errors become answers."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse, Response
from sqlalchemy.exc import IntegrityError, NoResultFound, OperationalError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Route

from app.ensembles import routes as ensembles
from app.errors import Conflict, Malformed, NotFound, NotReady, Problem, ProblemResponse, TooLarge, problem_response
from app.experiments import catalogue
from app.experiments import routes as experiments
from app.jobs import routes as jobs
from app.keys import routes as keys
from app.labels import routes as labels
from app.pools import routes as pools
from app.pools.schemas import PoolIn
from app.projects import routes as projects
from app.rankings import routes as rankings
from app.rounds import routes as rounds
from app.schedules import routes as schedules
from app.services import Services
from app.sessions import observation_routes as observations
from app.sessions import proposal_routes as proposals
from app.sessions import routes as sessions
from app.settings import Settings, get_settings
from app.simulations import routes as simulations
from app.storage.errors import StorageError
from app.web.bodies.receive import LARGE_AT_ONCE
from app.web.fields import WITHOUT_NUL, ProblemOut
from app.web.serving import health as system
from app.web.serving.docs import serve_docs
from app.web.serving.limits import BodyCap, RateLimit, cap_of
from app.web.serving.monitoring import RequestLog
from app.web.serving.schema_gate import SchemaGate
from app.web.watcher import Watcher

logger = logging.getLogger(__name__)

_LEARNING = (projects, pools, labels, ensembles, rankings, rounds, schedules)
_DESIGNING = (catalogue, experiments, sessions, proposals, observations, simulations)
ROUTERS = (*(module.router for module in (*_LEARNING, *_DESIGNING, jobs, keys, system)), system.plain)

DESCRIPTION = """
What should we label next? Send your unlabelled rows, get them back in the order in which labelling them teaches most.

**The loop**

1. `POST /v1/projects` – the task, the shape of a row, the network and the posterior method.
2. `POST /v1/projects/{id}/pools` – your rows, inline or as a file. Make a second pool with `purpose: evaluation` and
   labels, and every ensemble is measured on it.
3. `POST /v1/projects/{id}/labels` – the labels that you have, and every later one.
4. `POST /v1/projects/{id}/ensembles` – train. With `Prefer: wait=60` the answer is the trained ensemble; if that takes
   longer, it is a job: `GET /v1/jobs/{id}` until it has succeeded.
5. `POST /v1/pools/{id}/rankings` – which rows next? Label these (3), train (4), ask again (5).

Rounds (`/rounds`) hand the ranked rows out to annotators and train when all are done; schedules train by themselves.

**Experiments** are for what is measured, not labelled: `POST /v1/experiments` states a model, a prior and a space of
designs; `POST /v1/experiments/{id}/sessions` opens a session; `POST /v1/sessions/{id}/proposals` says what to run
next, `POST /v1/sessions/{id}/observations?next=true` takes the outcome and says what follows.

**Conventions.** Send `Authorization: Bearer <key>`. Long work answers 202 with a job; with `Prefer: wait=30`
the answer comes when the job has ended, with what came of it, or after so many seconds (at most 60). Lists are pages:
pass `next_cursor` as `cursor`. Give a POST an `Idempotency-Key` header and it can be sent again safely. Unknown fields
and query parameters are refused, and true is `true`, not 1 or "yes". Problems are `application/problem+json`: read
`detail`.
"""


def create_app(settings: Settings | None = None, services: Services | None = None) -> FastAPI:
    settings = settings or get_settings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.services = services or Services.open(settings)
        app.state.rate_limit = RateLimit(settings.rate_limit, settings.rate_burst)
        app.state.watcher = Watcher(app.state.services.database)
        app.state.large_bodies = asyncio.Semaphore(LARGE_AT_ONCE)
        compute = app.state.services.compute
        yield
        await app.state.watcher.stop()
        compute.close()
        if services is None:
            app.state.services.database.dispose()

    app = FastAPI(
        title="Bensemble",
        version="0.1.0",
        description=DESCRIPTION,
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,  # ours, see serve_docs
        redoc_url=None,
    )
    for router in ROUTERS:
        app.include_router(router)
    serve_docs(app)
    app.add_middleware(BodyCap, cap_of=cap_of(settings))
    app.add_middleware(SchemaGate)
    app.add_middleware(RequestLog)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=["GET", "POST", "PATCH", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "Idempotency-Key", "Prefer"],
            expose_headers=["Location", "Idempotent-Replayed", "Preference-Applied", "Retry-After", "X-Request-Id"],
        )
    _handle_errors(app, [*app.routes, *(route for router in ROUTERS for route in router.routes)])
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def _handle_errors(app: FastAPI, routes: Sequence[BaseRoute]) -> None:
    @app.exception_handler(Problem)
    def _problem(request: Request, error: Problem) -> JSONResponse:
        return problem_response(error)

    @app.exception_handler(RequestValidationError)
    def _invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        errors = [{"pointer": _pointer(e, error.body), "detail": _advice(e)} for e in error.errors()[:20]]
        detail = "; ".join(f"{e['pointer']}: {e['detail']}".removeprefix(": ") for e in errors[:3])
        return problem_response(Malformed(detail, errors=errors))

    @app.exception_handler(HTTPException)
    def _http(request: Request, error: HTTPException) -> JSONResponse:
        if error.status_code == TooLarge.status:
            return problem_response(TooLarge(error.detail))
        if error.status_code == 400:  # FastAPI's word for JSON that is not UTF-8, too deep, or has endless integers
            return problem_response(Malformed("the body can't be read as JSON; check its encoding, depth and numbers"))
        title = HTTPStatus(error.status_code).phrase
        headers = dict(error.headers or {})
        if error.status_code == 405:
            headers["Allow"] = _allowed(request, routes)
        detail = _wrong_address(request, headers, error.status_code) or str(error.detail)
        body = {"type": "about:blank", "title": title, "status": error.status_code, "detail": detail}
        return ProblemResponse(body, error.status_code, headers=headers)

    @app.exception_handler(IntegrityError)
    def _integrity(request: Request, error: IntegrityError) -> JSONResponse:
        logger.warning("a change collided with another", extra={"reason": str(error.orig)})
        return problem_response(Conflict("something this depends on was changed or deleted meanwhile; try again"))

    @app.exception_handler(NoResultFound)
    def _vanished(request: Request, error: NoResultFound) -> JSONResponse:
        return problem_response(NotFound("something this is about was deleted meanwhile"))

    @app.exception_handler(OperationalError)
    def _busy(request: Request, error: OperationalError) -> JSONResponse:
        logger.error("the database did not answer", extra={"reason": str(error.orig)})
        problem = NotReady("the database did not answer in time; try again", headers={"Retry-After": "1"})
        return problem_response(problem)

    @app.exception_handler(StorageError)
    def _storage(request: Request, error: StorageError) -> JSONResponse:
        logger.error("the storage did not answer", extra={"reason": str(error)})
        return problem_response(NotReady("the storage did not answer; try again", headers={"Retry-After": "1"}))

    @app.exception_handler(ClientDisconnect)
    def _gone(request: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=400)  # nobody is there to read it

    @app.exception_handler(Exception)
    def _unforeseen(request: Request, error: Exception) -> JSONResponse:
        logger.error("unforeseen error", exc_info=error, extra={"path": request.url.path})
        return problem_response(Problem("an unforeseen error; it is in the service's log"))


def _allowed(request: Request, routes: Sequence[BaseRoute]) -> str:
    """The router names the methods of an address's first route only, but here each method is a route of its own."""
    there = [route for route in routes if isinstance(route, Route) and route.path_regex.match(request.url.path)]
    methods = {method for route in there for method in route.methods or ()}
    return ", ".join(sorted(methods or {"GET", "HEAD"}))  # the files of /docs have no routes


def _wrong_address(request: Request, headers: dict[str, str], status: int) -> str | None:
    """In place of the bare phrases of the router."""
    asked = f"{request.method} {request.url.path}"
    if status == 404:
        advice = "leave out the slash at its end" if request.url.path.endswith("/") else "see /docs for what there is"
        return f"there is no {asked:.200}; {advice}"
    if status == 405:
        return f"there is no {asked:.200}; this address takes {headers['Allow']}"
    return None


def _pointer(error: dict[str, Any], body: Any) -> str:
    """Where in the body, as a JSON pointer; parameters keep their place as the first part."""
    place, *path = error["loc"]
    if place != "body":
        path = [place, *path]
    elif error["type"] == "json_invalid":
        path = []
    elif isinstance(body, dict):
        path = _within(body, path, is_missing=error["type"] == "missing")
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)


def _within(body: Any, path: list[Any], *, is_missing: bool) -> list[Any]:
    """The parts that are in the body: pydantic also names the member of a union that it took."""
    found = []
    for i, part in enumerate(path):
        is_there = part in body if isinstance(body, dict) else isinstance(body, list) and isinstance(part, int)
        if is_there:
            body = body[part]
        if is_there or (is_missing and i == len(path) - 1):
            found.append(part)
    return found


def _advice(error: dict[str, Any]) -> str:
    context = error.get("ctx", {})
    if error["loc"] == ("body",) and error["type"] in ("missing", "model_type", "model_attributes_type"):
        return "expected a JSON object as the body, with Content-Type: application/json"
    if error["type"] == "json_invalid":
        return f"the body is not JSON: {context['error']}"
    if error["type"] in ("float_type", "int_type") and isinstance(error["input"], list):
        return "expected a number, got a list; send each row as one flat list of numbers, images too"
    if context.get("pattern") == WITHOUT_NUL:
        return "must not contain a NUL character"
    return str(error["msg"]).removeprefix("Value error, ") + _came(error)


_TOLD = ("value_error", "assertion_error", "too_long", "too_short", "union_tag_invalid", "union_tag_not_found")
"""Kinds of error whose own text says what came."""


def _came(error: dict[str, Any]) -> str:
    """What came, and what to do, where pydantic says only what was expected."""
    kind, came = error["type"], error.get("input")
    if kind in _TOLD:
        return ""
    if kind == "extra_forbidden":
        return f"; got {str(error['loc'][-1])[:64]!r}: check its spelling, or leave it out"
    if kind == "missing":
        names = ", ".join(str(name)[:64] for name in list(came)[:10]) if isinstance(came, dict) else ""
        return f"; got only {names}" if names else "; nothing came"
    if isinstance(came, str) and kind.startswith("string_too"):
        return f", got {len(came)}"
    if came is None or isinstance(came, bool | int | float | str):
        text = json.dumps(came, ensure_ascii=False)
        return f", got {text if len(text) <= 80 else text[:80] + '…'}"
    return ", got an object" if isinstance(came, dict) else ", got a list" if isinstance(came, list) else ""


def _openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        schema = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes, tags=_TAGS
        )
        components = schema.setdefault("components", {}).setdefault("schemas", {})
        for model in (ProblemOut, PoolIn):
            defined = model.model_json_schema(ref_template="#/components/schemas/{model}")
            components.update(defined.pop("$defs", {}))
            components[model.__name__] = defined
        for name in ("HTTPValidationError", "ValidationError"):
            components.pop(name, None)
        app.openapi_schema = schema
    return app.openapi_schema


_TAGS = [
    {"name": "projects", "description": "The question, and how it is answered."},
    {"name": "pools", "description": "Rows to choose from, and rows to measure on."},
    {
        "name": "labels",
        "description": "What annotators said: events that are never changed, only followed by newer ones.",
    },
    {"name": "ensembles", "description": "Trained posteriors, one version after another."},
    {"name": "rankings", "description": "Which rows to label next."},
    {"name": "rounds", "description": "Rankings handed out to annotators."},
    {"name": "schedules", "description": "Training by the clock, by labels or by rounds."},
    {"name": "experiments", "description": "A model of what is measured, a prior, and where one may measure."},
    {"name": "sessions", "description": "One participant or sample: what to run next, what came out, what is known."},
    {"name": "jobs", "description": "Work under way: progress, cancel, retry."},
    {"name": "keys", "description": "Who may do what."},
    {"name": "methods", "description": "What there is to choose from."},
    {"name": "health", "description": "For load balancers and monitoring; no key needed."},
]
