"""Uploaded files to batches of rows, in bounded memory.

From outside use the names below; each format has a file, and `plan` decides which columns mean what.
"""

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import BinaryIO

from app.storage.errors import BadData, WrongWidth
from app.storage.readers.arrow import open_arrow
from app.storage.readers.batch import Batch, Columns, Features, Kind, Label, Limits, OpenReader, Reader, Request
from app.storage.readers.csv import open_csv
from app.storage.readers.inline import inline_batch
from app.storage.readers.kinds import CONTENT_TYPES, kind_of
from app.storage.readers.ndjson import open_ndjson
from app.storage.readers.npy import open_npy
from app.storage.readers.parquet import open_parquet
from app.storage.readers.plan import unused_note

__all__ = [
    "CONTENT_TYPES",
    "READERS",
    "BadData",
    "Batch",
    "Columns",
    "Features",
    "Kind",
    "Label",
    "Limits",
    "Reader",
    "check_head",
    "find_width",
    "inline_batch",
    "kept_apart",
    "kind_of",
    "open_reader",
    "unused_note",
]

FEWEST_SPREAD = 20  # rows: fewer may lie close together in a column that other pools spread out
WIDEST = 1_000_000  # features of a row of which nobody has said how many
READERS: dict[Kind, OpenReader] = {
    "npy": open_npy,
    "parquet": open_parquet,
    "arrow": open_arrow,
    "csv": open_csv,
    "ndjson": open_ndjson,
}


def open_reader(
    kind: Kind, source: BinaryIO, *, width: int, columns: Columns | None = None, limits: Limits | None = None
) -> Reader:
    """Iterate over the result once; whatever is wrong with the file raises BadData, here or on the way."""
    return _open(kind, Request(source=source, columns=columns or Columns(), width=width, limits=limits or Limits()))


def find_width(kind: Kind, source: BinaryIO, *, columns: Columns | None = None) -> int:
    """How many features the rows of a file have, where nobody says: all numeric columns, or the length of 'x'."""
    try:
        reader = open_reader(kind, source, width=WIDEST, columns=columns, limits=Limits(max_bytes=2**62))
        next(iter(reader), None)
    except WrongWidth as wrong:
        if wrong.found == 0:
            raise BadData("No column holds numbers that could be features; give a list column 'x' or some.") from None
        return wrong.found
    return WIDEST


def check_head(
    kind: Kind,
    source: BinaryIO,
    *,
    width: int,
    columns: Columns | None = None,
    limits: Limits | None = None,
    max_rows: int = 10_000,
    look: Callable[[Batch], None] = lambda batch: None,
) -> int | None:
    """Raise BadData for what the first rows show, to us or to `look`; the number of rows where the format says it.

    Only the header is looked at where the first rows cannot be had cheaply: Parquet with a first row group of more than
    64 MiB, compressed Arrow.
    """
    request = Request(
        source=source,
        columns=columns or Columns(),
        width=width,
        limits=limits or Limits(),
        max_block_rows=max(1, min(max_rows, 8192)),
    )
    reader = _open(kind, request)
    if reader.n_rows == 0:
        raise BadData("The file has no rows.")
    if not reader.decodes_at_once:
        seen = 0
        for batch in reader:
            look(batch)
            seen += len(batch)
            if seen >= max_rows:
                break
    return reader.n_rows


def kept_apart(batches: Iterable[Batch]) -> Iterator[Batch]:
    """The same batches; BadData after the last one where float32 does not keep the values of a column apart."""
    n_rows, found = 0, None
    for batch in batches:
        n_rows += len(batch)
        if batch.rounding is not None:
            found = batch.rounding if found is None else found.joined(batch.rounding)
        yield batch
    if found is not None and n_rows >= FEWEST_SPREAD:
        found.refuse_lost()


def _open(kind: Kind, request: Request) -> Reader:
    if not request.source.seek(0, io.SEEK_END):
        raise BadData("The file is empty; send the rows.")
    if kind == "npy":
        _refuse_names(request.columns)
    reader = READERS[kind](request)
    return replace(reader, batches=_counted(reader.batches, request))


def _counted(batches: Iterator[Batch], request: Request) -> Iterator[Batch]:
    n_rows, n_bytes = 0, 0
    for batch in batches:
        n_rows += len(batch)
        n_bytes += batch.features.nbytes
        n_bytes += sum(len(text) for text in batch.keys or ()) + sum(len(text or b"") for text in batch.payloads or ())
        request.check_rows(n_rows)
        if n_bytes > request.limits.max_bytes:
            raise BadData(
                f"The rows up to {n_rows - 1:,} take {n_bytes:,} bytes, at most {request.limits.max_bytes:,} fit in a "
                "pool; split the file or shorten the payloads."
            )
        yield batch
    if not n_rows:
        raise BadData("The file has no rows.")


def _refuse_names(columns: Columns) -> None:
    for role, name in (("key", columns.key), ("label", columns.label), ("payload", columns.payload)):
        if name:
            raise BadData(
                f"An npy file has no columns, so none is {name!r} for the {role}; send Parquet, CSV or NDJSON."
            )
