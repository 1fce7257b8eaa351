"""Designs that cannot be listed, beside optima that are known from the form of the model."""

import math
from typing import Any

import pytest

from bensemble_core.design import Experiment

UNIT = {"type": "float", "low": 0, "high": 1}
WIDE = {"type": "float", "low": -1, "high": 1}
DEEP = {"type": "float", "low": 0, "high": 5}
STEPS = {"type": "integer", "low": 0, "high": 12}
DISC = ["x*x + v*v <= 0.25"]


def stated(designs: dict[str, Any], logit: str, constraints: list[str] | None = None) -> dict[str, Any]:
    return {
        "parameters": {"th": {"dist": "normal", "loc": 0, "scale": 1}},
        "designs": designs,
        "outcome": {"y": {"family": "bernoulli", "logit": logit}},
        "constraints": constraints or [],
    }


def on_circle(x: float, v: float) -> dict[str, float]:
    """The point of the disc's edge in this direction, just inside."""
    length = math.hypot(x, v) / 0.5 * (1 + 1e-12)
    return {"x": x / length, "v": v / length}


# the logit is a number times th, and the EIG grows with that number's size: the best design maximises it
KNOWN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "x follows k, and c doubles it": (
        stated(
            {"x": DEEP, "k": STEPS, "c": {"type": "categorical", "values": ["lo", "hi"]}},
            "3*(1+c)*exp(-((x-0.37*k)/0.2)**2)*exp(-((k-6.6)/2)**2)*th",
        ),
        {"x": 2.59, "k": 7, "c": "hi"},
    ),
    "x follows k": (
        stated({"x": DEEP, "k": STEPS}, "3*exp(-(x-0.37*k)**2)*exp(-((k-6.6)/2)**2)*th"),
        {"x": 2.59, "k": 7},
    ),
    "a peak outside a disc": (
        stated({"x": WIDE, "v": WIDE}, "3*exp(-((x-0.7)**2+(v-0.1)**2)/0.02)*th", DISC),
        on_circle(0.7, 0.1),
    ),
    "a slope across a disc": (stated({"x": WIDE, "v": WIDE}, "(2*x+v)*th", DISC), on_circle(2, 1)),
    "around a hole": (
        stated({"x": WIDE, "v": WIDE}, "3*exp(-3*(x*x+v*v)-0.5*x)*th", ["x*x + v*v >= 0.25"]),
        {"x": -0.5, "v": 0.0},
    ),
    "a straight ridge": (
        stated({"x": UNIT, "v": UNIT}, "3*exp(-((x-v)/0.03)**2)*exp(-((x+v-1.2)/0.6)**2)*th"),
        {"x": 0.6, "v": 0.6},
    ),
    "a bent ridge": (
        stated({"x": DEEP, "v": DEEP}, "3*exp(-((x-v*v/5)/0.1)**2)*exp(-(x-3.3)**2)*th"),
        {"x": 3.3, "v": math.sqrt(16.5)},
    ),
    "kinks of the model": (
        stated({"x": UNIT, "v": UNIT}, "3*exp(-5*abs(x-0.3)-2*abs(v-0.6))*th"),
        {"x": 0.3, "v": 0.6},
    ),
    "the tip of a diamond": (
        stated({"x": WIDE, "v": WIDE}, "(2*x+v)*th", ["abs(x) + abs(v) <= 0.5"]),
        {"x": 0.5, "v": 0.0},
    ),
    "one side or the other": (
        stated({"x": UNIT, "v": UNIT}, "(x+2*v)*th", ["x <= 0.2 or v <= 0.3", "not x + v > 0.9"]),
        {"x": 0.0, "v": 0.9},
    ),
    "what x allows of n": (
        stated(
            {"x": {"type": "float", "low": 0, "high": 10}, "n": {"type": "integer", "low": 10, "high": 5000}},
            "x*sqrt(n)*th/40",
            ["x*n <= 1000"],
        ),
        {"x": 10.0, "n": 100},
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_the_best_design_is_found_whatever_the_seed(name: str) -> None:
    spec, best = KNOWN[name]
    for seed in range(5):
        experiment = Experiment.from_spec({**spec, "select": {"seed": seed}})
        (proposal,) = experiment.propose()
        assert experiment.eig([proposal.design])[0].eig >= (1 - 1e-4) * experiment.eig([best])[0].eig


def test_another_category_is_tried_where_the_best_start_has_the_wrong_one() -> None:
    """The peak of "hi" is higher, and so narrow that no start lies on it."""
    logit = "where(c == 0, 1.5*exp(-((x-0.4)/0.3)**2), 3*exp(-((x-0.4)/0.004)**2))*th"
    spec = stated({"x": UNIT, "c": {"type": "categorical", "values": ["lo", "hi"]}}, logit)
    (proposal,) = Experiment.from_spec(spec).propose()
    assert proposal.design == {"x": pytest.approx(0.4, abs=1e-4), "c": "hi"}


def test_fixed_whole_numbers_and_categories_stay_as_they_are() -> None:
    spec, _ = KNOWN["x follows k, and c doubles it"]
    (proposal,) = Experiment.from_spec(spec).propose(fixed={"k": 5, "c": "lo"})
    assert proposal.design == {"x": pytest.approx(1.85, abs=1e-3), "k": 5, "c": "lo"}


def test_a_list_of_one_value_has_no_neighbours() -> None:
    spec = stated({"x": UNIT, "v": {"type": "list", "values": [3]}}, "v*exp(-(x-0.3)**2)*th")
    (proposal,) = Experiment.from_spec(spec).propose()
    assert proposal.design == {"x": pytest.approx(0.3, abs=1e-2), "v": 3}


def test_a_constraint_that_is_far_steeper_elsewhere_is_followed() -> None:
    """x at most log 2, of a range on which exp(x) grows to 10³⁰⁴."""
    spec = stated({"x": {"type": "float", "low": -700, "high": 700}}, "exp(x/10)*th", ["exp(x) <= 2"])
    (proposal,) = Experiment.from_spec(spec).propose()
    assert proposal.design["x"] == pytest.approx(math.log(2), abs=1e-4)


def test_a_range_of_six_hundred_powers_of_ten_is_searched() -> None:
    """The logit is largest in size where x is: at both ends."""
    spec = stated({"x": {"type": "float", "low": 1e-300, "high": 1e300, "scale": "log"}}, "th*log(x)/100")
    (proposal,) = Experiment.from_spec(spec).propose()
    assert abs(math.log10(proposal.design["x"])) == pytest.approx(300, abs=1e-6)
    moved = stated({"x": {"type": "float", "low": 1e-300, "high": 1e300, "scale": "log"}}, "th-log(x)")
    (proposal,) = Experiment.from_spec(moved).propose()
    assert math.log(proposal.design["x"]) == pytest.approx(0, abs=1e-2)


def test_a_range_as_wide_as_numbers_are_is_searched() -> None:
    spec = stated({"x": {"type": "float", "low": -1.7e308, "high": 1.7e308}}, "th*(x/1e308)")
    (proposal,) = Experiment.from_spec(spec).propose()
    assert abs(proposal.design["x"]) == pytest.approx(1.7e308)
