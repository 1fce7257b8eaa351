"""Ranking, selective and interval metrics against scikit-learn, closed forms and counting; uncertainty in its parts."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.metrics import auc, roc_auc_score, roc_curve
from torch import Tensor

import bensemble_core as bc
from bensemble_core.predictive import CategoricalPredictive, GaussianPredictive, metrics


def classes(n_rows: int = 300, seed: int = 0) -> tuple[CategoricalPredictive, Tensor]:
    g = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(4, n_rows, 3, generator=g, dtype=torch.float64)
    weights = torch.randn(4, generator=g, dtype=torch.float64)
    return CategoricalPredictive(logits=logits, log_weights=weights), torch.randint(3, (n_rows,), generator=g)


def numbers(*shape: int, seed: int = 0) -> tuple[GaussianPredictive, Tensor]:
    g = torch.Generator().manual_seed(seed)
    means = torch.randn(3, *shape, generator=g, dtype=torch.float64)
    variances = torch.rand(3, *shape, generator=g, dtype=torch.float64) + 0.2
    pred = GaussianPredictive(means=means, variances=variances, log_weights=torch.tensor([0.2, 0.3, 0.5]).log())
    return pred, 1.5 * torch.randn(*shape, generator=g, dtype=torch.float64)


@pytest.mark.parametrize("levels", [3, 20, 10**9])
def test_auroc_equals_scikit_learn_with_and_without_ties(levels: int) -> None:
    rng = np.random.default_rng(0)
    for n in (2, 7, 500):
        scores = rng.integers(levels, size=n) / 7
        marks = rng.random(n) < 0.3
        marks[:2] = [True, False]
        found = metrics.auroc(torch.tensor(scores), torch.tensor(marks))
        assert found == pytest.approx(roc_auc_score(marks, scores), abs=1e-12)
        rate, hits, _ = roc_curve(marks, scores)
        assert found == pytest.approx(auc(rate, hits), abs=1e-12)


def test_auroc_of_two_gaussians_is_near_its_closed_form() -> None:
    rng = np.random.default_rng(1)
    inside, outside = torch.tensor(rng.normal(size=20_000)), torch.tensor(rng.normal(1.0, 2.0, size=20_000))
    assert metrics.ood_auroc(inside, outside) == pytest.approx(stats.norm.cdf(1 / math.sqrt(5)), abs=0.01)
    assert metrics.ood_auroc(inside, inside) == 0.5
    assert metrics.ood_auroc(torch.zeros(3), torch.ones(5)) == 1.0
    assert metrics.ood_auroc(torch.ones(3), torch.zeros(5)) == 0.0


def test_auroc_without_both_kinds_or_with_scores_that_are_no_numbers_is_refused() -> None:
    with pytest.raises(bc.InvalidData, match="both kinds, got 0 positive and 3"):
        metrics.auroc(torch.randn(3, generator=torch.Generator().manual_seed(0)), torch.zeros(3))
    with pytest.raises(bc.InvalidData, match="row 1 has nan"):
        metrics.auroc(torch.tensor([0.0, math.nan]), torch.tensor([0, 1]))
    with pytest.raises(bc.InvalidData, match="as many marks as scores"):
        metrics.auroc(torch.zeros(3), torch.ones(2))


def test_risk_grows_along_the_order_of_uncertainty() -> None:
    curve = metrics.risk_coverage(torch.tensor([0.3, 0.1, 0.2, 0.4]), torch.tensor([0.0, 0.0, 1.0, 1.0]))
    assert curve.coverage.tolist() == [0.25, 0.5, 0.75, 1.0]
    assert curve.risk.tolist() == pytest.approx([0, 1 / 2, 1 / 3, 1 / 2])
    assert curve.area == pytest.approx((0 + 1 / 2 + 1 / 3 + 1 / 2) / 4)


def test_risk_of_tied_rows_is_the_average_over_their_orders() -> None:
    uncertainty, losses = torch.tensor([1.0, 1.0, 1.0, 0.0, 2.0]), torch.tensor([3.0, 0.0, 6.0, 1.0, 2.0])
    rng = np.random.default_rng(0)
    orders = []
    for _ in range(1000):
        jitter = torch.tensor(rng.random(5)) * 1e-6
        orders.append(metrics.risk_coverage(uncertainty.double() + jitter, losses).risk)
    found = metrics.risk_coverage(uncertainty, losses).risk
    torch.testing.assert_close(found, torch.stack(orders).mean(0), rtol=0, atol=0.15)
    assert found.tolist() == pytest.approx([1, (1 + 3) / 2, (1 + 6) / 3, (1 + 9) / 4, 12 / 5])
    shuffled = torch.tensor([2, 4, 0, 3, 1])
    assert torch.equal(found, metrics.risk_coverage(uncertainty[shuffled], losses[shuffled]).risk)


def test_a_perfect_order_has_the_closed_form_area_and_a_useless_one_the_error_rate() -> None:
    n, wrong = 1000, 100
    losses = torch.cat([torch.zeros(n - wrong), torch.ones(wrong)])
    perfect = metrics.risk_coverage(torch.arange(n), losses).area
    assert perfect == pytest.approx(sum((k - 900) / k for k in range(901, 1001)) / n, abs=1e-12)
    assert metrics.risk_coverage(torch.zeros(n), losses).area == pytest.approx(wrong / n)


def test_aurc_of_a_predictive_uses_its_own_confidence() -> None:
    pred, y = classes()
    probs = pred.mean()
    expected = metrics.risk_coverage(1 - probs.amax(1), (probs.argmax(1) != y).double()).area
    assert metrics.aurc(pred, y) == pytest.approx(expected, abs=1e-12)
    assert metrics.aurc(pred, y, uncertainty=torch.zeros(300)) == pytest.approx(1 - metrics.accuracy(pred, y))
    regression, targets = numbers(50, 2)
    squares = (regression.mean() - targets).square().sum(-1)
    expected = metrics.risk_coverage(regression.variance().sum(-1), squares).area
    assert metrics.aurc(regression, targets) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("outputs", [(), (2,)])
@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_coverage_and_width_are_those_of_the_quantiles(level: float, outputs: tuple[int, ...]) -> None:
    pred, y = numbers(200, *outputs)
    low, high = pred.quantile((1 - level) / 2), pred.quantile((1 + level) / 2)
    assert metrics.interval_coverage(pred, y, level=level) == float(((low <= y) & (y <= high)).double().mean())
    assert metrics.interval_width(pred, level=level) == pytest.approx(float((high - low).mean()), abs=1e-12)


def test_coverage_of_an_honest_mixture_is_its_level_and_width_of_a_gaussian_is_closed() -> None:
    pred, _ = numbers(20_000)
    rng = np.random.default_rng(0)
    member = torch.tensor(rng.choice(3, size=20_000, p=[0.2, 0.3, 0.5]))
    rows = torch.arange(20_000)
    noise = torch.tensor(rng.normal(size=20_000))
    y = pred.means[member, rows] + pred.variances[member, rows].sqrt() * noise
    for level in (0.5, 0.9):
        assert metrics.interval_coverage(pred, y, level=level) == pytest.approx(level, abs=0.01)
    one = GaussianPredictive(means=torch.zeros(2, 4).double(), variances=torch.full((2, 4), 4.0).double())
    assert metrics.interval_width(one, level=0.95) == pytest.approx(4 * 1.959963984540054, abs=1e-9)
    assert metrics.sharpness(one) == pytest.approx(2.0)
    curve = metrics.coverage_curve(pred, y)
    torch.testing.assert_close(curve.accuracy, curve.confidence, rtol=0, atol=0.015)
    assert curve.confidence.tolist() == pytest.approx([i / 16 for i in range(1, 16)])


def test_the_coverage_curve_counts_as_interval_coverage_does() -> None:
    pred, y = numbers(150)
    curve = metrics.coverage_curve(pred, y, n_levels=9)
    counted = [metrics.interval_coverage(pred, y, level=i / 10) for i in range(1, 10)]
    assert curve.accuracy.tolist() == pytest.approx(counted, abs=1e-12)


def test_a_level_outside_its_range_is_refused() -> None:
    pred, y = numbers(5)
    for level in (0.0, 1.0, 90):
        with pytest.raises(bc.InvalidOption, match="strictly between"):
            metrics.interval_coverage(pred, y, level=level)
        with pytest.raises(bc.InvalidOption, match="strictly between"):
            metrics.interval_width(pred, level=level)


def test_reliability_bins_are_those_behind_the_calibration_error() -> None:
    pred, y = classes()
    bins = metrics.reliability(pred, y)
    full = bins.count > 0
    gap = (bins.accuracy - bins.confidence).abs()[full] * bins.count[full]
    assert float(gap.sum() / 300) == pytest.approx(metrics.ece(pred, y), abs=1e-12)
    assert bool(bins.accuracy[~full].isnan().all())
    confidence, hit = pred.mean().amax(1), pred.mean().argmax(1) == y
    few = metrics.reliability(pred, y, n_bins=5)
    for b in range(5):
        inside = (confidence > b / 5) & (confidence <= (b + 1) / 5)
        assert int(few.count[b]) == int(inside.sum())
        if inside.any():
            assert float(few.accuracy[b]) == pytest.approx(float(hit[inside].double().mean()))
            assert float(few.confidence[b]) == pytest.approx(float(confidence[inside].mean()))


def test_streamed_reliability_and_intervals_are_those_of_the_whole() -> None:
    pred, y = classes()
    regression, targets = numbers(300, 2)
    kinds, values = metrics.Evaluation(), metrics.Evaluation(level=0.8)
    for start, stop in pairwise([0, 7, 150, 300]):
        rows = torch.arange(start, stop)
        kinds.add(pred.take(rows), y[rows])
        values.add(regression.take(rows), targets[rows])
    whole = metrics.reliability(pred, y)
    streamed = kinds.reliability()
    for a, b in ((streamed.count, whole.count), (streamed.accuracy, whole.accuracy)):
        torch.testing.assert_close(a, b, equal_nan=True)
    result = values.result()
    assert result["coverage"] == pytest.approx(metrics.interval_coverage(regression, targets, level=0.8))
    assert result["width"] == pytest.approx(metrics.interval_width(regression, level=0.8))
    assert metrics.evaluate(regression, targets, level=0.8) == pytest.approx(result)
    with pytest.raises(bc.InvalidData, match="class predictions"):
        values.reliability()
    with pytest.raises(bc.InvalidData, match="predicted numbers"):
        kinds.coverage_curve()
    curve, expected = values.coverage_curve(), metrics.coverage_curve(regression, targets, n_levels=9)
    torch.testing.assert_close(curve.confidence, torch.arange(1, 10, dtype=torch.float64) / 10)
    torch.testing.assert_close(curve.accuracy, expected.accuracy)


def test_an_evaluation_bins_by_hand_as_the_table_says() -> None:
    """Two classes; confidences .55 .95 .92 .58 .71, of which the predicted class is right in 0 1 1 1 0."""
    first = torch.tensor([0.55, 0.95, 0.08, 0.42, 0.71], dtype=torch.float64)
    pred = CategoricalPredictive(logits=torch.stack([first, 1 - first], 1).log()[None])
    evaluation = metrics.Evaluation(n_bins=10)
    for rows in (torch.tensor([0, 1]), torch.tensor([2, 3, 4])):
        evaluation.add(pred.take(rows), torch.tensor([1, 0, 1, 1, 1])[rows])
    found = evaluation.reliability()
    assert found.count.tolist() == [0, 0, 0, 0, 0, 2, 0, 1, 0, 2]
    assert found.confidence[[5, 7, 9]].tolist() == pytest.approx([0.565, 0.71, 0.935])
    assert found.accuracy[[5, 7, 9]].tolist() == [0.5, 0.0, 1.0]
    assert evaluation.result()["ece"] == metrics.evaluate(pred, torch.tensor([1, 0, 1, 1, 1]))["ece"]


def test_coverage_counts_targets_by_hand() -> None:
    """Of N(0, 1): |y| below .1257 is inside the 10 % interval, below .6745 the 50 % one, below 1.6449 the 90 % one."""
    y = torch.tensor([0.1, -0.5, 0.7, 1.6, 3.0], dtype=torch.float64)
    pred = GaussianPredictive(means=torch.zeros(1, 5).double(), variances=torch.ones(1, 5).double())
    evaluation = metrics.Evaluation()
    for rows in (torch.tensor([0]), torch.tensor([1, 2, 3, 4])):
        evaluation.add(pred.take(rows), y[rows])
    inside = [1, 1, 1, 2, 2, 3, 3, 3, 4]  # P(|y| < .5) = .383, P(|y| < .7) = .516, P(|y| < 1.6) = .890
    assert evaluation.coverage_curve().accuracy.tolist() == pytest.approx([n / 5 for n in inside])


def test_class_uncertainty_is_split_as_the_known_case_says() -> None:
    pred = CategoricalPredictive(logits=torch.tensor([[[0.9, 0.1]], [[0.2, 0.8]]], dtype=torch.float64).log())
    parts = pred.decompose()
    assert float(parts.epistemic) == pytest.approx(0.2753961152, abs=1e-10)
    assert float(parts.total) == pytest.approx(stats.entropy([0.55, 0.45]), abs=1e-12)
    squares = pred.decompose("variance")
    assert float(squares.total) == pytest.approx(0.495, abs=1e-12)
    assert float(squares.epistemic) == pytest.approx(0.245, abs=1e-12)


def test_parts_add_up_to_the_whole() -> None:
    pred, _ = classes()
    regression, _ = numbers(40)
    several, _ = numbers(40, 2)
    mixture = regression.decompose("entropy", method="mixture")
    cases = [
        (pred.decompose(), pred.entropy()),
        (pred.decompose("variance"), 1 - pred.mean().square().sum(-1)),
        (regression.decompose(), regression.variance()),
        (regression.decompose("entropy"), regression.entropy()),
        (several.decompose(), several.variance()),
        (several.decompose("entropy"), several.entropy()),
        (mixture, regression.entropy(method="mixture")),
    ]
    for parts, total in cases:
        torch.testing.assert_close(parts.total, total)
        torch.testing.assert_close(parts.aleatoric + parts.epistemic, parts.total)
        assert bool((parts.epistemic >= 0).all())
    torch.testing.assert_close(mixture.aleatoric, regression.expected_entropy())


def test_members_that_agree_leave_noise_alone() -> None:
    means, variances = torch.ones(3, 2).double(), torch.tensor([[1.0, 4.0]]).double().expand(3, 2)
    pred = GaussianPredictive(means=means, variances=variances)
    assert pred.decompose().epistemic.tolist() == [0.0, 0.0]
    assert pred.decompose().aleatoric.tolist() == pytest.approx([1.0, 4.0])
    closed = [0.5 * math.log(2 * math.pi * math.e * v) for v in (1, 4)]
    assert pred.decompose("entropy").total.tolist() == pytest.approx(closed, abs=1e-12)
    with pytest.raises(bc.InvalidOption, match='"entropy" or "variance"'):
        pred.decompose("spread")  # type: ignore[arg-type]
