"""Ensembles are calibrated by rows that their training did not see; predictions, metrics and scores are of one kind."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bensemble_core as bc
from app.db.engine import Database
from app.db.tables import Job
from tests.app.conftest import Service
from tests.app.test_loop import start, train

SURE = {"name": "deep_ensemble", "members": 2, "epochs": 60, "lr": 0.02}  # learns noisy labels by heart


def noisy(service: Service, n: int, *, evaluation: bool, **options: Any) -> tuple[dict[str, Any], Any, list[str]]:
    """Two classes that overlap: all rows of the pool came with labels."""
    g = np.random.default_rng(0)
    x = g.normal(size=(n + 200, 4)).round(4)
    y = ["yes" if value > 0 else "no" for value in x[:, 0] + g.normal(size=n + 200)]
    task = {"kind": "classification", "classes": ["no", "yes"]}
    project = service.project(task=task, input={"shape": [4]}, model={"name": "mlp"}, **options)
    body = {"name": "all", "rows": x[:n].tolist(), "labels": y[:n]}
    service.post(f"/projects/{project['id']}/pools", body, 201)
    if evaluation:
        body = {"name": "test", "purpose": "evaluation", "rows": x[n:].tolist(), "labels": y[n:]}
        service.post(f"/projects/{project['id']}/pools", body, 201)
    return project, x, y


def loaded(service: Service, ensemble: dict[str, Any], folder: Path) -> bc.Ensemble:
    path = folder / f"{ensemble['id']}.safetensors"
    path.write_bytes(service.client.get(f"/v1/ensembles/{ensemble['id']}/file").content)
    found = bc.load(path)
    assert isinstance(found, bc.Ensemble)
    return found


def test_folds_calibrate_a_named_posterior_and_all_that_is_said_is_calibrated(service: Service, tmp_path: Path) -> None:
    project, x, y = noisy(service, 60, evaluation=True)
    plain = train(service, project, posterior=SURE, calibrate=False)
    asked = train(service, project, posterior=SURE, calibrate="folds")
    assert asked["status"] == "succeeded", asked["error"]
    assert "calibration" not in plain["metrics"]
    told = asked["metrics"]["calibration"]
    assert (told["by"], told["n"]) == ("folds", 60)
    assert told["temperature"] > 1.3
    before, after = asked["metrics"]["uncalibrated"], asked["metrics"]
    assert before["nll"] == pytest.approx(plain["metrics"]["nll"], rel=1e-6)  # the same members
    assert after["nll"] < 0.95 * before["nll"]
    assert after["accuracy"] == pytest.approx(plain["metrics"]["accuracy"], abs=0.03)
    ensemble = loaded(service, asked, tmp_path)
    assert ensemble.calibration is not None
    assert ensemble.calibration.temperature == pytest.approx(told["temperature"], rel=1e-6)
    answers = torch.tensor([["no", "yes"].index(label) for label in y[60:]])
    assert bc.metrics.nll(ensemble.predict(x[60:]), answers) == pytest.approx(after["nll"], rel=1e-5)
    rows = x[60:63].tolist()
    predicted = service.post(f"/ensembles/{asked['id']}/predictions", {"rows": rows}, 202)
    service.run_jobs()
    items = service.get(f"/predictions/{predicted['prediction']['id']}")["items"]
    assert [item["probabilities"]["yes"] for item in items] == pytest.approx(
        ensemble.predict(np.array(rows)).mean()[:, 1].tolist(), rel=1e-4
    )


def test_a_hold_out_calibrates_and_its_metrics_are_of_the_other_half(service: Service, tmp_path: Path) -> None:
    project, _, _ = noisy(service, 200, evaluation=False, holdout=0.4, posterior={**SURE, "epochs": 300})
    ensemble = train(service, project)
    metrics = ensemble["metrics"]
    assert (metrics["measured_on"], metrics["calibration"]["by"]) == ("holdout", "holdout")
    assert metrics["calibration"]["n"] == metrics["n"] > 30
    assert metrics["nll"] < metrics["uncalibrated"]["nll"]
    assert loaded(service, ensemble, tmp_path).calibration is not None
    off = train(service, project, calibrate=False)
    assert off["metrics"]["nll"] == pytest.approx(metrics["uncalibrated"]["nll"], rel=1e-6)
    assert loaded(service, off, tmp_path).calibration is None


def test_where_nothing_can_be_learnt_from_the_metrics_say_what_to_do(
    sqlite_database: Database, make_service: Any
) -> None:
    service = make_service(sqlite_database)
    project, _, _ = noisy(service, 40, evaluation=True, posterior={"name": "map", "epochs": 2})
    told = train(service, project)["metrics"]["calibration"]
    assert told["by"] == "none"
    assert '"folds"' in told["note"]
    service.client.patch(f"/v1/projects/{project['id']}", json={"calibrate": False}).raise_for_status()
    assert "calibration" not in train(service, project)["metrics"]


def test_auto_is_calibrated_by_its_own_folds_unless_told_not_to(
    sqlite_database: Database, make_service: Any, digits: Any, tmp_path: Path
) -> None:
    service = make_service(sqlite_database)
    project, _ = start(service, digits, n_seed=40)
    auto = train(service, project, posterior={"name": "auto"}, calibrate="folds")
    assert auto["metrics"]["calibration"]["by"] == "own folds"
    off = train(service, project, posterior={"name": "auto"}, calibrate=False)
    assert loaded(service, off, tmp_path).calibration is None
    assert off["metrics"]["nll"] == pytest.approx(auto["metrics"]["uncalibrated"]["nll"], rel=1e-6)


@pytest.mark.parametrize("fails_at", [3, 6])
def test_folds_that_were_stopped_go_on_and_end_the_same(
    fails_at: int, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fit 6 is the last one, on all rows."""
    service.services.settings.checkpoint_seconds = 0.0
    wanted = {"posterior": {**SURE, "epochs": 4}, "calibrate": "folds"}
    project, _, _ = noisy(service, 40, evaluation=True)
    whole = train(service, project, **wanted)
    fits: list[Any] = []
    fit = bc.crossfit.fit

    def counted(posterior: Any, *arguments: Any, **options: Any) -> Any:
        fits.append(posterior)
        if len(fits) == fails_at:
            raise RuntimeError("the machine fell over")
        return fit(posterior, *arguments, **options)

    monkeypatch.setattr(bc.crossfit, "fit", counted)
    cut = train(service, project, **wanted)
    assert cut["status"] == "queued"
    with service.services.database.write() as session:
        job = session.get_one(Job, cut["job_id"])
        job.run_at = job.created_at
    service.run_jobs()
    cut = service.get(f"/ensembles/{cut['id']}")
    assert cut["status"] == "succeeded", cut["error"]
    assert len(fits) <= 8  # six, the one that failed, and at most the one whose end no snapshot had
    assert cut["metrics"] == whole["metrics"]


def test_what_cannot_be_done_is_refused_with_advice(sqlite_database: Database, make_service: Any) -> None:
    service = make_service(sqlite_database)
    project, _, _ = noisy(service, 40, evaluation=False)
    at = f"/projects/{project['id']}/ensembles"
    refused = service.post(at, {"posterior": SURE, "calibrate": "folds", "tune": {"trials": 2}}, 422)
    assert "tune with calibrate: true" in refused["detail"]
    refused = service.post(at, {"posterior": {"name": "auto"}, "tune": {"trials": 2}}, 422)
    assert "by itself" in refused["detail"]
    assert "folds" in str(service.post(at, {"calibrate": "yes"}, 422))
    costly = make_service(sqlite_database, max_training_cost=3 * 60 * 2 * 17_666)
    refused = costly.post(at, {"posterior": SURE, "calibrate": "folds"}, 422)
    assert "calibrate: true" in refused["detail"]
