"""Regression over prior functions of a network, against the Gaussian process with the kernel of those functions."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import bensemble_core as bc
from bensemble_core.posteriors.function_space import vip

MLP: dict[str, Any] = {"name": "mlp", "hidden": [20], "activation": "tanh"}


def some(n: int = 30) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    x = 3 * torch.randn(n, 2, generator=g, dtype=torch.float64) + 5
    return x, 10 + 4 * torch.sin(x[:, 0] / 2) + x[:, -1] + 0.5 * torch.randn(n, generator=g, dtype=torch.float64)


def functions(fitted: bc.Fitted, x: Tensor) -> Tensor:
    """f_s in the units of y: [S, N(, T)]."""
    posterior: Any = fitted.posterior
    networks = posterior.unfold(fitted.problem, fitted.state)
    networks.pop("likelihood/log_noise", None)
    known = bc.Gaussian(noise=1.0, **{k: getattr(fitted.problem.likelihood, k) for k in ("mean", "scale", "spread")})
    problem = bc.Problem(
        model=fitted.problem.model, likelihood=known, prior=None, scaling=fitted.problem.scaling, dtype=torch.float64
    )
    found: Tensor = bc.Ensemble(problem=problem, stacked=networks).predict(x).means
    return found


@pytest.mark.parametrize("likelihood", ["gaussian", bc.Gaussian(noise=0.7)])
@pytest.mark.parametrize("learn_prior", [False, True])
def test_it_is_gp_regression_with_the_kernel_of_its_own_functions(learn_prior: bool, likelihood: Any) -> None:
    x, y = some()
    options: dict[str, Any] = {"functions": 12, "learn_prior": learn_prior, "steps": 15}
    fitted = bc.fit("vip", MLP, (x, y), likelihood=likelihood, prior=bc.Normal(scale=0.6), **options)
    at = x[:5] + 1
    f, g = functions(fitted, x), functions(fitted, at)
    mean, apart, apart_at = f.mean(0), f - f.mean(0), g - g.mean(0)
    noise = float(fitted.sample(1).predict(at[:1]).variances)
    covariance = apart.T @ apart / 12 + noise * torch.eye(30, dtype=torch.float64)
    cross = apart_at.T @ apart / 12
    expected = g.mean(0) + cross @ torch.linalg.solve(covariance, y - mean)
    variance = apart_at.square().sum(0) / 12 - (cross * torch.linalg.solve(covariance, cross.T).T).sum(1)
    evidence = torch.distributions.MultivariateNormal(mean, covariance).log_prob(y)
    torch.testing.assert_close(fitted.predict(at).means[0], expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(fitted.function_variance(at)[:, 0], variance, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(fitted.predict(at).variances[0], variance + noise, rtol=1e-6, atol=1e-6)
    assert fitted.log_evidence == pytest.approx(float(evidence), abs=1e-6)


def test_members_have_the_moments_of_the_posterior() -> None:
    x, y = some()
    fitted = bc.fit("vip", MLP, (x, torch.stack([y, x[:, 0]], 1)), likelihood="gaussian", functions=12, steps=15)
    n, at = 4096, x[:5] + 1
    drawn = fitted.sample(n, seed=1).predict(at).means
    mean, covariance = fitted.predict(at).means[0], fitted.function_variance(at, joint=True)
    variance = covariance.diagonal(dim1=-2, dim2=-1)
    assert bool(((drawn.mean(0) - mean).abs() < 4 * (variance / n).sqrt()).all())
    assert bool(((drawn.var(0) - variance).abs() < 4 * variance * (2 / n) ** 0.5).all())


def test_a_learnt_prior_has_more_evidence_and_is_kept() -> None:
    x, y = some()
    common: dict[str, Any] = {"likelihood": "gaussian", "functions": 20}
    given = bc.fit("vip", MLP, (x, y), learn_prior=False, **common)
    learnt = bc.fit("vip", MLP, (x, y), **common)
    assert learnt.log_evidence > given.log_evidence + 5
    names = ["linear1.weight", "linear1.bias"]
    for name in names:
        assert float(given.state[vip.PRIOR_MEAN + name]) == 0
        assert float(given.state[vip.PRIOR_SD + name]) == 1
        sd = float(learnt.state[vip.PRIOR_SD + name])
        drawn = (learnt.state[name] - learnt.state[vip.PRIOR_MEAN + name]) / sd
        torch.testing.assert_close(drawn, given.state[name])  # the same draws, moved and scaled


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_two_targets_without_noise_are_both_learnt(dtype: torch.dtype) -> None:
    x = torch.from_numpy(np.random.default_rng(2).normal(size=(300, 2)).round(3)[:70]).to(dtype)
    y = torch.stack([torch.sin(2 * x[:, 0]), x[:, 0]], 1)
    small = {"name": "mlp", "hidden": [8], "activation": "tanh"}
    for seed in range(5):
        given = bc.fit("vip", small, (x, y), likelihood="gaussian", seed=seed, learn_prior=False, steps=1)
        learnt = bc.fit("vip", small, (x, y), likelihood="gaussian", seed=seed)
        assert learnt.log_evidence > given.log_evidence + 50
        assert learnt.diagnostics.values["learnt"] == 1
        assert learnt.diagnostics.warnings == ()
        errors = (learnt.predict(x).means[0] - y).square().mean(0).sqrt()
        assert bool((errors < 0.3).all())


def test_a_point_without_an_evidence_does_not_end_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = some()
    common: dict[str, Any] = {"likelihood": "gaussian", "functions": 20}
    evidence, looked = vip._Search.log_evidence, 0

    def now_and_then(self: Any, phi: Tensor) -> Tensor:
        nonlocal looked
        looked += 1
        return evidence(self, phi) * (float("nan") if looked % 3 == 2 else 1.0)

    given = bc.fit("vip", MLP, (x, y), learn_prior=False, steps=1, **common)
    monkeypatch.setattr(vip._Search, "log_evidence", now_and_then)
    assert bc.fit("vip", MLP, (x, y), **common).log_evidence > given.log_evidence + 5


def test_it_says_where_nothing_was_learnt_or_digits_were_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = some()
    common: dict[str, Any] = {"functions": 12, "learn_prior": False}
    known = bc.fit("vip", MLP, (x, y), likelihood=bc.Gaussian(noise=1e-6), **common)
    assert "Rounding" in known.diagnostics.warnings[0]
    with pytest.raises(bc.NotFinite, match="a larger noise"):
        bc.fit("vip", MLP, (x, y), likelihood=bc.Gaussian(noise=1e-12), **common)
    monkeypatch.setattr(vip._Search, "log_evidence", lambda self, phi: phi.sum() * float("nan"))
    (warning,) = bc.fit("vip", MLP, (x, y), likelihood="gaussian", functions=12).diagnostics.warnings
    assert "that of the start" in warning


def test_an_update_is_a_fit_to_all_rows() -> None:
    x, y = some()
    common: dict[str, Any] = {
        "likelihood": bc.Gaussian(noise=0.5),
        "functions": 8,
        "learn_prior": False,
        "standardise": False,
    }
    whole = bc.fit("vip", MLP, (x, y), **common)
    part = bc.fit("vip", MLP, (x[:20], y[:20]), **common).update((x[20:], y[20:]))
    assert part.log_evidence == pytest.approx(whole.log_evidence)
    torch.testing.assert_close(part.predict(x).means, whole.predict(x).means)
    torch.testing.assert_close(part.predict(x).variances, whole.predict(x).variances)


def test_files_of_a_module_need_it_again(tmp_path: Path) -> None:
    x, y = some()
    net = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.ReLU(inplace=True), nn.Linear(4, 1), nn.Flatten(0))
    ensemble = bc.fit("vip", net, (x, y), likelihood="gaussian", functions=4, steps=5).sample(3)
    ensemble.save(tmp_path / "e")
    again = bc.load(tmp_path / "e", model=net)
    assert torch.equal(again.predict(x).means, ensemble.predict(x).means)
    assert again.plan.mode == "vmap"
    with pytest.raises(bc.InvalidModel, match="pass the module"):
        bc.load(tmp_path / "e")


def test_a_basis_file_that_is_at_odds_with_itself_is_refused() -> None:
    x, y = some()
    ensemble = bc.fit("vip", MLP, (x, y), likelihood="gaussian", functions=4, steps=2).sample(3)
    for wrong in ({"n_functions": 0}, {"n_functions": 5}, {"inner": None}, {"input_shape": [3]}):
        header, tensors = ensemble.to_tensors()
        header["problem"]["model"] |= wrong
        with pytest.raises(bc.InvalidFile):
            bc.Ensemble.from_tensors(header, tensors)


def test_what_it_is_not_for_is_refused_with_advice() -> None:
    refused: list[tuple[str, dict[str, Any]]] = [
        ("use laplace", {"likelihood": bc.Categorical(n_classes=2)}),
        ("there is none", {"prior": None}),
        ("functions=", {"model": {"name": "mlp", "hidden": [3000, 3000]}}),
    ]
    for message, options in refused:
        with pytest.raises(bc.InvalidOption, match=message):
            bc.check("vip", **({"model": MLP, "likelihood": "gaussian", "input_shape": [2]} | options))
