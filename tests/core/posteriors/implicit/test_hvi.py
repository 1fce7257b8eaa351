"""The family of weights mixed over z, and hierarchical variational models, against closed forms in float64."""

from typing import Any

import pytest
import torch
from torch import nn

import bensemble_core as bc
from bensemble_core.posteriors.implicit.entropies import auxiliary_gain, exact_reverse
from bensemble_core.posteriors.implicit.mixing import MATRIX, Mixture
from bensemble_core.randomness import generator
from tests.core.posteriors.implicit.problems import ENTROPY, draws_of, fit_correlated, log_evidence, one_weight


def test_the_gap_of_a_reverse_model_that_ignores_w_is_the_divergence_of_q_from_it() -> None:
    q = one_weight(mean=1.0)
    draws = draws_of(q, 100_000)
    units = (draws.weights - q.mean) / q.log_sd.exp()
    zero, one = torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
    ignorant = q.conditional_entropy(draws) + auxiliary_gain(draws.z, units, zero, zero[0], one)
    assert ENTROPY - float(ignorant) == pytest.approx(0.804719, abs=0.01)
    root, slope = exact_reverse(q)
    exact = q.conditional_entropy(draws) + auxiliary_gain(draws.z, units, slope, zero[0], root)
    assert float(exact) == pytest.approx(ENTROPY, abs=0.01)


def test_draws_have_the_moments_of_the_formula_and_a_density_that_is_known_in_r_numbers() -> None:
    g = torch.Generator().manual_seed(0)
    tensors = {
        "a": torch.randn(1, 2, generator=g, dtype=torch.float64),
        "b": torch.randn(1, 1, 2, generator=g, dtype=torch.float64),
        "mixing/matrix": torch.randn(1, 4, 3, generator=g, dtype=torch.float64),
        "mixing/log_sd": 0.3 * torch.randn(1, 4, generator=g, dtype=torch.float64),
    }
    q = Mixture(shapes={"a": (2,), "b": (1, 2)}, net=None, tensors=tensors)
    draws = q.draw(100_000, generator(1))
    covariance = q.matrix @ q.matrix.T + torch.diag((2 * q.log_sd).exp())
    torch.testing.assert_close(torch.cov(draws.weights.T), covariance, rtol=0.05, atol=0.05)
    torch.testing.assert_close(draws.weights.mean(0), q.mean, rtol=0, atol=0.05)
    assert {k: tuple(v.shape) for k, v in q.split(draws.weights).items()} == {"a": (100_000, 2), "b": (100_000, 1, 2)}
    few, others = q.draw(5, generator(2)), q.draw_z(5, 7, rng=generator(3))

    def log_q(z: torch.Tensor) -> torch.Tensor:
        """log N(w | μ + A z, σ²) of w [5, 1, P]."""
        units = (few.weights[:, None] - q.mean - z @ q.matrix.T) / q.log_sd.exp()
        return -0.5 * units.square().sum(-1)

    expected = log_q(others) - log_q(few.z[:, None])
    torch.testing.assert_close(q.log_ratios(few, others), expected)


def test_with_a_rank_that_suffices_the_bound_is_the_evidence_and_mean_field_stays_away() -> None:
    fitted = fit_correlated("hvi")
    assert fitted.bound(samples=1000) == pytest.approx(log_evidence(), abs=0.02)
    assert log_evidence() - fit_correlated("mfvi", samples=1).bound(samples=100) == pytest.approx(0.830, abs=0.02)
    drawn = fitted.sample(20_000, seed=1).stacked["weight"][:, 0]
    assert float(torch.corrcoef(drawn.T)[0, 1]) == pytest.approx(0.9, abs=0.02)


def test_a_network_in_h_learns_a_reverse_model_and_stays_below_the_evidence() -> None:
    bound = fit_correlated("hvi", hidden=8, epochs=150).bound(samples=1000)
    assert log_evidence() - 0.4 < bound < log_evidence() + 0.01


def test_what_is_below_the_last_layer_is_a_point() -> None:
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
    fitted = bc.fit("hvi", net, (x, x[:, 0]), likelihood="gaussian", subset="last_layer", epochs=20, rank=2)
    assert set(fitted.sample(3).stacked) == {"2.weight", "2.bias"}
    assert tuple(fitted.state[MATRIX].shape) == (1, 6, 2)
    assert not torch.equal(fitted.state["0.weight"][0], net[0].weight)


@pytest.mark.parametrize(
    ("options", "words"), [({}, r'up to 20,000 weights.*subset="last_layer"'), ({"prior": None}, "pass prior=Normal")]
)
def test_what_does_not_suit_is_refused_with_advice(options: dict[str, Any], words: str) -> None:
    model = {"name": "mlp", "hidden": [200, 200]}
    with pytest.raises(bc.InvalidOption, match=words):
        bc.check("hvi", model, likelihood="gaussian", input_shape=[4], **options)
    bc.check("hvi", model, likelihood="gaussian", input_shape=[4], subset="last_layer")
