"""Rounds: a ranking handed out to annotators, item by item, until all are done."""

from datetime import datetime

from pydantic import Field, JsonValue

from app.web.fields import Annotator, In, Out, Whole
from app.web.job_view import JobOut


class RoundOut(Out):
    id: str
    project_id: str
    number: int
    pool_id: str
    ranking_id: str
    ensemble_id: str | None = Field(description="The ensemble trained when the round was complete.")
    status: str = Field(description="ranking | open | complete | closed")
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


class NextItem(Out):
    rank: int
    row: int
    key: str
    payload: JsonValue = None
    expires_at: datetime = Field(description="Until then nobody else gets it; asking again renews.")


class NextOut(Out):
    items: list[NextItem]
    n_left: int = Field(description="Items of the round that still need an answer, from anybody.")
