"""Pages: keyset cursors, and the parameters of a list."""

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, TypeVar

from fastapi import Depends, Query
from pydantic import BaseModel
from sqlalchemy import ColumnElement, Select
from sqlalchemy.orm import InstrumentedAttribute, Session

from app.db.tables import Base
from app.errors import Malformed

T = TypeVar("T")
B = TypeVar("B", bound=Base)
Limit = Annotated[int, Query(ge=1, le=1000, description="Items a page.")]
Cursor = Annotated[str | None, Query(max_length=500, description="`next_cursor` of the page before.")]
Order = Annotated[Literal["asc", "desc"], Query(description="`asc`: oldest first; `desc`: newest first.")]
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


class Page(BaseModel, Generic[T]):
    """One page. Ask again with `cursor=next_cursor` for the next; null means that was the last."""

    items: list[T]
    next_cursor: str | None


def encode_cursor(*values: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")


def _is_plain(value: Any, kind: type[Any]) -> bool:
    """Of the right type, and something that every database can compare with."""
    if type(value) is not kind:
        return False
    return _UNSTORABLE.search(value) is None if isinstance(value, str) else abs(value) < 2**63


def decode_cursor(cursor: str | None, *types: type) -> tuple[Any, ...] | None:
    if cursor is None:
        return None
    try:
        values = json.loads(base64.urlsafe_b64decode(cursor.encode() + b"=="))
        if type(values) is list and len(values) == len(types) and all(map(_is_plain, values, types)):
            return tuple(values)
    except (ValueError, TypeError):
        pass
    raise Malformed("this cursor is not one of ours; pass `next_cursor` of the page before, unchanged")


@dataclass(frozen=True, kw_only=True)
class Paging:
    cursor: Cursor = None
    limit: Limit = 100
    order: Order = "asc"

    def after(self, *types: type) -> tuple[Any, ...] | None:
        return decode_cursor(self.cursor, *types)

    @property
    def is_descending(self) -> bool:
        return self.order == "desc"

    def beyond(self, column: Any, value: Any) -> Any:
        """Whether it comes after that value of what the list is ordered by; of a column, as an expression."""
        return column < value if self.is_descending else column > value

    def sorted_by(self, *columns: InstrumentedAttribute[Any]) -> list[ColumnElement[Any]]:
        return [column.desc() if self.is_descending else column.asc() for column in columns]


Paged = Annotated[Paging, Depends()]
"""Which page of a list a request asks for."""


def page_by_id(session: Session, query: Select[B], paging: Paging, view: Callable[[B], T]) -> Page[T]:
    """In the order of ids, which grow with time, so that the cursor is the last id seen."""
    column = query.column_descriptions[0]["entity"].id
    if (after := paging.after(str)) is not None:
        query = query.where(paging.beyond(column, after[0]))
    rows: list[Any] = list(session.scalars(query.order_by(*paging.sorted_by(column)).limit(paging.limit + 1)))
    following = encode_cursor(rows[paging.limit - 1].id) if len(rows) > paging.limit else None
    return Page(items=[view(row) for row in rows[: paging.limit]], next_cursor=following)
