"""Importance draws of hidden units against closed forms; the training on moments against mfvi and its own formulas."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bensemble_core as bc
from bensemble_core.ensemble.members import gather
from bensemble_core.posteriors.gaussian import prior_in, split_points
from bensemble_core.posteriors.variational.mfvi import MFVI
from bensemble_core.posteriors.variational.ris import RIS, _Moments
from bensemble_core.posteriors.variational.unit_moments import (
    SHARE,
    Nonlinearity,
    from_mixture,
    importance,
    proposal,
    unit_moments,
)
from bensemble_core.training.descent import Run
from bensemble_core.training.objectives import Batch

GRID = torch.linspace(-14, 14, 100_001, dtype=torch.float64)
STEP = float(GRID[1] - GRID[0])
NORMAL = (-0.5 * GRID.square()).exp() / math.sqrt(2 * math.pi)
F = {"relu": torch.relu, "tanh": torch.tanh}


def wide(value: float) -> Tensor:
    return torch.tensor([value], dtype=torch.float64)


def relu_moments(m: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """Of max(a, 0), a ~ N(m, s²): mΦ + sφ, and (m² + s²)Φ + msφ less its square."""
    phi, below = (-0.5 * (m / s).square()).exp() / math.sqrt(2 * math.pi), torch.special.ndtr(m / s)
    mean = m * below + s * phi
    return mean, (m.square() + s.square()) * below + m * s * phi - mean.square()


@pytest.mark.parametrize(("m", "plain", "ris"), [(-1.0, 0.0684, 0.00227), (0.0, 0.3408, 0.0230), (1.0, 0.7511, 0.0575)])
def test_a_draw_of_a_relu_has_the_variance_of_the_formula(m: float, plain: float, ris: float) -> None:
    centre, spread = proposal("relu", wide(m), wide(1.0))
    f, gamma = (m + GRID).relu(), importance(GRID, centre, spread)
    mean = float(relu_moments(wide(m), wide(1.0))[0])
    assert float((f * NORMAL).sum() * STEP) == pytest.approx(mean, abs=1e-8)
    assert float((f.square() * NORMAL).sum() * STEP) - mean**2 == pytest.approx(plain, abs=1e-4)
    assert float((f.square() * gamma * NORMAL).sum() * STEP) - mean**2 == pytest.approx(ris, rel=3e-3)


@pytest.mark.parametrize("kind", ["relu", "tanh"])
@pytest.mark.parametrize(("m", "s"), [(-1.5, 1.0), (0.3, 0.5), (2.0, 1.7), (100.0, 0.1)])
def test_the_proposal_has_the_moments_of_the_best_one(kind: Nonlinearity, m: float, s: float) -> None:
    centre, spread = proposal(kind, wide(m), wide(s))
    best = F[kind](m + s * GRID).abs() * NORMAL
    best = best / best.sum()
    mean = (best * GRID).sum()
    atol = 1e-6 if kind == "relu" else 0.05  # |tanh| has a corner, which a rule of a few nodes rounds off
    torch.testing.assert_close(centre[0], mean, rtol=0, atol=atol)
    torch.testing.assert_close(spread[0], (best * (GRID - mean).square()).sum().sqrt(), rtol=0, atol=atol)


def test_the_weights_are_the_ratio_of_the_densities_and_the_draws_are_of_the_mixture() -> None:
    centre, spread = wide(1.2), wide(0.6)
    proposed = SHARE * torch.distributions.Normal(centre, spread).log_prob(GRID).exp() + (1 - SHARE) * NORMAL
    torch.testing.assert_close(importance(GRID, centre, spread), NORMAL / proposed)
    assert float(importance(GRID, centre, spread).max()) <= 10 + 1e-9
    uniform = (torch.arange(100_000, dtype=torch.float64) + 0.5) / 100_000
    drawn = from_mixture(uniform, centre, spread)
    for power in (1, 2):
        expected = float((proposed * GRID**power).sum() * STEP)
        assert float((drawn**power).mean()) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("kind", ["relu", "tanh"])
@pytest.mark.parametrize("draws", [1, 5, 10])
def test_estimates_of_the_mean_are_right_on_average(kind: Nonlinearity, draws: int) -> None:
    repeats, m, s = 40_000, 0.4, 1.3
    with torch.random.fork_rng():
        torch.manual_seed(0)
        many = torch.full((repeats,), m, dtype=torch.float64)
        found, second = unit_moments(kind, many, torch.full_like(many, s), draws)
    exact = float((F[kind](m + s * GRID) * NORMAL).sum() * STEP)
    assert abs(float(found.mean()) - exact) < 4 * float(found.std()) / repeats**0.5
    assert bool((second >= 0).all())


@pytest.mark.parametrize("kind", ["relu", "tanh"])
def test_units_that_are_off_or_far_on_stay_finite_in_single_precision(kind: Nonlinearity) -> None:
    mean = torch.cat([torch.linspace(-60, 60, 200), torch.tensor([-1e6, 0.0, 1e6])]).requires_grad_()
    for sd in (1.0, 1e-19):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            found, second = unit_moments(kind, mean, torch.full_like(mean, sd), 10)
        slope = torch.autograd.grad((found + second).sum(), mean)[0]
        assert all(bool(v.isfinite().all()) for v in (found, second, slope))
        torch.testing.assert_close(found.detach()[-1], F[kind](mean.detach())[-1], rtol=1e-5, atol=0)


def test_strata_leave_less_variance_than_independent_draws() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        many = torch.zeros(20_000, dtype=torch.float64)
        found, _ = unit_moments("relu", many, torch.ones_like(many), 10)
    assert float(found.var()) < 0.7 * 0.0230 / 10


def test_gradients_of_the_mean_are_those_of_the_closed_form() -> None:
    m, s = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (-0.3, 0.8))
    wanted = torch.autograd.grad(relu_moments(m, s)[0], (m, s))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        found = torch.autograd.grad(unit_moments("relu", m, s, 20_000)[0], (m, s))
    for a, b in zip(found, wanted, strict=True):
        assert float(a) == pytest.approx(float(b), abs=2e-3)


def objectives(net: nn.Module, likelihood: Any, y: Tensor, x: Tensor, **options: Any) -> list[Tensor]:
    """Losses and gradients of mfvi and ris on the same batch, state and noise."""
    found: list[Tensor] = []
    fitted = bc.fit(MFVI(epochs=0, init_sigma=0.2), net, (x, y), likelihood=likelihood, standardise=False)
    theta, fixed = split_points(fitted.state)
    for posterior in (MFVI(samples=4), RIS(samples=4, **options)):
        start = Run(
            problem=fitted.problem, data=bc.Data(x=x, y=y), theta=theta, fixed=fixed, options=posterior, seeds=[0]
        )
        run = posterior.run(start, prior_in(fitted.state))
        members = gather(fitted.problem, theta, {}, transform=run.transform, training=True, mode="loop")
        leaves = {k: v.clone().requires_grad_() for k, v in theta.items()}
        batch = Batch(x=x, y=fitted.problem.likelihood.encode(y, dtype=x.dtype)[None], n_rows=50, seeds=[3])

        def forward(t: Any, x: Tensor, members: Any = members) -> Tensor:
            outputs: Tensor = members(t, {}, x)
            return outputs

        with torch.random.fork_rng():
            torch.manual_seed(1)
            loss = run.objective(fitted.problem, forward, leaves, batch)
        slopes = torch.autograd.grad(loss.sum(), list(leaves.values()))
        found.append(torch.cat([loss.detach(), *(slope.flatten() for slope in slopes)]))
    return found


@pytest.mark.parametrize("likelihood", ["gaussian", "categorical"])
def test_a_linear_model_is_exactly_mfvi(likelihood: str) -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(20, 4, generator=g, dtype=torch.float64)
    y = (
        torch.randint(3, (20,), generator=g)
        if likelihood == "categorical"
        else torch.randn(20, 2, generator=g).double()
    )
    kind: Any = "categorical" if likelihood == "categorical" else bc.Gaussian(noise=0.3)
    net = nn.Linear(4, 3 if likelihood == "categorical" else 2).double()
    mfvi, ris = objectives(net, kind, y, x)
    torch.testing.assert_close(ris, mfvi, rtol=0, atol=1e-10)


def test_one_hidden_layer_has_the_moments_of_sampled_networks() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(5, 3, generator=g, dtype=torch.float64)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 2)).double()
    posterior = RIS(epochs=0, init_sigma=0.3)
    fitted = bc.fit(posterior, net, (x, x[:, :2]), likelihood=bc.Gaussian(noise=1.0), standardise=False)
    theta, fixed = split_points(fitted.state)
    run = posterior.run(
        Run(problem=fitted.problem, data=bc.Data(x=x, y=x), theta=theta, fixed=fixed, options=posterior, seeds=[0]),
        prior_in(fitted.state),
    )
    assert isinstance(run.objective, _Moments)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        mean, variance = run.objective.outputs(theta, x, 5000)
    # in closed form
    (w1, b1), (w2, b2) = ((net[i].weight.detach(), net[i].bias.detach()) for i in (0, 2))
    s2 = 0.09
    h, v = relu_moments(x @ w1.T + b1, (s2 * (x.square().sum(1, keepdim=True) + 1)).sqrt().expand(5, 6))
    torch.testing.assert_close(mean, h @ w2.T + b2, rtol=0, atol=2e-3)
    expected = s2 * (h.square() + v).sum(1, keepdim=True) + v @ w2.square().T + s2
    torch.testing.assert_close(variance, expected, rtol=5e-3, atol=0)
    drawn = fitted.sample(20_000).predict(x).means
    torch.testing.assert_close(drawn.var(0), expected, rtol=0.05, atol=0)


@pytest.mark.parametrize("draws", [1, 10])
def test_means_alone_leave_the_spread_of_as_many_times_fewer_rows(draws: int) -> None:
    g = torch.Generator().manual_seed(0)
    x, noise, tau = torch.randn(30, 1, generator=g, dtype=torch.float64), 0.5, 0.8
    y = x[:, 0] + noise * torch.randn(30, generator=g, dtype=torch.float64)
    given: dict[str, Any] = {"epochs": 300, "lr": 0.1, "batch_size": 1000, "standardise": False}
    fitted = bc.fit(
        RIS(moments="first", samples=draws, **{k: given.pop(k) for k in ("epochs", "lr", "batch_size")}),
        nn.Linear(1, 1, bias=False),
        (x, y),
        likelihood=bc.Gaussian(noise=noise),
        prior=bc.Normal(scale=tau),
        **given,
    )
    variance = float((2 * fitted.state["log_sd/weight"]).exp())
    assert variance == pytest.approx(1 / (float(x.square().sum()) / (draws * noise**2) + 1 / tau**2), rel=1e-3)


def test_it_classifies_and_its_bound_is_that_of_q() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(80, 3, generator=g)
    y = (x[:, 0] * x[:, 1] > 0).long()
    options: dict[str, Any] = {"epochs": 120, "batch_size": 20, "lr": 0.03}
    model = {"name": "mlp", "hidden": [16, 16]}
    fitted = bc.fit("ris", model, (x, y), likelihood="categorical", **options)
    assert bc.metrics.evaluate(fitted.sample(30).predict(x), y)["accuracy"] > 0.85
    assert fitted.bound(samples=3) == replace(fitted, posterior=MFVI()).bound(samples=3)


def test_points_frozen_layers_and_pruned_weights_are_kept() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(24, 2, 2, generator=g)
    y = x.sum((1, 2))
    net = nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(4, 5), nn.Tanh()), nn.Linear(5, 1, bias=False))
    net[1].requires_grad_(False)
    fitted = bc.fit("ris", net, (x, y), likelihood="gaussian", epochs=3, bayesian_biases=False)
    assert [k for k in fitted.state if k.startswith("log_sd/")] == ["log_sd/2.weight"]
    assert torch.equal(fitted.state["1.0.weight"][0], net[1][0].weight)
    pruned = bc.prune(fitted, share=0.4).fitted.update((x[:6], y[:6]))
    gone = pruned.state["pruned/2.weight"]
    assert bool((pruned.state["2.weight"][gone] == 0).all())
    assert bool(fitted.sample(3).predict(x).means.isfinite().all())


class Skips(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.a(x)
        return out


@pytest.mark.parametrize(
    ("net", "what"),
    [
        (nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 4)), "BatchNorm1d at '1'"),
        (nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4)), "GELU at '1'"),
        (nn.Sequential(nn.Linear(4, 4), nn.ReLU()), "no linear layer at its end"),
        (nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), "Linear at '1'"),
        (Skips(), "Skips at 'its top'"),
    ],
)
def test_other_networks_are_refused_with_advice(net: nn.Module, what: str) -> None:
    x, y = torch.randn(6, 4), torch.randn(6, 4)
    with pytest.raises(bc.InvalidModel, match=rf"has {what}; use mfvi"):
        bc.fit("ris", net, (x, y), likelihood="gaussian", epochs=1)


def test_layers_that_share_weights_are_refused() -> None:
    one = nn.Linear(4, 4)
    tied = nn.Sequential(one, nn.ReLU(), one)
    with pytest.raises(bc.InvalidModel, match="share a parameter"):
        bc.fit("ris", tied, (torch.randn(6, 4), torch.randn(6, 4)), likelihood="gaussian", epochs=1)
