"""The edge of a request: who asks, what they ask about, one transaction, and replay of repeated POSTs."""

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Depends, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy import insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.auth import EVERYBODY, Caller, Scope, authenticate
from app.db.tables import Base, Project, Replay
from app.errors import Conflict, Malformed, NotFound, Unsupported
from app.services import Services

R = TypeVar("R")
bearer = HTTPBearer(auto_error=False, description="An API key: `Authorization: Bearer bk_…`")


@dataclass(frozen=True, kw_only=True)
class Context(Generic[R]):
    """What a route works with. `session` begins its transaction at first use and is committed by `EdgeRoute`."""

    services: Services
    caller: Caller
    session: Session
    resource: R


class Replayed(Exception):
    """Raised before a repeated POST does anything; carries the first one's answer."""

    def __init__(self, replay: Replay) -> None:
        self.replay = replay


def _identify(request: Request, secret: str | None, scope: Scope, session: Session) -> Caller:
    state = request.app.state
    caller = authenticate(session, secret) if state.services.settings.auth else EVERYBODY
    request.state.caller = caller
    state.rate_limit.take(caller.key_id or (request.client.host if request.client else ""))
    caller.demand(scope)
    if (key := request.state.replay_key) is not None:
        if not 1 <= len(key) <= 255:
            raise Malformed(f"Idempotency-Key has {len(key)} characters; it takes 1 to 255")
        if (replay := session.get(Replay, (caller.key_id, key))) is not None:
            raise Replayed(replay)
    return caller


def is_id(text: str) -> bool:
    """Whether it could be an id at all; not every database can be asked for anything else."""
    return len(text) <= 36 and "\0" not in text


Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]


def anyone(scope: Scope) -> Any:
    """A dependency for routes that are about no single thing: just a key with this scope."""

    def resolve(request: Request, credentials: Credentials) -> Context[None]:
        services: Services = request.app.state.services
        with services.database.read() as session:
            caller = _identify(request, credentials.credentials if credentials else None, scope, session)
        return Context(services=services, caller=caller, session=request.state.session, resource=None)

    return Depends(resolve)


def on(table: type[Base], scope: Scope, *, parameter: str) -> Any:
    """A dependency that resolves the row named in the path, or answers 404; other people's rows are not there."""
    noun = table.__tablename__.replace("api_", "")

    def resolve(request: Request, credentials: Credentials) -> Context[Any]:
        services: Services = request.app.state.services
        identifier = request.path_params[parameter]
        with services.database.read() as session:
            caller = _identify(request, credentials.credentials if credentials else None, scope, session)
            row = session.get(table, identifier) if is_id(identifier) else None
            owner = getattr(row, "project_id", None) if table is not Project else identifier
            if row is None or not caller.sees(owner):
                raise NotFound(f"there is no {noun} {identifier[:64]!r} that this key can see")
        return Context(services=services, caller=caller, session=request.state.session, resource=row)

    return Depends(resolve)


class EdgeRoute(APIRoute):
    """Commits once the answer is rendered and before it is sent; anything raised rolls everything back.

    The answer to a POST with an Idempotency-Key is stored in the same transaction as its effects, so a retry after
    a crash finds either both or neither. Of two at the same time the second fails, on the key or on what the first
    one did, and is answered with the first one's reply.
    """

    replays = True

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        handle = super().get_route_handler()
        writes = bool((self.methods or set()) - {"GET", "HEAD"})

        async def edge(request: Request) -> Response:
            services: Services = request.app.state.services
            session = services.database.session(writes=writes)
            request.state.session = session
            replayable = self.replays and request.method == "POST" and "idempotency-key" in request.headers
            request.state.replay_key = request.headers["idempotency-key"] if replayable else None
            _refuse_encoded(request)
            fingerprint = await _fingerprint(request) if replayable else ""
            try:
                response = await handle(request)
                if session.in_transaction() or replayable:
                    await run_in_threadpool(_commit, session, request, response, fingerprint)
                return response
            except Replayed as earlier:
                return _replay_response(earlier.replay, fingerprint)
            except (Conflict, NotFound, IntegrityError) as problem:
                if not replayable or not hasattr(request.state, "caller"):
                    raise
                await run_in_threadpool(session.close)
                return await run_in_threadpool(_replay_of_winner, services, request, fingerprint, problem)
            finally:
                if session.in_transaction():
                    await run_in_threadpool(session.close)

        return edge


class SecretRoute(EdgeRoute):
    """For answers that hold a secret: never stored, so never replayed."""

    replays = False


async def _fingerprint(request: Request) -> str:
    body = await request.body()
    head = f"{request.method} {request.url.path}?{request.url.query}\n"
    return hashlib.sha256(head.encode() + body).hexdigest()


def _refuse_encoded(request: Request) -> None:
    """A compressed body could unpack to anything, past every cap."""
    encoding = request.headers.get("content-encoding", "")
    if request.method in ("POST", "PUT", "PATCH") and encoding not in ("", "identity"):
        raise Unsupported(f"Content-Encoding {encoding[:64]!r} is not taken; send the body as it is")


def _commit(session: Session, request: Request, response: Response, fingerprint: str) -> None:
    if fingerprint and response.status_code < 300:
        replay = {
            "key_id": request.state.caller.key_id,
            "idempotency_key": request.state.replay_key,
            "fingerprint": fingerprint,
            "status": response.status_code,
            "headers": {
                name: response.headers[name] for name in ("location", "content-type") if name in response.headers
            },
            "body": bytes(response.body).decode(),
        }
        session.execute(insert(Replay).values(replay))
    session.commit()


def _replay_of_winner(services: Services, request: Request, fingerprint: str, problem: Exception) -> Response:
    """The answer to the same request that was faster, if it was that which caused the problem."""
    with services.database.read() as session:
        replay = session.get(Replay, (request.state.caller.key_id, request.state.replay_key))
    if replay is None:
        raise problem
    return _replay_response(replay, fingerprint)


def _replay_response(replay: Replay, fingerprint: str) -> Response:
    if replay.fingerprint != fingerprint:
        raise Conflict("this Idempotency-Key was used for a different request; take a new key for a new request")
    headers = {**replay.headers, "Idempotent-Replayed": "true"}
    return Response(replay.body, replay.status, headers=headers)
