"""What an outcome taught about the targets: both numbers average to the EIG that was promised."""

import math
from typing import Any

import numpy as np
import pytest

import bensemble_core as bc
from tests.core.design.specs import changed

UNIT = {"dist": "normal", "loc": 0, "scale": 1}
LINE: dict[str, Any] = {
    "parameters": {"a": UNIT, "b": UNIT},
    "designs": {"x": {"type": "list", "values": [0.5, 1]}},
    "outcome": {"y": {"family": "normal", "mean": "a + b * x", "sd": 0.5}},
    "targets": ["b"],
}
HIDDEN = changed(LINE, outcome={"y": {"family": "normal", "mean": "a + b * x + 0 * exp(a)", "sd": 0.5}})  # on a grid
WEIGHTED: dict[str, Any] = {
    "parameters": {"a": UNIT, "b": {"dist": "lognormal", "loc": 0, "scale": 0.5}},
    "designs": {"x": {"type": "list", "values": [1]}},
    "outcome": {"y": {"family": "bernoulli", "logit": "a + b * x"}},
    "targets": ["b"],
}
LISTED = changed(WEIGHTED, parameters={"a": UNIT, "b": {"dist": "categorical", "values": [-1, 1], "probs": [0.3, 0.7]}})
PARTICLES = changed(
    WEIGHTED,
    parameters={"a": UNIT, "b": UNIT, "c": UNIT, "d": UNIT},
    outcome={"y": {"family": "bernoulli", "logit": "a + 3 * b + c + d"}},
)
BEFORE = [({"x": 0.5}, {"y": 0.3})]


@pytest.mark.parametrize("before", [[], BEFORE], ids=["at first", "after an outcome"])
def test_information_about_a_target_of_a_linear_model_averages_to_its_eig(before: list[Any]) -> None:
    experiment = bc.design.Experiment.from_spec(LINE)
    (promised,) = experiment.eig([{"x": 1}], before)
    belief = experiment.posterior(before)
    slopes = np.array([1.0, 1.0])
    mean = belief.mean["a"] + belief.mean["b"]
    sd = math.sqrt(slopes @ belief.covariance().numpy() @ slopes + 0.25)
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    gained = [experiment.information([*before, ({"x": 1}, {"y": mean + sd * node})]) for node in nodes]
    for meaning in ("entropy_drop", "kl"):
        average = weights @ [getattr(each, meaning) for each in gained] / weights.sum()
        assert average == pytest.approx(promised.eig, abs=1e-10)


def test_a_grid_tells_of_a_target_what_the_closed_form_does() -> None:
    exact, found = (bc.design.Experiment.from_spec(spec) for spec in (LINE, HIDDEN))
    for y in (-1.0, 4.0):
        ran = [*BEFORE, ({"x": 1}, {"y": y})]
        expected, told = exact.information(ran), found.information(ran)
        for meaning in ("entropy_drop", "kl", "surprise"):
            assert getattr(told, meaning) == pytest.approx(getattr(expected, meaning), abs=1e-6)


@pytest.mark.parametrize(
    ("spec", "error"), [(WEIGHTED, 1e-8), (LISTED, 1e-8), (PARTICLES, 3e-3)], ids=["grid", "listed", "particles"]
)
def test_information_about_a_target_averages_to_its_eig(spec: dict[str, Any], error: float) -> None:
    experiment = bc.design.Experiment.from_spec(spec)
    before = [({"x": 1}, {"y": 1})]
    (promised,) = experiment.eig([{"x": 1}], before)
    drop = kl = 0.0
    for y in (0, 1):
        gained = experiment.information([*before, ({"x": 1}, {"y": y})])
        assert gained.kl > 0
        drop += math.exp(-gained.surprise) * gained.entropy_drop
        kl += math.exp(-gained.surprise) * gained.kl
    assert kl == pytest.approx(promised.eig, abs=error)
    assert drop == pytest.approx(promised.eig, abs=3 * error)


def test_an_outcome_that_depends_on_nuisances_alone_teaches_nothing() -> None:
    for family in ({"family": "normal", "mean": "a", "sd": 0.1}, {"family": "bernoulli", "logit": "a"}):
        experiment = bc.design.Experiment.from_spec(changed(LINE, outcome={"y": family}))
        gained = experiment.information([({"x": 1}, {"y": 1})])
        assert (gained.entropy_drop, gained.kl) == pytest.approx((0, 0), abs=1e-9)


@pytest.mark.parametrize("is_curved", [False, True])
@pytest.mark.parametrize(("target", "x"), [("b", 1.0), ("a", 1.0), ("b", 0.0)])
@pytest.mark.parametrize("sd", [0.3, 0.01])
def test_what_a_precise_outcome_taught_is_the_closed_form(sd: float, target: str, x: float, is_curved: bool) -> None:
    """log y ~ N(a + b x, sd²) after one outcome at x = 0: normal before and after. With c a nuisance that nothing
    depends on there are three parameters."""
    names = "abc" if is_curved else "ab"
    spec = {
        "parameters": dict.fromkeys(names, UNIT),
        "designs": {"x": {"type": "float", "low": -2, "high": 2}},
        "outcome": {"y": {"family": "lognormal", "mean": "a + b * x", "sd": sd}},
        "targets": [target],
    }
    t, y0, y1 = "ab".index(target), 0.5, 1.7
    rows = np.array([[1.0, 0.0], [1.0, x]])
    before = np.linalg.inv(np.eye(2) + np.outer(rows[0], rows[0]) / sd**2)
    after = np.linalg.inv(np.eye(2) + rows.T @ rows / sd**2)
    y1 = y0 + 0.01 if x == 0 else y1
    moved = (after @ rows.T @ [y0, y1] - before @ rows[0] * y0)[t] / sd**2
    drop = 0.5 * math.log(before[t, t] / after[t, t])
    kl = drop + 0.5 * (after[t, t] / before[t, t] - 1 + moved**2 / before[t, t])
    history = [({"x": 0.0}, {"y": math.exp(y0)}), ({"x": x}, {"y": math.exp(y1)})]
    found = bc.design.Experiment.from_spec(spec).information(history)
    tolerance = 0.01 if is_curved else 2e-3
    assert found.entropy_drop == pytest.approx(drop, abs=tolerance)
    assert found.kl == pytest.approx(kl, rel=tolerance, abs=tolerance)
