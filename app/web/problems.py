"""What routes share: documented problems, page parameters, keyset paging over ids."""

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import Query
from sqlalchemy import Select
from sqlalchemy.orm import Session

from app.web.fields import Page, ProblemOut, decode_cursor, encode_cursor

T = TypeVar("T")
Limit = Annotated[int, Query(ge=1, le=1000, description="Items a page.")]
Cursor = Annotated[str | None, Query(max_length=500, description="`next_cursor` of the page before.")]

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
    """Documented answers: what every route may say, and these."""
    return only_problems(401, 403, 422, 429, 503, *statuses)


def problems_of_change(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For a route that changes something: its body or its Idempotency-Key may be refused too."""
    return problems(409, 413, 415, *statuses)


def only_problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {
        status: {"description": _REASONS[status], "content": {"application/problem+json": {"schema": _SCHEMA}}}
        for status in sorted(set(statuses))
    }


_SCHEMA = {"$ref": "#/components/schemas/ProblemOut"}
assert ProblemOut.__name__ in _SCHEMA["$ref"]


def page_by_id(
    session: Session, query: Select[Any], column: Any, cursor: str | None, limit: int, view: Callable[[Any], T]
) -> Page[T]:
    """Oldest first; ids grow with time, so the cursor is the last id seen."""
    after = decode_cursor(cursor, str)
    if after is not None:
        query = query.where(column > after[0])
    rows = list(session.scalars(query.order_by(column).limit(limit + 1)))
    following = encode_cursor(rows[limit - 1].id) if len(rows) > limit else None
    return Page(items=[view(row) for row in rows[:limit]], next_cursor=following)
