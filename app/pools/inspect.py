"""Look into a file that is not sent for a pool yet: its columns, what they may mean, and what would be refused."""

import io
import math

from app.errors import Malformed, Unsupported
from app.pools.file_schemas import ClassesOut, ColumnOut, FileOut, NumbersOut, SuggestionOut
from app.pools.suggest import Guess, suggest
from app.pools.unused import notes_of
from app.settings import GIB
from app.storage.errors import WrongWidth
from app.storage.inspection import Look, look_into, refuse_others, whole_lines
from app.storage.readers import CONTENT_TYPES, BadData, Columns, Kind, Limits, check_head, kind_of
from app.storage.readers.arrow_frames import FILE_MAGIC
from app.storage.readers.plan import Plan, plan_columns

MANY_COLUMNS = 500  # with more, one example of each has to do
SENT_AS: dict[Kind, str] = {
    "csv": "text/csv",
    "ndjson": "application/x-ndjson",
    "parquet": "application/vnd.apache.parquet",
    "arrow": "application/vnd.apache.arrow.stream",
    "npy": "application/x-npy",
}


def inspect_file(content: bytes, *, content_type: str | None, name: str | None, is_part: bool) -> FileOut:
    """`is_part`: the first bytes of a longer file."""
    if not content:
        raise Malformed("the body is empty; send the file itself: CSV, NDJSON, Parquet, Arrow or npy")
    try:
        refuse_others(content)
        kind = _kind(content, content_type, name)
        look = look_into(kind, content, is_part=is_part)
    except BadData as error:
        raise Malformed(error.message) from error
    guess = suggest(look)
    plan = _plan(look, guess)
    shape = _shape(look, plan)
    notes = [*guess.notes, *notes_of(look, guess, plan)]
    if shape and (refusal := _refusal(kind, content, guess, width=math.prod(shape), is_part=is_part)):
        notes.insert(0, f"As it is, the file would be refused: {refusal}")
    n_examples = 5 if len(look.columns) <= MANY_COLUMNS else 1
    return FileOut(
        format=kind,
        content_type="application/vnd.apache.arrow.file" if content.startswith(FILE_MAGIC) else SENT_AS[kind],
        n_rows=look.n_rows,
        columns=[ColumnOut.of(column, examples=list(column.examples[:n_examples])) for column in look.columns],
        suggested=SuggestionOut(
            key=guess.key,
            label=guess.label,
            payload=guess.payload,
            features=list(plan.features),
            shape=shape,
            task=_task(guess),
        ),
        preview=look.preview,
        notes=notes,
    )


def _kind(content: bytes, content_type: str | None, name: str | None) -> Kind:
    """By the first bytes, the content type or the name, in this order: browsers guess the type by the name, and some
    take a CSV file for one of Excel."""
    essence = (content_type or "").split(";", 1)[0].strip().lower()
    known = essence if essence in CONTENT_TYPES else None
    try:
        return kind_of(None, head=content[:16])
    except BadData:
        pass
    try:
        return kind_of(known, name)
    except BadData:
        raise Unsupported(
            f"neither the name {name or ''!r:.100} nor the content type {essence!r:.100} says what is in the file; "
            "CSV, NDJSON (one JSON object a line), Parquet, Arrow and npy are read"
        ) from None


def _plan(look: Look, guess: Guess) -> Plan:
    """By the rule of the readers: what is said here of features is what the PUT will do."""
    types = {column.name: column.type for column in look.columns}
    columns = Columns(key=guess.key, label=guess.label, payload=guess.payload)
    try:
        return plan_columns(types, columns, 0)
    except WrongWidth as wrong:
        return plan_columns(types, columns, wrong.found)


def _shape(look: Look, plan: Plan) -> list[int]:
    if look.shape is not None:
        return list(look.shape)
    if not plan.is_list:
        return [len(plan.features)] if plan.features else []
    (width,) = (column.width for column in look.columns if column.name == "x")
    return [width] if width else []


def _task(guess: Guess) -> ClassesOut | NumbersOut | None:
    if guess.classes is not None:
        return ClassesOut(classes=guess.classes)
    return NumbersOut(outputs=guess.outputs) if guess.outputs is not None else None


def _refusal(kind: Kind, content: bytes, guess: Guess, *, width: int, is_part: bool) -> str | None:
    """What the reader says of the first rows, if they are sent as it is suggested."""
    if is_part:
        if kind not in ("csv", "ndjson"):
            return None
        content = whole_lines(content, has_quotes=kind == "csv")
    named = Columns() if kind == "npy" else Columns(key=guess.key, label=guess.label, payload=guess.payload)
    try:
        check_head(kind, io.BytesIO(content), width=width, columns=named, limits=Limits(max_bytes=GIB))
    except BadData as error:
        return error.message
    return None
