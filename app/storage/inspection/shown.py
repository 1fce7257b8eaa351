"""Values cut to what fits into an answer, whatever came: long, deep, infinite, or not text at all."""

import math
from collections.abc import Mapping
from typing import Any

from app.storage.errors import BadData
from app.storage.readers.plan import refuse_repeats

MAX_COLUMNS = 10_000
MAX_NAME = 200  # characters: a request that names a column takes no more
N_PREVIEW = 10  # rows
SHOWN_TEXT, SHOWN_LIST, SHOWN_FIELDS, SHOWN_DEPTH = 200, 8, 20, 3
SHOWN_COLUMNS = 200  # in the preview
MOST_WHOLE = 2**53  # a number in JSON is a float to many


def shown(value: Any, depth: int = 0) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) <= MOST_WHOLE else str(value)[:SHOWN_TEXT]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, (list, dict)) and depth >= SHOWN_DEPTH:
        return "…"
    if isinstance(value, list):
        some = [shown(part, depth + 1) for part in value[:SHOWN_LIST]]
        return some + ["…"] * (len(value) > SHOWN_LIST)
    if isinstance(value, dict):
        some_fields = list(value.items())[:SHOWN_FIELDS]
        return {shown_text(str(name)): shown(part, depth + 1) for name, part in some_fields}
    return shown_text(value if isinstance(value, str) else str(value))


def shown_text(text: str) -> str:
    """JSON can spell half of a surrogate pair, which no answer can hold."""
    short = text if len(text) <= SHOWN_TEXT else f"{text[:SHOWN_TEXT]}…"
    return short.encode("utf-8", "replace").decode()


def shown_row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: shown(row[name]) for name in list(row)[:SHOWN_COLUMNS]}


def check_names(names: list[str]) -> None:
    refuse_many(len(names))
    refuse_repeats(names)
    for name in names:
        if len(name) > MAX_NAME or "\x00" in name or shown_text(name) != name:
            raise BadData(
                f"The column {shown_text(name[:40])!r}… has a name that no request could hold; give it one of at most "
                f"{MAX_NAME} plain characters."
            )


def refuse_many(n_columns: int) -> None:
    if n_columns > MAX_COLUMNS:
        raise BadData(
            f"The file has {n_columns:,} columns; at most {MAX_COLUMNS:,} are looked at. Put the features into a list "
            "column 'x' (Parquet, NDJSON), or send them as npy."
        )
