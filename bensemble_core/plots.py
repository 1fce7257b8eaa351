"""Pictures: a regression over one input with its uncertainty, how far forecasts can be believed, and learning curves.

Matplotlib (the extra `plot`) is imported here alone. Figures are made without pyplot, so no window opens and nothing
global changes; `figure.savefig(path)` writes one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bensemble_core.ensemble import Ensemble
from bensemble_core.errors import InvalidData
from bensemble_core.predictive import CategoricalPredictive, GaussianPredictive, Predictive, metrics
from bensemble_core.predictive.metrics import Reliability

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bensemble_core.backtesting.curves import StrategyCurve

_RANDOM = "#888888"
_MEAN, _EPISTEMIC, _TOTAL, _DATA = "#1f4e79", "#5b9bd5", "#bdd7ee", "#222222"


def band(
    predictor: Ensemble | GaussianPredictive,
    x: Any,
    *,
    data: tuple[Any, Any] | None = None,
    deviations: float = 2.0,
    members: bool = False,
    axes: Axes | None = None,
) -> Figure:
    """Mean of a regression on one input, with bands of `deviations` standard deviations: epistemic inside total.

    x [N] or [N, 1] in any order; `data` (x, y) are drawn as points; `members` draws each member's mean too. Given a
    predictive, x are the rows it is of. Labels: "mean", "epistemic", "total", "data".
    """
    at = _column(x)
    if isinstance(predictor, Ensemble):
        predicted = predictor.predict(at[:, None].to(predictor.problem.dtype))
    else:
        predicted = predictor
    if not isinstance(predicted, GaussianPredictive) or predicted.n_outputs != 1:
        raise InvalidData("a band is drawn for a regression with one output; for classes there is plots.reliability")
    if predicted.n_rows != at.numel():
        raise InvalidData(f"expected as many x as predicted rows, got {at.numel()} and {predicted.n_rows}")
    order = at.argsort()
    at, predicted = at[order].double(), predicted.take(order.to(predicted.means.device))
    mean = _flat(predicted.mean())
    axes = _axes() if axes is None else axes
    for name, variance, colour in (
        ("total", predicted.variance(), _TOTAL),
        ("epistemic", predicted.epistemic_variance(), _EPISTEMIC),
    ):
        reach = deviations * _flat(variance).sqrt()
        axes.fill_between(at.numpy(), (mean - reach).numpy(), (mean + reach).numpy(), color=colour, lw=0, label=name)
    if members:
        axes.plot(at.numpy(), predicted.means.reshape(predicted.n_members, -1).T.cpu().numpy(), color=_MEAN, lw=0.5)
    axes.plot(at.numpy(), mean.numpy(), color=_MEAN, label="mean")
    if data is not None:
        axes.scatter(_column(data[0]).numpy(), _column(data[1]).numpy(), s=12, color=_DATA, zorder=3, label="data")
    axes.legend()
    return _figure(axes)


def reliability(
    predictor: Predictive | Reliability | Sequence[Reliability],
    y: Tensor | None = None,
    *,
    labels: Sequence[str] | None = None,
    axes: Axes | None = None,
) -> Figure:
    """How often forecasts came true against how sure they were; a calibrated forecast lies on the diagonal.

    Of classes: accuracy by confidence, in 15 bins (Guo et al. 2017), a bar of the rows in each bin beneath. Of numbers:
    the share of targets inside central intervals, by level. Or of ready-made bins, several to compare them.
    """
    if isinstance(predictor, (CategoricalPredictive, GaussianPredictive)):
        if y is None:
            raise InvalidData("a reliability diagram compares forecasts with answers; pass y")
        if isinstance(predictor, CategoricalPredictive):
            curves = [metrics.reliability(predictor, y)]
        else:
            curves = [metrics.coverage_curve(predictor, y)]
    else:
        curves = [predictor] if isinstance(predictor, Reliability) else list(predictor)
    axes = _axes() if axes is None else axes
    axes.plot([0, 1], [0, 1], color="#888888", ls="--", lw=1, label="honest")
    for i, curve in enumerate(curves):
        full = curve.count > 0
        label = labels[i] if labels is not None else None
        axes.plot(curve.confidence[full].numpy(), curve.accuracy[full].numpy(), marker="o", label=label)
    if len(curves) == 1 and bool((curves[0].count != curves[0].count[0]).any()):
        count = curves[0].count
        n = len(count)
        centres = (torch.arange(n, dtype=torch.float64) + 0.5) / n
        axes.bar(centres.numpy(), (count / count.sum()).numpy(), width=1 / n, color=_TOTAL, zorder=0, label="rows")
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="forecast", ylabel="came true")
    axes.legend()
    return _figure(axes)


def learning_curves(curves: Sequence[StrategyCurve], metric: str, *, axes: Axes | None = None) -> Figure:
    """The metric against labels, by strategy, with bands of one standard error over seeds; random rows in grey.

    `curves` and `metric` are those of `bc.backtest`. Labels: the strategies' names.
    """
    axes = _axes() if axes is None else axes
    for curve in curves:
        style: dict[str, Any] = {"color": _RANDOM, "ls": "--"} if curve.strategy == "random" else {}
        mean, se = torch.tensor(curve.mean[metric]), torch.tensor(curve.se[metric])
        (line,) = axes.plot(curve.n, mean.numpy(), marker="o", ms=3, label=curve.strategy, **style)
        low, high = (mean - se).numpy(), (mean + se).numpy()
        axes.fill_between(curve.n, low, high, color=line.get_color(), alpha=0.2, lw=0)
    axes.set(xlabel="labels", ylabel="RMSE" if metric == "rmse" else metric)
    axes.grid(alpha=0.3)
    axes.legend()
    return _figure(axes)


def _axes() -> Axes:
    try:
        from matplotlib.figure import Figure
    except ImportError as reason:
        raise ImportError("plots need Matplotlib, which is not installed: pip install 'matplotlib>=3.8'") from reason
    return Figure(figsize=(6, 4), layout="constrained").subplots()


def _figure(axes: Axes) -> Figure:
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure


def _column(values: Any) -> Tensor:
    """[N] of [N] or [N, 1]."""
    found = torch.as_tensor(values).detach().cpu()
    if found.ndim not in (1, 2) or found.numel() != found.shape[0]:
        raise InvalidData(f"expected one value a row, [rows] or [rows, 1], got shape {tuple(found.shape)}")
    return found.reshape(-1)


def _flat(values: Tensor) -> Tensor:
    return values.reshape(-1).double().cpu()
