"""Experiments: a model, a prior and a space of designs, stated as JSON."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field, JsonValue, ValidatorFunctionWrapHandler, WrapValidator

from app.web.bodies.long import LongObject, whole
from app.web.fields import In, Name, Out


class _Whole(dict[str, JsonValue]):
    """A spec that came in pieces and was put together: all of it is JSON, and it need not be walked through again."""


def _put_together(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    if isinstance(value, _Whole):
        return value
    return _Whole(whole(value)) if isinstance(value, LongObject) else check(value)


Spec = Annotated[dict[str, JsonValue], WrapValidator(_put_together)]
Design = dict[str, JsonValue]

EXAMPLE: dict[str, Any] = {
    "name": "digit span",
    "parameters": {"theta": {"dist": "normal", "loc": 7, "scale": 2}},
    "designs": {"xi": {"type": "integer", "low": 1, "high": 15}},
    "outcome": {"y": {"family": "bernoulli", "logit": "theta - xi"}},
    "stop": {"any": [{"sd": {"theta": 0.6}}, {"max_trials": 30}]},
}


class ExperimentItem(Out):
    """An experiment in a list: without its spec, which can be megabytes long."""

    id: str
    name: str
    spec_hash: str = Field(description="SHA-256 of the spec, its keys sorted: two of one hash are the same experiment.")
    n_sessions: int
    created_at: datetime


class ExperimentOut(ExperimentItem):
    """An experiment with its spec."""

    spec: dict[str, Any]


class ExperimentChange(In):
    name: Name | None = None
    spec: Spec | None = Field(None, description="Only while no session has a proposal or an observation.")


class DesignVariable(Out):
    name: str
    kind: str = Field(description="integer | float | values")
    low: float | None = None
    high: float | None = None
    values: list[JsonValue] | None = None


class OutcomeVariable(Out):
    name: str
    family: str
    is_discrete: bool
    labels: list[str] = Field(description="What the outcomes are called, where they have names.")


class ModelOut(Out):
    """What was understood of a spec, and how it would be computed."""

    name: str
    spec_hash: str
    parameters: list[str]
    targets: list[str] = Field(description="The parameters that information is gathered about.")
    designs: list[DesignVariable]
    n_designs: int | None = Field(description="How many designs there are to compare; null: they are searched.")
    outcomes: list[OutcomeVariable]
    eig_method: str = Field(description="How the expected information gain of a first design is computed.")
    belief: str = Field(description="How the posterior is represented: grid | listed | particles | gaussian.")
    evaluations: int = Field(description="Evaluations of the model that a first proposal takes.")
    explanation: str
    is_job: bool = Field(description="Whether proposals are answered with a job.")


class CatalogueItem(Out):
    id: str
    title: str
    summary: str
    reference: str
    spec: dict[str, Any] = Field(description="Ready to be sent to `POST /v1/experiments`.")
