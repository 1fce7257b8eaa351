"""Adversarial and anchored ensembles, Gaussian and concrete dropout: closed forms and oracles, in float64."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bensemble_core as bc
from bensemble_core.models.transforms import ConcreteMasks
from bensemble_core.posteriors.ensembles.deep import anchors, noisy_targets
from bensemble_core.randomness import derive, draw_seed, generator
from bensemble_core.training import descent as training
from bensemble_core.types import Data

EXACT: dict[str, Any] = {"standardise": False, "batch_size": 1000}


def regression(n: int = 20, d: int = 3, noise: float = 0.3, seed: int = 0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=g, dtype=torch.float64) * torch.linspace(0.5, 1.5, d, dtype=torch.float64)
    w = torch.randn(d, generator=g, dtype=torch.float64)
    return x, x @ w + noise * torch.randn(n, generator=g, dtype=torch.float64)


def linear(bias: bool = False) -> nn.Linear:
    """A layer with the same weights in every run of the tests."""
    layer = nn.Linear(3, 1, bias=bias).double()
    layer.weight.data = torch.tensor([[0.8, -0.5, 0.4]], dtype=torch.float64)
    if bias:
        layer.bias.data.fill_(0.2)
    return layer


def anchored(x: Tensor, y: Tensor, noise: float, scale: float, members: int, **options: Any) -> bc.Fitted:
    return bc.fit(
        "deep_ensemble",
        linear(),
        (x, y),
        likelihood=bc.Gaussian(noise=noise),
        prior=bc.Normal(scale=scale),
        anchored=True,
        members=members,
        **(EXACT | {"epochs": 500, "lr": 0.1} | options),
    )


def test_each_anchored_member_is_its_own_closed_form() -> None:
    noise, scale = 0.5, 0.8
    x, y = regression()
    fitted = anchored(x, y, noise, scale, 6, epochs=700)
    base = draw_seed(generator(0, 1))  # the seed of fit, on its branch for fitting
    seeds = [derive(base, m) for m in range(6)]
    away = anchors(fitted.problem, {"weight": fitted.state["weight"]}, seeds)["weight"][:, 0]  # [M, D]
    own = noisy_targets(fitted.problem, Data(x=x, y=y[:, None]), seeds)
    assert own is not None
    precision = x.T @ x / noise**2 + torch.eye(3) / scale**2
    exact = torch.linalg.solve(precision, x.T @ own[..., 0].T / noise**2 + away.T / scale**2).T
    torch.testing.assert_close(fitted.state["weight"][:, 0], exact, rtol=0, atol=1e-6)


def test_members_with_batches_use_their_own_targets() -> None:
    noise, scale = 1.0, 1.0
    x, y = regression(24, noise=1.0)
    fitted = anchored(x, y, noise, scale, 3, epochs=250, batch_size=8, lr=0.05)
    seeds = [derive(draw_seed(generator(0, 1)), m) for m in range(3)]
    away = anchors(fitted.problem, {"weight": fitted.state["weight"]}, seeds)["weight"][:, 0]
    own = noisy_targets(fitted.problem, Data(x=x, y=y[:, None]), seeds)
    assert own is not None
    precision = x.T @ x / noise**2 + torch.eye(3) / scale**2
    exact = torch.linalg.solve(precision, x.T @ own[..., 0].T / noise**2 + away.T / scale**2).T
    torch.testing.assert_close(fitted.state["weight"][:, 0], exact, rtol=0, atol=2e-3)


def test_anchored_members_of_a_linear_model_are_draws_of_the_posterior() -> None:
    noise, scale, members = 0.5, 0.8, 800
    x, y = regression(6)
    draws = anchored(x, y, noise, scale, members, epochs=250).state["weight"][:, 0]
    precision = x.T @ x / noise**2 + torch.eye(3) / scale**2
    mean = torch.linalg.solve(precision, x.T @ y / noise**2)
    white = (draws - mean) @ torch.linalg.cholesky(precision)  # standard normal, if the covariance is P⁻¹
    assert float(white.mean(0).abs().max()) < 4 / members**0.5
    assert float((torch.cov(white.T) - torch.eye(3)).abs().max()) < 4 * (2 / members) ** 0.5


def test_anchored_noise_is_in_the_units_of_the_targets() -> None:
    x, y = regression(400, noise=2.0)
    fitted = bc.fit(
        "deep_ensemble",
        linear(),
        (x, 100 + 50 * y),
        likelihood=bc.Gaussian(noise=100.0),
        anchored=True,
        members=2,
        epochs=0,
    )
    targets = fitted.problem.likelihood.encode(100 + 50 * y, dtype=torch.float64)
    own = noisy_targets(fitted.problem, Data(x=x, y=targets), [1, 2, 3])
    assert own is not None
    spread = (own - targets).std() * (50 * y).std(correction=0)
    assert float(spread) == pytest.approx(100.0, rel=0.1)


def test_anchors_last_through_an_update_and_bring_out_the_prior_where_rows_say_nothing() -> None:
    x, y = regression(10)
    x[:, 2] = 0
    first = anchored(x, y, 0.5, 0.8, 4, epochs=400)
    second = first.update(regression(5, seed=1), epochs=0)
    assert torch.equal(second.state["weight"], first.state["weight"])
    seeds = [derive(draw_seed(generator(0, 1)), m) for m in range(4)]
    away = anchors(first.problem, {"weight": first.state["weight"]}, seeds)["weight"]
    torch.testing.assert_close(first.state["weight"][:, 0, 2], away[:, 0, 2], rtol=0, atol=1e-6)


@pytest.mark.parametrize("likelihood", ["categorical", "gaussian", "heteroscedastic_gaussian"])
@pytest.mark.parametrize("options", [{"anchored": True}, {"adversarial": 0.01}, {"anchored": True, "adversarial": 0.1}])
def test_every_likelihood_can_be_anchored_and_adversarial(likelihood: str, options: dict[str, Any]) -> None:
    x, y = regression(40)
    labels = (y > 0).long() if likelihood == "categorical" else y
    model = {"name": "mlp", "hidden": [8]}
    fit = lambda **o: bc.fit(  # noqa: E731
        "deep_ensemble", model, (x.float(), labels), likelihood=likelihood, epochs=40, batch_size=10, members=2, **o
    )
    pred = fit(**options).sample(2).predict(x.float())
    trained, untrained = (float(p.log_prob(labels).mean()) for p in (pred, fit(lr=1e-9).sample(2).predict(x.float())))
    assert trained > untrained + 0.2


def test_the_adversarial_step_is_the_papers() -> None:
    """w after one step of descent on ℓ(x) + ℓ(x + ε sign ∇ₓℓ), by hand, for squared error with noise 1."""
    x, y = regression(12)
    net = linear()
    share, lr = 0.05, 0.1
    fit = lambda epochs: bc.fit(  # noqa: E731
        "deep_ensemble",
        net,
        (x, y),
        likelihood=bc.Gaussian(noise=1.0),
        prior=bc.Normal(scale=2.0),
        members=2,
        adversarial=share,
        optimiser="sgd",
        momentum=0.0,
        schedule="constant",
        lr=lr,
        epochs=epochs,
        **EXACT,
    ).state["weight"][:, 0]
    for w, moved in zip(fit(0), fit(1), strict=True):
        uphill = -(y - x @ w)[:, None] * w  # of ½ (y − wx)² by x
        away = x + share * (x.amax(0) - x.amin(0)) * uphill.sign()
        gradient = sum(-(v * (y - v @ w)[:, None]).mean(0) for v in (x, away)) + w / (12 * 4)
        torch.testing.assert_close(moved, w - lr * gradient, rtol=0, atol=1e-12)


def test_adversarial_members_at_once_equal_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = regression(20)
    options: dict[str, Any] = {"likelihood": "gaussian", "epochs": 5, "members": 3, "adversarial": 0.02}
    fit = lambda size: bc.fit("deep_ensemble", {"name": "mlp", "hidden": [6]}, (x, y), batch_size=size, **options)  # noqa: E731
    gather = training.gather
    for size in (8, 100):
        monkeypatch.setattr(training, "gather", gather)
        at_once = fit(size).state
        monkeypatch.setattr(training, "gather", lambda *a, **k: gather(*a, **(k | {"mode": "loop"})))
        one_by_one = fit(size).state
        for name in at_once:
            torch.testing.assert_close(at_once[name], one_by_one[name], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("options", [{"anchored": True}, {"adversarial": 0.05}])
def test_options_of_the_ensemble_resume_in_the_same_bits(options: dict[str, Any]) -> None:
    x, y = regression(20)
    options = {"likelihood": bc.Gaussian(noise=0.3), "epochs": 4, "members": 2, "batch_size": 8} | options
    model, snapshots = {"name": "mlp", "hidden": [6]}, []
    keep = lambda done, total, message, snapshot: snapshots.append(snapshot())  # noqa: E731
    whole = bc.fit("deep_ensemble", model, (x, y), report=keep, **options)
    resumed = bc.fit("deep_ensemble", model, (x, y), resume=snapshots[1], **options)
    assert all(torch.equal(whole.state[k], resumed.state[k]) for k in whole.state)


def test_unsuitable_options_are_refused() -> None:
    x, y = regression()
    fit = lambda method, **o: bc.fit(method, {"name": "mlp"}, (x, y), likelihood="gaussian", **o)  # noqa: E731
    with pytest.raises(bc.InvalidOption, match=r"pass prior=Normal"):
        fit("deep_ensemble", anchored=True, prior=None)
    with pytest.raises(bc.InvalidOption, match="drop bootstrap"):
        fit("deep_ensemble", anchored=True, bootstrap=True)
    with pytest.raises(bc.InvalidOption, match="fix the rate"):
        fit("mc_dropout", kind="gaussian", learn_rates=True)
    words = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(8, 2))
    indices, labels = torch.arange(18).reshape(9, 2) % 9, torch.arange(9) % 2
    with pytest.raises(bc.InvalidData, match="drop adversarial"):
        bc.fit("deep_ensemble", words, (indices, labels), likelihood="categorical", adversarial=0.1)


@pytest.mark.parametrize("rate", [0.1, 0.4])
def test_gaussian_dropout_of_one_linear_layer_has_the_formulas_mean_and_variance(rate: float) -> None:
    x, y = regression()
    net = linear(bias=True)
    fitted = bc.fit("mc_dropout", net, (x, y), likelihood=bc.Gaussian(noise=0.3), epochs=0, rate=rate, kind="gaussian")
    ensemble = fitted.sample(20_000)
    masks, w = ensemble.stacked["input_mask"], net.weight.detach()[0]
    alpha = rate / (1 - rate)
    means = ensemble.predict(x[:4]).means  # [M, 4]
    by_hand = (masks[:, None] * x[:4] * w).sum(-1) + net.bias.detach()
    torch.testing.assert_close(means, by_hand, rtol=1e-10, atol=1e-10)
    exact = alpha * (w**2 * x[:4] ** 2).sum(1)
    torch.testing.assert_close(means.var(0), exact, rtol=4 * (2 / 20_000) ** 0.5, atol=0)
    assert float((masks.mean(0) - 1).abs().max()) < 4 * (alpha / 20_000) ** 0.5
    kurtosis = ((masks - 1) / alpha**0.5).pow(4).mean()
    assert float(kurtosis) == pytest.approx(3.0, abs=0.2)  # of a normal


def test_gaussian_dropout_training_is_ridge_like_for_one_linear_layer() -> None:
    """The expected squared error adds rate/(1 − rate) Σ_i w_i² Σ_n x_ni² for noise of either kind."""
    x, y = regression(400)
    rate = 0.3
    options = EXACT | {"epochs": 600, "lr": 0.03, "rate": rate, "kind": "gaussian", "prior": None}
    net = linear()
    fitted = bc.fit("mc_dropout", net, (x, y), likelihood=bc.Gaussian(noise=1.0), **options)
    gram = x.T @ x
    exact = torch.linalg.solve(gram + rate / (1 - rate) * torch.diag(gram.diagonal()), x.T @ y)
    torch.testing.assert_close(fitted.state["weight"][0, 0], exact, rtol=0, atol=0.03)


def relaxed_moments(p: float, temperature: float = 0.1) -> tuple[float, float]:
    """Mean and variance of a concrete mask (1 − z)/(1 − p), by the midpoint rule over u."""
    u = (torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000
    z = torch.sigmoid((math.log(p / (1 - p)) + torch.logit(u)) / temperature)
    mask = (1 - z) / (1 - p)
    return float(mask.mean()), float(mask.var())


def best_rate(x: Tensor, y: Tensor, w: Tensor, noise: float) -> float:
    """argmin over p of E Σ (y − Σ w x m)²/(2 noise²) − K H(p), frozen w: the objective of concrete dropout."""

    def objective(p: float) -> float:
        mean, variance = relaxed_moments(p)
        fit = (y - mean * (x @ w)).square().sum() + variance * (w**2 * x**2).sum()
        return float(fit) / (2 * noise**2) + len(w) * (p * math.log(p) + (1 - p) * math.log(1 - p))

    grid = [1 / (1 + math.exp(-a)) for a in torch.linspace(-7, 1, 161).tolist()]
    return min(grid, key=objective)


def learnt(x: Tensor, y: Tensor, net: nn.Module, noise: float, **options: Any) -> float:
    options = EXACT | {"epochs": 600, "lr": 0.1, "learn_rates": True} | options
    state = bc.fit("mc_dropout", net, (x, y), likelihood=bc.Gaussian(noise=noise), **options).state
    return float(state["input_rate"])


def test_a_learnt_rate_is_the_objectives_optimum_and_falls_as_rows_come() -> None:
    net = linear().requires_grad_(False)
    rates = []
    for n in (8, 24, 60):
        x, _ = regression(n)
        y = x @ net.weight[0]
        exact = best_rate(x, y, net.weight[0], 2.0)
        rates.append(learnt(x, y, net, 2.0, optimiser="sgd", momentum=0.0, lr=0.3 * n, epochs=600))
        assert rates[-1] == pytest.approx(exact, rel=0.12)  # .354, .231, .109
    assert rates[0] > 1.4 * rates[1] > 2 * rates[2]


def test_a_learnt_rate_is_one_half_where_data_and_prior_say_nothing() -> None:
    """Only the entropy is left (frozen weights have no prior); its maximum is at ½."""
    x, y = regression(10)
    net = linear().requires_grad_(False)
    assert learnt(x, y, net, 1e4) == pytest.approx(0.5, abs=1e-3)


def test_the_weights_of_a_layer_with_a_learnt_rate_have_the_scaled_prior() -> None:
    """Rows of zeros leave KL = |W|²/(2τ²(1 − p)) − K H(p); one step of descent shows its gradient."""
    x, y = torch.zeros(5, 3, dtype=torch.float64), torch.zeros(5, dtype=torch.float64)
    net = linear()
    w, p, tau, lr = net.weight.detach().clone()[0], 0.2, 0.7, 0.1
    step: dict[str, Any] = {"optimiser": "sgd", "momentum": 0.0, "schedule": "constant", "lr": lr, "epochs": 1}
    state = bc.fit(
        "mc_dropout",
        net,
        (x, y),
        likelihood=bc.Gaussian(noise=1.0),
        prior=bc.Normal(scale=tau),
        learn_rates=True,
        rate=p,
        **(EXACT | step),
    ).state
    torch.testing.assert_close(state["weight"][0, 0], w - lr * w / (tau**2 * (1 - p)) / 5, rtol=0, atol=1e-12)
    by_p = float(w.square().sum()) / (2 * tau**2 * (1 - p) ** 2) + 3 * math.log(p / (1 - p))  # of KL; N = 5
    logit = math.log(p / (1 - p)) - lr * by_p * p * (1 - p) / 5
    assert float(state["input_rate"]) == pytest.approx(1 / (1 + math.exp(-logit)), abs=1e-12)


def test_learnt_rates_are_each_layers_own_are_sampled_from_and_last_through_files_and_updates(tmp_path: Any) -> None:
    x, y = regression(60)
    model, options = {"name": "mlp", "hidden": [30, 20]}, {"likelihood": "gaussian", "learn_rates": True, "lr": 0.05}
    fitted = bc.fit("mc_dropout", model, (x, y), epochs=60, **options)
    rates = {k: float(v) for k, v in fitted.state.items() if k.endswith("input_rate")}
    assert set(rates) == {"linear2.input_rate", "linear3.input_rate"}
    assert all(0.001 < r < 0.999 and abs(r - 0.1) > 0.005 for r in rates.values())
    masks = fitted.sample(4000).stacked
    for layer in ("linear2", "linear3"):
        p = rates[f"{layer}.input_rate"]
        dropped = float((masks[f"{layer}.input_mask"] == 0).double().mean())
        assert dropped == pytest.approx(p, abs=4 * (p * (1 - p) / 80_000) ** 0.5)
        assert float(masks[f"{layer}.input_mask"].max()) == pytest.approx(1 / (1 - p))
    fitted.save(tmp_path / "f")
    assert torch.equal(bc.load(tmp_path / "f").sample(3).predict(x).means, fitted.sample(3).predict(x).means)
    again = fitted.update((x[:3], y[:3]), epochs=0)
    assert all(float(again.state[k]) == pytest.approx(r, abs=1e-12) for k, r in rates.items())


def test_learnt_rates_resume_in_the_same_bits_and_work_before_convolutions() -> None:
    x, y = regression(20, 16)
    images, labels = x.float().reshape(20, 1, 4, 4), (y > 0).long()
    model, snapshots = {"name": "conv", "channels": [3, 4], "hidden": 6}, []
    options: dict[str, Any] = {"likelihood": "categorical", "learn_rates": True, "epochs": 4, "batch_size": 10}
    keep = lambda done, total, message, snapshot: snapshots.append(snapshot())  # noqa: E731
    whole = bc.fit("mc_dropout", model, (images, labels), report=keep, **options)
    resumed = bc.fit("mc_dropout", model, (images, labels), resume=snapshots[1], **options)
    assert set(whole.state) == set(resumed.state)
    assert all(torch.equal(whole.state[k], resumed.state[k]) for k in whole.state)
    assert whole.sample(2).stacked["conv2.input_mask"].shape == (2, 3, 1, 1)


def test_concrete_masks_have_the_relaxed_moments_and_are_off_outside_training() -> None:
    masks = ConcreteMasks(layers=("",))
    layer = masks.prepare(nn.Linear(1, 1, bias=False).double())
    layer.weight.data.fill_(1.0)
    layer.input_logit = torch.tensor([math.log(0.3 / 0.7)], dtype=torch.float64)
    x = torch.ones(40_000, 1, dtype=torch.float64)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        drawn = layer.train()(x)
        assert torch.equal(layer.eval()(x), x)
    mean, variance = relaxed_moments(0.3)
    assert float(drawn.mean()) == pytest.approx(mean, abs=4 * (variance / 40_000) ** 0.5)
    assert float(drawn.var()) == pytest.approx(variance, rel=0.03)
