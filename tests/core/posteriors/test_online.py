"""Rows that arrive in parts, each with the posterior of those before as its prior: a parabola in order, in float64.

The parts of five rows hardly tell the three weights apart, so they are strongly correlated in each part's posterior.
"""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bensemble_core as bc

NOISE = 0.3
TOGETHER = (0.467041, 0.990129, -0.880154)  # the posterior mean of all rows at once
FACTORISED = (0.375131, 0.711625, -0.601443)  # where updates that keep no correlation end
SD = (0.059892, 0.099352, 0.123034)  # of a factorised posterior, after five parts or all at once


def parabola() -> tuple[Tensor, Tensor]:
    i = torch.arange(25, dtype=torch.float64)
    t = i / 12 - 1
    return torch.stack([torch.ones_like(t), t, t**2], 1), 0.5 + t - t**2 + 0.3 * (-1) ** i


def at_zero() -> nn.Linear:
    net = nn.Linear(3, 1, bias=False)
    nn.init.zeros_(net.weight)
    return net


def stream(method: str, **options: Any) -> bc.Fitted:
    x, y = parabola()
    fitted = bc.fit(
        method,
        at_zero(),
        (x[:5], y[:5]),
        likelihood=bc.Gaussian(noise=NOISE),
        standardise=False,
        **options,
    )
    for part in range(5, 25, 5):
        fitted = fitted.update((x[part : part + 5], y[part : part + 5]))
    return fitted


def vector(values: tuple[float, ...]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_a_full_gaussian_ends_where_one_fit_to_all_rows_does() -> None:
    x, y = parabola()
    precision = x.T @ x / NOISE**2 + torch.eye(3, dtype=torch.float64)
    mean = torch.linalg.solve(precision, x.T @ y / NOISE**2)
    torch.testing.assert_close(mean, vector(TOGETHER), rtol=0, atol=1e-6)
    fitted = stream("laplace", structure="full", epochs=600, lr=0.3, batch_size=25)
    torch.testing.assert_close(fitted.state["weight"][0, 0], mean, rtol=0, atol=1e-8)


def test_a_factorised_gaussian_ends_with_the_right_spread_about_other_means() -> None:
    fitted = stream("mfvi", epochs=500, lr=0.3, batch_size=25)
    torch.testing.assert_close(fitted.state["weight"][0, 0], vector(FACTORISED), rtol=0, atol=1e-4)
    torch.testing.assert_close(fitted.state["log_sd/weight"][0, 0].exp(), vector(SD), rtol=1e-3, atol=0)
    off = (vector(FACTORISED) - vector(TOGETHER)).abs() / vector(SD)
    assert float(off.max()) == pytest.approx(2.8, abs=0.05)


def test_newton_steps_end_there_too() -> None:
    """To the noise of their draws."""
    fitted = stream("vogn", epochs=600, lr=0.5, samples=100, curvature_lr=0.1, batch_size=25)
    sd = fitted.state["log_sd/weight"][0, 0].exp()
    torch.testing.assert_close(sd, vector(SD), rtol=0.04, atol=0)
    off = (fitted.state["weight"][0, 0] - vector(FACTORISED)) / vector(SD)
    assert float(off.abs().max()) < 0.2


def test_renyi_updates_end_where_one_fit_to_all_rows_does_if_weights_are_independent() -> None:
    """Then the posterior is a factorised Gaussian, and every order of the divergence finds it."""
    g = torch.Generator().manual_seed(0)
    x = torch.cat([torch.linalg.qr(torch.randn(9, 3, generator=g, dtype=torch.float64)).Q for _ in range(2)])
    y = x @ vector(TOGETHER) + NOISE * torch.randn(18, generator=g, dtype=torch.float64)
    options: dict[str, Any] = {"epochs": 400, "lr": 0.05, "batch_size": 25, "samples": 100, "init_sigma": 0.3}
    common: dict[str, Any] = {"likelihood": bc.Gaussian(noise=NOISE), "standardise": False}
    first = bc.fit("renyi", at_zero(), (x[:9], y[:9]), alpha=0.5, **options, **common)
    fitted = first.update((x[9:], y[9:]))
    precision = 2 / NOISE**2 + 1
    found = fitted.state["weight"][0, 0]
    torch.testing.assert_close(found, x.T @ y / NOISE**2 / precision, rtol=0, atol=0.05 * precision**-0.5)
    sd = fitted.state["log_sd/weight"][0, 0].exp()
    torch.testing.assert_close(sd, torch.full_like(sd, precision**-0.5), rtol=0.03, atol=0)
    assert torch.equal(fitted.state["prior_mean/weight"], first.state["weight"])
    pruned = bc.prune(first, share=0.4).fitted.update((x[9:], y[9:]), epochs=3)
    assert int((pruned.sample(5).stacked["weight"] == 0).all(0).sum()) == 1
