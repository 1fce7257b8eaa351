"""CSV and NDJSON: all of it, or of a part the lines that are whole."""

import io
from typing import Any

import numpy as np
import pyarrow as pa

from app.storage.errors import BadData
from app.storage.inspection.column import N_EXAMPLES, Column, ListTally, Look, Tally
from app.storage.inspection.shown import N_PREVIEW, check_names, refuse_many, shown, shown_row
from app.storage.readers.batch import Columns, Limits, Request
from app.storage.readers.csv import QUOTED, cell_type, read_header, read_tables
from app.storage.readers.ndjson import read_objects, value_type
from app.storage.readers.plan import ColumnType

MAX_CELLS = 500_000  # of NDJSON: its values are Python's, at some 100 bytes each
MAX_LIST_DEPTH = 4
OTHER_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}


def look_into_csv(content: bytes, is_part: bool) -> Look:
    content = whole_lines(content, has_quotes=True) if is_part else content
    if b"\n" not in content and b"\r" not in content:
        raise BadData("The CSV file has a single line; it needs a header line and rows.")
    request = request_for(content)
    first_line = content[: content.find(b"\n")]
    if len(first_line) > request.limits.max_line_bytes:
        raise BadData(f"The header has {len(first_line):,} bytes; it names the columns, in a line of its own.")
    refuse_many(QUOTED.sub(b"", first_line).count(b",") + 1)
    _refuse_other_separators(first_line)
    names = read_header(request)
    check_names(names)
    tallies: list[Tally] = []
    preview: list[dict[str, Any]] = []
    for table in read_tables(request, names):
        if not tallies:
            tallies = [Tally(name, cell_type(table.column(name)), is_spelt=True) for name in names]
        for tally in tallies:
            tally.add(table.column(tally.name))
        if len(preview) < N_PREVIEW:
            preview += [shown_row(row) for row in table.slice(0, N_PREVIEW - len(preview)).to_pylist()]
    if not tallies:
        raise BadData("The CSV file has a header but no rows.")
    n_rows = tallies[0].n_rows
    columns = [tally.column() for tally in tallies]
    return Look(n_rows=None if is_part else n_rows, n_looked=n_rows, columns=columns, preview=preview)


def look_into_ndjson(content: bytes, is_part: bool) -> Look:
    content = whole_lines(content, has_quotes=False) if is_part else content
    held: dict[str, list[Any]] = {}
    preview: list[dict[str, Any]] = []
    n_rows = n_looked = n_cells = 0
    for _, found in read_objects(request_for(content)):
        n_rows += 1
        if n_cells > MAX_CELLS:
            continue  # only counted
        for name, value in found.items():
            column = held.get(name)
            if column is None:
                refuse_many(len(held) + 1)
                column = held[name] = []
            column += [None] * (n_looked - len(column))
            column.append(value)
        n_cells += sum(len(value) if isinstance(value, list) else 1 for value in found.values())
        n_looked += 1
        if len(preview) < N_PREVIEW:
            preview.append(shown_row(found))
    if not n_rows:
        raise BadData("The file is empty; NDJSON has one object per line.")
    check_names(list(held))
    columns = [_of_values(name, values + [None] * (n_looked - len(values))) for name, values in held.items()]
    return Look(n_rows=None if is_part else n_rows, n_looked=n_looked, columns=columns, preview=preview)


def _of_values(name: str, values: list[Any]) -> Column:
    there = [value for value in values if value is not None]
    type_: ColumnType = value_type(there[0]) if there else "other"
    kinds = {_plain_kind(value) for value in there}
    n_missing = len(values) - len(there)
    if kinds == {"list"}:
        tally = ListTally(name, type_)
        flat = [_flattened(value) for value in there]
        lengths = np.array([len(numbers) for numbers in flat], dtype=np.int64)
        tally.add(np.array([n for numbers in flat for n in numbers], dtype=np.float64), lengths, n_missing=n_missing)
        return tally.column()
    if len(kinds) <= 1 and kinds <= {"number", "text", "boolean"}:
        counted = Tally(name, type_)
        try:
            counted.add(pa.array(values))
            return counted.column()
        except (pa.ArrowException, OverflowError, ValueError):  # numbers past 64 bits, half of a surrogate pair
            pass
    odd = next((value for value in there if _plain_kind(value) != "number"), None) if type_ == "number" else None
    return Column(
        name=name,
        kind="mixed",
        type=type_,
        n_distinct=len({repr(value) for value in there}),
        n_missing=n_missing,
        examples=tuple(shown(value) for value in there[:N_EXAMPLES]),
        odd_one=None if odd is None else str(shown(odd))[:60],
    )


def _plain_kind(value: Any, depth: int = 0) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, list) and value and depth < MAX_LIST_DEPTH:
        parts = {_plain_kind(part, depth + 1) for part in value}
        return "list" if parts in ({"number"}, {"list"}) else "other"
    return "other"


def _flattened(value: Any) -> list[float]:
    if not isinstance(value, list):
        return [float(value) if abs(value) < 1e300 else 1e300]
    return [number for part in value for number in _flattened(part)]


def _refuse_other_separators(header: bytes) -> None:
    """Before a row is read: with decimal commas rows have more cells than the header, which tells nobody why."""
    for separator, called in OTHER_SEPARATORS.items():
        if b"," not in header and separator.encode() in QUOTED.sub(b"", header):
            shown = header.decode(errors="replace").strip()[:60]
            raise BadData(
                f"The header has {called} and no comma ({shown!r}); a CSV file has commas between its cells and points "
                "in its numbers: save it so."
            )


def whole_lines(content: bytes, *, has_quotes: bool) -> bytes:
    """Up to the last end of a line; where cells are quoted, of one that is not inside of a cell."""
    end = max(content.rfind(b"\n"), content.rfind(b"\r"))
    n_quotes = content.count(b'"', 0, end) if has_quotes and end > 0 else 0
    while end > 0 and n_quotes % 2:
        opened = content.rfind(b'"', 0, end)
        before = max(content.rfind(b"\n", 0, opened), content.rfind(b"\r", 0, opened))
        n_quotes -= content.count(b'"', max(before, 0), end)
        end = before
    if end <= 0:
        raise BadData(
            f"The first {len(content):,} bytes hold no whole line, and a row is a line; store links, not contents."
        )
    return content[: end + 1]


def request_for(content: bytes) -> Request:
    return Request(source=io.BytesIO(content), columns=Columns(), width=1_000_000, limits=Limits())
