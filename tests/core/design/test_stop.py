"""Stopping rules with their reasons."""

from typing import Any

import pytest

from bensemble_core.design import Experiment
from bensemble_core.design.spec.spec import Rule
from bensemble_core.design.stop import Standing, judge
from tests.core.design.specs import DIGIT_SPAN, changed

HERE = Standing(sd={"a": 0.5, "b": 2.0}, n_trials=4, spent=9.0, max_eig=0.03)


def sd(parameter: str, limit: float) -> Rule:
    return Rule(kind="sd", parameter=parameter, limit=limit)


@pytest.mark.parametrize(
    ("rule", "stops", "reasons"),
    [
        (None, False, 0),
        (sd("a", 0.6), True, 1),
        (sd("b", 0.6), False, 0),
        (Rule(kind="max_eig_below", limit=0.05), True, 1),
        (Rule(kind="max_eig_below", limit=0.01), False, 0),
        (Rule(kind="max_trials", limit=4), True, 1),
        (Rule(kind="budget", limit=9), True, 1),
        (Rule(kind="budget", limit=10), False, 0),
        (Rule(kind="all", rules=(sd("a", 0.6), sd("b", 0.6))), False, 1),
        (Rule(kind="any", rules=(sd("a", 0.6), sd("b", 0.6))), True, 1),
        (Rule(kind="any", rules=(sd("a", 0.6), Rule(kind="max_trials", limit=3))), True, 2),
    ],
)
def test_rules_hold_or_not_and_say_why(rule: Rule | None, stops: bool, reasons: int) -> None:
    found = judge(rule, HERE)
    assert found.stop is stops
    assert len(found.reasons) == reasons


def test_an_experiment_stops_on_precision_and_says_so() -> None:
    experiment = Experiment.from_spec(DIGIT_SPAN)
    observations: list[Any] = []
    while not experiment.stop(observations).stop:
        design = experiment.propose(observations)[0].design
        observations.append((design, {"y": int(design["xi"] < 6)}))
        assert len(observations) < 30
    assert experiment.posterior(observations[:-1]).sd["theta"] > 0.6
    assert experiment.posterior(observations).sd["theta"] <= 0.6
    (reason,) = experiment.stop(observations).reasons
    assert reason.startswith("sd of theta is 0.5")


def test_a_budget_forbids_what_cannot_be_paid_and_then_stops() -> None:
    experiment = Experiment.from_spec(changed(DIGIT_SPAN, cost="xi", stop={"budget": 9}))
    first = experiment.propose()[0]
    rest = 9 - first.cost
    second = experiment.propose([(first.design, {"y": 1})])
    assert all(proposal.cost <= rest for proposal in second)
    spent = [({"xi": 8}, {"y": 1}), ({"xi": 1}, {"y": 1})]
    assert experiment.propose(spent) == []
    found = experiment.stop(spent)
    assert found.stop
    assert any("budget" in reason for reason in found.reasons)
    assert len(experiment.propose(count=20)) < 20


@pytest.mark.parametrize(
    "changes",
    [
        {"select": {"rule": "random", "seed": 3}},
        {"select": {"epsilon": 1.0, "seed": 3}},
        {"cost": "where(xi < 15, 1000, 1)"},
        {"designs": {"xi": {"type": "float", "low": 1, "high": 60}}, "select": {"rule": "random", "seed": 3}},
        {"designs": {"xi": {"type": "float", "low": 1, "high": 60}}, "cost": "exp(10 - 0.5 * xi)"},
    ],
    ids=["random", "epsilon", "cost", "random of a range", "cost of a range"],
)
def test_an_experiment_goes_on_while_the_best_design_promises_enough(changes: dict[str, Any]) -> None:
    """Whatever is proposed: the best of all, about 0.231 nats at xi = 7, decides."""
    for limit, stops in ((0.2310, False), (0.2313, True)):
        experiment = Experiment.from_spec(changed(DIGIT_SPAN, **changes, stop={"max_eig_below": limit}))
        found = experiment.stop()
        assert found.stop is stops
        assert not stops or "0.2311 nats" in found.reasons[0]
    assert experiment.propose()[0].eig < 0.2
