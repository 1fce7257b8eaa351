"""A model is asked far out in its prior: what is not defined there is refused when it is stated."""

import math
from typing import Any

import pytest

from bensemble_core.design import Experiment, summary
from bensemble_core.errors import InvalidData, InvalidSpec

X = {"x": {"type": "integer", "low": 1, "high": 5}}


def normal(loc: float, scale: float) -> dict[str, Any]:
    return {"dist": "normal", "loc": loc, "scale": scale}


@pytest.mark.parametrize(
    ("parameters", "outcome", "pointer"),
    [
        ({"p": normal(0.5, 0.1)}, {"family": "bernoulli", "prob": "p"}, "/outcome/y/prob"),
        ({"r": normal(5, 1)}, {"family": "exponential", "rate": "r*x"}, "/outcome/y/rate"),
        ({"s": normal(2, 0.35)}, {"family": "normal", "mean": "x", "sd": "s"}, "/outcome/y/sd"),
        (
            {"r": normal(5, 1), **{f"a{i}": normal(0, 1) for i in range(4)}},
            {"family": "exponential", "rate": "r + 0 * (a0 + a1 + a2 + a3)"},
            "/outcome/y/rate",
        ),
    ],
    ids=["prob", "rate", "sd", "particles"],
)
def test_a_sliver_of_the_prior_on_which_the_model_is_not_defined_is_refused_at_once(
    parameters: dict[str, Any], outcome: dict[str, Any], pointer: str
) -> None:
    with pytest.raises(InvalidSpec, match=r"not so at .* of the prior; take a prior that ends") as refusal:
        Experiment.from_spec({"parameters": parameters, "designs": X, "outcome": {"y": outcome}})
    assert refusal.value.pointer == pointer


@pytest.mark.parametrize(("loc", "scale"), [(0.5, 0.07), (0.5, 0.075), (0.4, 0.06)])
def test_what_is_let_pass_is_used(loc: float, scale: float) -> None:
    """Just inside of what is refused: every call works."""
    spec = {
        "parameters": {"p": normal(loc, scale)},
        "designs": X,
        "outcome": {"y": {"family": "bernoulli", "prob": "p"}},
    }
    experiment = Experiment.from_spec(spec)
    observations = [({"x": 1}, {"y": 1}), ({"x": 2}, {"y": 0})]
    for n in range(3):
        assert experiment.propose(observations[:n])


def test_a_slip_of_the_pen_in_a_design_that_was_run_is_refused() -> None:
    spec = {"parameters": {"t": normal(7, 2)}, "designs": X, "outcome": {"y": {"family": "bernoulli", "logit": "t-x"}}}
    experiment = Experiment.from_spec(spec)
    experiment.posterior([({"x": 20}, {"y": 0})])  # beyond its range, and run
    with pytest.raises(InvalidData, match=r"1e\+16 is more than 10 times the declared range away from 1 to 5"):
        experiment.posterior([({"x": 10**16}, {"y": 0})])


@pytest.mark.parametrize(
    ("prior", "told"),
    [
        ({"dist": "normal", "loc": 0, "scale": 1e300}, r"reaches 8e\+300"),
        ({"dist": "lognormal", "loc": 7, "scale": 1e6}, "reaches inf"),
        ({"dist": "gamma", "shape": 1e12, "rate": 1e-300}, "state a narrower prior"),
        ({"dist": "normal", "loc": 1e15, "scale": 1}, "hardly tells apart"),
    ],
)
def test_a_prior_that_floating_point_cannot_hold_is_refused(prior: dict[str, Any], told: str) -> None:
    spec = {"parameters": {"theta": prior}, "designs": X, "outcome": {"y": {"family": "bernoulli", "prob": 0.5}}}
    with pytest.raises(InvalidSpec, match=told) as refused:
        Experiment.from_spec(spec)
    assert refused.value.pointer == "/parameters/theta"


def test_an_outcome_far_beyond_a_prior_over_many_decades_still_has_a_posterior() -> None:
    experiment = Experiment.from_spec(
        {
            "parameters": {"t": {"dist": "gamma", "shape": 0.01, "rate": 1e-6}},
            "designs": {"x": {"type": "integer", "low": 1, "high": 5}},
            "outcome": {"y": {"family": "poisson", "rate": "clip(t * x, 1e-9, 1e12)"}},
        }
    )
    belief = experiment.posterior([({"x": 1}, {"y": 1_000_000_000})])
    found = summary(belief)["t"]
    values = [found["mean"], found["sd"], *found["quantiles"].values(), *belief.hdi()["t"]]
    values += [number for column in belief.marginal("t") for number in column]
    assert all(map(math.isfinite, values))
