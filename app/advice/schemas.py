"""What is advised, and the figures behind it."""

from typing import Any, Literal

from pydantic import Field

from app.web.fields import Out, Result

Action = Literal["label", "relabel", "train", "stop"]


class Forecast(Out):
    """Medians, and the ends of intervals that hold the truth with 95 % probability under the law."""

    n_labels: int
    value: float = Field(description="Accuracy or RMSE with so many labels.")
    low: float
    high: float
    gain: float = Field(description="By how much that is better than today: rising accuracy, falling RMSE.")
    gain_low: float
    gain_high: float


class CurveAdvice(Out):
    metric: Literal["accuracy", "rmse"]
    measured_on: str = Field(description="evaluation | holdout | none")
    n_measured: int
    n_labels: int = Field(description="Labels that the newest ensemble saw.")
    value: Result = Field(description="Of the newest ensemble, as measured.")
    se: Result = Field(description="Its standard error.")
    n_points: int = Field(
        description="Trainings that the law a + b n^−c was fitted to: those with the posterior of the newest, measured "
        "on the same rows."
    )
    in_100: Forecast | None = Field(description="With 100 more labels; null with a `reason` where that is not known.")
    reason: str | None


class Comparison(Out):
    """A version against the one before, on rows of the pools (at most 2,000, the same ones each time)."""

    version: int
    with_version: int
    n_labels: int
    n_labels_before: int
    n_rows: int
    value: Result = Field(description="Cohen's kappa of classes, Lin's concordance of numbers: 1 where all is equal.")
    changed: Result = Field(
        description="Share of rows with another class; of numbers the root mean square change over the sd of the rows."
    )


class AgreementAdvice(Out):
    measure: Literal["kappa", "concordance"]
    comparisons: list[Comparison] = Field(description="Oldest first, the last ten.")
    mean_of_last_three: Result = Field(description="Over versions that saw more labels than the one before.")
    threshold: float = Field(description="From here on predictions count as stable.")
    is_stable: bool = Field(
        description="The last three reach the threshold, and the labels grew by a tenth or more in their course."
    )


class SavedAdvice(Out):
    """Labels that random rows would need for today's value, less the labels there are."""

    labels: int | None = Field(description="Median; negative where random rows do better. Null with a `reason`.")
    low: int | None = Field(description="95 % interval; an end is null where random rows are not known so far out.")
    high: int | None
    random_needs: int | None = Field(description="Labels of random rows for the same value, the median.")
    reason: str | None


class DoubtOut(Out):
    pool_id: str
    row: int
    key: str
    label: Any
    predicted: Any
    probability: float | None = Field(description="Of the predicted class; null of numbers.")
    label_probability: float | None = Field(description="Of the label; null of numbers.")
    distance: float | None = Field(description="Of numbers: |label − predicted| in standard deviations; else null.")
    is_strong: bool = Field(description="The row is one of those that predictions are surest of; see `n_sure`.")
    annotators: list[str] = Field(description="Who gave this label, as far as they said their names.")


class DoubtsAdvice(Out):
    """Labels that the newest ensemble contradicts, the worst first; those that were answered again since are left out,
    and those that two answers confirm."""

    n: int
    n_strong: int
    n_labels: int = Field(description="Labels that were looked at, without those of pools deleted since.")
    n_sure: int = Field(
        description="Of these, the 30 % that predictions are surest of: doubts there are strong. Of numbers all."
    )
    n_other: int = Field(description="Labels for which another class is predicted, doubted or not.")
    expected: Result = Field(
        description="Strong doubts that there would be if all labels were right and predictions calibrated; null "
        "where a pool was deleted since."
    )
    in_sample: bool | None = Field(
        description="True: by predictions of an ensemble that learnt from these labels, which finds fewer. False: by "
        "predictions that were made without them. Null before the first training."
    )
    items: list[DoubtOut] = Field(description="The worst 200 at most.")


class DisagreementOut(Out):
    pool_id: str
    row: int
    key: str
    status: Literal["open", "labelled"] = Field(description="`open`: without a majority.")
    said: dict[str, Any] = Field(description="By annotator.")


class PairOut(Out):
    annotators: list[str]
    n: int = Field(description="Rows that both labelled.")
    agreement: float = Field(description="Share of them with the same label; of numbers: less than ½ sd apart.")
    kappa: Result = Field(description="Cohen's kappa of classes, Lin's concordance of numbers; null below 2 rows.")


class DisagreementsAdvice(Out):
    """Rows of which annotators say different things: other classes, or numbers more than half an sd apart."""

    n: int
    n_open: int = Field(description="Of these, without a majority; of numbers all.")
    n_several: int = Field(description="Rows that several annotators labelled, of which at most 10,000 are compared.")
    items: list[DisagreementOut] = Field(description="At most 200, those without a majority first.")
    pairs: list[PairOut] = Field(description="The 50 pairs with most rows in common.")


class AdviceOut(Out):
    sentence: str
    action: Action
    because: list[str] = Field(description="The facts, a sentence each.")
    ensemble_id: str | None = Field(description="The newest ensemble, which this is about.")
    n_labels: int = Field(description="Labelled rows of the candidate pools now.")
    n_unseen: int = Field(description="Labels and retractions since the newest ensemble.")
    curve: CurveAdvice
    agreement: AgreementAdvice
    saved: SavedAdvice
    doubts: DoubtsAdvice
    disagreements: DisagreementsAdvice
