"""Find rows of a pool: all in order, by key, by number, or by status."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Query
from sqlalchemy.orm import Session

from app.db import pools
from app.db.rows_by_status import Found, Status, rows_by_status
from app.db.tables import Pool, PoolData, Project
from app.errors import Malformed
from app.pools.answer_size import rows_at_once
from app.pools.schemas import ItemOut
from app.pools.views import items_view
from app.services import Services
from app.web.paging import Page, encode_cursor

MAX_NAMED = 1000
_DIGITS = len(str(2**63))


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which rows a request asks for: at most one of the three."""

    key: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=500,
            pattern=r"^[^\x00]*$",
            description="The row with this key first, then those whose keys begin with it.",
        ),
    ] = None
    rows: Annotated[
        str | None,
        Query(
            max_length=MAX_NAMED * 10,  # of a longer address the server reads nothing, once it is percent-encoded
            description=f"Numbers of rows, as `3,5,8`; at most {MAX_NAMED:,}. They come in this order.",
        ),
    ] = None
    status: Annotated[
        Status | None,
        Query(description="Only rows of this status. A page may have fewer items than `limit`, and others follow."),
    ] = None

    def __post_init__(self) -> None:
        given = [name for name in ("key", "rows", "status") if getattr(self, name) is not None]
        if len(given) > 1:
            raise Malformed(f"ask by {' or '.join(given)}, not by both", pointer=f"/query/{given[-1]}")

    def numbers(self) -> list[int]:
        """What `rows` says."""
        parts = (self.rows or "").split(",")
        if len(parts) > MAX_NAMED:
            raise Malformed(f"at most {MAX_NAMED:,} rows at once, got {len(parts):,}", pointer="/query/rows")
        for part in parts:
            if not (part.isascii() and part.isdigit() and len(part) <= _DIGITS):
                raise Malformed(f"rows are whole numbers, as 3,5,8; got {part[:40]!r}", pointer="/query/rows")
        return [int(part) for part in parts]


def find_items(
    services: Services, session: Session, pool: Pool, wanted: Wanted, *, after: int | None, limit: int, features: bool
) -> Page[ItemOut]:
    """A page of them; `after` is where the page before ended. With their features there are no more on it than one
    answer has room for."""
    data = pools.data_of(session, pool)
    project = session.get_one(Project, pool.project_id)
    kind: str = project.task["kind"]
    limit = rows_at_once(project, MAX_NAMED if wanted.rows is not None else limit, features=features)
    start = 0 if after is None else max(after + 1, 0)
    if wanted.rows is not None:
        found = _by_number(data, wanted.numbers(), start=start, limit=limit)
    elif wanted.key is not None:
        found = _by_key(services, data, wanted.key, start=start, limit=limit, is_first=after is None)
    elif wanted.status is not None:
        found = rows_by_status(session, pool.id, wanted.status, kind=kind, n_rows=data.n_rows, start=start, limit=limit)
    else:
        stop = min(start + limit, data.n_rows)
        found = Found(rows=list(range(start, stop)), last=stop - 1 if stop < data.n_rows else None)
    items = items_view(services, session, data, found.rows, kind=kind, features=features)
    return Page(items=items, next_cursor=None if found.last is None else encode_cursor(found.last))


def _by_number(data: PoolData, rows: list[int], *, start: int, limit: int) -> Found:
    """From this place of the list on."""
    for row in rows:
        if row >= data.n_rows:
            raise Malformed(f"there is no row {row}; this pool has {data.n_rows:,}, from 0 on", pointer="/query/rows")
    stop = start + limit
    return Found(rows=rows[start:stop], last=stop - 1 if stop < len(rows) else None)


def _by_key(services: Services, data: PoolData, key: str, *, start: int, limit: int, is_first: bool) -> Found:
    """The very key comes first, wherever it lies, and is left out of what follows."""
    files = services.pool(data)
    exact = [row for row in files.row_of([key]).tolist() if row >= 0]
    more = files.rows_of_prefix(key, start=start, limit=limit + 2).tolist()
    rows = [row for row in more if row not in exact]
    first = exact if is_first else []
    shown = rows[: limit - len(first)]
    last = (shown[-1] if shown else start - 1) if len(rows) > len(shown) else None
    return Found(rows=first + shown, last=last)
