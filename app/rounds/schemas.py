"""Rounds: a ranking handed out to annotators, item by item, until all are done."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from app.web.fields import Annotator, Flag, In, Out, Row, Whole
from app.web.job_view import JobOut


class RoundOut(Out):
    id: str
    project_id: str
    number: int
    pool_id: str
    ranking_id: str
    ensemble_id: str | None = Field(description="The ensemble trained when the round was complete.")
    status: Literal["ranking", "open", "complete", "closed"]
    overlap: int
    retrain: bool
    n_items: int
    n_done: int
    origin: str
    error: dict[str, object] | None
    created_at: datetime
    opened_at: datetime | None
    ended_at: datetime | None


class RoundJobOut(Out):
    job: JobOut
    round: RoundOut


class NextIn(In):
    annotator: Annotator | None = Field(None, description="Default: the name of the API key.")
    count: Whole = Field(1, ge=1, le=1000)
    features: Flag = Field(
        False,
        description="Give the numbers of each item as `x`; of rows so wide that an answer would have over 100,000 "
        "numbers, fewer items come than were asked for.",
    )


class NextItem(Out):
    rank: int
    row: int
    key: str
    payload: JsonValue = None
    expires_at: datetime = Field(description="Until then nobody else gets it; asking again renews.")
    x: list[float] | None = Field(None, description="The features, if asked for with `features: true`.")


class NextOut(Out):
    items: list[NextItem]
    n_left: int = Field(description="Items of the round that still need an answer, from anybody.")
    free_at: datetime | None = Field(
        description="Where items are fewer than asked for: when the first that others hold would be free. Null where "
        "nobody else holds one: then what is left waits for other annotators, or there is nothing left."
    )
    expires_in: float = Field(
        description="Seconds from this answer until the holds lapse, whatever the client's clock says."
    )


class ReleaseIn(In):
    annotator: Annotator | None = Field(None, description="Default: the name of the API key.")
    rows: Annotated[list[Row], Field(max_length=1000)] | None = Field(
        None, description="Which items; left out: all that this annotator holds in the round."
    )


class ReleaseOut(Out):
    released: int = Field(description="How many holds were given back: answered and lapsed ones are none.")
