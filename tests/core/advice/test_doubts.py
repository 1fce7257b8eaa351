"""Labels that were changed are found by what was predicted without them."""

import math

import numpy as np
import pytest
import torch

import bensemble_core as bc
from bensemble_core.advice import doubt_labels, doubt_numbers


def blobs(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Three classes, of which a good model gets about 97 % right."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, size=n)
    centres = np.array([[0.0, 0.0], [4.0, 0.0], [2.0, 3.5]])
    return (centres[y] + rng.normal(size=(n, 2))).astype(np.float32), y


def test_most_of_five_percent_flipped_labels_are_found_and_most_that_are_found_were_flipped() -> None:
    hits = found = flips = strong_hits = strong = 0
    for seed in range(3):
        x, y = blobs(200, seed)
        rng = np.random.default_rng(seed)
        flipped = rng.choice(200, size=10, replace=False)
        y[flipped] = (y[flipped] + rng.integers(1, 3, size=10)) % 3
        fitted = bc.fit("auto", None, (x, y), likelihood=bc.Categorical(n_classes=3), seed=0)
        held_out = fitted.held_out()
        assert held_out is not None
        predictive, is_held = held_out
        assert bool(is_held.all())
        doubts = doubt_labels(predictive.mean().numpy(), y)
        assert list(doubts.score) == sorted(doubts.score, reverse=True)
        sure = doubts.rows[doubts.is_strong]
        hits, found, flips = hits + len(np.intersect1d(doubts.rows, flipped)), found + len(doubts), flips + 10
        strong_hits, strong = strong_hits + len(np.intersect1d(sure, flipped)), strong + len(sure)
    assert hits / flips > 0.7
    assert hits / found > 0.6
    assert strong >= 5
    assert strong_hits / strong > 0.8


def test_right_labels_of_calibrated_predictions_give_the_strong_doubts_that_are_expected() -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet([0.6, 0.6, 0.6], size=20_000)
    y = np.array([rng.choice(3, p=row) for row in p])
    doubts = doubt_labels(p, y)
    assert doubts.n_sure == 6_000
    assert abs(doubts.is_strong.sum() - doubts.expected) < 3 * math.sqrt(doubts.expected)


def test_a_doubt_is_by_the_mean_confidence_of_each_class() -> None:
    p = np.array([[0.9, 0.1], [0.7, 0.3], [0.05, 0.95], [0.4, 0.6], [0.45, 0.55]])
    doubts = doubt_labels(p, np.array([0, 0, 0, 1, 1]))  # usual: 0.55 and 0.575
    assert doubts.rows.tolist() == [2]
    assert doubts.predicted.tolist() == [1]
    assert doubts.score.tolist() == pytest.approx([0.9])
    assert (doubts.is_strong.tolist(), doubts.n_sure) == ([True], 2)
    assert doubts.expected == pytest.approx(0.05 + 0.1)
    assert len(doubt_labels(np.full((3, 2), 0.5), np.array([0, 0, 0]))) == 0  # a class that nobody named


def test_numbers_beyond_four_standard_deviations_are_doubted_the_furthest_first() -> None:
    y = np.array([0.0, 9.0, 4.1, -12.0])
    doubts = doubt_numbers(y, np.zeros(4), np.array([1.0, 4.0, 1.0, 4.0]))
    assert doubts.rows.tolist() == [3, 1, 2]
    assert doubts.score.tolist() == pytest.approx([6.0, 4.5, 4.1])
    assert doubts.expected == pytest.approx(4 * 6.334e-5, rel=1e-3)
    both = doubt_numbers(np.array([[0.0, 5.0], [0.0, 0.0]]), np.zeros((2, 2)), np.ones((2, 2)))
    assert both.rows.tolist() == [0]


def test_what_auto_held_out_is_in_the_units_of_the_labels() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(60, 1)).astype(np.float32)
    y = (1000 + 50 * x[:, 0] + rng.normal(0, 2, size=60)).astype(np.float32)
    y[7] += 60
    fitted = bc.fit("auto", None, (x, y), likelihood="gaussian", seed=0)
    held_out = fitted.held_out()
    assert held_out is not None
    predictive = held_out[0]
    assert predictive.n_rows == 60
    mean, sd = predictive.mean(), predictive.variance().sqrt()
    assert float((mean - torch.from_numpy(y)).abs().median()) < 5
    assert 1 < float(sd.median()) < 20
    doubts = doubt_numbers(y, mean.numpy(), predictive.variance().numpy())
    assert doubts.rows.tolist() == [7]


def test_a_method_that_holds_nothing_out_says_so() -> None:
    x, y = blobs(12, 0)
    assert bc.fit("map", {"name": "mlp", "hidden": [2]}, (x, y), likelihood="categorical", epochs=1).held_out() is None
    assert math.isfinite(doubt_labels(np.eye(3)[y], y).expected)


def test_without_rows_nothing_is_doubted() -> None:
    assert len(doubt_labels(np.empty((0, 3)), np.empty(0, dtype=np.int64))) == 0
    for shape in ((0,), (0, 2)):
        assert len(doubt_numbers(np.empty(shape), np.empty(shape), np.empty(shape))) == 0
