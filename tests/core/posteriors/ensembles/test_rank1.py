"""Rank-1 BNN against conjugate posteriors and bounds in closed form, in float64."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

import bensemble_core as bc
from bensemble_core.ensemble.members import gather
from bensemble_core.models.transforms import RankOne
from bensemble_core.posteriors.ensembles.factors import factored_layers
from bensemble_core.training.objectives import Batch

F64 = torch.float64
NOISE = 0.5


def rows(n: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.randn(n, *shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def ones(d: int) -> nn.Linear:
    """The model Σ_i r_i x_i once r is all that is left: W = 1, frozen."""
    net = nn.Linear(d, 1, bias=False)
    nn.init.ones_(net.weight)
    return net.requires_grad_(False)


def near_one(n: int = 20, d: int = 4, noise: float = NOISE) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of correlated features, the true r = 1 + 0.1 ε, targets."""
    x = rows(n, d) + 0.6 * rows(n, 1, seed=3)
    r = 1 + 0.1 * rows(d, seed=1)
    return x, r, x @ r + noise * rows(n, seed=2)


def conjugate(x: Tensor, y: Tensor, noise: float, scale: float = 0.1) -> tuple[Tensor, Tensor]:
    """Mean and precision of p(r | x, y) under N(1, scale²)."""
    eye = torch.eye(x.shape[1], dtype=F64)
    precision = x.T @ x / noise**2 + eye / scale**2
    return torch.linalg.solve(precision, x.T @ y / noise**2 + 1 / scale**2), precision


def bounds(fitted: bc.Fitted, x: Tensor, y: Tensor, seeds: Sequence[int]) -> Tensor:
    """The bound at a state on all rows, one estimate per seed of a step: [S]."""
    transform = RankOne(layers=factored_layers(fitted.state))
    members = gather(fitted.problem, fitted.state, {}, transform=transform, mode="loop")
    run = lambda theta, x: members(theta, {}, x, own_rows=True)  # noqa: E731
    posterior: Any = fitted.posterior
    y = y[None, :, None]
    with torch.no_grad():
        losses = [
            posterior.objective(fitted.problem, run, fitted.state, Batch(x=x, y=y, n_rows=len(x), seeds=[seed]))
            for seed in seeds
        ]
    return -len(x) * torch.cat(losses)


@pytest.mark.parametrize(("noise", "scale"), [(0.5, 0.1), (0.1, 0.1), (0.5, 1.0), (50.0, 0.1)])
def test_with_all_else_frozen_at_one_q_of_r_is_the_conjugate_mean_field_posterior(noise: float, scale: float) -> None:
    x, _, y = near_one(noise=min(noise, 1.0))
    fitted = bc.fit(
        "rank1_bnn",
        ones(4),
        (x, y),
        likelihood=bc.Gaussian(noise=noise),
        factors="input",
        prior_scale=scale,
        members=64,
        split=False,
        epochs=600,
        lr=0.03,
        standardise=False,
    )
    mean, precision = conjugate(x, y, noise, scale)
    sd = precision.diagonal().rsqrt()
    found_mean, found_sd = fitted.state["factor_r"][0, 0], fitted.state["log_sd/factor_r"][0, 0].exp()
    assert float(((found_mean - mean).abs() / sd).max()) < 0.06
    torch.testing.assert_close(found_sd, sd, rtol=0.03, atol=0)
    draws = fitted.sample(20_000).stacked["factor_r"]
    assert float(((draws.mean(0) - mean).abs() / sd).max()) < 0.08
    torch.testing.assert_close(draws.std(0), sd, rtol=0.05, atol=0)


def test_a_single_output_factor_is_conjugate_too() -> None:
    x, _, y = near_one()
    fitted = bc.fit(
        "rank1_bnn",
        ones(4),
        (x, y),
        likelihood=bc.Gaussian(noise=NOISE),
        factors="output",
        members=32,
        split=False,
        epochs=300,
        lr=0.04,
        standardise=False,
    )
    mean, precision = conjugate(x.sum(1, keepdim=True), y, NOISE)
    sd = float(precision.rsqrt())
    assert float(fitted.state["factor_s"]) == pytest.approx(float(mean), abs=0.05 * sd)
    assert float(fitted.state["log_sd/factor_s"].exp()) == pytest.approx(sd, rel=0.03)


def test_dealing_a_batch_to_the_draws_reaches_the_same_posterior() -> None:
    """A likelihood scaled by N/B where each draw saw B/M rows would leave the sd near the prior's 0.1 (true: 0.06)."""
    x, _, y = near_one(64)
    fitted = bc.fit(
        "rank1_bnn",
        ones(4),
        (x, y),
        likelihood=bc.Gaussian(noise=NOISE),
        factors="input",
        members=8,
        batch_size=32,
        epochs=450,
        lr=0.03,
        standardise=False,
    )
    mean, precision = conjugate(x, y, NOISE)
    sd = precision.diagonal().rsqrt()
    assert float(((fitted.state["factor_r"][0, 0] - mean).abs() / sd).max()) < 0.25
    torch.testing.assert_close(fitted.state["log_sd/factor_r"][0, 0].exp(), sd, rtol=0.1, atol=0)


def test_at_its_optimum_the_bound_is_the_evidence_less_the_mean_field_gap() -> None:
    x, _, y = near_one()
    entry = bc.Rank1BNN(factors="input", members=16, split=False, epochs=0)
    fitted = bc.fit(entry, ones(4), (x, y), likelihood=bc.Gaussian(noise=NOISE), prior=None, standardise=False)
    mean, precision = conjugate(x, y, NOISE)
    fitted.state["factor_r"][0, 0] = mean
    fitted.state["log_sd/factor_r"][0, 0] = -0.5 * precision.diagonal().log()
    marginal = torch.distributions.MultivariateNormal(x.sum(1), NOISE**2 * torch.eye(20, dtype=F64) + 0.01 * x @ x.T)
    gap = 0.5 * (precision.diagonal().log().sum() - torch.logdet(precision))
    found = bounds(fitted, x, y, range(1000))
    error = float(found.std()) / math.sqrt(1000)
    assert error < 0.02
    assert abs(float(found.mean()) - float(marginal.log_prob(y) - gap)) < 4 * error


@pytest.mark.parametrize("split", [True, False])
def test_the_bound_of_a_mixture_has_log_p_of_the_weights_and_the_average_of_the_parts(split: bool) -> None:
    """E log p(y | x, W, r, s, b) of a linear model is Gaussian algebra in the moments of r and s."""
    x, _, y = near_one(9, 3)
    entry = bc.Rank1BNN(components=2, members=4, split=split, epochs=0)
    fitted = bc.fit(
        entry,
        nn.Linear(3, 1),
        (x, y),
        likelihood=bc.Gaussian(noise=NOISE),
        prior=bc.Normal(scale=2.0),
        standardise=False,
    )
    g = torch.Generator().manual_seed(4)
    for name, value in fitted.state.items():
        value.add_(0.2 * torch.randn(value.shape, generator=g, dtype=F64) + (1.5 if name.startswith("log_sd") else 0))
    w, r, s, b = (fitted.state[k][0] for k in ("weight", "factor_r", "factor_s", "bias"))  # [1, 3], [2, 3], [2, 1]
    vr, vs = (fitted.state[f"log_sd/{k}"][0].exp().square() for k in ("factor_r", "factor_s"))
    weight_prior = Normal(torch.zeros((), dtype=F64), torch.full((), 2.0, dtype=F64))
    factor_prior = Normal(torch.ones((), dtype=F64), torch.full((), 0.1, dtype=F64))
    exact = weight_prior.log_prob(w).sum()
    for k in range(2):
        a = x * w[0] @ r[k]  # E Σ r w x
        second = (x.square() * w[0].square()) @ vr[k] + a.square()
        moment = (s[k].square() + vs[k]) * second  # E (s Σ r w x)²
        squared = (y - b[k]).square() - 2 * (y - b[k]) * s[k] * a + moment
        part = (-0.5 * squared / NOISE**2 - math.log(NOISE) - 0.5 * math.log(2 * math.pi)).sum()
        part = part + weight_prior.log_prob(b[k]).sum()
        for m, v in ((r[k], vr[k]), (s[k], vs[k])):
            part = part - kl_divergence(Normal(m, v.sqrt()), factor_prior).sum()
        exact = exact + part / 2
    found = bounds(fitted, x, y, range(1000))
    error = float(found.std()) / math.sqrt(1000)
    assert error < 0.02 * abs(float(exact))
    assert abs(float(found.mean()) - float(exact)) < 4 * error


def test_draws_come_from_every_component_with_its_own_moments_and_biases() -> None:
    x, y = rows(20, 3), torch.arange(20) % 2
    entry = bc.Rank1BNN(components=3, members=3, epochs=0)
    fitted = bc.fit(entry, nn.Linear(3, 2), (x, y), likelihood="categorical")
    fitted.state["bias"][0] = torch.tensor([[0.0, 0], [1, 1], [2, 2]])
    fitted.state["log_sd/factor_r"][0] = torch.tensor([0.1, 0.2, 0.4], dtype=F64).log()[:, None]
    ensemble = fitted.sample(30_000)
    component = ensemble.stacked["bias"][:, 0].long()
    assert component.bincount().tolist() == [10_000] * 3
    for k, sd in enumerate((0.1, 0.2, 0.4)):
        draws = ensemble.stacked["factor_r"][component == k]
        torch.testing.assert_close(draws.mean(0), fitted.state["factor_r"][0, k], rtol=0, atol=4 * sd / 100)
        torch.testing.assert_close(draws.std(0), torch.full((3,), sd, dtype=F64), rtol=0.03, atol=0)
    assert set(ensemble.shared) == {"weight"}
    assert sorted(fitted.sample(3).stacked["bias"][:, 0].tolist()) == [0, 1, 2]
    assert len({tuple(fitted.sample(1, seed=s).stacked["bias"][0].tolist()) for s in range(20)}) == 3
    assert not torch.equal(fitted.sample(3).stacked["factor_s"], fitted.sample(3, seed=1).stacked["factor_s"])


def test_a_draw_is_the_dense_network_with_its_factors() -> None:
    x, y = rows(10, 1, 4, 4), torch.arange(10) % 2
    net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(12, 2))
    fitted = bc.fit("rank1_bnn", net, (x, y), likelihood="categorical", epochs=3, components=2, standardise=False)
    ensemble = fitted.sample(5)
    t = {**ensemble.shared, **{k: v[3] for k, v in ensemble.stacked.items()}}
    product = t["0.weight"] * torch.outer(t["0.factor_s"], t["0.factor_r"])[:, :, None, None]
    h = torch.nn.functional.conv2d(x, product, t["0.bias"]).tanh().flatten(1)
    expected = h @ (t["3.weight"] * torch.outer(t["3.factor_s"], t["3.factor_r"])).T + t["3.bias"]
    torch.testing.assert_close(ensemble.predict(x).logits[3], expected, rtol=1e-12, atol=1e-12)


def test_the_spread_is_larger_away_from_the_data() -> None:
    x = rows(60, 1)
    fitted = bc.fit("rank1_bnn", {"name": "mlp", "hidden": [16]}, (x, x[:, 0].sin()), likelihood="gaussian", epochs=60)
    ensemble = fitted.sample(50)
    near = ensemble.predict(x).epistemic_variance().mean()
    far = ensemble.predict(torch.tensor([[-10.0], [10.0]], dtype=F64)).epistemic_variance().mean()
    assert float(far) > 5 * float(near)


def test_an_update_goes_on_from_means_and_standard_deviations() -> None:
    x, y = rows(24, 4), torch.arange(24) % 3
    model = {"name": "mlp", "hidden": [5]}
    first = bc.fit("rank1_bnn", model, (x, y), likelihood="categorical", epochs=4, components=2)
    more = first.update((x[:2], y[:2]), epochs=0, components=4)
    for name in ("linear1.factor_r", "log_sd/linear1.factor_r", "linear2.bias"):
        assert torch.equal(more.state[name][:, :2], first.state[name])
        assert more.state[name].shape[1] == 4


def test_early_stopping_and_heteroscedastic_noise_work_with_mixtures() -> None:
    x = rows(45, 3)
    y = x[:, 0] + 0.1 * rows(45, seed=1)
    fitted = bc.fit(
        "rank1_bnn",
        {"name": "mlp", "hidden": [8]},
        (x, y),
        likelihood="heteroscedastic_gaussian",
        components=2,
        epochs=80,
        batch_size=10,
        patience=20,
    )
    predicted = fitted.sample(8).predict(x)
    assert float((predicted.mean() - y).square().mean()) < 0.3 * float(y.var())


def test_members_that_components_do_not_divide_are_refused_with_the_number_that_would_do() -> None:
    with pytest.raises(bc.InvalidOption, match="pass members=6"):
        bc.fit("rank1_bnn", {"name": "mlp"}, (rows(9, 2), torch.arange(9) % 2), likelihood="categorical", components=3)
