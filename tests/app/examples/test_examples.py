"""An example makes itself, and its loop runs by itself: train, hand out, train again."""

from typing import Any

import pytest

from app.examples.digits import CLASSES, Digits, first_labelled, load_digits
from tests.app.conftest import Service
from tests.app.hammering import refused, stored
from tests.app.working import on_sqlite


@pytest.fixture(scope="module")
def truth() -> dict[str, str]:
    """The label of each digit by its key."""
    return {f"digit-{n:04d}": label for n, label in enumerate(load_digits().pool_labels, 1)}


def make(service: Service, **headers: str) -> dict[str, Any]:
    return dict(service.post("/examples", {"name": "digits"}, 202, **headers))


def rounds_of(service: Service, project_id: str) -> list[dict[str, Any]]:
    return list(service.get(f"/projects/{project_id}/rounds")["items"])


def label_round(service: Service, round_id: str, truth: dict[str, str]) -> Any:
    """As an annotator at the page does: items with their pixels, one label at a time."""
    items = service.post(f"/rounds/{round_id}/next", {"annotator": "ada", "count": 20, "features": True})["items"]
    assert len(items) == 20
    assert all(len(item["x"]) == 64 and 0 <= min(item["x"]) <= max(item["x"]) <= 16 for item in items)
    for item in items:
        said = {"labels": [{"row": item["row"], "value": truth[item["key"]], "annotator": "ada"}]}
        answer = service.post(f"/rounds/{round_id}/labels", said, 201)
    return answer


def test_the_digits_split_as_promised() -> None:
    digits = load_digits()
    assert (digits.pool_rows.shape, digits.evaluation_rows.shape) == ((1297, 64), (500, 64))
    assert (digits.pool_rows.min(), digits.pool_rows.max()) == (0, 16)
    labelled = first_labelled(digits.pool_labels, 20)
    assert len(labelled) == 20
    assert {digits.pool_labels[row] for row in labelled} == set(CLASSES)
    same: Digits = load_digits()
    assert (same.pool_rows == digits.pool_rows).all()
    assert first_labelled(["a", "a", "a", "b", "a"], 3) == {0, 1, 3}


@pytest.mark.timeout(600)
def test_the_loop_runs_by_itself(service: Service, truth: dict[str, str]) -> None:
    made = make(service)
    project_id, job = made["project"]["id"], made["job"]
    assert (job["kind"], job["status"]) == ("train_ensemble", "queued")
    assert made["project"]["name"] == "Handwritten digits"
    assert made["project"]["task"]["classes"] == list(CLASSES)
    shown = made["project"]["display"]
    assert (shown["kind"], shown["shape"], shown["range"]) == ("image", [8, 8], [16, 0])
    pools = service.get(f"/projects/{project_id}/pools")["items"]  # made in one moment, so in any order
    candidates, evaluation = sorted(pools, key=lambda pool: pool["purpose"])
    assert (candidates["status"], candidates["n_rows"], candidates["n_labelled"]) == ("ready", 1297, 20)
    assert (evaluation["purpose"], evaluation["n_rows"], evaluation["n_labelled"]) == ("evaluation", 500, 500)
    given = service.get(f"/projects/{project_id}/labels", limit=1000)["items"]
    own = {item["key"]: item["value"] for item in given if item["pool_id"] == candidates["id"]}
    assert own == {key: truth[key] for key in own}
    assert set(own.values()) == set(CLASSES)
    first = service.get(f"/pools/{candidates['id']}/items", limit=1)["items"][0]
    assert (first["key"], first["payload"]) == ("digit-0001", None)  # nothing gives the answer away
    assert rounds_of(service, project_id) == []

    ran = service.run_jobs()
    assert ran[0] == job["id"]
    (first_round,) = rounds_of(service, project_id)
    assert (first_round["status"], first_round["n_items"], first_round["number"]) == ("open", 20, 1)

    (training,) = label_round(service, first_round["id"], truth)["triggered"]
    assert training in service.run_jobs()
    done, following = rounds_of(service, project_id)
    assert (done["status"], done["n_done"]) == ("complete", 20)
    assert (following["status"], following["n_items"], following["number"]) == ("open", 20, 2)
    points = service.get(f"/projects/{project_id}/learning-curve")["points"]
    assert [point["n_labels"] for point in points] == [20, 40]
    assert all(point["metrics"]["n"] == 500 for point in points)
    assert points[1]["metrics"]["accuracy"] > points[0]["metrics"]["accuracy"] > 0.4
    assert service.get(f"/projects/{project_id}/schedules")["items"][0]["note"] is None


@on_sqlite
def test_sent_again_it_is_made_once(service: Service) -> None:
    made = make(service, **{"Idempotency-Key": "try it"})
    before = stored(service)
    again = service.client.post(
        "/v1/examples", json={"name": "digits"}, headers={"Idempotency-Key": "try it", "Prefer": "wait=0"}
    )
    assert (again.status_code, again.headers["location"]) == (202, f"/v1/jobs/{made['job']['id']}")
    assert again.json()["project"]["id"] == made["project"]["id"]
    assert stored(service) == before
    assert make(service)["project"]["id"] != made["project"]["id"]


@on_sqlite
def test_who_may_not_make_a_project_gets_no_example(service: Service) -> None:
    project = service.project()
    bound = {"Authorization": f"Bearer {service.key('write', projects=[project['id']])}"}
    refused(service, "POST", "/examples", 403, "key without projects", json={"name": "digits"}, headers=bound)
    reader = {"Authorization": f"Bearer {service.key('read')}"}
    refused(service, "POST", "/examples", 403, json={"name": "digits"}, headers=reader)
    refused(service, "POST", "/examples", 422, json={"name": "faces"})


@on_sqlite
def test_a_deleted_example_leaves_nothing(service: Service) -> None:
    before = stored(service)
    made = make(service)
    assert service.client.delete(f"/v1/projects/{made['project']['id']}").status_code == 204
    service.run_jobs()
    assert stored(service)[0]["project"] == before[0]["project"]
    assert stored(service)[0]["label"] == before[0]["label"]
