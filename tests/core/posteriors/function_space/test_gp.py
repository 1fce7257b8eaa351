"""Gaussian-process regression against known answers, scikit-learn, and its own closed forms."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_diabetes
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern, WhiteKernel
from torch import Tensor, nn

import bensemble_core as bc
from bensemble_core.ensemble.members import Plan
from bensemble_core.posteriors.function_space import gp

X = torch.tensor([-1, -0.5, 0, 0.3, 0.8, 1.2], dtype=torch.float64)[:, None]
Y = torch.tensor([-0.14, -1, 0, 0.78, 0.68, -0.44], dtype=torch.float64)
AT = torch.tensor([-0.75, 0.55, 2.5], dtype=torch.float64)[:, None]
MEAN, SD = (-0.702645, 0.995583, -0.057066), (0.143978, 0.116145, 0.998629)  # of the function, not of y
MLP: dict[str, Any] = {"name": "mlp", "hidden": [4]}


def known(**options: Any) -> bc.Fitted:
    common: dict[str, Any] = {"likelihood": bc.Gaussian(noise=0.1), "prior": bc.GP(lengthscale=0.5, scale=1.0)}
    return bc.fit("gp", MLP, (X, Y), **(common | {"standardise": False} | options))


def some(n: int = 40, d: int = 2) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    x = 3 * torch.randn(n, d, generator=g, dtype=torch.float64) + 5
    return x, 10 + 4 * torch.sin(x[:, 0]) + x[:, -1] + 0.5 * torch.randn(n, generator=g, dtype=torch.float64)


def drawn_at(fitted: bc.Fitted, x: Tensor, n: int) -> Tensor:
    """n members at a few rows, in a block that is no larger than these need: [n, N]."""
    found: Tensor = replace(fitted.sample(n, seed=3), stored_plan=Plan(mode="vmap", rows=8)).predict(x).means
    return found


@pytest.mark.parametrize("standardise", [False, True])
def test_mean_sd_and_evidence_are_the_known_ones(standardise: bool) -> None:
    """A GP prior is in the units handed in, so that standardising changes nothing."""
    fitted = known(standardise=standardise)
    predictive = fitted.predict(AT)
    assert predictive.means[0].tolist() == pytest.approx(MEAN, abs=1e-6)
    assert fitted.function_variance(AT)[:, 0].sqrt().tolist() == pytest.approx(SD, abs=1e-6)
    assert (predictive.variances[0] - 0.01).sqrt().tolist() == pytest.approx(SD, abs=1e-6)
    assert fitted.log_evidence == pytest.approx(-5.312337, abs=1e-6)


@pytest.mark.parametrize("kernel", ["rbf", "matern52"])
def test_members_have_the_moments_of_the_posterior(kernel: Any) -> None:
    n = 4096
    fitted = known(prior=bc.GP(lengthscale=0.5, scale=1.0, kernel=kernel), frequencies=2048)
    drawn = drawn_at(fitted, AT, n)
    mean, variance = fitted.predict(AT).means[0], fitted.function_variance(AT)[:, 0]
    assert bool(((drawn.mean(0) - mean).abs() < 4 * (variance / n).sqrt()).all())
    assert bool(((drawn.var(0) - variance).abs() < 4 * variance * (2 / n) ** 0.5).all())


def test_members_with_a_linear_part_have_the_moments_of_the_posterior() -> None:
    n, (x, y) = 2000, some()
    fitted = bc.fit("gp", MLP, (x, y), likelihood="gaussian", linear=True, frequencies=4096, starts=1)
    at = x[:3] + torch.tensor([[1.0, 0.0], [30.0, -30.0], [0.0, 2.0]])
    drawn = drawn_at(fitted, at, n)
    mean, variance = fitted.predict(at).means[0], fitted.function_variance(at)[:, 0]
    assert bool(((drawn.mean(0) - mean).abs() < 4 * (variance / n).sqrt()).all())
    assert bool(((drawn.var(0) - variance).abs() < 4 * variance * (2 / n) ** 0.5).all())


@pytest.mark.parametrize("kernel", ["rbf", "matern52"])
def test_it_agrees_with_scikit_learn_on_diabetes(kernel: Any) -> None:
    rows = load_diabetes()
    x, y = (torch.from_numpy(np.asarray(v, dtype=np.float64)) for v in (rows.data, rows.target))
    fitted = bc.fit(
        "gp", MLP, (x[:200], y[:200]), likelihood="gaussian", kernel=kernel, linear=True, starts=1, steps=30
    )
    state, scaling = fitted.state, fitted.problem.scaling
    assert scaling is not None
    shift, scale = float(y[:200].mean()), float(y[:200].std(correction=0))
    lengths, s = state[gp.LENGTHSCALES][0].numpy(), float(state[gp.SCALE][0])
    near = RBF(lengths) if kernel == "rbf" else Matern(lengths, nu=2.5)
    noise = float(fitted.sample(1).predict(x[:1]).variances[0, 0]) / scale**2
    theirs = GaussianProcessRegressor(
        ConstantKernel(s**2) * near
        + ConstantKernel(float(state[gp.LINEAR][0]) ** 2) * DotProduct(1.0)
        + WhiteKernel(noise),
        optimizer=None,
        alpha=1e-10 * s**2,
    ).fit(scaling(x[:200]).numpy(), ((y[:200] - shift) / scale).numpy())
    mean, sd = theirs.predict(scaling(x[200:]).numpy(), return_std=True)
    ours = fitted.predict(x[200:])
    np.testing.assert_allclose((ours.means[0].numpy() - shift) / scale, mean, atol=1e-4)
    np.testing.assert_allclose(ours.variances[0].sqrt().numpy() / scale, sd, atol=1e-4)
    evidence = theirs.log_marginal_likelihood_value_ - 200 * np.log(scale)
    assert fitted.log_evidence == pytest.approx(evidence, abs=1e-4)


def test_a_linear_kernel_is_bayesian_linear_regression() -> None:
    """Posterior, evidence and members by the weights' own closed forms, N(0, τ²) each and the bias."""
    x, y = some(30)
    fitted = bc.fit("gp", MLP, (x, y), likelihood="gaussian", kernel="linear")
    scaling, state = fitted.problem.scaling, fitted.state
    assert scaling is not None
    assert float(state[gp.SCALE][0]) == 0
    shift, unit = float(y.mean()), float(y.std(correction=0))
    design = torch.cat([torch.ones(30, 1, dtype=torch.float64), scaling(x)], 1)
    tau2, noise = float(state[gp.LINEAR][0]) ** 2, float(fitted.sample(1).predict(x[:1]).variances[0, 0]) / unit**2
    covariance = torch.linalg.inv(design.mT @ design / noise + torch.eye(3) / tau2)
    weights = covariance @ design.mT @ ((y - shift) / unit) / noise
    at = x[:5] + 20.0
    rows = torch.cat([torch.ones(5, 1, dtype=torch.float64), scaling(at)], 1)
    predicted, variance = fitted.predict(at), ((rows @ covariance) * rows).sum(1)
    torch.testing.assert_close(predicted.means[0], rows @ weights * unit + shift)
    torch.testing.assert_close(predicted.variances[0], (variance + noise) * unit**2)
    of_labels = torch.distributions.MultivariateNormal(
        torch.full_like(y, shift), unit**2 * (tau2 * design @ design.mT + noise * torch.eye(30))
    )
    assert fitted.log_evidence == pytest.approx(float(of_labels.log_prob(y)), abs=1e-6)
    members = fitted.sample(4000, seed=1)
    assert members.shared["centres"].numel() == members.shared["frequencies"].numel() == 0
    torch.testing.assert_close(members.predict(at).epistemic_variance(), variance * unit**2, rtol=0.1, atol=0)


@pytest.mark.parametrize("linear", [False, True])
def test_hyper_parameters_are_at_the_peak_of_evidence_and_log_normal_priors(linear: bool) -> None:
    """In units of the spread of each column, so that a change of units changes none of it."""
    x, y = some(60)
    y = y - y.mean()  # without standardisation the mean is 0
    common: dict[str, Any] = {"likelihood": "gaussian", "steps": 200, "linear": linear}
    fitted = bc.fit("gp", MLP, (x, y), **common)
    moved = fitted if linear else bc.fit("gp", MLP, (100 * x - 7, 1e-3 * y), standardise=False, **common)
    for name in () if linear else (gp.LENGTHSCALES, gp.SCALE):  # slopes have a middle, and are moved with it
        ratio = 100 * x.std(0, correction=0) if name == gp.LENGTHSCALES else 1e-3 * y.std(correction=0)
        torch.testing.assert_close(moved.state[name][0], fitted.state[name][0] * ratio, rtol=0.05, atol=0)

    def objective(change: dict[str, Tensor]) -> float:
        state = {**fitted.state, **change}
        posterior: Any = fitted.posterior
        evidence = posterior._with_evidence(fitted.problem, state)[gp.EVIDENCE][0]
        lengths = state[gp.LENGTHSCALES].log() - 0.5 * np.log(2)  # in units of √D sds
        away = [(lengths.flatten() - 1) / 1.5 if linear else lengths.flatten()]
        away += [state[gp.SCALE].log(), state[gp.LOG_NOISE].flatten()]
        away += [(state[gp.LINEAR] * 2**0.5).log()] if linear else []
        return float(evidence - 0.5 * torch.cat(away).square().sum())

    best = objective({})
    for name in (gp.LENGTHSCALES, gp.SCALE, *([gp.LINEAR] if linear else [])):
        for factor in (0.9, 1.1):
            assert objective({name: fitted.state[name] * factor}) < best
    for by in (-0.1, 0.1):
        assert objective({gp.LOG_NOISE: fitted.state[gp.LOG_NOISE] + by}) < best


def test_several_targets_are_several_processes() -> None:
    x, y = some()
    both = torch.stack([y, x[:, 0] ** 2], 1)
    together = bc.fit("gp", MLP, (x, both), likelihood="gaussian", starts=1)
    alone = [bc.fit("gp", MLP, (x, both[:, t]), likelihood="gaussian", starts=1) for t in range(2)]
    for t in range(2):
        found, expected = together.predict(x), alone[t].predict(x)
        torch.testing.assert_close(found.means[..., t], expected.means, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(found.variances[..., t], expected.variances, rtol=1e-4, atol=0)
    assert together.log_evidence == pytest.approx(sum(one.log_evidence for one in alone), abs=1e-3)
    drawn = together.sample(400).predict(x).means
    spread = together.function_variance(x)
    assert bool(((drawn.mean(0) - together.predict(x).means[0]).abs() < 5 * (spread / 400).sqrt()).all())


def test_an_update_is_a_fit_to_all_rows_under_the_old_hyper_parameters() -> None:
    first, whole = known(), known()
    part = bc.fit(
        "gp",
        MLP,
        (X[:4], Y[:4]),
        likelihood=bc.Gaussian(noise=0.1),
        prior=bc.GP(lengthscale=0.5, scale=1.0),
        standardise=False,
    ).update((X[4:], Y[4:]))
    assert part.log_evidence == pytest.approx(whole.log_evidence, abs=1e-9)
    torch.testing.assert_close(part.predict(AT).means, first.predict(AT).means)
    x, y = some()
    learnt = bc.fit("gp", MLP, (x[:30], y[:30]), likelihood="gaussian", starts=1)
    more = learnt.update((x[30:], y[30:]))
    assert torch.equal(more.state[gp.LENGTHSCALES], learnt.state[gp.LENGTHSCALES])
    assert len(more.state[gp.X]) == 40


def test_the_noise_is_learnt_under_a_prior_that_is_given() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.rand(200, 1, generator=g, dtype=torch.float64) * 6
    y = torch.sin(x[:, 0]) + 0.3 * torch.randn(200, generator=g, dtype=torch.float64)
    fitted = bc.fit("gp", MLP, (x, y), likelihood="gaussian", prior=bc.GP(lengthscale=1.5, scale=1.0))
    assert float(fitted.sample(1).predict(x[:1]).variances) ** 0.5 == pytest.approx(0.3, rel=0.15)
    assert fitted.problem.scaling is not None
    given = fitted.state[gp.LENGTHSCALES][0] * fitted.problem.scaling.scale
    torch.testing.assert_close(given, torch.tensor([1.5], dtype=torch.float64))


def test_many_inputs_have_one_lengthscale_and_images_are_flattened() -> None:
    g = torch.Generator().manual_seed(0)
    images = torch.randn(30, 1, 8, 8, generator=g)
    y = images.flatten(1)[:, :5].sum(1)
    fitted = bc.fit("gp", {"name": "conv"}, (images, y), likelihood="gaussian", starts=1, steps=20)
    assert len(set(fitted.state[gp.LENGTHSCALES][0].tolist())) == 1
    ensemble = fitted.sample(3)
    assert ensemble.problem.model.input_shape == (1, 8, 8)
    assert ensemble.predict(images).means.shape == (3, 30)
    assert ensemble.predict(images).means.dtype == torch.float32


def test_hyper_parameters_come_from_some_of_many_rows_and_the_rest_is_conditioned_on() -> None:
    x, y = some(120)
    few = bc.fit("gp", MLP, (x, y), likelihood="gaussian", evidence_rows=50, starts=1)
    assert few.state[gp.X].shape == (120, 2)
    other = bc.fit("gp", MLP, (x, y), likelihood="gaussian", evidence_rows=50, starts=1, seed=1)
    assert not torch.equal(few.state[gp.SCALE], other.state[gp.SCALE])


def test_what_it_is_not_for_is_refused_with_advice() -> None:
    refused: list[tuple[str, dict[str, Any]]] = [
        ("use laplace", {"likelihood": bc.Categorical(n_classes=2)}),
        ("one level", {"likelihood": "heteroscedastic_gaussian"}),
        ("no use for a prior over weights", {"prior": bc.Normal(scale=0.3)}),
        ("3 lengthscales, and rows have 2 inputs", {"prior": bc.GP(lengthscale=(1.0, 1.0, 1.0), scale=1.0)}),
        ("name it in the prior", {"prior": bc.GP(lengthscale=1.0, scale=1.0), "kernel": "matern52"}),
        ("drop either", {"prior": bc.GP(lengthscale=1.0, scale=1.0), "linear": True}),
    ]
    for message, options in refused:
        with pytest.raises(bc.InvalidOption, match=message):
            bc.check("gp", MLP, **({"likelihood": "gaussian", "input_shape": [2]} | options))
    embedded = nn.Sequential(nn.Embedding(5, 1), nn.Flatten(), nn.Linear(2, 1))
    with pytest.raises(bc.InvalidModel, match="indices into an embedding"):
        bc.check("gp", embedded, likelihood="gaussian", input_shape=[2])


def test_too_many_rows_are_refused_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.zeros(5001, 1)
    with pytest.raises(bc.InvalidData, match=r"at most 5,000 rows, these are 5,001.*laplace"):
        bc.fit("gp", MLP, (x, x[:, 0]), likelihood="gaussian")
    monkeypatch.setattr(gp, "LARGEST", 7)
    with pytest.raises(bc.InvalidData, match="at most 7 rows, these are 9"):
        known().update((X[:3], Y[:3]))


def test_a_covariance_without_a_factor_is_an_error_with_advice() -> None:
    with pytest.raises(bc.NotFinite, match=r"no Cholesky factor.*raise it"):
        known(prior=bc.GP(lengthscale=1.0, scale=1e200))


def test_a_prior_over_functions_is_kept_in_the_file(tmp_path: Path) -> None:
    fitted = known()
    fitted.save(tmp_path / "f")
    fitted.sample(3).save(tmp_path / "e")
    again = bc.load(tmp_path / "f")
    assert again.problem.prior == bc.GP(lengthscale=0.5, scale=1.0)
    assert torch.equal(again.predict(AT).means, fitted.predict(AT).means)
    assert torch.equal(bc.load(tmp_path / "e").predict(AT).means, fitted.sample(3).predict(AT).means)


def test_three_inputs_of_twenty_that_matter_are_found() -> None:
    """At lengthscales of one sd rows of twenty inputs have nothing in common, and the evidence no slope to follow."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(260, 20, generator=g, dtype=torch.float64)
    y = x[:, 0] * x[:, 1] + x[:, 2] + 0.1 * torch.randn(260, generator=g, dtype=torch.float64)
    fitted = bc.fit("gp", None, (x[:160], y[:160]), likelihood="gaussian", starts=1)
    assert bc.metrics.rmse(fitted.predict(x[160:]), y[160:]) < 0.3  # the sd of y is 1.4
    lengthscales = fitted.state["gp/lengthscales"][0]
    assert float(lengthscales[:3].max()) < float(lengthscales[3:].min())
