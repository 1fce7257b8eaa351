"""Priors over functions: their covariances, their JSON, and who takes them."""

from typing import Any

import pytest
import torch
from sklearn.gaussian_process.kernels import RBF, Matern
from torch import Tensor

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


def draw(x: Tensor, n: int, rng: torch.Generator) -> Tensor:
    """Lines through 0 of two targets: [n, N, 2]."""
    return torch.randn(n, 1, 2, generator=rng, dtype=torch.float64) * x[:, :1].double()


@pytest.mark.parametrize("name", [name for name in bc.POSTERIORS if name != "fbnn"])
def test_samples_of_functions_are_for_fbnn_alone(name: str) -> None:
    message = "is a prior over functions; pass prior=Normal" if over(bc.POSTERIORS[name]) == "weights" else "prior=GP"
    with pytest.raises(bc.InvalidOption, match=message):
        bc.check(name, MLP, likelihood="gaussian", input_shape=[2], prior=bc.FunctionSamples(draw))


@pytest.mark.parametrize("shrinkage", [0.0, 0.25])
def test_samples_of_functions_are_known_by_their_moments(shrinkage: float) -> None:
    x = torch.tensor([[1.0], [2.0], [-1.0]])
    prior = bc.FunctionSamples(draw, draws=20_000, shrinkage=shrinkage)
    mean, covariance = prior.moments(x, 2, torch.Generator().manual_seed(0))
    lines = x.double() @ x.double().mT
    wanted = (1 - shrinkage) * lines + shrinkage * torch.diag(lines.diagonal())
    torch.testing.assert_close(mean, torch.zeros(2, 3, dtype=torch.float64), rtol=0, atol=0.06)
    torch.testing.assert_close(covariance, wanted.expand(2, 3, 3), rtol=0.05, atol=0)


def test_samples_for_all_targets_may_lack_their_axis() -> None:
    x = torch.tensor([[1.0], [2.0]])
    mean, covariance = bc.FunctionSamples(lambda x, n, rng: draw(x, n, rng)[..., 0]).moments(x, 3, torch.Generator())
    assert (mean.shape, covariance.shape) == ((1, 2), (1, 2, 2))


def test_samples_in_another_shape_or_not_finite_are_refused() -> None:
    x, rng = torch.ones(4, 1), torch.Generator()
    with pytest.raises(bc.InvalidData, match=r"500 functions at 4 rows .* got \[4, 500\]"):
        bc.FunctionSamples(lambda x, n, rng: torch.zeros(len(x), n)).moments(x, 1, rng)
    with pytest.raises(bc.InvalidData, match="NaN or an infinity"):
        bc.FunctionSamples(lambda x, n, rng: torch.full((n, len(x)), torch.inf)).moments(x, 1, rng)


def test_samples_that_do_not_vary_are_refused_as_such() -> None:
    x, rng = torch.ones(4, 1), torch.Generator()
    for value in (0.0, 0.3):
        with pytest.raises(bc.InvalidData, match="draws do not vary at 4 rows"):
            bc.FunctionSamples(lambda x, n, rng, value=value: torch.full((n, len(x)), value)).moments(x, 1, rng)
    one_target = bc.FunctionSamples(lambda x, n, rng: torch.randn(n, len(x), 2, generator=rng) * torch.tensor([1.0, 0]))
    with pytest.raises(bc.InvalidData, match="for each target"):
        one_target.moments(x, 2, rng)


def test_what_is_no_prior_of_samples_is_refused() -> None:
    no_function: Any = 3
    with pytest.raises(bc.InvalidOption, match="takes a function"):
        bc.FunctionSamples(no_function)
    with pytest.raises(bc.InvalidOption, match="at least 2 draws"):
        bc.FunctionSamples(draw, draws=1)
    with pytest.raises(bc.InvalidOption, match="shrinkage is from 0 to 1"):
        bc.FunctionSamples(draw, shrinkage=2.0)
    with pytest.raises(bc.InvalidOption, match="no density of weights"):
        bc.FunctionSamples(draw).log_prob({})
