"""What the annotators agree on, computed from the label events up to a watermark.

The latest event of each annotator counts. Classification: the value with most votes; equal votes leave the row open.
Regression: the mean of the annotators. A row that somebody skipped and nobody labelled is skipped.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import ColumnElement, Select, Subquery, case, func, select, tuple_
from sqlalchemy.orm import Session

from app.db.tables import Label


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One row's standing. `value` is None unless `status` is "labelled"; `n_annotators` counts labels and skips."""

    pool_id: str
    row: int
    status: str  # labelled | open | skipped | unlabelled
    value: Any
    n_annotators: int


def _latest(*where: ColumnElement[bool]) -> Subquery:
    newest = func.row_number().over(partition_by=(Label.pool_id, Label.row, Label.annotator), order_by=Label.seq.desc())
    events = select(Label.pool_id, Label.row, Label.annotator, Label.action, Label.value, newest.label("newest"))
    inner = events.where(*where).subquery()
    return select(inner).where(inner.c.newest == 1, inner.c.action != "retract").subquery()


def _scope(pool_id: str, watermark: int | None) -> tuple[ColumnElement[bool], ...]:
    return (Label.pool_id == pool_id, *(() if watermark is None else (Label.seq <= watermark,)))


def _decided_classes(latest: Subquery) -> Select[Any]:
    votes = (
        select(
            latest.c.pool_id,
            latest.c.row,
            latest.c.value,
            func.rank()
            .over(partition_by=(latest.c.pool_id, latest.c.row), order_by=func.count().desc())
            .label("place"),
        )
        .where(latest.c.action == "label")
        .group_by(latest.c.pool_id, latest.c.row, latest.c.value)
        .subquery()
    )
    leaders = (
        select(votes, func.count().over(partition_by=(votes.c.pool_id, votes.c.row)).label("tied"))
        .where(votes.c.place == 1)
        .subquery()
    )
    return select(leaders.c.row, leaders.c.value).where(leaders.c.tied == 1)


def labelled_rows(
    session: Session, pool_id: str, *, kind: str, watermark: int | None = None
) -> tuple[np.ndarray[Any, np.dtype[np.int64]], list[Any]]:
    """Rows with an agreed label and these labels, in row order."""
    latest = _latest(*_scope(pool_id, watermark))
    if kind == "classification":
        decided = _decided_classes(latest).subquery()
        found = session.execute(select(decided.c.row, decided.c.value).order_by(decided.c.row)).all()
        return np.array([row for row, _ in found], dtype=np.int64), [value for _, value in found]
    query = select(latest.c.row, latest.c.value).where(latest.c.action == "label").order_by(latest.c.row)
    rows: list[int] = []
    values: list[list[Any]] = []
    for row, value in session.execute(query):
        if rows and rows[-1] == row:
            values[-1].append(value)
        else:
            rows.append(row)
            values.append([value])
    return np.array(rows, dtype=np.int64), [np.mean(np.asarray(several, dtype=float), axis=0) for several in values]


def skipped_rows(
    session: Session, pool_id: str, *, watermark: int | None = None
) -> np.ndarray[Any, np.dtype[np.int64]]:
    latest = _latest(*_scope(pool_id, watermark))
    rows = session.execute(_skipped(latest).order_by(latest.c.row)).scalars().all()
    return np.array(rows, dtype=np.int64)


def _skipped(latest: Subquery) -> Select[Any]:
    n_labels = func.sum(case((latest.c.action == "label", 1), else_=0))
    return select(latest.c.row).group_by(latest.c.row).having(n_labels == 0)


def count_rows(session: Session, pool_id: str, *, kind: str) -> tuple[int, int]:
    """How many rows of a pool have an agreed label, and how many are skipped."""
    latest = _latest(*_scope(pool_id, None))
    if kind == "classification":
        labelled = select(func.count()).select_from(_decided_classes(latest).subquery())
    else:
        labelled = select(func.count(latest.c.row.distinct())).where(latest.c.action == "label")
    skipped = select(func.count()).select_from(_skipped(latest).subquery())
    return session.execute(labelled).scalar_one(), session.execute(skipped).scalar_one()


def given_rows(session: Session, pool_id: str, *, watermark: int | None = None) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Rows whose label came with the pool, whatever was said of them later."""
    query = select(Label.row).where(*_scope(pool_id, watermark), Label.source == "pool").distinct()
    return np.array(sorted(session.execute(query).scalars()), dtype=np.int64)


def verdicts(session: Session, pool_id: str, rows: Sequence[int], *, kind: str) -> dict[int, Verdict]:
    """The standing of some rows of one pool; rows with no events are left out."""
    latest = _latest(Label.pool_id == pool_id, Label.row.in_(rows))
    events: dict[int, list[tuple[str, Any]]] = {}
    for row, action, value in session.execute(select(latest.c.row, latest.c.action, latest.c.value)):
        events.setdefault(row, []).append((action, value))
    return {row: _verdict(pool_id, row, said, kind) for row, said in events.items()}


def _verdict(pool_id: str, row: int, events: list[tuple[str, Any]], kind: str) -> Verdict:
    values = [value for action, value in events if action == "label"]
    status, value = "unlabelled", None
    if not values:
        status = "skipped" if events else "unlabelled"
    elif kind == "regression":
        status, value = "labelled", np.mean(np.asarray(values, dtype=float), axis=0).tolist()
    else:
        counts = {candidate: values.count(candidate) for candidate in values}
        best = max(counts.values())
        leaders = [candidate for candidate, n in counts.items() if n == best]
        status, value = ("labelled", leaders[0]) if len(leaders) == 1 else ("open", None)
    return Verdict(pool_id=pool_id, row=row, status=status, value=value, n_annotators=len(events))


def verdict_pages(
    session: Session, project_id: str, *, kind: str, after: tuple[str, int] | None, limit: int
) -> Iterator[Verdict]:
    """The next `limit` rows of a project that have events, by pool and row."""
    query = select(Label.pool_id, Label.row).where(Label.project_id == project_id).distinct()
    if after is not None:
        query = query.where(tuple_(Label.pool_id, Label.row) > after)
    wanted: dict[str, list[int]] = {}
    for pool_id, row in session.execute(query.order_by(Label.pool_id, Label.row).limit(limit)):
        wanted.setdefault(pool_id, []).append(row)
    for pool_id, rows in wanted.items():
        found = verdicts(session, pool_id, rows, kind=kind)
        for row in rows:
            yield found.get(row) or Verdict(pool_id=pool_id, row=row, status="unlabelled", value=None, n_annotators=0)
