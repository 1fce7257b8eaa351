"""Problems (RFC 9457): how routes document them, and the one place where errors become answers."""

import json
import logging
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel
from sqlalchemy.exc import IntegrityError, NoResultFound, OperationalError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Route

from app.errors import (
    Conflict,
    Malformed,
    NotFound,
    NotReady,
    Problem,
    ProblemResponse,
    TooLarge,
    json_pointer,
    problem_response,
)
from app.storage.errors import StorageError
from app.web.fields import WITHOUT_NUL

logger = logging.getLogger(__name__)


class ProblemOut(BaseModel):
    """RFC 9457. `detail` says what was expected, what came and what to do; `errors` point into the body."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    errors: list[dict[str, Any]] | None = None


_REASONS = {
    401: "No key, or one that is unknown, expired or revoked.",
    403: "The key lacks the scope.",
    404: "Not there, or not this key's to see.",
    409: "Not possible in the present state; `detail` says what to do first.",
    413: "The body is over the size cap.",
    415: "The body is of a kind that is not read here.",
    422: "The request is malformed or names an unknown parameter; `errors` point at the places.",
    429: "Over the rate limit; wait `Retry-After` seconds.",
    503: "The database or the storage does not answer; try again.",
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {
        status: {"description": _REASONS[status], "content": {"application/problem+json": {"schema": _SCHEMA}}}
        for status in sorted(statuses)
    }


def document_problems(path: str, options: dict[str, Any]) -> dict[str, Any]:
    """A route's options with what any such route may refuse: one that names a row, which may not be there, and one that
    changes something, whose body or Idempotency-Key may be refused."""
    named = {404} if "{" in path else set()
    changed = {409, 413, 415} if {"POST", "PUT", "PATCH"} & set(options["methods"]) else set()
    usual = problems(401, 403, 422, 429, 503, *named, *changed)
    return {**options, "responses": {**usual, **(options.get("responses") or {})}}


_SCHEMA = {"$ref": "#/components/schemas/ProblemOut"}
assert ProblemOut.__name__ in _SCHEMA["$ref"]


def handle_errors(app: FastAPI, routes: Sequence[BaseRoute]) -> None:
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
    return json_pointer(*path)


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
