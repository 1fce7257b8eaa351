"""CSV with a header line. Every cell is read as text; feature cells are then parsed as numbers, all at once.

A column counts as numeric if its first cell that is not blank is a number.
"""

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from app.storage.errors import BadData, bad_feature, bad_row
from app.storage.readers.batch import Batch, Reader, Request
from app.storage.readers.plan import ColumnType, Plan, check_count, plan_columns, refuse_repeats
from app.storage.readers.tables import table_batch
from app.storage.readers.values import as_features

QUOTED = re.compile(rb'"[^"]*"')
NUMBER_LIKE = r"(?i)^([+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?(nan|inf|infinity))$"
RAGGED = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+): (.*)")
NUMBER = re.compile(NUMBER_LIKE)  # pyarrow takes a hundred times as long for a single text
PARSING = pacsv.ParseOptions(newlines_in_values=True)


def open_csv(request: Request) -> Reader:
    names = read_header(request)
    refuse_repeats(names)
    if all(_is_number(name) for name in names):
        raise BadData(
            f"The first line of a CSV file names its columns, this one holds numbers ({names[0]}, …); add it."
        )
    tables = read_tables(request, names)
    first = next(tables, None)
    if first is None:
        raise BadData("The CSV file has a header but no rows.")
    plan = plan_columns({name: cell_type(first.column(name)) for name in names}, request.columns, request.width)
    return Reader(batches=_batches(request, plan, first, tables), unused=list(plan.unused))


def read_header(request: Request) -> list[str]:
    request.source.seek(0)
    first_line = request.source.readline(request.limits.max_line_bytes)
    check_count(QUOTED.sub(b"", first_line).count(b",") + 1, request.width)
    request.source.seek(0)
    try:
        with pacsv.open_csv(_source(request), read_options=_reading(request), parse_options=PARSING) as reader:
            names: list[str] = reader.schema.names
            return names
    except (pa.ArrowException, ValueError) as error:
        raise _unreadable(error, request) from None


def read_tables(request: Request, names: list[str]) -> Iterator[pa.RecordBatch]:
    request.source.seek(0)
    converting = pacsv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False)
    try:
        with pacsv.open_csv(
            _source(request), read_options=_reading(request), parse_options=PARSING, convert_options=converting
        ) as reader:
            for table in reader:
                if table.num_rows:
                    yield table
    except (pa.ArrowException, ValueError) as error:
        raise _unreadable(error, request) from None


def _batches(request: Request, plan: Plan, first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[Batch]:
    row = 0
    table: pa.RecordBatch | None = first
    while table is not None:
        for start in range(0, table.num_rows, request.block_rows):
            part = table.slice(start, request.block_rows)
            yield table_batch(_features(part, plan, row), row, plan, request, partial(_texts, part))
            row += part.num_rows
        table = next(rest, None)


def _texts(part: pa.RecordBatch, name: str) -> list[str]:
    found: list[str] = part.column(name).to_pylist()
    return found


def _features(part: pa.RecordBatch, plan: Plan, row: int) -> Batch:
    cells = pa.concat_arrays([part.column(name) for name in plan.features])  # column after column
    try:
        values = cells.cast(pa.float64())
    except pa.ArrowInvalid:
        cells = pc.utf8_trim_whitespace(cells)
        is_number = pc.match_substring_regex(cells, NUMBER_LIKE).to_numpy(zero_copy_only=False)
        wrong = np.argwhere(~is_number.reshape(len(plan.features), -1).T)
        if len(wrong):
            at, column = (int(i) for i in wrong[0])
            name, came = plan.features[column], cells[column * part.num_rows + at].as_py()
            state = "is blank; fill it or drop the row" if came == "" else f"is {came[:40]!r}, a number is needed"
            raise bad_feature(row + at, name, f"it {state}.") from None
        values = cells.cast(pa.float64())
    return as_features(values.to_numpy().reshape(len(plan.features), -1).T, row, plan.features)


def cell_type(column: pa.Array) -> ColumnType:
    for cell in column:
        if text := cell.as_py().strip():
            return "number" if _is_number(text) else "other"
    return "other"


def _is_number(text: str) -> bool:
    return NUMBER.fullmatch(text.strip()) is not None


def _reading(request: Request) -> pacsv.ReadOptions:
    return pacsv.ReadOptions(block_size=request.limits.max_line_bytes, use_threads=False)


def _source(request: Request) -> Any:
    """Arrow reads ahead in a thread of its own, which also drops the file at the end. A Python file makes that thread
    need the interpreter, and where the process is ending by then it is aborted."""
    name = request.name_on_disk
    return request.source if name is None else pa.OSFile(name)


def _unreadable(error: Exception, request: Request) -> BadData:
    reason = str(error).split("\n", 1)[0]
    if ragged := RAGGED.search(reason):
        came = f"expected {ragged[2]} cells as in the header, there are {ragged[3]}: {ragged[4][:60]!r}."
        return bad_row(int(ragged[1]) - 2, came)  # counted from 1, with the header
    if "straddling" in reason:
        return BadData(f"A line is longer than {request.limits.max_line_bytes:,} bytes; store links, not contents.")
    if "Empty CSV" in reason:
        return BadData("The file is empty; a CSV file needs a header line and rows.")
    return BadData(f"This CSV file cannot be read ({reason[:200]}); it must be UTF-8 text with a header line.")
