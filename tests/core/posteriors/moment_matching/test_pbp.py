"""Probabilistic backpropagation against closed forms, quadrature and autograd, in float64."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor, nn

import bensemble_core as bc
from bensemble_core.posteriors.moment_matching.filtering import NOISE, PRIOR, VARIANCE
from bensemble_core.posteriors.moment_matching.gamma import PriorFactors, noise_variances, observe
from bensemble_core.posteriors.moment_matching.propagation import (
    Record,
    chain,
    propagate,
    relu_moments,
    update_weights,
    with_ones,
)
from bensemble_core.types import Snapshot

F64 = torch.float64
MLP: dict[str, Any] = {"name": "mlp", "hidden": [7]}


def curve(n: int = 40, d: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=g, dtype=F64)
    return x, 5 + 2 * x[:, 0].sin() + x[:, 1].abs() + 0.1 * torch.randn(n, generator=g, dtype=F64)


def one_hot(counts: tuple[int, ...] = (3, 1, 2, 0), seed: int = 0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    x = torch.eye(len(counts), dtype=F64).repeat_interleave(torch.tensor(counts), 0)
    return x, torch.randn(len(x), generator=g, dtype=F64)


def conjugate(x: Tensor, y: Tensor, noise: float, scale: float) -> tuple[Tensor, Tensor]:
    """Mean and variances of Bayesian linear regression."""
    precision = x.T @ x / noise**2 + torch.eye(x.shape[1], dtype=F64) / scale**2
    return torch.linalg.solve(precision, x.T @ y / noise**2), torch.linalg.inv(precision).diagonal()


def linear(x: Tensor, y: Tensor, **extra: Any) -> bc.Fitted:
    options: dict[str, Any] = {"epochs": 1, "prior": bc.Normal(scale=0.7), "standardise": False}
    net = nn.Linear(x.shape[1], 1, bias=False)
    return bc.fit("pbp", net, (x, y), likelihood=bc.Gaussian(noise=0.3), **(options | extra))


def test_one_pass_over_one_hot_rows_is_the_exact_posterior() -> None:
    x, y = one_hot()
    fitted = linear(x, y)
    mean, variance = conjugate(x, y, 0.3, 0.7)
    torch.testing.assert_close(fitted.state["weight"][0, 0], mean, rtol=0, atol=1e-13)
    torch.testing.assert_close(fitted.state["variance/weight"][0, 0], variance, rtol=0, atol=1e-13)


def test_k_passes_are_k_fold_data() -> None:
    x, y = one_hot()
    fitted = linear(x, y, epochs=5)
    mean, variance = conjugate(x.repeat(5, 1), y.repeat(5), 0.3, 0.7)
    torch.testing.assert_close(fitted.state["weight"][0, 0], mean, rtol=0, atol=1e-13)
    torch.testing.assert_close(fitted.state["variance/weight"][0, 0], variance, rtol=0, atol=1e-13)


def test_one_row_matches_the_exact_marginals_of_a_linear_model() -> None:
    """The first row of any data: assumed density filtering loses the correlations only."""
    x, y = curve(1)
    net = nn.Linear(3, 1)
    fitted = bc.fit(
        "pbp", net, (x, y), likelihood=bc.Gaussian(noise=0.5), prior=bc.Normal(scale=2.0), epochs=1, standardise=False
    )
    mean, variance = conjugate(torch.cat([x, torch.ones(1, 1, dtype=F64)], 1), y, 0.5, 2.0)
    found = torch.cat([fitted.state["weight"][0, 0], fitted.state["bias"][0]])
    spread = torch.cat([fitted.state["variance/weight"][0, 0], fitted.state["variance/bias"][0]])
    torch.testing.assert_close(found, mean, rtol=1e-12, atol=0)
    torch.testing.assert_close(spread, variance, rtol=1e-12, atol=0)


def test_the_analytic_predictive_of_a_linear_model_is_exact_in_the_units_of_y() -> None:
    x, y = one_hot((4, 2))
    y = 100 + 30 * y
    fitted = linear(x, y, standardise=None)  # now weights are of the standardised problem
    problem = fitted.problem
    assert problem.scaling is not None
    assert isinstance(problem.likelihood, bc.Gaussian)
    z = problem.scaling(x)
    (centre,), (scale,) = problem.likelihood.mean, problem.likelihood.scale
    weight, spread = fitted.state["weight"][0, 0], fitted.state["variance/weight"][0, 0]
    pred = fitted.predict(x)
    assert isinstance(pred, bc.GaussianPredictive)
    torch.testing.assert_close(pred.mean(), centre + scale * (z @ weight))
    torch.testing.assert_close(pred.variance(), scale**2 * (z.square() @ spread) + 0.3**2)
    normal = stats.norm(pred.mean().numpy(), pred.variance().sqrt().numpy())
    torch.testing.assert_close(pred.log_prob(y), torch.from_numpy(normal.logpdf(y.numpy())))


@pytest.mark.parametrize(("m", "v"), [(0.0, 1.0), (1.3, 0.2), (-0.7, 2.0), (-4.0, 1.5), (30.0, 0.01), (-2.0, 0.09)])
def test_the_moments_of_a_rectified_gaussian_agree_with_quadrature(m: float, v: float) -> None:
    mean, variance, _ = relu_moments(torch.tensor([m], dtype=F64), torch.tensor([v], dtype=F64))
    s = math.sqrt(v)
    low, high = max(0.0, m - 12 * s), m + 12 * s if m > 0 else 12 * s
    density = stats.norm(m, s).pdf
    first = integrate.quad(lambda a: a * density(a), low, high, epsabs=0, epsrel=1e-12)[0]
    below = stats.norm(m, s).cdf(0.0)
    around = integrate.quad(lambda a: (a - first) ** 2 * density(a), low, high, epsabs=0, epsrel=1e-12)[0]
    assert float(mean) == pytest.approx(first, rel=1e-9)
    assert float(variance) == pytest.approx(around + first**2 * below, rel=1e-9)


def test_rectified_moments_far_from_zero_stay_finite_and_right() -> None:
    mean, variance, slopes = relu_moments(
        torch.tensor([-1e4, -35.0, 1e4, 0.0], dtype=F64), torch.tensor([1.0, 1, 1, 0], dtype=F64)
    )
    assert mean[0] == variance[0] == 0
    assert float(mean[1]) == pytest.approx(stats.norm.pdf(35) / 35**2, rel=1e-2)
    torch.testing.assert_close(torch.stack([mean[2], variance[2]]), torch.tensor([1e4, 1.0], dtype=F64))
    assert all(bool(t.isfinite().all()) for t in (mean, variance, *slopes))


def random_chain(s: int = 3) -> tuple[Any, list[Tensor], list[Tensor], Tensor]:
    g = torch.Generator().manual_seed(1)
    layers = chain(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5, bias=False), nn.ReLU(), nn.Linear(5, 1)))
    shapes = [(s, layer.n_outputs, layer.fan_in) for layer in layers]
    means = [torch.randn(shape, generator=g, dtype=F64) for shape in shapes]
    variances = [0.1 + torch.rand(shape, generator=g, dtype=F64) for shape in shapes]
    return layers, means, variances, torch.randn(s, 1, 4, generator=g, dtype=F64)


def test_the_update_by_hand_is_the_one_with_gradients_of_log_z_by_autograd() -> None:
    layers, means, variances, x = random_chain()
    rows = with_ones(layers, x)
    y, noise = torch.tensor([0.3, -1.0, 2.0], dtype=F64), 0.4
    leaves = [t.clone().requires_grad_() for t in (*means, *variances)]
    m, v = propagate(layers, leaves[:3], leaves[3:], rows)
    total = v[:, 0, 0] + noise
    log_z = -0.5 * (total.log() + (y - m[:, 0, 0]).square() / total)
    gradients = torch.autograd.grad(log_z.sum(), leaves)
    expected = []
    for mean, variance, gm, gv in zip(means, variances, gradients[:3], gradients[3:], strict=True):
        moved = variance - variance**2 * (gm**2 - 2 * gv)
        expected.append((torch.where(moved > 0, mean + variance * gm, mean), torch.where(moved > 0, moved, variance)))
    records: list[Record] = []
    m, v = propagate(layers, means, variances, rows, records)
    by_mean = (y - m[:, 0, 0]) / (v[:, 0, 0] + noise)
    by_variance = 0.5 * (by_mean.square() - 1 / (v[:, 0, 0] + noise))
    update_weights(layers, means, variances, records, by_mean[:, None, None], by_variance[:, None, None])
    for mean, variance, (new_mean, new_variance) in zip(means, variances, expected, strict=True):
        torch.testing.assert_close(mean, new_mean, rtol=1e-11, atol=1e-12)
        torch.testing.assert_close(variance, new_variance, rtol=1e-11, atol=1e-12)


def test_propagated_moments_are_those_of_random_weights() -> None:
    """Exact for one hidden layer's output mean and variance when hidden units are independent given the row."""
    g = torch.Generator().manual_seed(2)
    layers = chain(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1)))
    means = [torch.randn(1, 6, 5, generator=g, dtype=F64), torch.randn(1, 1, 7, generator=g, dtype=F64)]
    variances = [0.1 + torch.rand(t.shape, generator=g, dtype=F64) for t in means]
    row = with_ones(layers, torch.randn(1, 1, 4, generator=g, dtype=F64))
    m, v = propagate(layers, means, variances, row)
    n = 100_000
    draws = [
        t + s.sqrt() * torch.randn(n, *t.shape[1:], generator=g, dtype=F64)
        for t, s in zip(means, variances, strict=True)
    ]
    hidden = (draws[0] @ row[0, 0]).clamp(min=0)
    outputs = (draws[1][:, 0, :6] * hidden).sum(1) + draws[1][:, 0, 6]
    assert abs(float(outputs.mean() - m)) < 4 * float(outputs.std()) / math.sqrt(n)
    assert float(outputs.var()) == pytest.approx(float(v), rel=0.03)


def test_pre_activations_are_divided_by_the_root_of_inputs_plus_one() -> None:
    """w ~ N(0, 6/5) under Gamma(6, 6), means of w with sd 1/√(V + 1); θ = w/√(V + 1)."""
    x, y = curve(20, 9)
    net = nn.Sequential(nn.Linear(9, 4000), nn.ReLU(), nn.Linear(4000, 1, bias=False))
    state = bc.fit("pbp", net, (x, y), likelihood="gaussian", epochs=0).state
    assert torch.equal(state["variance/0.weight"], torch.full_like(state["variance/0.weight"], 1.2 / 10))
    assert torch.equal(state["variance/0.bias"], torch.full_like(state["variance/0.bias"], 1.2 / 10))
    assert torch.equal(state["variance/2.weight"], torch.full_like(state["variance/2.weight"], 1.2 / 4000))
    assert float(state["0.weight"].std()) == pytest.approx(1 / 10, rel=0.02)
    assert float(state["2.weight"].std()) == pytest.approx(1 / 4000, rel=0.05)
    given = bc.fit("pbp", net, (x, y), likelihood="gaussian", epochs=0, prior=bc.Normal(scale=0.5)).state
    assert torch.equal(given["variance/0.weight"], torch.full_like(given["variance/0.weight"], 0.25))
    assert PRIOR in state
    assert PRIOR not in given
    learnt = bc.fit("pbp", net, (x, y), likelihood="gaussian", epochs=0, prior=bc.Normal(scale=0.5), learn_prior=True)
    assert torch.equal(learnt.state[PRIOR], torch.tensor([[6, 1.5]], dtype=F64))


def test_a_gamma_update_matches_the_paper_by_hand_and_the_exact_moments_nearly() -> None:
    a, b, error, spread = 9.0, 4.0, 0.8, 0.3
    total = spread + noise_variances(torch.tensor([a], dtype=F64), torch.tensor([b], dtype=F64))
    z, z1, z2 = (stats.norm.pdf(error, scale=math.sqrt(t)) for t in (spread + b / 8, spread + b / 9, spread + b / 10))
    log_z = -0.5 * (total.log() + error**2 / total)
    new_a, new_b = observe(torch.tensor([a], dtype=F64), torch.tensor([b], dtype=F64), log_z)
    assert float(new_a) == pytest.approx(1 / (z * z2 / z1**2 * (a + 1) / a - 1), rel=1e-10)
    assert float(new_b) == pytest.approx(1 / (z2 / z1 * (a + 1) / b - z1 / z * a / b), rel=1e-10)
    grid = np.linspace(1e-4, 20, 200_001)
    weight = stats.gamma(a, scale=1 / b).pdf(grid) * stats.norm.pdf(error, scale=np.sqrt(spread + 1 / grid))
    exact = float((grid * weight).sum() / weight.sum())
    assert float(new_a / new_b) == pytest.approx(exact, rel=0.01)


def test_refining_the_prior_learns_the_scale_of_the_weights() -> None:
    """Of weights that are nearly known λ ~ Gamma(6 + P/2, 6 + Σw²/2), and every factor is 1 / E 1/λ."""
    rng = np.random.default_rng(0)
    p = 2000
    truth = rng.normal(0, 0.2, (p, 1))
    a, b = np.array([6.0]), np.array([6.0])
    precision = np.full((p, 1), 5 / 6)
    variance = 1 / (precision + 1e4)
    mean = variance * 1e4 * truth
    factors = PriorFactors(precision=precision, shape=np.zeros((p, 1)), rate=np.zeros((p, 1)))
    for _ in range(3):
        a, b = factors.refine(mean, variance, a, b)
    assert a[0] / b[0] == pytest.approx((6 + p / 2) / (6 + (truth**2).sum() / 2), rel=2e-3)
    assert a[0] == pytest.approx(6 + p / 2, rel=2e-2)
    np.testing.assert_allclose(1 / variance - factors.precision, 1e4, rtol=1e-6)
    np.testing.assert_allclose(factors.precision, (a[0] - 1) / b[0], rtol=1e-2)


def test_a_prior_factor_the_data_says_nothing_about_stays() -> None:
    precision = np.full((2, 1), 5 / 6)
    variance = 1 / (precision + np.array([[0.0], [3.0]]))
    factors = PriorFactors(precision=precision.copy(), shape=np.zeros((2, 1)), rate=np.zeros((2, 1)))
    factors.refine(np.zeros((2, 1)), variance, np.array([6.0]), np.array([6.0]))
    assert factors.shape[0, 0] == 0
    assert factors.shape[1, 0] != 0


def test_learnt_noise_comes_near_the_truth() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(300, 2, generator=g, dtype=F64)
    y = 7 + 10 * (x[:, 0] + 0.5 * torch.randn(300, generator=g, dtype=F64))
    fitted = bc.fit("pbp", {"name": "mlp", "hidden": []}, (x, y), likelihood="gaussian", epochs=3)
    noise = fitted.sample(4).predict(x).variances
    assert float(noise[0, 0].sqrt()) == pytest.approx(5, rel=0.1)
    assert isinstance(fitted.posterior, bc.PBP)
    mean, variance, analytic = fitted.posterior.moments(fitted.problem, fitted.state, x)
    torch.testing.assert_close(noise, analytic.expand_as(noise))
    torch.testing.assert_close(fitted.predict(x).variance(), variance + analytic)
    assert float((mean - 7 - 10 * x[:, 0]).square().mean().sqrt()) < 1


def test_fixed_noise_stays_as_it_was_given() -> None:
    x, y = curve()
    fitted = bc.fit("pbp", MLP, (x, y), likelihood=bc.Gaussian(noise=0.25), epochs=2)
    assert NOISE not in fitted.state
    torch.testing.assert_close(fitted.sample(3).predict(x).variances, torch.full((3, 40), 0.25**2, dtype=F64))


def test_draws_have_the_moments_of_the_state() -> None:
    x, y = curve()
    fitted = bc.fit("pbp", MLP, (x, y), likelihood="gaussian", epochs=3)
    weights = fitted.sample(20_000, seed=3).stacked["linear1.weight"]
    mean, variance = fitted.state["linear1.weight"][0], fitted.state["variance/linear1.weight"][0]
    assert bool(((weights.mean(0) - mean).abs() < 5 * (variance / 20_000).sqrt()).all())
    torch.testing.assert_close(weights.var(0), variance, rtol=0.06, atol=0)


def test_drawn_members_agree_with_the_analytic_predictive() -> None:
    x, y = curve(80)
    fitted = bc.fit("pbp", MLP, (x, y), likelihood="gaussian", epochs=10)
    drawn, analytic = fitted.sample(4000).predict(x), fitted.predict(x)
    assert float((drawn.mean() - analytic.mean()).abs().max()) < 0.1 * float(analytic.variance().sqrt().mean())
    torch.testing.assert_close(drawn.variance(), analytic.variance(), rtol=0.1, atol=0)
    far = fitted.predict(x * 20)
    assert float(far.variance().median()) > 10 * float(analytic.variance().median())


@pytest.mark.parametrize("sizes", [(30, 30, 30), (30, 22, 17)])
def test_splits_fitted_at_once_equal_those_fitted_alone(sizes: tuple[int, ...]) -> None:
    splits = [curve(n, seed=i) for i, n in enumerate(sizes)]
    together = bc.fit_splits("pbp", MLP, splits, likelihood="gaussian", epochs=3, seed=4)
    for i, split in enumerate(splits):
        alone = bc.fit("pbp", MLP, split, likelihood="gaussian", epochs=3, seed=4 + i)
        assert set(alone.state) == set(together[i].state)
        for name, value in alone.state.items():
            torch.testing.assert_close(together[i].state[name], value, rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(together[i].predict(split[0]).means, alone.predict(split[0]).means)


def test_an_update_takes_the_posterior_as_prior_of_the_new_rows() -> None:
    x, y = one_hot((3, 2, 4, 1))
    first = linear(x[::2], y[::2])
    both = first.update((x[1::2], y[1::2]))
    mean, variance = conjugate(x, y, 0.3, 0.7)
    torch.testing.assert_close(both.state["weight"][0, 0], mean, rtol=0, atol=1e-13)
    torch.testing.assert_close(both.state["variance/weight"][0, 0], variance, rtol=0, atol=1e-13)
    assert both.data is not None
    assert both.data.n_rows == 10


def test_a_warm_start_takes_the_means_of_any_method() -> None:
    x, y = curve()
    point = bc.fit("map", MLP, (x, y), likelihood="gaussian", epochs=5)
    warm = bc.fit("pbp", MLP, (x, y), likelihood="gaussian", epochs=0, warm=point)
    assert torch.equal(warm.state["linear2.weight"], point.state["linear2.weight"])
    fresh = bc.fit("pbp", MLP, (x, y), likelihood="gaussian", epochs=0)
    assert torch.equal(warm.state["variance/linear2.weight"], fresh.state["variance/linear2.weight"])
    with pytest.raises(bc.InvalidModel, match="warm start"):
        bc.fit("pbp", {"name": "mlp", "hidden": [5]}, (x, y), likelihood="gaussian", epochs=0, warm=point)


def test_a_fit_read_from_a_file_goes_on_with_the_same_kind_of_prior(tmp_path: Path) -> None:
    x, y = curve()
    for prior in ({}, {"prior": bc.Normal(scale=1.0)}):
        fitted = bc.fit("pbp", MLP, (x, y), likelihood="gaussian", epochs=1, **prior)
        fitted.save(tmp_path / "f")
        read = bc.load(tmp_path / "f")
        assert set(read.update((x, y)).state) == set(fitted.state)
        again = read.update((x, y), keep=False).state
        assert (PRIOR in again) == (not prior)
        assert all(torch.equal(again[k], v) for k, v in fitted.update((x, y), keep=False).state.items())


def test_a_resume_in_the_middle_of_a_pass_goes_on_bit_for_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bensemble_core.posteriors.moment_matching.filtering._QUIET_SECONDS", 0.0)
    x, y = curve(15)
    kept: list[dict[str, Tensor]] = []

    def stop(done: int, total: int, message: str, snapshot: Snapshot) -> None:
        if done == 22:
            kept.append(snapshot())
            assert message == "pass 2 of 3"
            raise bc.Cancelled("enough")

    with pytest.raises(bc.Cancelled):
        bc.fit("pbp", MLP, (x, y), likelihood="gaussian", epochs=3, report=stop)
    snapshot = bc.load_tensors(bc.save_tensors(kept[0]))
    resumed = bc.fit("pbp", MLP, (x, y), likelihood="gaussian", epochs=3, resume=snapshot)
    straight = bc.fit("pbp", MLP, (x, y), likelihood="gaussian", epochs=3)
    assert all(torch.equal(resumed.state[k], v) for k, v in straight.state.items())
    with pytest.raises(bc.InvalidData, match="another training"):
        bc.fit("pbp", MLP, (x, y), likelihood="gaussian", epochs=4, resume=snapshot)


def test_an_update_that_would_make_a_variance_negative_is_skipped() -> None:
    layers = chain(nn.Linear(2, 1, bias=False))
    means, variances = [torch.zeros(1, 1, 2, dtype=F64)], [torch.tensor([[[1.0, 0.1]]], dtype=F64)]
    records = [Record(mean=torch.ones(1, 1, 2, dtype=F64), variance=None, slopes=None)]
    one = torch.ones(1, 1, 1, dtype=F64)
    update_weights(layers, means, variances, records, 2 * one, -one)  # shrinks by v (4 + 2)
    torch.testing.assert_close(means[0][0, 0], torch.tensor([0, 0.2], dtype=F64))
    torch.testing.assert_close(variances[0][0, 0], torch.tensor([1.0, 0.04], dtype=F64))


class Custom(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x)
        return out


def tied() -> nn.Module:
    layer = nn.Linear(3, 3)
    return nn.Sequential(layer, nn.ReLU(), layer, nn.ReLU(), nn.Linear(3, 1))


def frozen() -> nn.Module:
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
    net[0].requires_grad_(False)
    return net


@pytest.mark.parametrize(
    ("model", "extra", "words"),
    [
        ({"name": "mlp", "hidden": [4], "activation": "tanh"}, {}, "a Tanh at place"),
        (nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1)), {}, "a BatchNorm1d"),
        (nn.Sequential(nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(2, 1)), {}, "Unflatten"),
        (nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1)), {}, "without a ReLU between"),
        (nn.Sequential(nn.Linear(3, 1), nn.ReLU()), {}, "no linear layer at the end"),
        (Custom(), {}, "a Custom"),
        (tied(), {}, "tied or frozen"),
        (frozen(), {}, "tied or frozen"),
        (MLP, {"likelihood": "heteroscedastic_gaussian"}, "one noise level"),
        (MLP, {"likelihood": "categorical"}, "use likelihood="),
        (MLP, {"prior": None}, "needs a prior"),
        (MLP, {"epochs": -1}, "epochs is at least 0"),
        (MLP, {"lr": 0.1}, "no option 'lr'"),
    ],
)
def test_what_it_is_not_for_is_refused_before_any_work(model: Any, extra: dict[str, Any], words: str) -> None:
    x, y = curve()
    y = (y > 5).long() if extra.get("likelihood") == "categorical" else y

    def never(done: int, total: int, message: str, snapshot: Snapshot) -> None:
        raise AssertionError("work was done")

    with pytest.raises(bc.BensembleError, match=words):
        bc.fit("pbp", model, (x, y), report=never, **({"likelihood": "gaussian"} | extra))


def test_several_outputs_no_rows_and_other_predictives_are_refused() -> None:
    x, y = curve()
    with pytest.raises(bc.InvalidModel, match="one output, got 2"):
        bc.fit("pbp", MLP, (x, torch.stack([y, y], 1)), likelihood="gaussian")
    with pytest.raises(bc.InvalidOption, match="no predictive in closed form"):
        bc.fit("map", MLP, (x, y), likelihood="gaussian", epochs=0).predict(x)
    fitted = bc.fit("pbp", MLP, (x, y), likelihood="gaussian", epochs=1)
    with pytest.raises(bc.InvalidData, match="nothing to train on"):
        fitted.update((x[:0], y[:0]))


def test_rows_of_zeros_before_a_layer_without_bias_do_no_harm() -> None:
    x, y = curve(20)
    x = torch.cat([torch.zeros(5, 3, dtype=F64), x[5:]])
    net = nn.Sequential(nn.Linear(3, 5, bias=False), nn.ReLU(), nn.Linear(5, 1))
    fitted = bc.fit("pbp", net, (x, y), likelihood="gaussian", epochs=3, standardise=False)
    assert all(bool(v.isfinite().all()) for v in fitted.state.values())
    assert all(bool((v > 0).all()) for k, v in fitted.state.items() if k.startswith(VARIANCE))


def test_single_precision_rows_give_single_precision_members_and_units_do_not_matter() -> None:
    x, y = curve()
    double = bc.fit("pbp", MLP, (x, y), likelihood="gaussian", epochs=3)
    single = bc.fit("pbp", MLP, (x.float(), y.float()), likelihood="gaussian", epochs=3)
    assert single.sample(2).predict(x.float()).means.dtype == single.predict(x.float()).means.dtype == torch.float32
    torch.testing.assert_close(single.predict(x.float()).means.double(), double.predict(x).means, rtol=1e-4, atol=1e-4)
    other = bc.fit("pbp", MLP, (x * 50 - 7, y * 200 + 1e4), likelihood="gaussian", epochs=3)
    torch.testing.assert_close(other.predict(x * 50 - 7).means, double.predict(x).means * 200 + 1e4, rtol=1e-8, atol=0)


def test_it_warns_where_it_has_diverged() -> None:
    """Two wide layers and 20 rows leave a spread of many sds; one layer of 50 does not."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(20, 8, generator=g, dtype=torch.float64)
    y = 5 + 3 * x[:, 0]
    deep = bc.fit("pbp", {"name": "mlp", "hidden": [128, 128]}, (x, y), likelihood="gaussian")
    flat = bc.fit("pbp", {"name": "mlp", "hidden": [50]}, (x, y), likelihood="gaussian")
    assert deep.diagnostics.values["spread"] > 100
    assert "diverged" in deep.diagnostics.warnings[0]
    assert flat.diagnostics.values["spread"] < 3
    assert not flat.diagnostics.warnings
    mean, variance, _ = flat.posterior.moments(flat.problem, flat.state, x)  # type: ignore[attr-defined]
    assert float(variance.median().sqrt() / y.std()) < 3
    assert float((mean - y).square().mean().sqrt()) < float(y.std())
