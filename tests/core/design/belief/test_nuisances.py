"""What particles say of targets among nuisances, beside closed forms: the stated error covers the truth."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from bensemble_core.design import Experiment
from bensemble_core.design.belief.belief import PointBelief
from bensemble_core.design.belief.neighbours import N_GROUPS, N_NEIGHBOURS, neighbourhoods

K = 5
NAMES = [f"t{i}" for i in range(K)]


def linear(targets: list[str], sd: float, seed: int) -> tuple[Experiment, Any]:
    """log y ~ N(x · θ, sd²) with θ ~ N(0, I): linear and normal, but not stated as such, and so seen by particles."""
    x = np.random.default_rng(seed).normal(size=(7, K)).round(3)
    spec = {
        "parameters": {name: {"dist": "normal", "loc": 0, "scale": 1} for name in NAMES},
        "designs": [{f"x{i}": float(v) for i, v in enumerate(row)} for row in x],
        "outcome": {
            "y": {"family": "lognormal", "mean": " + ".join(f"x{i} * t{i}" for i in range(K)), "sd": sd},
        },
        "targets": targets,
        "select": {"seed": seed},
    }
    return Experiment.from_spec(spec), x


def log_dets(x: Any, spread: Any, targets: list[str], sd: float) -> float:
    """I(y; targets) of the designs x [n, K] together, for θ ~ N(·, spread)."""
    t = [NAMES.index(name) for name in targets]
    rest = [i for i in range(K) if i not in t]
    given = spread[np.ix_(rest, rest)] - spread[np.ix_(rest, t)] @ np.linalg.solve(
        spread[np.ix_(t, t)], spread[np.ix_(t, rest)]
    )
    noise = sd**2 * np.eye(len(x))
    whole, left = x @ spread @ x.T + noise, x[:, rest] @ given @ x[:, rest].T + noise
    return float(0.5 * (np.linalg.slogdet(whole)[1] - np.linalg.slogdet(left)[1]))


@pytest.mark.parametrize("n_observed", [0, 1, 4], ids=["prior", "reweighted", "tempered"])
@pytest.mark.parametrize("targets", [["t0"], ["t0", "t3"], ["t0", "t1", "t2"]], ids=len)
def test_information_on_targets_lies_within_its_error_of_the_closed_form(targets: list[str], n_observed: int) -> None:
    for seed, sd in ((0, 0.5), (1, 0.5), (2, 2.0)):
        experiment, x = linear(targets, sd, seed)
        designs = experiment.designs()
        assert designs is not None
        rng = np.random.default_rng(seed)
        y = x[:n_observed] @ rng.normal(size=K) + sd * rng.normal(size=n_observed)
        observed = [(design, {"y": math.exp(v)}) for design, v in zip(designs, y, strict=False)]
        spread = np.linalg.inv(np.eye(K) + x[:n_observed].T @ x[:n_observed] / sd**2)
        for row, found in zip(x[4:], experiment.eig(designs[4:], observed), strict=True):
            assert found.eig == pytest.approx(log_dets(row[None], spread, targets, sd), abs=3.5 * found.se)
            assert found.se < 0.15


@pytest.mark.parametrize("targets", [["t0"], ["t0", "t1"], NAMES], ids=len)
def test_joint_information_of_a_batch_lies_within_its_error_too(targets: list[str]) -> None:
    experiment, x = linear(targets, 2.0, 3)
    designs = experiment.designs()
    assert designs is not None
    found = experiment.joint_eig(designs[:2])
    assert found.eig == pytest.approx(log_dets(x[:2], np.eye(K), targets, 2.0), abs=3.5 * found.se)
    assert 0 < found.se < 0.1


def test_a_listed_target_among_continuous_nuisances_agrees_with_the_grid() -> None:
    used = {
        "kind": {"dist": "categorical", "values": [0, 1, 3], "probs": [0.5, 0.3, 0.2]},
        "t": {"dist": "normal", "loc": 0, "scale": 1},
    }
    idle = {f"idle{i}": {"dist": "normal", "loc": 0, "scale": 1} for i in range(3)}
    spec = {
        "designs": {"x": {"type": "list", "values": [-1, 0, 1]}},
        "outcome": {"y": {"family": "bernoulli", "logit": "2 * (t - x) + kind"}},
    }
    for targets in (["kind"], ["t"]):
        exact = Experiment.from_spec({**spec, "parameters": used, "targets": targets})
        rough = Experiment.from_spec({**spec, "parameters": {**used, **idle}, "targets": targets})
        for one, other in zip(exact.eig(), rough.eig(), strict=True):
            assert other.eig == pytest.approx(one.eig, abs=4 * other.se)
            assert other.se < 5e-3


def test_neighbours_share_their_targets_and_keep_values_of_a_list_apart() -> None:
    spec = {
        "parameters": {
            "kind": {"dist": "categorical", "values": [0, 1, 3], "probs": [0.5, 0.3, 0.2]},
            **{name: {"dist": "normal", "loc": 0, "scale": 1} for name in NAMES[:4]},
        },
        "designs": {"x": {"type": "list", "values": [0]}},
        "outcome": {"y": {"family": "bernoulli", "logit": "t0 - x + t1 + t2 + t3 + kind"}},
        "targets": ["kind", "t0"],
    }
    experiment = Experiment.from_spec(spec)
    belief, prior = experiment.posterior(), experiment.spec.model.prior
    assert isinstance(belief, PointBelief)
    grouped = neighbourhoods(prior, belief)
    points, weights = grouped.points, grouped.weights
    assert points.groups is not None
    assert points.n == N_GROUPS * N_NEIGHBOURS
    assert float(weights.sum()) == pytest.approx(1)
    for name in ("kind", "t0"):
        by_group = points.values[name].reshape(N_GROUPS, -1)
        assert float(by_group.std(1).max()) < 1e-12
    share = torch.tensor([float((points.values["kind"] == value).double() @ weights) for value in (0, 1, 3)])
    torch.testing.assert_close(share, torch.tensor([0.5, 0.3, 0.2]), atol=0.015, rtol=0)
    assert abs(float(points.values["t1"] @ weights)) < 0.05


@pytest.mark.parametrize("targets", [["a"], ["b"], ["c"], ["a", "b"]], ids="".join)
@pytest.mark.parametrize("n_trials", [10, 100])
def test_a_posterior_does_not_depend_on_what_is_wanted(targets: list[str], n_trials: int) -> None:
    spec = {
        "parameters": {
            "a": {"dist": "normal", "loc": 0, "scale": 1},
            "b": {"dist": "lognormal", "loc": 0.5, "scale": 0.5},
            "c": {"dist": "beta", "a": 2, "b": 20},
        },
        "designs": {"x": {"type": "float", "low": -4, "high": 4}},
        "outcome": {"y": {"family": "bernoulli", "prob": "c + (1 - c) * ncdf(b * (x - a))"}},
    }
    rng = np.random.default_rng(n_trials)
    p = {x: 0.08 + 0.92 * 0.5 * math.erfc(2 * (0.5 - x) / math.sqrt(2)) for x in rng.uniform(-4, 4, n_trials)}
    history = [({"x": float(x)}, {"y": int(rng.random() < chance)}) for x, chance in p.items()]
    whole = Experiment.from_spec(spec).posterior(history)
    part = Experiment.from_spec({**spec, "targets": targets}).posterior(history)
    for name in "abc":
        assert part.mean[name] == pytest.approx(whole.mean[name], abs=0.1 * whole.sd[name])
        assert part.sd[name] == pytest.approx(whole.sd[name], rel=0.1)


@pytest.mark.parametrize("sd", [0.3, 0.03, 0.001])
@pytest.mark.parametrize(("target", "xs"), [("a", (1, -1)), ("a", (2,)), ("c", (1,)), ("b", (1, 1))])
def test_a_precise_posterior_of_three_has_the_moments_of_the_closed_form(
    sd: float, target: str, xs: tuple[int, ...]
) -> None:
    spec = {
        "parameters": {name: {"dist": "normal", "loc": 0, "scale": 1} for name in "abc"},
        "designs": {"x": {"type": "list", "values": [-2, -1, 0, 1, 2]}},
        "outcome": {"y": {"family": "normal", "mean": "a + b * x + c * x * x + 0 * exp(a)", "sd": sd}},
        "targets": [target],
    }
    rows, y = np.array([[1, x, x * x] for x in xs]), np.array([0.5, 0.45])[: len(xs)]
    spread = np.linalg.inv(np.eye(3) + rows.T @ rows / sd**2)
    mean, sds = spread @ rows.T @ y / sd**2, np.sqrt(spread.diagonal())
    belief = Experiment.from_spec(spec).posterior([({"x": x}, {"y": v}) for x, v in zip(xs, y, strict=True)])
    for name, exact, width in zip("abc", mean, sds, strict=True):
        assert belief.mean[name] == pytest.approx(exact, abs=0.1 * width)
        assert belief.sd[name] == pytest.approx(width, rel=0.1)


@pytest.mark.parametrize("sd", [0.03, 0.1, 0.5])
@pytest.mark.parametrize("n_observed", [0, 1, 3])
def test_a_precise_outcome_of_three_parameters_has_an_error_that_covers(sd: float, n_observed: int) -> None:
    """Of a family that cells do not take: even nodes of the nuisances stood so far apart that each told by itself."""
    designs = [{"u": 1.5, "v": -1.5, "w": -2.5}, {"u": 0.6, "v": 2.5, "w": -1.0}]
    spec: dict[str, Any] = {
        "parameters": {name: {"dist": "normal", "loc": 0, "scale": 1} for name in "abc"},
        "designs": designs,
        "outcome": {"y": {"family": "normal", "mean": "u * a + v * b + w * c", "sd": sd}},
        "targets": ["a"],
    }
    observed = [({"u": -1.2, "v": 0.6, "w": -0.8}, {"y": 0.5})] * n_observed
    exact = Experiment.from_spec(spec).eig(None, observed)
    heavy = {**spec, "outcome": {"y": {**spec["outcome"]["y"], "family": "student_t", "df": 1e6}}}
    for found, true in zip(Experiment.from_spec(heavy).eig(None, observed), exact, strict=True):
        assert found.se is not None
        assert abs(found.eig - true.eig) < 3 * found.se
        assert sd < 0.5 or found.se < 0.15
