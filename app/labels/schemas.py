"""Label events: said once, never changed; corrected by saying something newer."""

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from app.pools.schemas import Key, LabelValue, RowStatus
from app.web.bodies.long import LongNotEmpty
from app.web.fields import Annotator, Flag, In, Number, Out, Row, Storable
from app.web.job_view import JobOut


class RoundLabelIn(In):
    """Give `row` or `key`, and exactly one of `value`, `skip` and `retract`."""

    row: Row | None = None
    key: Key | None = None
    value: LabelValue | None = None
    skip: Flag = False
    retract: Flag = False
    annotator: Annotator | None = Field(None, description="Default: the name of the API key.")
    lead_time: Annotated[Number, Field(ge=0, le=1e9)] | None = Field(None, description="Seconds the annotator took.")

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        if (self.row is None) == (self.key is None):
            raise ValueError("give either `row` or `key`")
        if (self.value is not None) + self.skip + self.retract != 1:
            raise ValueError("give exactly one of `value`, `skip: true` and `retract: true`")
        return self

    @property
    def action(self) -> str:
        return "skip" if self.skip else "retract" if self.retract else "label"


class LabelIn(RoundLabelIn):
    pool_id: Annotated[Storable, Field(max_length=36)]


class LabelsIn(In):
    labels: LongNotEmpty[LabelIn]


class RoundLabelsIn(In):
    labels: LongNotEmpty[RoundLabelIn]


class LabelOut(Out):
    seq: int
    pool_id: str
    row: int
    key: str
    annotator: str
    action: Literal["label", "skip", "retract"]
    value: Any = None
    source: Literal["pool", "api"] = Field(description="`pool`: it came with the rows.")
    lead_time: float | None
    created_at: datetime
    key_id: str | None = Field(description="The API key it came by; null of labels from before keys were recorded.")


class LabelsOut(Out):
    accepted: int
    labels: list[LabelOut]
    triggered: list[str] = Field(description="Ids of the jobs that these labels set off.")
    jobs: list[JobOut] = Field([], description="These jobs as they stand now, where `Prefer: wait` waited for them.")


class ConsensusOut(Out):
    pool_id: str
    row: int
    key: str
    status: RowStatus
    value: Any = None
    n_annotators: int
