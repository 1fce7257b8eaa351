"""The whole loop: pools in, labels back, ensembles trained, rankings out."""

from typing import Any

import numpy as np

from tests.app.conftest import Service


def start(service: Service, digits: Any, n_seed: int = 20) -> tuple[dict[str, Any], dict[str, Any]]:
    x, y = digits
    project = service.project()
    pool = service.post(
        f"/projects/{project['id']}/pools",
        {
            "name": "train",
            "rows": x[:300].tolist(),
            "keys": [f"d{i}" for i in range(300)],
            "payloads": [{"image": i} for i in range(300)],
        },
        201,
    )
    assert (pool["status"], pool["n_rows"]) == ("ready", 300)
    service.post(
        f"/projects/{project['id']}/pools",
        {"name": "test", "purpose": "evaluation", "rows": x[1000:1200].tolist(), "labels": y[1000:1200]},
        201,
    )
    service.post(
        f"/projects/{project['id']}/labels",
        {"labels": [{"pool_id": pool["id"], "row": i, "value": y[i]} for i in range(n_seed)]},
        201,
    )
    return project, pool


def train(service: Service, project: dict[str, Any], **body: Any) -> dict[str, Any]:
    asked = service.post(f"/projects/{project['id']}/ensembles", body, 202)
    service.run_jobs()
    return service.get(f"/ensembles/{asked['ensemble']['id']}")


def test_a_loop_of_labelling_training_and_ranking(service: Service, digits: Any) -> None:
    project, pool = start(service, digits)
    ensemble = train(service, project)
    assert (ensemble["status"], ensemble["version"], ensemble["n_labels"]) == ("succeeded", 1, 20)
    assert ensemble["metrics"]["n"] == 200
    assert ensemble["metrics"]["measured_on"] == "evaluation"
    asked = service.post(f"/pools/{pool['id']}/rankings", {"acquisition": {"name": "bald"}, "k": 10}, 202)
    service.run_jobs()
    ranking = service.get(f"/rankings/{asked['ranking']['id']}")
    assert ranking["status"] == "succeeded"
    assert ranking["n_scored"] == 280
    assert [item["rank"] for item in ranking["items"]] == list(range(1, 11))
    assert all(item["row"] >= 20 and item["key"] == f"d{item['row']}" for item in ranking["items"])
    assert all(item["payload"] == {"image": item["row"]} for item in ranking["items"])
    scores = [item["score"] for item in ranking["items"]]
    assert scores == sorted(scores, reverse=True)
    again = service.post(f"/pools/{pool['id']}/rankings", {"acquisition": {"name": "bald"}, "k": 10}, 202)
    service.run_jobs()
    assert service.get(f"/rankings/{again['ranking']['id']}")["items"] == ranking["items"]
    y = digits[1]
    service.post(
        f"/projects/{project['id']}/labels",
        {"labels": [{"pool_id": pool["id"], "key": item["key"], "value": y[item["row"]]} for item in ranking["items"]]},
        201,
    )
    second = train(service, project)
    assert (second["n_labels"], second["parent_id"]) == (30, ensemble["id"])
    curve = service.get(f"/projects/{project['id']}/learning-curve")["points"]
    assert [point["n_labels"] for point in curve] == [20, 30]
    assert np.isfinite([point["metrics"]["nll"] for point in curve]).all()
