"""Curves made by hand: labels saved, areas and the choice are what a pencil gives."""

import math

import numpy as np
import pytest
from scipy import stats

from bensemble_core.backtesting.backtest import _prepare
from bensemble_core.backtesting.curves import BacktestRun, Comparison, CurvePoint, estimate, labels_to

N = (10, 20, 30)


def runs(name: str, *curves: list[float], metric: str = "accuracy") -> list[BacktestRun]:
    return [
        BacktestRun(
            strategy=name,
            seed=seed,
            points=tuple(CurvePoint(n=n, metrics={metric: value}) for n, value in zip(N, values, strict=True)),
        )
        for seed, values in enumerate(curves)
    ]


def comparison(metric: str = "accuracy", smallest: float = 0.0, **curves: list[list[float]]) -> Comparison:
    return Comparison(
        metric=metric,
        n=N,
        runs={name: runs(name, *found, metric=metric) for name, found in curves.items()},
        smallest=smallest,
    )


def flat(smallest: float = 0.0, metric: str = "accuracy", **values: list[float]) -> Comparison:
    """Each strategy has the same value in all rounds, one for each seed."""
    return comparison(metric, smallest, **{name: [[value] * 3 for value in each] for name, each in values.items()})


def test_labels_to_a_goal_lie_on_a_line_between_rounds() -> None:
    assert labels_to(N, [0.5, 0.7, 0.9], 0.6) == pytest.approx(15)
    assert labels_to(N, [0.5, 0.7, 0.9], 0.4) == 10  # no less than the first batch
    assert labels_to(N, [0.5, 0.7, 0.6], 0.65) == pytest.approx(17.5)  # the first time counts
    assert labels_to(N, [0.5, 0.7, 0.9], 0.95) == math.inf


def test_an_interval_is_students() -> None:
    found = estimate([1.0, 2.0, 6.0])
    low, high = stats.t.interval(0.95, 2, loc=3.0, scale=stats.sem([1.0, 2.0, 6.0]))
    assert (found.mean, found.se) == pytest.approx((3.0, stats.sem([1.0, 2.0, 6.0])))
    assert (found.low, found.high) == pytest.approx((low, high))


def test_labels_saved_are_what_a_pencil_gives() -> None:
    """Seed 0: random rows take 30 to 0.8, the default 20 − 10 · 0.1/0.3. Seed 1: 30 to 0.7, and 10."""
    found = comparison(
        default=[[0.6, 0.9, 0.9], [0.7, 0.8, 0.8]],
        random=[[0.4, 0.6, 0.8], [0.5, 0.6, 0.7]],
    )
    default, random = found.curves()
    assert default.saved is not None
    saved = [30 - (10 + 10 * 0.2 / 0.3), 20.0]
    assert default.saved.labels.mean == pytest.approx(sum(saved) / 2)
    assert default.saved.labels.low == pytest.approx(estimate(saved).low)
    assert default.saved.share == pytest.approx(sum(saved) / 60)
    assert (default.saved.goal, default.saved.n_arrived) == (pytest.approx(0.75), 2)
    assert default.area.mean == pytest.approx((0.8 + 2.3 / 3) / 2)
    assert default.gain.mean == pytest.approx((0.2 + 0.5 / 3) / 2)
    assert default.mean["accuracy"] == pytest.approx((0.65, 0.85, 0.85))
    assert random.saved is None
    assert random.gain.mean == 0


def test_a_strategy_that_does_not_arrive_has_an_upper_limit_and_no_lower_one() -> None:
    found = comparison(default=[[0.4, 0.5, 0.6], [0.5, 0.7, 0.8]], random=[[0.4, 0.8, 0.7], [0.5, 0.6, 0.7]])
    saved = found.curves()[0].saved
    assert saved is not None
    assert (saved.n_seeds, saved.n_arrived, saved.labels.low) == (2, 1, -math.inf)
    assert saved.labels.mean == pytest.approx(((17.5 - 30) + (30 - 20)) / 2)


def test_an_rmse_saves_labels_where_it_is_lower_and_near_all_is_95_percent_of_the_way() -> None:
    runs_ = comparison("rmse", default=[[1.0, 0.2, 0.1]] * 2, random=[[1.0, 0.5, 0.2]] * 2).runs
    found = Comparison(metric="rmse", n=N, runs=runs_, limits=[(2.0, 0.0)] * 2).curves()[0]
    assert found.gain.mean == pytest.approx(1.7 / 3 - 1.3 / 3)
    assert found.saved is not None
    assert found.saved.labels.mean == pytest.approx(10)
    assert found.saved_near_all is None  # 0.1: random rows end at 0.2
    near = Comparison(metric="rmse", n=N, runs=runs_, limits=[(2.0, 0.2)] * 2).curves()[0].saved_near_all
    assert near is not None
    assert near.goal == pytest.approx(0.29)
    assert near.labels.mean == pytest.approx(20 + 10 * 0.21 / 0.3 - (10 + 10 * 0.71 / 0.8))


@pytest.mark.parametrize(
    ("default", "margin", "random", "chosen"),
    [
        ([0.80, 0.82], [0.86, 0.87], [0.70, 0.71], "margin"),
        ([0.80, 0.82], [0.79, 0.84], [0.70, 0.71], "default"),  # above by 0.005 ± 0.015
        ([0.80, 0.82], [0.80, 0.81], [0.79, 0.84], "default"),  # below random rows, not by a standard error
        ([0.80, 0.82], [0.79, 0.84], [0.85, 0.87], "random"),
        ([0.80, 0.82], [0.81, 0.83], [0.89, 0.84], "random"),  # margin is clearly above the default, not above random
    ],
)
def test_the_choice_needs_an_advantage_of_a_standard_error(
    default: list[float], margin: list[float], random: list[float], chosen: str
) -> None:
    found = flat(default=default, margin=margin, random=random)
    assert found.choice().strategy == chosen
    assert found.choice().reason.endswith(".")


def test_a_choice_that_may_be_chance_says_so() -> None:
    """Above the default by 0.01 and 0.03: by 0.02 ± 0.01, and with two seeds t is 12.7."""
    found = flat(default=[0.8, 0.8], margin=[0.81, 0.83], random=[0.7, 0.7]).choice()
    assert found.reason == (
        "The strategy margin was better than the default by 0.02 ± 0.01, and better than random rows by 0.12 ± 0.01 "
        "(accuracy, mean over all rounds ± standard error). Over 2 seeds this may still be chance; more seeds would "
        "tell."
    )


def test_few_seeds_may_be_chance_however_much_they_agree() -> None:
    """One row of 15 with both seeds is an advantage, and the standard error of two equal values says nothing."""
    found = flat(1 / 15, default=[0.6, 0.8], margin=[10 / 15, 13 / 15], random=[0.6, 0.8]).choice()
    assert found.strategy == "margin"
    assert found.reason == (
        "The strategy margin was better than the default by 0.0667 with every seed, and better than random rows by "
        "0.0667 with every seed (accuracy, mean over all rounds ± standard error). Over 2 seeds this may still be "
        "chance; more seeds would tell."
    )
    default = flat(0.01, default=[0.881, 0.883], random=[0.7, 0.7]).choice()
    assert "the default was better than random rows by 0.182 ± 0.001 (" in default.reason
    assert default.reason.endswith("Over 2 seeds this may still be chance; more seeds would tell.")
    many = [0.8, 0.81, 0.82, 0.83, 0.84]
    sure = flat(0.01, default=many, margin=[value + 0.05 + value / 100 for value in many], random=[0.7] * 5)
    assert "chance" not in sure.choice().reason


def test_a_difference_that_does_not_count_leaves_the_default() -> None:
    equal = flat(0.01, default=[0.8, 0.8], margin=[0.809, 0.809], random=[0.8, 0.8]).choice()
    assert equal.strategy == "default"
    assert equal.reason == (
        "No strategy was clearly better than the default; the default was as good as random rows (accuracy, mean over "
        "all rounds ± standard error). Over 2 seeds this may still be chance; more seeds would tell."
    )
    rounding = flat(math.inf, "rmse", default=[4e-8, 4e-8], kcenter=[0.0, 0.0], random=[1e-8, 2e-8]).choice()
    assert rounding.strategy == "default"
    assert "as good as random rows (RMSE" in rounding.reason


@pytest.mark.parametrize(
    ("labels", "likelihood", "smallest"),
    [
        ([0, 1] * 20, "categorical", 1 / 10),
        ([1.0, 3.0] * 20, "gaussian", 1e-3),  # a standard deviation of 1
        ([0.1] * 40, "gaussian", math.inf),
    ],
)
def test_what_counts_is_a_test_row_or_a_thousandth_of_the_spread(
    labels: list[float], likelihood: str, smallest: float
) -> None:
    play = _prepare(np.zeros((40, 2), dtype=np.float32), labels, likelihood, 1, 4, "map", None, None, 2, "cpu")
    assert play.smallest_difference == pytest.approx(smallest)
