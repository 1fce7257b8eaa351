"""Experiments: a model, a prior and a space of designs, stated as JSON."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, ValidatorFunctionWrapHandler, WrapValidator

from app.web.bodies.long import LongObject, whole
from app.web.fields import In, Name, Out, Result


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
    kind: Literal["integer", "float", "values"]
    low: float | None = None
    high: float | None = None
    is_log: bool = Field(False, description="Whether the variable is even on a logarithmic scale.")
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


class Choice(Out):
    value: JsonValue = Field(description="What to send as the outcome.")
    label: str


class OutcomeField(Out):
    """How an outcome is entered."""

    name: str
    family: str
    kind: Literal["choice", "count", "number"] = Field(
        description="One of `choices`; a whole number from 0; or any number."
    )
    choices: list[Choice] | None = Field(description="Null where it is no choice.")
    low: float | None = Field(description="The outcome is never below; null: no such end.")
    high: float | None = Field(
        description="The outcome is never above; null: no such end, or one that depends on the design."
    )
    integer: bool = Field(description="Whether only whole numbers come out.")


class FormOut(Out):
    """What is needed to run a trial: the design's variables, how its outcome is entered, and what to tell people."""

    designs: list[DesignVariable]
    outcomes: list[OutcomeField]
    instructions: str | None = Field(description="`instructions` of the spec.")


class PreviewAxis(Out):
    name: str
    values: list[float | str]
    is_log: bool


class PreviewOutcome(Out):
    name: str
    label: str = Field(description="What the curves are: the outcome's mean, or the probability of one of its classes.")


class PreviewCurve(Out):
    label: str = Field(description="The parameters, in words.")
    values: list[Result]


class PreviewOut(Out):
    """A picture of a model, before anything is measured."""

    x: PreviewAxis = Field(description="A design variable; the others stay at their middle.")
    y: PreviewOutcome
    curves: list[PreviewCurve] = Field(description="For all parameters at their .1, .5 and .9 quantiles of the prior.")


class CatalogueItem(Out):
    id: str
    title: str
    summary: str
    reference: str
    spec: dict[str, Any] = Field(description="Ready to be sent to `POST /v1/experiments`.")
