"""Black-box variational inference against closed forms, and on a likelihood that has no slope."""

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bensemble_core as bc
from bensemble_core.posteriors.variational.bbvi import log_density, score_surrogate

MEAN, SD = 0.5, 0.8  # of q; p is N(0, 1)
EXACT = torch.tensor([-0.5, 0.36], dtype=torch.float64)  # ∇L in μ and log σ


def draws(n: int, k: int) -> Tensor:
    """θ ~ q: [n, k]."""
    g = torch.Generator().manual_seed(0)
    return MEAN + SD * torch.randn(n, k, generator=g, dtype=torch.float64)


def gain(theta: Tensor, added: float = 0.0) -> Tensor:
    """log p − log q."""
    return -0.5 * theta.square() + 0.5 * ((theta - MEAN) / SD).square() + math.log(SD) + added


def scores(theta: Tensor) -> Tensor:
    """∇ log q in μ and log σ: [2, ...]."""
    z = (theta - MEAN) / SD
    return torch.stack([z / SD, z.square() - 1])


def gradients(theta: Tensor, added: float = 0.0) -> Tensor:
    """Of the surrogate for each row of K draws, by autograd: [n, 2]."""
    n = len(theta)
    mean = torch.full((n, 1), MEAN, dtype=torch.float64, requires_grad=True)
    log_sd = torch.full((n, 1), math.log(SD), dtype=torch.float64, requires_grad=True)
    log_q = -0.5 * ((theta - mean) * (-log_sd).exp()).square() - log_sd
    value = score_surrogate(gain(theta, added), log_q).sum()
    return torch.cat(torch.autograd.grad(value, [mean, log_sd]), 1)


def test_score_gradients_with_the_baseline_have_the_mean_and_variance_of_theory() -> None:
    found = gradients(draws(200_000, 10))
    torch.testing.assert_close(found.mean(0), EXACT, rtol=0, atol=0.007)
    torch.testing.assert_close(found.var(0), torch.tensor([0.1078, 0.3516], dtype=torch.float64), rtol=0.03, atol=0)


def test_the_baseline_takes_most_of_the_variance_of_one_draw_away() -> None:
    theta = draws(1_000_000, 1)[:, 0]
    plain = gain(theta) * scores(theta)
    torch.testing.assert_close(plain.mean(1), EXACT, rtol=0, atol=0.01)
    torch.testing.assert_close(plain.var(1), torch.tensor([0.8613, 2.9867], dtype=torch.float64), rtol=0.03, atol=0)
    through = torch.stack([-theta, -theta * (theta - MEAN) + 1])  # reparameterised, the entropy's slope in closed form
    torch.testing.assert_close(through.mean(1), EXACT, rtol=0, atol=0.01)
    torch.testing.assert_close(through.var(1), torch.tensor([0.64, 0.9792], dtype=torch.float64), rtol=0.03, atol=0)


def test_a_constant_added_to_log_p_changes_nothing_but_would_without_the_baseline() -> None:
    theta = draws(100_000, 10)
    torch.testing.assert_close(gradients(theta, 100.0), gradients(theta), rtol=1e-9, atol=1e-9)
    without = (gain(theta, 100.0) * scores(theta)).mean(-1)
    assert float(without[0].var()) == pytest.approx(1570, rel=0.03)


def test_log_density_is_that_of_independent_normals() -> None:
    g = torch.Generator().manual_seed(0)
    value, mean, log_sd = (torch.randn(n, 3, 2, generator=g, dtype=torch.float64) for n in (4, 1, 1))
    expected = torch.distributions.Normal(mean, log_sd.exp()).log_prob(value).sum((1, 2))
    torch.testing.assert_close(log_density({"w": value}, {"w": mean}, {"w": log_sd}, {}), expected)


@dataclass(frozen=True, kw_only=True)
class ZeroOne(bc.Categorical):
    """log(1 − ε) where the largest output is that of the label, else log ε: no slope in the outputs."""

    error: float = 0.1

    def log_prob(self, outputs: Tensor, y: Tensor, extra: Any) -> Tensor:
        right = (outputs.argmax(-1) == y).to(outputs.dtype)
        return right * math.log(1 - self.error) + (1 - right) * math.log(self.error)


def zero_one(**options: Any) -> bc.Fitted:
    """The sign of x and a cut at .4 to learn, by a network of two weights."""
    x = torch.linspace(-1, 1, 41, dtype=torch.float64)[:, None]
    y = (x[:, 0] > 0.4).long()
    given = {"epochs": 300, "lr": 0.05, "batch_size": 100, "init_sigma": 0.5, "samples": 200}
    likelihood = ZeroOne(n_classes=2)
    return bc.fit("bbvi", Cut(), (x, y), likelihood=likelihood, standardise=False, **(given | options))


class Cut(nn.Module):
    """Class 1 where u x + v > 0."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([0.1, 0.1], dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([0 * x, self.w[0] * x + self.w[1]], -1)


def test_it_learns_from_a_loss_of_zero_and_one() -> None:
    fitted = zero_one()
    u, v = fitted.state["w"][0].tolist()
    assert u > 0
    assert -v / u == pytest.approx(0.4, abs=0.08)
    x, y = (torch.as_tensor(t) for t in (fitted.data.x, fitted.data.y))
    right = fitted.sample(200, seed=1).predict(x).logits.argmax(-1) == y
    assert float(right.double().mean()) > 0.93
    assert fitted.bound(samples=2000) > zero_one(epochs=0).bound(samples=2000) + 20
    assert fitted.bound(samples=2000) < 41 * math.log(0.9)


def test_a_point_under_a_likelihood_without_slope_is_refused() -> None:
    x = torch.randn(8, 2, generator=torch.Generator().manual_seed(0))
    with pytest.raises(bc.InvalidModel, match="bayesian_biases=True"):
        bc.fit("bbvi", nn.Linear(2, 2), (x, x.argmax(1)), likelihood=ZeroOne(n_classes=2), bayesian_biases=False)


def test_a_large_network_is_refused_with_advice() -> None:
    with pytest.raises(bc.InvalidOption, match=r"up to 500 weights.*use mfvi"):
        bc.check("bbvi", {"name": "mlp", "hidden": [200]}, likelihood="gaussian", input_shape=[4])


def test_its_bound_is_that_of_mfvi_for_the_same_gaussian() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(30, 2, generator=g, dtype=torch.float64)
    y = 3 * (x @ torch.tensor([1.0, -0.5], dtype=torch.float64)) + torch.randn(30, generator=g, dtype=torch.float64)
    of = {"likelihood": bc.Gaussian(noise=1.0), "epochs": 200, "lr": 0.05}
    ours = bc.fit("bbvi", nn.Linear(2, 1), (x, y), **of)
    theirs = bc.fit("mfvi", nn.Linear(2, 1), (x, y), warm=ours, **(of | {"epochs": 0}))
    assert ours.bound(samples=20_000) == pytest.approx(theirs.bound(samples=10), abs=0.05)
