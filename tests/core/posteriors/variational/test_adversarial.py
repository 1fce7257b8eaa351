"""Adversarial sampling, an option of mfvi, on one weight in closed form."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bensemble_core as bc
from bensemble_core.ensemble.members import gather
from bensemble_core.posteriors.gaussian import noise, prior_in, total_kl
from bensemble_core.posteriors.variational.elbo import Elbo
from bensemble_core.posteriors.variational.mfvi import MFVI
from bensemble_core.randomness import generator
from bensemble_core.training.objectives import Batch

X = torch.tensor([[1.0], [2.0], [-1.0]], dtype=torch.float64)
Y = torch.tensor([[1.5], [0.5], [1.0]], dtype=torch.float64)
SIGMA, NOISE, SEED, DRAWS = 0.3, 0.5, 11, 6


def one_weight(**options: Any) -> tuple[Elbo, bc.Problem, Any, dict[str, Tensor], Batch]:
    """y = w x with q(w) = N(0.7, 0.3²): the objective and what it is called with."""
    net = nn.Linear(1, 1, bias=False).double()
    nn.init.constant_(net.weight, 0.7)
    posterior = MFVI(epochs=0, init_sigma=SIGMA, samples=DRAWS, local_reparameterisation=False, **options)
    fitted = bc.fit(posterior, net, (X, Y[:, 0]), likelihood=bc.Gaussian(noise=NOISE), standardise=False)
    theta = {k: v for k, v in fitted.state.items() if k in ("weight", "log_sd/weight")}
    objective, _ = posterior._objective(fitted.problem, theta, {}, prior_in(fitted.state), {})
    members = gather(fitted.problem, {"weight": theta["weight"]}, {})
    batch = Batch(x=X, y=Y[None], n_rows=3, seeds=[SEED])
    return objective, fitted.problem, lambda t, x: members(t, {}, x), theta, batch


def loss_at(epsilon: Tensor) -> Tensor:
    """−log p(D | w) / N of each draw: [DRAWS]."""
    w = 0.7 + SIGMA * epsilon
    squares = (Y[:, 0] - w[:, None] * X[:, 0]).square().mean(1)
    return squares / (2 * NOISE**2) + math.log(NOISE) + 0.5 * math.log(2 * math.pi)


def drawn(theta: dict[str, Tensor]) -> Tensor:
    return noise(theta, DRAWS, rng=generator(SEED))["weight"].flatten()


def test_the_noise_of_one_weight_moves_by_steps_times_size_to_where_the_loss_is_larger() -> None:
    objective, problem, forward, theta, batch = one_weight(adversarial=0.8)
    before = drawn(theta)
    best = float((X * Y).sum() / X.square().sum())  # the loss is a parabola in w around it
    away = (0.7 + SIGMA * before - best).sign()
    assert set(away.tolist()) == {-1.0, 1.0}
    after = objective.worse_noise(problem, forward, theta, batch.x, batch.y[0], SEED)["weight"].flatten()
    torch.testing.assert_close(after - before, 0.1 * away, rtol=0, atol=1e-12)
    assert bool((loss_at(after) > loss_at(before)).all())


@pytest.mark.parametrize("share", [0.8, 0.3, 1.0])
def test_the_loss_is_the_bound_and_the_worse_noise_in_their_shares(share: float) -> None:
    objective, problem, forward, theta, batch = one_weight(adversarial=share)
    epsilon = drawn(theta)
    worse = objective.worse_noise(problem, forward, theta, batch.x, batch.y[0], SEED)["weight"].flatten()
    kl = total_kl(theta, objective.prior, {}) / 3
    expected = (1 - share) * (loss_at(epsilon).mean() + kl) + share * loss_at(worse).mean()
    torch.testing.assert_close(objective(problem, forward, theta, batch)[0], expected, rtol=0, atol=1e-12)


def test_without_a_share_or_without_steps_nothing_is_moved() -> None:
    plain, problem, forward, theta, batch = one_weight()
    off = one_weight(adversarial=0.0, adversarial_steps=0)[0]
    elbo = plain(problem, forward, theta, batch)
    assert torch.equal(off(problem, forward, theta, batch), elbo)
    still = replace(plain, worst=0.8, worse_steps=0)  # the loss is at the noise that was drawn
    kl = total_kl(theta, plain.prior, {}) / 3
    torch.testing.assert_close(still(problem, forward, theta, batch), elbo - 0.8 * kl, rtol=0, atol=1e-12)


def test_the_slope_of_the_loss_is_that_of_its_own_noise() -> None:
    """In μ: 2 (1/N) Σ (wx − y) x / 2s² under ε and ε', which are held."""
    objective, problem, forward, theta, batch = one_weight(adversarial=1.0)
    worse = objective.worse_noise(problem, forward, theta, batch.x, batch.y[0], SEED)["weight"].flatten()
    leaf = theta["weight"].clone().requires_grad_()
    loss = objective(problem, forward, {**theta, "weight": leaf}, batch).sum()
    found = torch.autograd.grad(loss, leaf)[0]
    w = 0.7 + SIGMA * worse
    residuals = w[:, None] * X[:, 0] - Y[:, 0]
    torch.testing.assert_close(found.flatten()[0], (residuals * X[:, 0]).mean() / NOISE**2, rtol=0, atol=1e-12)


def test_it_trains_a_network_and_its_bound_is_the_plain_one() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(40, 3, generator=g)
    y = (x[:, 0] > 0).long()
    options: dict[str, Any] = {"epochs": 30, "adversarial": 0.8, "samples": 2}
    fitted = bc.fit("mfvi", {"name": "mlp", "hidden": [8]}, (x, y), likelihood="categorical", **options)
    assert bc.metrics.evaluate(fitted.sample(20).predict(x), y)["accuracy"] > 0.85
    other = replace(fitted, posterior=MFVI(local_reparameterisation=False))
    assert fitted.bound(samples=5) == other.bound(samples=5)
    assert MFVI(adversarial=0.8).cost(10) == 7 * MFVI().cost(10)
