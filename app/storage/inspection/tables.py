"""Parquet and Arrow: types by the schema, values of the first rows as far as these are cheap to unpack."""

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc as ipc

from app.storage.errors import BadData
from app.storage.inspection.column import Column, ListTally, Look, Tally
from app.storage.inspection.shown import N_PREVIEW, check_names, refuse_many, shown, shown_row
from app.storage.readers.arrow import count_batches, open_stream
from app.storage.readers.arrow_frames import FILE_MAGIC, walk
from app.storage.readers.batch import Columns, Limits, Request
from app.storage.readers.parquet import HEAD_BYTES, is_text, open_file
from app.storage.readers.parquet_footer import announced_values
from app.storage.readers.tables import column_type, is_list, plain_array, plain_type, readable

MAX_ROWS = 100_000
MAX_VALUES = 2**23  # of a column in a row group: 64 MB as float64
CELLS_AT_ONCE = 2**19


def look_into_parquet(content: bytes, is_part: bool) -> Look:
    if is_part:
        raise BadData(
            "A Parquet file says at its end what is in it, so a part of it tells nothing; send all of it, or name the "
            "columns yourself."
        )
    request = _request(content)
    with readable("Parquet file"):
        schema, _ = open_file(request, [])
        refuse_many(len(schema))
        check_names(schema.names)
        wanted = [field.name for field in schema if _is_counted(field.type)]
        _, file = open_file(request, [name for name in wanted if is_text(schema.field(name).type)])
        meta = file.metadata
        groups = _cheap_groups(request, meta)
        batches: Iterator[pa.RecordBatch] = iter(())
        if groups and wanted:
            per_row = max(len(wanted), *(n // max(1, meta.row_group(g).num_rows) for g, n in groups.items()))
            batches = file.iter_batches(
                batch_size=max(1, min(10_000, CELLS_AT_ONCE // max(1, per_row))),
                row_groups=list(groups),
                columns=wanted,
                use_threads=False,
            )
        return _counted(schema, batches, n_rows=meta.num_rows)


def _cheap_groups(request: Request, meta: Any) -> dict[int, int]:
    """The first row groups that unpack to little, and the most values that a column has in each."""
    found: dict[int, int] = {}
    n_bytes = 0
    announced = announced_values(request.source)
    for group in range(min(meta.num_row_groups, len(announced))):
        n_bytes += max(0, meta.row_group(group).total_byte_size)
        most = max(announced[group].values(), default=0)
        if n_bytes > HEAD_BYTES or (most > MAX_VALUES and most > meta.row_group(group).num_rows):
            break
        found[group] = most
    return found


def look_into_arrow(content: bytes, is_part: bool) -> Look:
    if is_part:
        raise BadData("A part of an Arrow file tells nothing; send all of it, or name the columns yourself.")
    request = _request(content)
    source = request.source
    with readable("Arrow data"):
        magic = source.read(8)
        if magic[:4] == b"FEA1":
            raise BadData(
                "Feather version 1 is not read; write version 2 (pyarrow.feather.write_feather(…, version=2))."
            )
        is_file = magic[:6] == FILE_MAGIC
        start = 8 if is_file else 0
        frames = list(walk(source, start, count_batches(source) if is_file else None))
        n_rows, n_cheap, n_bytes = sum(frame.n_rows for frame in frames), 0, 0
        for frame in frames:
            n_bytes += frame.n_bytes
            if n_bytes > HEAD_BYTES:
                break
            n_cheap += frame.is_batch
        schema = ipc.open_stream(open_stream(source, None, start)).schema
        refuse_many(len(schema))
        check_names(schema.names)
        wanted = sorted(schema.get_field_index(field.name) for field in schema if _is_counted(field.type))
        batches = _arrow_batches(request, start, wanted, n_cheap) if wanted else iter(())
        return _counted(schema, batches, n_rows=n_rows)


def _arrow_batches(request: Request, start: int, wanted: list[int], n_batches: int) -> Iterator[pa.RecordBatch]:
    options = ipc.IpcReadOptions(included_fields=wanted, use_threads=False)
    reader = ipc.open_stream(open_stream(request.source, None, start), options=options)
    for _ in range(n_batches):
        batch = reader.read_next_batch()
        batch.validate(full=True)  # offsets come from the file
        yield batch


def _counted(schema: pa.Schema, batches: Iterator[pa.RecordBatch], *, n_rows: int) -> Look:
    if not n_rows:
        raise BadData("The file has no rows.")
    tallies: dict[str, Tally | ListTally] = {
        field.name: (ListTally if is_list(plain_type(field.type)) else Tally)(field.name, column_type(field.type))
        for field in schema
        if _is_counted(field.type)
    }
    n_looked, preview = 0, list[dict[str, Any]]()
    for batch in batches:
        part = batch.slice(0, MAX_ROWS - n_looked)
        n_looked += part.num_rows
        for name, tally in tallies.items():
            column = part.column(name)
            if isinstance(tally, ListTally):
                tally.add(*_numbers(column), n_missing=column.null_count)
            else:
                tally.add(_storage(column))
        while len(preview) < min(N_PREVIEW, n_looked):
            at = len(preview) - (n_looked - part.num_rows)
            preview.append(shown_row({name: _cell(part.column(name), at) for name in part.schema.names}))
        if n_looked >= MAX_ROWS:
            break
    columns = [
        tallies[field.name].column()
        if field.name in tallies
        else Column(name=field.name, kind="mixed", type=column_type(field.type))
        for field in schema
    ]
    return Look(n_rows=n_rows, n_looked=n_looked, columns=columns, preview=preview)


def _cell(column: pa.Array, at: int) -> Any:
    """One value, cut before it is spelt out: a list may have millions of numbers."""
    scalar = _storage(column)[at]
    if isinstance(scalar, (pa.ListScalar, pa.LargeListScalar, pa.FixedSizeListScalar)) and scalar.is_valid:
        return shown(scalar.values.slice(0, 100).to_pylist())
    return shown(scalar.as_py())


def _numbers(column: pa.Array) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """All numbers of a list column, nested or not, and how many each row has; rows without a list are left out."""
    rows = plain_array(column).drop_null()
    lengths = pc.list_value_length(rows).to_numpy(zero_copy_only=False).astype(np.int64)
    values = plain_array(rows.flatten())
    while is_list(values.type):
        inner = pc.list_value_length(values).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        before = np.concatenate([[0], np.cumsum(inner)])
        ends = np.cumsum(lengths)
        lengths = before[ends] - before[np.concatenate([[0], ends[:-1]])] if len(ends) else lengths
        values = plain_array(values.flatten())
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.float64())
    return values.to_numpy(zero_copy_only=False), lengths


def _is_counted(kind: pa.DataType) -> bool:
    kind = plain_type(kind)
    return bool(
        column_type(kind) != "other"
        or is_text(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
    )


def _storage(column: pa.Array) -> pa.Array:
    """Without an extension's wrapping; a dictionary of other things than texts is spelt out."""
    while isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_dictionary(column.type) and not is_text(column.type.value_type):
        column = column.dictionary_decode()
    return column


def _request(content: bytes) -> Request:
    return Request(source=io.BytesIO(content), columns=Columns(), width=1_000_000, limits=Limits())
