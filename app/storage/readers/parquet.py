"""Parquet: the footer first, then row group by row group, in blocks."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from app.storage.errors import BadData
from app.storage.readers.batch import Batch, Reader, Request
from app.storage.readers.parquet_footer import announced_values
from app.storage.readers.plan import Plan
from app.storage.readers.tables import batches_of, plain_type, plan_table, readable

HEAD_BYTES = 64 * 2**20
SLACK_VALUES = 2**20


def open_parquet(request: Request) -> Reader:
    with readable("Parquet file"):
        return _open_parquet(request)


def _open_parquet(request: Request) -> Reader:
    schema, _ = open_file(request, [])
    plan = plan_table(schema, request)
    # Text stays a dictionary, so that a value repeated a million times is not spelt out before it is measured.
    named = {name for name in (plan.key, plan.label, plan.payload) if name is not None}
    texts = [name for name in named if is_text(schema.field(name).type)]
    _, file = open_file(request, texts)
    meta = file.metadata
    request.check_rows(meta.num_rows)
    if plan.is_list:
        _refuse_bombs(request, meta)
    sizes = [max(0, meta.row_group(group).total_byte_size) for group in range(meta.num_row_groups)]
    if sum(sizes) > request.limits.max_bytes:
        raise BadData(
            f"This Parquet file unpacks to {sum(sizes):,} bytes, at most {request.limits.max_bytes:,} are read; "
            "split it."
        )
    large = bool(sizes) and sizes[0] > HEAD_BYTES
    batches = _batches(file, plan, request)
    return Reader(batches=batches, n_rows=meta.num_rows, decodes_at_once=large, unused=list(plan.unused))


def _refuse_bombs(request: Request, meta: pq.FileMetaData) -> None:
    for group, values in enumerate(announced_values(request.source)):
        n_rows = meta.row_group(group).num_rows
        for path, n in values.items():
            if path.startswith("x.") and n > 2 * n_rows * request.width + SLACK_VALUES:  # fewer: the row will be named
                raise BadData(
                    f"Row group {group} has {n:,} numbers in 'x' for {n_rows:,} rows; expected "
                    f"{request.width} for each.",
                    column="x",
                )


def open_file(request: Request, texts: list[str]) -> tuple[pa.Schema, pq.ParquetFile]:
    request.source.seek(0)
    file = pq.ParquetFile(request.source, read_dictionary=texts, buffer_size=2**20, pre_buffer=False)
    return file.schema_arrow, file


def _batches(file: pq.ParquetFile, plan: Plan, request: Request) -> Iterator[Batch]:
    row = 0
    with readable("Parquet file"):
        for table in file.iter_batches(batch_size=request.block_rows, columns=plan.all, use_threads=False):
            yield from batches_of(table, plan, request, row)
            row += table.num_rows
    if row != file.metadata.num_rows:
        raise BadData(
            f"The Parquet footer announces {file.metadata.num_rows:,} rows, there are {row:,}; write it again."
        )


def is_text(kind: pa.DataType) -> bool:
    kind = plain_type(kind)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
