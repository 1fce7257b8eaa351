"""Metrics against hand-computed values, numerical integration and samples."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor

from bensemble_core.errors import InvalidData
from bensemble_core.predictive import CategoricalPredictive, GaussianPredictive, metrics


def of_probs(rows: list[list[float]]) -> CategoricalPredictive:
    """One member; each row its class probabilities."""
    return CategoricalPredictive(logits=torch.tensor([rows], dtype=torch.float64).log())


def gaussian(*outputs: int, seed: int = 0) -> tuple[GaussianPredictive, Tensor]:
    rng = np.random.default_rng(seed)
    shape = (4, 6, *outputs)
    pred = GaussianPredictive(
        means=torch.tensor(rng.normal(size=shape)),
        variances=torch.tensor(np.exp(rng.normal(size=shape))),
        log_weights=torch.tensor(rng.normal(size=4)),
    )
    return pred, torch.tensor(rng.normal(size=shape[1:]))


def weights(pred: GaussianPredictive) -> np.ndarray:
    assert pred.log_weights is not None
    return pred.log_weights.softmax(0).numpy()


FOUR = of_probs([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.45, 0.55]])
LABELS = torch.tensor([0, 1, 1, 1])


def test_class_metrics_have_their_hand_computed_values() -> None:
    assert metrics.accuracy(FOUR, LABELS) == 0.75
    assert metrics.nll(FOUR, LABELS) == pytest.approx(-np.log([0.9, 0.2, 0.7, 0.55]).mean())
    assert metrics.brier(FOUR, LABELS) == pytest.approx(2 * (0.1**2 + 0.8**2 + 0.3**2 + 0.45**2) / 4)


def test_calibration_error_is_hand_computed_over_fifteen_bins() -> None:
    rows = [[0.95, 0.05], [0.97, 0.03], [0.94, 0.06], [0.4, 0.6], [0.35, 0.65]]
    y = torch.tensor([0, 1, 0, 1, 1])
    # bins (14/15, 1]: three rows, confidence .95+.97+.94, two right; (8/15, 9/15]: .6, right; (9/15, 10/15]: .65, right
    expected = (abs(2 - 2.86) + abs(1 - 0.6) + abs(1 - 0.65)) / 5
    assert metrics.ece(of_probs(rows), y) == pytest.approx(expected, abs=1e-12)


def test_a_confidence_of_one_falls_into_the_last_bin() -> None:
    assert metrics.ece(of_probs([[1.0, 0.0]] * 4), torch.tensor([0, 0, 0, 1])) == pytest.approx(0.25)


def test_a_confidence_on_an_edge_falls_into_the_lower_bin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "N_BINS", 4)  # fifteenths are not exact in binary, quarters are
    pred = of_probs([[0.5, 0.5, 0.0], [0.4, 0.3, 0.3]])
    assert metrics.ece(pred, torch.tensor([2, 0])) == pytest.approx(abs(1 - 0.9) / 2)


def test_members_are_averaged_before_they_are_measured() -> None:
    logits = torch.tensor([[[0.9, 0.1]], [[0.2, 0.8]]], dtype=torch.float64).log()
    pred = CategoricalPredictive(logits=logits)
    assert metrics.nll(pred, torch.tensor([0])) == pytest.approx(-math.log(0.55))
    assert metrics.accuracy(pred, torch.tensor([0])) == 1.0


def test_an_answer_of_probability_zero_costs_infinitely_much() -> None:
    assert metrics.nll(of_probs([[1.0, 0.0]]), torch.tensor([1])) == math.inf


@pytest.mark.parametrize("outputs", [(), (2,)])
def test_regression_metrics_follow_their_definitions(outputs: tuple[int, ...]) -> None:
    pred, y = gaussian(*outputs)
    mean = np.tensordot(weights(pred), pred.means.numpy(), 1)
    assert metrics.rmse(pred, y) == pytest.approx(np.sqrt(((mean - y.numpy()) ** 2).mean()))
    densities = stats.norm.pdf(y.numpy(), pred.means.numpy(), pred.variances.sqrt().numpy())
    joint = densities.reshape(4, 6, -1).prod(-1)
    assert metrics.nll(pred, y) == pytest.approx(-np.log(weights(pred) @ joint).mean())


def test_crps_equals_the_integral_it_stands_for() -> None:
    pred, y = gaussian()
    for row in range(6):

        def cdf(z: float, row: int = row) -> float:
            members = stats.norm.cdf(z, pred.means[:, row].numpy(), pred.variances[:, row].sqrt().numpy())
            return float(weights(pred) @ members)

        at = y[row].item()
        below = integrate.quad(lambda z, cdf=cdf: cdf(z) ** 2, -60, at, points=[at - 3], limit=300)[0]
        above = integrate.quad(lambda z, cdf=cdf: (1 - cdf(z)) ** 2, at, 60, points=[at + 3], limit=300)[0]
        assert metrics.crps_rows(pred, y)[row].item() == pytest.approx(below + above, abs=1e-7)


def test_crps_equals_its_sample_estimate() -> None:
    pred, y = gaussian(seed=3)
    rng = np.random.default_rng(0)
    n = 200_000
    at = rng.choice(4, size=(2, n), p=weights(pred))
    means, sds = pred.means[:, 0].numpy(), pred.variances[:, 0].sqrt().numpy()
    first, second = means[at] + sds[at] * rng.normal(size=(2, n))
    estimate = np.abs(first - y[0].item()) - 0.5 * np.abs(first - second)
    found = metrics.crps_rows(pred, y)[0].item()
    assert found == pytest.approx(estimate.mean(), abs=4 * estimate.std() / math.sqrt(n))


def test_crps_of_one_gaussian_has_its_closed_form() -> None:
    pred = GaussianPredictive(means=torch.zeros(3, 1).double(), variances=torch.full((3, 1), 4.0).double())
    z = 0.7 / 2
    closed = 2 * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / math.sqrt(math.pi))
    assert metrics.crps(pred, torch.tensor([0.7]).double()) == pytest.approx(closed, abs=1e-7)


def test_evaluation_collects_every_metric_of_its_family() -> None:
    assert metrics.evaluate(FOUR, LABELS) == pytest.approx(
        {
            "n": 4,
            "accuracy": metrics.accuracy(FOUR, LABELS),
            "nll": metrics.nll(FOUR, LABELS),
            "ece": metrics.ece(FOUR, LABELS),
            "brier": metrics.brier(FOUR, LABELS),
        }
    )
    pred, y = gaussian(2)
    assert metrics.evaluate(pred, y) == pytest.approx(
        {"n": 6, "rmse": metrics.rmse(pred, y), "nll": metrics.nll(pred, y), "crps": metrics.crps(pred, y)}
    )


@pytest.mark.parametrize("cuts", [(1, 3), (2,), (5, 5)])
def test_chunks_evaluate_as_the_whole(cuts: tuple[int, ...]) -> None:
    logits = torch.randn(3, 6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    pred, y = CategoricalPredictive(logits=logits), torch.tensor([0, 1, 2, 3, 0, 1])
    regression, targets = gaussian(2)
    edges = [0, *cuts, 6]
    classes, numbers = metrics.Evaluation(), metrics.Evaluation()
    for start, stop in pairwise(edges):
        rows = torch.arange(start, stop)
        classes.add(pred.take(rows), y[rows])
        numbers.add(regression.take(rows), targets[rows])
    assert classes.result() == pytest.approx(metrics.evaluate(pred, y), rel=1e-12)
    assert numbers.result() == pytest.approx(metrics.evaluate(regression, targets), rel=1e-12)


def test_an_evaluation_without_rows_or_of_two_families_is_refused() -> None:
    with pytest.raises(InvalidData, match="no rows"):
        metrics.Evaluation().result()
    mixed = metrics.Evaluation()
    mixed.add(FOUR, LABELS)
    with pytest.raises(InvalidData, match="categorical"):
        mixed.add(*gaussian())


def test_standard_errors_are_those_of_the_mean_over_rows_however_they_come() -> None:
    rng = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 50, 4, generator=rng, dtype=torch.float64)
    y = torch.randint(4, (50,), generator=rng)
    classes = CategoricalPredictive(logits=logits)
    hits = (classes.mean().argmax(-1) == y).double()
    evaluation = metrics.Evaluation()
    for rows in (torch.arange(20), torch.arange(20, 50)):
        evaluation.add(classes.take(rows), y[rows])
    found = evaluation.standard_errors()
    assert set(found) == {"accuracy_se", "nll_se", "brier_se"}
    assert found["accuracy_se"] == pytest.approx(math.sqrt(float(hits.mean() * (1 - hits.mean())) / 50))
    assert found["nll_se"] == pytest.approx(float(classes.log_prob(y).std(correction=0)) / math.sqrt(50))
    means = torch.randn(2, 40, 3, generator=rng, dtype=torch.float64)
    numbers = GaussianPredictive(means=means, variances=torch.ones_like(means))
    targets = torch.randn(40, 3, generator=rng, dtype=torch.float64)
    evaluation = metrics.Evaluation()
    evaluation.add(numbers, targets)
    squares = (numbers.mean() - targets).square().mean(1)
    expected = float(squares.std(correction=0)) / math.sqrt(40) / (2 * float(squares.mean().sqrt()))
    assert evaluation.standard_errors()["rmse_se"] == pytest.approx(expected)
