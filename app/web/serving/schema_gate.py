"""Calls of the API wait outside until the database has the schema of this code."""

from anyio.to_thread import run_sync
from sqlalchemy.exc import SQLAlchemyError
from starlette.types import ASGIApp, Receive, Scope, Send

from app.db.migrate import schema_problem
from app.errors import NotReady, problem_response

GUARDED = ("/v1/", "/metrics")
HEADERS = {"Retry-After": "5", "Connection": "close"}  # else the server would read the refused body to its end


class SchemaGate:
    """ASGI middleware that answers 503, and what to do, until a call finds the database migrated; then it looks no
    more. An API that started too early needs no second start."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._is_open = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._is_open and scope["type"] == "http" and scope["path"].startswith(GUARDED):
            try:
                problem = await run_sync(schema_problem, scope["app"].state.services.database)
                self._is_open = problem is None
            except SQLAlchemyError:
                problem = None  # the call itself will find that the database does not answer, and say so
            if problem is not None:
                await problem_response(NotReady(problem.detail, headers=HEADERS))(scope, receive, send)
                return
        await self.app(scope, receive, send)
