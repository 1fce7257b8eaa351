"""When each row of a pool was labelled or skipped: what a ranking of an earlier day could pick from."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db.consensus import Said, status_of
from app.db.tables import Label

_ALWAYS = np.iinfo(np.int64).max


@dataclass(frozen=True, kw_only=True)
class LabelHistory:
    """Spans of events [since, until) in which a row had an agreed label or was skipped; a row may have several."""

    rows: NDArray[np.int64]  # [S]
    since: NDArray[np.int64]  # [S]
    until: NDArray[np.int64]  # [S]
    answered: frozenset[int]  # rows of which somebody says something at the end
    newest: dict[int, int]  # by row, the number of its newest event

    def settled_at(self, seq: int) -> NDArray[np.int64]:
        """Rows that no ranking with this watermark could pick."""
        return self.rows[(self.since <= seq) & (seq < self.until)]


def label_history(session: Session, pool_id: str, *, kind: str, watermark: int) -> LabelHistory:
    """In one pass over the events, since a project may have hundreds of rankings to be told about."""
    query = (
        select(Label.row, Label.seq, Label.annotator, Label.action, Label.value)
        .where(Label.pool_id == pool_id, Label.seq <= watermark)
        .order_by(Label.seq)
    )
    said: dict[int, dict[str, Said]] = {}
    newest: dict[int, int] = {}
    open_since: dict[int, int] = {}
    spans: list[tuple[int, int, int]] = []
    for row, seq, annotator, action, value in session.execute(query).yield_per(10_000):
        by_annotator = said.setdefault(row, {})
        if action == "retract":
            by_annotator.pop(annotator, None)
        else:
            by_annotator[annotator] = (action, value)
        newest[row] = seq
        is_settled = status_of(list(by_annotator.values()), kind) in ("labelled", "skipped")
        if is_settled and row not in open_since:
            open_since[row] = seq
        elif not is_settled and row in open_since:
            spans.append((row, open_since.pop(row), seq))
    spans += [(row, since, _ALWAYS) for row, since in open_since.items()]
    table: NDArray[Any] = np.array(spans, dtype=np.int64).reshape(-1, 3)
    return LabelHistory(
        rows=table[:, 0],
        since=table[:, 1],
        until=table[:, 2],
        answered=frozenset(row for row, by_annotator in said.items() if by_annotator),
        newest=newest,
    )
