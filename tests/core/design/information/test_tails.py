"""Utilities with heavy tails, whose expectation is known: the stated error covers it, or says that nothing is known."""

import math
from typing import Any

import pytest

from bensemble_core.design import Experiment


def exponential(slope: float, n_parameters: int, seed: int = 0) -> Experiment:
    """E exp(slope · t0) = exp(slope² / 2)."""
    spec: dict[str, Any] = {
        "parameters": {f"t{i}": {"dist": "normal", "loc": 0, "scale": 1} for i in range(n_parameters)},
        "designs": {"x": {"type": "list", "values": [1]}},
        "outcome": {"y": {"family": "bernoulli", "logit": "t0 * x"}},
        "utility": f"exp({slope} * t0 * x)",
        "select": {"seed": seed},
    }
    return Experiment.from_spec(spec)


@pytest.mark.parametrize("slope", [0.5, 1.5, 3.0, 4.0])
def test_particles_state_the_error_of_a_heavy_tail(slope: float) -> None:
    truth = math.exp(slope**2 / 2)
    for seed in range(12):
        (found,) = exponential(slope, 4, seed).eig()
        assert found.utility == pytest.approx(truth, abs=3 * found.se)
        if slope <= 1.5:
            assert found.se < 0.05 * truth


@pytest.mark.parametrize("slope", [1, 3, 5, 7, 8, 10])
@pytest.mark.parametrize("n_parameters", [1, 2])
def test_a_grid_states_what_lies_beyond_its_edge(slope: float, n_parameters: int) -> None:
    truth = math.exp(slope**2 / 2)
    (found,) = exponential(slope, n_parameters).eig()
    assert found.utility == pytest.approx(truth, abs=3 * found.se)
    if slope <= 3:
        assert found.se < 1e-4 * truth
