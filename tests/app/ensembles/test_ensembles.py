"""Ensembles are immutable versions that say what they saw and how well they do."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bensemble_core as bc
from app.db.tables import Job
from app.ensembles.collect_labels import is_held_out
from tests.app.conftest import Service
from tests.app.test_loop import start, train


def test_the_same_labels_and_seed_give_the_same_bits(service: Service, digits: Any, tmp_path: Path) -> None:
    project, _ = start(service, digits)
    first, second = train(service, project), train(service, project)
    assert first["snapshot_hash"] == second["snapshot_hash"]
    files = [service.client.get(f"/v1/ensembles/{e['id']}/file").content for e in (first, second)]
    assert files[0] == files[1]
    assert len(files[0]) == first["n_bytes"]
    other = train(service, project, seed=1)
    assert service.client.get(f"/v1/ensembles/{other['id']}/file").content != files[0]
    path = tmp_path / "ensemble.safetensors"
    path.write_bytes(files[0])
    loaded = bc.load(path)
    assert loaded.classes == tuple(project["task"]["classes"])
    x, y = digits
    predictive = loaded.predict(x[1000:1200])
    accuracy = bc.metrics.accuracy(predictive, torch.tensor([int(label) for label in y[1000:1200]]))
    assert accuracy == pytest.approx(first["metrics"]["accuracy"])


def test_a_snapshot_that_cannot_be_gone_on_from_costs_time_and_nothing_else(service: Service, digits: Any) -> None:
    project, _ = start(service, digits)
    first = train(service, project)
    asked = service.post(f"/projects/{project['id']}/ensembles", {}, 202)
    foreign = bc.save_tensors({"step": torch.tensor(3)})  # as of another version of the method
    service.services.objects.put("snapshots/other/1.safetensors", foreign)
    with service.services.database.write() as session:
        session.get_one(Job, asked["job"]["id"]).checkpoint = {
            "watermark": first["watermark"],
            "digest": first["snapshot_hash"],
            "snapshot": "snapshots/other/1.safetensors",
        }
    service.run_jobs()
    second = service.get(f"/ensembles/{asked['ensemble']['id']}")
    assert second["status"] == "succeeded", second["error"]
    files = [service.client.get(f"/v1/ensembles/{e['id']}/file").content for e in (first, second)]
    assert files[0] == files[1]


def test_the_newest_is_current_unless_one_is_pinned(service: Service, digits: Any) -> None:
    project, pool = start(service, digits)
    first, second = train(service, project), train(service, project)
    at = f"/projects/{project['id']}"
    assert service.get(at)["current_ensemble_id"] == second["id"]
    pinned = service.post(f"{at}/current", {"ensemble_id": first["id"]}, 200)
    assert (pinned["current_ensemble_id"], pinned["is_pinned"]) == (first["id"], True)
    third = train(service, project)
    assert service.get(at)["current_ensemble_id"] == first["id"]
    assert third["parent_id"] == first["id"]
    asked = service.post(f"/pools/{pool['id']}/rankings", {"k": 3}, 202)
    assert asked["ranking"]["ensemble_id"] == first["id"]
    assert service.post(f"{at}/current", {"ensemble_id": None}, 200)["current_ensemble_id"] == third["id"]


def test_an_ensemble_that_is_not_trained_cannot_be_used(service: Service, digits: Any) -> None:
    project, pool = start(service, digits)
    asked = service.post(f"/projects/{project['id']}/ensembles", {}, 202)
    at = f"/ensembles/{asked['ensemble']['id']}"
    assert service.get(at)["status"] == "queued"
    service.get(f"{at}/file", 409)
    service.post(f"/projects/{project['id']}/current", {"ensemble_id": asked["ensemble"]["id"]}, 409)
    service.post(f"{at}/predictions", {"rows": [[0.0] * 64]}, 409)
    service.post(f"/pools/{pool['id']}/rankings", {"k": 1, "ensemble_id": asked["ensemble"]["id"]}, 409)


def test_predictions_of_rows_and_pools_agree_with_the_file(service: Service, digits: Any, tmp_path: Path) -> None:
    project, pool = start(service, digits)
    ensemble = train(service, project)
    x, _ = digits
    asked = service.post(f"/ensembles/{ensemble['id']}/predictions", {"rows": x[:7].tolist()}, 202)
    assert asked["prediction"]["status"] == "queued"
    whole = service.post(f"/ensembles/{ensemble['id']}/predictions", {"pool_id": pool["id"]}, 202)
    service.run_jobs()
    told = service.get(f"/predictions/{asked['prediction']['id']}", wait=5)
    assert (told["status"], told["n_rows"], told["next_cursor"]) == ("succeeded", 7, None)
    (tmp_path / "file").write_bytes(service.client.get(f"/v1/ensembles/{ensemble['id']}/file").content)
    expected = bc.load(tmp_path / "file").predict(x[:7])
    got = [[item["probabilities"][str(c)] for c in range(10)] for item in told["items"]]
    np.testing.assert_allclose(got, expected.mean().numpy(), atol=1e-5)
    spread = [[item["probability_sd"][str(c)] for c in range(10)] for item in told["items"]]
    np.testing.assert_allclose(spread, expected.log_probs.exp().numpy().std(0), atol=1e-5)
    assert np.max(spread) > 0
    np.testing.assert_allclose(
        [item["mutual_information"] for item in told["items"]], expected.mutual_information().numpy(), atol=1e-5
    )
    pages, cursor = [], None
    while True:
        page = service.get(
            f"/predictions/{whole['prediction']['id']}", limit=128, **({"cursor": cursor} if cursor else {})
        )
        pages += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert [item["row"] for item in pages] == list(range(300))
    assert pages[3]["probabilities"] == pytest.approx(told["items"][3]["probabilities"], abs=1e-5)


def test_without_an_evaluation_pool_given_labels_are_held_out_but_never_picked_ones(
    service: Service, digits: Any
) -> None:
    x, y = digits
    project = service.project(holdout=0.25)
    pool = service.post(
        f"/projects/{project['id']}/pools",
        {"name": "p", "rows": x[:200].tolist(), "labels": [*y[:160], *([None] * 40)]},
    )
    picked = [{"pool_id": pool["id"], "row": i, "value": y[i]} for i in range(160, 200)]
    service.post(f"/projects/{project['id']}/labels", {"labels": picked}, 201)
    ensemble = train(service, project)
    held_out = is_held_out(pool["id"], np.arange(160), 0.25)
    assert 20 < held_out.sum() < 60
    assert ensemble["metrics"]["n"] == held_out.sum()
    assert ensemble["metrics"]["measured_on"] == "holdout"
    assert ensemble["n_labels"] == 200 - held_out.sum()


def test_few_held_out_rows_carry_a_warning_and_none_says_so(service: Service, digits: Any) -> None:
    x, y = digits
    for n_given, expected in ((40, "held-out rows"), (0, "Nothing to measure on")):
        project = service.project()
        pool = service.post(
            f"/projects/{project['id']}/pools",
            {"name": "p", "rows": x[:50].tolist(), "labels": [*y[:n_given], *([None] * (50 - n_given))]},
        )
        label = {"pool_id": pool["id"], "row": 45, "value": y[45]}
        service.post(f"/projects/{project['id']}/labels", {"labels": [label]}, 201)
        assert expected in train(service, project)["metrics"]["warning"]


def test_a_warm_start_needs_a_parent_and_differs_from_a_fresh_one(service: Service, digits: Any) -> None:
    project, _ = start(service, digits)
    problem = service.post(f"/projects/{project['id']}/ensembles", {"warm_start": True}, 409)
    assert "has none yet" in problem["detail"]
    first = train(service, project)
    warm = train(service, project, warm_start=True)
    assert (warm["status"], warm["parent_id"], warm["warm_start"]) == ("succeeded", first["id"], True)
    assert warm["metrics"]["nll"] != first["metrics"]["nll"]


def test_a_warm_start_goes_on_from_another_method(service: Service, digits: Any) -> None:
    project, _ = start(service, digits)
    train(service, project, posterior={"name": "batch_ensemble", "members": 2, "epochs": 2})
    warm = train(service, project, posterior={"name": "deep_ensemble", "members": 2, "epochs": 2}, warm_start=True)
    assert (warm["status"], warm["error"]) == ("succeeded", None)


def test_a_project_may_name_the_prior_of_its_weights(service: Service, digits: Any, tmp_path: Path) -> None:
    x, y = digits
    task: dict[str, Any] = {"kind": "classification", "classes": [str(c) for c in range(10)]}
    found = []
    for prior in ({}, {"prior": {"name": "normal", "scale": 0.01}}, {"prior": None}):
        project = service.project(task={**task, **prior}, posterior={"name": "map", "epochs": 5})
        assert project["task"].get("prior", "left out") == prior.get("prior", "left out")
        service.post(f"/projects/{project['id']}/pools", {"name": "p", "rows": x[:60].tolist(), "labels": y[:60]})
        ensemble = train(service, project)
        path = tmp_path / "e"
        path.write_bytes(service.client.get(f"/v1/ensembles/{ensemble['id']}/file").content)
        loaded = bc.load(path)
        found.append((loaded.problem.prior, float(loaded.stacked["linear1.weight"].norm())))
    assert [prior for prior, _ in found] == [bc.Normal(scale=1.0), bc.Normal(scale=0.01), None]
    assert found[1][1] < 0.8 * found[0][1] < found[2][1]


@pytest.mark.parametrize("noise", ["constant", "by_row"])
def test_regression_learns_ranks_and_predicts(service: Service, noise: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(260, 1)).astype(np.float32)
    y = (3 * x[:, 0] + rng.normal(0, 0.1, size=260)).tolist()
    project = service.project(
        task={"kind": "regression", "outputs": 1, "noise": noise},
        input={"shape": [1]},
        posterior={"name": "deep_ensemble", "members": 3, "epochs": 150},
    )
    at = f"/projects/{project['id']}"
    pool = service.post(f"{at}/pools", {"name": "p", "rows": x[:200].tolist(), "labels": [*y[:60], *([None] * 140)]})
    service.post(f"{at}/pools", {"name": "e", "purpose": "evaluation", "rows": x[200:].tolist(), "labels": y[200:]})
    ensemble = train(service, project)
    assert set(ensemble["metrics"]) >= {"n", "rmse", "nll", "crps"}
    assert ensemble["metrics"]["rmse"] < 0.5
    for name in ("bald", "predictive_variance", "entropy", "mean_std", "eig"):
        asked = service.post(f"/pools/{pool['id']}/rankings", {"acquisition": {"name": name}, "k": 5}, 202)
        service.run_jobs()
        ranking = service.get(f"/rankings/{asked['ranking']['id']}")
        assert (ranking["status"], ranking["n_scored"]) == ("succeeded", 140)
    problem = service.post(f"/pools/{pool['id']}/rankings", {"acquisition": {"name": "margin"}, "k": 5}, 422)
    assert "not defined for regression" in problem["detail"]
    asked = service.post(f"/ensembles/{ensemble['id']}/predictions", {"rows": [[1.0]]}, 202)
    service.run_jobs()
    item = service.get(f"/predictions/{asked['prediction']['id']}")["items"][0]
    assert item["mean"] == pytest.approx(3.0, abs=0.5)
    assert item["sd"] >= item["epistemic_sd"] >= 0


def test_mc_dropout_gives_as_many_members_as_asked_for(service: Service, digits: Any) -> None:
    project, _ = start(service, digits)
    ensemble = train(service, project, posterior={"name": "mc_dropout", "epochs": 20}, n_members=11)
    assert (ensemble["status"], ensemble["n_members"]) == ("succeeded", 11)


def test_deleting_a_pool_takes_its_labels_and_files_but_not_the_ensembles(service: Service, digits: Any) -> None:
    project, pool = start(service, digits)
    ensemble = train(service, project)
    assert service.client.delete(f"/v1/pools/{pool['id']}").status_code == 204
    service.get(f"/pools/{pool['id']}", 404)
    service.run_jobs()
    assert [stored.key for stored in service.services.objects.list(f"pools/{pool['id']}/")] == []
    assert service.get(f"/ensembles/{ensemble['id']}")["status"] == "succeeded"
    assert service.client.delete(f"/v1/projects/{project['id']}").status_code == 204
    service.get(f"/ensembles/{ensemble['id']}", 404)
    service.run_jobs()
    assert list(service.services.objects.list()) == []


def test_what_cannot_be_ranked_is_refused_or_explained(service: Service, digits: Any) -> None:
    project, pool = start(service, digits)
    train(service, project, posterior={"name": "map", "epochs": 5})
    asked = service.post(f"/pools/{pool['id']}/rankings", {"k": 3, "acquisition": {"name": "bald"}}, 202)
    service.run_jobs()
    assert "cannot disagree with itself" in service.get(f"/rankings/{asked['ranking']['id']}")["notes"][0]
    several = service.project(task={"kind": "regression", "outputs": 2}, input={"shape": [1]})
    rows = service.post(f"/projects/{several['id']}/pools", {"name": "p", "rows": [[0], [1]]})
    wanted = {"acquisition": {"name": "bald", "estimate": "mixture"}, "k": 1}
    assert "one output" in service.post(f"/pools/{rows['id']}/rankings", wanted, 422)["detail"]


def test_a_few_given_labels_are_learnt_from_rather_than_all_held_out(service: Service) -> None:
    project = service.project(input={"shape": [1]}, holdout=0.95)
    service.post(f"/projects/{project['id']}/pools", {"name": "p", "rows": [[0], [1]], "labels": ["0", "1"]})
    ensemble = train(service, project)
    assert (ensemble["status"], ensemble["n_labels"] + ensemble["metrics"]["n"]) == ("succeeded", 2)
    assert ensemble["n_labels"] >= 1
