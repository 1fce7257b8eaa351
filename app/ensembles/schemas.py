"""Ensembles: immutable, versioned, each with the labels it saw and how well it does."""

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from app.ensembles.metrics_schema import Confusion, CoveragePoint, Metrics, ReliabilityBin
from app.methods.schemas import PosteriorSpec, as_json_or_none
from app.projects.schemas import CALIBRATE, Calibrate
from app.web.bodies.long import Long
from app.web.fields import Flag, In, Many, Number, Out, Result, Seed, Storable, Whole
from app.web.job_view import JobOut, JobStatus


class TuneIn(In):
    trials: Whole = Field(
        20, ge=1, le=200, description="Settings to try, each with a training; the first is the one that is given."
    )


class TrainingIn(In):
    posterior: PosteriorSpec | None = Field(None, description="Default: the project's.")
    n_members: Whole = Field(20, ge=1, le=100_000, description="Draws kept; an ensemble of S networks gives at most S.")
    seed: Seed = 0
    warm_start: Flag = Field(False, description="Start from the current ensemble's weights rather than fresh.")
    calibrate: Calibrate | None = Field(None, description=f"Default: the project's. {CALIBRATE}")
    tune: TuneIn | None = Field(
        None,
        description="First search the posterior's learning rate and other options that have a range, and the scale of "
        "the prior: each trial learns from four fifths of the labels, fresh from the seed, and is measured by its nll "
        "on the others. The best setting is then trained on all labels.",
    )


class DiagnosticsOut(Out):
    """How far the draws can be trusted, by the method's own account."""

    values: dict[str, Result] = Field(description="By name: rhat, ess_bulk, khat and the like, as the method has them.")
    warnings: list[str] = Field(description="A sentence for each doubt; rankings repeat them in their `notes`.")


class TuningTrialOut(Out):
    options: dict[str, Any] = Field(description="Options of the posterior by name, and `prior.scale`.")
    value: Result = Field(description="The metric on the rows held out; null where the training diverged.")
    seconds: Result = Field(description="Null where it was interrupted and went on.")


class TuningOut(Out):
    """What was tried, in this order, and chosen."""

    metric: str = Field(description="What the trials were compared by; `nll`: the lowest is best.")
    trials: list[TuningTrialOut]
    chosen: dict[str, Any] = Field(
        description="The options of the best trial. Those of the posterior are in the ensemble's `posterior` too; "
        "`prior.scale` is the `task.prior.scale` of a project that is to keep it."
    )


def stored_training(wanted: TrainingIn) -> dict[str, Any]:
    """As a schedule keeps it, and `request_training` takes it."""
    return {**wanted.model_dump(exclude={"posterior"}), "posterior": as_json_or_none(wanted.posterior)}


class EnsembleOut(Out):
    id: str
    project_id: str
    version: int
    status: JobStatus
    is_current: bool
    posterior: dict[str, Any] = Field(description="With the chosen options, once it was tuned.")
    n_members: int
    seed: int
    warm_start: bool
    parent_id: str | None
    job_id: str
    origin: str = Field(description="request, round:<id> or schedule:<id>: who asked for it")
    n_labels: int | None = Field(description="Labelled rows it was trained on.")
    watermark: int | None = Field(description="Number of the newest label event it saw.")
    snapshot_hash: str | None = Field(description="SHA-256 over exactly the rows and labels it saw.")
    metrics: Metrics | None = Field(
        description="How well it does, with standard errors, `accuracy_se` and the like. `classes`, `confusion`, "
        "`reliability` and `coverage` are left out of lists, the learning curve and jobs."
    )
    diagnostics: DiagnosticsOut | None = Field(description="Null of a method that does not tell.")
    log_evidence: Result = Field(
        description="log p(labels), in nats and the units of the labels, as the method has it (laplace): what models "
        "of the same labels are compared by. Null of other methods, or where it is not finite."
    )
    bound: Result = Field(
        description="What the method maximises (the ELBO of mfvi, the Rényi bound of renyi) on all rows that it learnt "
        "from, in nats: a bound on `log_evidence` at temperature 1. Estimated from 10 draws of the weights, or fewer "
        "where the training had fewer than 100 passes over the rows. Null of other methods, or where it is not finite."
    )
    tuning: TuningOut | None = Field(description="Null where no `tune` was asked for, or it has not ended.")
    n_bytes: int | None
    seconds: float | None
    error: dict[str, Any] | None
    created_at: datetime


class ClassRow(Out):
    """Of one class; null where there is nothing to divide by."""

    name: str
    precision: Result
    recall: Result
    n: int = Field(description="Rows of this class.")


class EvaluationOut(Out):
    """What figures of an ensemble are drawn from, measured when it was trained."""

    ensemble_id: str
    version: int
    measured_on: Literal["evaluation", "holdout", "none"]
    n: int = Field(description="Rows measured on.")
    confusion: Confusion | None = Field(description="Classes only; null above 50 classes.")
    classes: list[ClassRow] | None = Field(description="Classes only, in the order of the task.")
    reliability: list[ReliabilityBin] | None = Field(
        description="Classes only: 10 bins of equal width by the probability of the predicted class, empty ones left "
        "out. Well calibrated: confidence and accuracy are alike."
    )
    coverage: list[CoveragePoint] | None = Field(
        description="Numbers only: central intervals of 10 % to 90 %, and the share of targets inside each."
    )
    note: str | None = Field(description="What to keep in mind, or why a part is null.")


class TrainingOut(Out):
    job: JobOut
    ensemble: EnsembleOut


class PredictionIn(In):
    """Give `rows` of features, or `pool_id` for a whole pool."""

    rows: Long[Many[Number]] | None = None
    pool_id: Annotated[Storable, Field(max_length=36)] | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.rows is None) == (self.pool_id is None):
            raise ValueError("give either `rows` or `pool_id`")
        return self


class PredictionOut(Out):
    id: str
    ensemble_id: str
    pool_id: str | None
    status: JobStatus
    job_id: str
    n_rows: int | None
    items: list[dict[str, Any]] | None = Field(
        description="Classification: label, probabilities by class, probability_sd (by class, the standard deviation "
        "of that probability between the members; 0 of one member), entropy, mutual_information. Regression: mean, sd, "
        "epistemic_sd, entropy, mutual_information. Entropies and information in nats. Null until the job "
        "has succeeded; for a pool page with `cursor`."
    )
    next_cursor: str | None
    error: dict[str, Any] | None


class PredictionJobOut(Out):
    job: JobOut
    prediction: PredictionOut


class CurvePoint(Out):
    ensemble_id: str
    version: int
    n_labels: int
    metrics: Metrics
    control: list[dict[str, Any]] = Field(
        description="What random rows alone would have given: the same metrics of the project's posterior, trained on "
        "`n_labels` labels that are a random sample of the pool. Empty where that is not known; advice says why."
    )
    origin: str
    created_at: datetime


class LearningCurve(Out):
    metric_set: Literal["evaluation", "holdout", "none"] = Field(
        description="What the newest point was measured on. With none, look at `metrics.estimate` of the points."
    )
    points: list[CurvePoint]


class CurrentIn(In):
    ensemble_id: Annotated[Storable, Field(max_length=36)] | None = Field(
        description="The ensemble to use from now on; null goes back to the newest."
    )
