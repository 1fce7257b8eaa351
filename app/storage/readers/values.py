"""Single values: features to float32, keys, labels, payloads; each refusal names its row.

An integer label becomes its digits ("3") and a boolean "true" or "false" in every format, because CSV knows only text;
other numbers stay floats, and blank text is no label. A payload that comes as text is kept as the JSON object or array
that it spells, else as a JSON string.
"""

import json
import math
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from app.storage.errors import bad_feature, bad_row
from app.storage.readers.batch import Batch, Features, Label
from app.storage.readers.rounding import Rounding

MAX_KEY_BYTES = 1024
MAX_DEPTH = 100  # of a payload

FLOAT_MAX = sys.float_info.max


def as_features(values: NDArray[Any], first_row: int, names: Sequence[str] | None = None) -> Batch:
    """[n, width] numbers of any real type to contiguous float32, all finite; nothing but features yet."""
    with np.errstate(over="ignore"):
        features: Features = np.ascontiguousarray(values, dtype=np.float32)
    finite = np.isfinite(features)
    if not finite.all():
        row, column = divmod(int(np.argmin(finite)), features.shape[1])
        came = values[row, column]
        name = names[column] if names is not None else str(column)
        too_large = f"{came} is too large for float32 (at most 3.4e38); rescale."
        not_finite = f"a finite number is needed, this is {came}; fill or drop it."
        raise bad_feature(first_row + row, name, too_large if np.isfinite(came) else not_finite)
    return Batch(features=features, rounding=Rounding.of(values, features, names))


def as_key(value: object, row: int, column: str) -> str:
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        came = "missing" if value is None else f"{type(value).__name__} {_short(value)}"
        raise bad_row(row, f"the key ({column!r}) is text or an integer, this is {came}.", column)
    if not value or "\x00" in value:
        raise bad_row(row, f"the key ({column!r}) is blank or holds a NUL; name the row.", column)
    try:
        n_bytes = len(value.encode())
    except UnicodeEncodeError:
        raise bad_row(row, f"the key ({column!r}) is not valid Unicode.", column) from None
    if n_bytes > MAX_KEY_BYTES:
        too_long = f"the key ({column!r}) has {n_bytes} bytes, at most {MAX_KEY_BYTES} are kept; shorten it."
        raise bad_row(row, too_long, column)
    return value


def as_label(value: object, row: int, column: str) -> Label:
    if value is None or value == "":
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise bad_row(row, f"the label ({column!r}) is {value}; leave it empty (null) where there is none.", column)
        return value
    if isinstance(value, list) and value and all(type(part) in (int, float) for part in value):
        return [float(part) if abs(part) <= FLOAT_MAX else math.inf for part in value]  # refused by what it stands for
    came = f"{type(value).__name__} {_short(value)}"
    raise bad_row(row, f"a label ({column!r}) is text, a number, a list of numbers or null, this is {came}.", column)


def as_payload(value: object, row: int, column: str, max_bytes: int, *, is_text: bool = False) -> bytes | None:
    """JSON text of any JSON value; with `is_text` (csv, Parquet, Arrow) a string may itself be JSON."""
    if value is None or (is_text and value == ""):
        return None
    try:
        if is_text and isinstance(value, str) and value.lstrip()[:1] in ("{", "[") and _is_json(value):
            data = value.strip().encode()
        else:
            data = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        not_json = f"the payload ({column!r}) cannot be kept as JSON ({error}); send text or plain JSON."
        raise bad_row(row, not_json, column) from None
    if _is_deep(data):
        too_deep = f"the payload ({column!r}) is nested deeper than {MAX_DEPTH} levels; send it as text."
        raise bad_row(row, too_deep, column)
    if len(data) > max_bytes:
        too_long = f"has {len(data):,} bytes, at most {max_bytes:,} are kept; store a link instead."
        raise bad_row(row, f"the payload ({column!r}) {too_long}", column)
    return data


def refuse_constant(token: str) -> NoReturn:
    raise ValueError(f"{token} is not JSON")


def _is_json(text: str) -> bool:
    """And such as can be written again: JSON can spell 1e999 and half of a surrogate pair."""
    try:
        json.dumps(json.loads(text, parse_constant=refuse_constant), ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return False
    return not _is_deep(text.encode())


def _is_deep(data: bytes) -> bool:
    """Nested deeper than an answer can be; most texts have too few brackets for that, and are not parsed again."""
    if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return False
    level, depth = [json.loads(data)], 0
    while level:
        depth += 1
        nested = (value.values() if isinstance(value, dict) else value for value in level)
        level = [child for children in nested for child in children if isinstance(child, (dict, list))]
    return depth > MAX_DEPTH


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
