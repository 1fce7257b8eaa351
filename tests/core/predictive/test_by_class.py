"""Metrics class by class against scikit-learn, in one piece and in chunks."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support, roc_auc_score
from torch import Tensor

import bensemble_core as bc
from bensemble_core.predictive import CategoricalPredictive, GaussianPredictive, metrics
from bensemble_core.predictive.by_class import ClassCounts


def rows(n_classes: int, n: int = 2000, seed: int = 0) -> tuple[CategoricalPredictive, Tensor]:
    """Two members that know something of the class."""
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(n_classes, (n,), generator=g)
    logits = 1.5 * torch.randn(2, n, n_classes, generator=g, dtype=torch.float64)
    return CategoricalPredictive(logits=logits + 2 * torch.nn.functional.one_hot(y, n_classes)), y


@pytest.mark.parametrize("n_classes", [2, 3, 12])
def test_counts_shares_and_auroc_equal_scikit_learn(n_classes: int) -> None:
    pred, y = rows(n_classes)
    probs, truth = pred.mean().numpy(), y.numpy()
    evaluation = metrics.Evaluation()
    for start, stop in pairwise([0, 1, 700, 2000]):
        piece = torch.arange(start, stop)
        evaluation.add(pred.take(piece), y[piece])
    found = evaluation.by_class()
    assert found.confusion is not None
    np.testing.assert_array_equal(found.confusion.numpy(), confusion_matrix(truth, probs.argmax(1)))
    precision, recall, _, n = precision_recall_fscore_support(truth, probs.argmax(1))
    np.testing.assert_allclose(found.precision.numpy(), precision, rtol=1e-12)
    np.testing.assert_allclose(found.recall.numpy(), recall, rtol=1e-12)
    np.testing.assert_array_equal(found.n.numpy(), n)
    exact = roc_auc_score(truth, probs[:, 1] if n_classes == 2 else probs, multi_class="ovr")
    assert found.auroc == pytest.approx(exact, abs=1 / 2000)
    assert metrics.by_class(pred, y).auroc == found.auroc


def test_rows_of_equal_probability_count_one_half_and_certain_ones_are_told_apart() -> None:
    certain = CategoricalPredictive(logits=torch.tensor([[[0.0, -math.inf], [-math.inf, 0.0], [0.0, 0.0], [0.0, 0.0]]]))
    assert metrics.by_class(certain, torch.tensor([0, 1, 0, 1])).auroc == pytest.approx((2 + 1 + 0.5) / 4)
    assert metrics.by_class(certain, torch.tensor([0, 1, 0, 0])).auroc == 1.0


def test_a_class_without_rows_or_predictions_has_no_figures_and_one_class_alone_no_auroc() -> None:
    pred = CategoricalPredictive(logits=torch.tensor([[[3.0, 0.0, -1.0], [2.0, 0.0, -1.0], [0.0, 1.0, -1.0]]]))
    found = metrics.by_class(pred, torch.tensor([0, 1, 1]))
    assert found.precision[:2].tolist() == [0.5, 1.0]
    assert found.recall[:2].tolist() == [1.0, 0.5]
    assert math.isnan(found.precision[2])
    assert math.isnan(found.recall[2])
    assert found.auroc == 1.0  # of the two classes that occur
    assert math.isnan(metrics.by_class(pred, torch.tensor([1, 1, 1])).auroc)


def test_above_fifty_classes_there_is_no_matrix_and_memory_is_bounded() -> None:
    pred, y = rows(600, n=1500)
    counts = ClassCounts()
    counts.add(pred, y)
    found = counts.result()
    assert found.confusion is None
    assert counts.histogram.numel() <= 2 * 2**20
    assert found.recall.nanmean() == pytest.approx(
        float(np.mean([(pred.mean().argmax(1)[y == c] == c).double().mean() for c in y.unique()]))
    )
    expected = [roc_auc_score((y == c).numpy(), pred.mean()[:, c].numpy()) for c in y.unique()]
    assert found.auroc == pytest.approx(np.mean(expected), abs=1e-3)


def test_rows_of_another_kind_are_refused() -> None:
    counts = ClassCounts()
    with pytest.raises(bc.InvalidData, match="no rows"):
        counts.result()
    counts.add(*rows(3, n=4))
    with pytest.raises(bc.InvalidData, match="3 classes and was given 2"):
        counts.add(*rows(2, n=4))
    numbers = metrics.Evaluation()
    numbers.add(GaussianPredictive(means=torch.zeros(1, 3), variances=torch.ones(1, 3)), torch.zeros(3))
    with pytest.raises(bc.InvalidData, match="class predictions"):
        numbers.by_class()
