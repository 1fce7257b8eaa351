"""What the annotators agree on, computed from the label events up to a watermark.

The latest event of each annotator counts. Classification: the value with most votes; equal votes leave the row open.
Regression: the mean of the annotators. A row that somebody skipped and nobody labelled is skipped.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from sqlalchemy import ColumnElement, Select, Subquery, Text, bindparam, case, cast, func, select, tuple_
from sqlalchemy.orm import Session

from app.db.tables import Base, Label

_LABEL = Base.metadata.tables[Label.__tablename__]
ROWS_AT_ONCE, EVENTS_AT_ONCE = 1000, 500  # of more rows PostgreSQL would rather read all labels than its index
Said = tuple[str, Any]  # action, and the value of a label


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One row's standing. `value` is None unless `status` is "labelled"; `n_annotators` counts labels and skips."""

    pool_id: str
    row: int
    status: str  # labelled | open | skipped | unlabelled
    value: Any
    n_annotators: int


def _latest(*where: ColumnElement[bool]) -> Subquery:
    label = _LABEL.c
    newest = func.row_number().over(partition_by=(label.pool_id, label.row, label.annotator), order_by=label.seq.desc())
    events = select(label.pool_id, label.row, label.annotator, label.action, label.value, newest.label("newest"))
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


def class_counts(session: Session, pool_id: str, *, watermark: int | None = None) -> dict[str, int]:
    """How many rows of a pool are agreed to be of each class; classes of none are left out."""
    decided = _decided_classes(_latest(*_scope(pool_id, watermark))).subquery()
    value = cast(decided.c.value, Text)
    found = session.execute(select(value, func.count()).group_by(value).order_by(value))
    return {str(json.loads(name)): count for name, count in found}


def skipped_rows(
    session: Session, pool_id: str, *, watermark: int | None = None
) -> np.ndarray[Any, np.dtype[np.int64]]:
    latest = _latest(*_scope(pool_id, watermark))
    rows = session.execute(_skipped(latest).order_by(latest.c.row)).scalars().all()
    return np.array(rows, dtype=np.int64)


def _skipped(latest: Subquery) -> Select[Any]:
    n_labels = func.sum(case((latest.c.action == "label", 1), else_=0))
    return select(latest.c.row).group_by(latest.c.row).having(n_labels == 0)


def given_rows(session: Session, pool_id: str, *, watermark: int | None = None) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Rows whose label came with the pool, whatever was said of them later."""
    query = select(Label.row).where(*_scope(pool_id, watermark), Label.source == "pool").distinct()
    return np.array(sorted(session.execute(query).scalars()), dtype=np.int64)


def verdicts(session: Session, pool_id: str, rows: Collection[int], *, kind: str) -> dict[int, Verdict]:
    """The standing of some rows of one pool; rows of which nobody says anything are left out."""
    said = latest_events(session, pool_id, rows)
    return {row: _verdict(pool_id, row, list(events.values()), kind) for row, events in said.items()}


_OF_ROWS = (  # built once, in the order of an index and with values as they are stored: every label goes through it
    select(_LABEL.c.row, _LABEL.c.annotator, _LABEL.c.action, cast(_LABEL.c.value, Text))
    .where(_LABEL.c.pool_id == bindparam("pool_id"), _LABEL.c.row.in_(bindparam("rows", expanding=True)))
    .order_by(_LABEL.c.row, _LABEL.c.annotator, _LABEL.c.seq)
)


@lru_cache(10_000)
def _said(action: str, value: str | None) -> Said:
    """The same few again and again, where labels are classes: neither parsed nor kept for each event."""
    return action, None if value is None else json.loads(value)


def latest_events(session: Session, pool_id: str, rows: Collection[int]) -> dict[int, dict[str, Said]]:
    """What each annotator says of some rows, by row and annotator; what was retracted is left out."""
    found: dict[int, dict[str, Said]] = {}
    wanted = sorted(rows)
    for start in range(0, len(wanted), ROWS_AT_ONCE):
        some = {"pool_id": pool_id, "rows": wanted[start : start + ROWS_AT_ONCE]}
        for events in session.execute(_OF_ROWS, some).partitions(EVENTS_AT_ONCE):
            for row, annotator, action, value in events:
                by_annotator = found.setdefault(row, {})
                if action == "retract":
                    by_annotator.pop(annotator, None)
                else:
                    by_annotator[annotator] = _said(action, value)
    return {row: by_annotator for row, by_annotator in found.items() if by_annotator}


def status_of(events: Collection[Said], kind: str) -> str:
    """The status of a row of which its annotators say this."""
    values = [value for action, value in events if action == "label"]
    if not values:
        return "skipped" if events else "unlabelled"
    if kind == "regression" or values.count(values[0]) == len(values):
        return "labelled"
    (_, most), (_, second) = Counter(values).most_common(2)
    return "labelled" if most > second else "open"


def _verdict(pool_id: str, row: int, events: list[Said], kind: str) -> Verdict:
    status, value = status_of(events, kind), None
    if status == "labelled":
        values = [value for action, value in events if action == "label"]
        is_class = kind == "classification"
        value = Counter(values).most_common(1)[0][0] if is_class else np.mean(np.asarray(values, float), 0).tolist()
    return Verdict(pool_id=pool_id, row=row, status=status, value=value, n_annotators=len(events))


def verdict_pages(
    session: Session,
    project_id: str,
    *,
    kind: str,
    after: tuple[str, int] | None,
    limit: int,
    is_descending: bool = False,
) -> Iterator[Verdict]:
    """The next `limit` rows of a project that have events, by pool and row."""
    query = select(Label.pool_id, Label.row).where(Label.project_id == project_id).distinct()
    place = tuple_(Label.pool_id, Label.row)
    if after is not None:
        query = query.where(place < after if is_descending else place > after)
    in_order = [column.desc() if is_descending else column.asc() for column in (Label.pool_id, Label.row)]
    wanted: dict[str, list[int]] = {}
    for pool_id, row in session.execute(query.order_by(*in_order).limit(limit)):
        wanted.setdefault(pool_id, []).append(row)
    for pool_id, rows in wanted.items():
        found = verdicts(session, pool_id, rows, kind=kind)
        for row in rows:
            yield found.get(row) or Verdict(pool_id=pool_id, row=row, status="unlabelled", value=None, n_annotators=0)
