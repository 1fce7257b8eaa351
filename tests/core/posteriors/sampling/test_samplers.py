"""Samplers on posteriors of two weights whose moments a grid gives, and what every chain has to keep."""

import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor, nn

import bensemble_core as bc
from bensemble_core.types import Snapshot

Array = npt.NDArray[np.float64]
Log = Callable[[Array, Array], Array]
stats: Any = import_module("arviz_stats.base").array_stats

X = torch.tensor([[-1.0], [-0.5], [0.0], [0.5], [1.0]], dtype=torch.float64)
Y = torch.tensor([-0.7, -0.6, 0.1, 0.3, 0.9], dtype=torch.float64)
NOISE = 0.5


class Two(nn.Module):
    """A function of rows and two weights u, v."""

    def __init__(self, function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([0.3, -0.2], dtype=torch.float64))
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.w[0], self.w[1])


def logits(x: Tensor, u: Tensor, v: Tensor) -> Tensor:
    return torch.cat([0 * x, u + 2 * v * x], -1)


def gaussian(mean: Callable[[Array, Array, float], Array]) -> Log:
    """The log-likelihood of the rows with that mean, under the prior N(0, 1)."""

    def log(u: Array, v: Array) -> Array:
        errors = [(y - mean(u, v, x)) ** 2 for x, y in zip(X[:, 0].tolist(), Y.tolist(), strict=True)]
        return -0.5 * sum(errors) / NOISE**2 - 0.5 * (u**2 + v**2)  # type: ignore[no-any-return]

    return log


def logistic(u: Array, v: Array) -> Array:
    signs = [2 * float(y > 0) - 1 for y in Y.tolist()]
    terms = [-np.logaddexp(0, -s * (u + 2 * v * x)) for x, s in zip(X[:, 0].tolist(), signs, strict=True)]
    return sum(terms) - 0.5 * (u**2 + v**2)  # type: ignore[no-any-return]


TARGETS: dict[str, tuple[Any, Log]] = {
    "logistic": (logits, logistic),
    "banana": (lambda x, u, v: v + u**2 + 0 * x, gaussian(lambda u, v, x: v + u**2)),
    "funnel": (lambda x, u, v: u * v.exp() * x, gaussian(lambda u, v, x: u * np.exp(v) * x)),
    "two wells": (lambda x, u, v: u**2 * x + 0.5 * v, gaussian(lambda u, v, x: u**2 * x + 0.5 * v)),
    "tanh": (lambda x, u, v: u * (v * x).tanh(), gaussian(lambda u, v, x: u * np.tanh(v * x))),
}


def moments(log: Log) -> Array:
    """E u, E v, E u², E v², E uv over a grid of 1,600²."""
    axis = np.linspace(-6, 6, 1600)
    u, v = np.meshgrid(axis, axis, indexing="ij")
    density = log(u, v)
    weight = np.exp(density - density.max())
    weight /= weight.sum()
    return np.array([(weight * f).sum() for f in (u, v, u**2, v**2, u * v)])


def fit(target: str, method: str, **options: Any) -> bc.Fitted:
    function, _ = TARGETS[target]
    y = (Y > 0).long() if target == "logistic" else Y
    likelihood = "categorical" if target == "logistic" else bc.Gaussian(noise=NOISE)
    return bc.fit(method, Two(function), (X, y), likelihood=likelihood, standardise=False, **options)


def check_moments(fitted: bc.Fitted, expected: Array, *, bias: float = 0.0) -> None:
    """Each within five standard errors by its effective number of draws, and what a step size may cost."""
    chains = fitted.posterior.chains  # type: ignore[attr-defined]
    w = fitted.state["w"].numpy().reshape(chains, -1, 2)
    u, v = w[..., 0], w[..., 1]
    for series, value in zip((u, v, u**2, v**2, u * v), expected, strict=True):
        error = series.std() / float(stats.ess(series, chain_axis=0, draw_axis=1, method="mean")) ** 0.5
        assert error < 0.2 * max(1.0, series.std())
        assert abs(series.mean() - value) < 5 * error + bias * series.std()


@pytest.mark.parametrize("target", TARGETS)
def test_hmc_has_the_moments_of_the_grid(target: str) -> None:
    fitted = fit(target, "hmc", chains=40, samples=100, warmup=150, thin=2, leapfrog=16)
    check_moments(fitted, moments(TARGETS[target][1]))


@pytest.mark.parametrize("target", TARGETS)
def test_metropolis_has_the_moments_of_the_grid(target: str) -> None:
    fitted = fit(target, "metropolis", chains=60, samples=60, warmup=200, thin=10)
    check_moments(fitted, moments(TARGETS[target][1]))


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("sgld", {"lr": 0.2}),
        ("sgld", {"lr": 0.2, "schedule": "cyclical", "cycles": 3}),
        ("sghmc", {"lr": 0.4}),
        ("sghmc", {"lr": 0.05, "scheme": "chen"}),
    ],
)
def test_stochastic_gradients_have_the_moments_of_the_grid_to_their_step_size(
    method: str, options: dict[str, Any]
) -> None:
    fitted = fit("logistic", method, chains=60, samples=60, warmup=100, thin=10, preconditioner="none", **options)
    check_moments(fitted, moments(TARGETS["logistic"][1]), bias=0.05)


def test_a_preconditioner_that_is_held_keeps_the_distribution() -> None:
    fitted = fit("logistic", "sgld", chains=60, samples=60, warmup=200, thin=10, lr=0.2)
    check_moments(fitted, moments(TARGETS["logistic"][1]), bias=0.05)


@pytest.mark.parametrize(
    ("prior", "mean", "sd"),
    [(bc.DoubleExponential(scale=1.0), 1.161089, 0.875989), (bc.StudentT(df=3.0, scale=1.0), 1.171642, 0.845750)],
)
def test_other_priors_are_sampled_too(prior: Any, mean: float, sd: float) -> None:
    x, y = torch.ones(1, 1, dtype=torch.float64), torch.tensor([2.0], dtype=torch.float64)
    fitted = bc.fit(
        "hmc",
        nn.Linear(1, 1, bias=False),
        (x, y),
        likelihood=bc.Gaussian(noise=1.0),
        prior=prior,
        standardise=False,
        chains=40,
        samples=200,
        warmup=100,
    )
    drawn = fitted.state["weight"].flatten()
    error = sd / fitted.diagnostics.values["ess_bulk_weights"] ** 0.5
    assert abs(float(drawn.mean()) - mean) < 5 * error
    assert float(drawn.std()) == pytest.approx(sd, rel=0.05)


def test_annealing_ends_at_the_map() -> None:
    fitted = fit("logistic", "annealing", steps=3000)
    exact = fit("logistic", "map", epochs=3000)
    assert fitted.sample(5).n_members == 1
    torch.testing.assert_close(fitted.state["w"], exact.state["w"], rtol=0, atol=0.02)
    assert not fitted.diagnostics.warnings


def small(method: str, **more: Any) -> bc.Fitted:
    options: dict[str, Any] = {"steps": 40} if method == "annealing" else {"samples": 12, "warmup": 25}
    options = {"map_epochs": 2, "chains": 2} | options | more
    return bc.fit(method, {"name": "mlp", "hidden": [4]}, (X.float(), Y), likelihood="gaussian", **options)


METHODS = ("hmc", "metropolis", "annealing", "sgld", "sghmc")


@pytest.mark.parametrize("method", METHODS)
def test_a_chain_that_was_stopped_goes_on_bit_for_bit(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bensemble_core.posteriors.sampling.chains._QUIET_SECONDS", 0.0)
    whole = small(method)
    for stop in ("warm-up, step 20 ", "step 30 "):
        kept: list[dict[str, Tensor]] = []

        def cancel(
            done: int,
            total: int,
            message: str,
            snapshot: Snapshot,
            stop: str = stop,
            kept: list[dict[str, Tensor]] = kept,
        ) -> None:
            if stop in message:
                kept.append(snapshot())
                raise bc.Cancelled("stop")

        with pytest.raises(bc.Cancelled):
            small(method, report=cancel)
        resumed = small(method, resume=bc.load_tensors(bc.save_tensors(kept[0])))
        assert set(resumed.state) == set(whole.state)
        assert all(torch.equal(resumed.state[k], whole.state[k]) for k in whole.state)
        with pytest.raises(bc.InvalidSnapshot):
            small(method, resume=kept[0], seed=1)


def test_progress_is_reported_inside_a_trajectory_and_cancels_there() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(30_000, 40, generator=g)
    times: list[float] = []

    def report(done: int, total: int, message: str, snapshot: Snapshot) -> None:
        assert 0 < done <= total
        times.append(time.monotonic())
        if len(times) > 3:
            raise bc.Cancelled("enough")

    with pytest.raises(bc.Cancelled):  # a trajectory of these would take minutes
        bc.fit(
            "hmc",
            {"name": "mlp", "hidden": [256]},
            (x, (x[:, 0] > 0).long()),
            likelihood="categorical",
            report=report,
            map_epochs=0,
            warmup=1,
            samples=1,
            leapfrog=10_000,
            trajectory=1000,
        )
    assert len(times) == 4


def test_progress_is_reported_before_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bensemble_core.posteriors.sampling.chains._QUIET_SECONDS", 0.0)
    said: list[str] = []
    small("hmc", map_epochs=0, report=lambda done, total, message, snapshot: said.append(message))
    assert said[0].startswith("finding where the chains start")


def test_more_rows_start_where_the_chains_ended_with_their_tuning() -> None:
    first = small("hmc", samples=20, warmup=100)
    more = first.update((X[:2].float(), Y[:2]), samples=20, warmup=0)
    assert torch.equal(more.state["chain/step_size"], first.state["chain/step_size"])
    assert torch.equal(
        more.state["chain/inverse_mass/linear1.weight"], first.state["chain/inverse_mass/linear1.weight"]
    )
    warm = bc.fit("map", {"name": "mlp", "hidden": [4]}, (X.float(), Y), likelihood="gaussian", warm=first, epochs=0)
    assert torch.equal(warm.state["linear1.weight"][0], first.state["chain/position/linear1.weight"][0])


def test_draws_are_kept_chain_after_chain_and_thinned_evenly() -> None:
    fitted = small("hmc", samples=6)
    ends = fitted.state["linear1.weight"][[5, 11]]
    assert torch.equal(ends, fitted.state["chain/position/linear1.weight"])
    drawn = fitted.sample(4)
    assert torch.equal(drawn.stacked["linear1.weight"], fitted.state["linear1.weight"][[0, 3, 6, 9]])
    assert fitted.sample(100).n_members == 12


@pytest.mark.parametrize("method", ["hmc", "sgld", "metropolis"])
def test_the_last_layer_alone_is_the_exact_posterior_of_a_linear_model_on_its_features(
    method: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1, 3), nn.Tanh(), nn.Linear(3, 1)).double()
    more: dict[str, Any] = {"lr": 0.1, "preconditioner": "none"} if method == "sgld" else {}
    generator = torch.get_rng_state()
    fitted = bc.fit(
        method,
        net,
        (X, Y),
        likelihood=bc.Gaussian(noise=NOISE),
        standardise=False,
        subset="last_layer",
        map_epochs=0,
        chains=40,
        samples=100,
        warmup=200,
        thin=5,
        **more,
    )
    features = torch.cat([net[1](net[0](X)), torch.ones(5, 1, dtype=torch.float64)], 1).detach()
    precision = features.T @ features / NOISE**2 + torch.eye(4, dtype=torch.float64)
    mean = torch.linalg.solve(precision, features.T @ Y / NOISE**2)
    drawn = torch.cat([fitted.state["2.weight"].flatten(1), fitted.state["2.bias"]], 1)
    sd = torch.linalg.inv(precision).diagonal().sqrt()
    ess = min(1000.0, fitted.diagnostics.values["ess_bulk_weights"])
    assert bool(((drawn.mean(0) - mean).abs() < 5 * sd / ess**0.5).all())
    torch.testing.assert_close(drawn.std(0), sd, rtol=0.1, atol=0)
    assert torch.equal(fitted.state["0.weight"][0], net[0].weight.detach())
    assert torch.equal(torch.get_rng_state(), generator)
    fitted.save(tmp_path / "f")
    again = bc.load(tmp_path / "f", model=net).sample(7).predict(X)
    assert torch.equal(again.means, fitted.sample(7).predict(X).means)


def test_a_network_that_does_not_end_with_a_linear_layer_is_refused() -> None:
    net = nn.Sequential(nn.Linear(1, 1), nn.Tanh())
    with pytest.raises(bc.InvalidOption, match="ends with a linear layer"):
        bc.fit("hmc", net, (X.float(), Y), likelihood="gaussian", subset="last_layer")


def test_chains_that_sit_in_wells_with_different_predictions_warn_and_a_logistic_regression_does_not() -> None:
    class Wells(nn.Module):
        """At x = 1 the weights −1 and 1 say the same, at x = 0 they do not."""

        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.w**2 + (1 - x) * 0.3 * self.w

    x = (torch.arange(8) % 2)[:, None].float()
    noise = bc.Gaussian(noise=0.3)
    apart = bc.fit("hmc", Wells(), (x, x[:, 0]), likelihood=noise, standardise=False, samples=200, warmup=200, chains=8)
    signs = apart.state["chain/position/w"].sign().flatten()
    assert {-1.0, 1.0} == set(signs.tolist())
    assert any("disagree" in w for w in apart.diagnostics.warnings)
    assert any("disagree" in note for note in apart.sample(5).notes)
    agreed = fit("logistic", "hmc", chains=4, samples=300, warmup=300)
    assert agreed.diagnostics.warnings == ()
    assert agreed.diagnostics.values["rhat"] < 1.05
    assert agreed.diagnostics.values["divergences"] == 0


def test_steps_that_are_too_large_end_in_an_error_that_says_so() -> None:
    with pytest.raises(bc.NotFinite, match="smaller steps"):
        fit("logistic", "sghmc", lr=9.0, preconditioner="none")


def test_too_few_draws_are_no_ground_to_stand_on() -> None:
    assert any("too few draws" in w for w in small("hmc", samples=3).diagnostics.warnings)


@pytest.mark.parametrize("method", METHODS)
def test_what_cannot_be_sampled_is_refused_before_any_work(method: str) -> None:
    mlp = {"name": "mlp", "hidden": [4]}
    with pytest.raises(bc.InvalidOption, match="there is no prior"):
        bc.check(method, mlp, likelihood="gaussian", input_shape=[3], prior=None)
    if method in ("metropolis", "annealing"):
        with pytest.raises(bc.InvalidOption, match="at most 1,000 weights"):
            bc.check(method, {"name": "mlp", "hidden": [64]}, likelihood="gaussian", input_shape=[30])
    else:
        with pytest.raises(bc.InvalidOption, match="keeps every draw"):
            bc.check(
                method, {"name": "mlp", "hidden": [512, 512]}, likelihood="gaussian", input_shape=[512], samples=9000
            )


def test_what_does_not_fit_is_refused_in_a_sentence() -> None:
    first = small("hmc")
    with pytest.raises(bc.InvalidModel, match="warm start: expected"):
        bc.fit("hmc", {"name": "mlp", "hidden": [5]}, (X.float(), Y), likelihood="gaussian", warm=first, chains=2)
    kept: list[dict[str, Tensor]] = []

    def keep(done: int, total: int, message: str, snapshot: Snapshot) -> None:
        if "sampling" in message:
            kept.append(snapshot())

    small("hmc", report=keep)
    with pytest.raises(bc.InvalidSnapshot, match="another number of chains"):
        small("hmc", resume=kept[0], chains=3)
    fresh = small("hmc", resume={})
    assert torch.equal(fresh.state["linear1.weight"], first.state["linear1.weight"])
    with pytest.raises(bc.InvalidOption, match="map_epochs=100"):
        bc.check("annealing", "mlp", likelihood="gaussian", input_shape=[3], subset="last_layer")
    with pytest.raises(bc.InvalidOption, match=r"draws one with sample\(100\)"):
        bc.reweight(first, (X.float(), Y))  # type: ignore[arg-type]


def test_rows_of_a_batch_go_through_the_augmentation() -> None:
    seen: list[tuple[int, ...]] = []

    def augment(x: Tensor, rng: torch.Generator) -> Tensor:
        seen.append(tuple(x.shape))
        return x + 0.1 * torch.randn(x.shape, generator=rng)

    for size in (3, 5):
        first, again = (small("sgld", batch_size=size, map_epochs=0, augment=augment).state for _ in range(2))
        assert set(seen) == {(size, 1)}
        assert torch.equal(first["linear1.weight"], again["linear1.weight"])
        seen.clear()
    with pytest.raises(bc.InvalidOption, match="not trained in batches"):
        small("hmc", augment=augment)
