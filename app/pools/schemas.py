"""Pools of rows, and their items."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from app.db.rows_by_status import Status
from app.web.bodies.long import Long
from app.web.fields import Flag, In, Many, Name, Number, Out, Storable
from app.web.job_view import JobOut

Purpose = Literal["candidates", "evaluation", "task"]
RowStatus = Annotated[
    Status,
    Field(description="`open`: annotators disagree without a majority, and the row is ranked again."),
]


def _one_of(value: Any, parse: ValidatorFunctionWrapHandler) -> Any:
    """One refusal in place of one for each type that it might have been."""
    try:
        return parse(value)
    except ValidationError:
        raise ValueError("a label is text, a finite number, true, false, or a list of finite numbers") from None


LabelValue = Annotated[Flag | int | Number | Storable | Many[Number], WrapValidator(_one_of)]
Key = Annotated[Storable, Field(min_length=1, max_length=500)]


class PoolIn(In):
    name: Name
    purpose: Purpose = Field(
        "candidates",
        description="`candidates` are ranked and labelled; `evaluation` comes with labels and is only measured on; "
        "`task` comes with labels, is never ranked, and is another task for posteriors that learn over several "
        "(neural_process): each such pool is one, and the candidate pools together are the one that is predicted.",
    )
    rows: Long[Many[Number]] | None = Field(
        None,
        description="Features, one list a row, kept as float32: subtract the mean of a column of timestamps. Leave out "
        "to send a file with PUT /v1/pools/{id}/data.",
    )
    keys: Long[Key] | None = Field(None, description="Your own name for each row; distinct. Default: the row number.")
    payloads: Long[JsonValue] | None = Field(None, description="Anything to show an annotator: a text, a URL, …")
    labels: Long[LabelValue | None] | None = Field(
        None, description="Labels you already have; null where unknown. Over 100,000: send a file."
    )


class PoolOut(Out):
    id: str
    project_id: str
    name: str
    purpose: Purpose
    status: Literal["empty", "ingesting", "ready", "failed"]
    n_rows: int
    n_labelled: int
    n_skipped: int
    n_bytes: int
    error: dict[str, Any] | None = Field(description="Why the last ingest failed.")
    job_id: str | None
    created_at: datetime


class IngestOut(Out):
    job: JobOut
    pool: PoolOut


class MapOut(Out):
    """Rows of a pool on a plane, by columns: entry i of each is of row `row[i]`."""

    row: list[int]
    x: list[float] = Field(description="First principal component of the standardised features.")
    y: list[float] = Field(description="The second.")
    label: list[str | float | None] = Field(
        description="The agreed label; null where there is none, or it is of several numbers."
    )
    status: list[RowStatus]
    explained: tuple[float, float] = Field(description="Shares of the variance that x and y have, of 1 for all.")


class ItemOut(Out):
    row: int
    key: str
    payload: JsonValue = None
    status: RowStatus
    label: Any = None
    n_annotators: int = 0
    x: list[float] | None = Field(None, description="The features, if asked for with features=true.")
