"""Multiplicative normalising flows: the flow against autograd, the bound against mfvi and closed forms, in float64."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bensemble_core as bc
from bensemble_core.posteriors.gaussian import prior_in, split_points
from bensemble_core.posteriors.variational.flows import Flow
from bensemble_core.posteriors.variational.mfvi import MFVI
from bensemble_core.posteriors.variational.mnf import MNF, _Bound, draw_means

NOISE, RHO, SD = 0.3, 0.9, 0.2
MEAN = torch.tensor([1.0, -0.5], dtype=torch.float64)


def seeded(build: Any) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net: nn.Module = build()
    return net


def shaken(flow: nn.Module, scale: float = 0.7) -> nn.Module:
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        for p in flow.parameters():
            p.add_(scale * torch.randn_like(p))
    return flow


@pytest.mark.parametrize("n_entries", [1, 3, 4])
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_the_determinant_of_a_flow_is_autograds_and_the_inverse_leads_back(n_entries: int, steps: int) -> None:
    flow = shaken(seeded(lambda: Flow(n_entries, steps=steps, hidden=6)).double())
    assert isinstance(flow, Flow)
    z = torch.randn(5, n_entries, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    image, log_det = flow(z)
    for row in range(5):
        jacobian: Any = torch.autograd.functional.jacobian(lambda z: flow(z[None])[0][0], z[row])
        torch.testing.assert_close(log_det[row], torch.linalg.slogdet(jacobian)[1], rtol=0, atol=1e-8)
    back, log_back = flow.inverse(image)
    torch.testing.assert_close(back, z, rtol=0, atol=1e-8)
    torch.testing.assert_close(log_back, -log_det, rtol=0, atol=1e-8)


def test_at_the_start_factors_of_one_stay_one() -> None:
    flow = Flow(4, steps=3, hidden=8)
    assert torch.equal(flow(torch.ones(2, 4))[0], torch.ones(2, 4))


def regression() -> tuple[Tensor, Tensor]:
    """Two rows after which, under N(0, 1), two weights have mean MEAN, sds SD and correlation RHO."""
    covariance = SD**2 * torch.tensor([[1, RHO], [RHO, 1]], dtype=torch.float64)
    precision = torch.linalg.inv(covariance)
    x = torch.linalg.cholesky(precision - torch.eye(2, dtype=torch.float64)).T * NOISE
    return x, torch.linalg.solve(x.T, precision @ MEAN * NOISE**2)


def log_evidence(x: Tensor, y: Tensor) -> float:
    covariance = NOISE**2 * torch.eye(len(y), dtype=torch.float64) + x @ x.T
    return float(torch.distributions.MultivariateNormal(torch.zeros_like(y), covariance).log_prob(y))


def linear(method: Any, x: Tensor, y: Tensor, net: nn.Module | None = None) -> bc.Fitted:
    if net is None:
        net = nn.Linear(2, 1, bias=False).double()
        nn.init.constant_(net.weight, 0.5)
    return bc.fit(method, net, (x, y), likelihood=bc.Gaussian(noise=NOISE), standardise=False)


def objective_of(fitted: bc.Fitted) -> tuple[_Bound, dict[str, Tensor]]:
    moving, points = split_points(fitted.state)
    theta = {**moving, **{k: v for k, v in fitted.state.items() if k.startswith("flow/")}}
    assert isinstance(fitted.posterior, MNF)
    assert fitted.data is not None
    run = fitted.posterior._run(fitted.problem, fitted.data, theta, points, prior_in(fitted.state), 0)
    assert isinstance(run.objective, _Bound)
    return run.objective, theta


def test_a_flow_recovers_most_of_what_mean_field_loses_to_correlation() -> None:
    x, y = regression()
    options: dict[str, Any] = {"map_epochs": 150, "epochs": 450, "batch_size": 10, "lr": 0.03, "init_sigma": 0.05}
    lost = log_evidence(x, y) - linear(MFVI(**options), x, y).bound(samples=1)
    assert lost == pytest.approx(0.830, abs=0.01)
    fitted = linear(MNF(**options, samples=8, flow_hidden=10, local_reparameterisation=False), x, y)
    gap = log_evidence(x, y) - replace(fitted, posterior=MNF(flow_hidden=10)).bound(samples=600)
    assert -0.02 < gap < 0.1
    drawn = fitted.sample(10_000).stacked["weight"][:, 0]
    assert float(torch.corrcoef(drawn.T)[0, 1]) > 0.8
    torch.testing.assert_close(drawn.mean(0), MEAN, rtol=0, atol=0.05)


def test_with_factors_of_one_it_is_the_bound_of_mfvi() -> None:
    x, y = regression()
    fitted = linear(MNF(epochs=0, init_sigma=0.1, flow_steps=0), x, y)
    state = dict(fitted.state)
    for side in ("q", "r"):
        state[f"flow/{side}/weight/log_sd"] = torch.full((1, 2), -14.0, dtype=torch.float64)
    state["flow/r/weight/gain"] = torch.zeros(1, 2, dtype=torch.float64)  # r is then N(1, e⁻²⁸) but for v
    known = 0.3**2 * state["weight"].square() / (2 * state["log_sd/weight"]).exp()
    state["flow/r/weight/log_sd"] = state["flow/r/weight/log_sd"] + 0.5 * known[0].log1p()
    expected = replace(fitted, posterior=MFVI()).bound(samples=1)
    assert replace(fitted, state=state).bound(samples=20) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(
    "net", [seeded(lambda: nn.Linear(3, 4, bias=False)), seeded(lambda: nn.Conv1d(3, 4, 2, bias=False))]
)
def test_without_a_flow_log_r_starts_as_the_exact_density_of_the_factors_given_the_weights(net: nn.Module) -> None:
    """log q(W | z) + log q(z) − log r(z | W) is then log q(W), Gaussian, for every z."""
    linear_net = isinstance(net, nn.Linear)
    shape = (20, 3) if linear_net else (20, 3, 2)
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    model = net if linear_net else nn.Sequential(net, nn.Flatten())
    y = torch.randn(20, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    fitted = linear(MNF(epochs=0, init_sigma=0.2, flow_steps=0), x, y, model.double())
    objective, theta = objective_of(fitted)
    (factor,) = objective.factors
    means, drawn = draw_means((factor,), theta, 6, rng=torch.Generator().manual_seed(2))
    z, log_q = drawn[factor.name]
    mean = theta[factor.name]
    weights = means[factor.name] + 0.2 * torch.randn(
        6, *mean.shape[1:], generator=torch.Generator().manual_seed(3), dtype=torch.float64
    )
    given_z = torch.distributions.Normal(means[factor.name], 0.2).log_prob(weights).flatten(1).sum(1)
    found = given_z + log_q - factor.log_r(theta, z, weights)
    expected = torch.zeros(6, dtype=torch.float64)
    for i in range(factor.size):  # an input's weights, or a filter's, are jointly Gaussian: 0.09 μμᵀ + 0.04 I
        own = mean[0].select(factor.axis, i).flatten()
        covariance = 0.09 * own[:, None] * own + 0.04 * torch.eye(len(own), dtype=torch.float64)
        joint = torch.distributions.MultivariateNormal(own, covariance)
        expected += joint.log_prob(weights.select(1 + factor.axis, i).flatten(1))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)  # it starts in float32


def test_members_have_one_factor_for_all_weights_of_an_input_or_filter() -> None:
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(12, 2, 4, generator=g), torch.randint(3, (12,), generator=g)
    net = seeded(lambda: nn.Sequential(nn.Conv1d(2, 3, 2), nn.Tanh(), nn.Flatten(), nn.Linear(9, 3)))
    options: dict[str, Any] = {"likelihood": "categorical", "epochs": 2, "init_sigma": 1e-6}
    fitted = bc.fit("mnf", net, (x, y), **options)
    drawn = fitted.sample(5)
    assert set(drawn.stacked) == {"0.weight", "0.bias", "3.weight", "3.bias"}
    filters = drawn.stacked["0.weight"] / fitted.state["0.weight"]  # [M, O, C, K]
    torch.testing.assert_close(filters, filters[:, :, :1, :1].expand_as(filters), rtol=0, atol=1e-2)
    assert float(filters[:, :, 0, 0].std(0).min()) > 0.02
    inputs = drawn.stacked["3.weight"] / fitted.state["3.weight"]  # [M, O, D]
    torch.testing.assert_close(inputs, inputs[:, :1].expand_as(inputs), rtol=0, atol=1e-2)
    assert float(inputs[:, 0].std(0).min()) > 0.02


def test_it_learns_noise_and_goes_on_from_a_file_and_from_other_methods(tmp_path: Path) -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(60, 2, generator=g)
    y = x[:, 0] - 0.5 * x[:, 1] + 0.5 * torch.randn(60, generator=g)
    options: dict[str, Any] = {"likelihood": "gaussian", "epochs": 80, "batch_size": 15, "lr": 0.03, "flow_hidden": 8}
    fitted = bc.fit("mnf", seeded(lambda: nn.Linear(2, 1)), (x, y), **options)
    noise = float(fitted.sample(1).predict(x[:1]).variances[0, 0]) ** 0.5
    assert noise == pytest.approx(0.5, rel=0.2)
    fitted.save(tmp_path / "f")
    loaded = bc.load(tmp_path / "f", model=nn.Linear(2, 1))
    assert loaded.bound((x, y), samples=3) == fitted.bound(samples=3)
    again = bc.fit("mnf", nn.Linear(2, 1), (x, y), warm=fitted, **(options | {"epochs": 0}))
    assert all(torch.equal(again.state[k], v) for k, v in fitted.state.items())
    plain = bc.fit("map", nn.Linear(2, 1), (x, y), warm=fitted, likelihood="gaussian", epochs=0)
    factors = fitted.sample(2000).stacked["weight"].mean(0)
    torch.testing.assert_close(plain.state["weight"][0], factors, rtol=0, atol=0.1)


def test_what_cannot_be_done_is_refused() -> None:
    x, y = torch.randn(8, 3), torch.randn(8)
    with pytest.raises(bc.InvalidOption, match="leave it out and set epochs"):
        bc.fit("mnf", nn.Linear(3, 1), (x, y), likelihood="gaussian", patience=2)
    net = nn.Sequential(nn.LayerNorm(3), nn.Linear(3, 1).requires_grad_(False))
    with pytest.raises(bc.InvalidModel, match="use mfvi"):
        bc.fit("mnf", net, (x, y), likelihood="gaussian", bayesian_norms=True)
    fitted = bc.fit("mnf", nn.Linear(3, 1), (x, y), likelihood="gaussian", epochs=1)
    with pytest.raises(bc.InvalidOption, match="mnf does not keep; use mfvi"):
        bc.prune(fitted, share=0.5)
