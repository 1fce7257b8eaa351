"""Variational Rényi inference against closed forms, in float64."""

import math
from typing import Any

import pytest
import torch
from scipy.optimize import brentq
from torch import Tensor, nn

import bensemble_core as bc
from bensemble_core.ensemble.members import gather
from bensemble_core.posteriors.variational.renyi import _Objective, renyi_bound
from bensemble_core.training.objectives import Batch
from bensemble_core.types import Data, Snapshot

RHO, SCALE = 0.9, 100.0


def conjugate() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows, targets, and the mean and precision of three weights under noise .5 and a prior sd of .8."""
    g = torch.Generator().manual_seed(1)
    x = torch.randn(25, 3, generator=g, dtype=torch.float64)
    x[:, 1:] += 0.8 * x[:, :-1]
    y = x @ torch.tensor([0.7, -0.4, 0.2], dtype=torch.float64)
    y = y + 0.5 * torch.randn(25, generator=g, dtype=torch.float64)
    precision = x.T @ x / 0.5**2 + torch.eye(3, dtype=torch.float64) / 0.8**2
    return x, y, torch.linalg.solve(precision, x.T @ y / 0.5**2), precision


def correlated() -> tuple[Tensor, Tensor]:
    """Two rows whose posterior over two weights has unit variances and correlation .9, under N(0, 100²) and noise 1."""
    covariance = torch.tensor([[1.0, RHO], [RHO, 1.0]], dtype=torch.float64)
    precision = torch.linalg.inv(covariance) - torch.eye(2, dtype=torch.float64) / SCALE**2
    x = torch.linalg.cholesky(precision).T.contiguous()
    return x, x @ torch.tensor([0.5, -1.0], dtype=torch.float64)


def fit(alpha: Any, **changes: Any) -> bc.Fitted:
    options: dict[str, Any] = {"epochs": 400, "lr": 0.05, "samples": 1000, "init_sigma": 0.5, "standardise": False}
    net = nn.Linear(2, 1, bias=False)
    nn.init.constant_(net.weight, 0.1)
    return bc.fit(
        "renyi",
        net,
        correlated(),
        likelihood=bc.Gaussian(noise=1.0),
        prior=bc.Normal(scale=SCALE),
        alpha=alpha,
        **(options | changes),
    )


def log_evidence() -> float:
    x, y = correlated()
    covariance = torch.eye(2, dtype=torch.float64) + SCALE**2 * x @ x.T
    zero = torch.zeros(2, dtype=torch.float64)
    return float(torch.distributions.MultivariateNormal(zero, covariance).log_prob(y))


def best_variance(alpha: float) -> float:
    """Of N(m, vI) at the least Rényi divergence: v = ½ Σ_i 1/(α/v + (1 − α)/λ_i) over the eigenvalues λ = 1 ± ρ."""
    if alpha == 1:
        return 1 - RHO**2
    slope = lambda v: v - 0.5 * sum(1 / (alpha / v + (1 - alpha) / lam) for lam in (1 - RHO, 1 + RHO))  # noqa: E731
    return float(brentq(slope, 0.05, 1.5))


def exact_bound(alpha: float, variance: float) -> float:
    """log Z − D_α(q ‖ p) for q = N(m, vI) at the posterior mean."""
    log_z = log_evidence()
    log_integral = 0.0
    for lam in (1 - RHO, 1 + RHO):
        log_integral += -0.5 * (
            alpha * math.log(variance) + (1 - alpha) * math.log(lam) + math.log(alpha / variance + (1 - alpha) / lam)
        )
    return log_z + log_integral / (1 - alpha)


def test_the_closed_form_has_the_known_values() -> None:
    assert best_variance(1.0) == pytest.approx(0.190)
    assert best_variance(0.5) == pytest.approx(math.sqrt(1 - RHO**2))
    assert best_variance(1e-9) == pytest.approx(1.0, abs=1e-6)
    assert best_variance(0.9999) == pytest.approx(0.190, rel=1e-3)


@pytest.mark.parametrize(("alpha", "tolerance"), [(1.0, 0.03), (0.5, 0.05), (0.2, 0.1)])
def test_the_spread_grows_from_the_conditional_to_the_marginal_as_alpha_falls(alpha: float, tolerance: float) -> None:
    fitted = fit(alpha)
    variance = (2 * fitted.state["log_sd/weight"][0, 0]).exp()
    assert float(variance.log().mean().exp()) == pytest.approx(best_variance(alpha), rel=tolerance)
    torch.testing.assert_close(
        fitted.state["weight"][0, 0], torch.tensor([0.5, -1.0], dtype=torch.float64), rtol=0, atol=0.05
    )


def test_near_zero_the_variance_is_that_of_the_marginals() -> None:
    fitted = fit(0.05, samples=4000)
    variance = (2 * fitted.state["log_sd/weight"][0, 0]).exp()
    assert best_variance(0.05) == pytest.approx(0.958, abs=1e-3)
    torch.testing.assert_close(variance, torch.ones(2, dtype=torch.float64), rtol=0, atol=0.15)


def test_alpha_one_is_the_evidence_lower_bound_of_mean_field_inference() -> None:
    x, y = correlated()
    options: dict[str, Any] = {"likelihood": bc.Gaussian(noise=1.0), "prior": bc.Normal(scale=SCALE)}
    net = nn.Linear(2, 1, bias=False)
    start = bc.fit("mfvi", net, (x, y), standardise=False, epochs=300, lr=0.1, init_sigma=0.5, **options)
    ours = bc.fit("renyi", net, (x, y), warm=start, epochs=0, alpha=1.0, **options)
    assert torch.equal(ours.state["log_sd/weight"], start.state["log_sd/weight"])
    assert ours.bound(samples=20_000) == pytest.approx(start.bound(samples=1), abs=0.05)


def ratios(fitted: bc.Fitted, samples: int, seed: int = 0) -> Tensor:
    x, y = correlated()
    posterior = fitted.posterior
    assert isinstance(posterior, bc.Renyi)
    rng = torch.Generator().manual_seed(seed)
    return posterior.log_ratios(fitted.problem, fitted.state, Data(x=x, y=y[:, None]), samples=samples, rng=rng)


def test_each_ratio_is_the_log_joint_less_the_log_density_of_its_draw() -> None:
    fitted = fit(0.5, epochs=20)
    x, y = correlated()
    rng = torch.Generator().manual_seed(0)
    found = ratios(fitted, 5)
    mean, sd = fitted.state["weight"][0, 0], fitted.state["log_sd/weight"][0, 0].exp()
    w = mean + sd * torch.randn(5, 1, 2, generator=rng, dtype=torch.float64)[:, 0]
    normal = torch.distributions.Normal
    by_hand = (
        normal(w @ x.T, 1.0).log_prob(y).sum(1)
        + normal(0.0, SCALE).log_prob(w).sum(1)
        - normal(mean, sd).log_prob(w).sum(1)
    )
    torch.testing.assert_close(found, by_hand)


def test_bounds_are_the_closed_form_and_do_not_rise_with_alpha_on_shared_draws() -> None:
    fitted = fit(0.5)
    fitted.state["weight"].copy_(torch.tensor([[[0.5, -1.0]]]))
    fitted.state["log_sd/weight"].fill_(0.5 * math.log(0.7))
    shared = ratios(fitted, 200_000)
    for alpha in (0.9, 0.5, 0.3):
        assert float(renyi_bound(shared, alpha)) == pytest.approx(exact_bound(alpha, 0.7), abs=0.02)
    assert exact_bound(0.3, 0.7) < log_evidence() < exact_bound(-0.2, 0.7)
    assert float(renyi_bound(shared, 0.0)) == pytest.approx(log_evidence(), abs=0.02)
    orders = [-50.0, -2.0, -0.5, 0.0, 0.3, 0.5, 0.9, 0.999999, 1.0, 1.000001, 1.5, 4.0]
    bounds = [float(renyi_bound(shared[:500], a)) for a in orders]
    assert bounds == sorted(bounds, reverse=True)
    assert float(renyi_bound(shared[:500], "max")) >= bounds[0]
    assert bounds[7] == pytest.approx(bounds[8], abs=1e-4) == pytest.approx(bounds[9], abs=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_bound_is_the_formula_and_its_gradient_the_normalised_weights(dtype: torch.dtype) -> None:
    ell = torch.tensor([-3.0, -1.0, -2.5, 0.5], dtype=dtype, requires_grad=True)
    for alpha in (-1.0, 0.0, 0.5, 0.99, 2.0):
        exact = (torch.exp((1 - alpha) * ell.detach().double()).mean()).log() / (1 - alpha)
        found = renyi_bound(ell, alpha)
        assert float(found.detach()) == pytest.approx(float(exact), rel=1e-5)
        (slope,) = torch.autograd.grad(found, ell)
        torch.testing.assert_close(slope, torch.softmax((1 - alpha) * ell.detach(), 0), rtol=1e-4, atol=1e-6)
    (best,) = torch.autograd.grad(renyi_bound(ell, "max"), ell)
    assert best.tolist() == [0, 0, 0, 1]
    near = float(renyi_bound(ell, 1 - 1e-6).detach())
    assert near == pytest.approx(float(ell.detach().mean()), abs=1e-5)
    assert float(renyi_bound(ell - 1e6 if dtype == torch.float64 else ell - 1e3, 0.0).detach()) < -900


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_the_doubly_reparameterised_gradient_has_the_mean_of_the_plain_one(alpha: float) -> None:
    x, y = correlated()
    net = nn.Linear(2, 1)  # its bias is a point, and the noise is learnt
    options: dict[str, Any] = {"alpha": alpha, "samples": 4, "epochs": 0, "bayesian_biases": False, "init_sigma": 0.4}
    nn.init.constant_(net.weight, 0.3)
    nn.init.constant_(net.bias, -0.2)
    fitted = bc.fit("renyi", net, (x, y), likelihood="gaussian", prior=bc.Normal(scale=1.0), **options)
    prior = {k: v for k, v in fitted.state.items() if k.startswith("prior")}
    theta = {k: v for k, v in fitted.state.items() if k not in prior and k != "fitted/n_rows"}
    members = gather(fitted.problem, theta, {})
    encoded = fitted.problem.likelihood.encode(y, dtype=torch.float64)[None]
    means, errors = [], []
    for twice in (False, True):
        objective = _Objective(alpha=alpha, samples=4, prior=prior, twice=twice)
        found = []
        for seed in range(300):
            leaves = {k: v.clone().requires_grad_() for k, v in theta.items()}
            batch = Batch(x=x, y=encoded, n_rows=2, seeds=[seed])
            loss = objective(fitted.problem, lambda t, x: members(t, {}, x), leaves, batch).sum()
            found.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(leaves.values()))]))
        slopes = torch.stack(found)
        means.append(slopes.mean(0))
        errors.append(slopes.var(0) / len(found))
    assert float(((means[0] - means[1]) / (errors[0] + errors[1]).sqrt()).abs().max()) < 4


def test_with_one_draw_every_alpha_is_the_evidence_lower_bound() -> None:
    states = [fit(alpha, samples=1, epochs=15).state for alpha in (1.0, 0.5, 0.0, -3.0, "max")]
    for state in states[1:]:
        assert all(torch.allclose(state[k], v, rtol=1e-9, atol=1e-12) for k, v in states[0].items())


def test_more_draws_tighten_the_importance_weighted_bound() -> None:
    fitted = fit(0.0, epochs=0, init_sigma=0.8)
    fitted.state["weight"].copy_(torch.tensor([[[0.5, -1.0]]]))
    averages = []
    for k in (1, 10, 100):
        parts = ratios(fitted, 20_000).view(-1, k)
        averages.append(float(renyi_bound(parts, 0.0).mean()))
    assert averages == sorted(averages)
    assert averages[1] < log_evidence()
    assert averages[2] == pytest.approx(log_evidence(), abs=0.02)


@pytest.mark.parametrize("alpha", [0.5, "max"])
def test_classification_resumes_bit_for_bit_and_keeps_the_bits_of_a_file(alpha: Any) -> None:
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(20, 4, generator=g), torch.randint(3, (20,), generator=g)
    net = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3))
    options: dict[str, Any] = {"alpha": alpha, "samples": 3, "epochs": 3, "map_epochs": 2, "batch_size": 10}
    kept: list[dict[str, Tensor]] = []

    def cancel(done: int, total: int, message: str, snapshot: Snapshot) -> None:
        if done >= 6:
            kept.append(snapshot())
            raise bc.Cancelled("stop")

    with pytest.raises(bc.Cancelled):
        bc.fit("renyi", net, (x, y), likelihood="categorical", report=cancel, **options)
    again = bc.fit("renyi", net, (x, y), likelihood="categorical", resume=kept[0], **options)
    whole = bc.fit("renyi", net, (x, y), likelihood="categorical", **options)
    assert all(torch.equal(again.state[k], v) for k, v in whole.state.items())
    assert math.isfinite(whole.bound(samples=70))
    assert float(whole.sample(4).predict(x).logits.std(0).min()) > 0


def test_pruned_weights_are_zero_under_both_densities() -> None:
    pruned = bc.prune(fit(0.5, epochs=20), share=0.5).fitted
    found = ratios(pruned, 4)
    x, y = correlated()
    gone = pruned.state["pruned/weight"][0, 0]
    mean, sd = pruned.state["weight"][0, 0], pruned.state["log_sd/weight"][0, 0].exp()
    draws = mean + sd * torch.randn(4, 1, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)[:, 0]
    w = torch.where(gone, 0.0, draws)
    normal = torch.distributions.Normal
    by_hand = (
        normal(w @ x.T, 1.0).log_prob(y).sum(1)
        + normal(0.0, SCALE).log_prob(w)[:, ~gone].sum(1)
        - normal(mean, sd).log_prob(w)[:, ~gone].sum(1)
    )
    torch.testing.assert_close(found, by_hand)


def test_orders_that_are_no_numbers_and_missing_priors_are_refused() -> None:
    for wrong in ("min", float("inf"), float("nan"), True):
        with pytest.raises(bc.InvalidOption, match="alpha"):
            fit(wrong)
    with pytest.raises(bc.InvalidOption, match="prior"):
        bc.fit("renyi", nn.Linear(2, 1), correlated(), likelihood="gaussian", prior=None)


def test_a_bound_from_above_is_larger_away_from_the_posterior() -> None:
    """With p = N(0, 1) and log Z = 0 every ℓ is 0 under q = p; α < 0 prefers q = N(2, 1.5²), α > 0 does not."""
    z = torch.randn(400, 100, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    theta = 2 + 1.5 * z
    ratios = 0.5 * (z.square() - theta.square()) + math.log(1.5)
    found = {alpha: float(torch.stack([renyi_bound(r, alpha) for r in ratios]).mean()) for alpha in (1.0, 0.5, -1.0)}
    found["max"] = float(torch.stack([renyi_bound(r, "max") for r in ratios]).mean())
    assert max(found[1.0], found[0.5]) < -0.5
    assert min(found[-1.0], found["max"]) > 0.2


def test_alpha_below_0_and_max_end_far_from_the_posterior_and_say_so() -> None:
    """On a conjugate model: 1.5 to 3.7 posterior sds in a dozen seeds, where α = .5 is within .06."""
    x, y, mean, precision = conjugate()
    sd = torch.linalg.inv(precision).diagonal().sqrt()
    options: dict[str, Any] = {"samples": 100, "epochs": 400, "lr": 0.05, "standardise": False}
    options |= {"likelihood": bc.Gaussian(noise=0.5), "prior": bc.Normal(scale=0.8)}
    for alpha in (0.5, -1.0, "max"):
        net = nn.Linear(3, 1, bias=False)
        nn.init.constant_(net.weight, 0.1)
        fitted = bc.fit("renyi", net, (x, y), alpha=alpha, **options)
        off = float(((fitted.state["weight"][0, 0] - mean) / sd).abs().max())
        notes = fitted.sample(2).notes
        if alpha == 0.5:
            assert off < 0.3
            assert notes == ()
        else:
            assert off > 0.75
            assert len(notes) == 1
            assert f"renyi with alpha = {alpha} " in notes[0]
            assert "alpha from 0 to 1" in notes[0]


@pytest.mark.parametrize("changes", [{"alpha": -1.0, "samples": 1}, {"alpha": 0.0}, {"alpha": 1.0}])
def test_what_leads_to_the_posterior_has_no_note(changes: dict[str, Any]) -> None:
    """With one draw every α is the evidence lower bound."""
    assert fit(**{"samples": 2, "epochs": 1} | changes).sample(2).notes == ()
