"""What a file looks like before it is sent for a pool."""

from typing import Any, Literal

from pydantic import Field, JsonValue

from app.storage.inspection import ColumnKind
from app.storage.readers import Kind
from app.web.fields import Out

_BINARY = {"schema": {"type": "string", "format": "binary"}}
_KINDS = (
    "application/x-npy",
    "application/vnd.apache.parquet",
    "application/vnd.apache.arrow.file",
    "application/vnd.apache.arrow.stream",
    "text/csv",
    "application/x-ndjson",
)
FILE_BODY: dict[str, Any] = {"requestBody": {"required": True, "content": dict.fromkeys(_KINDS, _BINARY)}}


class ColumnOut(Out):
    name: str
    kind: ColumnKind = Field(description="`list` is a list of numbers; `mixed` is anything else, or some of each.")
    n_distinct: int = Field(description="Different values among the rows that were looked at.")
    n_missing: int = Field(description="Blank, null or NaN.")
    examples: list[JsonValue] = Field(description="At most 5 different values, cut to 200 characters.")
    width: int | None = Field(description="Of lists that are all of one length.")


class ClassesOut(Out):
    kind: Literal["classification"] = "classification"
    classes: list[str]


class NumbersOut(Out):
    kind: Literal["regression"] = "regression"
    outputs: int


class SuggestionOut(Out):
    """A guess, to be looked at by somebody who knows the data. `key`, `label` and `payload` go to the query of
    `PUT /v1/pools/{id}/data`, `task` and `shape` into `POST /v1/projects`."""

    key: str | None
    label: str | None
    payload: str | None
    features: list[str] = Field(description="The columns that the PUT takes as features if it names these three.")
    shape: list[int] = Field(description="Of one row, for the project's `input`; empty where there are no features.")
    task: ClassesOut | NumbersOut | None = Field(discriminator="kind", description="Null where no column is a label.")


class FileOut(Out):
    format: Kind
    content_type: str = Field(description="What to send with the PUT.")
    n_rows: int | None = Field(description="Null of a part of a CSV or NDJSON file.")
    columns: list[ColumnOut]
    suggested: SuggestionOut
    preview: list[dict[str, JsonValue]] = Field(description="The first rows, at most 10, long values cut.")
    notes: list[str] = Field(description="What is not used and why, and what would be refused.")
