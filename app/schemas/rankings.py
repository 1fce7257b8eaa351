"""Rankings: which rows to label next, with everything needed to get the same answer again."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field, JsonValue

from app.schemas.common import In, JobOut, Out, Seed, Storable
from app.schemas.methods import AcquisitionSpec, SelectionSpec


class RankingIn(In):
    acquisition: AcquisitionSpec = Field(default_factory=lambda: {"name": "bald"}, validate_default=True)
    selection: SelectionSpec = Field(default_factory=lambda: {"name": "top_k"}, validate_default=True)
    k: int = Field(ge=1, le=2**31, description="How many rows to choose.")
    ensemble_id: Annotated[Storable, Field(max_length=36)] | None = Field(None, description="Default: the current one.")
    seed: Seed = 0


class RankedItem(Out):
    rank: int
    row: int
    key: str
    score: float
    payload: JsonValue = None


class RankingOut(Out):
    id: str
    project_id: str
    pool_id: str
    ensemble_id: str | None
    round_id: str | None
    status: str
    acquisition: dict[str, Any]
    selection: dict[str, Any]
    k: int
    seed: int
    watermark: int = Field(description="Rows labelled or skipped up to this label event are left out.")
    n_scored: int | None
    seconds: float | None
    notes: list[str] = Field(description="What a reader of this ranking should know, e.g. that many rows tie.")
    items: list[RankedItem] | None
    job_id: str
    error: dict[str, Any] | None
    created_at: datetime


class RankingJobOut(Out):
    job: JobOut
    ranking: RankingOut
