"""Learning curves are carried on with intervals that hold what they promise."""

import math

import numpy as np
import pytest

from bensemble_core.advice import Interval, binomial_error, extrapolate
from bensemble_core.errors import InvalidData

LABELS = (20, 40, 60, 80, 120, 160)


def law(a: float, b: float, c: float, n: float) -> float:
    return a + b * n**-c


def test_the_interval_covers_the_law_in_95_of_100_runs() -> None:
    """Over several laws and both ways to err: each point on rows of its own, or all points on the same rows."""
    rng = np.random.default_rng(0)
    covered, n_measured = [], 400
    for a, b, c in ((0.05, 1.5, 0.6), (0.1, 0.0, 0.5), (0.02, 0.8, 0.3), (0.2, 2.0, 0.9), (0.01, 3.0, 0.8)):
        for run in range(24):
            rows = rng.uniform(size=n_measured)
            values = []
            for n in LABELS:
                own = rng.uniform(size=n_measured)
                difficulty = np.where(rng.uniform(size=n_measured) < 0.6 * (run % 2), rows, own)
                values.append(float((difficulty > law(a, b, c, n)).mean()))
            errors = [binomial_error(value, n_measured) for value in values]
            found = extrapolate(LABELS, values, errors, kind="accuracy").at(260)
            covered.append(found.low <= 1 - law(a, b, c, 260) <= found.high)
    assert 0.92 < np.mean(covered) <= 1.0


def test_a_flat_curve_has_nothing_more_to_gain_and_a_steep_one_has() -> None:
    flat = extrapolate(LABELS, [0.9, 0.899, 0.9, 0.901, 0.9, 0.9], [0.01] * 6, kind="accuracy")
    assert flat.gain(100).value < 0.002
    assert flat.at(260).value == pytest.approx(0.9, abs=0.01)
    steep = extrapolate(LABELS, [1 - law(0, 2, 0.5, n) for n in LABELS], [0.01] * 6, kind="accuracy")
    truth = law(0, 2, 0.5, 160) - law(0, 2, 0.5, 260)
    assert steep.gain(100).low < truth < steep.gain(100).high
    assert steep.gain(100).value > 0.02


def test_exact_points_of_a_law_give_the_law_back() -> None:
    for kind, turned in (("accuracy", True), ("error", False)):
        values = [law(0.1, 2.0, 0.7, n) for n in (10, 20, 40, 80, 160, 320, 640)]
        curve = extrapolate(
            (10, 20, 40, 80, 160, 320, 640),
            [1 - value if turned else value for value in values],
            [1e-4] * 7,
            kind=kind,  # type: ignore[arg-type]
        )
        expected = law(0.1, 2.0, 0.7, 1000)
        assert curve.at(1000).value == pytest.approx(1 - expected if turned else expected, abs=0.004)
        reached = law(0.1, 2.0, 0.7, 500)
        assert curve.needed(1 - reached if turned else reached).value == pytest.approx(500, rel=0.1)


def test_a_value_that_no_number_of_labels_reaches_needs_infinitely_many() -> None:
    curve = extrapolate(LABELS, [0.9] * 6, [0.003] * 6, kind="accuracy")
    needed = curve.needed(0.99, 0.001)
    assert needed.value == needed.high == math.inf
    assert curve.needed(0.9, 0.003).low < 160


def test_units_of_an_error_do_not_matter() -> None:
    values = [law(0.3, 4.0, 0.5, n) for n in LABELS]
    one = extrapolate(LABELS, values, [0.05] * 6, kind="error").at(260)
    many = extrapolate(LABELS, [1000 * v for v in values], [50.0] * 6, kind="error").at(260)
    assert many == Interval(**{name: pytest.approx(1000 * value) for name, value in vars(one).items()})


def test_too_few_points_are_refused_with_what_to_do() -> None:
    with pytest.raises(InvalidData, match="3 different numbers of labels, got 2; label more rows"):
        extrapolate([20, 20, 40], [0.5, 0.5, 0.6], [0.1] * 3, kind="accuracy")
    with pytest.raises(InvalidData, match="standard errors above 0"):
        extrapolate([20, 30, 40], [0.5, 0.5, 0.6], [0.1, 0.0, 0.1], kind="accuracy")


def test_a_share_of_all_rows_is_not_certain() -> None:
    assert binomial_error(1.0, 98) == pytest.approx(math.sqrt(0.99 * 0.01 / 98))
    assert binomial_error(0.5, 10_000) == pytest.approx(0.005, rel=1e-3)
