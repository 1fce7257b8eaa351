"""NDJSON: one object per line, {"x": […], "key": …, "label": …, "payload": …}; blank lines are skipped."""

import json
from collections.abc import Iterator
from itertools import chain
from typing import Any

from app.storage.errors import BadData
from app.storage.readers.batch import Batch, Reader, Request
from app.storage.readers.inline import inline_batch
from app.storage.readers.plan import ColumnType, Plan, check_count, plan_columns
from app.storage.readers.values import refuse_constant

BLOCK_TEXT_BYTES = 4 * 2**20
MAX_UNUSED = 1000


def open_ndjson(request: Request) -> Reader:
    request.source.seek(0)
    objects = read_objects(request)
    first = next(objects, None)
    if first is None:
        raise BadData("The file is empty; NDJSON has one object per line.")
    check_count(len(first[1]), request.width)
    plan = plan_columns({name: value_type(value) for name, value in first[1].items()}, request.columns, request.width)
    unused: list[str] = []
    return Reader(
        batches=_batches(request, plan, _noting(chain([first], objects), request, plan, unused)), unused=unused
    )


def _noting(
    objects: Iterator[tuple[int, dict[str, Any]]], request: Request, plan: Plan, unused: list[str]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The same objects; names that no line before had and that mean nothing go to `unused`, up to MAX_UNUSED."""
    roles = {plan.key or "key", _label_name(request), _payload_name(request)}
    known = {*plan.features, *roles.difference(request.columns.ignored)}
    for n_bytes, found in objects:
        if not found.keys() <= known and len(unused) < MAX_UNUSED:
            new = [name for name in found if name not in known][: MAX_UNUSED - len(unused)]
            unused += new
            known.update(new)
        yield n_bytes, found


def read_objects(request: Request) -> Iterator[tuple[int, dict[str, Any]]]:
    """(bytes of the line, object)"""
    limit = request.limits.max_line_bytes
    line_number, row = 0, 0
    while line := request.source.readline(limit + 1):
        line_number += 1
        if len(line) > limit:
            raise BadData(f"Line {line_number} is longer than {limit:,} bytes; store links, not contents.", row=row)
        if not line.strip():
            continue
        try:
            found = json.loads(line, parse_constant=refuse_constant)
        except (ValueError, RecursionError) as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            raise BadData(f"Line {line_number} (row {row}) is not JSON: {reason[:120]}.", row=row) from None
        if not isinstance(found, dict):
            raise BadData(
                f'Line {line_number} (row {row}) is {type(found).__name__}; an object like {{"x": […]}} is needed.',
                row=row,
            )
        yield len(line), found
        row += 1


def _batches(request: Request, plan: Plan, objects: Iterator[tuple[int, dict[str, Any]]]) -> Iterator[Batch]:
    row, size = 0, 0
    held: list[dict[str, Any]] = []
    for n_bytes, found in objects:
        if len(held) >= request.block_rows or size >= BLOCK_TEXT_BYTES:
            yield _batch(request, plan, held, row)
            row, held, size = row + len(held), [], 0
        held.append(found)
        size += n_bytes
    yield _batch(request, plan, held, row)


def _batch(request: Request, plan: Plan, held: list[dict[str, Any]], row: int) -> Batch:
    if plan.is_list:
        rows = [found.get("x") for found in held]
    else:
        rows = [[found.get(name) for name in plan.features] for found in held]
    return inline_batch(
        rows,
        width=request.width,
        keys=_keys(request, plan, held, row),
        labels=_values(held, _label_name(request)),  # each line may leave it out
        payloads=_values(held, _payload_name(request)),
        first_row=row,
        names=None if plan.is_list else plan.features,
        max_payload_bytes=request.limits.max_payload_bytes,
    )


def _label_name(request: Request) -> str | None:
    return request.columns.label or ("label" if "label" not in request.columns.ignored else None)


def _payload_name(request: Request) -> str | None:
    return request.columns.payload or ("payload" if "payload" not in request.columns.ignored else None)


def _values(held: list[dict[str, Any]], name: str | None) -> list[Any]:
    return [found.get(name) if name is not None else None for found in held]


def _keys(request: Request, plan: Plan, held: list[dict[str, Any]], row: int) -> list[Any] | None:
    if plan.key is not None:
        return _values(held, plan.key)
    if "key" in request.columns.ignored:
        return None
    for i, found in enumerate(held):
        if found.get("key") is not None:
            raise BadData(f"Row {row + i} has a key and row 0 has none; give every row one, or none.", row=row + i)
    return None


def value_type(value: object) -> ColumnType:
    if isinstance(value, (bool, int, float)):
        return "number"
    return "list" if isinstance(value, list) else "other"
