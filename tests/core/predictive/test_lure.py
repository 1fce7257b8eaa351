"""LURE: unbiased by enumeration of all sequences, the plain mean of an even draw, and intervals that cover."""

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import bensemble_core as bc
from bensemble_core.predictive.lure import Draws, MeanEstimate, lure, lure_rounds, mean_loss

LOSSES = np.array([0.3, 2.0, 0.0, 1.1, 0.7])
Sequence = tuple[float, list[int], list[float]]  # probability, rows, probability of each


def sequences(rows: list[int], n: int, salt: float = 0.0) -> Iterator[Sequence]:
    """All ways to pick n of the rows one after another, with odds that depend on the row and on what was picked."""

    def extend(left: list[int], so_far: Sequence) -> Iterator[Sequence]:
        probability, picked, odds = so_far
        if len(picked) == n:
            yield so_far
            return
        weights = np.array([1 + row + 0.5 * sum(picked) * (row % 2) + salt for row in left])
        for row, q in zip(left, weights / weights.sum(), strict=True):
            yield from extend([r for r in left if r != row], (probability * q, [*picked, row], [*odds, float(q)]))

    yield from extend(rows, (1.0, [], []))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_the_mean_over_all_sequences_is_the_mean_of_the_pool(n: int) -> None:
    found = [(p, lure(LOSSES[rows], np.array(odds), 5).value) for p, rows, odds in sequences(list(range(5)), n)]
    assert sum(p for p, _ in found) == pytest.approx(1, abs=1e-12)
    assert sum(p * value for p, value in found) == pytest.approx(LOSSES.mean(), abs=1e-12)


def test_rounds_stay_unbiased_when_somebody_labels_another_row_in_between() -> None:
    mean = 0.0
    for p, first, odds in sequences(list(range(5)), 1):
        left = [row for row in range(5) if row not in first]
        outside = max(left)  # whatever they choose by what they have seen
        for p2, second, odds2 in sequences([row for row in left if row != outside], 2, salt=0.3):
            later = Draws(
                losses=LOSSES[second], probabilities=np.array(odds2), n_rows=3, known=LOSSES[[*first, outside]]
            )
            rounds = [Draws(losses=LOSSES[first], probabilities=np.array(odds), n_rows=5), later]
            mean += p * p2 * lure_rounds([rounds]).value
    assert mean == pytest.approx(LOSSES.mean(), abs=1e-12)


def test_rounds_of_a_pool_that_nobody_else_takes_rows_from_are_one_sequence() -> None:
    rng = np.random.default_rng(0)
    losses, odds = rng.random(6), 0.05 + 0.1 * rng.random(6)
    apart = [
        Draws(losses=losses[:2], probabilities=odds[:2], n_rows=20),
        Draws(losses=losses[2:], probabilities=odds[2:], n_rows=18, known=losses[:2]),
    ]
    m = np.arange(1, 7)
    weights = 1 + 14 / (20 - m) * (1 / ((21 - m) * odds) - 1)  # the formula of the paper
    whole = lure(losses, odds, 20)
    assert whole.value == pytest.approx((weights * losses).mean(), rel=1e-12)
    assert vars(lure_rounds([apart])) == pytest.approx(vars(whole), rel=1e-12)


def test_an_even_draw_gives_the_plain_mean_and_its_error() -> None:
    losses = np.random.default_rng(1).random(200)
    found = lure(losses, 1 / (100_000 - np.arange(200)), 100_000)
    assert found.value == pytest.approx(losses.mean(), rel=1e-12)
    assert found.standard_error == pytest.approx(losses.std(ddof=1) / math.sqrt(200), rel=0.02)
    assert (found.n, found.population) == (200, 100_000)
    everything = lure(losses, 1 / (200 - np.arange(200)), 200)
    assert everything.value == pytest.approx(losses.mean(), rel=1e-12)
    assert everything.standard_error == 0.0


def test_strata_are_added_by_their_sizes() -> None:
    rng = np.random.default_rng(2)
    first, second = rng.random(8), 1 + rng.random(8)
    pools = [
        [Draws(losses=values, probabilities=1 / (n - np.arange(8)), n_rows=n)]
        for values, n in ((first, 100), (second, 300))
    ]
    apart = [lure_rounds([pool]) for pool in pools]
    both = lure_rounds(pools)
    assert both.value == pytest.approx(0.25 * first.mean() + 0.75 * second.mean(), rel=1e-12)
    assert both.standard_error == pytest.approx(
        math.hypot(0.25 * apart[0].standard_error, 0.75 * apart[1].standard_error)
    )
    assert both.population == 400


def simulate(
    seed: int, *, offset: float = -2.0, skips: float = 0.0
) -> tuple[dict[str, float], dict[str, MeanEstimate], float]:
    """Five rounds of 40 from 3,000 rows, drawn in proportion to a noisy score of how probable an error is."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=3000)
    error_rate = 1 / (1 + np.exp(-offset - 1.5 * x))
    errors = (rng.random(3000) < error_rate).astype(float)
    nll = np.where(errors == 1, -np.log(0.3 * error_rate + 0.1), 0.3 - np.log(1 - 0.6 * error_rate))
    unanswered = rng.random(3000) < skips * error_rate / error_rate.mean()  # the hard rows more often
    losses = {"error": np.where(unanswered, np.nan, errors), "nll": np.where(unanswered, np.nan, nll)}
    left, rounds = np.arange(3000), {"error": list[Draws](), "nll": list[Draws]()}
    for _ in range(5):
        score = 0.15 + 1 / (1 + np.exp(-offset - 1.5 * x[left] - 0.5 * rng.normal(size=len(left))))
        picked = np.argsort(-(np.log(score) + rng.gumbel(size=len(left))))[:40]
        remaining = score.sum() - np.concatenate([[0.0], np.cumsum(score[picked])[:-1]])
        for name, values in losses.items():
            gone = np.setdiff1d(np.arange(3000), left)
            rounds[name].append(
                Draws(
                    losses=values[left[picked]],
                    probabilities=score[picked] / remaining,
                    n_rows=len(left),
                    known=values[gone],
                )
            )
        left = np.delete(left, picked)
    truth = {name: float(np.nanmean(values)) for name, values in losses.items()}
    found = {
        "error": lure_rounds([rounds["error"]], within="share"),
        "nll": lure_rounds([rounds["nll"]], within="positive"),
    }
    picked_errors = np.delete(losses["error"], left)
    return truth, found, float(np.nanmean(picked_errors))


@pytest.mark.parametrize("skips", [0.0, 0.15])
def test_intervals_of_95_percent_cover_the_pool_in_90_to_99_of_100_runs_and_the_plain_mean_does_not(
    skips: float,
) -> None:
    covered, plain, misses = {"error": 0, "nll": 0}, 0, list[float]()
    for seed in range(100):
        truth, found, picked = simulate(seed, skips=skips)
        for name, estimate in found.items():
            covered[name] += estimate.low <= truth[name] <= estimate.high
        plain += abs(picked - truth["error"]) < 1.96 * math.sqrt(picked * (1 - picked) / 200)
        misses.append((found["error"].value - truth["error"]) / found["error"].standard_error)
    assert 90 <= covered["error"] <= 99
    assert 90 <= covered["nll"] <= 99
    assert plain < 50
    assert abs(np.mean(misses)) < 0.5


def test_no_error_seen_does_not_mean_that_there_is_none() -> None:
    found = lure(np.zeros(30), 1 / (1000 - np.arange(30)), 1000, within="share")
    assert (found.value, found.standard_error, found.low) == (0.0, 0.0, 0.0)
    assert 3 / 30 < found.high < 0.25  # three in thirty: what an even draw rules out
    assert lure(np.ones(30), 1 / (1000 - np.arange(30)), 1000, within="share").low == pytest.approx(1 - found.high)
    assert mean_loss(np.zeros(30), within="share").high == pytest.approx(1.96**2 / (30 + 1.96**2), rel=1e-3)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: lure(np.ones(2), np.array([0.5]), 4), "a probability for each of 2 losses, got 1"),
        (lambda: lure(np.ones(2), np.array([0.5, 0.0]), 4), "pick 1 has 0.0"),
        (lambda: lure(np.ones(3), np.full(3, 0.5), 2), "3 rows cannot be picked out of 2"),
        (lambda: lure(np.array([1.0, np.inf]), np.full(2, 0.5), 4), "entry 1 is not"),
        (lambda: lure(np.full(2, np.nan), np.full(2, 0.5), 4), "no pick has a loss"),
        (lambda: lure_rounds([]), "no pick has a loss"),
        (lambda: mean_loss(np.ones(0)), "no losses"),
    ],
)
def test_what_cannot_be_weighed_is_refused(ask: Callable[[], object], message: str) -> None:
    with pytest.raises(bc.InvalidData, match=message):
        ask()
