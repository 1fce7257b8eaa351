"""Which columns of a table are features, key, label and payload: one rule for all formats with named columns.

Features are the list column `x`, or else all numeric columns that are not key, label or payload, in order.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from app.storage.errors import BadData, WrongWidth
from app.storage.readers.batch import Columns

ColumnType = Literal["number", "list", "other"]
MAX_UNUSED_COLUMNS = 10_000


@dataclass(frozen=True, kw_only=True)
class Plan:
    features: tuple[str, ...]
    is_list: bool
    key: str | None
    label: str | None
    payload: str | None
    unused: tuple[str, ...]

    @property
    def all(self) -> list[str]:
        named = [name for name in (self.key, self.label, self.payload) if name is not None]
        return [*self.features, *dict.fromkeys(named)]


def plan_columns(types: Mapping[str, ColumnType], columns: Columns, width: int) -> Plan:
    _check_ignored(types, columns)
    free = {name: kind for name, kind in types.items() if name not in columns.ignored}
    named = {role: _named(free, getattr(columns, role), role) for role in ("key", "label", "payload")}
    taken = {*columns.ignored, *(name for name in named.values() if name is not None)}
    if types.get("x") == "list" and "x" not in taken:
        return _plan(types, ("x",), named, is_list=True)
    features = tuple(name for name, kind in types.items() if kind == "number" and name not in taken)
    if len(features) != width:
        raise WrongWidth(_wrong_width(types, features, taken, width), found=len(features))
    return _plan(types, features, named, is_list=False)


def _plan(
    types: Mapping[str, ColumnType], features: tuple[str, ...], named: dict[str, str | None], *, is_list: bool
) -> Plan:
    used = {*features, *named.values()}
    unused = tuple(name for name in types if name not in used)
    return Plan(features=features, is_list=is_list, unused=unused, **named)


def unused_note(names: Sequence[str]) -> str:
    """What whoever sent the file should know: a misspelt column is not an error, but it is lost."""
    count = "1 column was" if len(names) == 1 else f"{len(names):,} columns were"
    shown = listed([name if len(name) <= 64 else f"{name[:64]}…" for name in names])
    return (
        f"{count} not used: {shown}. Features are the list column 'x', or else all numeric columns; key, label and "
        "payload are the columns of these names, or those that the request names."
    )


def check_count(n_columns: int, width: int) -> None:
    """Before anything is made of the columns: a header of a few megabytes can name a million of them."""
    if n_columns > width + MAX_UNUSED_COLUMNS:
        raise BadData(
            f"Expected {width} features per row, and at most {MAX_UNUSED_COLUMNS:,} columns more; this file has "
            f"{n_columns:,} columns. Leave out those that are not used."
        )


def refuse_repeats(names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise BadData(f"Column {name!r} is there twice; give every column its own name.", column=name)
        seen.add(name)


def listed(names: Iterable[str], n: int = 20) -> str:
    shown = list(names)
    return ", ".join(shown[:n]) + (f" and {len(shown) - n} more" if len(shown) > n else "") if shown else "none"


def _named(types: Mapping[str, ColumnType], name: str | None, role: str) -> str | None:
    if not name:
        return role if role in types else None
    if name not in types:
        raise BadData(f"There is no column {name!r} for the {role}; the columns are: {listed(types)}.", column=name)
    return name


def _check_ignored(types: Mapping[str, ColumnType], columns: Columns) -> None:
    for name in columns.ignored:
        if name not in types:
            raise BadData(f"There is no column {name!r} to ignore; the columns are: {listed(types)}.", column=name)
        if name in (columns.key, columns.label, columns.payload):
            raise BadData(f"Column {name!r} is both used and ignored; decide for one.", column=name)


def _wrong_width(types: Mapping[str, ColumnType], features: tuple[str, ...], taken: set[str], width: int) -> str:
    used = taken.union(features)
    left_out = [name for name in types if name not in used]
    message = (
        f"Expected {width} features per row: a list column 'x', or {width} numeric columns. "
        f"There are {len(features)} numeric columns: {listed(features)}"
    )
    if left_out:
        message += f"; not numeric: {listed(left_out)}"
    lists = [name for name in left_out if types[name] == "list"]
    if lists:
        message += f". If {lists[0]!r} holds the features, rename it to 'x'"
    return message + "."
