"""Create a pool: with its rows in the request, or empty, for a file to follow."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from sqlalchemy.orm import Session

from app.db import projects
from app.db.tables import Pool, Project
from app.db.types import new_id
from app.errors import Malformed
from app.pools.given_rows import row_pieces
from app.pools.schemas import PoolIn
from app.pools.store import publish_pool, write_pool
from app.projects.targets import parse_label, row_width
from app.services import Services
from app.storage.readers import BadData, Batch, inline_batch
from app.web.bodies.long import LongList, in_pieces

MAX_INLINE_LABELS = 100_000  # written while a request waits and others wait for its lock: 2 s of it


def create_pool(
    services: Services, session: Session, project: Project, wanted: PoolIn, *, annotator: str, key_id: str | None
) -> Pool:
    """Rows go to storage before the transaction begins, so that writing them holds no lock."""
    pool = Pool(id=new_id(), project_id=project.id, name=wanted.name, purpose=wanted.purpose)
    if wanted.rows is None:
        for name in ("keys", "payloads", "labels"):
            if getattr(wanted, name) is not None:
                raise Malformed(f"`{name}` came without `rows`; send both, or neither and a file", pointer=f"/{name}")
        projects.lock(session, project.id)
        session.add(pool)
        session.flush()
        return pool
    if wanted.rows == []:
        raise Malformed("`rows` is empty; send at least one row, or leave it out to send a file", pointer="/rows")
    try:
        batches = _batches(project, wanted, max_rows=services.settings.max_pool_rows)
        stored = write_pool(services, f"pools/{pool.id}/inline", project, pool.purpose, batches)
    except BadData as error:
        raise Malformed(error.message, pointer=_pointer(error)) from error
    projects.lock(session, project.id)
    session.add(pool)
    session.flush()
    publish_pool(services, session, project, pool, stored, annotator=annotator, key_id=key_id)
    return pool


def _batches(project: Project, wanted: PoolIn, *, max_rows: int) -> Iterator[Batch]:
    """All of the rows, as many at a time as are parsed at once, each with its key, payload and label."""
    width, n_rows, n_labels = row_width(project.input), 0, 0
    columns = [_Column(name, getattr(wanted, name)) for name in ("keys", "payloads", "labels")]
    pieces = row_pieces(wanted.rows or [], width=width)
    for rows in pieces:
        if n_rows + len(rows) > max_rows:
            raise Malformed(f"a pool has at most {max_rows:,} rows", pointer="/rows")
        keys, payloads, labels = (column.take(len(rows)) for column in columns)
        for column in columns:
            if column.is_short:
                column.refuse(n_rows + len(rows) + sum(map(len, pieces)))
        n_labels += sum(label is not None for label in labels or ())
        if n_labels > MAX_INLINE_LABELS:
            raise Malformed(
                f"more than {MAX_INLINE_LABELS:,} labels came with the rows; make the pool by its name alone and then "
                "send rows and labels as a file with PUT /v1/pools/{id}/data",
                pointer="/labels",
            )
        batch = inline_batch(rows, width=width, keys=keys, payloads=payloads, first_row=n_rows)
        yield batch if labels is None else replace(batch, labels=_parsed(project, labels, n_rows))
        n_rows += len(rows)
    for column in columns:
        if column.take_rest():
            column.refuse(n_rows)


class _Column:
    """What comes beside the rows, one for each; None where nothing came."""

    def __init__(self, name: str, values: list[Any] | LongList[Any] | None) -> None:
        self.name = name
        self.n_taken = 0
        self.is_short = False
        self._is_there = values is not None
        self._pieces = in_pieces(values if values is not None else [])
        self._held: list[Any] = []

    def take(self, n: int) -> list[Any] | None:
        if not self._is_there:
            return None
        while len(self._held) < n and (piece := next(self._pieces, None)) is not None:
            self._held += piece
        taken, self._held = self._held[:n], self._held[n:]
        self.n_taken += len(taken)
        self.is_short = len(taken) < n
        return taken

    def take_rest(self) -> int:
        n = len(self._held) + sum(map(len, self._pieces))
        self._held, self.n_taken = [], self.n_taken + n
        return n

    def refuse(self, n_rows: int) -> NoReturn:
        advice = "give one for each row" + ", null where it is unknown" * (self.name == "labels")
        raise BadData(f"There are {n_rows} rows but {self.n_taken} {self.name}; {advice}.", column=self.name)


def _parsed(project: Project, labels: Sequence[Any], first_row: int) -> list[Any]:
    return [
        None if value is None else parse_label(project.task, value, pointer=f"/labels/{first_row + i}")
        for i, value in enumerate(labels)
    ]


def _pointer(error: BadData) -> str:
    field = {"label": "labels", "key": "keys", "payload": "payloads"}.get(error.column or "", error.column or "rows")
    field = field if field in ("labels", "keys", "payloads") else "rows"
    return f"/{field}" if error.row is None else f"/{field}/{error.row}"
