"""Backtests: would active learning have saved labels on this data, and which strategy is to be taken?"""

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from app.methods.schemas import AcquisitionSpec, ModelSpec, PosteriorSpec, SelectionSpec
from app.web.fields import In, Name, Out, Result, Storable, Whole
from app.web.job_view import JobOut, JobStatus

MOST_STRATEGIES, MOST_SEEDS, MOST_ROUNDS = 10, 20, 100


class StrategyIn(In):
    """A way of choosing rows, and of learning from them. What is left out is what goes with the task (`acquisition`,
    `selection`), or the project's (`posterior`, `model`)."""

    name: Name = Field(description="Yours; `default` and `random`, which are always played, are taken.")
    acquisition: AcquisitionSpec | None = None
    selection: SelectionSpec | None = None
    posterior: PosteriorSpec | None = None
    model: ModelSpec | None = None


class BacktestIn(In):
    pool_id: Annotated[Storable, Field(max_length=36)] = Field(
        description="A pool of any purpose that has labels. A quarter of them, at most 1,000, is measured on; of the "
        "others at most 4,000 are asked for."
    )
    strategies: list[StrategyIn] | None = Field(
        None,
        max_length=MOST_STRATEGIES - 2,
        description="To play beside `default` (what goes with the task) and `random` rows. Left out: `margin` with "
        "`top_k` and `bald` with `power` for classes, the members' spread with `top_k` and `kcenter` for numbers, and "
        "the project's own choice, if it has one.",
    )
    rounds: Whole | None = Field(
        None,
        ge=1,
        le=MOST_ROUNDS,
        description="Batches of k labels, the first one included; default 10, or as many as the labels allow.",
    )
    k: Whole = Field(20, ge=1, le=2**31, description="Labels a round.")
    seeds: Whole = Field(
        3,
        ge=2,
        le=MOST_SEEDS,
        description="How often all is played, each time with other rows to measure on. Same seeds, same curves.",
    )


class EstimateOut(Out):
    """A mean over the seeds, its standard error, and its 95 % interval by Student's t."""

    mean: Result
    se: Result
    low: Result
    high: Result


class LabelsSavedOut(Out):
    goal: Result = Field(description="Accuracy or RMSE that was to be reached, mean over the seeds.")
    of_random: Result = Field(description="Labels that random rows took to it.")
    labels: EstimateOut = Field(
        description="Labels fewer than that which the strategy took; negative: more. Compared seed by seed, between "
        "rounds by a straight line."
    )
    share: Result = Field(description="The same, of `of_random`.")
    n_seeds: int = Field(description="In which random rows got there; the others are not compared.")
    n_arrived: int = Field(
        description="Of these, in which the strategy got there. Where fewer, `labels` is an upper limit, without `low`."
    )


class StrategyCurveOut(Out):
    strategy: str
    n: list[int] = Field(description="Labels, a round after another.")
    mean: dict[str, list[Result]] = Field(
        description="By round, mean over the seeds: accuracy, nll, ece, brier, or rmse, nll, crps."
    )
    se: dict[str, list[Result]] = Field(description="Standard errors of these means.")
    area: EstimateOut = Field(description="The `metric`, averaged over all rounds.")
    gain: EstimateOut = Field(description="In `area` over random rows, seed by seed; positive is better, for RMSE too.")
    saved: LabelsSavedOut | None = Field(
        description="Labels saved to what random rows reach in the end; null of random rows."
    )
    saved_near_all: LabelsSavedOut | None = Field(
        description="Labels saved to 95 % of the way from none to all labels; null where random rows do not get there."
    )


class RunOut(Out):
    """One strategy with one seed; `all labels` learns from the whole pool at once, with the project's posterior."""

    strategy: str
    seed: int
    n: list[int]
    metrics: dict[str, list[Result]]
    seconds: Result


class RecommendationOut(Out):
    strategy: str
    reason: str = Field(description="In a sentence, with figures.")
    body: dict[str, Any] = Field(
        description="Send it to `PATCH /v1/projects/{id}`, and trainings and rankings from then on take it."
    )


class BacktestOut(Out):
    id: str
    project_id: str
    pool_id: str
    status: JobStatus
    job_id: str
    strategies: list[dict[str, Any]] = Field(description="All that are played, with what they name; null: the default.")
    rounds: int
    k: int
    seeds: int
    watermark: int = Field(description="Labels up to this label event are played on.")
    metric: str | None = Field(
        description="accuracy | rmse, in units of the labels: what `area`, `gain` and `saved` are of."
    )
    n_pool: int | None = Field(description="Labelled rows that could be asked for.")
    n_test: int | None = Field(description="Labelled rows that were measured on, others for each seed.")
    curves: list[StrategyCurveOut] | None = Field(description="One a strategy, once succeeded.")
    runs: list[RunOut] | None = Field(description="One a strategy and seed, as far as they have come; null in lists.")
    recommendation: RecommendationOut | None
    notes: list[str] = Field(
        description="What a reader should know, e.g. that not all labels were played on, and what the first ranking of "
        "a strategy by an ensemble says, such as that no score differs from 0."
    )
    seconds: float | None
    error: dict[str, Any] | None
    created_at: datetime


class BacktestJobOut(Out):
    job: JobOut
    backtest: BacktestOut
