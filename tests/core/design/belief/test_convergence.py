"""Grids as fine as the posterior asks for, and an error that says when they are not."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import special

from bensemble_core.design import CATALOGUE, Experiment
from bensemble_core.design.belief.convergence import remaining
from bensemble_core.design.information import accuracy
from bensemble_core.design.information.eig import estimate

BIMODAL: dict[str, Any] = {
    "parameters": {"a": {"dist": "normal", "loc": 0, "scale": 1}},
    "designs": {"x": {"type": "integer", "low": 1, "high": 3}},
    "outcome": {"y": {"family": "normal", "mean": "a**2*x", "sd": 0.01}},
}
STEP: dict[str, Any] = {
    "parameters": {"a": {"dist": "normal", "loc": 0, "scale": 1}},
    "designs": {"x": {"type": "list", "values": [0.0, 0.55, 1.0]}},
    "outcome": {"y": {"family": "bernoulli", "prob": "where(a>x,0.95,0.1)"}},
}


def trapezoid(f: Any, n: int) -> float:
    x = np.linspace(-8, 8, n)
    return float(f(x).sum() * (x[1] - x[0]))


@pytest.mark.parametrize(
    ("f", "exact"),
    [
        (lambda x: np.exp(-0.5 * (x / 0.25) ** 2), 0.25 * math.sqrt(2 * math.pi)),
        (lambda x: np.exp(-0.5 * x * x) * (x > 0.3137), 0.376852 * math.sqrt(2 * math.pi)),
        (lambda x: np.exp(-np.abs(x - 0.1)), 2.0 - math.exp(-8.1) - math.exp(-7.9)),
    ],
    ids=["smooth", "step", "kink"],
)
@pytest.mark.parametrize("n", [65, 129, 257, 513])
def test_what_remains_is_no_more_than_it_is_said_to_be(f: Any, exact: float, n: int) -> None:
    fine, half, quarter = (np.array(trapezoid(f, (n - 1) // step + 1)) for step in (1, 2, 4))
    if exact == pytest.approx(0.376852 * math.sqrt(2 * math.pi)):  # more digits of Φ(−0.3137)
        exact = 0.5 * math.erfc(0.3137 / math.sqrt(2)) * math.sqrt(2 * math.pi)
    assert abs(float(fine) - exact) <= 3 * float(remaining(fine, half, quarter)) + 1e-13


@pytest.mark.parametrize("sd", [0.1, 0.01, 0.003])
def test_two_narrow_peaks_are_both_seen(sd: float) -> None:
    """p(y) = ∫ φ(a) N(y | a², sd²) da with a fine rule of its own; the peaks lie at ±√y."""
    experiment = Experiment.from_spec({**BIMODAL, "outcome": {"y": {"family": "normal", "mean": "a**2*x", "sd": sd}}})
    a = np.linspace(0.5, 1.5, 400_001)
    joint = np.exp(-0.5 * a * a - 0.5 * ((1.037 - a * a) / sd) ** 2) / (2 * math.pi * sd)
    total = 2 * float(joint.sum() * (a[1] - a[0]))
    belief = experiment.posterior([({"x": 1}, {"y": 1.037})])
    assert belief.log_evidence == pytest.approx(math.log(total), abs=1e-9)
    assert belief.sd["a"] == pytest.approx(
        math.sqrt(2 * float((joint * a * a).sum() * (a[1] - a[0])) / total), abs=1e-9
    )


def test_a_skewed_posterior_of_three_parameters_is_resolved() -> None:
    """Eight trials of a psychometric function; the values are those of 41 × 321 × 41 points on the whole prior."""
    experiment = Experiment.from_spec(CATALOGUE["psychometric_probit_2afc"].spec)
    trials = [(0.15, 1), (0, 1), (-0.15, 0), (0.6, 1), (0.45, 1), (0.3, 1), (0.6, 1), (-0.3, 0)]
    belief = experiment.posterior([({"x": x}, {"y": y}) for x, y in trials])
    assert belief.log_evidence == pytest.approx(-4.0272216, abs=4 * belief.error)
    assert belief.error < 0.01
    assert belief.mean["slope"] == pytest.approx(2.42257, abs=0.01)
    assert belief.sd["threshold"] == pytest.approx(0.5388, abs=0.005)
    assert not experiment.guards([({"x": x}, {"y": y}) for x, y in trials]).warnings


def test_the_error_of_a_step_is_not_taken_for_that_of_something_smooth() -> None:
    experiment = Experiment.from_spec(STEP)
    above = 0.5 * math.erfc(0.55 / math.sqrt(2))
    belief = experiment.posterior([({"x": 0.55}, {"y": 1})])
    exact = math.log(above * 0.95 + (1 - above) * 0.1)
    assert abs(belief.log_evidence - exact) <= 3 * belief.error
    assert belief.error < 1e-3

    def entropy(p: float) -> float:
        return -p * math.log(p) - (1 - p) * math.log1p(-p)

    (found,) = experiment.eig([{"x": 0.55}])
    truth = entropy(math.exp(exact)) - above * entropy(0.95) - (1 - above) * entropy(0.1)
    assert abs(found.eig - truth) <= 3 * found.se


def test_a_level_is_as_large_as_its_outcomes_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty classes: designs are looked at again on a finer grid only as far as their cells are affordable."""
    logits = [f"{40 * i} * (a - x) - {20 * i * i / 39}" for i in range(40)]
    spec = {
        "parameters": {"a": {"dist": "normal", "loc": 0, "scale": 1}},
        "designs": {"x": {"type": "list", "values": np.linspace(-1, 1, 30).tolist()}},
        "outcome": {"y": {"family": "categorical", "logits": logits}},
    }
    n_cells = []

    def spied(model: Any, belief: Any, rows: Any, *rest: Any, **options: Any) -> Any:
        n_cells.append(belief.points.n * 40 * len(rows))
        return estimate(model, belief, rows, *rest, **options)

    monkeypatch.setattr(accuracy, "estimate", spied)
    monkeypatch.setattr(accuracy, "MAX_NUMBERS", 200_000)
    monkeypatch.setattr(accuracy, "TOLERANCE", {1: 1e-6})
    experiment = Experiment.from_spec(spec)
    found = experiment.eig()
    assert max(e.se for e in found) > accuracy.TOLERANCE[1]  # or nothing was to be done
    assert len(n_cells) > 1
    assert max(n_cells[1:]) <= 200_000


def entropy(p: Any) -> Any:
    return -(p * np.log(p) + (1 - p) * np.log1p(-p))


@pytest.mark.parametrize("steepness", [2.0, 5.0, 10.0])
def test_no_design_is_lucky_among_others_on_a_grid_of_three_axes(steepness: float) -> None:
    """What a psychometric function tells of its threshold alone, beside a sum that is fine along the threshold."""
    stimuli = [-1.0, -0.5, 0.0, 0.5, 1.0]
    spec: dict[str, Any] = {
        "parameters": {
            "t": {"dist": "normal", "loc": 0, "scale": 1},
            "s": {"dist": "lognormal", "loc": math.log(steepness), "scale": 0.5},
            "l": {"dist": "beta", "a": 2, "b": 30},
        },
        "targets": ["t"],
        "designs": {"x": {"type": "list", "values": stimuli}},
        "outcome": {"y": {"family": "bernoulli", "prob": "0.5 + (0.5 - l) * sigmoid(s * (x - t))"}},
    }
    t, z = np.linspace(-8, 8, 801), np.linspace(-6, 6, 61)
    of_t, of_z = (np.exp(-0.5 * x * x) / np.exp(-0.5 * x * x).sum() for x in (t, z))
    slope = steepness * np.exp(0.5 * z)
    for found, x in zip(Experiment.from_spec(spec).eig(), stimuli, strict=True):
        given = 0.5 + (0.5 - 2 / 32) * (special.expit(slope * (x - t[:, None])) @ of_z)  # linear in the lapse
        exact = entropy(of_t @ given) - of_t @ entropy(given)
        assert abs(found.eig - exact) <= 3 * found.se
        assert found.se < 0.05


@pytest.mark.parametrize("y", [0.655, 0.3])
@pytest.mark.parametrize("swings", [10, 30, 60])
def test_a_fast_sine_is_followed_or_its_error_said(swings: int, y: float) -> None:
    """Peaks a thousandth as wide as they are apart, at spacings that fit the sine: two spacings agree by luck."""
    spec = {
        "parameters": {"a": {"dist": "normal", "loc": 0, "scale": 1}},
        "designs": {"x": {"type": "float", "low": 0, "high": 2}},
        "outcome": {"y": {"family": "normal", "mean": f"sin({swings} * a * x)", "sd": 0.01}},
    }
    belief = Experiment.from_spec(spec).posterior([({"x": 1.0}, {"y": y})])
    a = np.linspace(-8, 8, 4_000_001)
    log_joint = -0.5 * ((y - np.sin(swings * a)) / 0.01) ** 2 - 0.5 * a * a - math.log(0.01 * 2 * math.pi)
    joint = np.exp(log_joint)
    assert abs(belief.log_evidence - math.log(joint.sum() * (a[1] - a[0]))) <= 3 * belief.error + 1e-6
    assert belief.mean["a"] == pytest.approx(float(joint @ a / joint.sum()), abs=0.01)


def test_cells_in_which_an_outcome_swings_are_not_sure() -> None:
    """All whole swings tell as much as the sine of a uniform angle does."""
    spec = {
        "parameters": {"a": {"dist": "normal", "loc": 0, "scale": 1}},
        "designs": {"x": {"type": "float", "low": 0, "high": 2}},
        "outcome": {"y": {"family": "normal", "mean": "sin(300 * a * x)", "sd": 0.01}},
    }
    (found,) = Experiment.from_spec(spec).eig([{"x": 1.37}])
    assert found.se is not None
    assert abs(found.eig - 3.7533) <= 4 * found.se
