"""Lists in both orders: the pages of one are those of the other, backwards."""

from typing import Any

import pytest

from tests.app.conftest import Service
from tests.app.designing import experiment, observe, session
from tests.app.hammering import classification, empty_pool, pool, refused
from tests.app.working import on_sqlite


def pages(service: Service, path: str, **params: Any) -> list[Any]:
    """All items, by pages of two."""
    items: list[Any] = []
    cursor: dict[str, str] = {}
    while True:
        page = service.get(path, limit=2, **params, **cursor)
        assert len(page["items"]) <= 2
        items += page["items"]
        if page["next_cursor"] is None:
            return items
        cursor = {"cursor": page["next_cursor"]}


def build(service: Service) -> dict[str, int]:
    """Paths of lists, and how long they are."""
    project_id = classification(service)
    pool_id = pool(service, project_id)
    for name in ("a", "b", "c", "d"):
        empty_pool(service, project_id, name=name)
        service.client.patch(f"/v1/projects/{project_id}", json={"name": name}).raise_for_status()
    for row, value in enumerate(["red", "blue", "red", "red", "blue"]):
        service.post(f"/projects/{project_id}/labels", {"labels": [{"pool_id": pool_id, "row": row, "value": value}]})
    for seed in range(3):
        service.post(f"/pools/{pool_id}/rankings", {"k": 2, "seed": seed, "acquisition": {"name": "random"}}, 202)
        service.post(f"/projects/{project_id}/schedules", {"every_labels": 5}, 201)
        service.key("read", name=f"key {seed}")
    experiment_id = experiment(service)
    session_id = session(service, experiment_id)["id"]
    for xi, y in ((5, 1), (6, 1), (7, 0)):
        observe(service, session_id, design={"xi": xi}, outcome={"y": y})
    return {
        "/projects": 1,
        f"/projects/{project_id}/pools": 5,
        f"/projects/{project_id}/changes": 4,
        f"/projects/{project_id}/labels": 5,
        f"/projects/{project_id}/labels?history=true": 5,
        f"/projects/{project_id}/schedules": 3,
        f"/projects/{project_id}/jobs": 3,
        f"/pools/{pool_id}/rankings": 3,
        "/keys": 4,
        "/experiments": 1,
        f"/experiments/{experiment_id}/sessions": 1,
        f"/sessions/{session_id}/trials": 3,
        "/catalog": len(service.get("/catalog")["items"]),
    }


def test_newest_first_is_oldest_first_backwards_and_both_by_pages(service: Service) -> None:
    for path, n in build(service).items():
        bare, _, query = path.partition("?")
        params = dict([query.split("=")]) if query else {}
        oldest = pages(service, bare, **params)
        assert len(oldest) == n, path
        assert pages(service, bare, order="asc", **params) == oldest, path
        assert pages(service, bare, order="desc", **params) == oldest[::-1], path


@on_sqlite
def test_the_newest_labels_and_trials_come_first(service: Service) -> None:
    paths = list(build(service))
    history = next(path for path in paths if "history" in path).partition("?")[0]
    newest = service.get(history, history=True, order="desc", limit=2)["items"]
    assert [(event["seq"], event["row"], event["value"]) for event in newest] == [(5, 4, "blue"), (4, 3, "red")]
    trials = next(path for path in paths if "trials" in path)
    assert [trial["n"] for trial in service.get(trials, order="desc")["items"]] == [3, 2, 1]
    lines = service.client.get(f"/v1{trials}", params={"format": "csv", "order": "desc"}).text.splitlines()
    assert [line.partition(",")[0] for line in lines] == ["n", "3", "2", "1"]
    lines = service.client.get(f"/v1{history}", params={"format": "csv", "history": True, "order": "desc"}).text
    assert [line.partition(",")[0] for line in lines.splitlines()] == ["seq", "5", "4", "3", "2", "1"]


@on_sqlite
@pytest.mark.parametrize("order", ["newest", "DESC", ""])
def test_an_order_that_there_is_not_is_refused(service: Service, order: str) -> None:
    refused(service, "GET", "/projects", 422, params={"order": order})
