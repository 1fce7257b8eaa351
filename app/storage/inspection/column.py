"""One column: what its values are, how many differ and how many are missing."""

import hashlib
import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.storage.inspection.shown import shown
from app.storage.readers.csv import NUMBER_LIKE
from app.storage.readers.plan import ColumnType
from app.storage.readers.values import as_label

ColumnKind = Literal["number", "text", "boolean", "list", "mixed"]
MAX_VALUES = 1000  # different ones that are kept, since they may be classes
N_EXAMPLES = 5
WHOLE_LIKE = r"^[+-]?[0-9]{1,18}$"
LINK_LIKE = r"(?i)^(https?://\S+|data:image/\S+)$"
TRUTHS = pa.array(["true", "false"])


@dataclass(frozen=True, kw_only=True)
class Column:
    name: str
    kind: ColumnKind
    type: ColumnType  # what the reader of its format takes it for
    n_distinct: int = 0
    n_missing: int = 0
    examples: tuple[Any, ...] = ()
    width: int | None = None  # of lists that are all of one length
    values: tuple[Any, ...] | None = None  # the different ones as labels, where there are at most MAX_VALUES
    is_whole: bool = False
    is_count: bool = False  # whole numbers one after the other, as rows are counted
    is_link: bool = False
    mean_length: float = 0.0  # of different texts
    odd_one: str | None = None  # of a mixed column, a value that is no number


@dataclass(frozen=True, kw_only=True)
class Look:
    """`n_rows` where it is known; `n_looked` are those that were counted."""

    n_rows: int | None
    n_looked: int
    columns: list[Column]
    preview: list[dict[str, Any]]
    shape: tuple[int, ...] | None = None  # of a row of an array


class Tally:
    """A column's values, batch by batch. Only different ones are kept, by Arrow, in about the bytes that they take."""

    def __init__(self, name: str, type_: ColumnType, *, is_spelt: bool = False) -> None:
        """`is_spelt`: a column of texts that may all spell numbers, as in CSV."""
        self.name, self.type, self.is_spelt = name, type_, is_spelt
        self.n_rows = self.n_missing = 0
        self._distinct: pa.Array | None = None

    def add(self, values: pa.Array) -> None:
        self.n_rows += len(values)
        self.n_missing += values.null_count
        if pa.types.is_dictionary(values.type):  # a few texts, which are not to be spelt out for every row
            values = values.dictionary.take(pc.unique(values.indices.drop_null()))
        values = _countable(values.drop_null())
        if (missing := self._missing(values)) is not None:
            self.n_missing += int(pc.sum(missing, min_count=0).as_py())
            values = values.filter(pc.invert(missing))
        new = pc.unique(values)
        self._distinct = new if self._distinct is None else pc.unique(pa.concat_arrays([self._distinct, new]))

    def _missing(self, values: pa.Array) -> pa.Array | None:
        """Where a value says that there is none; what is null is gone already."""
        if pa.types.is_floating(values.type):
            return pc.is_nan(values)
        if pa.types.is_string(values.type):
            trimmed = pc.utf8_trim_whitespace(values)
            blank = pc.equal(trimmed, "")
            return pc.or_(blank, pc.equal(pc.utf8_lower(trimmed), "nan")) if self.is_spelt else blank
        return None

    def column(self) -> Column:
        distinct = self._distinct if self._distinct is not None else pa.array([], pa.string())
        facts: dict[str, Any] = {
            "name": self.name,
            "type": self.type,
            "n_distinct": len(distinct),
            "n_missing": self.n_missing,
            "examples": tuple(shown(value.as_py()) for value in distinct[:N_EXAMPLES]),
        }
        if len(distinct) <= MAX_VALUES:
            finite = (value for value in distinct.to_pylist() if not isinstance(value, float) or math.isfinite(value))
            facts["values"] = tuple(as_label(value, 0, self.name) for value in finite)
        if pa.types.is_string(distinct.type):
            return Column(**{**facts, "kind": "text", **_of_texts(distinct), **self._spelt(distinct)})
        if pa.types.is_boolean(distinct.type):
            return Column(**facts, kind="boolean")
        is_whole = pa.types.is_integer(distinct.type) or bool(_all(pc.equal(pc.floor(distinct), distinct)))
        return Column(**facts, kind="number", is_whole=is_whole, is_count=self._is_count(distinct))

    def _spelt(self, distinct: pa.Array) -> dict[str, Any]:
        """What texts are that may be numbers; nothing of a column that is one of texts by its type."""
        if not self.is_spelt or not len(distinct):
            return {}
        trimmed = pc.utf8_trim_whitespace(distinct)
        is_number = pc.match_substring_regex(trimmed, NUMBER_LIKE)
        if _all(is_number):
            is_whole = _all(pc.match_substring_regex(trimmed, WHOLE_LIKE))
            whole = pc.utf8_ltrim(trimmed, "+").cast(pa.int64()) if is_whole else None
            numbers = whole if whole is not None else trimmed[:N_EXAMPLES].cast(pa.float64())
            return {
                "kind": "number",
                "is_whole": is_whole,
                "is_count": whole is not None and self._is_count(whole),
                "examples": tuple(shown(number.as_py()) for number in numbers[:N_EXAMPLES]),
            }
        if _all(pc.is_in(pc.utf8_lower(trimmed), TRUTHS)):
            return {"kind": "boolean"}
        n_numbers = int(pc.sum(is_number, min_count=0).as_py())
        if self.type == "number" or 2 * n_numbers > len(distinct):
            return {"kind": "mixed", "odd_one": str(shown(trimmed.filter(pc.invert(is_number))[0].as_py()))}
        return {}

    def _is_count(self, distinct: pa.Array) -> bool:
        if not pa.types.is_integer(distinct.type) or self.n_missing or not 1 < len(distinct) == self.n_rows:
            return False
        ends = pc.min_max(distinct).as_py()
        return bool(ends["max"] - ends["min"] == len(distinct) - 1)


class ListTally:
    """A column of lists of numbers: how long they are, and how many differ."""

    def __init__(self, name: str, type_: ColumnType) -> None:
        self.name, self.type = name, type_
        self.n_rows = self.n_missing = 0
        self._seen: set[bytes] = set()
        self._lengths: set[int] = set()
        self._examples: list[Any] = []

    def add(self, numbers: np.ndarray[Any, Any], lengths: np.ndarray[Any, Any], *, n_missing: int) -> None:
        """All numbers of the rows that have some, one row after the other, and how many each has."""
        self.n_rows += len(lengths) + n_missing
        self.n_missing += n_missing
        self._lengths.update(np.unique(lengths).tolist()[:2])
        ends = np.cumsum(lengths).tolist()
        for start, end in zip([0, *ends], ends, strict=False):
            row = numbers[start:end]
            digest = hashlib.blake2b(row.tobytes(), digest_size=8).digest()
            if digest not in self._seen:
                self._seen.add(digest)
                if len(self._examples) < N_EXAMPLES:
                    self._examples.append(shown(row[:100].tolist()))

    def column(self) -> Column:
        return Column(
            name=self.name,
            kind="list",
            type=self.type,
            n_distinct=len(self._seen),
            n_missing=self.n_missing,
            examples=tuple(self._examples),
            width=self._lengths.copy().pop() if len(self._lengths) == 1 else None,
        )


def _countable(values: pa.Array) -> pa.Array:
    """As a type that Arrow can tell different values of."""
    kind = values.type
    if (
        pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
    ):
        return values.cast(pa.string())
    if pa.types.is_decimal(kind):
        return values.cast(pa.float64())
    return values.cast(pa.float32()) if pa.types.is_float16(kind) else values


def _of_texts(distinct: pa.Array) -> dict[str, Any]:
    if not len(distinct):
        return {}
    length = float(pc.mean(pc.utf8_length(distinct)).as_py())
    return {
        "mean_length": length,
        "is_link": _all(pc.match_substring_regex(pc.utf8_trim_whitespace(distinct), LINK_LIKE)),
    }


def _all(claims: pa.Array) -> bool:
    return bool(len(claims) and pc.all(claims).as_py())
