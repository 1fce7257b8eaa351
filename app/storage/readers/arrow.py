"""Arrow IPC, file (Feather 2) or stream. A file on disk is memory-mapped: its batches may be of any size."""

import io
from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.ipc as ipc

from app.storage.errors import BadData
from app.storage.readers.arrow_frames import FILE_MAGIC, walk
from app.storage.readers.batch import Batch, Reader, Request
from app.storage.readers.plan import Plan
from app.storage.readers.tables import batches_of, plan_table, readable


def open_arrow(request: Request) -> Reader:
    with readable("Arrow data"):
        return _open_arrow(request)


def _open_arrow(request: Request) -> Reader:
    source = request.source
    source.seek(0)
    magic = source.read(8)
    if magic[:4] == b"FEA1":
        raise BadData("Feather version 1 is not read; write version 2 (pyarrow.feather.write_feather(…, version=2)).")
    n_batches = None
    start = 0
    if magic[:6] == FILE_MAGIC:
        n_batches, start = count_batches(source), 8
    frames = list(walk(source, start, n_batches))
    n_rows = sum(frame.n_rows for frame in frames)
    request.check_rows(n_rows)
    total = sum(frame.n_bytes for frame in frames)
    if total > request.limits.max_bytes:
        raise BadData(
            f"This Arrow data unpacks to {total:,} bytes, at most {request.limits.max_bytes:,} are read; split it."
        )
    name = request.name_on_disk
    largest = max((f.n_bytes for f in frames if f.is_compressed or name is None), default=0)
    if largest > request.limits.max_batch_bytes:
        raise BadData(
            f"A record batch unpacks to {largest:,} bytes, at most {request.limits.max_batch_bytes:,} are held "
            "at once; write smaller ones (max_chunksize=100_000)."
        )
    schema = ipc.open_stream(open_stream(source, name, start)).schema
    plan = plan_table(schema, request)
    batches = _batches(request, plan, schema, name, start, sum(frame.is_batch for frame in frames))
    is_compressed = any(frame.is_compressed for frame in frames)
    return Reader(batches=batches, n_rows=n_rows, decodes_at_once=is_compressed, unused=list(plan.unused))


def count_batches(source: BinaryIO) -> int:
    size = source.seek(0, io.SEEK_END)
    source.seek(max(0, size - 6))
    if size < 24 or source.read(6) != FILE_MAGIC:
        raise BadData("The Arrow file does not end with ARROW1; it was cut off: close the writer and upload it again.")
    source.seek(0)
    n_batches: int = ipc.open_file(pa.PythonFile(source, mode="r")).num_record_batches
    return n_batches


def _batches(
    request: Request, plan: Plan, schema: pa.Schema, name: str | None, start: int, n_batches: int
) -> Iterator[Batch]:
    wanted = sorted(schema.get_field_index(column) for column in plan.all)
    options = ipc.IpcReadOptions(included_fields=wanted, use_threads=False)
    row = 0
    with readable("Arrow data"):
        reader = ipc.open_stream(open_stream(request.source, name, start), options=options)
        for _ in range(n_batches):
            table = reader.read_next_batch()
            table.validate(full=True)  # offsets come from the file
            yield from batches_of(table, plan, request, row)
            row += table.num_rows


def open_stream(source: BinaryIO, name: str | None, start: int) -> Any:
    file = pa.PythonFile(source, mode="r") if name is None else pa.memory_map(name, "r")
    file.seek(start)
    return file
