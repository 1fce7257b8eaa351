"""Priors as maps from normal scores: quantiles and densities beside scipy's, also far in the tails."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from bensemble_core.design.spec.blocks import Listed, MultivariateNormal, Scalar, joint_prior
from bensemble_core.design.spec.priors import (
    Beta,
    Gamma,
    HalfNormal,
    LogNormal,
    LogUniform,
    Normal,
    StudentT,
    TruncNormal,
    Uniform,
)

CASES: list[tuple[Any, Any]] = [
    (Normal(loc=7, scale=2), stats.norm(7, 2)),
    (LogNormal(loc=0.3, scale=0.5), stats.lognorm(0.5, scale=math.exp(0.3))),
    (StudentT(loc=1, scale=2), stats.t(3, 1, 2)),
    (StudentT(loc=1, scale=2, df=1), stats.cauchy(1, 2)),
    (HalfNormal(scale=1.5), stats.halfnorm(scale=1.5)),
    (Uniform(low=-1, high=3), stats.uniform(-1, 4)),
    (LogUniform(low=0.01, high=10), stats.loguniform(0.01, 10)),
    (Beta(a=2, b=5), stats.beta(2, 5)),
    (Beta(a=0.5, b=0.5), stats.beta(0.5, 0.5)),
    (Gamma(shape=2, rate=3), stats.gamma(2, scale=1 / 3)),
    (TruncNormal(loc=1, scale=2, low=0), stats.truncnorm(-0.5, math.inf, 1, 2)),
    (TruncNormal(loc=1, scale=2, low=0, high=2.5), stats.truncnorm(-0.5, 0.75, 1, 2)),
    (TruncNormal(loc=0, scale=1, low=4, high=6), stats.truncnorm(4, 6)),
    (TruncNormal(loc=0, scale=1, low=-7, high=-5), stats.truncnorm(-7, -5)),
]
IDS = [f"{type(prior).__name__}-{i}" for i, (prior, _) in enumerate(CASES)]


@pytest.mark.parametrize(("prior", "oracle"), CASES, ids=IDS)
def test_the_value_at_a_score_is_the_quantile_of_either_tail(prior: Any, oracle: Any) -> None:
    z = torch.linspace(-6, 6, 49, dtype=torch.float64)
    tail = stats.norm.cdf(-z.abs().numpy())
    expected = np.where(z.numpy() <= 0, oracle.ppf(tail), oracle.isf(tail))
    np.testing.assert_allclose(prior.at(z).numpy(), expected, rtol=2e-8, atol=1e-12)


@pytest.mark.parametrize(("prior", "oracle"), CASES, ids=IDS)
def test_densities_are_those_of_scipy(prior: Any, oracle: Any) -> None:
    theta = prior.at(torch.linspace(-3, 3, 13, dtype=torch.float64))
    np.testing.assert_allclose(prior.log_density(theta).numpy(), oracle.logpdf(theta.numpy()), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("prior", "oracle"), CASES, ids=IDS)
def test_the_whole_grid_is_finite_and_in_order(prior: Any, oracle: Any) -> None:
    theta = prior.at(torch.linspace(-8, 8, 161, dtype=torch.float64))
    assert bool(theta.isfinite().all())
    assert bool((theta.diff() >= 0).all())


def test_a_multivariate_normal_keeps_its_covariance_when_targets_come_first() -> None:
    covariance = torch.tensor([[2.0, 0.6, 0.1], [0.6, 1.0, -0.3], [0.1, -0.3, 0.5]], dtype=torch.float64)
    mean = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    block = MultivariateNormal(names=("a", "b", "c"), mean=mean, factor=torch.linalg.cholesky(covariance))
    other = block.ordered(["c"])
    assert other.names == ("c", "a", "b")
    torch.testing.assert_close(other.factor @ other.factor.mT, covariance[[2, 0, 1]][:, [2, 0, 1]])
    z = torch.tensor([[0.3, -1.0, 0.7]], dtype=torch.float64)
    values, log_density = other.at(z)
    point = [float(values[name]) for name in ("a", "b", "c")]
    expected = stats.multivariate_normal(mean.numpy(), covariance.numpy()).logpdf(point)
    assert float(log_density) == pytest.approx(float(expected), abs=1e-12)


def test_the_joint_prior_does_not_depend_on_the_order_of_statement() -> None:
    blocks: list[Scalar | MultivariateNormal | Listed] = [
        Scalar(name="b", prior=Normal(loc=0, scale=1)),
        Listed(
            names=("c",),
            values=torch.tensor([[1.0], [2.0]]).double(),
            log_weights=torch.tensor([0.3, 0.7]).double().log(),
        ),
        Scalar(name="a", prior=Normal(loc=1, scale=2)),
    ]
    one, other = joint_prior(blocks, ["b"]), joint_prior(blocks[::-1], ["b"])
    assert [block.names for block in one.continuous] == [block.names for block in other.continuous] == [("b",), ("a",)]
    assert one.names == ("a", "b", "c")
    assert one.n_target_scores == 1


def test_draws_of_listed_points_follow_their_weights() -> None:
    listed = Listed(
        names=("c",),
        values=torch.tensor([[1.0], [2.0], [5.0]]).double(),
        log_weights=torch.tensor([0.2, 0.3, 0.5]).double().log(),
    )
    prior = joint_prior([listed], ["c"])
    u = ((torch.arange(1000) + 0.5) / 1000).double()[:, None]
    _, index = prior.draw(u)
    assert index[:, 0].bincount().tolist() == [200, 300, 500]
