"""Every model of the catalogue is plain JSON, passes the probes, and can be run for a few rounds."""

import json
from typing import Any

import pytest

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
