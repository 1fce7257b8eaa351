"""A limit on the time of one computation."""

import copy
import time
from typing import Any

import pytest

from bensemble_core.design import Experiment, TooMuchWork, limited
from tests.core.design.specs import DIGIT_SPAN, changed

NEEDLE = changed(DIGIT_SPAN, let={}, outcome={"y": {"family": "normal", "mean": "(theta - xi) ** 3", "sd": 1e-6}})
BETAS: dict[str, Any] = {
    "parameters": {"m": {"dist": "beta", "a": 2, "b": 2}},
    "designs": {"x": {"type": "integer", "low": 1, "high": 5}},
    "outcome": {"y": {"family": "beta", "mean": "m", "concentration": "1e9 * x"}},
}
SIXTEEN: dict[str, Any] = {
    "parameters": {f"a{i}": {"dist": "normal", "loc": 0, "scale": 1} for i in range(16)},
    "designs": {"x": {"type": "integer", "low": -3, "high": 3}},
    "outcome": {
        "y": {"family": "normal", "mean": "+".join(f"a{i} * sin({i} + x) ** 2" for i in range(16)), "sd": "0.01"},
        "z": {"family": "bernoulli", "logit": "9 * a0 * a1"},
    },
}


@pytest.mark.parametrize("spec", [NEEDLE, BETAS], ids=["needle", "betas"])
def test_work_that_was_not_foreseen_ends_at_the_limit(spec: dict[str, Any]) -> None:
    experiment = Experiment.from_spec(spec)
    started = time.thread_time()
    with pytest.raises(TooMuchWork, match=r"more than 0\.2 s"), limited(0.2):
        experiment.propose()
    assert time.thread_time() - started < 1.0


def test_particles_end_at_the_limit_too() -> None:
    experiment = Experiment.from_spec(SIXTEEN)
    started = time.thread_time()
    with pytest.raises(TooMuchWork), limited(0.2):
        experiment.posterior([({"x": x}, {"y": 0.5, "z": 1}) for x in (-2, 1, 2)])
    assert time.thread_time() - started < 1.0


def test_what_was_cut_short_leaves_no_trace() -> None:
    experiment, fresh = Experiment.from_spec(DIGIT_SPAN), Experiment.from_spec(DIGIT_SPAN)
    with pytest.raises(TooMuchWork), limited(0):
        experiment.propose()
    with limited(60):
        assert experiment.propose() == fresh.propose()


def test_of_two_limits_the_nearer_counts() -> None:
    experiment = Experiment.from_spec(DIGIT_SPAN)
    with pytest.raises(TooMuchWork), limited(0), limited(60):
        experiment.propose()
    experiment.propose()


def test_the_error_survives_a_process_boundary() -> None:
    again = copy.copy(TooMuchWork(2.0))  # by the same way as pickling
    assert (again.seconds, str(again)) == (2.0, str(TooMuchWork(2.0)))
