"""Experiments: a model, a prior and a space of designs, stated as JSON."""

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import Field, JsonValue, ValidatorFunctionWrapHandler, WrapValidator, model_validator

from app.web.bodies.long import LongObject, whole
from app.web.fields import In, JobOut, Name, Number, Out, Result, Seed, Whole


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
    "stop": {"any": [{"sd": {"theta": 0.6}}, {"max_rounds": 30}]},
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


PolicyName = Literal["adaptive", "random", "fixed", "staircase"]


class PolicyIn(In):
    """How a simulated experimenter chooses. `adaptive`: as proposed. `random`: any design. `fixed`: `designs` in turn
    (default: the first proposal, always). `staircase`, for one ordered design variable: a step easier after a failure,
    a step harder after `down` successes in a row."""

    name: PolicyName
    designs: list[Design] = Field([], max_length=1000)
    start: Number | None = Field(None, description="Of a staircase; default: the middle.")
    step: Annotated[Number, Field(gt=0)] = 1.0
    down: Whole = Field(1, ge=1, le=100)
    harder: Literal["up", "down"] = Field("up", description="Which way a staircase gets harder.")


class SimulationIn(In):
    """Simulated participants: chosen truths, or so many draws of the prior."""

    truths: list[dict[str, Number]] | None = Field(None, min_length=1, max_length=10_000)
    n_draws: Whole | None = Field(None, ge=1, le=10_000, description="Truths drawn from the prior; default 20.")
    rounds: Whole = Field(ge=1, le=1000)
    policies: list[PolicyIn | PolicyName] = Field(["adaptive", "random"], min_length=1, max_length=16)
    seed: Seed = 0

    @model_validator(mode="after")
    def _one_kind_of_truth(self) -> Self:
        if self.truths is not None and self.n_draws is not None:
            raise ValueError("truths are given or drawn: send `truths` or `n_draws`, not both")
        return self


class CurveOut(Out):
    """Averages over the truths, one number for each round from 0 (nothing observed yet) on."""

    policy: str
    sd: dict[str, list[Result]] = Field(description="Posterior standard deviation of each parameter.")
    rmse: dict[str, list[Result]] = Field(description="Error of the posterior mean.")
    coverage: dict[str, list[float]] = Field(description="Share of truths inside the central 95 % interval.")
    information: list[Result] = Field(description="log p(truth | outcomes) − log p(truth), in nats.")
    n_truths: int


class SimulationOut(Out):
    id: str
    experiment_id: str
    status: str = Field(description="queued | running | succeeded | failed | cancelled")
    job_id: str
    request: dict[str, Any]
    curves: list[CurveOut] | None = Field(description="One a policy, once succeeded.")
    seconds: float | None
    error: dict[str, Any] | None
    created_at: datetime


class SimulationJobOut(Out):
    job: JobOut
    simulation: SimulationOut


class CatalogueItem(Out):
    id: str
    title: str
    summary: str
    reference: str
    spec: dict[str, Any] = Field(description="Ready to be sent to `POST /v1/experiments`.")
