"""Rows that are Python lists already: the body of a JSON request, or lines of NDJSON."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from app.storage.errors import BadData, WrongWidth, bad_feature, bad_row
from app.storage.readers.batch import Batch
from app.storage.readers.values import as_features, as_key, as_label, as_payload


def inline_batch(
    rows: Sequence[Any],
    *,
    width: int,
    keys: Sequence[object] | None = None,
    labels: Sequence[object] | None = None,
    payloads: Sequence[object] | None = None,
    first_row: int = 0,
    names: Sequence[str] | None = None,
    max_payload_bytes: int = 2**20,
) -> Batch:
    """Lists (nested ones are flattened) of numbers to a batch, with the checks that files get."""
    for name, given in (("keys", keys), ("labels", labels), ("payloads", payloads)):
        if given is not None and len(given) != len(rows):
            raise BadData(f"There are {len(rows)} rows but {len(given)} {name}; give one for each row.", column=name)
    return replace(
        _features(rows, width, first_row, names),
        keys=None if keys is None else [as_key(v, first_row + i, "key") for i, v in enumerate(keys)],
        labels=None if labels is None else [as_label(v, first_row + i, "label") for i, v in enumerate(labels)],
        payloads=None
        if payloads is None
        else [as_payload(v, first_row + i, "payload", max_payload_bytes) for i, v in enumerate(payloads)],
    )


def _features(rows: Sequence[Any], width: int, first_row: int, names: Sequence[str] | None) -> Batch:
    try:
        values = np.array(rows)
    except (ValueError, OverflowError, RecursionError):  # ragged
        values = None
    if values is None or values.dtype.kind not in "fiub" or values.ndim < 2 or values[0].size != width:
        for i, row in enumerate(rows):
            try:
                _check_row(row, width, first_row + i, names)
            except RecursionError:
                raise bad_row(first_row + i, "the lists are nested too deeply.") from None
        values = np.array([np.array(row).reshape(-1) for row in rows])
    return as_features(values.reshape(len(rows), width), first_row, names)


def _check_row(row: Any, width: int, at: int, names: Sequence[str] | None) -> None:
    if not isinstance(row, (list, tuple)):
        came = "missing" if row is None else type(row).__name__
        raise bad_row(at, f"expected a list of {width} numbers, this is {came}.")
    flat = list(_flat(row))
    for column, value in enumerate(flat):
        name = names[column] if names is not None and column < len(names) else str(column)
        if not isinstance(value, (int, float)):
            came = "missing" if value is None else f"{type(value).__name__} {str(value)[:40]!r}"
            raise bad_feature(at, name, f"a number is needed, this is {came}.")
        if isinstance(value, int) and not -(2**63) <= value < 2**64:
            raise bad_feature(at, name, "the integer is too large; write it as 1e20.")
    if len(flat) != width:
        raise WrongWidth(f"Row {at}: expected {width} features, there are {len(flat)}.", found=len(flat), row=at)


def _flat(row: Any) -> Any:
    for value in row:
        if isinstance(value, (list, tuple)):
            yield from _flat(value)
        else:
            yield value
