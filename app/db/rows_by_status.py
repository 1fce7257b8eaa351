"""Which rows of a pool have a status, in the order of rows and a page at a time.

A status follows from events, and no table has it. So candidates come by an index or a scan in the database, and what
they are is computed for these alone. One call looks at no more than so many rows: where those it asks for are rare
among others, it finds fewer than asked and says how far it looked.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Select, Text, cast, func, select
from sqlalchemy.orm import Session

from app.db import consensus
from app.db.tables import Label

MOST_CANDIDATES = 5_000  # whose events are read, 12 µs each
WINDOW, WINDOWS = 20_000, 10  # rows with events that are passed over in search of others, by their index alone

Status = Literal["unlabelled", "labelled", "open", "skipped"]


@dataclass(frozen=True, kw_only=True)
class Found:
    rows: list[int]
    last: int | None  # the row up to which was looked; None: there are no more


def rows_by_status(
    session: Session, pool_id: str, status: Status, *, kind: str, n_rows: int, start: int, limit: int
) -> Found:
    """The first rows with this status from `start` on, at most `limit`."""
    if status == "unlabelled":
        return _unlabelled(session, pool_id, kind=kind, n_rows=n_rows, start=start, limit=limit)
    if status == "open" and kind == "regression":
        return Found(rows=[], last=None)  # a mean is always agreed on
    found: list[int] = []
    seen = 0
    while seen < MOST_CANDIDATES:
        step = min(max(2 * (limit + 1 - len(found)), 100), MOST_CANDIDATES - seen)
        candidates = list(session.scalars(_candidates(pool_id, status).where(Label.row >= start).limit(step)))
        verdicts = consensus.verdicts(session, pool_id, candidates, kind=kind)
        found += [row for row in candidates if row in verdicts and verdicts[row].status == status]
        seen += len(candidates)
        if len(found) > limit:
            return Found(rows=found[:limit], last=found[limit - 1])
        if len(candidates) < step:
            return Found(rows=found, last=None)
        start = candidates[-1] + 1
    return Found(rows=found, last=start - 1)


def _candidates(pool_id: str, status: Status) -> Select[Any]:
    """Rows whose events allow for the status, in order."""
    query = select(Label.row).where(Label.pool_id == pool_id).group_by(Label.row).order_by(Label.row)
    if status == "skipped":
        return query.where(Label.action == "skip")
    labels = query.where(Label.action == "label")
    return labels.having(func.count(cast(Label.value, Text).distinct()) > 1) if status == "open" else labels


def _unlabelled(session: Session, pool_id: str, *, kind: str, n_rows: int, start: int, limit: int) -> Found:
    found: list[int] = []
    for _ in range(WINDOWS):
        said = _rows_with_events(session, pool_id, start)
        is_last = len(said) < WINDOW
        stop = n_rows if is_last else int(said[-1]) + 1
        # of so many rows, at least limit + 1 have no events
        near = np.arange(start, min(stop, start + len(said) + limit + 1))
        free = np.setdiff1d(near, said, assume_unique=True)
        back = _taken_back(session, pool_id, kind=kind, start=start, stop=int(near[-1]) + 1 if len(near) else start)
        found += np.union1d(free, back).tolist()
        if len(found) > limit:
            return Found(rows=found[:limit], last=found[limit - 1])
        if is_last:
            return Found(rows=found, last=None)
        start = stop
    return Found(rows=found, last=start - 1)


def _rows_with_events(session: Session, pool_id: str, start: int) -> NDArray[np.int64]:
    query = select(Label.row).where(Label.pool_id == pool_id, Label.row >= start).distinct().order_by(Label.row)
    return np.array(session.scalars(query.limit(WINDOW)).all(), dtype=np.int64)


def _taken_back(session: Session, pool_id: str, *, kind: str, start: int, stop: int) -> NDArray[np.int64]:
    """Rows that have events, and of which nobody says anything any more."""
    of_range = (Label.pool_id == pool_id, Label.row >= start, Label.row < stop, Label.action == "retract")
    rows = list(session.scalars(select(Label.row).where(*of_range).distinct()))
    said = consensus.verdicts(session, pool_id, rows, kind=kind)
    return np.array([row for row in rows if row not in said], dtype=np.int64)
