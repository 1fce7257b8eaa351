"""Business errors carry their HTTP status; one handler (in `app.web.problems`) renders them as RFC 9457 problems.

Problem
├── Malformed      422  the body or a parameter can't be right for this project
├── Unauthorised   401  no key, or one that is unknown, expired or revoked
├── Forbidden      403  a good key without the scope
├── NotFound       404  not there, or somebody else's
├── Conflict       409  right in itself, but not in the present state
├── TooLarge       413  over a size cap
├── Unsupported    415  a body of a kind we don't read
├── TooMany        429  over the rate limit; carries Retry-After
└── NotReady       503  the database or the storage does not answer
"""

import json
import math
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, ClassVar

from starlette.responses import JSONResponse

SHOWN = 64  # characters of a name that came from outside


class Problem(Exception):
    status: ClassVar[int] = 500
    title: ClassVar[str] = "Internal error"

    def __init__(self, detail: str, *, headers: dict[str, str] | None = None, **extra: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.headers = headers or {}
        self.extra = extra

    def body(self) -> dict[str, Any]:
        return {"type": "about:blank", "title": self.title, "status": self.status, "detail": self.detail, **self.extra}


class Malformed(Problem):
    """`pointer` is a JSON pointer to the part of the body that is wrong."""

    status = 422
    title = "The request can't be processed as it is"

    def __init__(self, detail: str, *, pointer: str | None = None, **extra: Any) -> None:
        if pointer is not None:
            extra["errors"] = [{"pointer": pointer, "detail": detail}]
        super().__init__(detail, **extra)


class Unauthorised(Problem):
    status = 401
    title = "A valid API key is needed"

    def __init__(self, detail: str) -> None:
        super().__init__(detail, headers={"WWW-Authenticate": "Bearer"})


class Forbidden(Problem):
    status = 403
    title = "The key's scope is too narrow"


class NotFound(Problem):
    status = 404
    title = "Not found"


class Conflict(Problem):
    status = 409
    title = "Not possible in the present state"


class TooLarge(Problem):
    status = 413
    title = "Too large"


class Unsupported(Problem):
    status = 415
    title = "Unsupported media type"


class TooMany(Problem):
    status = 429
    title = "Too many requests"

    def __init__(self, detail: str, *, retry_after: float) -> None:
        super().__init__(detail, headers={"Retry-After": str(max(1, math.ceil(retry_after)))})


class NotReady(Problem):
    status = 503
    title = "Not ready"


class ProblemResponse(JSONResponse):
    media_type = "application/problem+json"

    def render(self, content: Any) -> bytes:
        """A problem may quote what came; what can't be written in UTF-8 becomes a question mark."""
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def problem_response(problem: Problem) -> JSONResponse:
    return ProblemResponse(problem.body(), problem.status, headers=problem.headers)


def json_pointer(*parts: object) -> str:
    """RFC 6901"""
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in parts)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'limit'?`, or nothing if no known name is near."""
    near = get_close_matches(name[:SHOWN], list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
