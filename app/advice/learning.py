"""What trainings so far say: the learning curve carried on, stable predictions, labels saved against random rows."""

import math
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

import bensemble_core as bc
from app.advice.schemas import AgreementAdvice, Comparison, CurveAdvice, Forecast, SavedAdvice
from app.db.tables import Ensemble, EnsembleResult, Project
from app.ensembles.views import with_errors
from bensemble_core.advice.curve import SHARED

MORE = 100
STABLE = {"kappa": 0.99, "concordance": 0.999}  # of numbers: they move by less than 4.5 % of their sd
LAST = 3  # comparisons that have to reach it
GROWTH = 1.1  # of the labels over these: predictions cannot change much while labels hardly do
SHOWN = 10
REACH = 8  # times the labels of random rows: as far as curves carried on were compared with what came


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A finished version."""

    ensemble: Ensemble
    result: EnsembleResult
    agreement: dict[str, Any] | None
    control: dict[str, Any] | None

    def value(self, metric: str) -> tuple[float, float] | None:
        """The metric and its standard error."""
        found = with_errors(self.result.metrics)
        value, n = found.get(metric), found.get("n", 0)
        if value is None or not n or not math.isfinite(value):
            return None
        return value, bc.advice.binomial_error(value, n) if metric == "accuracy" else found[f"{metric}_se"]


def read_trained(session: Session, project_id: str) -> list[Trained]:
    """Oldest first."""
    query = (
        select(Ensemble, EnsembleResult, EnsembleResult.retrospect["agreement"], EnsembleResult.retrospect["control"])
        .join(EnsembleResult, EnsembleResult.ensemble_id == Ensemble.id)
        .where(Ensemble.project_id == project_id)
        .order_by(Ensemble.version)
    )
    return [
        Trained(ensemble=ensemble, result=result, agreement=agreement, control=control)
        for ensemble, result, agreement, control in session.execute(query)
    ]


def metric_of(project: Project) -> str:
    return "accuracy" if project.task["kind"] == "classification" else "rmse"


def read_curve(project: Project, trained: list[Trained]) -> CurveAdvice:
    metric = metric_of(project)
    if not trained:
        zero = {"n_measured": 0, "n_labels": 0, "n_points": 0}
        return CurveAdvice.of(metric=metric, measured_on="none", **zero, reason="There is no ensemble yet.")
    newest = trained[-1]
    metrics = newest.result.metrics
    today = newest.value(metric)
    alike = [each for each in trained if today is not None and _is_alike(each, newest)]
    points = [(each.result.n_labels, found) for each in alike if (found := each.value(metric)) is not None]
    forecast: Forecast | None = None
    reason: str | None = metrics.get("warning") if today is None else None
    if today is not None:
        try:
            forecast = _forecast(metric, points, newest.result.n_labels)
        except bc.InvalidData as error:
            reason = f"It is not known what more labels bring: {error}."
    return CurveAdvice.of(
        metric=metric,
        measured_on=metrics.get("measured_on", "none"),
        n_measured=metrics.get("n", 0),
        n_labels=newest.result.n_labels,
        value=today[0] if today else None,
        se=today[1] if today else None,
        n_points=len(points),
        in_100=forecast,
        reason=reason,
    )


def _is_alike(one: Trained, other: Trained) -> bool:
    """Whether the two can be points of one curve."""
    same_rows = all(one.result.metrics.get(name) == other.result.metrics.get(name) for name in ("measured_on", "n"))
    return same_rows and one.ensemble.posterior.get("name") == other.ensemble.posterior.get("name")


def _curve(metric: str, points: list[tuple[int, tuple[float, float]]]) -> "bc.advice.LearningCurve":
    n_labels, values, errors = [n for n, _ in points], [v for _, (v, _) in points], [se for _, (_, se) in points]
    return bc.advice.extrapolate(n_labels, values, errors, kind="accuracy" if metric == "accuracy" else "error")


def _forecast(metric: str, points: list[tuple[int, tuple[float, float]]], n_labels: int) -> Forecast:
    curve = _curve(metric, points)
    value, gain = curve.at(n_labels + MORE), curve.gain(MORE, since=n_labels)
    return Forecast(
        n_labels=n_labels + MORE,
        value=value.value,
        low=value.low,
        high=value.high,
        gain=gain.value,
        gain_low=gain.low,
        gain_high=gain.high,
    )


def read_agreement(project: Project, trained: list[Trained]) -> AgreementAdvice:
    measure = "kappa" if project.task["kind"] == "classification" else "concordance"
    found = [
        Comparison.of(each.ensemble, each.result, **each.agreement) for each in trained if each.agreement is not None
    ]
    last = [each for each in found if each.n_labels > each.n_labels_before][-LAST:]
    values = [each.value for each in last if each.value is not None]
    mean = sum(values) / LAST if len(values) == LAST else None
    is_stable = mean is not None and mean >= STABLE[measure] and last[-1].n_labels >= GROWTH * last[0].n_labels_before
    return AgreementAdvice.of(
        measure=measure,
        comparisons=found[-SHOWN:],
        mean_of_last_three=mean,
        threshold=STABLE[measure],
        is_stable=is_stable,
    )


def read_saved(project: Project, trained: list[Trained]) -> SavedAdvice:
    metric = metric_of(project)
    today = trained[-1].value(metric) if trained else None
    control = trained[-1].control if trained else None
    if today is None or control is None or not control["points"]:
        unknown = "The newest ensemble compared nothing with random rows; train again." if trained else None
        reason = (control or {}).get("reason") or unknown or "There is no ensemble yet."
        return SavedAdvice.of(reason=reason)
    points = [(point["n_labels"], _error_of(metric, point)) for point in control["points"]]
    try:
        curve = _curve(metric, points)
    except bc.InvalidData as error:
        return SavedAdvice.of(reason=f"The values of random rows give no curve: {error}.")
    needed = curve.needed(today[0], math.sqrt(1 - SHARED) * today[1])
    n_labels, furthest = trained[-1].result.n_labels, REACH * curve.n_labels
    low = round(min(needed.low, furthest)) - n_labels
    if needed.value > furthest:
        reason = (
            f"The curve of {curve.n_labels} labels of random rows says what {REACH} times as many give, no more; this "
            f"{metric} lies beyond. More labels of random rows would tell."
        )
        return SavedAdvice.of(low=low, reason=reason)
    value = round(needed.value)
    high = round(needed.high) - n_labels if needed.high <= furthest else None
    return SavedAdvice.of(labels=value - n_labels, low=low, high=high, random_needs=value)


def _error_of(metric: str, point: dict[str, Any]) -> tuple[float, float]:
    value, n = point[metric], point["n"]
    return value, bc.advice.binomial_error(value, n) if metric == "accuracy" else point[f"{metric}_se"]
