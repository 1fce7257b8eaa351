"""Rows that come in the body of a request about them, and not as a pool."""

import io
from typing import Any

import numpy as np

from app.db.tables import Project
from app.errors import Malformed
from app.storage.readers import BadData, inline_batch
from app.targets import row_width


def checked_rows(project: Project, rows: list[list[float]], *, cap: int, pointer: str) -> np.ndarray[Any, Any]:
    """[n, width] float32"""
    if not 1 <= len(rows) <= cap:
        raise Malformed(f"send 1 to {cap:,} rows; for more, make a pool and send its `pool_id`", pointer=pointer)
    try:
        return inline_batch(rows, width=row_width(project.input)).features
    except BadData as error:
        at = f"{pointer}/{error.row}" if error.row is not None else pointer
        raise Malformed(error.message, pointer=at) from error


def as_npy(array: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()
