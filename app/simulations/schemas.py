"""Simulations: participants that were never there, and how fast each policy learns of them."""

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AliasChoices, Field, model_validator

from app.experiments.schemas import Design
from app.web.fields import In, Number, Out, Result, Seed, Whole
from app.web.job_view import JobOut, JobStatus

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
    trials: Whole = Field(ge=1, le=1000, validation_alias=AliasChoices("trials", "rounds"))
    policies: list[PolicyIn | PolicyName] = Field(["adaptive", "random"], min_length=1, max_length=16)
    seed: Seed = 0

    @model_validator(mode="after")
    def _one_kind_of_truth(self) -> Self:
        if self.truths is not None and self.n_draws is not None:
            raise ValueError("truths are given or drawn: send `truths` or `n_draws`, not both")
        return self


class CurveOut(Out):
    """Averages over the truths, one number for each trial from 0 (nothing observed yet) on."""

    policy: str
    sd: dict[str, list[Result]] = Field(description="Posterior standard deviation of each parameter.")
    rmse: dict[str, list[Result]] = Field(description="Error of the posterior mean.")
    coverage: dict[str, list[float]] = Field(description="Share of truths inside the central 95 % interval.")
    information: list[Result] = Field(description="log p(truth | outcomes) − log p(truth), in nats.")
    n_truths: int


class SimulationOut(Out):
    id: str
    experiment_id: str
    status: JobStatus
    job_id: str
    request: dict[str, Any] = Field(description="With `rounds`, the older name of `trials`.")
    curves: list[CurveOut] | None = Field(description="One a policy, once succeeded.")
    seconds: float | None
    error: dict[str, Any] | None
    created_at: datetime


class SimulationJobOut(Out):
    job: JobOut
    simulation: SimulationOut
