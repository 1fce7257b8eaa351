"""Counts too many to enumerate, and outcomes at the edges of their range, against sums and quadratures of scipy's."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import special, stats

from bensemble_core.design import Experiment
from bensemble_core.design.spec.families import DISCRETE
from bensemble_core.errors import InvalidSpec, NotFinite

X = {"x": {"type": "integer", "low": 1, "high": 5}}


def stated(parameters: dict[str, Any], **outcome: Any) -> dict[str, Any]:
    return {"parameters": parameters, "designs": X, "outcome": {"y": outcome}}


def number(x: float) -> torch.Tensor:
    return torch.tensor(x, dtype=torch.float64)


@pytest.mark.parametrize("rate", [5.0, 290.0, 310.0, 5e3, 1e6])
def test_poissons_probabilities_and_entropy_at_any_rate(rate: float) -> None:
    y = np.arange(max(0, int(rate - 9 * rate**0.5)), int(rate + 9 * rate**0.5) + 20)
    known = stats.poisson.logpmf(y, rate)
    found = DISCRETE["poisson"].log_prob({"rate": number(rate)}, torch.as_tensor(y, dtype=torch.float64))
    np.testing.assert_allclose(found.numpy(), known, atol=1e-11 * max(rate, 100))
    entropy = float(DISCRETE["poisson"].entropy({"rate": number(rate)}))
    assert entropy == pytest.approx(-float((np.exp(known) * known).sum()), abs=1e-8)


@pytest.mark.parametrize(("mean", "dispersion"), [(1e4, 0.5), (1e4, 1e-6), (2e3, 10.0), (1e6, 0.01), (200.0, 3.0)])
def test_the_negative_binomials_entropy_whether_counts_are_few_or_many(mean: float, dispersion: float) -> None:
    y = np.arange(3_000_000)
    log_p = stats.nbinom.logpmf(y, 1 / dispersion, 1 / (1 + dispersion * mean))
    found = DISCRETE["negative_binomial"].entropy({"mean": number(mean), "dispersion": number(dispersion)})
    assert float(found) == pytest.approx(-float((np.exp(log_p) * log_p).sum()), abs=2e-8)


def test_high_counts_are_integrated_over() -> None:
    """By the normal limit, whose error is 1e-4 here: I ≈ H[r] − E H[r | y], y known to √(r x)."""
    experiment = Experiment.from_spec(
        stated({"r": {"dist": "lognormal", "loc": 14, "scale": 0.3}}, family="poisson", rate="r*x")
    )
    found = experiment.eig()
    entropy = 14 + 0.5 * np.log(2 * np.pi * np.e * 0.3**2)
    for x, estimate in enumerate(found, 1):
        noise = 0.5 * (np.log(2 * np.pi * np.e) + 14 - np.log(x))
        assert estimate.method == "quadrature"
        assert estimate.eig == pytest.approx(entropy - noise, abs=1e-4)
        assert estimate.se < 1e-5


@pytest.mark.parametrize("scale", [1.0, 2.5])
def test_few_and_many_counts_together_equal_the_whole_sum(scale: float) -> None:
    """Rates on both sides of where the sum passes into the integral."""
    experiment = Experiment.from_spec(
        stated({"r": {"dist": "lognormal", "loc": 5, "scale": scale}}, family="poisson", rate="r")
    )
    z = np.linspace(-8, 8, 641)
    w = stats.norm.pdf(z) / stats.norm.pdf(z).sum()
    keep = w > 1e-12
    rate, w = np.exp(5 + scale * z[keep]), w[keep] / w[keep].sum()
    marginal, given = 0.0, 0.0
    total = 0.0
    top = int(rate[-1] + 10 * rate[-1] ** 0.5)
    edges = list(range(0, min(top, 60_000), 2000)) if scale < 2 else []
    if not edges:  # too many to sum: the limits of what can be
        found = experiment.eig([{"x": 1}])[0]
        assert (found.method, found.eig > 1) == ("quadrature", True)
        assert np.isfinite(found.se)
        return
    for first in edges:
        y = np.arange(first, first + 2000)[:, None]
        log_p = stats.poisson.logpmf(y, rate)
        p = np.exp(log_p)
        bar = p @ w
        marginal += special.entr(bar).sum()
        given += (special.entr(p).sum(0) @ w).sum()
        total += bar.sum()
    assert total == pytest.approx(1, abs=1e-9)
    found = experiment.eig([{"x": 1}])[0]
    assert found.method == "quadrature"
    assert found.eig == pytest.approx(marginal - given, abs=1e-5)


def test_a_beta_outcome_whose_mean_reaches_0_and_1_has_a_finite_eig() -> None:
    """A mean that is uniform: the density of logit y has tails like 1 / c², over fifteen powers of ten."""
    experiment = Experiment.from_spec(
        stated({"m": {"dist": "beta", "a": 1, "b": 1}}, family="beta", mean="m", concentration="3*x")
    )
    mean = np.concatenate([np.logspace(-9, -3, 4000, endpoint=False), np.linspace(1e-3, 0.5, 4001)])
    share = np.gradient(mean)
    share /= share.sum()
    s = np.linspace(-25, 25, 4001)  # c = sinh s: the quadrature of another's
    c, jacobian = np.sinh(s), np.cosh(s) * (s[1] - s[0])
    a, b = 3 * mean, 3 * (1 - mean)
    up, down = -np.logaddexp(0, -c), -np.logaddexp(0, c)
    bar, given = np.zeros_like(c), 0.0
    for ai, bi, wi in zip(a, b, share, strict=True):
        log_p = ai * up + bi * down - special.betaln(ai, bi)
        p = np.exp(log_p)
        bar += wi * (p + p[::-1]) / 2  # m and 1 − m
        given -= wi * float((p * log_p * jacobian).sum())
    expected = float((special.entr(bar) * jacobian).sum()) - given
    found = experiment.eig([{"x": 1}])[0]
    assert found.eig == pytest.approx(expected, abs=3e-3)
    assert experiment.propose()[0].design == {"x": 5}


@pytest.mark.parametrize(
    "spec",
    [
        stated({"m": {"dist": "beta", "a": 1, "b": 1}}, family="beta", mean="m", concentration=0.01),
        stated(
            {"m": {"dist": "beta", "a": 1, "b": 1}, "c": {"dist": "lognormal", "loc": 1, "scale": 4}},
            family="beta",
            mean="m",
            concentration="c",
        ),
    ],
    ids=["hollow", "wide"],
)
def test_extreme_shapes_give_finite_estimates(spec: dict[str, Any]) -> None:
    (proposal,) = Experiment.from_spec(spec).propose()
    assert np.isfinite(proposal.eig)
    assert proposal.se is None or np.isfinite(proposal.se)


@pytest.mark.parametrize(
    ("outcome", "pointer"),
    [
        ({"family": "poisson", "rate": "r * 1e300"}, "/outcome/y/rate"),
        ({"family": "poisson", "log_rate": "600 + r"}, "/outcome/y/log_rate"),
        ({"family": "normal", "mean": "r * x * r", "sd": 1e-300}, "/outcome/y/sd"),
        ({"family": "normal", "mean": "r", "sd": 1e-300}, "/outcome/y/sd"),
    ],
)
def test_numbers_that_cannot_be_computed_with_are_refused_when_stated(outcome: dict[str, Any], pointer: str) -> None:
    spec = {
        "parameters": {"r": {"dist": "lognormal", "loc": 0, "scale": 0.1}},
        "designs": X,
        "outcome": {"y": outcome},
    }
    with pytest.raises(InvalidSpec) as refusal:
        Experiment.from_spec(spec)
    assert refusal.value.pointer == pointer


def test_a_design_without_a_finite_estimate_is_never_proposed(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = {
        "parameters": {"a": {"dist": "uniform", "low": 0, "high": 1}},
        "designs": {"x": {"type": "list", "values": [0, 1, 2]}},
        "outcome": {"y": {"family": "bernoulli", "logit": "a"}},
        "utility": "where(x == 1, y * 1e308 * 1e308 - 1e308 * 1e308, x)",
    }
    from bensemble_core.design import read_spec

    experiment = Experiment(spec=read_spec(spec))
    assert experiment.propose()[0].design == {"x": 2}
    hopeless = Experiment(spec=read_spec({**spec, "utility": "y * 1e308 * 1e308 - 1e308 * 1e308"}))
    with pytest.raises(NotFinite, match="narrow the prior"):
        hopeless.propose()


@pytest.mark.parametrize(("low", "high"), [(1e3, 1e6), (1e3, 1e9), (1e3, 1e12), (1e3, 1e15), (1e8, 1e15)])
def test_rates_over_many_decades_have_an_honest_error_or_none(low: float, high: float) -> None:
    """2√y is normal with sd 1: EIG is the entropy of 2√rate less that of the noise, but for the ends of the range."""
    spec = stated({"r": {"dist": "loguniform", "low": low, "high": high}}, family="poisson", rate="r")
    (found,) = Experiment.from_spec(spec).eig([{"x": 1}])
    middle = 0.5 * np.log(low * high)
    exact = np.log(np.log(high / low)) + 0.5 * middle - 0.5 * np.log(2 * np.pi * np.e)
    if high / low > 1e4:
        assert (found.method, found.se) == ("coarse_grid", None)
    else:
        assert found.eig == pytest.approx(exact, abs=3 * found.se + 0.2 / np.sqrt(low))


@pytest.mark.parametrize("scale", [0.01, 0.1])
def test_a_beta_outcome_of_concentration_1e9_is_exact(scale: float) -> None:
    """logit y is normal with variance 1 / (n m (1 − m)), far below the prior's."""
    spec = stated(
        {"t": {"dist": "normal", "loc": 0, "scale": scale}}, family="beta", mean="sigmoid(t * x)", concentration=1e9
    )
    (found,) = Experiment.from_spec(spec).eig([{"x": 1}])
    z, w = np.polynomial.hermite_e.hermegauss(60)
    m = special.expit(scale * z)
    narrower = 1 / (1e9 * m * (1 - m) * scale**2)
    exact = w @ (0.5 * (narrower - np.log(narrower))) / w.sum()
    assert found.eig == pytest.approx(exact, abs=1e-6)
    assert found.se < 0.02  # two grids that are too coarse differ by that much
