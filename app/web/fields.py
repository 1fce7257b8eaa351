"""Shapes that recur: ids, texts that every database can hold, pages, problems, references."""

import base64
import json
import math
import re
from datetime import datetime
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from app.errors import Malformed

T = TypeVar("T")
WITHOUT_NUL = r"^[^\x00]*$"
"""What PostgreSQL can keep; pydantic matches UTF-8, so half of a surrogate pair (JSON can spell it) is refused too."""
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


Storable = Annotated[str, Field(pattern=WITHOUT_NUL)]
Name = Annotated[Storable, Field(min_length=1, max_length=200)]
Flag = Annotated[bool, Field(strict=True)]  # neither "yes" nor 1 is true
Whole = Annotated[int, Field(strict=True)]  # neither "3" nor true is a number
Seed = Annotated[Whole, Field(ge=0, lt=2**63, description="Same seed, same answer.")]
Number = Annotated[float, Field(allow_inf_nan=False, strict=True)]  # neither "1.5" nor true is a number
Result = Annotated[
    float | None,
    BeforeValidator(lambda value: value if not isinstance(value, float) or math.isfinite(value) else None),
    Field(description="Null where it is infinite or undefined, which JSON cannot say."),
]
"""A number that was computed and need not be finite."""
Many = Annotated[list[T], Field(fail_fast=True)]
"""A list that may be long: its first mistake is told, for a list of all could be far larger than the body."""


class In(BaseModel):
    """A request body: unknown fields are refused, so that a misspelt option is not silently ignored."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Out(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class ProblemOut(BaseModel):
    """RFC 9457. `detail` says what was expected, what came and what to do; `errors` point into the body."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    errors: list[dict[str, Any]] | None = None


class Page(BaseModel, Generic[T]):
    """One page. Ask again with `cursor=next_cursor` for the next; null means that was the last."""

    items: list[T]
    next_cursor: str | None


class ProgressOut(BaseModel):
    done: float = 0
    total: float = 0
    message: str = ""


class JobOut(Out):
    """Work done by a worker. Poll this, or follow `/v1/jobs/{id}/events`."""

    id: str
    project_id: str | None
    parent_id: str | None = Field(None, description="The job that this one is a part of.")
    kind: str
    queue: str
    status: str = Field(description="queued | running | succeeded | failed | cancelled")
    progress: ProgressOut | None
    attempts: int
    cancel_requested: bool
    error: dict[str, Any] | None = Field(description="A problem object, once the job has failed or been tried again.")
    result: dict[str, Any] | None
    run_at: datetime
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


def encode_cursor(*values: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")


def _is_plain(value: Any, kind: type[Any]) -> bool:
    """Of the right type, and something that every database can compare with."""
    if type(value) is not kind:
        return False
    return _UNSTORABLE.search(value) is None if isinstance(value, str) else abs(value) < 2**63


def decode_cursor(cursor: str | None, *types: type) -> tuple[Any, ...] | None:
    if cursor is None:
        return None
    try:
        values = json.loads(base64.urlsafe_b64decode(cursor.encode() + b"=="))
        if type(values) is list and len(values) == len(types) and all(map(_is_plain, values, types)):
            return tuple(values)
    except (ValueError, TypeError):
        pass
    raise Malformed("this cursor is not one of ours; pass `next_cursor` of the page before, unchanged")
