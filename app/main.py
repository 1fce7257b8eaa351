"""The web application: routers, middleware, and the OpenAPI document."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.middleware.cors import CORSMiddleware

import bensemble_core as bc
from app import listeners  # noqa: F401 (who stores a pool publishes it)
from app.advice import routes as advice
from app.backtests import routes as backtests
from app.ensembles import routes as ensembles
from app.examples import routes as examples
from app.experiments import catalogue
from app.experiments import routes as experiments
from app.housekeeping import routes as housekeeping
from app.jobs import routes as jobs
from app.jobs.changes import SOURCES
from app.jobs.schemas import LabelsChange
from app.keys import routes as keys
from app.labels import routes as labels
from app.methods import routes as methods
from app.pools import file_routes as files
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
from app.web.bodies.receive import LARGE_AT_ONCE
from app.web.problems import ProblemOut, handle_errors
from app.web.serving import health
from app.web.serving.docs import serve_docs
from app.web.serving.limits import BodyCap, RateLimit, cap_of
from app.web.serving.monitoring import RequestLog
from app.web.serving.page import Page
from app.web.serving.schema_gate import SchemaGate
from app.web.serving.security import SecurityHeaders
from app.web.watcher import Watcher

ROUTERS = (
    *(projects.router, files.router, pools.router, labels.router, ensembles.router, ensembles.of_projects),
    *(rankings.router, rounds.router, labels.of_rounds, schedules.router, backtests.router, advice.router),
    *(catalogue.router, experiments.router),
    *(sessions.router, proposals.router, observations.router, simulations.router),
    *(jobs.router, keys.router, keys.of_caller, methods.router, housekeeping.router, health.router),
    *(examples.router,),
)

DESCRIPTION = """
What should we label next? Send your unlabelled rows, get them back in the order in which labelling them teaches most.

**The loop**

1. `POST /v1/projects` – the task, the shape of a row, the network and the posterior method.
2. `POST /v1/projects/{id}/pools` – your rows, inline or as a file. Make a second pool with `purpose: evaluation` and
   labels, and every ensemble is measured on it; pools with `purpose: task` and labels hold other tasks to learn from.
3. `POST /v1/projects/{id}/labels` – the labels that you have, and every later one.
4. `POST /v1/projects/{id}/ensembles` – train. With `Prefer: wait=60` the answer is the trained ensemble; if that takes
   longer, it is a job: `GET /v1/jobs/{id}` until it has succeeded.
5. `POST /v1/pools/{id}/rankings` – which rows next? Label these (3), train (4), ask again (5).

Rounds (`/rounds`) hand the ranked rows out to annotators and train when all are done; schedules train by themselves.
Backtests (`/backtests`) play strategies on labels that you have, and say which one saves most.
`GET /v1/projects/{id}/advice` says whether to go on, to relabel, to train or to stop, and why.

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
        app.state.watcher = Watcher(app.state.services.database, sources=SOURCES)
        app.state.large_bodies = asyncio.Semaphore(LARGE_AT_ONCE)
        compute = app.state.services.compute
        yield
        await app.state.watcher.stop()
        compute.close()
        if services is None:
            app.state.services.database.dispose()

    app = FastAPI(
        title="Bensemble",
        version=bc.__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,  # ours, see serve_docs
        redoc_url=None,
        generate_unique_id_function=lambda route: route.name,  # an operationId is the function's name, or its own
    )
    for router in ROUTERS:
        app.include_router(router)
    serve_docs(app)
    app.add_middleware(Page)
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
    handle_errors(app, [*app.routes, *(route for router in ROUTERS for route in router.routes)])
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    inner = app.build_middleware_stack
    app.build_middleware_stack = lambda: SecurityHeaders(inner())  # type: ignore[method-assign]
    return app


def _openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        schema = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes, tags=_TAGS
        )
        components = schema.setdefault("components", {}).setdefault("schemas", {})
        for model in (ProblemOut, PoolIn, LabelsChange):
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
    {"name": "backtests", "description": "Would active learning have saved labels on this data, and which strategy?"},
    {"name": "experiments", "description": "A model of what is measured, a prior, and where one may measure."},
    {"name": "sessions", "description": "One participant or sample: what to run next, what came out, what is known."},
    {"name": "jobs", "description": "Work under way: progress, cancel, retry."},
    {"name": "keys", "description": "Who may do what."},
    {"name": "methods", "description": "What there is to choose from."},
    {"name": "health", "description": "For load balancers and monitoring; no key needed."},
]
