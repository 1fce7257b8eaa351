"""Families beside scipy's distributions: log p, enumeration, entropy, draws."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor

from bensemble_core.design.spec.continuous import CONTINUOUS
from bensemble_core.design.spec.families import DISCRETE, MAX_COUNT


def t(*values: float) -> Tensor:
    return torch.tensor(values if len(values) > 1 else values[0], dtype=torch.float64)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


ORDINAL = [
    sigmoid(-1 - 0.4),
    sigmoid(0.5 - 0.4) - sigmoid(-1 - 0.4),
    sigmoid(2 - 0.4) - sigmoid(0.5 - 0.4),
    1 - sigmoid(2 - 0.4),
]
COUNTS: list[tuple[str, dict[str, Tensor], Any]] = [
    ("bernoulli", {"prob": t(0.3)}, stats.bernoulli(0.3)),
    ("bernoulli", {"logit": t(-0.8)}, stats.bernoulli(sigmoid(-0.8))),
    ("binomial", {"n": t(7), "prob": t(0.3)}, stats.binom(7, 0.3)),
    ("binomial", {"n": t(7), "logit": t(1.2)}, stats.binom(7, sigmoid(1.2))),
    ("categorical", {"probs": t(0.2, 0.5, 0.3)}, stats.rv_discrete(values=(range(3), (0.2, 0.5, 0.3)))),
    (
        "categorical",
        {"logits": t(0.0, math.log(2), math.log(5))},
        stats.rv_discrete(values=(range(3), (1 / 8, 2 / 8, 5 / 8))),
    ),
    ("ordinal", {"eta": t(0.4), "cuts": t(-1, 0.5, 2)}, stats.rv_discrete(values=(range(4), ORDINAL))),
    ("poisson", {"rate": t(4.2)}, stats.poisson(4.2)),
    ("poisson", {"log_rate": t(math.log(30))}, stats.poisson(30)),
    ("negative_binomial", {"mean": t(6), "dispersion": t(0.5)}, stats.nbinom(2, 2 / 8)),
]
REALS: list[tuple[str, dict[str, Tensor], Any]] = [
    ("normal", {"mean": t(1.5), "sd": t(0.7)}, stats.norm(1.5, 0.7)),
    ("lognormal", {"mean": t(0.4), "sd": t(0.6)}, stats.lognorm(0.6, scale=math.exp(0.4))),
    ("student_t", {"df": t(4), "mean": t(1.0), "sd": t(2.0)}, stats.t(4, 1, 2)),
    ("beta", {"mean": t(0.3), "concentration": t(8)}, stats.beta(2.4, 5.6)),
    ("beta", {"mean": t(0.1), "concentration": t(2)}, stats.beta(0.2, 1.8)),
    ("exponential", {"rate": t(2.5)}, stats.expon(scale=1 / 2.5)),
]


def test_every_family_is_checked_here() -> None:
    assert {name for name, _, _ in COUNTS} == set(DISCRETE)
    assert {name for name, _, _ in REALS} == set(CONTINUOUS)


@pytest.mark.parametrize(("name", "arguments", "oracle"), COUNTS)
def test_discrete_probabilities_are_those_of_scipy_and_complete(
    name: str, arguments: dict[str, Tensor], oracle: Any
) -> None:
    family = DISCRETE[name]
    n = family.count(arguments)
    y = torch.arange(n, dtype=torch.float64)
    p = family.log_prob(arguments, y).exp()
    np.testing.assert_allclose(p.numpy(), oracle.pmf(y.numpy()), rtol=1e-9, atol=1e-14)
    assert float(p.sum()) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(("name", "arguments", "oracle"), COUNTS)
def test_discrete_draws_invert_the_distribution_function(name: str, arguments: dict[str, Tensor], oracle: Any) -> None:
    u = torch.linspace(0.0013, 0.9987, 101, dtype=torch.float64)
    drawn = DISCRETE[name].quantile(arguments, u)
    np.testing.assert_array_equal(drawn.numpy(), oracle.ppf(u.numpy()))


@pytest.mark.parametrize(("name", "arguments", "oracle"), REALS)
def test_densities_are_those_of_scipy(name: str, arguments: dict[str, Tensor], oracle: Any) -> None:
    y = torch.as_tensor(oracle.ppf([0.001, 0.1, 0.5, 0.8, 0.999]))
    np.testing.assert_allclose(
        CONTINUOUS[name].log_prob(arguments, y).numpy(), oracle.logpdf(y.numpy()), rtol=1e-9, atol=1e-10
    )
    u = torch.tensor([0.001, 0.1, 0.5, 0.8, 0.999], dtype=torch.float64)
    np.testing.assert_allclose(CONTINUOUS[name].quantile(arguments, u).numpy(), y.numpy(), rtol=1e-8)


@pytest.mark.parametrize(("name", "arguments", "oracle"), REALS)
def test_the_entropy_is_that_of_the_coordinate(name: str, arguments: dict[str, Tensor], oracle: Any) -> None:
    """Against scipy's adaptive quadrature of −p log p, between the places of mass 6e-16 on either side."""
    family = CONTINUOUS[name]

    def term(c: float) -> float:
        log_p = float(family.log_density(arguments, t(c)))
        return -math.exp(log_p) * log_p if log_p > -700 else 0.0

    places = [float(family.place(arguments, s)) for s in (-8, -5, -3, -1.5, 0, 1.5, 3, 5, 8)]
    assert places == sorted(places)
    total = sum(integrate.quad(term, a, b, limit=400, epsabs=1e-12)[0] for a, b in itertools.pairwise(places))
    assert float(family.entropy(arguments)) == pytest.approx(total, abs=1e-7)


@pytest.mark.parametrize(("name", "arguments", "oracle"), REALS)
def test_coordinates_lead_back_to_outcomes(name: str, arguments: dict[str, Tensor], oracle: Any) -> None:
    """P(y ≤ outcome(place(s))) = Φ(s)."""
    for s in (-2.0, 0.0, 1.5):
        y = float(CONTINUOUS[name].outcome(CONTINUOUS[name].place(arguments, s)))
        assert float(oracle.cdf(y)) == pytest.approx(float(stats.norm.cdf(s)), abs=1e-9)


def test_probabilities_of_zero_and_one_give_no_nan() -> None:
    binomial = DISCRETE["binomial"]
    for p, certain in ((0.0, 0), (1.0, 3)):
        found = binomial.log_prob({"n": t(3), "prob": t(p)}, torch.arange(4.0).double()).exp()
        assert found.tolist() == [float(y == certain) for y in range(4)]
    bernoulli = DISCRETE["bernoulli"].log_prob({"prob": t(1.0)}, torch.arange(2.0).double())
    assert bernoulli.tolist() == [-math.inf, 0.0]


def test_counts_beyond_reason_are_not_enumerated() -> None:
    assert DISCRETE["poisson"].count({"rate": t(1e6)}) > MAX_COUNT


@pytest.mark.parametrize(
    ("name", "arguments", "wrong"),
    [
        ("bernoulli", {"prob": t(1.2)}, "prob"),
        ("bernoulli", {"logit": t(math.nan)}, "logit"),
        ("binomial", {"n": t(2.5), "prob": t(0.2)}, "n"),
        ("categorical", {"probs": t(0.5, 0.6)}, "probs"),
        ("ordinal", {"eta": t(0.0), "cuts": t(1, 0)}, "cuts"),
        ("poisson", {"rate": t(0.0)}, "rate"),
        ("negative_binomial", {"mean": t(1), "dispersion": t(-1)}, "dispersion"),
        ("normal", {"mean": t(0.0), "sd": t(0.0)}, "sd"),
        ("student_t", {"df": t(0.0), "mean": t(0.0), "sd": t(1.0)}, "df"),
        ("beta", {"mean": t(1.0), "concentration": t(1)}, "mean"),
        ("exponential", {"rate": t(math.inf)}, "rate"),
    ],
)
def test_wrong_arguments_are_named(name: str, arguments: dict[str, Tensor], wrong: str) -> None:
    family = {**DISCRETE, **CONTINUOUS}[name]
    assert [argument for argument, where, _ in family.faults(arguments) if where.any()] == [wrong]


@pytest.mark.parametrize(
    ("name", "y"), [("bernoulli", 2), ("binomial", -1), ("poisson", 1.5), ("lognormal", 0), ("beta", 1)]
)
def test_impossible_outcomes_are_not_admitted(name: str, y: float) -> None:
    assert {**DISCRETE, **CONTINUOUS}[name].admits(y) is not None


@pytest.mark.parametrize("dispersion", [1e-9, 1e-12, 1e-15])
def test_counts_with_next_to_no_dispersion_are_poisson(dispersion: float) -> None:
    y = torch.arange(0, 60, dtype=torch.float64)
    found = DISCRETE["negative_binomial"].log_prob({"mean": t(20), "dispersion": t(dispersion)}, y)
    far = dispersion * ((y - 20).square() - y).abs() / 2  # the first term of what separates the two
    assert ((found - torch.as_tensor(stats.poisson(20).logpmf(y.numpy()))).abs() <= far + 1e-12).all()


def test_the_two_forms_of_the_negative_binomial_meet() -> None:
    y = torch.arange(0, 60, dtype=torch.float64)
    below, above = (
        DISCRETE["negative_binomial"].log_prob({"mean": t(20), "dispersion": t(a)}, y)
        for a in (1e-4 * (1 - 1e-12), 1e-4 * (1 + 1e-12))
    )
    torch.testing.assert_close(below, above, rtol=0, atol=1e-8)


@pytest.mark.parametrize("concentration", [1e6, 1e9, 1e12])
def test_a_narrow_beta_is_normal_in_its_logit(concentration: float) -> None:
    """Its log density and entropy to what is left of order 1 / concentration, and not to what cancels."""
    mean = 0.3
    beta, given = CONTINUOUS["beta"], {"mean": t(mean), "concentration": t(concentration)}
    sd = 1 / math.sqrt(concentration * mean * (1 - mean))
    left = 2 / concentration + 1e-14 * math.sqrt(concentration)
    assert float(beta.entropy(given)) == pytest.approx(math.log(sd) + 0.5 * math.log(2 * math.pi * math.e), abs=left)
    middle = math.log(mean / (1 - mean))
    assert float(beta.log_density(given, t(middle))) == pytest.approx(-math.log(sd * math.sqrt(2 * math.pi)), abs=left)
    # the third cumulant is what two places at the same distance differ by
    pair = [float(beta.log_density(given, t(middle + z * sd))) for z in (-3, 3)]
    expected = -math.log(sd * math.sqrt(2 * math.pi)) - 4.5
    assert sum(pair) / 2 == pytest.approx(expected, abs=100 * sd**2 + 1e-13 * math.sqrt(concentration))


def test_draws_of_large_counts_are_as_exact_as_those_of_few() -> None:
    u = torch.linspace(0.0013, 0.9987, 101, dtype=torch.float64)
    drawn = DISCRETE["poisson"].quantile({"rate": t(3e6)}, u)
    np.testing.assert_array_equal(drawn.numpy(), stats.poisson(3e6).ppf(u.numpy()))
    beyond = DISCRETE["poisson"].quantile({"rate": t(1e14)}, u)
    torch.testing.assert_close((beyond - 1e14) / 1e7, torch.special.ndtri(u), rtol=0, atol=1e-6)
