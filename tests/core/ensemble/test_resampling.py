"""Threshold resampling: fewer draws, each once, with weights of the right expectation."""

import math

import pytest
import torch
from torch import Tensor

import bensemble_core as bc
from bensemble_core.ensemble.resampling import resample, systematic, threshold
from bensemble_core.randomness import generator

CASES = {
    "even": torch.zeros(9, dtype=torch.float64),
    "random": 2 * torch.randn(40, generator=torch.Generator().manual_seed(0), dtype=torch.float64),
    "heavy tail": -2 * torch.rand(60, generator=torch.Generator().manual_seed(1), dtype=torch.float64).log(),
    "one has nearly all": torch.tensor([0.0] + [-40.0 - i for i in range(11)], dtype=torch.float64),
    "far apart": torch.tensor([-1e4, -2e4, -3e4, -3e4 - 1.0, -3e4 - 2.0, -5e4], dtype=torch.float64),
    "some without a say": torch.tensor([0.3, -math.inf, 0.1, -0.5, -math.inf, -1.0, -2.0], dtype=torch.float64),
    "large": torch.tensor([5e4, 5e4 + 1, 5e4 - 1, 5e4, 5e4 + 0.5], dtype=torch.float64),
}


def shares(log_weights: Tensor, n: int) -> Tensor:
    """min(1, w/c)."""
    return (log_weights - threshold(log_weights[log_weights > -math.inf], n)).exp().clamp(max=1)


@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize("case", CASES)
def test_exactly_n_different_draws_with_the_same_total_weight(case: str, n: int) -> None:
    log_weights = CASES[case]
    for seed in range(50):
        rows, new = resample(log_weights, n, generator(seed))
        assert len(rows) == len(new) == len(set(rows.tolist())) == n
        assert rows.tolist() == sorted(rows.tolist())
        assert bool((new > -math.inf).all())
        assert bool((new >= log_weights[rows]).all())
        assert float(new.logsumexp(0) - log_weights.logsumexp(0)) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize("case", CASES)
def test_the_threshold_is_the_one_whose_shares_sum_to_n(case: str, n: int) -> None:
    assert float(shares(CASES[case], n).sum()) == pytest.approx(n, abs=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_the_expected_weight_of_a_draw_is_the_weight_it_had(case: str) -> None:
    """Over all u: whatever is below c is chosen with probability w/c, and then has weight c."""
    log_weights = CASES[case][CASES[case] > -math.inf]
    n, grid = 3, 2000
    below = shares(log_weights, n)
    below = below[log_weights < threshold(log_weights, n)]
    left = n - (len(log_weights) - len(below))
    counts = torch.zeros(len(below))
    for i in range(grid):
        counts[systematic(below, left, (i + 0.5) / grid)] += 1
    torch.testing.assert_close(counts.double() / grid, below, rtol=0, atol=1.01 / grid)


def test_the_expectation_holds_over_seeds() -> None:
    log_weights, n, repeats = CASES["random"], 6, 4000
    total = torch.zeros_like(log_weights)
    for seed in range(repeats):
        rows, new = resample(log_weights, n, generator(seed))
        total[rows] += new.exp()
    share = shares(log_weights, n)
    spread = log_weights.exp() * ((1 - share) / share / repeats).sqrt()
    assert bool(((total / repeats - log_weights.exp()).abs() <= 5 * spread + 1e-9).all())


def test_weights_at_the_threshold_and_above_are_kept_as_they_are() -> None:
    log_weights = torch.tensor([0.4, 0.3, 0.1, 0.1, 0.1], dtype=torch.float64).log()
    assert math.exp(threshold(log_weights, 3)) == pytest.approx(0.3)  # 0.4 and 0.3 as they are, one of three for 0.3
    for seed in range(20):
        rows, new = resample(log_weights, 3, generator(seed))
        assert rows[:2].tolist() == [0, 1]
        torch.testing.assert_close(new.exp(), torch.tensor([0.4, 0.3, 0.3], dtype=torch.float64))


@pytest.mark.parametrize("n", [7, 8, 1000])
def test_as_many_as_there_are_come_back_as_they_were(n: int) -> None:
    log_weights = CASES["some without a say"]
    rows, new = resample(log_weights, n, generator(0))
    assert rows.tolist() == list(range(7))
    assert torch.equal(new, log_weights)


def test_where_fewer_have_a_weight_than_are_asked_for_those_come_back() -> None:
    rows, new = resample(CASES["some without a say"], 6, generator(0))
    assert rows.tolist() == [0, 2, 3, 5, 6]
    assert torch.equal(new, CASES["some without a say"][rows])


def test_it_is_a_function_of_the_generator_and_leaves_its_input_alone() -> None:
    log_weights = CASES["random"].clone()
    a, b = (resample(log_weights, 5, generator(3)) for _ in range(2))
    assert torch.equal(a[0], b[0])
    assert torch.equal(a[1], b[1])
    assert torch.equal(log_weights, CASES["random"])


def test_what_are_no_weights_is_refused() -> None:
    for wrong in ([math.nan, 0.0], [math.inf, 0.0], [-math.inf, -math.inf], []):
        with pytest.raises(bc.InvalidData):
            resample(torch.tensor(wrong), 1, generator(0))
    with pytest.raises(bc.InvalidOption, match="at least 1"):
        resample(torch.zeros(3), 0, generator(0))
