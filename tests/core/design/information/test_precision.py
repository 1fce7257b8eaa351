"""Outcomes that are measured precisely. log y is normal, so that EIG = ½ log det(I + XXᵀ / sd²)."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import special, stats

import bensemble_core as bc
from tests.core.design.specs import changed

UNIT = {"dist": "normal", "loc": 0, "scale": 1}
SLOPE: dict[str, Any] = {"parameters": {"b": UNIT}, "designs": {"x": {"type": "float", "low": 0, "high": 2}}}
LINE: dict[str, Any] = {"parameters": {"a": UNIT, "b": UNIT}, "designs": {"x": {"type": "float", "low": -2, "high": 2}}}


def measured(spec: dict[str, Any], sd: float, mean: str = "a + b * x") -> bc.design.Experiment:
    outcome = {"y": {"family": "lognormal", "mean": mean, "sd": sd}}
    return bc.design.Experiment.from_spec(changed(spec, outcome=outcome))


def exact(xs: list[float], sd: float) -> float:
    """Of designs of a line together."""
    x = np.array([[1.0, each] for each in xs])
    return float(0.5 * np.linalg.slogdet(np.eye(len(xs)) + x @ x.T / sd**2)[1])


def test_a_corner_is_proposed_where_points_are_too_few_to_climb_by() -> None:
    (pick,) = measured(SLOPE, 0.001, "b * x").propose()
    assert pick.design == {"x": 2.0}
    assert pick.eig == pytest.approx(0.5 * math.log1p(4e6), abs=1e-6)


@pytest.mark.parametrize("sd", [0.05, 1e-3, 1e-6])
def test_designs_are_proposed_beside_pending_ones_whatever_the_noise(sd: float) -> None:
    experiment = measured(LINE, sd)
    for pending in ([{"x": -2}], [{"x": -2}, {"x": 2}]):
        (pick,) = experiment.propose(pending=pending, fixed={"x": 2})
        xs = [each["x"] for each in pending]
        gain = exact([*xs, 2], sd) - exact(xs, sd)
        assert pick.method == "cells"
        assert pick.se is not None
        assert abs(pick.eig - gain) <= 4 * pick.se + 1e-4
        assert pick.se < 1e-3


def test_a_batch_is_proposed_where_a_first_look_falls_between_its_outcomes() -> None:
    first, second = measured(SLOPE, 0.05, "b * x").propose(count=2)
    assert first.design == {"x": 2.0}
    assert first.eig == pytest.approx(0.5 * math.log1p(1600), abs=1e-6)
    assert first.se is not None
    assert second.se is not None
    joint = 0.5 * math.log1p((first.design["x"] ** 2 + second.design["x"] ** 2) / 0.05**2)
    assert second.joint_eig == pytest.approx(joint, abs=4 * (first.se + second.se) + 1e-4)
    assert second.design == {"x": 2.0}


def test_a_batch_takes_the_ends_of_a_line_and_is_worth_their_log_determinant() -> None:
    listed = changed(LINE, designs={"x": {"type": "list", "values": [-2, 0.9, 2]}})
    picks = measured(listed, 0.5).propose(count=2)
    assert {pick.design["x"] for pick in picks} == {-2, 2}
    assert picks[1].joint_eig == pytest.approx(exact([-2, 2], 0.5), abs=1e-3)
    assert all(pick.se is not None and pick.note is None for pick in picks)


def test_a_design_too_precise_for_the_grid_is_valued_by_cells() -> None:
    sd = 1e-4
    listed = changed(SLOPE, designs={"x": {"type": "list", "values": [0.01 * sd, 2]}})
    experiment = measured(listed, sd, "b * x")
    blunt, precise = experiment.eig()
    assert (blunt.method, precise.method) == ("quadrature", "cells")
    assert blunt.se is not None
    assert abs(blunt.eig - 0.5 * math.log1p(1e-4)) <= 3 * blunt.se + 1e-12
    assert precise.se is not None
    assert precise.eig == pytest.approx(0.5 * math.log1p(4e8), abs=1e-5)
    assert precise.se < 1e-3
    (pick,) = experiment.propose()
    assert (pick.design, pick.eig, pick.note) == ({"x": 2}, precise.eig, None)


def test_a_batch_too_precise_for_the_grid_is_valued_by_cells() -> None:
    sd = 1e-4
    listed = changed(SLOPE, designs={"x": {"type": "list", "values": [0.01 * sd, 2]}})
    together = measured(listed, sd, "b * x").joint_eig([{"x": 2}, {"x": 0.01 * sd}])
    assert together.method == "cells"
    assert together.se is not None
    assert abs(together.eig - 0.5 * math.log1p(4e8 + 1e-4)) <= 4 * together.se + 1e-4


def test_nothing_is_learnt_of_a_slope_that_an_offset_hides() -> None:
    """The slope alone is wanted: with an offset as wide, one outcome tells ½ log(1 + x²) of it at most."""
    xs = [float(x) for x in np.linspace(0.1, 2, 20).round(3)]
    listed = changed(LINE, designs={"x": {"type": "list", "values": xs}}, targets=["b"])
    experiment = measured(listed, 0.01)
    for x, found in zip(xs, experiment.eig(), strict=True):
        exactly = 0.5 * math.log((1 + x * x + 1e-4) / (1 + 1e-4))
        assert found.se is not None
        assert found.eig == pytest.approx(exactly, abs=1e-4)
        assert abs(found.eig - exactly) <= 4 * found.se
    (pick,) = experiment.propose()
    assert pick.design == {"x": 2.0}


@pytest.mark.parametrize("sd", [0.03, 0.01])
def test_the_best_design_is_found_after_a_precise_outcome(sd: float) -> None:
    """The posterior of offset and slope is then a ridge."""
    listed = changed(LINE, designs={"x": {"type": "list", "values": [-2, -1, 0, 0.5, 1, 2]}})
    (pick,) = measured(listed, sd).propose([({"x": 0}, {"y": 1.3})])
    assert abs(pick.design["x"]) == 2
    assert pick.eig == pytest.approx(exact([0, 2], sd) - exact([0], sd), abs=1e-3)


@pytest.mark.parametrize("n", [1, 4, 500])
def test_many_counts_are_as_sure_as_few(n: int) -> None:
    """Three parameters of which the outcome sees the sum s ~ N(0, 3): H[y] − E H[y | s] by a fine grid of s."""
    spec = {
        "parameters": dict.fromkeys("abc", UNIT),
        "designs": {"x": {"type": "list", "values": [1]}},
        "outcome": {"y": {"family": "binomial", "n": n, "logit": "a + b + c"}},
    }
    (found,) = bc.design.Experiment.from_spec(spec).eig()
    s = np.linspace(-8, 8, 20_001) * math.sqrt(3)
    weights = stats.norm.pdf(s, scale=math.sqrt(3))
    p = stats.binom.pmf(np.arange(n + 1)[:, None], n, special.expit(s))
    weights /= weights.sum()
    truth = special.entr(p @ weights).sum() - special.entr(p).sum(0) @ weights
    assert found.se is not None
    assert abs(found.eig - truth) <= 4 * found.se
    assert found.se < 2e-3


@pytest.mark.parametrize("sds", [(1.0, 1.0), (0.01, 0.5), (1e-4, 1e-3)], ids=str)
@pytest.mark.parametrize("target", ["both", "b"])
def test_several_precise_outcomes_of_a_design_tell_what_the_closed_form_says(
    sds: tuple[float, float], target: str
) -> None:
    """log y ~ N(a + b x, s²) and z ~ N(a x + b, t²): ½ log det(I + X S Xᵀ / s²), less that of a where only b counts."""
    noise = np.diag(np.square(sds))
    spec = {
        "parameters": {name: {"dist": "normal", "loc": 0, "scale": 1} for name in "ab"},
        "designs": {"x": {"type": "float", "low": -2, "high": 2}},
        "outcome": {
            "y": {"family": "lognormal", "mean": "a + b * x", "sd": sds[0]},
            "z": {"family": "normal", "mean": "a * x + b", "sd": sds[1]},
        },
        "targets": ["a", "b"] if target == "both" else ["b"],
    }
    experiment = bc.design.Experiment.from_spec(spec)

    def slopes(x: float) -> Any:
        return np.array([[1, x], [x, 1]])

    seen = ({"x": 0.5}, {"y": math.exp(0.3), "z": 0.2})
    spread = np.linalg.inv(np.eye(2) + slopes(0.5).T @ np.linalg.solve(noise, slopes(0.5)))

    def truth(designs: list[float], spread: Any) -> float:
        x = np.concatenate([slopes(each) for each in designs])
        every = np.kron(np.eye(len(designs)), noise)
        whole = np.linalg.slogdet(x @ spread @ x.T + every)[1] - np.linalg.slogdet(every)[1]
        if target == "both":
            return 0.5 * float(whole)
        given = spread[0, 0] - spread[0, 1] ** 2 / spread[1, 1]
        left = np.linalg.slogdet(given * x[:, :1] @ x[:, :1].T + every)[1] - np.linalg.slogdet(every)[1]
        return 0.5 * float(whole - left)

    for history, width in (([], np.eye(2)), ([seen], spread)):
        for x in (-1.3, 2.0):
            (found,) = experiment.eig([{"x": x}], history)
            assert found.method == "cells"
            assert found.se is not None
            assert found.se < 2e-3
            assert abs(found.eig - truth([x], width)) < 4 * found.se + 1e-6
    joint = experiment.joint_eig([{"x": 1.5}, {"x": -0.5}])
    assert joint.se is not None
    assert abs(joint.eig - truth([1.5, -0.5], np.eye(2))) < 4 * joint.se + 1e-6
