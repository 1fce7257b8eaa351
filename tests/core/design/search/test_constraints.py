"""The best design often lies where a constraint begins."""

import math
from typing import Any

import pytest

from bensemble_core.design import Experiment
from bensemble_core.design.spec.spaces import sobol

LINE: dict[str, Any] = {
    "parameters": {"a": {"dist": "normal", "loc": 0, "scale": 1}, "b": {"dist": "normal", "loc": 0, "scale": 1.5}},
    "designs": {"x": {"type": "float", "low": 0, "high": 1}, "d": {"type": "float", "low": 0, "high": 1}},
    "outcome": {"y": {"family": "normal", "mean": "a*x+b*d", "sd": 0.5}},
    "constraints": ["x+d <= 1"],
}
CURVED: dict[str, Any] = {
    "parameters": {"m": {"dist": "normal", "loc": 0, "scale": 1}, "s": {"dist": "lognormal", "loc": 0, "scale": 0.5}},
    "designs": {
        "x": {"type": "float", "low": -3, "high": 3},
        "d": {"type": "float", "low": 0, "high": 6},
        "n": {"type": "integer", "low": 1, "high": 400},
    },
    "outcome": {"y": {"family": "bernoulli", "logit": "s*(m-x)*log(1+d)*sqrt(n)/(1+0.002*n)"}},
    "constraints": ["x*x+d <= 6", "n*d <= 500"],
}


def test_a_proposal_reaches_the_corner_that_a_constraint_leads_to() -> None:
    """½ log(1 + b² / s²) at d = 1."""
    (proposal,) = Experiment.from_spec(LINE).propose()
    assert proposal.eig == pytest.approx(0.5 * math.log(1 + 1.5**2 / 0.25), abs=1e-9)
    assert proposal.design == {"x": pytest.approx(0, abs=1e-9), "d": pytest.approx(1, abs=1e-9)}


def test_an_optimum_where_two_edges_meet_is_found() -> None:
    """On x² + d² = 1 with x ≥ 0.3: as much as can be of the variable with the larger variance."""
    (proposal,) = Experiment.from_spec({**LINE, "constraints": ["x*x + d*d <= 1", "x >= 0.3"]}).propose()
    gain = 0.5 * math.log(1 + (0.3**2 + 1.5**2 * (1 - 0.3**2)) / 0.25)
    assert proposal.eig == pytest.approx(gain, abs=1e-5)


def test_two_curved_constraints_are_followed_at_once() -> None:
    experiment = Experiment.from_spec(CURVED)
    space = experiment.spec.model.space
    (proposal,) = experiment.propose()
    rows = space.from_unit(sobol(4096, 3, 5))
    rows = rows[space.admits(rows)][:800]
    random = max(found.eig for found in experiment.eig([space.decode(row.tolist()) for row in rows]))
    assert proposal.eig >= random
    assert proposal.eig == pytest.approx(0.597095408, abs=1e-3)  # where the curves meet, and n is whole
    assert experiment.propose()[0] == Experiment.from_spec(CURVED).propose()[0]


def test_fixed_values_stay_fixed_along_a_constraint() -> None:
    (proposal,) = Experiment.from_spec(LINE).propose(fixed={"x": 0.4})
    assert proposal.design == {"x": 0.4, "d": pytest.approx(0.6, abs=1e-9)}


def test_few_allowed_among_very_many_designs_are_found() -> None:
    """10⁸ combinations, of which 45 are allowed; nearly all Sobol points are not."""
    names = "abcdefgh"
    spec = {
        "parameters": {"t": {"dist": "normal", "loc": 1, "scale": 1}},
        "designs": {name: {"type": "integer", "low": 0, "high": 9} for name in names},
        "outcome": {"y": {"family": "normal", "mean": f"t * ({' + '.join(names)})", "sd": 1}},
        "constraints": [f"{' + '.join(names)} <= 2"],
    }
    (proposal,) = Experiment.from_spec(spec).propose()
    assert sum(proposal.design.values()) <= 2


def test_a_model_need_not_be_defined_beyond_the_constraints() -> None:
    """The sd is the root of what is negative there. ½ log(1 + x² / (1.1 − x − d)) on x + d ≤ 1 is best at x = 1."""
    spec = {**LINE, "outcome": {"y": {"family": "normal", "mean": "a*x", "sd": "sqrt(1.1-x-d)"}}, "targets": ["a"]}
    (proposal,) = Experiment.from_spec(spec).propose()
    assert proposal.eig == pytest.approx(0.5 * math.log(1 + 1 / 0.1), abs=1e-6)
    outcome = {"y": {"family": "bernoulli", "logit": "3*a*x*sqrt(1-x-d)"}}
    (proposal,) = Experiment.from_spec({**LINE, "outcome": outcome}).propose()
    assert proposal.design == {"x": pytest.approx(2 / 3, abs=1e-5), "d": pytest.approx(0, abs=1e-5)}


def test_a_band_hardly_wider_than_a_line_is_followed() -> None:
    """The logit 3 th exp(−|(x, d) − (0.8, 0.3)|² / 0.05) is best towards (0.8, 0.3) on the outer circle."""
    spec = {
        "parameters": {"th": {"dist": "normal", "loc": 0, "scale": 1}},
        "designs": LINE["designs"],
        "outcome": {"y": {"family": "bernoulli", "logit": "3*exp(-((x-0.8)**2+(d-0.3)**2)/0.05)*th"}},
        "constraints": ["x*x + d*d <= 0.501", "x*x + d*d >= 0.5"],
    }
    for seed in range(3):
        (proposal,) = Experiment.from_spec({**spec, "select": {"seed": seed}}).propose()
        x, d = (math.sqrt(0.501 / 0.73) * side for side in (0.8, 0.3))
        assert proposal.design == {"x": pytest.approx(x, abs=1e-4), "d": pytest.approx(d, abs=1e-4)}
