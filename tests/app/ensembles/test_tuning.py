"""A training may first tune its posterior: a search that says what it tried, and goes on where it was stopped."""

from pathlib import Path
from typing import Any

import pytest

import bensemble_core as bc
from app.db.engine import Database
from app.db.tables import Job
from app.queue.context import JobContext
from tests.app.conftest import Service
from tests.app.test_loop import start, train

SMALL = {"name": "deep_ensemble", "members": 2, "epochs": 4}


def file_of(service: Service, ensemble: dict[str, Any]) -> bytes:
    return service.client.get(f"/v1/ensembles/{ensemble['id']}/file").content


def without_seconds(ensemble: dict[str, Any]) -> Any:
    tuning = ensemble["tuning"]
    return {**tuning, "trials": [{**trial, "seconds": None} for trial in tuning["trials"]]}


def test_a_tuned_ensemble_says_what_was_tried_and_chosen_as_the_library_has_it(
    service: Service, digits: Any, tmp_path: Path
) -> None:
    project, _ = start(service, digits, n_seed=40)
    asked = service.post(
        f"/projects/{project['id']}/ensembles", {"posterior": SMALL, "seed": 3, "tune": {"trials": 4}}, 202
    )
    assert asked["ensemble"]["tuning"] is None
    service.run_jobs()
    ensemble = service.get(f"/ensembles/{asked['ensemble']['id']}")
    assert (ensemble["status"], ensemble["n_labels"]) == ("succeeded", 40)
    x, y = digits
    tuned = bc.tune(
        bc.DeepEnsemble(members=2, epochs=4),
        project["model"],
        (x[:40], [int(label) for label in y[:40]]),
        likelihood=bc.Categorical(n_classes=10),
        trials=4,
        seed=3,
    )
    assert ensemble["tuning"]["metric"] == "nll"
    assert ensemble["tuning"]["chosen"] == tuned.settings
    trials = ensemble["tuning"]["trials"]
    assert [t["options"] for t in trials] == [t.settings for t in tuned.trials]
    assert [t["value"] for t in trials] == pytest.approx([t.value for t in tuned.trials], rel=1e-5)
    assert all(t["seconds"] > 0 for t in trials)
    assert trials[0]["options"] == {"lr": 0.01, "prior.scale": 1.0}  # what was given
    assert ensemble["posterior"]["lr"] == tuned.settings["lr"]
    assert (ensemble["posterior"]["members"], ensemble["posterior"]["epochs"]) == (2, 4)
    path = tmp_path / "e"
    path.write_bytes(file_of(service, ensemble))
    assert bc.load(path).problem.prior == bc.Normal(scale=tuned.settings["prior.scale"])
    progress = service.get(f"/jobs/{asked['job']['id']}")["progress"]
    assert progress["done"] == progress["total"]
    assert service.get(f"/projects/{project['id']}")["posterior"]["lr"] == 0.01  # the project's own stays as it is
    assert train(service, project, posterior=SMALL)["tuning"] is None


@pytest.mark.parametrize("fails_at", [1, 3, 5])
def test_a_search_that_was_stopped_runs_no_trial_twice_and_ends_the_same(
    fails_at: int, service: Service, digits: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fit 5 is the last one, on all rows."""
    project, _ = start(service, digits, n_seed=40)
    wanted = {"posterior": SMALL, "tune": {"trials": 4}}
    whole = train(service, project, **wanted)
    fits: list[Any] = []
    fit = bc.tuning.fit

    def counted(posterior: Any, *arguments: Any, **options: Any) -> Any:
        fits.append(posterior)
        if len(fits) == fails_at:
            raise RuntimeError("the machine fell over")
        return fit(posterior, *arguments, **options)

    monkeypatch.setattr(bc.tuning, "fit", counted)
    cut = train(service, project, **wanted)
    assert cut["status"] == "queued"  # to be tried again, after a while
    with service.services.database.write() as session:
        job = session.get_one(Job, cut["job_id"])
        assert job.checkpoint is not None
        assert len(job.checkpoint.get("trials", [])) == fails_at - 1
        job.run_at = job.created_at
    service.run_jobs()
    cut = service.get(f"/ensembles/{cut['id']}")
    assert cut["status"] == "succeeded"
    assert len(fits) == 6  # four trials and the last fit, and the one that failed
    assert without_seconds(cut) == without_seconds(whole)
    assert (cut["posterior"], cut["metrics"]) == (whole["posterior"], whole["metrics"])
    assert file_of(service, cut) == file_of(service, whole)


def test_trials_of_another_search_are_forgotten(sqlite_database: Database, make_service: Any, digits: Any) -> None:
    """As after an upgrade that changed the ranges: they are of no use, and the training is not lost for it."""
    service = make_service(sqlite_database)
    project, _ = start(service, digits, n_seed=40)
    wanted = {"posterior": SMALL, "tune": {"trials": 2}}
    whole = train(service, project, **wanted)
    asked = service.post(f"/projects/{project['id']}/ensembles", wanted, 202)
    with service.services.database.write() as session:
        session.get_one(Job, asked["job"]["id"]).checkpoint = {
            "watermark": whole["watermark"],
            "digest": whole["snapshot_hash"],
            "trials": [{"options": {"lr": 7.0}, "value": 0.0, "seconds": 1.0}],
        }
    service.run_jobs()
    second = service.get(f"/ensembles/{asked['ensemble']['id']}")
    assert second["status"] == "succeeded", second["error"]
    assert without_seconds(second) == without_seconds(whole)


def test_a_warm_start_is_tuned_too_and_a_schedule_may_ask_for_it(
    sqlite_database: Database, make_service: Any, digits: Any
) -> None:
    service = make_service(sqlite_database)
    project, pool = start(service, digits)
    train(service, project, posterior=SMALL)
    warm = train(service, project, posterior=SMALL, tune={"trials": 1}, warm_start=True)
    fresh = train(service, project, posterior=SMALL, tune={"trials": 1})
    assert without_seconds(warm) == without_seconds(fresh)  # the trials start fresh
    assert warm["metrics"]["nll"] != fresh["metrics"]["nll"]
    at = f"/projects/{project['id']}"
    training = {"posterior": SMALL, "tune": {"trials": 2}}
    schedule = service.post(f"{at}/schedules", {"every_labels": 1, "training": training}, 201)
    assert schedule["training"]["tune"] == {"trials": 2}
    label = {"pool_id": pool["id"], "row": 50, "value": digits[1][50]}
    service.post(f"{at}/labels", {"labels": [label]}, 201)
    service.run_jobs()
    newest = service.get(f"{at}/ensembles")["items"][-1]
    assert newest["origin"] == f"schedule:{schedule['id']}"
    assert len(newest["tuning"]["trials"]) == 2


def test_a_search_that_cannot_be_done_is_refused_with_advice(
    sqlite_database: Database, make_service: Any, digits: Any
) -> None:
    service = make_service(sqlite_database, max_training_cost=1e6)
    task = {"kind": "classification", "classes": [str(c) for c in range(10)]}
    project = service.project(task=task, posterior={"name": "map", "epochs": 10})
    at = f"/projects/{project['id']}"
    rows = {"name": "p", "rows": digits[0][:1].tolist(), "labels": digits[1][:1]}
    service.post(f"{at}/pools", rows, 201)
    for trials in (0, 201, 2.5, "3"):
        service.post(f"{at}/ensembles", {"tune": {"trials": trials}}, 422)
    n_weights = 64 * 32 + 32 + 32 * 10 + 10
    room = int(1e6 // (10 * n_weights)) - 1
    problem = service.post(f"{at}/ensembles", {"tune": {"trials": room + 1}}, 422)
    assert f"room for {room} trials" in problem["detail"]
    assert problem["errors"][0]["pointer"] == "/tune/trials"
    expensive = {"every_labels": 5, "training": {"tune": {"trials": 200}}}
    assert "the cap is" in service.post(f"{at}/schedules", expensive, 422)["detail"]
    asked = service.post(f"{at}/ensembles", {"tune": {"trials": room}}, 202)
    service.run_jobs()
    assert "label some more" in service.get(f"/jobs/{asked['job']['id']}")["error"]["detail"]
    nothing = service.project(task={**task, "prior": None}, posterior={"name": "map", "epochs": 0})
    problem = service.post(f"/projects/{nothing['id']}/ensembles", {"tune": {"trials": 3}}, 422)
    assert "nothing to tune: no option of map" in problem["detail"]
    assert "deep_ensemble" in problem["detail"]


def test_a_cancel_ends_a_search_within_a_trial(
    sqlite_database: Database, make_service: Any, digits: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = make_service(sqlite_database)
    project, _ = start(service, digits)
    heard: list[str] = []
    progress = JobContext.progress

    def cancelled_soon(self: JobContext, done: float, total: float, message: str = "", **options: Any) -> None:
        heard.append(message)
        self.is_cancelled = message.startswith("trial 2 of 3: epoch 2")
        progress(self, done, total, message, **options)

    monkeypatch.setattr(JobContext, "progress", cancelled_soon)
    ensemble = train(service, project, posterior=SMALL, tune={"trials": 3})
    assert ensemble["status"] == "cancelled"
    assert heard[-1].startswith("trial 2 of 3: epoch 2 of 4, loss")
    assert sum(message == "trial 1 of 3: measuring" for message in heard) == 1
