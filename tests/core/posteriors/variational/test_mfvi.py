"""Mean-field variational inference against closed forms, in float64; local reparameterisation; pruning; updates."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.optimize import minimize_scalar
from sklearn.datasets import load_digits
from torch import Tensor, nn

import bensemble_core as bc
from bensemble_core.ensemble.members import gather
from bensemble_core.posteriors.gaussian import Factorised, bayesian_names, count_rows, kl_divergence
from bensemble_core.posteriors.variational.local import LocalNoise, find_local
from bensemble_core.posteriors.variational.mfvi import MFVI
from bensemble_core.training.objectives import Batch
from bensemble_core.types import Snapshot

NOISE = 0.3
EXACT: dict[str, Any] = {"standardise": False, "epochs": 300, "lr": 0.1, "batch_size": 1000}


def regression(n: int = 30, d: int = 4, seed: int = 0, orthogonal: bool = False) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=g, dtype=torch.float64)
    if orthogonal:
        x = torch.linalg.qr(x).Q * torch.linspace(1, 3, d, dtype=torch.float64)
    else:
        x[:, 1:] += 0.7 * x[:, :-1]
    w = torch.randn(d, generator=g, dtype=torch.float64)
    return x, x @ w + NOISE * torch.randn(n, generator=g, dtype=torch.float64)


def exact(x: Tensor, y: Tensor, scale: float = 1.0, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """Mean and precision of p(w) p(y | w)^(1/T)."""
    s2 = NOISE**2 * temperature
    precision = x.T @ x / s2 + torch.eye(x.shape[1], dtype=torch.float64) / scale**2
    return torch.linalg.solve(precision, x.T @ y / s2), precision


def log_evidence(x: Tensor, y: Tensor, scale: float = 1.0) -> float:
    n = len(y)
    covariance = NOISE**2 * torch.eye(n, dtype=torch.float64) + scale**2 * x @ x.T
    zero = torch.zeros(n, dtype=torch.float64)
    return float(torch.distributions.MultivariateNormal(zero, covariance).log_prob(y))


def linear(x: Tensor, y: Tensor, **changes: Any) -> bc.Fitted:
    net = nn.Linear(x.shape[1], 1, bias=False)
    return bc.fit("mfvi", net, (x, y), **({"likelihood": bc.Gaussian(noise=NOISE)} | EXACT | changes))


def moments(fitted: bc.Fitted, name: str = "weight") -> tuple[Tensor, Tensor]:
    return fitted.state[name][0, 0], (2 * fitted.state[f"log_sd/{name}"][0, 0]).exp()


@pytest.mark.parametrize("scale", [0.4, 1.0])
def test_on_linear_regression_it_is_the_best_factorised_gaussian(scale: float) -> None:
    x, y = regression()
    fitted = linear(x, y, prior=bc.Normal(scale=scale))
    mean, precision = exact(x, y, scale)
    found, variance = moments(fitted)
    torch.testing.assert_close(found, mean, rtol=0, atol=2e-4)
    torch.testing.assert_close(variance, 1 / precision.diagonal(), rtol=1e-4, atol=0)
    gap = 0.5 * (precision.diagonal().log().sum() - torch.logdet(precision))
    assert fitted.bound(samples=1) == pytest.approx(log_evidence(x, y, scale) - float(gap), abs=1e-6)
    draws = fitted.sample(20_000, seed=3).stacked["weight"][:, 0]
    torch.testing.assert_close(draws.var(0), 1 / precision.diagonal(), rtol=0.05, atol=0)
    assert bool(((draws.mean(0) - mean).abs() < 4 * (variance / 20_000).sqrt() + 1e-5).all())


def test_biases_are_weights_like_others_and_units_of_the_targets_are_kept() -> None:
    x, y = regression()
    fitted = bc.fit("mfvi", {"name": "mlp", "hidden": []}, (x, y + 2), likelihood=bc.Gaussian(noise=NOISE), **EXACT)
    wide = torch.cat([x, torch.ones(30, 1, dtype=torch.float64)], 1)
    mean, precision = exact(wide, y + 2)
    found = torch.cat([fitted.state["linear1.weight"][0, 0], fitted.state["linear1.bias"][0]])
    log_sd = torch.cat([fitted.state["log_sd/linear1.weight"][0, 0], fitted.state["log_sd/linear1.bias"][0]])
    torch.testing.assert_close(found, mean, rtol=0, atol=1e-3)
    torch.testing.assert_close((2 * log_sd).exp(), 1 / precision.diagonal(), rtol=1e-3, atol=0)
    standardised = bc.fit(
        "mfvi", {"name": "mlp", "hidden": []}, (x, 10 * y), likelihood=bc.Gaussian(noise=10 * NOISE), epochs=3
    )
    own = bc.fit("mfvi", {"name": "mlp", "hidden": []}, (x, y), likelihood=bc.Gaussian(noise=NOISE), epochs=3)
    assert standardised.bound(samples=1) == pytest.approx(own.bound(samples=1) - 30 * math.log(10), abs=1e-6)


def test_drawing_weights_in_training_reaches_the_same_answer() -> None:
    x, y = regression()
    fitted = linear(x, y, local_reparameterisation=False, samples=300)
    mean, precision = exact(x, y)
    found, variance = moments(fitted)
    torch.testing.assert_close(found, mean, rtol=0, atol=5e-3)
    torch.testing.assert_close(variance, 1 / precision.diagonal(), rtol=0.03, atol=0)


@pytest.mark.parametrize("temperature", [0.2, 3.0])
def test_tempering_is_the_likelihood_to_a_power_with_the_prior_as_it_is(temperature: float) -> None:
    x, y = regression()
    fitted = linear(x, y, temperature=temperature, prior=bc.Normal(scale=0.5))
    mean, precision = exact(x, y, 0.5, temperature)
    found, variance = moments(fitted)
    torch.testing.assert_close(found, mean, rtol=0, atol=2e-4)
    torch.testing.assert_close(variance, 1 / precision.diagonal(), rtol=1e-4, atol=0)


def test_batches_stand_for_all_rows() -> None:
    x, y = regression(64)
    fitted = linear(x, y, batch_size=16, epochs=120, lr=0.05)
    mean, precision = exact(x, y)
    found, variance = moments(fitted)
    torch.testing.assert_close(found, mean, rtol=0, atol=3e-3)
    torch.testing.assert_close(variance, 1 / precision.diagonal(), rtol=0.01, atol=0)


def test_the_divergence_is_that_of_torch() -> None:
    g = torch.Generator().manual_seed(0)
    mean, log_sd, prior_mean = torch.randn(3, 50, generator=g, dtype=torch.float64)
    prior_sd = torch.rand(50, generator=g, dtype=torch.float64) + 0.1
    q = torch.distributions.Normal(mean, log_sd.exp())
    p = torch.distributions.Normal(prior_mean, prior_sd)
    torch.testing.assert_close(
        kl_divergence(mean, log_sd, prior_mean, prior_sd), torch.distributions.kl_divergence(q, p)
    )


class Image(nn.Module):
    """Two convolutions, the second in groups, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv2d(2, 4, 2)
        self.two = nn.Conv2d(4, 4, 2, groups=2, padding=1, padding_mode="circular", bias=False)
        self.head = nn.Linear(4 * 9, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(torch.tanh(self.two(torch.tanh(self.one(x)))).flatten(1)[:, :36])
        return out


class Sequence(nn.Module):
    """A linear layer at every position of a row."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 5)
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(torch.tanh(self.inner(x)).mean(1))
        return out


def gradients(net: nn.Module, x: Tensor, local: bool, repeats: int, *, regress: bool = False) -> tuple[Tensor, Tensor]:
    """Losses [R] and gradients [R, P] of the objective on one batch, over independent noise."""
    g = torch.Generator().manual_seed(1)
    n_out = 3
    y = torch.randn(len(x), n_out, generator=g) if regress else torch.randint(n_out, (len(x),), generator=g)
    likelihood: Any = bc.Gaussian(noise=0.5) if regress else "categorical"
    posterior = MFVI(epochs=0, init_sigma=0.3, local_reparameterisation=local)
    fitted = bc.fit(posterior, net, (x, y), likelihood=likelihood, standardise=False)
    theta = {k: v for k, v in fitted.state.items() if "prior" not in k and "fitted" not in k}
    prior = {k: v for k, v in fitted.state.items() if "prior" in k}
    objective, transform = posterior._objective(fitted.problem, theta, {}, prior, {}, learn="fixed")
    assert (transform is not None) == local
    members = gather(fitted.problem, theta, {}, transform=transform, training=True, mode="loop")
    names = list(theta)
    losses, found = [], []
    for r in range(repeats):
        leaves = {k: v.clone().requires_grad_() for k, v in theta.items()}
        with torch.random.fork_rng():
            torch.manual_seed(r)
            encoded = fitted.problem.likelihood.encode(y, dtype=x.dtype)[None]
            batch = Batch(x=x, y=encoded, n_rows=len(x), seeds=[r])
            loss = objective(fitted.problem, lambda t, x: members(t, {}, x), leaves, batch).sum()
        parts = torch.autograd.grad(loss, [leaves[k] for k in names])
        losses.append(loss.detach())
        found.append(torch.cat([p.flatten() for p in parts]))
    return torch.stack(losses), torch.stack(found)


NETS: dict[str, Any] = {
    "mlp": lambda: seeded(lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))),
    "conv": lambda: seeded(Image),
    "sequence": lambda: seeded(Sequence),
}


def seeded(build: Any) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net: nn.Module = build()
    return net


@pytest.mark.parametrize(
    ("name", "shape", "regress"),
    [("mlp", (4,), False), ("mlp", (4,), True), ("conv", (2, 3, 3), False), ("sequence", (3, 4), False)],
)
def test_local_noise_has_the_same_expected_loss_and_gradient_with_less_variance(
    name: str, shape: tuple[int, ...], regress: bool
) -> None:
    net = NETS[name]()
    x = torch.randn(12, *shape, generator=torch.Generator().manual_seed(0))
    repeats = 120
    losses, slopes = gradients(net, x, True, repeats, regress=regress)
    plain_losses, plain_slopes = gradients(net, x, False, repeats, regress=regress)
    error = ((losses.var() + plain_losses.var()) / repeats).sqrt()
    assert abs(float(losses.mean() - plain_losses.mean())) < 4 * float(error)
    z = (slopes.mean(0) - plain_slopes.mean(0)) / ((slopes.var(0) + plain_slopes.var(0)) / repeats).sqrt()
    assert float(z.abs().max()) < 4.5
    assert float(slopes.var(0).sum()) < 0.5 * float(plain_slopes.var(0).sum())


def noisy_convolution(row: Tensor, n: int) -> Tensor:
    """Outputs [n, 2] of a convolution with weights N(0, 0.5²) for n copies of a row [3]."""
    net = nn.Sequential(nn.Conv1d(1, 1, 2, bias=False), nn.Flatten())
    rows = torch.zeros(2, 1, 3), torch.zeros(2, 2)
    fitted = bc.fit(MFVI(epochs=0), net, rows, likelihood=bc.Gaussian(noise=1.0), standardise=False)
    members = gather(fitted.problem, {"0.weight": fitted.state["0.weight"]}, {}, transform=LocalNoise(layers=("0",)))
    tensors = {"0.weight": torch.zeros(1, 1, 1, 2), "0.weight_sd": torch.full((1, 1, 1, 2), 0.5)}
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        return members(tensors, {}, row.expand(n, 1, 3))[0]


def test_the_noise_of_a_convolution_keeps_the_covariance_between_positions() -> None:
    h = noisy_convolution(torch.tensor([1.0, 2.0, -1.0]), 20_000)
    windows = torch.tensor([[1.0, 2.0], [2.0, -1.0]])
    torch.testing.assert_close(h.T.cov(), 0.25 * windows @ windows.T, rtol=0.05, atol=0.02)


def test_neighbouring_rows_share_a_draw_where_a_draw_for_each_would_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bensemble_core.posteriors.variational.local._BUDGET", 8)
    h = noisy_convolution(torch.tensor([1.0, 2.0, -1.0]), 12)  # 2 numbers a draw, so 4 draws of 3 rows
    assert torch.equal(h.unique_consecutive(dim=0).repeat_interleave(3, 0), h)
    assert len(h.unique(dim=0)) == 4


class Shared(nn.Module):
    """Layers that local noise must leave alone: called twice, tied, run on reshaped rows or with rows second."""

    def __init__(self) -> None:
        super().__init__()
        self.twice = nn.Linear(4, 4)
        self.tied_a, self.tied_b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.tied_b.weight = self.tied_a.weight
        self.reshaped = nn.Linear(2, 2)
        self.second = nn.Linear(2, 2)
        self.free = nn.Linear(4, 4)
        self.unused = nn.Linear(4, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.twice(self.twice(x))
        h = self.tied_b(self.tied_a(h))
        h = self.reshaped(h.reshape(-1, 2)).reshape(-1, 4)
        h = self.second(h.reshape(-1, 2, 2).transpose(0, 1)).transpose(0, 1).reshape(-1, 4)
        out: Tensor = self.head(self.free(h))
        return out


def test_layers_whose_rows_share_noise_draw_their_weights() -> None:
    x, y = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 0, 1, 0, 1])
    fitted = bc.fit("mfvi", Shared(), (x, y), likelihood="categorical", epochs=2)
    network = {k: v for k, v in fitted.state.items() if "/" not in k}
    layers, head = find_local(fitted.problem, network, set(network))
    assert layers == ("free", "head")
    assert head == "head"
    assert fitted.sample(3).predict(x).logits.shape == (3, 6, 2)


def test_a_learnt_prior_scale_maximises_the_evidence() -> None:
    x, y = regression(orthogonal=True)  # there the factorised posterior is exact, and so is the bound
    fitted = linear(x, y, prior_scale="learnt")
    best = minimize_scalar(lambda t: -log_evidence(x, y, math.exp(t)), bounds=(-3, 3), method="bounded")
    assert float(fitted.state["prior_sd/weight"]) == pytest.approx(math.exp(best.x), rel=1e-3)
    assert fitted.bound(samples=1) == pytest.approx(-best.fun, abs=1e-5)


def test_a_prior_scale_falls_no_faster_than_the_steps_allow() -> None:
    x, y = regression(orthogonal=True)
    wide = bc.Normal(scale=1e3)
    for epochs in (20, 60):
        fitted = linear(x, y, prior_scale="learnt", prior=wide, epochs=epochs)
        assert float(fitted.state["prior_sd/weight"]) == pytest.approx(1e3 * math.exp(-0.1 * 0.1 * epochs))
    narrow = linear(x, y, prior_scale="learnt", prior=bc.Normal(scale=0.05))  # upwards there is no such bound
    assert float(narrow.state["prior_sd/weight"]) == pytest.approx(
        float(linear(x, y, prior_scale="learnt").state["prior_sd/weight"]), rel=1e-3
    )


def test_a_learnt_prior_scale_does_not_collapse_where_weights_outnumber_rows() -> None:
    """3,500 weights and 300 rows of digits; learnt at once, every scale ends near 0.04 and every prediction uniform."""
    bunch = load_digits()
    x, y = torch.tensor(bunch.data, dtype=torch.float32), torch.tensor(bunch.target)
    fits, found = {}, {}
    for scale in ("fixed", "learnt", "ard"):
        fits[scale] = bc.fit(
            "mfvi",
            {"name": "mlp", "hidden": [32, 32]},
            (x[:300], y[:300]),
            likelihood="categorical",
            epochs=80,
            lr=0.03,
            prior_scale=scale,
        )
        found[scale] = bc.metrics.evaluate(fits[scale].sample(30).predict(x[1000:]), y[1000:])
    for scale in ("learnt", "ard"):
        assert found[scale]["nll"] < found["fixed"]["nll"] + 0.15
        assert found[scale]["accuracy"] > found["fixed"]["accuracy"] - 0.03
        assert fits[scale].bound(samples=10) > fits["fixed"].bound(samples=10)
        scales = torch.stack([v.mean() for k, v in fits[scale].state.items() if k.startswith("prior_sd/")])
        assert float(scales.min()) > 0.3
        assert len(set(scales.tolist())) == 6


def test_relevance_determination_switches_off_inputs_as_the_closed_form_says() -> None:
    g = torch.Generator().manual_seed(4)
    x = torch.linalg.qr(torch.randn(60, 6, generator=g, dtype=torch.float64)).Q * 4
    w = torch.tensor([1.5, 0.0, -0.7, 0.0, 0.4, 0.0], dtype=torch.float64)
    y = x @ w + NOISE * torch.randn(60, generator=g, dtype=torch.float64)
    fitted = linear(x, y, prior_scale="ard", epochs=800)
    estimate, variance = (x.T @ y) / 16, NOISE**2 / 16
    scale2 = (estimate.square() - variance).clamp_min(0)  # of the evidence's own maximum (MacKay; Tipping 2001)
    found = fitted.state["prior_sd/weight"][0, 0].square()
    relevant = scale2 > 0
    assert relevant.tolist()[::2] == [True, True, True]
    assert not bool(relevant.all())
    torch.testing.assert_close(found[relevant], scale2[relevant], rtol=0.02, atol=0)
    assert float(found[~relevant].max()) < 2e-4
    mean, _ = moments(fitted)
    assert float(mean[~relevant].abs().max()) < 0.02


def test_points_are_map_estimates_and_only_what_is_asked_for_has_a_distribution() -> None:
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 1))
    x, y = regression()
    fit = lambda **o: bc.fit("mfvi", net, (x, y), likelihood="gaussian", epochs=3, **o)  # noqa: E731
    names = lambda f: {k[7:] for k in f.state if k.startswith("log_sd/")}  # noqa: E731
    assert names(fit()) == {"0.weight", "0.bias", "3.weight", "3.bias"}
    assert names(fit(bayesian_biases=False)) == {"0.weight", "3.weight"}
    assert names(fit(bayesian_norms=True)) == {"0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias"}
    ensemble = fit(bayesian_biases=False).sample(3)
    assert set(ensemble.stacked) == {"0.weight", "3.weight"}
    mlp: Any = {"name": "mlp", "hidden": []}
    options = EXACT | {"bayesian_biases": False}
    fitted = bc.fit("mfvi", mlp, (x, y + 2), likelihood=bc.Gaussian(noise=NOISE), **options)
    mean, _ = exact(torch.cat([x, torch.ones(30, 1, dtype=torch.float64)], 1), y + 2)
    torch.testing.assert_close(fitted.state["linear1.bias"][0, 0], mean[-1], rtol=0, atol=1e-3)
    assert bayesian_names(fitted.problem, Factorised(bayesian_biases=False)) == ["linear1.weight"]


def test_map_epochs_start_the_means_at_the_map_with_a_small_spread() -> None:
    x, y = regression()
    fitted = linear(x, y, map_epochs=300, epochs=0, init_sigma=0.01)
    mean, _ = exact(x, y)
    found, variance = moments(fitted)
    torch.testing.assert_close(found, mean, rtol=0, atol=2e-4)
    torch.testing.assert_close(variance, torch.full_like(variance, 1e-4))


@pytest.mark.parametrize("stop_at", [2, 5])
def test_a_run_with_map_epochs_resumes_from_either_part(stop_at: int) -> None:
    x, y = regression(24)
    model = {"name": "mlp", "hidden": [5]}
    options: dict[str, Any] = {"likelihood": "gaussian", "epochs": 4, "map_epochs": 3, "batch_size": 8, "samples": 2}
    kept: list[dict[str, Tensor]] = []
    seen: list[tuple[int, int]] = []

    def cancel(done: int, total: int, message: str, snapshot: Snapshot) -> None:
        seen.append((done, total))
        if done >= 3 * stop_at:
            kept.append(snapshot())
            raise bc.Cancelled("stop")

    with pytest.raises(bc.Cancelled):
        bc.fit("mfvi", model, (x, y), report=cancel, **options)
    assert {total for _, total in seen} == {21}
    again = bc.fit("mfvi", model, (x, y), resume=bc.load_tensors(bc.save_tensors(kept[0])), **options)
    whole = bc.fit("mfvi", model, (x, y), **options)
    assert all(torch.equal(again.state[k], v) for k, v in whole.state.items())


def test_updates_on_orthogonal_parts_equal_one_fit_to_all_rows() -> None:
    parts = [regression(20, seed=s, orthogonal=True) for s in range(3)]
    x, y = torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])
    fitted = linear(x[:20], y[:20])
    for part in parts[1:]:
        fitted = fitted.update(part, epochs=200)
    mean, precision = exact(x, y)
    found, variance = moments(fitted)
    torch.testing.assert_close(found, mean, rtol=0, atol=1e-3)
    torch.testing.assert_close(variance, 1 / precision.diagonal(), rtol=1e-3, atol=0)
    with pytest.raises(bc.InvalidData, match="new rows alone"):
        fitted.bound((x, y))
    assert fitted.bound(samples=3) == fitted.bound((x[40:], y[40:]), samples=3)


def test_an_update_of_correlated_rows_takes_the_factorised_posterior_as_the_prior() -> None:
    x, y = regression(40)
    first = linear(x[:20], y[:20])
    second = first.update((x[20:], y[20:]))
    m1, p1 = exact(x[:20], y[:20])
    d1 = torch.diag(p1.diagonal())
    precision = d1 + x[20:].T @ x[20:] / NOISE**2
    mean = torch.linalg.solve(precision, d1 @ m1 + x[20:].T @ y[20:] / NOISE**2)
    found, variance = moments(second)
    torch.testing.assert_close(found, mean, rtol=0, atol=1e-4)
    torch.testing.assert_close(variance, 1 / exact(x, y)[1].diagonal(), rtol=1e-4, atol=0)  # as of one fit to all
    together = first.update((x[20:], y[20:]), keep=True)
    torch.testing.assert_close(moments(together)[0], exact(x, y)[0], rtol=0, atol=1e-4)


def test_the_noise_after_updates_is_that_of_a_fit_to_all_rows() -> None:
    """Twelve rows say .33 of a noise of .3; each update weighs its rows against all before it."""
    x, y = regression(100)
    fitted = first = linear(x[:12], y[:12], likelihood="gaussian")
    for start in range(12, 100, 44):
        fitted = fitted.update((x[start : start + 44], y[start : start + 44]))
    whole = linear(x, y, likelihood="gaussian")
    at_first, noise, expected = (float(f.state["likelihood/log_noise"].exp()) for f in (first, fitted, whole))
    assert at_first > 1.1 * expected
    assert noise == pytest.approx(expected, rel=0.03)


def test_a_file_that_counts_only_the_rows_of_its_last_update_weighs_those(tmp_path: Path) -> None:
    """As an earlier version left it."""
    x, y = regression(60)
    fitted = linear(x[:50], y[:50], likelihood="gaussian").update((x[50:55], y[50:55]), epochs=0)
    older = {**fitted.state, "fitted/n_rows": torch.tensor([5])}
    replace(fitted, state=older).save(tmp_path / "older")
    loaded = bc.load(tmp_path / "older", model=nn.Linear(4, 1, bias=False))
    assert (count_rows(fitted.state), count_rows(loaded.state)) == (55, 5)
    assert count_rows(loaded.update((x[55:], y[55:]), epochs=1).state) == 10


def test_an_update_needs_no_old_rows_and_leaves_points_alone(tmp_path: Path) -> None:
    x, y = regression(40)
    options: dict[str, Any] = {"epochs": 3, "patience": 1, "bayesian_biases": False}
    fitted = bc.fit("mfvi", {"name": "mlp", "hidden": [4]}, (x, y), likelihood="gaussian", **options)
    fitted.save(tmp_path / "f")
    loaded = bc.load(tmp_path / "f")
    updated = loaded.update((x[:9], y[:9]))
    assert torch.equal(updated.state["prior_mean/linear1.weight"], fitted.state["linear1.weight"])
    assert not torch.equal(updated.state["linear1.weight"], fitted.state["linear1.weight"])
    assert torch.equal(updated.state["linear1.bias"], fitted.state["linear1.bias"])
    assert math.isfinite(updated.bound((x[:9], y[:9]), samples=2))
    assert loaded.bound((x, y), samples=2) == fitted.bound(samples=2)


def test_pruning_removes_noise_and_counts_the_bits(tmp_path: Path) -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(200, 10, generator=g, dtype=torch.float64)
    w = torch.zeros(10, dtype=torch.float64)
    w[:3] = torch.tensor([2.0, -1.0, 0.5])
    y = x @ w + NOISE * torch.randn(200, generator=g, dtype=torch.float64)
    fitted = linear(x, y, epochs=200)
    pruned = bc.prune(fitted, threshold=4.0)
    assert (pruned.share, pruned.n_kept) == (0.7, 3)
    mean, variance = moments(fitted)
    one = torch.distributions.Normal(mean[:3], variance[:3].sqrt())
    kl = torch.distributions.kl_divergence(
        one, torch.distributions.Normal(torch.zeros(3).double(), torch.ones(3).double())
    )
    which = -10 * (0.7 * math.log2(0.7) + 0.3 * math.log2(0.3))
    assert pruned.bits == pytest.approx(float(kl.sum()) / math.log(2) + which, rel=1e-9)
    assert pruned.bits < pruned.bits_before
    draws = pruned.fitted.sample(5).stacked["weight"][:, 0]
    assert bool((draws[:, 3:] == 0).all())
    assert bool((draws[:, :3] != 0).all())
    assert math.isfinite(pruned.fitted.bound(samples=1))
    pruned.fitted.save(tmp_path / "f")
    kept = torch.equal(
        bc.load(tmp_path / "f", model=nn.Linear(10, 1, bias=False)).sample(5).stacked["weight"][:, 0], draws
    )
    assert kept
    later = pruned.fitted.update((x[:50], y[:50]), epochs=5)
    assert bool((later.sample(5).stacked["weight"][:, 0, 3:] == 0).all())
    assert bool((later.state["weight"][0, 0, 3:] == 0).all())
    half = bc.prune(pruned.fitted, share=0.8)
    assert (half.share, half.n_kept) == (0.8, 2)
    assert bool((half.fitted.sample(2).stacked["weight"][:, 0, 2:] == 0).all())
    nothing = bc.prune(fitted, threshold=0.0)
    assert (nothing.share, nothing.bits) == (0.0, pytest.approx(nothing.bits_before))


def test_a_network_is_surer_on_its_data_than_off_it() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.rand(60, 1, generator=g) * 2 - 1
    y = torch.sin(3 * x[:, 0]) + 0.1 * torch.randn(60, generator=g)
    fitted = bc.fit("mfvi", {"name": "mlp", "hidden": [30]}, (x, y), likelihood="gaussian", epochs=200, lr=0.03)
    spread = fitted.sample(100).predict(torch.tensor([[0.0], [4.0]])).means.std(0)
    assert float(spread[1]) > 3 * float(spread[0])


@pytest.mark.parametrize("likelihood", [bc.HeteroscedasticGaussian(), bc.Gaussian()])
def test_regression_with_learnt_noise_runs_in_single_precision(likelihood: Any) -> None:
    x, y = (t.float() for t in regression())
    fitted = bc.fit("mfvi", {"name": "mlp", "hidden": [5]}, (x, y), likelihood=likelihood, epochs=3, prior_scale="ard")
    pred = fitted.sample(3).predict(x)
    assert pred.means.dtype == torch.float32
    assert bool(pred.variances.isfinite().all())
    assert math.isfinite(fitted.bound(samples=3))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.lstm = nn.LSTM(4, 5, batch_first=True)
        self.head = nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.lstm(self.embed(x))[0][:, -1])
        return out


def test_any_module_can_be_fitted_and_updated() -> None:
    g = torch.Generator().manual_seed(0)
    x, y = torch.randint(7, (20, 6), generator=g), torch.randint(2, (20,), generator=g)
    fitted = bc.fit("mfvi", Recurrent(), (x, y), likelihood="categorical", epochs=2, samples=2)
    logits = fitted.sample(3).predict(x).logits
    assert bool(logits.isfinite().all())
    assert float(logits.std(0).min()) > 0
    assert math.isfinite(fitted.update((x[:5], y[:5])).bound((x[:5], y[:5]), samples=2))


def test_what_cannot_be_done_is_refused_before_any_work() -> None:
    x, y = regression()
    calls: list[int] = []

    def count(done: int, total: int, message: str, snapshot: Snapshot) -> None:
        calls.append(done)

    with pytest.raises(bc.InvalidOption, match=r"pass prior=Normal"):
        linear(x, y, prior=None, report=count)
    with pytest.raises(bc.InvalidOption, match="temperature"):
        linear(x, y, temperature=0.0, report=count)
    frozen = nn.Linear(4, 1).requires_grad_(False)
    with pytest.raises(bc.InvalidModel, match="unfreeze"):
        bc.fit("mfvi", frozen, (x, y), likelihood="gaussian", report=count)
    assert not calls
    point = bc.fit("map", nn.Linear(4, 1), (x, y), likelihood="gaussian", epochs=1)
    with pytest.raises(bc.InvalidOption, match="use mfvi"):
        bc.prune(point, share=0.5)
    with pytest.raises(bc.InvalidOption, match="no bound"):
        point.bound()
    fitted = linear(x, y, epochs=1)
    for wrong in ({}, {"share": 0.5, "threshold": 1.0}, {"share": 2.0}, {"threshold": -1.0}):
        with pytest.raises(bc.InvalidOption, match="prune"):
            bc.prune(fitted, **wrong)
