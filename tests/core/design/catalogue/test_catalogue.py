"""Every model of the catalogue is plain JSON, passes the probes, and can be run for a few rounds."""

import json
import math
from typing import Any

import pytest
import torch

from bensemble_core.design import Experiment
from bensemble_core.design.catalogue import CATALOGUE


def test_the_catalogue_has_what_people_ask_for() -> None:
    wanted = (
        "psychometric_logistic_yes_no psychometric_probit_2afc psychometric_weibull_4afc psychometric_gumbel_yes_no "
        "digit_span irt_1pl irt_2pl irt_3pl irt_graded discounting_exponential discounting_hyperbolic "
        "discounting_hyperboloid discounting_quasi_hyperbolic risky_choice memory_retention_power "
        "memory_retention_exponential contrast_sensitivity dose_response_hill_binary dose_response_emax "
        "dose_response_4pl michaelis_menten pharmacokinetics exponential_decay lorentzian_peak ramsey source_location "
        "death_process linear_regression logistic_regression poisson_regression ab_allocation"
    )
    assert set(wanted.split()) <= set(CATALOGUE)


@pytest.mark.parametrize("name", CATALOGUE)
def test_an_entry_is_json_and_runs_for_two_rounds(name: str) -> None:
    """Rounds on a simulated truth: proposals promise something with a small error, and outcomes teach."""
    entry = CATALOGUE[name]
    spec = json.loads(json.dumps(entry.spec))
    assert entry.title
    assert entry.reference
    experiment = Experiment.from_spec(spec)
    truth = {key: float(column[0]) for key, column in experiment.posterior().samples(1, seed=5).items()}
    observations: list[Any] = []
    promised = 0.0
    for turn in range(2):
        pick = experiment.propose(observations)[0]
        assert pick.eig > 0
        assert pick.se < max(0.05, 0.2 * pick.eig)
        assert pick.runner_up is not None
        promised += pick.eig
        observations.append((pick.design, experiment.draw(truth, pick.design, seed=turn)))
    after = experiment.posterior(observations)
    assert 0.001 < promised < 20
    assert after.edge_mass < 1e-6
    for key in after.names:
        assert after.quantile(0.025, key) <= after.mean[key] <= after.quantile(0.975, key)
    taught = experiment.information(observations)  # an entropy may rise after a surprise; the divergence cannot be < 0
    assert taught.kl > -1e-9
    assert taught.surprise < 20
    assert experiment.guards(observations).repeats >= 1
    assert experiment.work(3).evaluations > 0


def named(name: str, value: str, parameters: dict[str, float], design: dict[str, float]) -> float:
    """What a let of an entry comes to."""
    model = Experiment.from_spec(CATALOGUE[name].spec).spec.model
    theta = {key: torch.tensor([x], dtype=torch.float64) for key, x in parameters.items()}
    row = torch.tensor(model.space.encode(design), dtype=torch.float64)
    return float(model.values(theta, row)[value].expand(1)[0])


def chance(name: str, parameters: dict[str, float], design: dict[str, Any], outcome: Any = 1) -> float:
    experiment = Experiment.from_spec(CATALOGUE[name].spec)
    label = experiment.spec.model.outcomes[0].name
    return math.exp(experiment.log_likelihood(parameters, [(design, {label: outcome})]))


@pytest.mark.parametrize(("p", "weight"), [(0.05, 0.1316), (0.5, 0.4206), (0.95, 0.7932)])
def test_probabilities_are_weighted_as_tversky_and_kahneman_do(p: float, weight: float) -> None:
    """p^γ / (p^γ + (1 − p)^γ)^(1/γ) at their γ = 0.61."""
    parameters = {"alpha": 0.88, "gamma": 0.61, "temperature": 1.0}
    assert named("risky_choice", "weight", parameters, {"p": p, "sure": 5}) == pytest.approx(weight, abs=5e-5)


def test_closed_values_of_formulas() -> None:
    e = math.exp
    curve = {"threshold": 0.3, "slope": 2.0, "lapse": 0.01}
    at = {"x": 0.3}
    assert named("psychometric_weibull_2afc", "f", curve, at) == pytest.approx(1 - e(-1))
    assert named("psychometric_gumbel_2afc", "f", curve, at) == pytest.approx(e(-1))
    assert named("psychometric_gumbel_2afc", "f", curve, {"x": 0.8}) == pytest.approx(e(-e(-1)))
    assert named("psychometric_weibull_2afc", "f", curve, {"x": 0.8}) == pytest.approx(1 - e(-e(1)))
    assert chance("psychometric_probit_2afc", curve, at) == pytest.approx(0.5 + 0.49 * 0.5)
    assert chance("quest_plus", {"threshold": -20.0}, {"contrast": -20}) == pytest.approx(0.98 - 0.48 * e(-1))
    assert chance("memory_retention_power", {"a": 0.9, "b": 0.5}, {"delay": 99}) == pytest.approx(0.09)
    hits = {"dprime": 2.0, "criterion": 0.0}
    assert chance("signal_detection", hits, {"signal": "present"}) == pytest.approx(0.8413447, abs=1e-7)
    assert chance("signal_detection", hits, {"signal": "absent"}) == pytest.approx(0.1586553, abs=1e-7)
    item = {"difficulty": -2.5, "discrimination": 0.6, "guess": 0.2}
    assert chance("irt_3pl", {"ability": -2.5}, item) == pytest.approx(0.6)
    hyperbola = {"k": 1 / 30, "temperature": 1.0}
    assert named("discounting_hyperbolic", "discount", hyperbola, {"delay": 30, "now": 50}) == pytest.approx(0.5)
    bent = {"k": 0.1, "s": 0.5, "temperature": 1.0}
    assert named("discounting_hyperboloid", "discount", bent, {"delay": 30, "now": 50}) == pytest.approx(0.5)
    hasty = {"b": 0.7, "d": 0.5 ** (1 / 30), "temperature": 1.0}
    assert named("discounting_quasi_hyperbolic", "discount", hasty, {"delay": 30, "now": 50}) == pytest.approx(0.35)
    kinetics = {"log_ka": math.log(2.0), "log_ke": math.log(1.0), "log_v": math.log(20.0)}
    assert named("pharmacokinetics", "c", kinetics, {"t": math.log(2)}) == pytest.approx(20 * 2 * (1 / 2 - 1 / 4))
    # half an octave of bandwidth to either side of the peak, sensitivity is half of the greatest
    seen = {"gain": 2.0, "frequency": 0.0, "bandwidth": 2.0}
    half = named("contrast_sensitivity", "sensitivity", seen, {"log_contrast": -2, "log_frequency": math.log10(2)})
    assert half == pytest.approx(2 - math.log10(2))
    assert chance("death_process", {"b": math.log(2)}, {"t": 1.0}, 50) == pytest.approx(0.5**50)


def test_nobody_takes_one_gumbel_for_the_other() -> None:
    assert "reversed" in CATALOGUE["psychometric_gumbel_yes_no"].title
    assert "log-Weibull" in CATALOGUE["psychometric_weibull_yes_no"].title


def test_no_two_entries_have_the_same_title() -> None:
    titles = [entry.title for entry in CATALOGUE.values()]
    assert len(set(titles)) == len(titles)
