"""What a round asks of a ranking; schedules hold one, to be asked again."""

from typing import Annotated, Any

from pydantic import Field

from app.methods.schemas import as_json_or_none
from app.rankings.schemas import Choice, OwnSeed, TargetPool
from app.web.fields import Flag, Storable, Whole


class RoundIn(Choice):
    pool_id: Annotated[Storable, Field(max_length=36)]
    k: Whole = Field(ge=1, le=2**31, description="Items. Rows that wait in another open round are left out.")
    overlap: Whole = Field(1, ge=1, le=100, description="How many annotators each item needs.")
    seed: OwnSeed = None
    target: TargetPool | None = Field(None, description="Only for `epig`: what is to be predicted well.")
    retrain: Flag = Field(True, description="Train a new ensemble when the round is complete.")


def stored_round(wanted: RoundIn) -> dict[str, Any]:
    methods = {"acquisition": as_json_or_none(wanted.acquisition), "selection": as_json_or_none(wanted.selection)}
    return {**wanted.model_dump(exclude=set(methods)), **methods}
