"""Mixtures of Gaussian cells against closed forms and brute force."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

import bensemble_core as bc
from bensemble_core.design.cells.fit import fit
from bensemble_core.design.cells.gains import cell_gains
from bensemble_core.design.cells.lattice import lattice
from bensemble_core.design.cells.mixture_entropy import mixture_entropy
from bensemble_core.design.cells.precise import Precise, uses_cells

UNIT = {"dist": "normal", "loc": 0, "scale": 1}
NORMAL = 0.5 * math.log(2 * math.pi * math.e)


def experiment(mean: str, sd: float, *names: str, targets: list[str] | None = None, family: str = "lognormal") -> Any:
    spec = {
        "parameters": dict.fromkeys(names, UNIT),
        "designs": {"x": {"type": "float", "low": -2, "high": 2}},
        "outcome": {"y": {"family": family, "mean": mean, "sd": sd}},
        "targets": targets or list(names),
    }
    return bc.design.Experiment.from_spec(spec)


def linear_gain(xs: list[float], before: list[float], sd: float, k: int, targets: list[int]) -> float:
    def half_log_det(designs: list[float]) -> float:
        x = np.array([[design**power for power in range(k)] for design in designs]).reshape(-1, k)
        covariance = np.linalg.inv(np.eye(k) + x.T @ x / sd**2)[np.ix_(targets, targets)]
        return 0.5 * float(np.linalg.slogdet(covariance)[1])

    return half_log_det(before) - half_log_det([*before, *xs])


def gains(made: Any, observations: list[Any], xs: list[float]) -> tuple[Any, Any]:
    rows = np.array([made.spec.model.space.encode({"x": x}) for x in xs])
    return cell_gains(made.spec.model, made._events(observations), rows, made.memory)


@pytest.mark.parametrize(("k", "spacing"), [(1, 0.4), (2, 0.56), (3, 1.0)])
def test_cells_have_the_moments_of_the_normal_that_they_make_up(k: int, spacing: float) -> None:
    cells = lattice(k, spacing, 6.0)
    covariance = (cells.weights * cells.centres.T) @ cells.centres + cells.sd**2 * np.eye(k)
    np.testing.assert_allclose(covariance, np.eye(k), atol=1e-12)
    np.testing.assert_allclose(cells.weights @ cells.centres, 0, atol=1e-12)


def test_the_entropy_of_one_normal_and_of_many_far_apart_is_exact() -> None:
    one, off = mixture_entropy(np.array([[3.0]]), np.array([[1e-3]]), np.ones(1))
    assert one[0] == pytest.approx(NORMAL + math.log(1e-3), abs=1e-7)
    assert off[0] < 1e-6
    means = 1e3 * np.arange(5.0)[None]
    several, _ = mixture_entropy(means, np.full((1, 5), 1e-2), np.full(5, 0.2))
    assert several[0] == pytest.approx(NORMAL + math.log(1e-2) + math.log(5), abs=1e-6)


@pytest.mark.parametrize("sd", [1.0, 0.03, 1e-4])
@pytest.mark.parametrize(("k", "targets"), [(1, [0]), (2, [0, 1]), (2, [1]), (3, [0, 1, 2])])
def test_linear_models_are_exact_at_any_noise(sd: float, k: int, targets: list[int]) -> None:
    names = ["a", "b", "c"][:k]
    mean = " + ".join(["a", "b * x", "c * x ** 2"][:k])
    made = experiment(mean, sd, *names, targets=[names[i] for i in targets])
    for before in ([], [0.7], [0.7, -1.5]):
        said = [({"x": x}, {"y": math.exp(0.3 - 0.2 * x)}) for x in before]
        xs = [-2.0, 0.1, 2.0]
        found, se = gains(made, said, xs)
        true = [linear_gain([x], before, sd, k, targets) for x in xs]
        np.testing.assert_allclose(found, true, atol=2e-5)
        assert (np.abs(found - true) <= 4 * se).all()


def test_the_evidence_of_a_linear_model_is_exact_and_no_order_matters() -> None:
    made = experiment("a + b * x", 0.01, "a", "b", family="normal")
    said = [({"x": 1.0}, {"y": 0.4}), ({"x": -1.0}, {"y": 0.1}), ({"x": 0.3}, {"y": 0.305})]
    precise = Precise(model=made.spec.model)
    orders = [made._events(list(order)) for order in itertools.permutations(said)]
    found = [fit(precise, precise.observed([events]), 0.4)[0].log_evidence for events in orders]
    exact = made.posterior(said)  # in closed form
    assert exact.method == "gaussian"
    np.testing.assert_allclose(found, exact.log_evidence, atol=1e-6)


@pytest.mark.parametrize("before", [[], [(0.5, 0.62)]])
def test_a_curve_agrees_with_brute_force(before: list[tuple[float, float]]) -> None:
    """y = exp(a/2 − e^(b/2) x) + noise of 2 %: p(y) by a lattice of 2,000² points, blurred by the noise."""
    sd = 0.02
    made = experiment("exp(0.5 * a - exp(0.5 * b) * x)", sd, "a", "b", family="normal")
    axis = np.linspace(-6, 6, 2001)
    a, b = axis[:, None], axis[None, :] + 0.003 * np.sin(37 * axis)[:, None]  # rows shifted against each other
    log_weights = -0.5 * (a**2 + b**2)
    for x, y in before:
        log_weights = log_weights - 0.5 * ((y - np.exp(0.5 * a - np.exp(0.5 * b) * x)) / sd) ** 2
    weights = np.exp(log_weights - log_weights.max()).ravel()
    xs = [0.1, 0.8, 2.0]
    found, se = gains(made, [({"x": x}, {"y": y}) for x, y in before], xs)
    for x, value, error in zip(xs, found, se, strict=True):
        predicted = np.exp(0.5 * a - np.exp(0.5 * b) * x).ravel()
        counts, edges = np.histogram(predicted, bins=np.arange(-0.2, 8, sd / 6), weights=weights / weights.sum())
        step = edges[1] - edges[0]
        kernel = np.exp(-0.5 * (step * np.arange(-48, 49) / sd) ** 2)
        density = np.convolve(counts, kernel / kernel.sum(), "same") / step
        entropy = -float(np.sum(density[density > 0] * np.log(density[density > 0])) * step)
        true = entropy - NORMAL - math.log(sd)
        assert abs(value - true) <= 4 * error + 2e-3
        assert value == pytest.approx(true, abs=0.02)


def test_cells_are_for_one_normal_outcome_of_few_real_parameters() -> None:
    assert uses_cells(experiment("a * x", 1, "a").spec.model)
    counted = {"parameters": {"a": UNIT}, "designs": {"x": {"type": "integer", "low": 1, "high": 3}}}
    outcome = {"y": {"family": "bernoulli", "logit": "a - x"}}
    assert not uses_cells(bc.design.Experiment.from_spec({**counted, "outcome": outcome}).spec.model)
