"""Pictures by the numbers drawn in them."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.figure import Figure

import bensemble_core as bc
from bensemble_core import plots
from bensemble_core.backtesting.curves import StrategyCurve, estimate
from bensemble_core.predictive import CategoricalPredictive, GaussianPredictive, metrics

mpl.use("Agg")


def line(axes: Axes, label: str) -> np.ndarray:
    (found,) = [item for item in axes.lines if item.get_label() == label]
    return np.asarray(found.get_xydata())


def edges(axes: Axes, label: str, at: float) -> tuple[float, float]:
    """Lower and upper end of a filled band at x."""
    (found,) = [c for c in axes.collections if isinstance(c, PolyCollection) and c.get_label() == label]
    vertices = np.asarray(found.get_paths()[0].vertices)
    heights = vertices[np.isclose(vertices[:, 0], at), 1]
    return float(heights.min()), float(heights.max())


def numbers() -> tuple[torch.Tensor, GaussianPredictive]:
    g = torch.Generator().manual_seed(0)
    x = torch.tensor([2.0, 0.0, 1.0], dtype=torch.float64)
    means = torch.randn(4, 3, generator=g, dtype=torch.float64)
    variances = torch.rand(4, 3, generator=g, dtype=torch.float64) + 0.1
    return x, GaussianPredictive(means=means, variances=variances)


def test_a_band_shows_mean_epistemic_and_total_spread_and_the_data() -> None:
    x, pred = numbers()
    figure = plots.band(pred, x, data=([0.5, 1.5], [1.0, -1.0]), deviations=3)
    axes = figure.axes[0]
    drawn = line(axes, "mean")
    assert drawn[:, 0].tolist() == [0.0, 1.0, 2.0]  # in order, whatever the order of the rows
    assert drawn[:, 1].tolist() == pytest.approx(pred.mean()[[1, 2, 0]].tolist())
    for row, at in enumerate([2.0, 0.0, 1.0]):
        mean = float(pred.mean()[row])
        for label, variance in (("total", pred.variance()), ("epistemic", pred.epistemic_variance())):
            reach = 3 * float(variance[row]) ** 0.5
            assert edges(axes, label, at) == pytest.approx((mean - reach, mean + reach))
    (points,) = [c for c in axes.collections if isinstance(c, PathCollection)]
    assert np.asarray(points.get_offsets()).tolist() == [[0.5, 1.0], [1.5, -1.0]]
    legend = axes.get_legend()
    assert legend is not None
    assert {t.get_text() for t in legend.get_texts()} == {"mean", "epistemic", "total", "data"}


def test_a_band_of_an_ensemble_draws_its_predictions_and_members() -> None:
    x = torch.linspace(-1, 1, 20)
    fitted = bc.fit(
        "deep_ensemble", {"name": "mlp", "hidden": [4]}, (x[:, None], x.square()), likelihood="gaussian", epochs=2
    )
    ensemble = fitted.sample(3)
    axes = plots.band(ensemble, x.numpy(), members=True).axes[0]
    pred = ensemble.predict(x[:, None])
    assert isinstance(pred, GaussianPredictive)
    assert line(axes, "mean")[:, 1].tolist() == pytest.approx(pred.mean().tolist(), abs=1e-6)
    curves = [np.asarray(item.get_ydata()) for item in axes.lines if item.get_label() != "mean"]
    np.testing.assert_allclose(np.stack(curves), pred.means.numpy(), rtol=1e-6)


def test_a_reliability_diagram_draws_the_bins() -> None:
    g = torch.Generator().manual_seed(0)
    pred = CategoricalPredictive(logits=2 * torch.randn(2, 200, 3, generator=g, dtype=torch.float64))
    y = torch.randint(3, (200,), generator=g)
    bins = metrics.reliability(pred, y)
    full = bins.count > 0
    axes = plots.reliability(pred, y).axes[0]
    (curve,) = [item for item in axes.lines if item.get_label() != "honest"]
    assert np.asarray(curve.get_xdata()).tolist() == bins.confidence[full].tolist()
    assert np.asarray(curve.get_ydata()).tolist() == bins.accuracy[full].tolist()
    assert line(axes, "honest").tolist() == [[0, 0], [1, 1]]
    assert [bar.get_height() for bar in axes.patches] == pytest.approx((bins.count / 200).tolist())  # type: ignore[attr-defined]


def test_a_reliability_diagram_of_numbers_draws_coverage_by_level() -> None:
    _, pred = numbers()
    y = torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)
    axes = plots.reliability(pred, y).axes[0]
    expected = metrics.coverage_curve(pred, y)
    drawn = np.asarray(axes.lines[1].get_xydata())
    assert drawn[:, 0].tolist() == expected.confidence.tolist()
    assert drawn[:, 1].tolist() == expected.accuracy.tolist()
    assert not axes.patches


def test_several_curves_are_drawn_into_axes_handed_in_and_written_to_a_file(tmp_path: Path) -> None:
    _, pred = numbers()
    curves = [metrics.coverage_curve(pred, torch.zeros(3).double() + shift) for shift in (0.0, 1.0)]
    figure = Figure()
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    assert plots.reliability(curves, labels=["before", "after"], axes=right) is figure
    assert [item.get_label() for item in right.lines] == ["honest", "before", "after"]
    assert not left.lines
    figure.savefig(tmp_path / "both.png")
    assert (tmp_path / "both.png").stat().st_size > 1000


def test_what_cannot_be_drawn_is_refused() -> None:
    x, pred = numbers()
    with pytest.raises(bc.InvalidData, match="as many x as predicted rows"):
        plots.band(pred, x[:2])
    with pytest.raises(bc.InvalidData, match="one value a row"):
        plots.band(pred, torch.zeros(3, 2))
    with pytest.raises(bc.InvalidData, match="there is plots"):
        plots.band(CategoricalPredictive(logits=torch.zeros(1, 3, 2)), x)  # type: ignore[arg-type]
    with pytest.raises(bc.InvalidData, match="pass y"):
        plots.reliability(pred)


def test_learning_curves_are_drawn_with_their_standard_errors() -> None:
    found = [
        StrategyCurve(
            strategy=name,
            n=(10, 20),
            mean={"accuracy": (0.5, 0.7 + shift)},
            se={"accuracy": (0.1, 0.05)},
            area=estimate([0.6, 0.7]),
            gain=estimate([0.0, 0.1]),
            saved=None,
            saved_near_all=None,
        )
        for name, shift in (("default", 0.1), ("random", 0.0))
    ]
    (axes,) = plots.learning_curves(found, "accuracy").axes
    np.testing.assert_allclose(line(axes, "default"), [[10, 0.5], [20, 0.8]], rtol=1e-6)
    vertices = np.asarray(axes.collections[1].get_paths()[0].vertices)
    heights = vertices[np.isclose(vertices[:, 0], 20), 1]
    np.testing.assert_allclose((heights.min(), heights.max()), (0.65, 0.75), rtol=1e-6)
    assert axes.get_xlabel() == "labels"
