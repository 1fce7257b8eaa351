"""Utilities of a continuous outcome that jump or bend, beside closed forms and scipy's quadrature."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import integrate, optimize, special, stats

from bensemble_core.design import Experiment
from bensemble_core.design.information.eig import Estimate

STANDARD = {"dist": "normal", "loc": 0, "scale": 1}


def found(outcome: dict[str, Any], utility: str, *names: str, **others: Any) -> Estimate:
    spec = {
        "parameters": dict.fromkeys(names or ("m",), STANDARD),
        "designs": {"x": {"type": "list", "values": [2.0]}},
        "outcome": {"y": outcome, **others},
        "utility": utility,
    }
    (estimate,) = Experiment.from_spec(spec).eig()
    return estimate


def averaged(f: Any) -> float:
    """E f(m) of a standard normal m, of something smooth."""
    z = np.linspace(-9, 9, 4001)
    w = np.exp(-0.5 * z * z)
    return float(w @ f(z) / w.sum())


def excess(sd: float) -> float:
    """E max(y − 1, 0) of y ~ N(0, sd²)."""
    return float(sd * stats.norm.pdf(1 / sd) - stats.norm.sf(1 / sd))


CASES: dict[str, tuple[dict[str, Any], str, float]] = {
    "step": ({"family": "normal", "mean": "m*x", "sd": 1}, "where(y > 1, 1, 0)", stats.norm.sf(1 / math.sqrt(5))),
    "step of a bent mean": (
        {"family": "normal", "mean": "tanh(m)*x", "sd": 0.3},
        "where(y > 1, 1, 0)",
        averaged(lambda z: stats.norm.sf((1 - 2 * np.tanh(z)) / 0.3)),
    ),
    "step at each point": (
        {"family": "normal", "mean": "tanh(m)", "sd": 0.3},
        "where(y > m*x/2, x, 0)",
        averaged(lambda z: 2 * stats.norm.sf((z - np.tanh(z)) / 0.3)),
    ),
    "exponential": (
        {"family": "exponential", "rate": "exp(m)"},
        "where(y > 1, 1, 0)",
        averaged(lambda z: np.exp(-np.exp(z))),
    ),
    "lognormal": (
        {"family": "lognormal", "mean": "m", "sd": 0.5},
        "where(y > 2, 1, 0)",
        stats.norm.sf(math.log(2) / math.sqrt(1.25)),
    ),
    "student": (
        {"family": "student_t", "df": 3, "mean": "m", "sd": 1},
        "where(y > 1, 1, 0)",
        averaged(lambda z: stats.t.sf(1 - z, 3)),
    ),
    "beta": (
        {"family": "beta", "mean": "sigmoid(m)", "concentration": 5},
        "where(y > 0.7 and y < 0.9, 1, 0)",
        averaged(
            lambda z: np.diff(special.betainc(5 * special.expit(z), 5 * special.expit(-z), [[0.7], [0.9]]), axis=0)[0]
        ),
    ),
    "max": ({"family": "normal", "mean": "m*x", "sd": 1}, "max(y - 1, 0)", excess(math.sqrt(5))),
    "clip": (
        {"family": "normal", "mean": "m*x", "sd": 1},
        "clip(y, -1, 1) ** 2",
        2 * stats.norm.sf(1 / math.sqrt(5))
        + integrate.quad(lambda y: y * y * stats.norm.pdf(y, scale=math.sqrt(5)), -1, 1, epsabs=1e-13)[0],
    ),
    "abs": ({"family": "normal", "mean": "tanh(m)*x", "sd": 0.3}, "abs(y - tanh(m)*x)", 0.3 * math.sqrt(2 / math.pi)),
    "band": (
        {"family": "normal", "mean": "m", "sd": 1},
        "where(abs(y - 0.3) < 0.001, 1, 0)",
        stats.norm.cdf(0.301, scale=math.sqrt(2)) - stats.norm.cdf(0.299, scale=math.sqrt(2)),
    ),
    "smooth": ({"family": "normal", "mean": "m*x", "sd": 1}, "y * m", 2.0),
    "heavy tail": ({"family": "student_t", "df": 3, "mean": "m", "sd": 1}, "y * y", 4.0),
}


# relative; of plain jumps 1e-3
ROUGH = {"max": 1e-5, "clip": 1e-5, "abs": 1e-5, "smooth": 1e-8, "band": 0.2}


@pytest.mark.parametrize("case", CASES)
def test_a_utility_that_jumps_or_bends_is_its_expectation(case: str) -> None:
    outcome, utility, truth = CASES[case]
    estimate = found(outcome, utility)
    assert abs((estimate.utility or 0.0) - truth) <= 4 * estimate.se + 1e-14
    assert estimate.utility == pytest.approx(truth, rel=ROUGH.get(case, 1e-3))
    assert estimate.se < 2 * ROUGH.get(case, 1e-3) * abs(truth)


@pytest.mark.parametrize("steepness", [20, 100, 1000])
def test_a_sharp_rise_is_within_its_error(steepness: int) -> None:
    estimate = found({"family": "normal", "mean": "m*x", "sd": 1}, f"sigmoid({steepness} * (y - 1))")
    truth = integrate.quad(
        lambda y: stats.norm.pdf(y, scale=math.sqrt(5)) * special.expit(steepness * (y - 1)),
        -20,
        20,
        points=[0.9, 1, 1.1],
        epsabs=1e-12,
        limit=500,
    )[0]
    assert abs((estimate.utility or 0.0) - truth) <= 3 * estimate.se
    assert estimate.se < (1e-7 if steepness < 50 else 1e-3)


def test_a_mean_that_does_not_exist_is_not_claimed() -> None:
    spec = {
        "parameters": {"m": STANDARD},
        "designs": {"x": {"type": "list", "values": [2.0]}},
        "outcome": {"y": {"family": "student_t", "df": 1, "mean": "m", "sd": 1}},
        "utility": "abs(y)",
    }
    (pick,) = Experiment.from_spec(spec).propose()
    assert pick.utility is not None
    assert pick.se > pick.utility


def test_a_utility_without_the_outcome_has_no_error_of_it() -> None:
    estimate = found({"family": "normal", "mean": "m*x", "sd": 0.001}, "m ** 2")
    assert estimate.utility == pytest.approx(1, abs=1e-12)
    assert estimate.se < 1e-8


def test_several_parameters_are_within_their_error() -> None:
    for n in (2, 4):
        names, total = "mklo"[:n], math.sqrt(n + 0.09)
        estimate = found({"family": "normal", "mean": "+".join(names), "sd": 0.3}, "max(y - 1, 0)", *names)
        assert abs((estimate.utility or 0.0) - excess(total)) <= 3 * estimate.se
        assert estimate.se < 1e-2


def test_a_discrete_outcome_beside_a_continuous_one() -> None:
    """U = k where y > k, with k of a binomial distribution that depends on the same parameter."""
    estimate = found(
        {"family": "normal", "mean": "m", "sd": 1},
        "where(y > k, k, 0)",
        k={"family": "binomial", "n": 3, "logit": "m"},
    )
    truth = averaged(
        lambda z: sum(k * stats.binom.pmf(k, 3, special.expit(z)) * stats.norm.sf(k - z) for k in range(4))
    )
    assert estimate.utility == pytest.approx(truth, rel=1e-3)
    assert abs((estimate.utility or 0.0) - truth) <= 4 * estimate.se


def test_two_continuous_outcomes_state_the_error_of_the_utility() -> None:
    normal = {"family": "normal", "mean": "m", "sd": 1}
    estimate = found(normal, "where(y > 1, 100, 0)", k=normal)
    assert estimate.method == "bounds"
    assert estimate.utility == pytest.approx(100 * stats.norm.sf(1 / math.sqrt(2)), abs=4 * estimate.se)
    assert 0.5 < estimate.se < 4


def test_a_jump_among_counts_too_many_to_sum_is_within_its_error() -> None:
    estimate = found({"family": "poisson", "log_rate": "9 + m"}, "where(y > 10000, 1, 0)")
    z = np.linspace(-8, 8, 40_001)
    w = np.exp(-0.5 * z * z)
    truth = float(w @ stats.poisson.sf(10_000, np.exp(9 + z)) / w.sum())
    assert abs((estimate.utility or 0.0) - truth) <= 3 * estimate.se
    assert estimate.se < 1e-3
    wide = found({"family": "negative_binomial", "mean": "exp(9 + m)", "dispersion": 0.5}, "max(y - 10000, 0)")
    mean = np.exp(9 + z)
    size, share = 2.0, 2 / (2 + mean)  # E max(y − c, 0) = E[y; y > c] − c P(y > c), and y p(y) ∝ p of size + 1
    truth = float(
        w @ (mean * stats.nbinom.sf(9_999, size + 1, share) - 10_000 * stats.nbinom.sf(10_000, size, share)) / w.sum()
    )
    assert abs((wide.utility or 0.0) - truth) <= 4 * wide.se
    assert wide.utility == pytest.approx(truth, rel=1e-3)


SPREADS = (1.0, 0.3, 0.05)


@pytest.mark.parametrize("n_parameters", [1, 2])
def test_stated_errors_cover_and_are_small_enough_to_choose(n_parameters: int) -> None:
    """Jumps, bends and both with thresholds that are designs, of y ~ N(θ x + …, sd²): closed forms at each design."""
    designs = [0.3, 0.7, 1.1, 1.5, 1.9]
    utilities: dict[str, Any] = {
        "where(y > x, x, 0)": lambda x, total: x * stats.norm.sf(x / total),
        "max(y - x, 0) + x / 3": lambda x, total: (
            total * stats.norm.pdf(x / total) - x * stats.norm.sf(x / total) + x / 3
        ),
        "0 - abs(y - x)": lambda x, total: (
            -total * math.sqrt(2 / math.pi) * math.exp(-0.5 * (x / total) ** 2) - x * math.erf(x / total / math.sqrt(2))
        ),
        "exp(y / 2) - x * x": lambda x, total: math.exp(total**2 / 8) - x * x,
    }
    off = []
    for sd in SPREADS:
        for utility, truth in utilities.items():
            spec = {
                "parameters": dict.fromkeys("mk"[:n_parameters], STANDARD),
                "designs": {"x": {"type": "list", "values": designs}},
                "outcome": {"y": {"family": "normal", "mean": "m * x" + " + k" * (n_parameters - 1), "sd": sd}},
                "utility": utility,
            }
            experiment = Experiment.from_spec(spec)
            truths = [truth(x, math.sqrt(x * x + n_parameters - 1 + sd * sd)) for x in designs]
            scale = max(map(abs, truths))
            for estimate, value in zip(experiment.eig(), truths, strict=True):
                off.append(abs((estimate.utility or 0.0) - value) > 4 * estimate.se + 1e-12 * scale)
                assert abs((estimate.utility or 0.0) - value) < 2e-3 * scale
                assert estimate.se < 1e-2 * scale
            (pick,) = experiment.propose()
            assert max(truths) - truths[designs.index(pick.design["x"])] <= max(2 * pick.se, 1e-9)
    assert sum(off) <= 0.02 * len(off)


@pytest.mark.parametrize("slope", [1, 3, 5, 7, 9])
def test_a_heavy_tail_of_the_outcome_states_an_error_that_covers(slope: float) -> None:
    """E exp(slope y) = exp(slope² / 2 · (1 + x²)), of which the nodes see a fiftieth at 9 noise sds."""
    estimate = found({"family": "normal", "mean": "m*x/4", "sd": 1}, f"exp({slope} * y)")
    truth = math.exp(0.5 * slope**2 * 1.25)
    assert abs((estimate.utility or 0.0) - truth) <= 4 * estimate.se
    if slope == 1:
        assert estimate.se < 1e-5 * truth


def test_what_was_observed_moves_the_utility() -> None:
    spec = {
        "parameters": {"m": STANDARD},
        "designs": {"x": {"type": "list", "values": [1.0]}},
        "outcome": {"y": {"family": "normal", "mean": "m*x", "sd": 1}},
        "utility": "where(y > 1, 1, 0)",
    }
    history = [({"x": 1.0}, {"y": 0.7}), ({"x": 1.0}, {"y": 1.9})]
    (pick,) = Experiment.from_spec(spec).propose(history)
    assert pick.utility == pytest.approx(stats.norm.sf((1 - 2.6 / 3) / math.sqrt(4 / 3)), rel=1e-3)


@pytest.mark.parametrize("sd", [0.3, 0.05])
def test_a_threshold_is_searched_where_it_is_best(sd: float) -> None:
    """A jump that moves with the design has no gradient at fixed outcomes."""
    spec = {
        "parameters": {"m": STANDARD},
        "designs": {"t": {"type": "float", "low": 0.5, "high": 1.5}},
        "outcome": {"y": {"family": "normal", "mean": "2 * tanh(m)", "sd": sd}},
        "utility": "where(y > t, t, 0)",
    }
    (pick,) = Experiment.from_spec(spec).propose()

    def worth(t: float) -> float:
        return t * averaged(lambda z: stats.norm.sf((t - 2 * np.tanh(z)) / sd))

    best = optimize.minimize_scalar(lambda t: -worth(t), bounds=(0.5, 1.5), method="bounded", options={"xatol": 1e-8})
    assert pick.utility == pytest.approx(worth(pick.design["t"]), abs=4 * pick.se)
    assert pick.se < 1e-3 * -best.fun
    assert worth(pick.design["t"]) > (1 - 2e-3) * -best.fun
