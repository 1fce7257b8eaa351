"""Guess what the columns of a file mean: by their names first, then by their values. A guess is shown before it is
taken, so it is better to say nothing than to be clever."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from app.storage.inspection import Column, Look

KEYS = re.compile(
    r"(?i)^(key|id|uuid|guid|name|title|file|filename|file_name|path|index|row|no|nr|number|sample)$"
    r"|[_ -]id$|^id[_ -]|(?-i:[a-z]Id$)"
)
LABELS = re.compile(
    r"(?i)^(labels?|targets?|class|classes|y|category|outcome|truth|ground_truth|answer|response|species|diagnosis)$"
)
PAYLOADS = re.compile(
    r"(?i)^(payload|texts?|contents?|body|message|sentence|comment|review|description"
    r"|image|img|image_url|picture|photo|url|uri|link|href)$"
)
FEW_WHOLE, FEW_UNNAMED = 50, 20  # different values
MANY_ROWS = 20  # of fewer, numbers may follow each other by chance
LONG_TEXT = 30  # characters on average
ROWS_A_CLASS = 3  # of a column that is not named as one of labels, at least


@dataclass(frozen=True, kw_only=True)
class Guess:
    key: str | None
    label: str | None
    payload: str | None
    classes: list[str] | None  # of a classification
    outputs: int | None  # of a regression
    notes: list[str] = field(default_factory=list)


def suggest(look: Look) -> Guess:
    notes: list[str] = []
    key = _key(look, notes)
    label = _label(look, taken={key})
    payload = _payload(look, taken={key, label})
    classes, outputs = _task(look, label, notes)
    return Guess(key=key, label=label, payload=payload, classes=classes, outputs=outputs, notes=notes)


def _first(columns: Iterable[Column], fits: Callable[[Column], bool]) -> str | None:
    return next((column.name for column in columns if fits(column)), None)


def _key(look: Look, notes: list[str]) -> str | None:
    """A column of names that all differ. One called `key` is taken by the reader in any case."""
    named = [column for column in look.columns if KEYS.search(column.name)]
    named.sort(key=lambda column: column.name != "key")
    for column in named:
        is_name = column.kind == "text" or (column.kind == "number" and column.is_whole)
        if column.name == "key" or (is_name and _all_differ(column, look)):
            return column.name
        if is_name and column.n_distinct and not column.n_missing:
            notes.append(
                f"{column.name!r} is no key: its {look.n_looked:,} rows have {column.n_distinct:,} different values."
            )
    first = look.columns[0]  # where programs write the numbers of rows, under any name
    return first.name if first.name and first.is_count and look.n_looked >= MANY_ROWS else None


def _all_differ(column: Column, look: Look) -> bool:
    return 1 < column.n_distinct == look.n_looked and not column.n_missing


def _label(look: Look, taken: set[str | None]) -> str | None:
    columns = [column for column in look.columns if column.name not in taken]
    by_name = [column for column in columns if LABELS.search(column.name) and column.kind != "mixed"]
    by_name = [column for column in columns if column.name == "label"] or by_name  # which the reader takes in any case
    if by_name:
        return by_name[0].name
    return _first(reversed(columns), lambda column: _looks_like_classes(column, look))


def _looks_like_classes(column: Column, look: Look) -> bool:
    """Few values that recur. Whole numbers only in the last column, and where no other column is called alike: of
    pixel_0 … pixel_63 the last is none."""
    n = column.n_distinct
    if not 2 <= n <= FEW_UNNAMED or n * ROWS_A_CLASS > look.n_looked - column.n_missing:
        return False
    if column.kind in ("text", "boolean"):
        return not column.is_link and column.mean_length <= LONG_TEXT
    is_last = column.name == look.columns[-1].name
    alike = sum(_stem(other.name) == _stem(column.name) for other in look.columns)
    return column.kind == "number" and column.is_whole and is_last and alike == 1 and len(look.columns) > 1


def _stem(name: str) -> str:
    return re.sub(r"[\d_ .-]+$", "", name)


def _payload(look: Look, taken: set[str | None]) -> str | None:
    columns = [column for column in look.columns if column.name not in taken]
    if "payload" in {column.name for column in columns}:
        return "payload"
    texts = [column for column in columns if column.kind == "text" and column.n_distinct]
    return (
        _first(texts, lambda column: column.is_link)
        or _first(texts, lambda column: bool(PAYLOADS.search(column.name)))
        or _first(sorted(texts, key=lambda column: -column.mean_length), lambda column: column.mean_length > LONG_TEXT)
        or _first(look.columns, lambda column: column.name in taken and column.is_link)
    )


def _task(look: Look, label: str | None, notes: list[str]) -> tuple[list[str] | None, int | None]:
    column = next((column for column in look.columns if column.name == label), None)
    if column is None:
        return None, None
    if column.kind == "list":
        return None, column.width
    if not column.n_distinct:
        notes.append(f"The column {column.name!r} has no labels yet: say yourself what is to be predicted.")
        return None, None
    few_whole = column.is_whole and column.n_distinct <= FEW_WHOLE
    if column.kind == "number" and not few_whole:
        return None, 1
    classes = _classes(column)
    if classes is None or len(classes) > max(2, look.n_looked // 2):
        notes.append(
            f"The column {column.name!r} has {column.n_distinct:,} different texts in {look.n_looked:,} rows: too many "
            "to be classes."
        )
        return None, None
    if len(classes) < 2:
        notes.append(f"All labels that were seen are {classes[0]!r}: name the other classes yourself.")
        return None, None
    if column.kind == "number":
        notes.append(
            f"{column.name!r} has {len(classes)} different whole numbers, taken as classes; if their size matters, "
            "predict a number."
        )
    if look.n_rows is None or look.n_looked < look.n_rows:
        notes.append(f"The classes are those of the first {look.n_looked:,} rows; add what comes later.")
    return classes, None


def _classes(column: Column) -> list[str] | None:
    """In their natural order: 2 before 10, item 2 before item 10."""
    if column.values is None:
        return None
    texts = {str(int(value)) if isinstance(value, float) else str(value) for value in column.values}
    return sorted(texts, key=_natural)


def _natural(text: str) -> tuple[float, list[tuple[int, int, str]]]:
    try:
        size = float(text)
    except ValueError:
        size = float("inf")
    parts = re.split(r"(\d{1,18})", text.casefold())
    return size, [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]
