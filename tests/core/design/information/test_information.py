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
