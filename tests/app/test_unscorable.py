"""A row whose score is not finite stops a ranking only for as long as it could be chosen."""

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
