"""Pictures of models: the expected outcome along a design, for small, middling and large parameters."""

import math
import time
from typing import Any

import pytest
import torch
from scipy import stats

from bensemble_core.design import CATALOGUE, Experiment, preview, read_spec
from bensemble_core.design.spec.outcomes import FAMILIES

ARGUMENTS = {
    "bernoulli": {"logit": 0.4},
    "binomial": {"n": 12.0, "logit": 0.4},
    "categorical": {"logits": [0.1, 0.7, -0.3]},
    "ordinal": {"eta": 0.5, "cuts": [-1.0, 0.2, 1.5]},
    "poisson": {"log_rate": 1.3},
    "negative_binomial": {"mean": 6.0, "dispersion": 0.4},
    "normal": {"mean": 1.5, "sd": 2.0},
    "lognormal": {"mean": 0.3, "sd": 0.6},
    "student_t": {"df": 5.0, "mean": -1.0, "sd": 2.0},
    "beta": {"mean": 0.3, "concentration": 4.0},
    "exponential": {"rate": 0.5},
}


def test_every_family_has_its_mean_here() -> None:
    assert set(ARGUMENTS) == set(FAMILIES)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_the_mean_of_a_family_is_the_average_of_its_quantiles(name: str) -> None:
    n = 40_000
    u = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    arguments = {key: torch.tensor(value, dtype=torch.float64) for key, value in ARGUMENTS[name].items()}
    drawn = FAMILIES[name].quantile(arguments, u)
    assert float(FAMILIES[name].mean(arguments)) == pytest.approx(float(drawn.mean()), abs=2e-3)


def shown(**changes: Any) -> Any:
    spec = {
        "parameters": {"theta": {"dist": "normal", "loc": 7, "scale": 2}},
        "designs": {"xi": {"type": "integer", "low": 1, "high": 15}},
        "outcome": {"y": {"family": "bernoulli", "logit": "theta - xi"}},
        **changes,
    }
    return preview(Experiment(spec=read_spec(spec)))


def test_the_curves_of_the_digit_span_are_logistic_at_prior_quantiles() -> None:
    found = shown()
    assert (found.design, found.outcome, found.meaning) == ("xi", "y", "probability of y = 1")
    assert found.values == tuple(range(1, 16))
    for curve, label, quantile in zip(found.curves.tolist(), found.labels, (0.1, 0.5, 0.9), strict=True):
        theta = float(stats.norm(7, 2).ppf(quantile))
        assert label == f"theta = {theta:.6g}"
        assert curve == pytest.approx([1 / (1 + math.exp(xi - theta)) for xi in found.values], abs=1e-9)


def test_other_designs_stay_at_their_middle_and_small_choices_are_no_axis() -> None:
    designs = {
        "a": {"type": "categorical", "values": ["off", "on"]},
        "b": {"type": "float", "low": 1, "high": 100, "scale": "log"},
        "c": {"type": "float", "low": 0, "high": 4},
    }
    found = shown(designs=designs, outcome={"y": {"family": "normal", "mean": "theta + b + 10 * c", "sd": 1}})
    assert (found.design, found.is_log, len(found.values), found.meaning) == ("b", True, 61, "mean of y")
    assert found.values[30] == pytest.approx(10)
    assert found.curves[1].tolist() == pytest.approx([7 + b + 20 for b in found.values])


def test_classes_show_the_probability_of_one_and_labels_are_named() -> None:
    two = shown(outcome={"y": {"family": "bernoulli", "logit": "theta - xi", "labels": ["wrong", "right"]}})
    assert two.meaning == "probability of y = right"
    three = shown(outcome={"y": {"family": "categorical", "probs": [0.5, 0.3, 0.2], "labels": ["a", "b", "c"]}})
    assert three.meaning == "probability of y = a"
    assert three.curves.tolist() == [pytest.approx([0.5] * 15)] * 3


def test_every_model_of_the_catalogue_has_a_picture_that_is_quick() -> None:
    for name, entry in CATALOGUE.items():
        experiment = Experiment(spec=read_spec(entry.spec))
        seconds = []
        for _ in range(3):  # the machine may be busy once
            started = time.process_time()
            found = preview(experiment)
            seconds.append(time.process_time() - started)
        assert min(seconds) < 0.1, name
        assert found.curves.shape == (3, len(found.values))
        assert found.curves.isfinite().all(), name
