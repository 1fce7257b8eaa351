"""QUEST+ (Watson 2017), example 1: the 32 trials of the reference implementation, stimulus for stimulus.

Stimuli and responses are facts taken from the tests of the `questplus` package (release 2023.1).
"""

import math
from typing import Any

import pytest

from bensemble_core.design import Experiment

STIMULI = [
    *(-18, -22, -25, -28, -30, -22, -13, -15, -16, -18, -19, -20, -21, -22, -23, -19),
    *(-20, -20, -18, -18, -19, -17, -17, -18, -18, -18, -19, -19, -19, -19, -19, -19),
]
MISSED = {4, 5, 14, 17, 20}  # trials, from 0, answered wrongly
WEIBULL = "1 - 0.02 - (1 - 0.5 - 0.02) * exp(-pow(10, 3.5 * (x - t) / 20))"


def quest(**parts: Any) -> Experiment:
    levels = list(range(-40, 1))
    return Experiment.from_spec(
        {
            "parameters": {"t": {"dist": "grid", "values": levels}},
            "designs": {"x": {"type": "integer", "low": -40, "high": 0}},
            "outcome": {"y": {"family": "bernoulli", "prob": WEIBULL}},
            **parts,
        }
    )


def test_the_replay_follows_the_reference_stimulus_for_stimulus() -> None:
    experiment = quest()
    observations: list[Any] = []
    for trial, stimulus in enumerate(STIMULI):
        design = experiment.propose(observations)[0].design
        assert design == {"x": stimulus}, f"trial {trial}"
        observations.append((design, {"y": int(trial not in MISSED)}))
    belief = experiment.posterior(observations)
    values, masses = belief.marginal("t")
    assert values[masses.index(max(masses))] == -20


def test_the_likelihood_as_a_table_gives_the_same_replay() -> None:
    """The same model as numbers: p[design, point, outcome]."""
    levels = list(range(-40, 1))

    def p(x: int, t: int) -> float:
        return 1 - 0.02 - (1 - 0.5 - 0.02) * math.exp(-math.pow(10, 3.5 * (x - t) / 20))

    table = {
        "parameters": {"t": levels},
        "designs": [{"x": x} for x in levels],
        "outcomes": ["wrong", "right"],
        "probs": [[[1 - p(x, t), p(x, t)] for t in levels] for x in levels],
    }
    experiment = Experiment.from_spec({"table": table})
    stated = quest()
    observations: list[Any] = []
    for trial in range(8):
        pick = experiment.propose(observations)[0]
        assert pick.design == {"x": STIMULI[trial]}
        same = [(design, {"y": int(outcome["y"] == "right")}) for design, outcome in observations]
        assert pick.eig == pytest.approx(stated.propose(same)[0].eig, abs=1e-12)
        observations.append((pick.design, {"y": "wrong" if trial in MISSED else "right"}))
    with pytest.raises(ValueError, match="the table has no design"):
        experiment.eig([{"x": 3}])
