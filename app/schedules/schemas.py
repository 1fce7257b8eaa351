"""Schedules: when to train by itself."""

from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from app.ensembles.schemas import TrainingIn
from app.rankings.round_request import RoundIn
from app.web.fields import Flag, In, Number, Out, Storable, Whole


class ScheduleIn(In):
    """Exactly one of `cron`, `every_labels` and `on_round_complete`."""

    cron: Annotated[Storable, Field(min_length=1, max_length=200)] | None = Field(
        None, description="Five fields: minute hour day month weekday."
    )
    timezone: Annotated[Storable, Field(max_length=100)] = Field("UTC", description="IANA name, e.g. Europe/Berlin.")
    every_labels: Whole | None = Field(
        None, ge=1, le=2**31, description="Label events of candidate rows; a correction counts as one too."
    )
    on_round_complete: Flag = False
    debounce_seconds: Annotated[Number, Field(ge=0, le=86_400)] = Field(
        0.0, description="Delay the start, so that what follows shortly is part of the same training."
    )
    training: TrainingIn = Field(default_factory=TrainingIn)
    then_open_round: RoundIn | None = Field(None, description="Open this round when the new ensemble is there.")

    @model_validator(mode="after")
    def _one_trigger(self) -> Self:
        if (self.cron is not None) + (self.every_labels is not None) + self.on_round_complete != 1:
            raise ValueError("give exactly one of `cron`, `every_labels` and `on_round_complete: true`")
        return self


class SchedulePatch(In):
    paused: Flag


class ScheduleOut(Out):
    id: str
    project_id: str
    cron: str | None
    timezone: str
    every_labels: int | None
    on_round_complete: bool
    debounce_seconds: float
    training: dict[str, Any]
    then_open_round: dict[str, Any] | None
    paused: bool = Field(description="By a request, or by itself after an unforeseen error, which `note` then tells.")
    labels_pending: int
    next_fire_at: datetime | None
    last_fired_at: datetime | None
    n_fired: int
    note: str | None = Field(description="Why the last firing did less than asked, or why it paused itself.")
    created_at: datetime
