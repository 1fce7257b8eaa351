"""The edge of a request: who asks, what they ask about, one transaction, and stored answers for repeated POSTs."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property, partial, wraps
from inspect import iscoroutinefunction
from typing import Annotated, Any, ClassVar, Generic, TypeVar, get_args, get_type_hints

from fastapi import Depends, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import TypeAdapter
from sqlalchemy import bindparam, insert, inspect, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.db.tables import Base, StoredAnswer
from app.errors import Conflict, Forbidden, Malformed, NotFound, Unsupported
from app.services import Services
from app.web.auth import EVERYBODY, Caller, Scope, authenticate
from app.web.bodies.receive import Validate, receive
from app.web.problems import document_problems
from app.web.query import refuse_unknown
from app.web.waiting import document_waiting, patient

R = TypeVar("R")
bearer = HTTPBearer(auto_error=False, description="An API key: `Authorization: Bearer bk_…`")
_ENDERS = ThreadPoolExecutor(max_workers=4, thread_name_prefix="edge")


@dataclass(frozen=True, kw_only=True)
class Context(Generic[R]):
    """What a route works with. `session` begins its transaction at first use and is committed by `EdgeRoute`."""

    services: Services
    caller: Caller
    session: Session
    resource: R
    request: Request


class AnsweredBefore(Exception):
    """Raised before a repeated POST does anything; carries the first one's answer."""

    def __init__(self, answer: StoredAnswer) -> None:
        self.answer = answer


def _identify(request: Request, secret: str | None, scope: Scope, session: Session) -> Caller:
    state = request.app.state
    caller = authenticate(session, secret) if state.services.settings.auth else EVERYBODY
    request.state.caller = caller
    state.rate_limit.take(caller.key_id or (request.client.host if request.client else ""))
    caller.demand(scope)
    if (key := request.state.idempotency_key) is not None:
        if not 1 <= len(key) <= 255:
            raise Malformed(f"Idempotency-Key has {len(key)} characters; it takes 1 to 255")
        if (answer := session.get(StoredAnswer, (caller.key_id, key))) is not None:
            raise AnsweredBefore(answer)
    return caller


def is_id(text: str) -> bool:
    """Whether it could be an id at all; not every database can be asked for anything else."""
    return len(text) <= 36 and "\0" not in text


Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]


async def _resolved(request: Request, credentials: Credentials) -> Context[Any]:
    """FastAPI solves dependencies after it has read the body, so `EdgeRoute` resolves this one before, by itself, and
    FastAPI is given what was found."""
    context: Context[Any] = request.state.context
    return context


# The context of a route whose caller needs this scope. `CanRead[Pool]` resolves the pool that the path names, or
# answers 404: other people's rows are not there. `CanRead[None]` is for routes that are about no single thing, and
# `CanRead[Caller]` for one that is about whoever asks.
CanRead = Annotated[Context[R], Depends(_resolved), "read"]
CanLabel = Annotated[Context[R], Depends(_resolved), "label"]
CanWrite = Annotated[Context[R], Depends(_resolved), "write"]
CanAdminister = Annotated[Context[R], Depends(_resolved), "admin"]
Find = Callable[[Session, Caller, dict[str, str]], Any]
Resolve = Callable[[Request, HTTPAuthorizationCredentials | None], Context[Any]]


def _resolver(endpoint: Callable[..., Any]) -> Resolve:
    asked = get_type_hints(endpoint, include_extras=True)["context"]
    (table,), scope = get_args(asked.__origin__), asked.__metadata__[-1]
    find = _OF_NO_ROW[table] if table in _OF_NO_ROW else _finder(table)

    def resolve(request: Request, credentials: HTTPAuthorizationCredentials | None) -> Context[Any]:
        services: Services = request.app.state.services
        with services.database.read() as session:
            caller = _identify(request, credentials.credentials if credentials else None, scope, session)
            row = find(session, caller, request.path_params)
        return Context(services=services, caller=caller, session=request.state.session, resource=row, request=request)

    return resolve


def _find_nothing(session: Session, caller: Caller, path: dict[str, str]) -> None:
    if caller.session_id is not None:
        raise Forbidden("a session's token is good for that session's own addresses only; use an API key here")


def _find_caller(session: Session, caller: Caller, path: dict[str, str]) -> Caller:
    return caller


_OF_NO_ROW: dict[type, Find] = {type(None): _find_nothing, Caller: _find_caller}


def _finder(table: type[Base]) -> Find:
    noun = table.__tablename__
    query = select(table).where(inspect(table).primary_key[0] == bindparam("id"))  # building costs more than running

    def find(session: Session, caller: Caller, path: dict[str, str]) -> Base:
        identifier = path[f"{noun}_id"]
        row = session.scalars(query, {"id": identifier}).one_or_none() if is_id(identifier) else None
        if row is None or not caller.sees_row(row):
            raise NotFound(f"there is no {noun} {identifier[:64]!r} that this key can see")
        return row

    return find


class EdgeRoute(APIRoute):
    """Knows who asks, and for what, before it reads the body: whoever may not ask is refused by the headers alone.

    Commits once the answer is rendered and before it is sent; anything raised rolls everything back.

    An endpoint that is a plain function runs, is rendered and commits in one thread. If the commit had to wait for
    another thread, every thread there is could be waiting for the lock that this commit would free.

    The answer to a POST with an Idempotency-Key is stored in the same transaction as its effects, so a retry after
    a crash finds either both or neither. Of two at the same time the second fails, on the key or on what the first
    one did, and is answered with the first one's reply.
    """

    stores_answers = True
    hidden: ClassVar[
        tuple[str, ...]
    ] = ()  # parts of the answer that are secret: the stored answer has null in their place

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        is_left = iscoroutinefunction(endpoint) or hasattr(endpoint, "ends_itself")
        options = document_waiting(endpoint, document_problems(path, options))
        super().__init__(path, endpoint if is_left else self._to_the_end(endpoint), **options)

    def _to_the_end(self, endpoint: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(endpoint)
        def work(**values: Any) -> Response:
            context: Context[Any] = values["context"]
            with context.session as session:
                answer = endpoint(**values)
                response = answer if isinstance(answer, Response) else self._rendered(answer, values.get("response"))
                _commit(session, context.request, response, context.request.state.fingerprint, self.hidden)
            return response

        @wraps(endpoint)
        async def queued(**values: Any) -> Response:
            context: Context[Any] = values["context"]
            return await context.services.compute.run(partial(work, **values))

        ending: Callable[..., Any] = queued if hasattr(endpoint, "computes") else work
        vars(ending)["ends_itself"] = True  # an included router makes its routes anew, from what we return here
        return ending

    def _rendered(self, answer: Any, prepared: Response | None) -> Response:
        """As FastAPI would; `prepared` carries the headers that the endpoint has set. Work that is accepted is found at
        its job, unless the endpoint says where else."""
        status = (prepared.status_code if prepared is not None else None) or self.status_code or 200
        if status == 204:
            response = Response(status_code=status)
        else:
            body = self._model.dump_json(self._model.validate_python(answer, from_attributes=True), by_alias=True)
            response = Response(body, status, media_type="application/json")
        response.headers.raw.extend(prepared.headers.raw if prepared is not None else ())
        if status == 202:
            response.headers.setdefault("Location", f"/v1/jobs/{answer.job.id}")
        return response

    @cached_property
    def _model(self) -> TypeAdapter[Any]:
        return TypeAdapter(self.response_model)

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        handle = refuse_unknown(self.dependant, super().get_route_handler())
        writes = bool((self.methods or set()) - {"GET", "HEAD"})
        ends_itself = hasattr(self.endpoint, "ends_itself")
        resolve = _resolver(self.endpoint)
        validate = self.body_field.validate if self.body_field is not None else None

        async def edge(request: Request) -> Response:
            services: Services = request.app.state.services
            session = services.database.session(writes=writes)
            request.state.session = session
            keeps_answer = self.stores_answers and request.method == "POST" and "idempotency-key" in request.headers
            request.state.idempotency_key = request.headers["idempotency-key"] if keeps_answer else None
            request.state.fingerprint = ""
            try:
                request.state.context = await run_in_threadpool(resolve, request, await bearer(request))
                _refuse_encoded(request)
                async with _with_body(request, validate) as whole:
                    response = await handle(whole)
                    if not ends_itself and (session.in_transaction() or keeps_answer):
                        await _end(_commit, session, request, response, request.state.fingerprint)
                return response
            except AnsweredBefore as earlier:
                return _stored_response(earlier.answer, await _fingerprint(request))
            except (Conflict, NotFound, IntegrityError):
                if not keeps_answer or not hasattr(request.state, "caller"):
                    raise
                await _end(session.close)
                winner = await run_in_threadpool(_winner, services, request)
                if winner is None:
                    raise
                return _stored_response(winner, await _fingerprint(request))
            finally:
                if session.in_transaction():
                    await _end(session.close)

        return patient(self.endpoint, edge)


F = TypeVar("F", bound=Callable[..., Any])


def computes(endpoint: F) -> F:
    """For an endpoint that computes: it runs in a thread of the compute pool, where it keeps nobody else waiting. It
    computes first and touches `context.session` last, so that no transaction is open meanwhile."""
    vars(endpoint)["computes"] = True
    return endpoint


class SecretRoute(EdgeRoute):
    """For answers that hold a secret: never stored, so never given again."""

    stores_answers = False


class TokenRoute(EdgeRoute):
    """For the answer that holds a session's token: it is stored, but without the token."""

    hidden = ("token",)


async def _end(work: Callable[..., None], *arguments: Any) -> None:
    """In a thread where nobody waits for a lock, so that whoever holds one can always let it go."""
    await asyncio.get_running_loop().run_in_executor(_ENDERS, work, *arguments)


@asynccontextmanager
async def _with_body(request: Request, validate: Validate | None) -> AsyncIterator[Request]:
    """The request with its body received; a file (PUT) is left to its route, which streams it."""
    if request.method not in ("POST", "PATCH"):
        yield request
        return
    async with receive(request) as received:
        if request.state.idempotency_key is not None:
            request.state.fingerprint = received.sha256
        if validate is not None:
            await received.parse(validate)
        yield received


async def _fingerprint(request: Request) -> str:
    """Of a request that is answered without being handled: its body may not have been read yet."""
    if not request.state.fingerprint:
        async with _with_body(request, None):
            pass
    found: str = request.state.fingerprint
    return found


def _refuse_encoded(request: Request) -> None:
    """A compressed body could unpack to anything, past every cap."""
    encoding = request.headers.get("content-encoding", "")
    if request.method in ("POST", "PUT", "PATCH") and encoding not in ("", "identity"):
        raise Unsupported(f"Content-Encoding {encoding[:64]!r} is not taken; send the body as it is")


def _commit(
    session: Session, request: Request, response: Response, fingerprint: str, hidden: tuple[str, ...] = ()
) -> None:
    if fingerprint and response.status_code < 300:
        stored = {
            "key_id": request.state.caller.key_id,
            "idempotency_key": request.state.idempotency_key,
            "fingerprint": fingerprint,
            "status": response.status_code,
            "headers": {
                name: response.headers[name] for name in ("location", "content-type") if name in response.headers
            },
            "body": _without(hidden, bytes(response.body)),
        }
        session.execute(insert(StoredAnswer).values(stored))
    session.commit()


def _without(hidden: tuple[str, ...], body: bytes) -> str:
    return json.dumps({**json.loads(body), **dict.fromkeys(hidden)}) if hidden else body.decode()


def _winner(services: Services, request: Request) -> StoredAnswer | None:
    """The answer to the same request that was faster, if there was one: it may be that which is in the way."""
    with services.database.read() as session:
        return session.get(StoredAnswer, (request.state.caller.key_id, request.state.idempotency_key))


def _stored_response(stored: StoredAnswer, fingerprint: str) -> Response:
    if stored.fingerprint != fingerprint:
        raise Conflict("this Idempotency-Key was used for a different request; take a new key for a new request")
    headers = {**stored.headers, "Idempotent-Replayed": "true"}
    return Response(stored.body, stored.status, headers=headers)
