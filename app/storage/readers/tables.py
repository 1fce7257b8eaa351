"""Arrow columns to batches, for Parquet, Arrow and CSV files."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from app.storage.errors import BadData, WrongWidth, bad_row
from app.storage.readers.batch import Batch, Request
from app.storage.readers.plan import ColumnType, Plan, check_count, plan_columns, refuse_repeats
from app.storage.readers.values import as_features, as_key, as_label, as_payload

MAX_TEXT_BYTES = 256 * 2**20  # of one column in one block; a dictionary can spell a gigabyte in a few bytes


@contextmanager
def readable(what: str) -> Iterator[None]:
    """pyarrow's complaints about a file as BadData. An OSError with a number is the disk's, not the file's."""
    try:
        yield
    except BadData:
        raise
    except (pa.ArrowException, OSError, ValueError, OverflowError, LookupError, StopIteration) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = str(error).split("\n", 1)[0].rstrip(".")[:200]
        raise BadData(
            f"This {what} cannot be read ({reason}); it may be cut off: write it anew and upload it again."
        ) from None


def plan_table(schema: pa.Schema, request: Request) -> Plan:
    check_count(len(schema), request.width)
    refuse_repeats(schema.names)
    plan = plan_columns({field.name: column_type(field.type) for field in schema}, request.columns, request.width)
    if plan.is_list:
        kind, size = plain_type(schema.field("x").type), 1
        while is_list(kind):
            size *= kind.list_size if pa.types.is_fixed_size_list(kind) else 0
            kind = plain_type(kind.value_type)
        if size not in (0, request.width):
            came = f"Expected {request.width} features per row, the lists of 'x' have {size}."
            raise WrongWidth(came, found=size, column="x")
    return plan


def column_type(kind: pa.DataType) -> ColumnType:
    kind = plain_type(kind)
    if is_number(kind):
        return "number"
    if is_list(kind):
        while is_list(kind):
            kind = plain_type(kind.value_type)
        return "list" if is_number(kind) else "other"
    return "other"


def plain_type(kind: pa.DataType) -> pa.DataType:
    while True:
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif pa.types.is_dictionary(kind):
            kind = kind.value_type
        else:
            return kind


def batches_of(table: pa.RecordBatch, plan: Plan, request: Request, first_row: int) -> Iterator[Batch]:
    for start in range(0, table.num_rows, request.block_rows):
        part = table.slice(start, request.block_rows)
        row = first_row + start
        yield table_batch(_features(part, plan, request, row), row, plan, request, partial(_python, part, row))


def table_batch(features: Batch, row: int, plan: Plan, request: Request, values: Callable[[str], list[Any]]) -> Batch:
    """Features of the rows from `row` on, with what else they have; `values` gives a column's."""
    keys = labels = payloads = None
    if (name := plan.key) is not None:
        keys = [as_key(value, row + i, name) for i, value in enumerate(values(name))]
    if (name := plan.label) is not None:
        labels = [as_label(value, row + i, name) for i, value in enumerate(values(name))]
    if (name := plan.payload) is not None:
        limit = request.limits.max_payload_bytes
        payloads = [as_payload(value, row + i, name, limit, is_text=True) for i, value in enumerate(values(name))]
    return replace(features, keys=keys, labels=labels, payloads=payloads)


def _features(part: pa.RecordBatch, plan: Plan, request: Request, row: int) -> Batch:
    if plan.is_list:
        values, lengths = _flattened(part.column("x"), row)
        wrong = np.flatnonzero(lengths != request.width)
        if len(wrong):
            at, found = row + int(wrong[0]), int(lengths[wrong[0]])
            came = f"Row {at}: expected {request.width} features, 'x' has {found}."
            raise WrongWidth(came, found=found, row=at, column="x")
        return as_features(_numbers(values, row, ["x"], request.width).reshape(-1, request.width), row)
    columns = [_numbers(plain_array(part.column(name)), row, [name], 1) for name in plan.features]
    return as_features(np.stack(columns).T, row, plan.features)


def _flattened(column: pa.Array, row: int) -> tuple[pa.Array, NDArray[np.int64]]:
    """All numbers of a (nested) list column, and how many each row has."""
    column = plain_array(column)
    if column.null_count:
        at = row + int(np.argmin(column.is_valid().to_numpy(zero_copy_only=False)))
        raise bad_row(at, "'x' is null; every row needs its features.", "x")
    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False).astype(np.int64)
    values = plain_array(column.flatten())
    if not is_list(values.type):
        return values, lengths
    if values.null_count:
        raise BadData(f"Rows from {row} on: a list inside 'x' is null; every row needs its features.", column="x")
    numbers, inner = _flattened(values, row)
    before = np.concatenate([[0], np.cumsum(inner)])
    starts = np.concatenate([[0], np.cumsum(lengths)])
    return numbers, before[starts[1:]] - before[starts[:-1]]


def _numbers(values: pa.Array, row: int, names: list[str], width: int) -> NDArray[Any]:
    if values.null_count:
        at, column = divmod(int(np.argmin(values.is_valid().to_numpy(zero_copy_only=False))), width)
        place = f"{names[0]!r}" if width == 1 else f"{names[0]!r}[{column}]"
        raise BadData(
            f"Row {row + at}, feature {place}: it is null; fill it or drop the row.", row=row + at, column=names[0]
        )
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.float64())
    found: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return found


def _python(part: pa.RecordBatch, row: int, name: str) -> list[Any]:
    column = part.column(name)
    while isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        n_bytes = _text_bytes(column.dictionary, column.indices)
    else:
        n_bytes = column.nbytes
    if n_bytes > MAX_TEXT_BYTES:
        raise BadData(
            f"Rows {row} to {row + len(column) - 1}: column {name!r} holds {n_bytes:,} bytes there, at most "
            f"{MAX_TEXT_BYTES:,} are read at once; store links instead of contents.",
            row=row,
            column=name,
        )
    try:
        found: list[Any] = column.to_pylist()
    except (UnicodeDecodeError, ValueError, OverflowError) as error:
        raise BadData(f"Rows from {row} on: column {name!r} cannot be read ({error}).", row=row, column=name) from None
    return found


def _text_bytes(dictionary: pa.Array, indices: pa.Array) -> int:
    if not (pa.types.is_string(dictionary.type) or pa.types.is_large_string(dictionary.type)):
        return int(dictionary.nbytes // max(1, len(dictionary)) * len(indices))
    lengths = pc.binary_length(dictionary).fill_null(0).take(indices)
    return int(pc.sum(lengths, min_count=0).as_py() or 0)


def plain_array(column: pa.Array) -> pa.Array:
    while True:
        if isinstance(column, pa.ExtensionArray):
            column = column.storage
        elif pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        else:
            return column


def is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
    )


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))
