"""Priors on weights against torch's densities, and on one weight against closed forms and quadrature."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import bensemble_core as bc
from bensemble_core.priors import PRIORS, prior_from_json
from bensemble_core.types import Prior

TORCH: list[tuple[Any, torch.distributions.Distribution]] = [
    (bc.Normal(scale=0.7), torch.distributions.Normal(0.0, 0.7)),
    (bc.DoubleExponential(scale=0.7), torch.distributions.Laplace(0.0, 0.7)),
    (bc.StudentT(df=4.5, scale=0.7), torch.distributions.StudentT(4.5, 0.0, 0.7)),
]
NAMES = [name for name, kind in PRIORS.items() if kind.over == "weights"]


@pytest.mark.parametrize(("prior", "reference"), TORCH, ids=NAMES)
def test_the_density_is_that_of_torch(prior: Prior, reference: torch.distributions.Distribution) -> None:
    g = torch.Generator().manual_seed(0)
    theta = {"a": 3 * torch.randn(2, 3, 4, generator=g), "b": torch.randn(2, 5, generator=g)}
    expected = sum(reference.log_prob(t).flatten(1).sum(1) for t in theta.values())  # type: ignore[no-untyped-call]
    torch.testing.assert_close(prior.log_prob(theta), expected)


@pytest.mark.parametrize(("prior", "reference"), TORCH, ids=NAMES)
def test_the_gradient_at_0_is_0(prior: Prior, reference: object) -> None:
    theta = torch.zeros(2, 3, requires_grad=True)
    (slope,) = torch.autograd.grad(prior.log_prob({"w": theta}).sum(), theta)
    assert torch.equal(slope, torch.zeros(2, 3))


@pytest.mark.parametrize(("prior", "reference"), TORCH, ids=NAMES)
def test_json_gives_the_same_prior_back(prior: Any, reference: object) -> None:
    assert prior_from_json(prior.to_json()) == prior
    assert PRIORS[prior.to_json()["name"]] is type(prior)


def one_weight(method: str, prior: Prior, target: float = 2.0, **options: Any) -> bc.Fitted:
    """y = w with noise 1, and one row."""
    x, y = torch.ones(1, 1, dtype=torch.float64), torch.full((1,), target, dtype=torch.float64)
    net = nn.Linear(1, 1, bias=False)
    nn.init.constant_(net.weight, 0.3)
    likelihood = bc.Gaussian(noise=1.0)
    return bc.fit(method, net, (x, y), likelihood=likelihood, prior=prior, standardise=False, **options)


ANSWERS: list[tuple[Any, float, float]] = [
    (bc.DoubleExponential(scale=1.0), 1.161089, 0.875989),
    (bc.StudentT(df=3.0, scale=1.0), 1.171642, 0.845750),
]


@pytest.mark.parametrize(("prior", "mean", "sd"), ANSWERS, ids=NAMES[1:])
def test_one_weight_has_the_known_map_and_moments(prior: Prior, mean: float, sd: float) -> None:
    for method, options in (("map", {}), ("deep_ensemble", {"members": 2})):
        fitted = one_weight(method, prior, epochs=300, lr=0.05, **options)
        found = fitted.state["weight"]
        torch.testing.assert_close(found, torch.ones_like(found), rtol=0, atol=1e-3)
    sgd = one_weight("map", prior, epochs=300, lr=0.05, optimiser="sgd", momentum=0.5)
    assert float(sgd.state["weight"]) == pytest.approx(1, abs=1e-3)
    w = torch.linspace(-12, 14, 26_001, dtype=torch.float64)
    log_joint = prior.log_prob({"w": w[:, None]}) - 0.5 * (2 - w).square()
    p = torch.softmax(log_joint, 0)
    assert float(p @ w) == pytest.approx(mean, abs=1e-5)
    assert float((p @ w.square() - (p @ w).square()).sqrt()) == pytest.approx(sd, abs=1e-5)


def test_a_weight_that_the_rows_hardly_ask_for_ends_at_the_kink() -> None:
    """|∂ log p(y)/∂w| at 0 is .5 < 1/scale; it steps over 0, ever less as the learning rate falls."""
    fitted = one_weight("map", bc.DoubleExponential(scale=1.0), target=0.5, epochs=400, lr=0.05)
    assert abs(float(fitted.state["weight"])) < 1e-3
    at_zero = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(at_zero.weight)
    rows = torch.ones(3, 1), torch.zeros(3)
    options: dict[str, Any] = {"likelihood": bc.Gaussian(noise=1.0), "standardise": False, "epochs": 5}
    stays = bc.fit("map", at_zero, rows, prior=bc.DoubleExponential(scale=1.0), **options)
    assert float(stays.state["weight"]) == 0


def test_few_inputs_that_matter_are_found_by_l1() -> None:
    g = torch.Generator().manual_seed(0)
    x: Tensor = torch.randn(60, 8, generator=g, dtype=torch.float64)
    y = 2 * x[:, 0] - x[:, 1] + torch.randn(60, generator=g, dtype=torch.float64)
    options: dict[str, Any] = {"likelihood": bc.Gaussian(noise=1.0), "standardise": False, "epochs": 600, "lr": 0.05}
    net = nn.Linear(8, 1, bias=False)
    nn.init.zeros_(net.weight)
    prior = bc.DoubleExponential(scale=1 / 15)
    found = bc.fit("map", net, (x, y), prior=prior, batch_size=60, **options).state["weight"][0, 0]
    slope = x.T @ (y - x @ found)  # of a lasso: sign(w)/scale where w ≠ 0, and within ±1/scale where w = 0
    kept = found.abs() > 1e-3
    assert kept[:2].all()
    assert not kept.all()
    torch.testing.assert_close(slope[kept], 15 * found[kept].sign(), rtol=0, atol=0.05)
    assert float(slope[~kept].abs().max()) < 15


def test_tuning_searches_the_scale_of_any_prior() -> None:
    rows = torch.randn(12, 1), torch.randn(12)
    common: dict[str, Any] = {"likelihood": "gaussian", "prior": bc.StudentT(df=5.0), "trials": 2, "epochs": 1}
    tuned = bc.tune("map", {"name": "mlp", "hidden": []}, rows, **common)
    assert set(tuned.settings) == {"lr", "prior.scale"}
    assert tuned.fitted.problem.prior == bc.StudentT(df=5.0, scale=tuned.settings["prior.scale"])


@pytest.mark.parametrize(
    ("method", "options"),
    [("deep_ensemble", {"anchored": True}), ("mc_dropout", {"learn_rates": True})],
)
def test_an_option_that_needs_a_normal_prior_says_so(method: str, options: dict[str, Any]) -> None:
    with pytest.raises(bc.InvalidOption, match=r"Normal\(scale=…\), or drop"):
        one_weight(method, bc.StudentT(), **options)


def test_what_is_no_prior_is_refused() -> None:
    for wrong in (0.0, -1.0, float("nan"), "1", True):
        with pytest.raises(bc.InvalidOption, match="above 0"):
            bc.DoubleExponential(scale=wrong)  # type: ignore[arg-type]
        with pytest.raises(bc.InvalidOption, match="df is a finite"):
            bc.StudentT(df=wrong)  # type: ignore[arg-type]
    assert bc.StudentT(df=np.float32(2)).to_json()["df"] == 2.0
    with pytest.raises(bc.InvalidOption, match="there is normal, double_exponential, student_t"):
        prior_from_json({"name": "horseshoe"})
