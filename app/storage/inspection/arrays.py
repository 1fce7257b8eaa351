"""NumPy arrays: one list of numbers a row."""

import io
import math

import numpy as np

from app.storage.errors import BadData
from app.storage.inspection.column import ListTally, Look
from app.storage.inspection.shown import N_PREVIEW, shown_row
from app.storage.npy_file import npy_header
from app.storage.readers.batch import Columns, Limits, Request
from app.storage.readers.npy import open_npy, read_header


def look_into_npy(content: bytes, is_part: bool) -> Look:
    request = Request(source=io.BytesIO(content), columns=Columns(), width=1, limits=Limits())
    header = read_header(request)
    n_rows, width = header.shape[0], math.prod(header.shape[1:])
    if not n_rows or not width:
        raise BadData(f"The array has the shape {header.shape}; there are no numbers in it.")
    if is_part:
        if header.is_fortran:
            raise BadData("This array is stored column by column; send all of it, or save it in C order.")
        n_there = min(n_rows, (len(content) - header.offset) // (width * header.dtype.itemsize))
        if not n_there:
            raise BadData(f"The first {len(content):,} bytes hold no whole row of {width:,} numbers.")
        end = header.offset + n_there * width * header.dtype.itemsize
        content = npy_header(header.dtype, (n_there, width)) + content[header.offset : end]
    request = Request(source=io.BytesIO(content), columns=Columns(), width=width, limits=Limits())
    tally = ListTally("x", "list")
    preview: list[dict[str, object]] = []
    for batch in open_npy(request).batches:
        numbers = batch.features
        tally.add(numbers.reshape(-1), np.full(len(numbers), width), n_missing=0)
        preview += [shown_row({"x": row.tolist()}) for row in numbers[: N_PREVIEW - len(preview)]]
    shape = header.shape[1:] if 1 <= len(header.shape[1:]) <= 4 else (width,)
    return Look(n_rows=n_rows, n_looked=tally.n_rows, columns=[tally.column()], preview=preview, shape=shape)
