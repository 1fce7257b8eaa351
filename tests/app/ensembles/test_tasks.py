"""Pools of other tasks: learnt from by methods that learn over tasks, never ranked, unknown to other methods."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bensemble_core as bc
from tests.app.conftest import Service
from tests.app.hammering import classification, empty_pool, refused, regression

OPTIONS: dict[str, Any] = {"width": 8, "epochs": 3}
PROCESS = {"name": "neural_process", **OPTIONS}


def tasks() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Three tasks of 12 rows: [3, 12, 2] and [3, 12]."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 12, 2)).round(3).astype(np.float32)
    return x, (x[..., 0] * np.array([[1.0], [-1.0], [2.0]])).round(3)


def pool(service: Service, project_id: str, at: int, **more: Any) -> str:
    x, y = tasks()
    body = {"name": f"task {at}", "rows": x[at].tolist(), "labels": y[at].tolist(), **more}
    return str(service.post(f"/projects/{project_id}/pools", body, 201)["id"])


def train(service: Service, project_id: str, **body: Any) -> dict[str, Any]:
    asked = service.post(f"/projects/{project_id}/ensembles", {"n_members": 3, **body}, 202)
    service.run_jobs()
    found: dict[str, Any] = service.get(f"/ensembles/{asked['ensemble']['id']}")
    return found


def test_each_task_pool_is_a_task_of_its_own_and_the_candidates_are_task_0(service: Service, tmp_path: Path) -> None:
    project_id = regression(service, posterior=PROCESS, holdout=0)
    for at, purpose in enumerate(("candidates", "task", "task")):
        pool(service, project_id, at, purpose=purpose)
    trained = train(service, project_id, seed=4)
    assert trained["status"] == "succeeded", trained["error"]
    assert trained["n_labels"] == 12
    path = tmp_path / "ensemble"
    path.write_bytes(service.client.get(f"/v1/ensembles/{trained['id']}/file").content)
    x, y = tasks()
    number = torch.arange(3).repeat_interleave(12)
    rows = bc.Data(x=torch.from_numpy(x.reshape(36, 2)), y=torch.from_numpy(y.reshape(36)), task=number)
    here = bc.fit("neural_process", "mlp", rows, likelihood="gaussian", seed=4, **OPTIONS).sample(3, seed=4)
    found, expected = bc.load(path).predict(x[0]), here.predict(x[0])
    torch.testing.assert_close(found.means, expected.means, rtol=1e-4, atol=1e-4)


def test_only_a_method_that_learns_over_tasks_sees_them(service: Service) -> None:
    project_id = regression(service)
    pool(service, project_id, 0)
    seen = []
    for at in (1, 2):
        pool(service, project_id, at, purpose="task")
        seen.append([train(service, project_id, posterior=p) for p in ({"name": "map", "epochs": 2}, PROCESS)])
    (plain, process), (plain_later, process_later) = seen
    assert {e["status"] for pair in seen for e in pair} == {"succeeded"}
    assert plain["snapshot_hash"] == plain_later["snapshot_hash"]
    assert process["snapshot_hash"] != process_later["snapshot_hash"]


def test_settings_of_a_method_over_tasks_are_tuned_on_the_task_predicted(service: Service) -> None:
    pytest.importorskip("optuna")
    project_id = regression(service, posterior=PROCESS)
    for at, purpose in enumerate(("candidates", "task", "task")):
        pool(service, project_id, at, purpose=purpose)
    trained = train(service, project_id, tune={"trials": 2})
    assert trained["status"] == "succeeded", trained["error"]
    assert len(trained["tuning"]["trials"]) == 2


def test_without_task_pools_a_training_is_refused_before_it_is_queued(service: Service) -> None:
    project_id = regression(service, posterior=PROCESS)
    pool(service, project_id, 0)
    refused(service, "POST", f"/projects/{project_id}/ensembles", 409, "no pool with purpose 'task'", json={})
    body: dict[str, Any] = {"every_labels": 5}
    refused(service, "POST", f"/projects/{project_id}/schedules", 409, "no pool with purpose 'task'", json=body)
    body = {"training": {"posterior": {"name": "map", "epochs": 2}}, **body}
    service.post(f"/projects/{project_id}/schedules", body, 201)


def test_a_backtest_has_one_task_and_is_refused(service: Service) -> None:
    project_id = regression(service)
    pool_id = pool(service, project_id, 0)
    pool(service, project_id, 1, purpose="task")
    strategies = [{"name": "plain", "acquisition": {"name": "random"}}, {"name": "tasks", "posterior": PROCESS}]
    body = {"pool_id": pool_id, "strategies": strategies}
    path = f"/projects/{project_id}/backtests"
    found = refused(service, "POST", path, 422, "plays the one of its pool", json=body)
    assert found["errors"][0]["pointer"] == "/strategies/1"


def test_a_project_of_classes_cannot_ask_for_it(service: Service) -> None:
    project_id = classification(service)
    body = {"posterior": PROCESS}
    refused(service, "POST", f"/projects/{project_id}/ensembles", 422, "is for numbers", json=body)


def test_a_task_pool_comes_with_labels(service: Service) -> None:
    project_id = regression(service)
    body = {"name": "t", "purpose": "task", "rows": [[1.0, 2.0]]}
    refused(service, "POST", f"/projects/{project_id}/pools", 422, "A task pool comes with labels", json=body)
    pool_id = empty_pool(service, project_id, purpose="task")
    headers = {"Content-Type": "text/csv"}
    sent = service.client.put(f"/v1/pools/{pool_id}/data", content=b"a,b,label\n1,2,\n", headers=headers)
    assert sent.status_code == 202
    service.run_jobs()
    failed = service.get(f"/pools/{pool_id}")
    assert failed["status"] == "failed"
    assert "A task pool comes with labels" in failed["error"]["detail"]


def test_a_task_pool_is_never_ranked(service: Service) -> None:
    project_id = regression(service)
    pool_id = pool(service, project_id, 1, purpose="task")
    body: dict[str, Any] = {"k": 1, "acquisition": {"name": "random"}}
    refused(service, "POST", f"/pools/{pool_id}/rankings", 409, "trained on, never ranked", json=body)
    body["pool_id"] = pool_id
    refused(service, "POST", f"/projects/{project_id}/rounds", 409, "trained on, never ranked", json=body)
    body = {"every_labels": 5, "then_open_round": body}
    refused(service, "POST", f"/projects/{project_id}/schedules", 409, "trained on, never ranked", json=body)
