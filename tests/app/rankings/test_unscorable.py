"""Scores that cannot be used: not finite, which matters only where a row may be chosen, or of the wrong sign."""

from typing import Any

from tests.app.conftest import Service
from tests.app.test_loop import start, train


def rank(service: Service, pool_id: str) -> dict[str, Any]:
    asked = service.post(f"/pools/{pool_id}/rankings", {"acquisition": {"name": "bald"}, "k": 3}, 202)
    service.run_jobs()
    found: dict[str, Any] = service.get(f"/rankings/{asked['ranking']['id']}")
    return found


def test_a_row_that_was_skipped_needs_no_score(service: Service, digits: Any) -> None:
    project, _ = start(service, digits)
    train(service, project)
    rows = digits[0][400:440].tolist()
    rows[5] = [3e38] * 64
    pool = service.post(f"/projects/{project['id']}/pools", {"name": "wild", "rows": rows}, 201)
    failed = rank(service, pool["id"])
    assert failed["status"] == "failed"
    assert "row 5 has the score nan" in failed["error"]["detail"]
    skip = {"labels": [{"pool_id": pool["id"], "row": 5, "skip": True}]}
    service.post(f"/projects/{project['id']}/labels", skip, 201)
    found = rank(service, pool["id"])
    assert found["status"] == "succeeded", found["error"]
    assert 5 not in [item["row"] for item in found["items"]]


def test_scores_below_zero_are_refused_where_they_cannot_be_powered(service: Service) -> None:
    project = service.project(task={"kind": "regression"}, input={"shape": [2]})
    pool = service.post(f"/projects/{project['id']}/pools", {"name": "rows", "rows": [[0.0, 1.0]] * 5}, 201)
    wanted = {"acquisition": {"name": "entropy"}, "selection": {"name": "power"}, "k": 2}
    problem = service.post(f"/pools/{pool['id']}/rankings", wanted, 422)
    assert "entropy may be negative" in problem["detail"]


def test_a_target_row_that_cannot_be_predicted_is_the_one_that_is_named(service: Service, digits: Any) -> None:
    project, pool = start(service, digits)
    train(service, project)
    target = {"rows": [digits[0][0].tolist(), [3e38] * 64]}
    wanted = {"acquisition": {"name": "epig"}, "k": 3, "target": target}
    asked = service.post(f"/pools/{pool['id']}/rankings", wanted, 202)
    service.run_jobs()
    failed = service.get(f"/rankings/{asked['ranking']['id']}")
    assert failed["status"] == "failed"
    assert "row 1 of the target set" in failed["error"]["detail"]
