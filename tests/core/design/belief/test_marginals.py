"""Quantiles, intervals and draws of a posterior on a grid, beside the conjugate closed form."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bensemble_core.design import Experiment
from bensemble_core.design.belief.belief import Belief


def regression(k: int, *, is_correlated: bool = False, is_skewed: bool = False) -> tuple[Belief, Any, Any]:
    """θ ~ N(0, C), log y ~ N(x · θ, 1/4), four observations: the belief on its grid, exact means and sds of θ; or the
    same stated with θ = log t."""
    names, rng = [f"t{i}" for i in range(k)], np.random.default_rng(0)
    prior = 0.5 * (np.eye(k) + np.ones((k, k))) if is_correlated else np.eye(k)
    plain = {name: {"dist": "lognormal" if is_skewed else "normal", "loc": 0, "scale": 1} for name in names}
    joint = {"all": {"dist": "multivariate_normal", "names": names, "mean": [0] * k, "covariance": prior.tolist()}}
    x = rng.normal(size=(4, k))
    designs = [{f"x{i}": float(v) for i, v in enumerate(row)} for row in x]
    mean = " + ".join(f"x{i} * log(t{i})" if is_skewed else f"x{i} * t{i}" for i in range(k))
    experiment = Experiment.from_spec(
        {
            "parameters": joint if is_correlated else plain,
            "designs": designs,
            "outcome": {"y": {"family": "lognormal", "mean": mean, "sd": 0.5}},
        }
    )
    y = x @ np.full(k, 0.7) + 0.3 * rng.normal(size=4)
    spread = np.linalg.inv(np.linalg.inv(prior) + 4 * x.T @ x)
    belief = experiment.posterior([(design, {"y": math.exp(v)}) for design, v in zip(designs, y, strict=True)])
    assert belief.method == ("grid" if k < 3 else "particles")
    return belief, 4 * spread @ x.T @ y, np.sqrt(spread.diagonal())


@pytest.mark.parametrize("is_correlated", [False, True])
@pytest.mark.parametrize(("k", "tolerance"), [(1, 1e-5), (2, 4e-3), (3, 4e-2)])
def test_quantiles_and_intervals_equal_the_closed_form(k: int, tolerance: float, is_correlated: bool) -> None:
    belief, mean, sd = regression(k, is_correlated=is_correlated)
    for i in range(k):
        for q in (0.005, 0.025, 0.25, 0.5, 0.75, 0.975, 0.995):
            exact = mean[i] + sd[i] * stats.norm.ppf(q)
            assert belief.quantile(q, f"t{i}") == pytest.approx(exact, abs=tolerance * sd[i])
        ends = mean[i] + sd[i] * stats.norm.ppf([0.05, 0.95])
        width = {1: 1, 2: 10, 3: 3}[k] * tolerance  # where an interval is shortest its length hardly changes
        assert belief.hdi(0.9)[f"t{i}"] == pytest.approx(tuple(ends), abs=width * sd[i])


@pytest.mark.parametrize(("k", "tolerance"), [(1, 1e-5), (2, 4e-3), (3, 4e-2)])
def test_quantiles_of_skewed_and_correlated_parameters_equal_the_closed_form(k: int, tolerance: float) -> None:
    belief, mean, sd = regression(k, is_skewed=True)
    for i in range(k):
        for q in (0.01, 0.1, 0.5, 0.9, 0.99):
            exact = mean[i] + sd[i] * stats.norm.ppf(q)
            assert math.log(belief.quantile(q, f"t{i}")) == pytest.approx(exact, abs=tolerance * sd[i])


@pytest.mark.parametrize("k", [1, 2])
def test_draws_from_a_grid_are_continuous_and_follow_the_posterior(k: int) -> None:
    belief, mean, sd = regression(k)
    drawn = belief.samples(40_000, seed=1)
    for i in range(k):
        column = drawn[f"t{i}"].numpy()
        assert len(np.unique(column)) == 40_000
        # Kolmogorov's distance at 40,000 draws: 0.0097 is passed once in a thousand
        assert stats.kstest((column - mean[i]) / sd[i], "norm").statistic < 0.0097
    exact = belief.covariance().numpy()
    found = np.cov(np.stack([drawn[f"t{i}"].numpy() for i in range(k)])).reshape(k, k)
    np.testing.assert_allclose(found, exact, rtol=0, atol=0.03 * exact.max())


def test_draws_keep_to_the_values_of_a_list_and_to_the_support_of_a_prior() -> None:
    spec = {
        "parameters": {
            "rate": {"dist": "gamma", "shape": 0.3, "rate": 1},
            "kind": {"dist": "categorical", "values": [1, 2, 5], "probs": [0.2, 0.5, 0.3]},
        },
        "designs": {"x": {"type": "list", "values": [1]}},
        "outcome": {"y": {"family": "poisson", "rate": "rate * kind * x"}},
    }
    belief = Experiment.from_spec(spec).posterior([({"x": 1}, {"y": 1})])
    drawn = belief.samples(20_000, seed=3)
    values, counts = np.unique(drawn["kind"].numpy(), return_counts=True)
    assert values.tolist() == [1, 2, 5]
    assert (counts / 20_000).tolist() == pytest.approx(belief.marginal("kind")[1], abs=0.015)
    assert len(np.unique(drawn["rate"].numpy())) == 20_000
    assert float(drawn["rate"].min()) > 0
    for q in (0.1, 0.5, 0.9):
        assert np.mean(drawn["rate"].numpy() <= belief.quantile(q, "rate")) == pytest.approx(q, abs=0.015)
    assert belief.samples(50, seed=3)["rate"].tolist() == belief.samples(50, seed=3)["rate"].tolist()


def test_quantiles_intervals_and_draws_of_several_peaks_agree() -> None:
    """Beside a sum over two million points: |sin 4t| = .5 at .131 + kπ/4 and .654 + kπ/4."""
    spec = {
        "parameters": {"t": {"dist": "uniform", "low": -1, "high": 2}},
        "designs": {"x": {"type": "list", "values": [4]}},
        "outcome": {"y": {"family": "normal", "mean": "sin(x * t) ** 2 + t / 40", "sd": 0.05}},
    }
    belief = Experiment.from_spec(spec).posterior([({"x": 4}, {"y": 0.26})])
    t = np.linspace(-1, 2, 2_000_001)
    below = np.cumsum(stats.norm.pdf(0.26, np.sin(4 * t) ** 2 + t / 40, 0.05))
    below /= below[-1]
    for q in (0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99):
        assert np.interp(belief.quantile(q, "t"), t, below) == pytest.approx(q, abs=2e-4)
    drawn = belief.samples(40_000, seed=1)["t"].numpy()
    assert stats.kstest(drawn, lambda x: np.interp(x, t, below)).statistic < 0.0097
    low, high = belief.hdi(0.8)["t"]
    ends = np.interp(np.linspace(0, 0.2, 100_001)[:, None] + [0, 0.8], below, t)
    assert high - low == pytest.approx(float(np.diff(ends).min()), abs=1e-4)
    at, density = belief.marginal("t", 2000)
    assert np.interp(np.interp(at, t, below), below, np.gradient(below, t)) == pytest.approx(density, abs=0.2)


def test_quantiles_and_draws_of_a_posterior_that_a_step_cuts_off_are_those_of_half_a_normal() -> None:
    spec = {
        "parameters": {"t": {"dist": "normal", "loc": 0, "scale": 1}},
        "designs": {"x": {"type": "list", "values": [0.3]}},
        "outcome": {"y": {"family": "bernoulli", "prob": "where(t > x, 0.999, 1e-9)"}},
    }
    belief = Experiment.from_spec(spec).posterior([({"x": 0.3}, {"y": 1})])
    exact = stats.truncnorm(0.3, np.inf)
    for q in (0.01, 0.3, 0.9):
        assert belief.quantile(q, "t") == pytest.approx(float(exact.ppf(q)), abs=1e-2)
    assert stats.kstest(belief.samples(40_000)["t"].numpy(), exact.cdf).statistic < 0.0097


@pytest.mark.parametrize(("y", "sd"), [(9.0, 0.5), (12.0, 1.0), (12.0, 0.1), (20.0, 0.2)])
@pytest.mark.parametrize("dist", ["normal", "lognormal"])
def test_the_grid_follows_an_outcome_far_out_in_the_prior(dist: str, y: float, sd: float) -> None:
    """N(0, 1) and an outcome at `y` sds: the posterior is N(y / (1 + sd²), sd² / (1 + sd²))."""
    mean = "t * x" if dist == "normal" else "log(t) * x"
    spec = {
        "parameters": {"t": {"dist": dist, "loc": 0, "scale": 1}},
        "designs": {"x": {"type": "list", "values": [1]}},
        "outcome": {"y": {"family": "lognormal", "mean": mean, "sd": sd}},
    }
    experiment = Experiment.from_spec(spec)
    observed = [({"x": 1}, {"y": math.exp(y)})]
    belief = experiment.posterior(observed)
    centre, variance = y / (1 + sd**2), sd**2 / (1 + sd**2)
    exact = centre if dist == "normal" else math.exp(centre + variance / 2)
    assert belief.mean["t"] == pytest.approx(exact, rel=1e-6)
    median = centre if dist == "normal" else math.exp(centre)
    assert belief.quantile(0.5, "t") == pytest.approx(median, rel=1e-3 * math.sqrt(variance))
    assert belief.edge_mass < 1e-9
    assert not any("edge" in warning for warning in experiment.guards(observed).warnings)
