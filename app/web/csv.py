"""Cells of a CSV file that a spreadsheet may open."""

import csv
import io
import json
from collections.abc import Iterable
from typing import Any


def cell(value: Any) -> Any:
    if isinstance(value, list):
        return json.dumps(value)
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") and not _is_number(value):
        return "'" + value  # a spreadsheet would run it as a formula
    return value.isoformat() if hasattr(value, "isoformat") else value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def lines(rows: Iterable[Iterable[Any]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue()
