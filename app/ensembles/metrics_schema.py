"""What the metrics of an ensemble are, as they are stored and shown; what does not apply is absent, and not null."""

from typing import Annotated, Any

from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

from app.web.fields import Result

LONG = ("classes", "confusion", "reliability", "coverage")  # shown for one ensemble at a time


def without_long(metrics: dict[str, Any]) -> dict[str, Any]:
    """For lists, which would grow by kilobytes an entry."""
    return {name: value for name, value in metrics.items() if name not in LONG}


class ClassFigures(TypedDict):
    """Of one class; null where there is nothing to divide by."""

    precision: Annotated[Result, Field(description="Share of the rows predicted as this class that are of it.")]
    recall: Annotated[Result, Field(description="Share of the rows of this class that are predicted as it.")]
    n: Annotated[int, Field(description="Rows of this class.")]


class Confusion(TypedDict):
    classes: list[str]
    counts: Annotated[list[list[int]], Field(description="counts[i][j]: rows of classes[i] predicted as classes[j].")]


class ReliabilityBin(TypedDict):
    """Rows whose predicted class had about the same probability."""

    confidence: Annotated[float, Field(description="Mean probability of the predicted class.")]
    accuracy: Annotated[float, Field(description="Share of these rows that are of the predicted class.")]
    n: int


class CoveragePoint(TypedDict):
    """A central interval of the predicted numbers."""

    expected: Annotated[float, Field(description="Probability inside, by the prediction: .1 to .9.")]
    observed: Annotated[float, Field(description="Share of the targets inside.")]


class Figure(TypedDict):
    """An estimated number with its 95 % interval; null where it is infinite, or one row tells nothing of the error."""

    value: Result
    standard_error: Result
    low: Result
    high: Result


class PoolEstimate(TypedDict, total=False):
    """What the labelled rows themselves say, each predicted by models that had not seen it; of posteriors that keep
    such predictions (`auto`). No evaluation pool is needed, and none is used."""

    kind: Annotated[
        str,
        Field(
            description="`lure`: of the pool, from rows that were picked with known probabilities (by `random`, or "
            "with the selection `power`), weighed by them. `chosen_rows`: of the labelled rows alone, where these are "
            "not known: no fair sample, do not take it for the pool."
        ),
    ]
    n: Annotated[int, Field(description="Labels that it rests on.")]
    coverage: Annotated[
        float,
        Field(
            description="`n` as a share of the labels trained on. With `lure` the others have no known probability: "
            "labels that came with the pool, were posted outside a ranking, or were picked by another method."
        ),
    ]
    population: Annotated[
        int,
        Field(
            description="Rows that it speaks of: with `lure` those that could be picked when the first such ranking "
            "was made, labelled since or not."
        ),
    ]
    accuracy: Annotated[Figure, Field(description="Classes only; its interval lies within 0 and 1.")]
    rmse: Annotated[Figure, Field(description="Numbers only.")]
    nll: Figure
    note: Annotated[str, Field(description="The same in words, with what to keep in mind.")]


class CalibrationFigures(TypedDict, total=False):
    """How sure forecasts may be, learnt from rows that the training did not see; it is in the ensemble's file, and in
    predictions and scores, too."""

    by: Annotated[
        str,
        Field(
            description="`own folds` (of `auto`), `folds` (of trainings that each lacked a fifth of the labels), "
            "`holdout`, or `none`."
        ),
    ]
    n: Annotated[int, Field(description="Rows that it was learnt from.")]
    temperature: Annotated[
        Result, Field(description="Above 1: it had been too sure. Of numbers the factor on the variance.")
    ]
    note: Annotated[str, Field(description="Why there is none, and what to do.")]


class Uncalibrated(TypedDict, total=False):
    """The same rows, predicted without the calibration."""

    nll: Result
    ece: Result
    brier: Result
    crps: Result


class Metrics(TypedDict, total=False):
    """Measured on `n` rows of `measured_on`; what does not apply is absent. Nats for nll."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]

    n: Annotated[int, Field(description="Rows measured on; 0 where there are none.")]
    measured_on: Annotated[str, Field(description="evaluation | holdout | none")]
    warning: Annotated[str, Field(description="Why not to rely on these figures.")]
    accuracy: Result
    accuracy_se: Annotated[Result, Field(description="Standard error; likewise `nll_se`, `brier_se`, `rmse_se`.")]
    nll: Result
    ece: Annotated[Result, Field(description="Expected calibration error, 15 bins of confidence.")]
    brier: Result
    auroc: Annotated[
        Result,
        Field(
            description="Area under the ROC curve, one class against the others, averaged over the classes that occur; "
            "log-odds are compared to 0.01. Null where all rows are of one class."
        ),
    ]
    classes: Annotated[dict[str, ClassFigures], Field(description="By the name of the class.")]
    confusion: Annotated[Confusion, Field(description="Absent above 50 classes.")]
    reliability: Annotated[
        list[ReliabilityBin],
        Field(description="10 bins of equal width by the probability of the predicted class; empty ones are left out."),
    ]
    rmse: Result
    crps: Result
    coverage: Annotated[list[CoveragePoint], Field(description="Numbers only.")]
    calibration: Annotated[CalibrationFigures, Field(description="Absent where none was asked for.")]
    uncalibrated: Annotated[
        Uncalibrated,
        Field(
            description="Before calibration. Where that was learnt from the hold-out, the metrics beside are of "
            "halves, each calibrated by the other."
        ),
    ]
    estimate: PoolEstimate
