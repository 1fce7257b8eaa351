"""What the columns of a file look like, before anybody has said what they mean. Files are read by the functions of
`app.storage.readers`; here their values are counted, in bounded memory.

From outside use the names below.
"""

from collections.abc import Callable

from app.storage.errors import BadData
from app.storage.inspection.arrays import look_into_npy
from app.storage.inspection.column import Column, ColumnKind, Look
from app.storage.inspection.lines import look_into_csv, look_into_ndjson, whole_lines
from app.storage.inspection.tables import look_into_arrow, look_into_parquet
from app.storage.readers.batch import Kind

__all__ = ["Column", "ColumnKind", "Look", "look_into", "refuse_others", "whole_lines"]

LOOKS: dict[Kind, Callable[[bytes, bool], Look]] = {
    "npy": look_into_npy,
    "parquet": look_into_parquet,
    "arrow": look_into_arrow,
    "csv": look_into_csv,
    "ndjson": look_into_ndjson,
}
ELSEWHERE = {  # how files begin that people have, and that are not read
    b"PK\x03\x04": "an Excel, zip or npz file; save the sheet as CSV, or the array with numpy.save",
    b"\xd0\xcf\x11\xe0": "an old Excel file; save the sheet as CSV",
    b"\x1f\x8b": "compressed with gzip; unpack it first",
    b"\xff\xfe": "text in UTF-16; save it as UTF-8",
    b"\x89PNG": "a picture; what is labelled are rows of numbers, one file for all rows",
    b"\xff\xd8\xff": "a picture; what is labelled are rows of numbers, one file for all rows",
    b"%PDF": "a PDF; send a table, as CSV for example",
}


def refuse_others(content: bytes) -> None:
    """Name what people send by mistake."""
    for magic, what in ELSEWHERE.items():
        if content.startswith(magic):
            raise BadData(f"This is {what}.")


def look_into(kind: Kind, content: bytes, *, is_part: bool) -> Look:
    """Count what is there; BadData where the file cannot be read. `is_part`: these are its first bytes, not all."""
    return LOOKS[kind](content, is_part)
