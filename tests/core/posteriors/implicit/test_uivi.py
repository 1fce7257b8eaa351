"""Unbiased implicit variational inference against closed forms and a grid."""

import math

import pytest
import torch
from torch import Tensor

from bensemble_core.posteriors.implicit.mixing import NET, Bend, Draws, Mixture
from bensemble_core.posteriors.implicit.uivi import density_slope, reverse_draws
from bensemble_core.posteriors.own_nets import OwnNet
from bensemble_core.randomness import generator
from tests.core.posteriors.implicit.problems import (
    check_banana,
    draws_of,
    fit_banana,
    fit_correlated,
    log_evidence,
    one_weight,
)


def entropy_slope(q: Mixture, draws: Draws, z: Tensor) -> float:
    """The estimate of dH/da, w = a z + σ ε."""
    return -float((density_slope(q, draws, z) * draws.z).mean())


@pytest.mark.parametrize("kept", [0.0, 0.25, 0.5, 1.0])
def test_a_correlation_that_z_keeps_is_lost_to_the_slope_of_the_entropy(kept: float) -> None:
    q = one_weight()
    draws = draws_of(q, 200_000)
    centre, sd = draws.weights * 0.8, math.sqrt(0.2)  # of q(z | w)
    fresh = torch.randn(draws.z.shape, generator=generator(5), dtype=torch.float64)
    z = centre + kept * (draws.z - centre) + math.sqrt(1 - kept**2) * sd * fresh
    assert entropy_slope(q, draws, z[None]) == pytest.approx(0.8 * (1 - kept), abs=0.03)


def test_chains_over_z_forget_where_they_began() -> None:
    q = one_weight()
    draws = draws_of(q, 100_000)
    z = reverse_draws(q, draws, burn_in=2, n=2, leapfrog=4, rng=generator(3))
    centre = draws.weights * 0.8
    for later in z:
        assert abs(float(torch.corrcoef(torch.stack([(later - centre)[:, 0], (draws.z - centre)[:, 0]]))[0, 1])) < 0.03
        assert float((later - centre).mean()) == pytest.approx(0, abs=0.01)
        assert float((later - centre).var()) == pytest.approx(0.2, abs=0.01)
    assert entropy_slope(q, draws, z) == pytest.approx(0.8, abs=0.03)


def test_chains_keep_the_distribution_of_z_where_h_bends() -> None:
    """z' ~ q(z' | w) for w ~ q is, over all w, N(0, I) again, and as far from w as z is."""
    net = OwnNet(NET, lambda: Bend(2, 6))
    tensors = {
        "w": torch.zeros(1, 3, dtype=torch.float64),
        "mixing/matrix": torch.randn(1, 3, 2, generator=generator(1), dtype=torch.float64),
        "mixing/log_sd": torch.full((1, 3), -0.7, dtype=torch.float64),
        **net.start(4, dtype=torch.float64),
    }
    q = Mixture(shapes={"w": (3,)}, net=net, tensors=tensors)
    draws = q.draw(40_000, generator(0))
    z = reverse_draws(q, draws, burn_in=2, n=1, leapfrog=4, rng=generator(3))[0]
    assert float((z != draws.z).double().mean()) > 0.95
    torch.testing.assert_close(torch.cov(z.T), torch.eye(2, dtype=torch.float64), rtol=0, atol=0.05)
    errors = [(draws.weights - q.bend(at) @ q.matrix.T).square().mean() for at in (z, draws.z)]
    torch.testing.assert_close(errors[0], errors[1], rtol=0.03, atol=0)


def test_correlated_weights_are_met() -> None:
    fitted = fit_correlated("uivi", hidden=0, rank=2)
    assert fitted.bound(samples=2000) == pytest.approx(log_evidence(), abs=0.03)
    drawn = fitted.sample(20_000, seed=1).stacked["weight"][:, 0]
    assert float(torch.corrcoef(drawn.T)[0, 1]) == pytest.approx(0.9, abs=0.03)


def test_it_draws_a_banana_that_mean_field_cannot() -> None:
    check_banana(fit_banana("uivi", draws=10))
