"""EIG beside independent quadratures, closed forms, bounds and its own symmetries."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats

from bensemble_core.design import Experiment
from bensemble_core.design.belief.infer import points_belief
from bensemble_core.design.belief.memory import Memory
from bensemble_core.design.belief.points import grid, home
from bensemble_core.design.information import tables
from bensemble_core.design.information.bounds import bounds
from tests.core.design.specs import DIGIT_SPAN, LINEAR, changed

NORMAL_PRIOR = {"theta": {"dist": "normal", "loc": 0.3, "scale": 0.8}}


def sigmoid(x: float) -> float:
    return float(1 / (1 + math.exp(-x)))


def discrete_oracle(pmf: Callable[[float], Any]) -> float:
    """I(y; θ) for θ ~ N(0.3, 0.8²): marginal probabilities and the mean entropy by scipy's adaptive quadrature."""

    def terms(z: float) -> Any:
        p = np.asarray(pmf(0.3 + 0.8 * z), dtype=np.float64)
        return np.append(p, stats.entropy(p)) * math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)

    found, _ = integrate.quad_vec(terms, -8.5, 8.5, epsabs=1e-11, epsrel=1e-11)
    return float(stats.entropy(found[:-1])) - float(found[-1])


def continuous_oracle(
    density: Callable[[Any, Any], Any], entropy: Callable[[Any], Any], low: float, high: float
) -> float:
    """The same for a continuous outcome: a fine trapezoid rule over θ inside an adaptive quadrature over y."""
    z = np.linspace(-8, 8, 1601)
    w = np.exp(-0.5 * z * z)
    theta, w = 0.3 + 0.8 * z, w / w.sum()

    def term(y: float) -> float:
        p = float(w @ density(y, theta))
        return -p * math.log(p) if p > 0 else 0.0

    total, _ = integrate.quad_vec(
        term, low, high, epsabs=1e-9, epsrel=1e-9, limit=20_000, points=np.linspace(low, high, 9)
    )
    return float(total - w @ np.broadcast_to(entropy(theta), theta.shape))


def beta_oracle(concentration: float) -> float:
    """For mean sigmoid(θ), by trapezoid rules in logit y and in θ: all entropies are of logit y."""
    z = np.linspace(-8, 8, 201)
    w = np.exp(-0.5 * z * z) / np.exp(-0.5 * z * z).sum()
    a, b = concentration / (1 + np.exp(-0.3 - 0.8 * z)), concentration / (1 + np.exp(0.3 + 0.8 * z))
    c = np.linspace(-1200, 300, 60_001)[:, None]
    p = np.exp(a * -np.logaddexp(0, -c) + b * -np.logaddexp(0, c) - special.betaln(a, b))  # [c, θ]
    marginal = p @ w
    step = 1500 / 60_000
    return float(step * (special.entr(marginal).sum() - special.entr(p).sum(0) @ w))


def counts_pmf(distribution: Any, n: int) -> Any:
    return distribution.pmf(np.arange(n))


def ordinal_pmf(theta: float) -> list[float]:
    edges = [0, *(sigmoid(c - 1.5 * theta) for c in (-1, 0.5, 2)), 1]
    return [b - a for a, b in itertools.pairwise(edges)]


def softmax(*logits: float) -> list[float]:
    e = [math.exp(x) for x in logits]
    return [x / sum(e) for x in e]


DISCRETE: dict[str, tuple[dict[str, Any], Callable[[float], Any]]] = {
    "bernoulli logit": (
        {"family": "bernoulli", "logit": "2 * theta - x"},
        lambda t: [1 - sigmoid(2 * t - 1), sigmoid(2 * t - 1)],
    ),
    "bernoulli prob": (
        {"family": "bernoulli", "prob": "0.1 + 0.85 * ncdf(theta * x)"},
        lambda t: [0.9 - 0.85 * stats.norm.cdf(t), 0.1 + 0.85 * stats.norm.cdf(t)],
    ),
    "binomial": (
        {"family": "binomial", "n": "4 + x", "logit": "theta"},
        lambda t: counts_pmf(stats.binom(5, sigmoid(t)), 6),
    ),
    "categorical logits": (
        {"family": "categorical", "logits": ["0", "theta", "2 * theta - x"]},
        lambda t: softmax(0, t, 2 * t - 1),
    ),
    "categorical probs": (
        {"family": "categorical", "probs": ["sigmoid(theta) / 2", "0.5", "0.5 - sigmoid(theta) / 2"]},
        lambda t: [sigmoid(t) / 2, 0.5, 0.5 - sigmoid(t) / 2],
    ),
    "ordinal": ({"family": "ordinal", "eta": "1.5 * theta * x", "cuts": [-1, 0.5, 2]}, ordinal_pmf),
    "poisson rate": (
        {"family": "poisson", "rate": "exp(theta) * x"},
        lambda t: counts_pmf(stats.poisson(math.exp(t)), 900),
    ),
    "poisson log_rate": (
        {"family": "poisson", "log_rate": "0.5 * theta + x"},
        lambda t: counts_pmf(stats.poisson(math.exp(0.5 * t + 1)), 400),
    ),
    "negative_binomial": (
        {"family": "negative_binomial", "mean": "exp(0.5 * theta + x)", "dispersion": 0.4},
        lambda t: counts_pmf(stats.nbinom(2.5, 2.5 / (2.5 + math.exp(0.5 * t + 1))), 1500),
    ),
}

CONTINUOUS: dict[str, tuple[dict[str, Any], Callable[[], float]]] = {
    "normal": (
        {"family": "normal", "mean": "exp(theta) * x", "sd": 0.7},
        lambda: continuous_oracle(
            lambda y, t: np.exp(-0.5 * ((y - np.exp(t)) / 0.7) ** 2) / 0.7 / math.sqrt(2 * math.pi),
            lambda t: stats.norm(0, 0.7).entropy() + 0 * t,
            -6,
            200,
        ),
    ),
    "normal with noise that depends on theta": (
        {"family": "normal", "mean": "theta * x", "sd": "exp(0.5 * theta)"},
        lambda: continuous_oracle(
            lambda y, t: stats.norm.pdf(y, t, np.exp(0.5 * t)),
            lambda t: 0.5 * math.log(2 * math.pi * math.e) + 0.5 * t,
            -60,
            160,
        ),
    ),
    "lognormal": (
        {"family": "lognormal", "mean": "theta * x", "sd": 0.5},
        lambda: 0.5 * math.log1p(0.64 / 0.25),  # the logarithm is linear-Gaussian
    ),
    "student_t": (
        {"family": "student_t", "df": 3, "mean": "theta * x", "sd": 0.5},
        lambda: continuous_oracle(
            lambda y, t: stats.t.pdf(y, 3, t, 0.5), lambda t: stats.t(3, 0, 0.5).entropy() + 0 * t, -4000, 4000
        ),
    ),
    "beta": (
        {"family": "beta", "mean": "sigmoid(theta * x)", "concentration": 12},
        lambda: beta_oracle(12),
    ),
    "exponential": (
        {"family": "exponential", "rate": "exp(theta) * x"},
        lambda: continuous_oracle(lambda y, t: np.exp(t) * np.exp(-np.exp(t) * y), lambda t: 1 - t, 0, 400),
    ),
}


def one_design(outcome: dict[str, Any], **parts: Any) -> Experiment:
    return Experiment.from_spec(
        {
            "parameters": NORMAL_PRIOR,
            "designs": {"x": {"type": "list", "values": [1]}},
            "outcome": {"y": outcome},
            **parts,
        }
    )


@pytest.mark.parametrize("case", DISCRETE)
def test_enumeration_equals_an_independent_quadrature(case: str) -> None:
    outcome, pmf = DISCRETE[case]
    (found,) = one_design(outcome).eig()
    assert found.method == "enumeration"
    assert found.eig == pytest.approx(discrete_oracle(pmf), abs=1e-8)
    assert found.se < 1e-7


@pytest.mark.parametrize("case", CONTINUOUS)
def test_quadrature_over_y_equals_an_independent_quadrature(case: str) -> None:
    outcome, oracle = CONTINUOUS[case]
    (found,) = one_design(outcome).eig()
    assert found.method == "quadrature"
    assert found.eig == pytest.approx(oracle(), abs=1e-5)
    assert found.se < 1e-4


@pytest.mark.parametrize("x", [0.5, 3.0, 50.0, 400.0])
def test_quadrature_on_ever_finer_grids_reaches_the_closed_form(x: float) -> None:
    """The mean is linear, but not visibly: the closed form is the oracle, also where noise is far below the prior."""
    spec = changed(LINEAR, designs={"x": {"type": "list", "values": [x]}})
    hidden = changed(spec, outcome={"y": {"family": "normal", "mean": "w * x + 0 * exp(w)", "sd": 1}})
    (exact,) = Experiment.from_spec(spec).eig()
    (found,) = Experiment.from_spec(hidden).eig()
    assert (exact.method, found.method) == ("linear_gaussian", "quadrature")
    assert found.eig == pytest.approx(exact.eig, abs=1e-5)
    assert abs(found.eig - exact.eig) <= found.se + 1e-9


def test_cells_go_on_where_grids_end() -> None:
    """Three parameters and noise far below the prior: no grid is fine enough."""
    spec = {
        "parameters": {name: {"dist": "normal", "loc": 0, "scale": 1} for name in "abc"},
        "designs": {"x": {"type": "list", "values": [30]}},
        "outcome": {"y": {"family": "normal", "mean": "(a + b + c) * x", "sd": 1}},
    }
    hidden = {**spec, "outcome": {"y": {"family": "normal", "mean": "(a + b + c) * x + 0 * exp(a)", "sd": 1}}}
    (exact,), (found,) = Experiment.from_spec(spec).eig(), Experiment.from_spec(hidden).eig()
    assert exact.eig == pytest.approx(0.5 * math.log1p(3 * 900))
    assert found.method == "cells"
    assert found.eig == pytest.approx(exact.eig, abs=1e-4)
    assert abs(found.eig - exact.eig) <= 3 * found.se


def peaks_oracle(sd: float, n: int, square: float, plain: float) -> float:
    """After n outcomes 2 of N(θ², sd²): I(y; θ) of y ~ N(square · θ² + plain · θ, sd²), by fine sums over θ and y."""
    width = 12 * sd / math.sqrt(n) / math.sqrt(8)
    theta = np.concatenate([s * np.linspace(math.sqrt(2) - width, math.sqrt(2) + width, 1201) for s in (-1, 1)])
    log_w = -0.5 * (theta - 0.1) ** 2 - 0.5 * n * ((2 - theta**2) / sd) ** 2
    w = np.exp(log_w - log_w.max())
    mean = square * theta**2 + plain * theta
    parts = [(m.min() - 9 * sd, m.max() + 9 * sd) for m in np.split(mean, 2)]
    if max(low for low, _ in parts) < min(high for _, high in parts):
        parts = [(min(low for low, _ in parts), max(high for _, high in parts))]
    total = 0.0
    for low, high in parts:
        y = np.linspace(low, high, 3001)
        p = stats.norm.pdf(y[:, None], mean, sd) @ (w / w.sum())
        total += float(special.entr(p).sum() * (y[1] - y[0]))
    return total - 0.5 * math.log(2 * math.pi * math.e * sd * sd)


@pytest.mark.parametrize(("sd", "n"), [(0.2, 1), (0.1, 1), (0.05, 1), (0.05, 10), (0.01, 3)])
def test_outcomes_are_resolved_after_a_posterior_of_two_narrow_peaks(sd: float, n: int) -> None:
    """The grid spans both peaks and all between: its outcomes lie mostly where nothing can come out any more."""
    designs = [{"x": 0.1, "z": 0.0}, {"x": 1.0, "z": 0.0}, {"x": 3.0, "z": 0.0}, {"x": 0.0, "z": 1.0}]
    spec = {
        "parameters": {"th": {"dist": "normal", "loc": 0.1, "scale": 1}},
        "designs": designs,
        "outcome": {"y": {"family": "normal", "mean": "th * th * x + th * z", "sd": sd}},
    }
    history = [({"x": 1.0, "z": 0.0}, {"y": 2.0})] * n
    experiment = Experiment.from_spec(spec)
    for found, design in zip(experiment.eig(None, history), designs, strict=True):
        assert found.eig == pytest.approx(peaks_oracle(sd, n, design["x"], design["z"]), abs=1e-6)
        assert found.se < 1e-6
    pick = experiment.propose(history)[0]
    assert (pick.design, pick.reason) == (designs[2] if n == 1 else designs[3], "best")


def test_a_batch_is_resolved_after_a_posterior_of_two_narrow_peaks() -> None:
    """Near either peak θ² is normal and θ² · x linear in it: n more outcomes tell ½ log(1 + n) of it."""
    spec = {
        "parameters": {"th": {"dist": "normal", "loc": 0.1, "scale": 1}},
        "designs": {"x": {"type": "list", "values": [0.1, 1.0]}},
        "outcome": {"y": {"family": "normal", "mean": "th * th * x", "sd": 0.02}},
    }
    picks = Experiment.from_spec(spec).propose([({"x": 1.0}, {"y": 2.0})], 2)
    assert [pick.design["x"] for pick in picks] == [1.0, 1.0]
    assert picks[1].joint_eig == pytest.approx(0.5 * math.log(3), abs=2e-3)


def test_a_sharp_likelihood_is_resolved() -> None:
    """sigmoid(200 (θ − ξ)) is nearly a step: EIG tends to ln 2 less the width of the step."""
    spec = changed(DIGIT_SPAN, let={"z": "200 * (theta - xi)"})
    (found,) = Experiment.from_spec(spec).eig([{"xi": 7}])

    def entropy(z: float) -> float:
        p = 1 / (1 + math.exp(-400 * z)) if z > -1.5 else 0.0
        return float(stats.entropy([p, 1 - p]))

    blur = integrate.quad(lambda z: stats.norm.pdf(z) * entropy(z), -0.2, 0.2, points=[0], limit=1000, epsabs=1e-12)[0]
    assert found.eig == pytest.approx(math.log(2) - blur, abs=1e-7)


def test_linear_gaussian_with_several_outcomes_and_a_correlated_prior() -> None:
    covariance = np.array([[1.0, 0.5], [0.5, 2.0]])
    spec = {
        "parameters": {
            "w": {"dist": "multivariate_normal", "names": ["a", "b"], "mean": [1, 2], "covariance": covariance.tolist()}
        },
        "designs": {"x": {"type": "list", "values": [0.5, 2]}},
        "outcome": {
            "u": {"family": "normal", "mean": "a + b * x", "sd": 0.5},
            "v": {"family": "normal", "mean": "3 * a - x", "sd": "1 + x"},
        },
    }
    experiment = Experiment.from_spec(spec)
    for x, found in zip((0.5, 2.0), experiment.eig(), strict=True):
        slopes = np.array([[1 / 0.5, x / 0.5], [3 / (1 + x), 0]])
        expected = 0.5 * np.linalg.slogdet(np.eye(2) + slopes @ covariance @ slopes.T)[1]
        assert found.eig == pytest.approx(float(expected), abs=1e-12)
    only_b = Experiment.from_spec({**spec, "targets": ["b"]})
    slopes = np.array([[1 / 0.5, 2 / 0.5], [3 / 3, 0]])
    given_b = 1 - 0.5**2 / 2  # variance of a once b is known
    expected = 0.5 * np.linalg.slogdet(np.eye(2) + slopes @ covariance @ slopes.T)[1]
    expected -= 0.5 * np.linalg.slogdet(np.eye(2) + given_b * np.outer(slopes[:, 0], slopes[:, 0]))[1]
    assert only_b.eig([{"x": 2}])[0].eig == pytest.approx(float(expected), abs=1e-12)


def test_nuisances_are_integrated_out_on_the_grid() -> None:
    """The same linear model hidden from the closed form, targets alone; and after observations, on a moved grid."""
    spec = {
        "parameters": {name: {"dist": "normal", "loc": 0, "scale": 1} for name in "ab"},
        "designs": {"x": {"type": "list", "values": [0.5, 2]}},
        "outcome": {"y": {"family": "normal", "mean": "a + b * x", "sd": 1}},
        "targets": ["b"],
    }
    hidden = {**spec, "outcome": {"y": {"family": "normal", "mean": "a + b * x + 0 * exp(a)", "sd": 1}}}
    exact, found = Experiment.from_spec(spec), Experiment.from_spec(hidden)
    observations = [({"x": x}, {"y": y}) for x, y in [(2, 1.0), (0.5, 0.2), (2, 1.4), (0.5, 0.1)] * 5]
    for history in ((), observations):
        for one, other in zip(exact.eig(observations=history), found.eig(observations=history), strict=True):
            assert other.eig == pytest.approx(one.eig, abs=1e-7)


def test_a_nuisance_lowers_the_information_and_all_parameters_together_have_the_most() -> None:
    spec = {
        "parameters": {
            "t": {"dist": "normal", "loc": 0, "scale": 1},
            "s": {"dist": "lognormal", "loc": 0, "scale": 0.5},
        },
        "designs": {"x": {"type": "float", "low": -2, "high": 2}},
        "outcome": {"y": {"family": "bernoulli", "logit": "s * (t - x)"}},
    }
    design = [{"x": 0.5}]
    whole = Experiment.from_spec(spec).eig(design)[0].eig
    t = Experiment.from_spec({**spec, "targets": ["t"]}).eig(design)[0].eig
    s = Experiment.from_spec({**spec, "targets": ["s"]}).eig(design)[0].eig
    assert 0 < s < t < whole
    # by hand on a fine grid in both scores: p(y) and its entropy, and p(y | t), p(y | s) by averages along an axis
    z = np.linspace(-8, 8, 801)
    w = np.exp(-0.5 * z * z) / np.exp(-0.5 * z * z).sum()
    p = 1 / (1 + np.exp(-np.exp(0.5 * z) * (z[:, None] - 0.5)))  # [t, s]

    def entropy(q: Any) -> Any:
        return stats.entropy(np.stack([q, 1 - q]))

    top = float(entropy(w @ p @ w))
    assert whole == pytest.approx(top - float(w @ entropy(p) @ w), abs=1e-6)
    assert t == pytest.approx(top - float(w @ entropy(p @ w)), abs=1e-6)
    assert s == pytest.approx(top - float(w @ entropy(w @ p)), abs=1e-6)


def test_listed_and_continuous_parameters_together() -> None:
    """A mixture over two known slopes: enumerated by hand."""
    spec = changed(
        DIGIT_SPAN,
        parameters={
            "theta": {"dist": "normal", "loc": 7, "scale": 2},
            "s": {"dist": "categorical", "values": [0.5, 2], "probs": [0.25, 0.75]},
        },
        let={"z": "s * (theta - xi)"},
        targets=["theta", "s"],
    )
    (found,) = Experiment.from_spec(spec).eig([{"xi": 8}])
    x, w = np.polynomial.hermite_e.hermegauss(200)
    p = 1 / (1 + np.exp(-np.array([[0.5], [2]]) * (7 + 2 * x - 8)))
    weights = np.array([[0.25], [0.75]]) * (w / w.sum())
    mean = float((weights * p).sum())
    expected = stats.entropy([mean, 1 - mean]) - float((weights * stats.entropy(np.stack([p, 1 - p]))).sum())
    assert found.eig == pytest.approx(float(expected), abs=1e-8)


def test_several_discrete_outcomes_are_a_product() -> None:
    """Two answers at once teach what a batch of two single answers teaches."""
    two = changed(DIGIT_SPAN, outcome={name: {"family": "bernoulli", "logit": "z"} for name in ("u", "v")})
    assert Experiment.from_spec(two).eig([{"xi": 7}])[0].eig == pytest.approx(0.3823915169, abs=1e-9)


def test_a_discrete_and_a_continuous_outcome_together() -> None:
    """The continuous one is pure noise: it adds nothing."""
    spec = changed(
        DIGIT_SPAN,
        outcome={"y": {"family": "bernoulli", "logit": "z"}, "t": {"family": "normal", "mean": "xi", "sd": 2}},
    )
    (found,) = Experiment.from_spec(spec).eig([{"xi": 7}])
    assert found.method == "quadrature"
    assert found.eig == pytest.approx(0.231138302111, abs=1e-7)


def test_joint_eig_by_brute_force_of_three_designs() -> None:
    experiment = Experiment.from_spec(DIGIT_SPAN)
    x, w = np.polynomial.hermite_e.hermegauss(120)
    theta, w = 7 + 2 * x, w / w.sum()
    p = [1 / (1 + np.exp(-(theta - xi))) for xi in (4, 7, 9)]
    marginal, conditional = [], 0.0
    for ys in itertools.product((0, 1), repeat=3):
        likelihood = np.prod([q if y else 1 - q for y, q in zip(ys, p, strict=True)], axis=0)
        marginal.append(float(w @ likelihood))
    conditional = sum(float(w @ stats.entropy(np.stack([q, 1 - q]))) for q in p)
    expected = float(stats.entropy(marginal)) - conditional
    found = experiment.joint_eig([{"xi": 4}, {"xi": 7}, {"xi": 9}])
    assert found.eig == pytest.approx(expected, abs=1e-8)


def test_joint_eig_of_sampled_batches_is_within_its_error_of_the_enumerated_one() -> None:
    """Twelve trials have 4,096 joint outcomes, of which 256 are drawn; the count is sufficient."""
    single = Experiment.from_spec(DIGIT_SPAN)
    tripled = Experiment.from_spec(changed(DIGIT_SPAN, outcome={"y": {"family": "binomial", "n": 12, "logit": "z"}}))
    sampled = single.joint_eig([{"xi": 7}] * 12)
    (exact,) = tripled.eig([{"xi": 7}])  # the count is sufficient
    assert sampled.se > 0
    assert abs(sampled.eig - exact.eig) < 3 * sampled.se + 1e-3


def test_linear_gaussian_batches_are_log_determinants() -> None:
    experiment = Experiment.from_spec(LINEAR)
    assert experiment.joint_eig([{"x": 0.5}, {"x": 2}, {"x": 2}]).eig == pytest.approx(
        0.5 * math.log(1 + 0.25 + 8), abs=1e-12
    )


def test_eig_is_the_mean_of_what_outcomes_teach_after_observations() -> None:
    experiment = Experiment.from_spec(DIGIT_SPAN)
    history: list[Any] = [({"xi": 7}, {"y": 1}), ({"xi": 9}, {"y": 1}), ({"xi": 10}, {"y": 0})]
    (expected,) = experiment.eig([{"xi": 9}], history)
    drop = kl = 0.0
    for y in (0, 1):
        gained = experiment.information([*history, ({"xi": 9}, {"y": y})])
        drop += math.exp(-gained.surprise) * gained.entropy_drop
        kl += math.exp(-gained.surprise) * gained.kl
    assert (drop, kl) == pytest.approx((expected.eig, expected.eig), abs=1e-9)


def test_information_of_a_linear_gaussian_outcome_in_closed_form() -> None:
    experiment = Experiment.from_spec(LINEAR)
    gained = experiment.information([({"x": 2}, {"y": 1.0})])
    mean, variance = 2 / 5, 1 / 5
    assert gained.entropy_drop == pytest.approx(0.5 * math.log(5), abs=1e-12)
    assert gained.kl == pytest.approx(0.5 * (variance + mean**2 - 1 - math.log(variance)), abs=1e-12)
    assert gained.surprise == pytest.approx(-stats.norm.logpdf(1, 0, math.sqrt(5)), abs=1e-12)


def test_pce_is_below_and_nmc_above_the_exact_value() -> None:
    for spec, rows in ((DIGIT_SPAN, [[5.0], [7.0]]), (LINEAR, [[1.0], [2.0]])):
        experiment = Experiment.from_spec(spec)
        model = experiment.spec.model
        designs = torch.tensor(rows, dtype=torch.float64)
        exact = [e.eig for e in experiment.eig([model.space.decode(row) for row in rows])]
        belief = points_belief(model, (), Memory())
        for n_inner in (16, 256):
            found = bounds(model, belief, designs, n_outer=2000, n_inner=n_inner, seed=3)
            for j, value in enumerate(exact):
                assert float(found.lower[j]) <= value + 3 * float(found.lower_se[j])
                assert float(found.upper[j]) >= value - 3 * float(found.upper_se[j])
        assert float((found.upper - found.lower).max()) < 0.05


def test_two_continuous_outcomes_are_bounded_on_either_side_of_the_closed_form() -> None:
    spec = {
        "parameters": {name: {"dist": "normal", "loc": 0, "scale": 1} for name in "ab"},
        "designs": {"x": {"type": "list", "values": [1, 2]}},
        "outcome": {
            "u": {"family": "student_t", "df": 1e6, "mean": "a * x", "sd": 1},  # as good as normal, and not by name
            "v": {"family": "student_t", "df": 1e6, "mean": "b + a", "sd": 1},
        },
    }
    for x, found in zip((1, 2), Experiment.from_spec(spec).eig(), strict=True):
        slopes = np.array([[x, 0], [1, 1]])
        exact = 0.5 * np.linalg.slogdet(np.eye(2) + slopes @ slopes.T)[1]
        assert found.method == "bounds"
        assert found.lower is not None
        assert found.upper is not None
        assert found.lower - 3 * found.se < exact < found.upper + 3 * found.se
        assert abs(found.eig - exact) < 3 * found.se
        assert found.se < 0.1
    nuisance = Experiment.from_spec({**spec, "targets": ["b"]})
    for x, found in zip((1, 2), nuisance.eig(), strict=True):
        slopes = np.array([[x, 0], [1, 1]])
        exact = 0.5 * np.linalg.slogdet(np.eye(2) + slopes @ slopes.T)[1]
        exact -= 0.5 * np.linalg.slogdet(np.eye(2) + np.outer(slopes[:, 0], slopes[:, 0]))[1]
        assert abs(found.eig - exact) < 3 * found.se + 0.02


def test_particles_agree_with_the_grid_within_their_error() -> None:
    """Four parameters, of which one does nothing: the grid over the other three is the oracle."""
    used = {
        "t": {"dist": "normal", "loc": 0, "scale": 1},
        "s": {"dist": "lognormal", "loc": 0, "scale": 0.3},
        "lapse": {"dist": "beta", "a": 2, "b": 20},
    }
    spec = {
        "parameters": used,
        "designs": {"x": {"type": "list", "values": [-1, 0, 2]}},
        "outcome": {"y": {"family": "bernoulli", "prob": "lapse / 2 + (1 - lapse) * sigmoid(3 * s * (t - x))"}},
    }
    idle = {**spec, "parameters": {**used, "idle": {"dist": "normal", "loc": 0, "scale": 1}}}
    grid_, particles = Experiment.from_spec(spec), Experiment.from_spec(idle)
    assert particles.posterior().method == "particles"
    history = [({"x": x}, {"y": y}) for x, y in [(0, 1), (2, 0), (0, 1), (-1, 1), (2, 0), (0, 0)]]
    for observations in ((), history):
        for one, other in zip(
            grid_.eig(observations=observations), particles.eig(observations=observations), strict=True
        ):
            assert other.eig == pytest.approx(one.eig, abs=5 * other.se + 1e-3)
            assert other.se < 5e-3


def test_cost_divides_and_utility_replaces_the_score() -> None:
    costly = Experiment.from_spec(changed(DIGIT_SPAN, cost="xi"))
    found = costly.eig([{"xi": 3}, {"xi": 7}])
    assert [e.cost for e in found] == [3, 7]
    assert found[1].score == pytest.approx(0.231138302111 / 7, abs=1e-10)
    worth = Experiment.from_spec(changed(DIGIT_SPAN, utility="where(y == 1, xi * theta, 0 - xi)"))
    (estimate,) = worth.eig([{"xi": 7}])
    x, w = np.polynomial.hermite_e.hermegauss(120)
    theta, w = 7 + 2 * x, w / w.sum()
    p = 1 / (1 + np.exp(-(theta - 7)))
    expected = float(w @ (p * 7 * theta - (1 - p) * 7))
    assert estimate.utility == pytest.approx(expected, abs=1e-8)
    assert estimate.score == estimate.utility
    assert estimate.eig == pytest.approx(0.231138302111, abs=1e-9)


def test_utility_of_a_continuous_outcome_is_its_expectation() -> None:
    experiment = one_design({"family": "normal", "mean": "theta * x", "sd": 0.5}, utility="y * y")
    (found,) = experiment.eig()
    assert found.utility == pytest.approx(0.25 + 0.64 + 0.09, abs=1e-7)


def test_a_table_is_computed_once_and_blocks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = Experiment.from_spec(DIGIT_SPAN)
    model, memory = experiment.spec.model, Memory()
    points = grid(model.prior, home(1, 161, is_grid=True))
    weights = points.mass[:, None]
    (whole,) = tables.tables(model, points, model.space.all(), memory, weights)
    assert whole.n_designs == 15
    (again,) = tables.tables(model, points, model.space.all(), memory, weights)
    assert again is whole
    monkeypatch.setattr(tables, "CHUNK", 161 * 3 * 4)
    some = model.space.all().clone()
    parts = list(tables.tables(model, points, some, memory, weights))
    assert [part.n_designs for part in parts] == [4, 4, 4, 3]
    (kept,) = tables.tables(model, points, model.space.all(), Memory(), weights)
    ((_, rows),), ((_, others),) = whole.pieces(), kept.pieces()
    torch.testing.assert_close(rows, others, rtol=0, atol=0)


def test_a_table_too_large_to_keep_is_still_worked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "KEPT", 1000)
    monkeypatch.setattr(tables, "CHUNK", 4000)
    experiment = Experiment.from_spec(DIGIT_SPAN)
    assert [e.eig for e in experiment.eig()][4:7] == pytest.approx(
        [0.176599709500, 0.216066729865, 0.231138302111], abs=1e-9
    )
    found = experiment.eig([{"xi": 7}, {"xi": 5}])
    assert [e.eig for e in found] == pytest.approx([0.231138302111, 0.176599709500], abs=1e-9)
