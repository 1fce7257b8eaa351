"""Functional variational inference against a Gaussian process, the divergence of weights, and its own formulas."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import bensemble_core as bc
from bensemble_core.posteriors.function_space.fbnn import FunctionalElbo, gaussian_kl
from bensemble_core.types import Over, Tensors
from tests.core.posteriors.function_space.test_gp import AT, MEAN, SD, X, Y

TANH: dict[str, Any] = {"name": "mlp", "hidden": [50, 50], "activation": "tanh"}
MLP: dict[str, Any] = {"name": "mlp", "hidden": [5]}
RBF = bc.GP(lengthscale=0.5, scale=1.0)
TO_THE_END: dict[str, Any] = {"epochs": 2000, "lr": 0.03, "measurement": 24, "widen": 0.75}


def known(**options: Any) -> bc.Fitted:
    """The six rows on which the posterior of a Gaussian process is known; float32, as most problems are."""
    common: dict[str, Any] = {"likelihood": bc.Gaussian(noise=0.1), "prior": RBF, **TO_THE_END}
    return bc.fit("fbnn", TANH, (X.float(), Y.float()), **(common | options))


def moments(fitted: bc.Fitted, x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean of the function by many members, and its sd in closed form: [N], [N]."""
    return fitted.sample(8000, seed=3).predict(x).means.mean(0), fitted.function_variance(x)[:, 0].sqrt()


def draw_rbf(x: Tensor, n: int, rng: torch.Generator) -> Tensor:
    """Functions of the process that RBF is: [n, N]."""
    factor = torch.linalg.cholesky(RBF.gram(x, x) + 1e-8 * torch.eye(len(x), dtype=torch.float64))
    return torch.randn(n, len(x), generator=rng, dtype=torch.float64) @ factor.mT


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Functions wᵀx with w ~ N(0, scale²), a prior over functions that is one over weights."""

    scale: float
    over: ClassVar[Over] = "functions"

    def mean(self, x: Tensor) -> Tensor:
        return x.new_zeros(len(x), 1, dtype=torch.float64)

    def gram(self, a: Tensor, b: Tensor) -> Tensor:
        return self.scale**2 * a.double() @ b.double().mT

    def log_prob(self, theta: Tensors) -> Tensor:
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        return {"name": "lines", "scale": self.scale}


def test_it_is_the_known_gaussian_process() -> None:
    mean, sd = moments(known(), AT.float())
    assert mean.tolist() == pytest.approx(MEAN, abs=0.1)
    assert sd.tolist() == pytest.approx(SD, rel=0.2)


def test_samples_of_a_process_end_at_its_posterior() -> None:
    """Beyond the rows (the third) the mean comes last of all, and after so few steps differs from seed to seed."""
    options: dict[str, Any] = {"epochs": 600, "measurement": 8, "jitter": 1e-3, "widen": 1.0}
    at = torch.tensor([[-0.75], [0.55], [1.8]])
    mean, sd = moments(known(prior=bc.FunctionSamples(draw_rbf), **options), at)
    exact = bc.fit("gp", TANH, (X, Y), likelihood=bc.Gaussian(noise=0.1), prior=RBF)
    assert mean[:2].tolist() == pytest.approx(exact.predict(at.double()).means[0, :2].tolist(), abs=0.05)
    assert sd.tolist() == pytest.approx(exact.function_variance(at.double())[:, 0].sqrt().tolist(), rel=0.2)


def test_its_defaults_are_enough_for_few_rows_and_few_steps_are_warned_of() -> None:
    x = torch.linspace(-2, 2, 30)[:, None]
    y, net = torch.sin(2 * x[:, 0]), {"name": "mlp", "hidden": [20, 20], "activation": "tanh"}
    usual = bc.fit("fbnn", net, (x, y), likelihood="gaussian")
    at = x[:-1] + 0.07
    assert float((moments(usual, at)[0] - torch.sin(2 * at[:, 0])).square().mean().sqrt()) < 0.07
    assert usual.diagnostics == bc.Diagnostics(values={"steps": 1000.0})
    short = bc.fit("fbnn", net, (x, y), likelihood="gaussian", epochs=5, batch_size=10)
    assert "trained for 15 steps" in short.diagnostics.warnings[0]
    longer = bc.fit("fbnn", net, (x, y), likelihood="gaussian", epochs=3, warm=short)
    assert longer.diagnostics.values == {"steps": 18.0}


def linear(n: int) -> tuple[Tensor, Tensor, Tensor]:
    """n rows of 4 features, and the mean and sd of a q over 4 weights."""
    g = torch.Generator().manual_seed(0)
    features = torch.randn(n, 4, generator=g, dtype=torch.float64)
    return features, torch.randn(4, generator=g, dtype=torch.float64), torch.tensor([0.1, 0.5, 0.9, 2.0]).double()


@pytest.mark.parametrize("n", [1, 3, 4, 6, 12])
def test_of_a_linear_model_it_is_the_divergence_of_the_weights_at_as_many_rows(n: int) -> None:
    (features, mean, sd), scale = linear(n), 0.8
    weights = (0.5 * ((sd.square() + mean.square()) / scale**2 - 1) - sd.log() + torch.tensor(scale).log()).sum()
    prior = Lines(scale=scale)
    extra = 1e-9 * torch.eye(n, dtype=torch.float64)
    slopes = features * sd
    found = gaussian_kl(
        (features @ mean)[None],
        (slopes @ slopes.mT + extra)[None],
        features.new_zeros(1, n),
        prior.gram(features, features)[None] + extra,
    )
    if n >= 4:
        assert float(found) == pytest.approx(float(weights), abs=1e-4)
    else:
        assert 0 < float(found) < float(weights) - 0.1


def test_the_divergence_is_that_of_torch() -> None:
    g = torch.Generator().manual_seed(0)
    a, b = (torch.randn(2, 5, 5, generator=g, dtype=torch.float64) for _ in range(2))
    eye = torch.eye(5, dtype=torch.float64)
    means, covariances = (a[:, 0], b[:, 1]), (a @ a.mT + eye, b @ b.mT + eye)
    ours, theirs = (torch.distributions.MultivariateNormal(m, c) for m, c in zip(means, covariances, strict=True))
    found = gaussian_kl(means[0], covariances[0], means[1], covariances[1])
    torch.testing.assert_close(found, torch.distributions.kl_divergence(ours, theirs))


def test_against_a_smooth_prior_it_grows_with_rows_and_as_the_jitter_falls() -> None:
    """A q of rank 3 says exactly what a smooth function leaves open: there is no limit, and the jitter is a choice."""

    def divergence(n: int, jitter: float) -> float:
        x = torch.linspace(-1, 1, n, dtype=torch.float64)[:, None]
        slopes = 0.5 * torch.cat([torch.ones_like(x), x, x.square()], 1)
        extra = jitter * torch.eye(n, dtype=torch.float64)
        zero = torch.zeros(1, n, dtype=torch.float64)
        return float(gaussian_kl(zero, (slopes @ slopes.mT + extra)[None], zero, (RBF.gram(x, x) + extra)[None]))

    coarse, fine = ([divergence(n, jitter) for n in (4, 8, 16, 32)] for jitter in (1e-4, 1e-6))
    assert coarse == sorted(coarse)
    assert fine == sorted(fine)
    assert all(b > 1.2 * a for a, b in zip(coarse, fine, strict=True))


def test_on_a_linear_model_it_ends_at_the_mean_field_posterior() -> None:
    g = torch.Generator().manual_seed(1)
    x = torch.randn(25, 3, generator=g, dtype=torch.float64)
    x[:, 1:] += 0.8 * x[:, :-1]
    y = x @ torch.tensor([0.7, -0.4, 0.2], dtype=torch.float64) + 0.5 * torch.randn(25, generator=g).double()
    precision = x.T @ x / 0.5**2 + torch.eye(3, dtype=torch.float64) / 0.8**2
    net = nn.Linear(3, 1, bias=False)
    net.weight.data.fill_(0.1)
    options: dict[str, Any] = {"epochs": 600, "lr": 0.05, "jitter": 1e-9, "measurement": 2, "standardise": False}
    fitted = bc.fit("fbnn", net, (x, y), likelihood=bc.Gaussian(noise=0.5), prior=Lines(scale=0.8), **options)
    mean = torch.linalg.solve(precision, x.T @ y / 0.5**2)
    torch.testing.assert_close(fitted.state["weight"][0, 0], mean, rtol=0, atol=2e-3)
    torch.testing.assert_close(
        fitted.state["log_sd/weight"][0, 0], -0.5 * precision.diagonal().log(), rtol=0, atol=5e-3
    )


def test_members_have_the_variance_of_the_linearised_network_in_the_units_of_y() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(20, 2, generator=g)
    y = 50 + 10 * torch.stack([x[:, 0], x.prod(1)], 1)
    fitted = bc.fit("fbnn", MLP, (x, y), likelihood="gaussian", prior=bc.GP(lengthscale=1.0, scale=10.0), epochs=5)
    drawn = fitted.sample(4000).predict(x[:4]).means  # [M, 4, 2]
    apart = drawn - drawn.mean(0)
    found = torch.einsum("mnt,mnu->ntu", apart, apart) / 3999
    covariance = fitted.function_variance(x[:4], joint=True)
    assert covariance.shape == (4, 2, 2)
    units = covariance.diagonal(dim1=-2, dim2=-1).sqrt()
    units = units[:, :, None] * units[:, None]
    torch.testing.assert_close(found / units, covariance / units, rtol=0, atol=0.12)


def objective(problem_of: bc.Fitted, x: Tensor) -> FunctionalElbo:
    assert isinstance(problem_of.posterior, bc.FBNN)
    return problem_of.posterior.objective(problem_of.problem, x, problem_of.state)


def test_a_prior_is_in_the_units_handed_in() -> None:
    """The rows and targets of a standardised problem are other numbers, and the divergence is the same."""
    x, y = 3 * X + 7, 5 * Y + 20
    prior = bc.GP(lengthscale=2.0, scale=4.0)
    fitted = bc.fit("fbnn", MLP, (x, y), likelihood=bc.Gaussian(noise=0.5), prior=prior, epochs=0)
    problem = fitted.problem
    assert problem.scaling is not None
    assert isinstance(problem.likelihood, bc.Gaussian)
    mean, gram = objective(fitted, problem.scaling(x)).prior(problem.scaling(x), 0)
    scale = problem.likelihood.scale[0]
    torch.testing.assert_close(gram[0] * scale**2, prior.gram(x, x))
    torch.testing.assert_close(mean[0] * scale + problem.likelihood.mean[0], torch.zeros(6, dtype=torch.float64))


def test_fresh_rows_lie_around_the_batch_and_are_a_function_of_the_seed() -> None:
    fitted = known(epochs=0, standardise=False, measurement=500, widen=0.5)
    found = objective(fitted, X.float())
    rows = found.fresh_rows(X[:1].float(), 5)
    assert torch.equal(rows, found.fresh_rows(X[:1].float(), 5))
    assert not torch.equal(rows, found.fresh_rows(X[:1].float(), 6))
    assert float((rows + 1).abs().max()) == pytest.approx(0.5 * 2.2, rel=0.05)


def test_without_a_prior_it_takes_what_gp_finds() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.rand(40, 1, generator=g) * 4
    y = torch.sin(2 * x[:, 0]) + 0.1 * torch.randn(40, generator=g)
    fitted = bc.fit("fbnn", MLP, (x, y), likelihood="gaussian", epochs=0)
    theirs = bc.fit("gp", MLP, (x, y), likelihood="gaussian")
    for ours, name in (("fbnn/lengthscales", "gp/lengthscales"), ("fbnn/scale", "gp/scale")):
        torch.testing.assert_close(fitted.state[ours][0], theirs.state[name], rtol=0.02, atol=0)
    torch.testing.assert_close(
        fitted.state["likelihood/log_noise"], theirs.state["likelihood/log_noise"], rtol=0, atol=0.02
    )


def test_classes_are_told_apart_under_a_process_over_logits() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(60, 2, generator=g)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    options: dict[str, Any] = {"epochs": 150, "batch_size": 60, "lr": 0.03, "widen": 0.3}
    ensemble = bc.fit(
        "fbnn",
        {"name": "mlp", "hidden": [20]},
        (x, y),
        likelihood="categorical",
        prior=bc.GP(lengthscale=1.0, scale=3.0),
        **options,
    ).sample(50)
    assert float((ensemble.predict(x).mean().argmax(1) == y).float().mean()) > 0.9


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"likelihood": bc.Categorical(n_classes=2)}, "needs a prior over the logits"),
        ({"likelihood": bc.HeteroscedasticGaussian()}, 'likelihood="gaussian"'),
        ({"prior": bc.Normal(scale=2.0)}, "no use for a prior over weights"),
        ({"prior": bc.GP(lengthscale=(1.0, 2.0), scale=1.0)}, "2 lengthscales, and rows have 3 inputs"),
        ({"measurement": 10_000, "model": {"name": "mlp", "hidden": [2000, 2000]}}, "smaller measurement or network"),
        ({"prior": bc.FunctionSamples(draw_rbf, draws=10**8)}, "draw fewer"),
    ],
)
def test_unsuitable_problems_are_refused_before_any_work(wrong: dict[str, Any], message: str) -> None:
    options: dict[str, Any] = {"model": MLP, "likelihood": "gaussian", "input_shape": [3]} | wrong
    with pytest.raises(bc.InvalidOption, match=message):
        bc.check("fbnn", options.pop("model"), **options)


def test_a_batch_that_no_memory_holds_is_refused() -> None:
    x = torch.zeros(4000, 1)
    with pytest.raises(bc.InvalidOption, match="smaller batch_size"):
        bc.fit("fbnn", {"name": "mlp", "hidden": [300, 300]}, (x, x), likelihood="gaussian", prior=RBF, batch_size=4000)


def test_a_file_keeps_all_but_the_function_that_draws(tmp_path: Path) -> None:
    prior = bc.FunctionSamples(draw_rbf, draws=50, shrinkage=0.1)
    fitted = known(prior=prior, epochs=2)
    fitted.save(tmp_path / "f")
    loaded = bc.load(tmp_path / "f")
    assert torch.equal(loaded.sample(3).predict(AT.float()).means, fitted.sample(3).predict(AT.float()).means)
    assert (loaded.problem.prior.draws, loaded.problem.prior.shrinkage) == (50, 0.1)
    with pytest.raises(bc.InvalidOption, match="a file does not hold it; pass it again"):
        loaded.update((X.float(), Y.float()), keep=False)
    options: dict[str, Any] = {"likelihood": bc.Gaussian(noise=0.1), "epochs": 2}
    again = bc.fit("fbnn", TANH, (X.float(), Y.float()), prior=prior, warm=loaded, **options)
    assert again.problem.prior == prior


def test_a_module_without_forward_derivatives_is_refused() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.head = nn.LSTM(1, 3, batch_first=True), nn.Linear(3, 1)

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = self.head(self.inner(x[:, None])[0][:, -1])
            return found

    with pytest.raises(bc.InvalidModel, match=r"without a forward derivative .* use mfvi"):
        bc.check("fbnn", Recurrent(), likelihood="gaussian", input_shape=[1], prior=RBF)
