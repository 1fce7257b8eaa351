"""Agreement of two versions, against scikit-learn and closed forms."""

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from bensemble_core.advice import concordance, kappa, relative_change
from bensemble_core.errors import InvalidData


def test_kappa_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    for share in (0.0, 0.3, 1.0):
        first = rng.integers(0, 4, size=200)
        second = np.where(rng.uniform(size=200) < share, rng.integers(0, 6, size=200), first)
        assert kappa(first, second) == pytest.approx(cohen_kappa_score(first, second))
    assert kappa(["a", "a"], ["a", "a"]) == 1.0


def test_concordance_falls_with_a_shift_that_correlation_does_not_see() -> None:
    x = np.array([-1.0, 1.0])
    assert concordance(x, x) == 1.0
    assert concordance(x, -x) == -1.0
    assert concordance(x, x + 1) == pytest.approx(1 - 1 / 3)  # (1)² / (1 + 1 + 1²)
    assert concordance(np.stack([x, x], 1), np.stack([x, -x], 1)) == -1.0  # the worst output


def test_change_is_relative_to_the_spread_of_the_predictions() -> None:
    x = np.array([-2.0, 2.0])
    assert relative_change(x + 0.1, x) == pytest.approx(0.05)
    assert relative_change(np.ones(3), np.ones(3)) == 0.0
    assert relative_change(np.zeros(3), np.ones(3)) == np.inf


def test_other_rows_are_refused() -> None:
    with pytest.raises(InvalidData, match="same rows"):
        kappa([1, 2], [1])
