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
from app.errors import Conflict, Malformed, NotFound
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
    if (key := request.headers.get("idempotency-key")) is not None and request.method == "POST":
        request.state.replay_key = _checked_key(key)
        if (replay := session.get(Replay, (caller.key_id, key))) is not None:
            raise Replayed(replay)
    return caller


def _checked_key(key: str) -> str:
    if not 1 <= len(key) <= 255:
        raise Malformed(f"Idempotency-Key has {len(key)} characters; it takes 1 to 255")
    return key


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
            row = session.get(table, identifier) if len(identifier) <= 36 and "\0" not in identifier else None
            owner = getattr(row, "project_id", None) if table is not Project else identifier
            if row is None or not caller.sees(owner):
                raise NotFound(f"there is no {noun} {identifier[:64]!r} that this key can see")
        return Context(services=services, caller=caller, session=request.state.session, resource=row)

    return Depends(resolve)


class EdgeRoute(APIRoute):
    """Commits once the answer is rendered and before it is sent; anything raised rolls everything back.

    The answer to a POST with an Idempotency-Key is stored in the same transaction as its effects, so a retry after
    a crash finds either both or neither. Of two at the same time the second fails on the key and is answered with
    the first one's reply.
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
            fingerprint = await _fingerprint(request) if replayable else ""
            try:
                response = await handle(request)
                if session.in_transaction() or replayable:
                    conflicted = await run_in_threadpool(_commit, session, request, response, fingerprint)
                    if conflicted:
                        return await run_in_threadpool(_replay_of_winner, services, request, fingerprint)
                return response
            except Replayed as earlier:
                return _replay_response(earlier.replay, fingerprint)
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


def _commit(session: Session, request: Request, response: Response, fingerprint: str) -> bool:
    """True if another request with the same Idempotency-Key was faster."""
    if fingerprint and response.status_code < 300:
        replay = {
            "key_id": request.state.caller.key_id,
            "idempotency_key": request.state.replay_key,
            "fingerprint": fingerprint,
            "status": response.status_code,
            "headers": {name: response.headers[name] for name in ("location", "content-type") if name in response.headers},
            "body": bytes(response.body).decode(),
        }
        try:
            session.execute(insert(Replay).values(replay))
        except IntegrityError:
            session.rollback()
            return True
    session.commit()
    return False


def _replay_of_winner(services: Services, request: Request, fingerprint: str) -> Response:
    with services.database.read() as session:
        replay = session.get(Replay, (request.state.caller.key_id, request.state.replay_key))
    if replay is None:
        raise Conflict("another request with this Idempotency-Key was under way and failed; send it again")
    return _replay_response(replay, fingerprint)


def _replay_response(replay: Replay, fingerprint: str) -> Response:
    if replay.fingerprint != fingerprint:
        raise Conflict("this Idempotency-Key was used for a different request; take a new key for a new request")
    headers = {**replay.headers, "Idempotent-Replayed": "true"}
    return Response(replay.body, replay.status, headers=headers)
