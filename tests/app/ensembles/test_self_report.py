"""An ensemble shows what its method says of it: diagnostics, log evidence, a bound."""

import math
from typing import Any

import pytest

import bensemble_core as bc
from app.db.engine import Database
from app.db.tables import EnsembleResult
from app.ensembles import train as training
from app.ensembles.self_report import bound_draws
from bensemble_core.types import Tensors
from tests.app.conftest import Service
from tests.app.test_loop import start, train

WARNING = "the chains have not met: rhat is 1.3"


class Doubtful(bc.MAP):
    """One network that distrusts itself."""

    def diagnose(self, problem: bc.Problem, state: Tensors) -> bc.Diagnostics:
        return bc.Diagnostics(values={"rhat": 1.3, "ess_bulk": math.nan, "khat": -math.inf}, warnings=(WARNING,))


class Boundless(bc.MAP):
    def bound(self, *_: Any, **__: Any) -> float:
        return math.inf

    def log_evidence(self, problem: bc.Problem, state: Tensors) -> float:
        return math.nan


class Broken(Boundless):
    def bound(self, *_: Any, **__: Any) -> float:
        raise bc.NotFinite("too large")


def test_an_ensemble_shows_its_diagnostics_and_a_ranking_repeats_the_warnings_once(
    service: Service, digits: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "posterior_of", lambda stored: Doubtful(epochs=2))
    project, pool = start(service, digits)
    ensemble = train(service, project, posterior={"name": "map"})
    told = {"values": {"rhat": 1.3, "ess_bulk": None, "khat": None}, "warnings": [WARNING]}
    assert ensemble["diagnostics"] == told
    assert service.get(f"/projects/{project['id']}/ensembles")["items"][0]["diagnostics"] == told
    assert service.get(f"/jobs/{ensemble['job_id']}")["result"]["notes"] == [WARNING]
    for wanted, times in (({"acquisition": {"name": "entropy"}}, 1), ({"acquisition": {"name": "random"}}, 0)):
        asked = service.post(f"/pools/{pool['id']}/rankings", {"k": 3, **wanted}, 202)
        service.run_jobs()
        ranking = service.get(f"/rankings/{asked['ranking']['id']}")
        assert ranking["status"] == "succeeded"
        assert ranking["notes"].count(WARNING) == times  # random rows do not depend on the ensemble


def test_evidence_and_bound_are_those_of_the_fitted_posterior(service: Service, digits: Any) -> None:
    project, _ = start(service, digits)
    waiting = service.post(f"/projects/{project['id']}/ensembles", {}, 202)["ensemble"]
    assert {waiting[name] for name in ("diagnostics", "log_evidence", "bound")} == {None}
    for name in ("laplace", "mfvi", "renyi"):
        ensemble = train(service, project, posterior={"name": name, "epochs": 20})
        assert ensemble["status"] == "succeeded"
        assert ensemble["diagnostics"] is None
        with service.services.database.read() as session:
            stored = session.get_one(EnsembleResult, ensemble["id"])
        fitted = bc.load(service.services.objects.local_path(stored.fitted_key))
        if name == "laplace":
            assert (ensemble["log_evidence"], ensemble["bound"]) == (fitted.log_evidence, None)
            continue
        x, y = digits
        labelled = (x[:20], [int(label) for label in y[:20]])
        assert ensemble["log_evidence"] is None
        n_draws = {"mfvi": 2, "renyi": 10}[name]  # of 20 epochs with one draw a step, and with five
        assert ensemble["bound"] == pytest.approx(fitted.bound(labelled, samples=n_draws), rel=1e-6)
        assert ensemble["bound"] < 0


@pytest.mark.parametrize("method", [Boundless, Broken])
def test_a_number_that_is_not_finite_is_null_and_costs_no_training(
    method: type[bc.MAP], sqlite_database: Database, make_service: Any, digits: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "posterior_of", lambda stored: method(epochs=1))
    service = make_service(sqlite_database)
    project, _ = start(service, digits)
    ensemble = train(service, project, posterior={"name": "map"})
    assert (ensemble["status"], ensemble["log_evidence"], ensemble["bound"]) == ("succeeded", None, None)


def test_a_bound_takes_a_small_share_of_the_passes_of_its_training() -> None:
    assert [bound_draws(n) for n in (0, 1, 19, 20, 55, 100, 10_000)] == [1, 1, 1, 2, 5, 10, 10]
