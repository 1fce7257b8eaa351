"""MAP, deep ensembles and dropout against closed forms, in float64."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import bensemble_core as bc

EXACT: dict[str, Any] = {"standardise": False, "epochs": 1500, "lr": 0.05, "batch_size": 1000}


def regression(n: int = 30, d: int = 4, noise: float = 0.3, seed: int = 0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=g, dtype=torch.float64) * torch.linspace(0.5, 2, d, dtype=torch.float64)
    w = torch.randn(d, generator=g, dtype=torch.float64)
    return x, x @ w + noise * torch.randn(n, generator=g, dtype=torch.float64)


def ridge(x: Tensor, y: Tensor, noise: float, scale: float) -> Tensor:
    precision = x.T @ x / noise**2 + torch.eye(x.shape[1], dtype=torch.float64) / scale**2
    return torch.linalg.solve(precision, x.T @ y / noise**2)


@pytest.mark.parametrize("scale", [0.2, 1.0])
def test_map_of_a_linear_model_is_the_closed_form(scale: float) -> None:
    x, y = regression()
    net = nn.Linear(4, 1, bias=False)
    fitted = bc.fit("map", net, (x, y), likelihood=bc.Gaussian(noise=0.3), prior=bc.Normal(scale=scale), **EXACT)
    torch.testing.assert_close(fitted.state["weight"][0, 0], ridge(x, y, 0.3, scale), rtol=0, atol=1e-8)
    assert fitted.sample(10).n_members == 1


def test_the_prior_covers_the_bias_too() -> None:
    x, y = regression()
    fitted = bc.fit(
        "map", {"name": "mlp", "hidden": []}, (x, y + 2), likelihood=bc.Gaussian(noise=0.5, learn_noise=False), **EXACT
    )
    expected = ridge(torch.cat([x, torch.ones(30, 1, dtype=torch.float64)], 1), y + 2, 0.5, 1.0)
    found = torch.cat([fitted.state["linear1.weight"][0, 0], fitted.state["linear1.bias"][0]])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-8)


def test_without_a_prior_map_is_least_squares() -> None:
    x, y = regression()
    fitted = bc.fit("map", nn.Linear(4, 1, bias=False), (x, y), likelihood=bc.Gaussian(noise=0.3), prior=None, **EXACT)
    expected = torch.linalg.lstsq(x, y[:, None]).solution[:, 0]
    torch.testing.assert_close(fitted.state["weight"][0, 0], expected, rtol=0, atol=1e-8)


def test_mini_batches_pursue_the_same_objective_as_all_rows() -> None:
    x, y = regression(64)
    options = EXACT | {"batch_size": 16, "epochs": 300}
    fitted = bc.fit("map", nn.Linear(4, 1, bias=False), (x, y), likelihood=bc.Gaussian(noise=1.0), **options)
    torch.testing.assert_close(fitted.state["weight"][0, 0], ridge(x, y, 1.0, 1.0), rtol=0, atol=1e-3)


def test_every_member_of_a_linear_ensemble_is_the_map() -> None:
    x, y = regression()
    fitted = bc.fit("deep_ensemble", nn.Linear(4, 1, bias=False), (x, y), likelihood=bc.Gaussian(noise=0.3), **EXACT)
    expected = ridge(x, y, 0.3, 1.0).expand(5, 4)
    torch.testing.assert_close(fitted.state["weight"][:, 0], expected, rtol=0, atol=1e-8)
    assert float(fitted.sample(5).predict(x).epistemic_variance().max()) < 1e-15


def test_bootstrap_members_differ_as_their_rows_do() -> None:
    x, y = regression()
    options = EXACT | {"bootstrap": True, "members": 3, "epochs": 800}
    weights = bc.fit(
        "deep_ensemble", nn.Linear(4, 1, bias=False), (x, y), likelihood=bc.Gaussian(noise=0.3), **options
    ).state["weight"][:, 0]
    assert float(weights.std(0).min()) > 1e-3
    assert float((weights - ridge(x, y, 0.3, 1.0)).abs().max()) < 0.5


@pytest.mark.parametrize("rate", [0.1, 0.4])
def test_dropout_variance_of_one_linear_layer_is_the_formula(rate: float) -> None:
    x, y = regression()
    net = nn.Linear(4, 1)
    fitted = bc.fit("mc_dropout", net, (x, y), likelihood=bc.Gaussian(noise=0.3), epochs=0, rate=rate)
    ensemble = fitted.sample(40_000, seed=1)
    means = ensemble.predict(x[:5]).means  # [M, 5]
    w = net.weight.detach().double()[0]
    exact = rate / (1 - rate) * (w**2 * x[:5] ** 2).sum(1)
    torch.testing.assert_close(means.var(0), exact, rtol=0.05, atol=0)
    centre = net.double()(x[:5]).detach()[:, 0]
    assert ((means.mean(0) - centre).abs() < 4 * (exact / 40_000).sqrt()).all()


def test_dropout_masks_every_layer_but_the_first_unless_asked() -> None:
    x, y = regression()
    model = {"name": "mlp", "hidden": [7, 5]}
    fit = lambda **o: bc.fit("mc_dropout", model, (x, y), likelihood="gaussian", epochs=1, **o).sample(3)  # noqa: E731
    assert {k: tuple(v.shape) for k, v in fit().stacked.items()} == {
        "linear2.input_mask": (3, 7),
        "linear3.input_mask": (3, 5),
    }
    assert "linear1.input_mask" in fit(mask_inputs=True).stacked
    assert set(fit().stacked["linear2.input_mask"].unique().tolist()) <= {0.0, 1 / 0.9}


def test_dropout_drops_whole_channels_before_convolutions_and_finds_layers_in_any_module() -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(12, 2)  # registered first, run last
            self.stem = nn.Conv2d(1, 4, 3, padding=1)
            self.conv = nn.Conv2d(4, 3, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(self.conv(self.stem(x).relu()).relu().flatten(1))
            return out

    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(20, 1, 2, 2, generator=g), torch.randint(2, (20,), generator=g)
    fitted = bc.fit("mc_dropout", Branches(), (x, y), likelihood="categorical", epochs=2, rate=0.5)
    ensemble = fitted.sample(6)
    shapes = {k: tuple(v.shape) for k, v in ensemble.stacked.items()}
    assert shapes == {"conv.input_mask": (6, 4, 1, 1), "head.input_mask": (6, 12)}
    net = Branches()
    net.load_state_dict({k: v[0] for k, v in fitted.state.items()})
    assert fitted.problem.scaling is not None
    h = net.stem(fitted.problem.scaling(x)).relu() * ensemble.stacked["conv.input_mask"][2]
    by_hand = net.head(net.conv(h).relu().flatten(1) * ensemble.stacked["head.input_mask"][2])
    torch.testing.assert_close(ensemble.predict(x).logits[2], by_hand, rtol=1e-5, atol=1e-5)


def test_dropout_training_is_ridge_like_for_one_linear_layer() -> None:
    """The expected squared error adds rate/(1 − rate) Σ_i w_i² Σ_n x_ni² (Srivastava et al. 2014, section 9.1)."""
    x, y = regression(40)
    rate = 0.3
    fitted = bc.fit(
        "mc_dropout",
        nn.Linear(4, 1, bias=False),
        (x, y),
        likelihood=bc.Gaussian(noise=1.0),
        prior=None,
        rate=rate,
        **(EXACT | {"epochs": 2500, "lr": 0.02}),
    )
    gram = x.T @ x
    exact = torch.linalg.solve(gram + rate / (1 - rate) * torch.diag(gram.diagonal()), x.T @ y)
    torch.testing.assert_close(fitted.state["weight"][0, 0], exact, rtol=0, atol=0.03)


def test_standardised_fits_do_not_depend_on_the_units_of_the_data() -> None:
    x, y = regression()
    fit = lambda x, y: bc.fit("deep_ensemble", {"name": "mlp", "hidden": [8]}, (x, y), likelihood="gaussian", epochs=30)  # noqa: E731
    ours = fit(x, y).sample(5).predict(x)
    theirs = fit(x * 50 - 7, y * 200 + 1e4).sample(5).predict(x * 50 - 7)
    torch.testing.assert_close(theirs.means, ours.means * 200 + 1e4, rtol=1e-9, atol=1e-6)
    torch.testing.assert_close(theirs.variances, ours.variances * 200**2, rtol=1e-6, atol=0)


def test_whole_numbers_that_float32_would_round_are_told_apart() -> None:
    seconds = torch.arange(60)[:, None]
    y = (seconds[:, 0] > 30).long()
    fit = lambda x: bc.fit("map", {"name": "mlp", "hidden": [8]}, (x, y), likelihood="categorical", epochs=200)  # noqa: E731
    fitted = fit(1_700_000_000 + seconds)
    assert fitted.problem.dtype == torch.float64
    assert fit(seconds).problem.dtype == torch.float32
    found = fitted.sample(1).predict((1_700_000_000 + seconds).numpy())
    assert (found.logits[0].argmax(-1) == y).float().mean() > 0.95


def test_learnt_noise_converges_to_the_residual_standard_deviation() -> None:
    x, y = regression(200, noise=0.7)
    options = {"epochs": 1500, "lr": 0.05, "batch_size": 1000}
    fitted = bc.fit("map", {"name": "mlp", "hidden": []}, (x, y * 10), likelihood="gaussian", prior=None, **options)
    pred = fitted.sample(1).predict(x)
    residual = (y * 10 - pred.means[0]).square().mean().sqrt()
    torch.testing.assert_close(pred.variances[0].sqrt(), residual.expand(200), rtol=1e-4, atol=0)


def test_heteroscedastic_noise_follows_the_input() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.rand(600, 1, generator=g) * 2 - 1
    sd = 0.1 + 0.9 * (x[:, 0] > 0)
    y = 5 + 3 * sd * torch.randn(600, generator=g)
    fitted = bc.fit("map", {"name": "mlp", "hidden": [32]}, (x, y), likelihood=bc.HeteroscedasticGaussian(), epochs=60)
    found = fitted.sample(1).predict(torch.tensor([[-0.6], [0.6]])).variances[0].sqrt()
    torch.testing.assert_close(found, torch.tensor([0.3, 3.0]), rtol=0.2, atol=0)


@pytest.mark.parametrize("likelihood", ["gaussian", "heteroscedastic_gaussian"])
def test_one_target_gives_rows_and_several_give_columns(likelihood: str) -> None:
    x, y = regression()
    model = {"name": "mlp", "hidden": [4]}
    fit = lambda y: bc.fit("deep_ensemble", model, (x, y), likelihood=likelihood, epochs=1, members=2).sample(2)  # noqa: E731
    assert fit(y).predict(x).means.shape == (2, 30)
    assert torch.equal(fit(y[:, None]).predict(x).means, fit(y).predict(x).means)
    three = fit(torch.stack([y, 2 * y, y**2], 1)).predict(x)
    assert three.means.shape == three.variances.shape == (2, 30, 3)


def test_float64_stays_float64_and_whole_numbers_become_float32() -> None:
    x, y = regression()
    labels = (y > 0).long()
    assert (
        bc.fit("map", {"name": "mlp"}, (x.numpy(), labels.numpy()), likelihood="categorical", epochs=1)
        .state["linear1.weight"]
        .dtype
        == torch.float64
    )
    whole = np.arange(120).reshape(30, 4)
    fitted = bc.fit("map", {"name": "mlp"}, (whole, labels), likelihood="categorical", epochs=1)
    assert fitted.state["linear1.weight"].dtype == torch.float32


def test_kept_members_are_thinned_evenly() -> None:
    x, y = regression()
    fitted = bc.fit("deep_ensemble", {"name": "mlp"}, (x, y), likelihood="gaussian", epochs=0, members=7)
    few = fitted.sample(3).stacked["linear1.weight"]
    assert torch.equal(few, fitted.state["linear1.weight"][[0, 2, 4]])
    assert fitted.sample(100).n_members == 7


def test_update_keeps_old_rows_and_starts_from_the_old_weights() -> None:
    x, y = regression(40)
    options = EXACT | {"epochs": 800}
    first = bc.fit("map", nn.Linear(4, 1, bias=False), (x[:20], y[:20]), likelihood=bc.Gaussian(noise=0.3), **options)
    both = first.update((x[20:], y[20:]))
    torch.testing.assert_close(both.state["weight"][0, 0], ridge(x, y, 0.3, 1.0), rtol=0, atol=1e-8)
    alone = first.update((x[20:], y[20:]), keep=False)
    torch.testing.assert_close(alone.state["weight"][0, 0], ridge(x[20:], y[20:], 0.3, 1.0), rtol=0, atol=1e-8)
    assert torch.equal(first.update((x[20:], y[20:]), epochs=0).state["weight"], first.state["weight"])


def test_a_warm_start_keeps_weights_and_standardisation() -> None:
    x, y = regression(40)
    model = {"name": "mlp", "hidden": [5]}
    first = bc.fit("deep_ensemble", model, (x[:20], y[:20]), likelihood="gaussian", epochs=20)
    again = bc.fit("deep_ensemble", model, (x, y), likelihood="gaussian", warm=first, epochs=0)
    assert torch.equal(again.sample(5).predict(x).means, first.sample(5).predict(x).means)
    with pytest.raises(bc.InvalidModel, match="warm start"):
        bc.fit("map", {"name": "mlp", "hidden": [6]}, (x, y), likelihood="gaussian", warm=first)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"members": 0}, "members is at least 1 and at most 1000"),
        ({"members": 2.5}, "members has to be a whole number"),
        ({"lr": float("nan")}, "lr has to be a finite number"),
        ({"lr": 0}, "lr is above 0"),
        ({"optimiser": "adamw"}, "one of 'adam', 'sgd'"),
        ({"memers": 3}, "no option 'memers'"),
        ({"bootstrap": True, "patience": 3}, "drop patience"),
    ],
)
def test_options_out_of_bounds_are_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(bc.InvalidOption, match=words):
        bc.fit("deep_ensemble", {"name": "mlp"}, regression(), likelihood="gaussian", **options)


def test_instances_are_checked_like_names() -> None:
    with pytest.raises(bc.InvalidOption, match="rate is above 0"):
        bc.fit(bc.MCDropout(rate=1.0), {"name": "mlp"}, regression(), likelihood="gaussian")
    with pytest.raises(bc.InvalidOption, match="go to the instance"):
        bc.fit(bc.MAP(), {"name": "mlp"}, regression(), likelihood="gaussian", epochs=3)
    with pytest.raises(bc.InvalidOption, match="unknown posterior 'mpa'"):
        bc.fit("mpa", {"name": "mlp"}, regression(), likelihood="gaussian")
    assert dataclasses.replace(bc.DeepEnsemble(), members=3).cost(10) == 3 * 10 * 100


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("fbnn", {"measurement": 10_000, "epochs": 100_000, "samples": 10_000}),
        ("fbnn", {"measurement": 10_000, "epochs": 10_000, "batch_size": 1_000_000}),
        ("uivi", {"burn_in": 1_000, "leapfrog": 1_000, "draws": 1_000, "epochs": 100_000}),
        ("ris", {"samples": 10_000, "epochs": 1_000_000}),
    ],
)
def test_work_beside_the_passes_over_rows_is_part_of_the_cost(name: str, options: dict[str, Any]) -> None:
    """`max_training_cost` of the service is 1e12, and it asks before any work."""
    assert bc.POSTERIORS[name]().cost(10_000) < 1e10
    assert bc.POSTERIORS[name](**options).cost(10_000) > 1e12
    for option, value in options.items():
        if option not in ("epochs", "batch_size"):
            assert bc.POSTERIORS[name](**{option: value}).cost(10_000) > 10 * bc.POSTERIORS[name]().cost(10_000)


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        ([[0.0], [float("nan")]], [0, 1], "row 1 has a NaN"),
        ([[0.0], [1.0]], [0, 5], "row 1 has 5"),
        ([[0.0], [1.0]], [0, -1], "row 1 has -1"),
        ([[0.0], [1.0]], [0.0, 1.0], "whole class index"),
        ([[0.0], [1.0]], [0, 1, 1], "as many labels as rows"),
        ([0.0, 1.0], [0, 1], r"x\[:, None\]"),
        ([[0.0], [1.0]], ["cat", "dog"], "class indices"),
    ],
)
def test_rows_and_labels_are_checked(x: Any, y: Any, words: str) -> None:
    with pytest.raises(bc.InvalidData, match=words):
        bc.fit("map", {"name": "mlp"}, (np.array(x), np.array(y)), likelihood=bc.Categorical(n_classes=3), epochs=1)
