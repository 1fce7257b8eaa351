"""Semi-implicit variational inference against closed forms and a grid."""

import pytest
import torch

import bensemble_core as bc
from bensemble_core.posteriors.implicit.entropies import entropy_bracket, mixing_gains
from bensemble_core.randomness import generator
from tests.core.posteriors.implicit.problems import (
    ENTROPY,
    check_banana,
    draws_of,
    fit_banana,
    fit_correlated,
    log_evidence,
    one_weight,
)


@pytest.mark.parametrize(("n_mixing", "lower", "upper"), [(10, 1.42077, 1.71561), (0, 0.725791, float("inf"))])
def test_the_entropy_lies_between_the_known_bounds(n_mixing: int, lower: float, upper: float) -> None:
    q = one_weight()
    low, high = entropy_bracket(q, draws_of(q, 100_000), n_mixing, 1)
    assert low == pytest.approx(lower, abs=0.012)
    assert high == pytest.approx(upper, abs=0.02)
    assert low < ENTROPY < high


def test_one_fresh_draw_bounds_the_entropy_from_far_above() -> None:
    q = one_weight()
    assert entropy_bracket(q, draws_of(q, 400_000), 1, 1)[1] == pytest.approx(4.72579, abs=0.06)


def test_the_bounds_close_in_on_the_entropy_as_mixing_draws_are_added() -> None:
    q = one_weight()
    draws = draws_of(q, 2000)
    ratios = q.log_ratios(draws, q.draw_z(1, 2000, rng=generator(1)))
    own = q.conditional_entropy(draws)
    for gains in mixing_gains(ratios):
        assert float(own + gains.mean()) == pytest.approx(ENTROPY, abs=0.06)


def test_correlated_weights_are_met_and_the_bracket_holds_the_evidence() -> None:
    fitted = fit_correlated("sivi", hidden=0, rank=2, mixing=300)
    lower, upper = fitted.bracket(samples=4000)
    assert lower == fitted.bound(samples=4000)
    assert lower == pytest.approx(log_evidence(), abs=0.05)
    assert lower < log_evidence() < upper + 0.01
    assert upper - lower < 0.1
    drawn = fitted.sample(20_000, seed=1).stacked["weight"][:, 0]
    assert float(torch.corrcoef(drawn.T)[0, 1]) == pytest.approx(0.9, abs=0.03)


def test_it_draws_a_banana_that_mean_field_cannot() -> None:
    check_banana(fit_banana("sivi", mixing=300))


def test_others_have_no_bracket() -> None:
    with pytest.raises(bc.InvalidOption, match="sivi has"):
        fit_correlated("hvi", epochs=1).bracket()
