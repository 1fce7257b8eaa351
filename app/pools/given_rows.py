"""Rows that come in the body of a request."""

import io
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from app.db.tables import Project
from app.errors import Malformed
from app.projects.targets import row_width
from app.storage.readers import BadData, inline_batch
from app.web.bodies.long import LongList
from app.web.fields import Many, Number

Rows = list[list[float]] | LongList[list[float]]
_NUMBERS = TypeAdapter(Many[Number])


def row_pieces(rows: Rows, *, width: int) -> Iterator[Sequence[Any]]:
    """Consecutive rows, as many as are parsed at once."""
    if not isinstance(rows, LongList):
        yield rows
        return
    n_rows = 0
    for piece in rows.pieces(splits=True):
        yield [_long_row(row, width, n_rows) if isinstance(row, LongList) else row for row in piece]
        n_rows += len(piece)


def _long_row(row: LongList[Any], width: int, at: int) -> list[float]:
    numbers: list[float] = []
    for piece in row.of(lambda: _NUMBERS).pieces():
        numbers += piece
        if len(numbers) > width:
            raise BadData(f"Row {at}: expected {width} features, there are {len(numbers)} or more.", row=at)
    return numbers


def checked_rows(project: Project, rows: Rows, *, cap: int, pointer: str) -> np.ndarray[Any, Any]:
    """[n, width] float32"""
    n_rows, width = 0, row_width(project.input)
    found: list[np.ndarray[Any, Any]] = []
    try:
        for piece in row_pieces(rows, width=width):
            n_rows += len(piece)
            if n_rows > cap:
                break
            found.append(inline_batch(piece, width=width, first_row=n_rows - len(piece)).features)
    except BadData as error:
        at = f"{pointer}/{error.row}" if error.row is not None else pointer
        raise Malformed(error.message, pointer=at) from error
    if not 1 <= n_rows <= cap:
        raise Malformed(f"send 1 to {cap:,} rows; for more, make a pool and send its `pool_id`", pointer=pointer)
    return np.concatenate(found)


def as_npy(array: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()
