"""Priors over functions: their covariances, their JSON, and who takes them."""

from typing import Any

import pytest
import torch
from sklearn.gaussian_process.kernels import RBF, Matern

import bensemble_core as bc
from bensemble_core.priors import prior_from_json
from bensemble_core.types import FunctionPrior, over

MLP: dict[str, Any] = {"name": "mlp", "hidden": [4]}


@pytest.mark.parametrize("lengthscale", [0.7, (0.5, 2.0, 1.3)])
@pytest.mark.parametrize("kernel", ["rbf", "matern52"])
def test_covariances_are_those_of_scikit_learn(kernel: Any, lengthscale: Any) -> None:
    g = torch.Generator().manual_seed(0)
    a, b = (torch.randn(n, 3, generator=g, dtype=torch.float64) for n in (5, 4))
    prior = bc.GP(lengthscale=lengthscale, scale=1.5, kernel=kernel)
    theirs = RBF(lengthscale) if kernel == "rbf" else Matern(lengthscale, nu=2.5)
    torch.testing.assert_close(prior.gram(a, b), 1.5**2 * torch.from_numpy(theirs(a.numpy(), b.numpy())))
    torch.testing.assert_close(prior.gram(a, a).diagonal(), torch.full((5,), 2.25, dtype=torch.float64))
    assert torch.equal(prior.mean(a), torch.zeros(5, 1, dtype=torch.float64))
    assert isinstance(prior, FunctionPrior)


def test_rows_of_any_shape_are_flattened() -> None:
    images = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(0))
    prior = bc.GP(lengthscale=2.0, scale=1.0)
    assert torch.equal(prior.gram(images, images), prior.gram(images.flatten(1), images.flatten(1)))
    with pytest.raises(bc.InvalidData, match="8 inputs, and there are 2 lengthscales"):
        bc.GP(lengthscale=(1.0, 2.0), scale=1.0).gram(images, images)


@pytest.mark.parametrize("lengthscale", [2, (1.0, 2.0)])
def test_json_goes_there_and_back(lengthscale: Any) -> None:
    prior = bc.GP(lengthscale=lengthscale, scale=3, kernel="matern52")
    assert prior_from_json(prior.to_json()) == prior


@pytest.mark.parametrize(
    "wrong",
    [
        {"lengthscale": 0.0},
        {"lengthscale": ()},
        {"lengthscale": (1.0, -1.0)},
        {"lengthscale": "long"},
        {"scale": 0.0},
        {"scale": float("nan")},
        {"kernel": "cosine"},
    ],
)
def test_what_is_no_prior_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(bc.InvalidOption, match="GP prior"):
        bc.GP(**({"lengthscale": 1.0, "scale": 1.0} | wrong))


@pytest.mark.parametrize("name", [name for name, kind in bc.POSTERIORS.items() if over(kind) == "weights"])
def test_posteriors_over_weights_refuse_a_prior_over_functions(name: str) -> None:
    prior, x = bc.GP(lengthscale=1.0, scale=1.0), torch.randn(6, 2, generator=torch.Generator().manual_seed(0))
    message = f"{name} infers the weights of a network, and GP is a prior over functions; pass prior=Normal"
    with pytest.raises(bc.InvalidOption, match=message):
        bc.check(name, MLP, likelihood="gaussian", input_shape=[2], prior=prior)
    with pytest.raises(bc.InvalidOption, match=message):
        bc.fit(name, MLP, (x, x[:, 0]), likelihood="gaussian", prior=prior)


def test_weights_have_no_density_under_it() -> None:
    with pytest.raises(bc.InvalidOption, match="no density of weights"):
        bc.GP(lengthscale=1.0, scale=1.0).log_prob({})
