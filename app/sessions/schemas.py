"""Sessions of an experiment: what is proposed, what was observed, what is believed."""

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AliasChoices, Field, computed_field, model_validator

from app.experiments.schemas import Design, FormOut
from app.web.fields import Flag, In, Name, Out, Result, Seed, Storable, Whole
from app.web.job_view import JobOut

Id = Annotated[Storable, Field(max_length=36)]
ClientId = Annotated[Storable, Field(min_length=1, max_length=200)]


StatedError = Annotated[
    Result,
    Field(description="How far `eig` may be off. Null where the grid is too coarse for how precise the outcome is."),
]
MethodName = Annotated[
    str,
    Field(description="linear_gaussian | enumeration | quadrature | cells | bounds | coarse_grid (see `note`)"),
]
Note = Annotated[str | None, Field(description="Why there is no `se`.")]


class OtherSession(In):
    session_id: Id


class OtherSessions(In):
    session_ids: list[Id] = Field(min_length=1, max_length=1000)


class SessionIn(In):
    name: Name = "session"
    seed: Annotated[Seed, Field(le=2**53)] | None = Field(
        None, description="In place of the spec's `select.seed`, which goes as far."
    )
    prior: Literal["spec", "pooled"] | OtherSession | OtherSessions = Field(
        "spec",
        description="What is believed at the start: the spec's prior, or what one, several or (pooled) all other "
        "sessions of the experiment have observed so far, taken as observations of the same parameters.",
    )


class SessionChange(In):
    name: Name | None = None
    closed: Flag | None = Field(
        None,
        description="A closed session can only be read: it hands out no proposals and takes no outcomes, not even of "
        "trials that were proposed before; nothing is abandoned or taken back.",
    )


class Revised(Out):
    """`round` is an older name, which now is that of a labelling round."""

    revision: int = Field(description="Changes of the observations so far; send it back to be told of others' changes.")

    @computed_field(json_schema_extra={"deprecated": True}, description="The older name of `revision`.")  # type: ignore[prop-decorator]
    @property
    def round(self) -> int:
        return self.revision


class SessionItem(Revised):
    """A session in a list: without its form, which can be as long as the list of its designs."""

    id: str
    experiment_id: str
    name: str
    status: Literal["open", "closed"]
    seed: int | None
    prior: dict[str, Any]
    n_prior_observations: int
    n_observations: int
    n_pending: int = Field(description="Proposals that wait for their outcome.")
    created_at: datetime
    closed_at: datetime | None


class SessionOut(SessionItem):
    """A session with the form of its trials: a token needs nothing else to run them."""

    form: FormOut


class NewSessionOut(SessionOut):
    token: str | None = Field(
        description="A secret for this session alone, for a participant's browser: it can propose, abandon, observe, "
        "take its last outcome back and read. Shown once: a replay has null here."
    )


class SessionTokenOut(Out):
    session_id: str
    token: str | None = Field(description="In place of the one before. Shown once: a replay has null here.")


class StopOut(Out):
    stop: bool
    reasons: list[str] = Field(description="The rules that hold, also where they do not suffice to stop.")
    note: str | None = None


class RunnerUpOut(Out):
    design: dict[str, Any]
    eig: Result
    se: StatedError
    score: Result


class ProposalIn(In):
    client_id: ClientId | None = Field(
        None, description="Who asks; the same one gets its pending proposals again until they are answered."
    )
    count: Whole = Field(1, ge=1, le=100, description="Designs to be run before any outcome is known.")
    fixed: Design = Field({}, description="Values that some design variables must have.")
    excluded: list[Design] = Field([], max_length=1000, description="Designs not to propose.")
    expires_in: float | None = Field(
        None, gt=0, le=1e8, description="Seconds after which the proposal is stale and no longer counts as pending."
    )


class ProposalBase(Revised):
    id: str
    session_id: str
    number: int
    client_id: str | None
    status: Literal["pending", "observed", "abandoned", "stale"]
    design: dict[str, Any]
    eig: float = Field(description="Expected information gain in nats, beyond that of all pending designs.")
    se: StatedError
    method: MethodName
    note: Note = None
    joint_eig: Result = Field(description="That of the design and all pending ones together.")
    score: Result = Field(description="What was maximised: eig, or utility, for its cost.")
    cost: Result
    utility: Result
    chosen: Literal["best", "tie", "random"]
    runner_up: RunnerUpOut | None
    stop: StopOut
    revision: int = Field(description="The session's revision that it was made for.")
    reason: str | None = Field(description="Why it was abandoned, or is stale.")
    expires_at: datetime | None
    created_at: datetime


class ProposalOut(ProposalBase):
    batch: list[ProposalBase] | None = Field(None, description="All of them, this one first, where there are several.")


class ExpensiveOut(Out):
    """The proposal is computed by a job; its `result` holds the proposals."""

    job: JobOut
    evaluations: int
    cap: float
    explanation: str


class AbandonIn(In):
    reason: Annotated[Storable, Field(max_length=1000)] = ""


class ObservationIn(In):
    """An outcome, of a proposal or of a design of your own. With both, the design given is the one that was run."""

    proposal_id: Id | None = None
    design: Design | None = None
    outcome: Design
    revision: Whole | None = Field(
        None,
        ge=0,
        validation_alias=AliasChoices("revision", "round"),
        description="Refused with 409 unless the session is still at this revision.",
    )
    client_id: ClientId | None = Field(None, description="Default: the proposal's.")

    @model_validator(mode="after")
    def _says_where(self) -> Self:
        if self.proposal_id is None and self.design is None:
            raise ValueError("say what was run: send `proposal_id` or `design`")
        return self


class ParameterOut(Out):
    mean: Result
    sd: Result
    quantiles: dict[str, Result]


class GuardsOut(Out):
    """Signs of a wrong model or an overstretched approximation."""

    surprise: Result
    tail: Result = Field(description="Share of outcomes at least as surprising, under the model.")
    repeats: int
    edge_mass: Result
    ess: float | None = Field(description="Effective number of points; null for a posterior in closed form.")
    warnings: list[str]


class Learnt(Out):
    n: int = Field(description="Number of this observation in its session; never given again, after an undo neither.")
    posterior: dict[str, ParameterOut] | None = Field(
        description="Null, like all that follows from it, where it takes longer than a request may; `warnings` say so."
    )
    entropy_drop: float | None = Field(
        description="Entropy of the targets before less that after, in nats; may be negative."
    )
    kl: float | None = Field(description="KL(posterior of the targets after ‖ before), in nats.")
    log_evidence: float | None = Field(description="Of the session's own observations.")
    surprise: float | None = Field(description="−log p(outcome | what was observed before).")
    guards: GuardsOut | None
    warnings: list[str]
    stop: StopOut
    is_stale: bool = Field(
        description="An earlier outcome was taken back, and what this one taught could not be computed anew in the "
        "time of a request: the figures are null. Read the trials again; it goes on where it was."
    )


class ObservationOut(Learnt, Revised):
    id: str
    session_id: str
    proposal_id: str | None
    design: dict[str, Any]
    outcome: dict[str, Any]
    next: ProposalOut | None = Field(
        None, description="With `?next=true`; null where a job makes it, it failed, or nothing is left to run."
    )
    next_job: JobOut | None = Field(None, description="The job that makes the next proposal, where it is expensive.")
    next_problem: str | None = Field(None, description="Why there is no next proposal. The outcome is recorded.")


class TrialOut(Learnt):
    """One observation and what it taught, given those before it that were not taken back."""

    proposal_id: str | None
    client_id: str | None
    proposed: dict[str, Any] | None = Field(description="The design that was proposed, which need not be that run.")
    eig: float | None = Field(description="What the proposal promised.")
    design: dict[str, Any]
    outcome: dict[str, Any]
    created_at: datetime


class GridOut(Out):
    values: dict[str, list[Result]]
    weights: list[Result]


class MarginalOut(Out):
    values: list[Result]
    densities: list[Result] = Field(description="Masses, for a parameter of few values.")
    hdi: tuple[Result, Result]


class PosteriorOut(Revised):
    session_id: str
    n: int = Field(description="Observations of the session that it is of.")
    method: str = Field(description="grid | listed | particles | gaussian")
    posterior: dict[str, ParameterOut]
    covariance: dict[str, dict[str, Result]]
    log_evidence: Result
    entropy: Result
    error: Result = Field(description="How far `log_evidence` may be off.")
    ess: Result = Field(description="Effective number of points; null for a posterior in closed form.")
    edge_mass: Result
    grid: GridOut | None = None
    samples: dict[str, list[Result]] | None = None
    marginals: dict[str, MarginalOut] | None = None


class EstimateOut(Out):
    design: dict[str, Any]
    eig: Result
    se: StatedError
    method: MethodName
    note: Note = None
    cost: Result
    score: Result
    utility: Result
    lower: Result
    upper: Result


class EigOut(Revised):
    session_id: str
    n: int
    items: list[EstimateOut]


class StandingOut(StopOut, Revised):
    session_id: str
    n: int
