"""What can't be right is answered with a problem that says what to do, and leaves nothing behind."""

import base64
import gzip
import io
import json
import math
import socket
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.db.engine import Database
from app.db.tables import Project
from app.ensembles.request import request_training
from app.pools import create as create_pool
from tests.app.conftest import Service
from tests.app.designing import experiment
from tests.app.hammering import (
    ROWS,
    SMALL,
    World,
    build_world,
    classification,
    empty_pool,
    files,
    pointers,
    pool,
    refused,
    regression,
    stored,
)
from tests.app.working import on_sqlite

JSON = {"Content-Type": "application/json"}
COLOURS = {"kind": "classification", "classes": ["red", "blue"]}
WIDE = {"model": {"name": "mlp", "hidden": [100, 100]}}
UNKNOWN = "0190a000-0000-7000-8000-000000000000"
UNSTORABLE = ["a\0b", "a\ud800b", "\udc00"]


@pytest.fixture
def world(service: Service) -> World:
    return build_world(service)


def spelt(body: Any) -> dict[str, Any]:
    """As a client would send it that escapes all but ASCII, lone surrogates too."""
    return {"content": json.dumps(body), "headers": JSON}


def test_an_inline_pool_with_a_mistake_is_refused_whole(service: Service) -> None:
    project_id = classification(service)
    path = f"/projects/{project_id}/pools"
    two = ROWS[:2]
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"rows": [[1.0, 2.0], [1.0]]}, "expected 2 features, there are 1", "/rows/1"),
        ({"rows": [[1.0, 2.0, 3.0]]}, "expected 2 features, there are 3", "/rows/0"),
        ({"rows": [[]]}, "expected 2 features, there are 0", "/rows/0"),
        ({"rows": [[1e39, 0.0]]}, "too large for float32", "/rows/0"),
        ({"rows": [[1.0, None]]}, "valid number", "/rows/0/1"),
        ({"rows": [[1.0, "red"]]}, "valid number", "/rows/0/1"),
        ({"rows": [[1.0, "2.0"]]}, "valid number", "/rows/0/1"),
        ({"rows": [[1.0, True]]}, "valid number", "/rows/0/1"),
        ({"rows": [[[1.0], [2.0]]]}, "one flat list of numbers, images too", "/rows/0/0"),
        ({"rows": []}, "`rows` is empty", "/rows"),
        ({"rows": "red"}, "Input should be a valid ", "/rows"),
        ({"rows": two, "keys": ["a"]}, "2 rows but 1 keys", "/keys"),
        ({"rows": two, "keys": ["a", "a"]}, "the same key 'a'", "/keys/1"),
        ({"rows": two, "keys": ["a", ""]}, "at least 1 character", "/keys/1"),
        ({"rows": two, "keys": ["a", "b" * 501]}, "at most 500 characters", "/keys/1"),
        ({"rows": two, "keys": ["a", "é" * 400 + "中" * 100]}, "1100 bytes", "/keys/1"),
        ({"rows": two, "payloads": [1, 2, 3]}, "2 rows but 3 payloads", "/payloads"),
        ({"rows": two, "labels": ["red"]}, "2 rows but 1 labels", "/labels"),
        ({"rows": two, "labels": []}, "2 rows but 0 labels", "/labels"),
        (
            {"rows": two, "labels": ["red", "green"]},
            "unknown class 'green'; this project has 'red', 'blue'",
            "/labels/1",
        ),
        ({"rows": two, "labels": ["red", {"is": "blue"}]}, "a label is text", "/labels/1"),
        ({"rows": two, "purpose": "evaluation"}, "An evaluation pool comes with labels", "/labels"),
        ({"rows": two, "purpose": "evaluation", "labels": [None, None]}, "these rows have none", "/labels"),
        ({"rows": two, "purpose": "test"}, "'candidates', 'evaluation' or 'task'", "/purpose"),
        ({"keys": ["a"]}, "`keys` came without `rows`", "/keys"),
        ({"rwos": two}, "Extra inputs are not permitted", "/rwos"),
        ({"name": ""}, "at least 1 character", "/name"),
        ({"name": "x" * 201}, "at most 200 characters", "/name"),
        ({"name": None}, "valid string", "/name"),
    ]
    for body, says, pointer in cases:
        problem = refused(service, "POST", path, 422, says, json={"name": "p", **body})
        assert pointers(problem) == [pointer], body
    assert service.get(path)["items"] == []


@on_sqlite
def test_more_labels_than_one_request_should_write_are_sent_to_a_file(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"/projects/{classification(service)}/pools"
    monkeypatch.setattr(create_pool, "MAX_INLINE_LABELS", 2)
    body = {"name": "p", "rows": ROWS[:4], "labels": ["red", None, "blue", None]}
    service.post(path, body, 201)
    before = stored(service)
    problem = refused(
        service, "POST", path, 422, "send rows and labels as a file", json={**body, "labels": ["red"] * 4}
    )
    assert pointers(problem) == ["/labels"]
    assert stored(service) == before


@on_sqlite
def test_features_that_are_not_finite_are_refused(service: Service) -> None:
    path = f"/projects/{classification(service)}/pools"
    for token in (b"NaN", b"Infinity", b"-Infinity", b"1e400", b"-1e400"):
        body = b'{"name": "p", "rows": [[0, 1], [0, %s]]}' % token
        problem = refused(service, "POST", path, 422, "finite number", content=body, headers=JSON)
        assert pointers(problem) == ["/rows/1/1"]
    endless = b'{"name": "p", "rows": [[0, %s]]}' % (b"9" * 5000)
    refused(service, "POST", path, 422, "not JSON: number out of range", content=endless, headers=JSON)
    large = b'{"name": "p", "rows": [[0, %s]]}' % (b"9" * 300)
    refused(service, "POST", path, 422, "too large for float32", content=large, headers=JSON)
    payload = b'{"name": "p", "rows": [[0, 1]], "payloads": [[NaN]]}'
    refused(service, "POST", path, 422, "payload", content=payload, headers=JSON)


def test_text_that_no_database_can_keep_is_refused_everywhere(service: Service, world: World) -> None:
    project, pool_path = f"/projects/{world.project_id}", f"/pools/{world.pool_id}"
    label = {"pool_id": world.pool_id, "row": 2, "value": "red"}
    task = {"kind": "classification", "classes": ["red", "blue"]}
    for text in UNSTORABLE:
        cases: list[tuple[str, Any]] = [
            ("/projects", {"name": text, "task": task, **SMALL}),
            ("/projects", {"name": "p", "task": {**task, "classes": ["red", text]}, **SMALL}),
            ("/projects", {"name": "p", "task": {**task, "kind": text}, **SMALL}),
            ("/projects", {"name": "p", "task": task, **SMALL, "model": {"name": text}}),
            ("/projects", {"name": "p", "task": task, **SMALL, "model": {"name": "mlp", "activation": text}}),
            ("/projects", {"name": "p", "task": task, **SMALL, text: 1}),
            (f"{project}/pools", {"name": text}),
            (f"{project}/pools", {"name": "p", "rows": ROWS[:1], "keys": [text]}),
            (f"{project}/pools", {"name": "p", "rows": ROWS[:1], "labels": [text]}),
            (f"{project}/labels", {"labels": [{**label, "pool_id": text}]}),
            (f"{project}/labels", {"labels": [{**label, "value": text}]}),
            (f"{project}/labels", {"labels": [{**label, "annotator": text}]}),
            (f"{project}/labels", {"labels": [{"pool_id": world.pool_id, "key": text, "value": "red"}]}),
            (f"{project}/current", {"ensemble_id": text}),
            (f"{project}/rounds", {"pool_id": text, "k": 1}),
            (f"{project}/schedules", {"cron": text}),
            (f"{project}/schedules", {"cron": "0 3 * * *", "timezone": text}),
            (f"{project}/schedules", {"every_labels": 1, "then_open_round": {"pool_id": text, "k": 1}}),
            (f"{pool_path}/rankings", {"k": 1, "ensemble_id": text}),
            (f"{pool_path}/rankings", {"k": 1, "acquisition": {"name": text}}),
            (f"/ensembles/{world.ensemble_id}/predictions", {"pool_id": text}),
            ("/keys", {"name": text}),
            ("/keys", {"name": "k", "project_ids": [text]}),
            ("/keys", {"name": "k", "scopes": [text]}),
        ]
        for path, body in cases:
            refused(service, "POST", path, 422, **spelt(body))


def test_a_nul_in_a_payload_is_kept(service: Service) -> None:
    pool_id = pool(service, classification(service), rows=ROWS[:1], payloads=["a\0b"])
    assert service.get(f"/pools/{pool_id}/items")["items"][0]["payload"] == "a\0b"


@on_sqlite
def test_a_body_that_is_not_json_is_refused(service: Service, world: World) -> None:
    for path in (f"/projects/{world.project_id}/labels", f"/projects/{world.project_id}/pools", "/projects"):
        for content, says in [
            (b"{", "JSON"),
            (b'{"labels": ', "JSON"),
            (b"\xff\xfe\xfa", "JSON"),
            (b"[" * 100_000, "JSON"),
            (b'{"a":' * 100_000, "JSON"),
            (b'{"a": %s}' % (b"9" * 5000), "JSON"),
            (b"", "JSON"),
            (b"[]", "object"),
            (b"null", "object"),
            (b"7", "object"),
        ]:
            refused(service, "POST", path, 422, says, content=content, headers=JSON)
    for kind in ("text/plain", "text/csv", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        headers = {"Content-Type": kind}
        path = f"/projects/{world.project_id}/labels"
        refused(
            service, "POST", path, 422, "Content-Type: application/json", content=b'{"labels": []}', headers=headers
        )


@on_sqlite
def test_a_compressed_body_is_refused(service: Service, world: World) -> None:
    packed = gzip.compress(b'{"name": "p"}')
    for encoding in ("gzip", "br", "deflate", "identity, gzip"):
        headers = {**JSON, "Content-Encoding": encoding}
        path = f"/projects/{world.project_id}/pools"
        refused(service, "POST", path, 415, "send the body as it is", content=packed, headers=headers)
        headers = {"Content-Type": "text/csv", "Content-Encoding": encoding}
        path = f"/pools/{world.empty_pool_id}/data"
        refused(service, "PUT", path, 415, "send the body as it is", content=packed, headers=headers)


def test_a_label_that_fits_no_row_or_class_is_refused_with_all_others(service: Service, world: World) -> None:
    path = f"/projects/{world.project_id}/labels"
    good = {"pool_id": world.pool_id, "row": 3, "value": "red"}
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"row": 3, "value": "green"}, "unknown class 'green'; this project has 'red', 'blue'", "/labels/1/value"),
        ({"row": 3, "value": 7}, "unknown class '7'", "/labels/1/value"),
        ({"row": 3, "value": 10**400}, "unknown class '1000", "/labels/1/value"),
        ({"row": 3, "value": [1.0]}, "unknown class", "/labels/1/value"),
        ({"row": 3, "value": {"a": 1}}, "a label is text", "/labels/1/value"),
        ({"row": 10, "value": "red"}, "has 10 rows, counted from 0; there is no row 10", "/labels/1/row"),
        ({"row": 2**61, "value": "red"}, "there is no row", "/labels/1/row"),
        ({"row": 2**62, "value": "red"}, "less than", "/labels/1/row"),
        ({"row": -1, "value": "red"}, "greater than or equal to 0", "/labels/1/row"),
        ({"row": 1.5, "value": "red"}, "valid integer", "/labels/1/row"),
        ({"key": "nobody", "value": "red"}, "no row with key 'nobody'", "/labels/1/key"),
        ({"value": "red"}, "either `row` or `key`", "/labels/1"),
        ({"row": 3, "key": "k3", "value": "red"}, "either `row` or `key`", "/labels/1"),
        ({"row": 3}, "exactly one of `value`", "/labels/1"),
        ({"row": 3, "value": None}, "exactly one of `value`", "/labels/1"),
        ({"row": 3, "value": "red", "skip": True}, "exactly one of `value`", "/labels/1"),
        ({"row": 3, "skip": True, "retract": True}, "exactly one of `value`", "/labels/1"),
        ({"row": 3, "value": "red", "lead_time": -1}, "greater than or equal to 0", "/labels/1/lead_time"),
        ({"row": 3, "value": "red", "annotator": ""}, "at least 1 character", "/labels/1/annotator"),
        ({"row": 3, "value": "red", "colour": 1}, "Extra inputs", "/labels/1/colour"),
    ]
    for body, says, pointer in cases:
        problem = refused(service, "POST", path, 422, says, json={"labels": [good, {"pool_id": world.pool_id, **body}]})
        assert pointers(problem) == [pointer], body
    refused(service, "POST", path, 422, "at least 1 item", json={"labels": []})
    problem = refused(service, "POST", path, 422, "Field required", json={"labels": [{"row": 1, "value": "red"}]})
    assert pointers(problem) == ["/labels/0/pool_id"]
    not_a_number = f'{{"labels": [{{"pool_id": "{world.pool_id}", "row": 1, "value": NaN}}]}}'
    refused(service, "POST", path, 422, "a label is text", content=not_a_number, headers=JSON)
    too_many = [good] * (service.services.settings.max_labels_per_request + 1)
    refused(service, "POST", path, 422, "more than 10,000 labels came in one request", json={"labels": too_many})


def test_a_number_that_cannot_be_trained_on_is_refused_as_a_label(service: Service) -> None:
    project_id = regression(service)
    pool_id = pool(service, project_id)
    path = f"/projects/{project_id}/labels"
    for value in ("hot", "nan", "inf", 1e39, -1e300, 10**400, [1.0, 2.0], []):
        body = {"labels": [{"pool_id": pool_id, "row": 0, "value": value}]}
        problem = refused(service, "POST", path, 422, "expected", json=body)
        assert pointers(problem) == ["/labels/0/value"]
        body = {"name": "p", "rows": ROWS[:2], "labels": [1.0, value]}
        problem = refused(service, "POST", f"/projects/{project_id}/pools", 422, "expected", json=body)
        assert pointers(problem) == ["/labels/1"]


@on_sqlite
def test_a_long_list_of_mistakes_is_answered_with_the_first(service: Service) -> None:
    body = {"name": "p", "rows": [[None, None]] * 50_000}
    problem = refused(service, "POST", f"/projects/{classification(service)}/pools", 422, json=body)
    assert pointers(problem) == ["/rows/0/0"]


def test_more_rows_than_there_are_cannot_be_ranked(service: Service, world: World) -> None:
    path = f"/pools/{world.pool_id}/rankings"
    refused(service, "POST", path, 409, "k is 11, but only 8 rows", json={"k": 11})
    refused(service, "POST", path, 409, "k is 9, but only 8 rows", "neither labelled nor skipped", json={"k": 9})
    refused(service, "POST", path, 422, "the cap is 10,000", json={"k": 2_000_000})
    for k, says in [
        (0, "greater than"),
        (-1, "greater than"),
        (2**40, "less than"),
        (1.5, "integer"),
        (None, "integer"),
        ("3", "integer"),
        (True, "integer"),
    ]:
        assert pointers(refused(service, "POST", path, 422, says, json={"k": k})) == ["/k"]
    body = {"pool_id": world.pool_id, "k": 9}
    refused(service, "POST", f"/projects/{world.project_id}/rounds", 409, "only 8 rows", json=body)
    asked = service.post(path, {"k": 8}, 202)
    service.run_jobs()
    ranking = service.get(f"/rankings/{asked['ranking']['id']}")
    assert sorted(item["row"] for item in ranking["items"]) == list(range(2, 10))
    service.post(
        f"/projects/{world.project_id}/labels",
        {"labels": [{"pool_id": world.pool_id, "row": row, "skip": True} for row in range(2, 10)]},
    )
    refused(service, "POST", path, 409, "k is 1, but no row of pool", "Add a pool", json={"k": 1})


def test_ranking_before_any_ensemble_says_so_and_offers_random(service: Service) -> None:
    project_id = classification(service)
    pool_id = pool(service, project_id)
    path = f"/pools/{pool_id}/rankings"
    for name in ("bald", "entropy", "margin"):
        body = {"acquisition": {"name": name}, "k": 3}
        problem = refused(service, "POST", path, 409, "no trained ensemble yet", "random", json=body)
        assert f"POST /v1/projects/{project_id}/ensembles" in problem["detail"]
    body = {"pool_id": pool_id, "k": 3, "acquisition": {"name": "bald"}}
    refused(service, "POST", f"/projects/{project_id}/rounds", 409, "random", json=body)
    asked = service.post(path, {"acquisition": {"name": "random"}, "k": 3}, 202)
    service.run_jobs()
    ranking = service.get(f"/rankings/{asked['ranking']['id']}")
    assert (ranking["status"], len({item["row"] for item in ranking["items"]})) == ("succeeded", 3)


def test_training_without_labels_is_refused(service: Service) -> None:
    project_id = classification(service)
    path = f"/projects/{project_id}/ensembles"
    refused(service, "POST", path, 409, "nothing to train on", "Label some rows first", json={})
    pool_id = pool(service, project_id)
    pool(service, project_id, purpose="evaluation", labels=["red", "blue"] * 5)
    refused(service, "POST", path, 409, "nothing to train on", json={})
    label = {"pool_id": pool_id, "row": 0}
    service.post(f"/projects/{project_id}/labels", {"labels": [{**label, "skip": True}]})
    refused(service, "POST", path, 409, "nothing to train on", json={})
    service.post(f"/projects/{project_id}/labels", {"labels": [{**label, "value": "red"}, {**label, "retract": True}]})
    asked = service.post(path, {}, 202)
    service.run_jobs()
    ensemble = service.get(f"/ensembles/{asked['ensemble']['id']}")
    assert (ensemble["status"], ensemble["error"]["title"]) == ("failed", "Nothing to train on")
    refused(service, "GET", f"/ensembles/{ensemble['id']}/file", 409, "not trained")
    refused(service, "POST", f"/ensembles/{ensemble['id']}/predictions", 409, "not trained", json={"rows": ROWS})
    refused(
        service, "POST", f"/projects/{project_id}/current", 409, "not trained", json={"ensemble_id": ensemble["id"]}
    )
    refused(service, "POST", path, 409, "warm_start needs an ensemble", json={"warm_start": True})


@pytest.mark.parametrize("labels", [["red"], ["red", "blue"], ["red"] * 5], ids=["one", "two", "one class"])
@on_sqlite
def test_training_on_very_few_labels_works(service: Service, labels: list[str]) -> None:
    project_id = classification(service)
    pool_id = pool(service, project_id)
    pool(service, project_id, purpose="evaluation", labels=["red", "blue"] * 5)
    said = [{"pool_id": pool_id, "row": row, "value": value} for row, value in enumerate(labels)]
    service.post(f"/projects/{project_id}/labels", {"labels": said})
    asked = service.post(f"/projects/{project_id}/ensembles", {}, 202)
    service.run_jobs()
    ensemble = service.get(f"/ensembles/{asked['ensemble']['id']}")
    assert (ensemble["status"], ensemble["n_labels"], ensemble["error"]) == ("succeeded", len(labels), None)
    metrics = ensemble["metrics"]
    assert metrics["n"] == 10
    assert all(math.isfinite(metrics[name]) for name in ("accuracy", "nll", "ece", "brier"))
    ranked = service.post(f"/pools/{pool_id}/rankings", {"k": 3}, 202)
    service.run_jobs()
    items = service.get(f"/rankings/{ranked['ranking']['id']}")["items"]
    assert len(items) == 3
    assert all(math.isfinite(item["score"]) for item in items)


def test_training_a_regression_on_one_label_works(service: Service) -> None:
    project_id = regression(service)
    pool_id = pool(service, project_id)
    pool(service, project_id, purpose="evaluation", labels=[row[0] for row in ROWS])
    service.post(f"/projects/{project_id}/labels", {"labels": [{"pool_id": pool_id, "row": 0, "value": 2.5}]})
    asked = service.post(f"/projects/{project_id}/ensembles", {}, 202)
    service.run_jobs()
    ensemble = service.get(f"/ensembles/{asked['ensemble']['id']}")
    assert (ensemble["status"], ensemble["n_labels"]) == ("succeeded", 1)
    assert all(math.isfinite(ensemble["metrics"][name]) for name in ("rmse", "nll"))


def test_another_projects_things_are_not_there(service: Service, world: World) -> None:
    project, other = f"/projects/{world.project_id}", f"/projects/{world.other_project_id}"
    foreign = {"pool_id": world.other_pool_id, "k": 1, "acquisition": {"name": "random"}}
    label = {"pool_id": world.other_pool_id, "row": 0, "value": "red"}
    own = {"pool_id": world.pool_id, "row": 3, "value": "red"}
    no_pool = f"this project has no pool '{world.other_pool_id}'"
    no_ensemble = f"this project has no ensemble '{world.ensemble_id}'"
    refused(service, "POST", f"{project}/labels", 404, no_pool, json={"labels": [own, label]})
    refused(service, "POST", f"{project}/rounds", 404, no_pool, json=foreign)
    body = {"every_labels": 5, "then_open_round": foreign}
    refused(service, "POST", f"{project}/schedules", 404, no_pool, json=body)
    body = {"pool_id": world.other_pool_id}
    refused(service, "POST", f"/ensembles/{world.ensemble_id}/predictions", 404, no_pool, json=body)
    body = {"k": 1, "ensemble_id": world.ensemble_id}
    refused(service, "POST", f"/pools/{world.other_pool_id}/rankings", 404, no_ensemble, json=body)
    refused(service, "POST", f"{other}/current", 404, no_ensemble, json={"ensemble_id": world.ensemble_id})
    for path, body in [
        (f"{project}/labels", {"labels": [{**own, "pool_id": UNKNOWN}]}),
        (f"{project}/rounds", {**foreign, "pool_id": UNKNOWN}),
        (f"{project}/current", {"ensemble_id": UNKNOWN}),
        (f"/pools/{world.pool_id}/rankings", {"k": 1, "ensemble_id": UNKNOWN}),
    ]:
        refused(service, "POST", path, 404, UNKNOWN, json=body)


def test_an_evaluation_pool_is_never_ranked(service: Service, world: World) -> None:
    body: dict[str, Any] = {"k": 1, "acquisition": {"name": "random"}}
    refused(service, "POST", f"/pools/{world.evaluation_id}/rankings", 409, "for evaluation", json=body)
    body["pool_id"] = world.evaluation_id
    refused(service, "POST", f"/projects/{world.project_id}/rounds", 409, "for evaluation", json=body)
    body = {"every_labels": 5, "then_open_round": body}
    refused(service, "POST", f"/projects/{world.project_id}/schedules", 409, "for evaluation", json=body)


def test_a_pool_without_rows_says_how_to_send_them(service: Service, world: World) -> None:
    says = f"PUT /v1/pools/{world.empty_pool_id}/data"
    label = {"pool_id": world.empty_pool_id, "row": 0, "value": "red"}
    refused(service, "POST", f"/projects/{world.project_id}/labels", 409, says, json={"labels": [label]})
    refused(service, "POST", f"/pools/{world.empty_pool_id}/rankings", 409, says, json={"k": 1})
    refused(service, "GET", f"/pools/{world.empty_pool_id}/items", 409, says)
    body = {"pool_id": world.empty_pool_id}
    refused(service, "POST", f"/ensembles/{world.ensemble_id}/predictions", 409, says, json=body)


def test_predictions_for_rows_that_do_not_fit_are_refused(service: Service, world: World) -> None:
    path = f"/ensembles/{world.ensemble_id}/predictions"
    cases: list[tuple[Any, str]] = [
        ({"rows": [[1.0]]}, "expected 2 features"),
        ({"rows": [[1.0, 1e39]]}, "too large for float32"),
        ({"rows": []}, "send 1 to 10,000 rows"),
        ({"rows": [[0.0, 0.0]] * 10_001}, "send 1 to 10,000 rows"),
        ({}, "either `rows` or `pool_id`"),
        ({"rows": ROWS, "pool_id": world.pool_id}, "either `rows` or `pool_id`"),
    ]
    for body, says in cases:
        refused(service, "POST", path, 422, says, json=body)
    refused(service, "POST", path, 422, "finite number", content=b'{"rows": [[0, NaN]]}', headers=JSON)


@on_sqlite
def test_a_project_that_could_never_be_trained_is_refused(service: Service) -> None:
    no_prior = {"task": {**COLOURS, "prior": None}}
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"posterior": {"name": "magic"}}, 'there is no name "magic"; name is one of auto, map, ', "/posterior"),
        ({"posterior": {}}, 'an object with a name, such as {"name": "auto"}, got {}', "/posterior"),
        ({"posterior": "swag"}, 'such as {"name": "auto"}, got "swag"; name is one of', "/posterior"),
        ({"model": {"name": ["mlp"]}}, 'there is no name ["mlp"]; name is one of mlp, ', "/model"),
        ({"task": "regression"}, 'an object with a kind, such as {"kind": "classification"}, got "reg', "/task"),
        ({"posterior": {"name": "deep_ensemble", "members": 0}}, "greater than or equal to 1", "/posterior/members"),
        (
            {"posterior": {"name": "deep_ensemble", "members": 10**6}},
            "less than or equal to 1000",
            "/posterior/members",
        ),
        ({"posterior": {"name": "deep_ensemble", "members": "5"}}, "a whole number, got '5'", "/posterior"),
        ({"posterior": {"name": "deep_ensemble", "members": True}}, "a whole number, got True", "/posterior"),
        ({"posterior": {"name": "deep_ensemble", "bootstrap": 1}}, "true or false, got 1", "/posterior"),
        ({"model": {"name": "mlp", "hidden": ["5"]}}, "a list of a whole number", "/model"),
        ({"posterior": {"name": "renyi", "alpha": 1e300}}, 'alpha="max"', "/posterior"),
        ({"posterior": {"name": "renyi", "samples": 100_000, "epochs": 1}, **WIDE}, "at one time", "/posterior"),
        ({"posterior": {"name": "mfvi"}, **no_prior}, "mfvi weighs the likelihood against a prior", "/posterior"),
        ({"task": {**COLOURS, "prior": {"scale": 0}}}, "greater than 0", "/task/prior/scale"),
        ({"task": {**COLOURS, "prior": {"scale": "1"}}}, "valid number", "/task/prior/scale"),
        ({"task": {**COLOURS, "prior": {"name": "gamma"}}}, 'no name "gamma"; name is one of normal, d', "/task/prior"),
        ({"task": {**COLOURS, "prior": 1.0}}, 'such as {"name": "normal"}, got 1.0', "/task/prior"),
        ({"task": {**COLOURS, "prior": {"name": "student_t", "df": 0}}}, "greater than 0", "/task/prior/df"),
        (
            {"task": {**COLOURS, "prior": {"name": "student_t"}}, "posterior": {"name": "vogn"}},
            "vogn needs a Normal prior, got StudentT",
            "/posterior",
        ),
        ({"posterior": {"name": "deep_ensemble", "epochs": -1}}, "greater than or equal to", "/posterior/epochs"),
        ({"posterior": {"name": "deep_ensemble", "lr": 0}}, "greater than 0", "/posterior/lr"),
        ({"posterior": {"name": "deep_ensemble", "membres": 5}}, "xpected keyword", "/posterior/membres"),
        ({"posterior": {"name": "mc_dropout", "rate": 1}}, "less than 1", "/posterior/rate"),
        ({"model": {"name": "mlp", "hidden": [0]}}, "hidden", "/model"),
        ({"model": {"name": "mlp", "hidden": [-5]}}, "hidden", "/model"),
        ({"model": {"name": "mlp", "hidden": [4] * 33}}, "at most 32", "/model/hidden"),
        ({"model": {"name": "mlp", "hidden": [30_000, 30_000]}}, "the cap is 50,000,000", "/model"),
        ({"model": {"name": "mlp", "activation": "sine"}}, "'relu', 'tanh', 'gelu' or 'silu'", "/model/activation"),
        ({"model": {"name": "mlp", "depth": 3}}, "xpected keyword", "/model/depth"),
        ({"model": {"name": "conv"}}, "conv", "/model"),
        ({"model": {"name": "residual"}}, "residual", "/model"),
        (
            {"model": {"name": "mlp", "hidden": [2000, 2000]}, "posterior": {"name": "map", "epochs": 300_000}},
            "members × weights × epochs",
            "/posterior",
        ),
        ({"input": {"shape": [1000, 1001]}}, "the cap is 1,000,000", "/input/shape"),
        ({"input": {"shape": [10**6] * 4}}, "the cap is 1,000,000", "/input/shape"),
        ({"input": {"shape": []}}, "at least 1 item", "/input/shape"),
        ({"input": {"shape": [0]}}, "greater than or equal to 1", "/input/shape/0"),
        ({"input": {"shape": [2**70]}}, "less than or equal to", "/input/shape/0"),
        ({"task": {"kind": "classification", "classes": ["red"]}}, "at least 2 items", "/task/classes"),
        ({"task": {"kind": "classification", "classes": ["red", "red"]}}, "must differ", "/task/classes"),
        ({"task": {"kind": "classification", "classes": ["red", ""]}}, "at least 1 character", "/task/classes/1"),
        ({"task": {"kind": "classification"}}, "Field required", "/task/classes"),
        ({"task": {"kind": "regression", "outputs": 0}}, "greater than or equal to 1", "/task/outputs"),
        ({"task": {"kind": "ranking"}}, "kind is one of classification, regression", "/task"),
        ({"holdout": 1}, "less than 1", "/holdout"),
        ({"holdout": -0.1}, "greater than or equal to 0", "/holdout"),
        ({"colour": "red"}, "Extra inputs", "/colour"),
    ]
    base = {"name": "p", "task": {"kind": "classification", "classes": ["red", "blue"]}, **SMALL}
    for body, says, pointer in cases:
        problem = refused(service, "POST", "/projects", 422, says, json={**base, **body})
        assert pointers(problem) == [pointer], body
    spelt_out = json.dumps(base).replace('"epochs": 2', '"epochs": 2, "lr": NaN')
    refused(service, "POST", "/projects", 422, "finite", content=spelt_out, headers=JSON)
    spelt_out = json.dumps({**base, "holdout": 0.5}).replace("0.5", "NaN")
    refused(service, "POST", "/projects", 422, "finite", content=spelt_out, headers=JSON)


UNSUITABLE: list[tuple[dict[str, Any], dict[str, Any], str]] = [  # project, posterior, what is said
    ({}, {"name": "pbp"}, "pbp is for regression with one noise level, got Categorical"),
    ({"task": {"kind": "regression", "outputs": 2}}, {"name": "pbp"}, "pbp is for one output, got 2"),
    ({"task": {"kind": "regression", "noise": "by_row"}}, {"name": "pbp"}, "got HeteroscedasticGaussian"),
    (
        {"task": {"kind": "regression"}, "input": {"shape": [1, 4, 4]}, "model": {"name": "conv"}},
        {"name": "pbp"},
        "this network has a Conv2d",
    ),
    ({"model": {"name": "mlp", "hidden": [100, 100]}}, {"name": "laplace", "structure": "full"}, "at most 5,000"),
    ({}, {"name": "laplace", "noise": "marglik"}, "needs a Gaussian likelihood"),
    ({}, {"name": "swag", "epochs": 10}, "rank is at most the number of collected weights, got rank 20 and 5"),
    ({}, {"name": "snapshot_ensemble", "epochs": 2}, "raise epochs, or lower cycles"),
    ({}, {"name": "rank1_bnn", "components": 3}, "pass members=6"),
]


@on_sqlite
def test_a_posterior_that_does_not_suit_is_refused_before_anything_is_stored(service: Service) -> None:
    base = {"name": "p", "task": {"kind": "classification", "classes": ["red", "blue"]}, **SMALL}
    for project, posterior, says in UNSUITABLE:
        body = {**base, **project, "posterior": posterior}
        assert pointers(refused(service, "POST", "/projects", 422, says, json=body)) == ["/posterior"], body
    assert service.get("/projects")["items"] == []
    for project, posterior, says in UNSUITABLE:
        suited = service.post("/projects", {**base, **project, "posterior": {"name": "map"}}, 201)
        path = f"/projects/{suited['id']}/ensembles"
        assert pointers(refused(service, "POST", path, 422, says, json={"posterior": posterior})) == ["/posterior"]
        assert service.get(path)["items"] == []


@on_sqlite
def test_a_posterior_kept_from_before_it_was_refused_is_refused_when_it_is_asked_for(
    service: Service, world: World
) -> None:
    with service.services.database.write() as session:
        session.get_one(Project, world.project_id).posterior = {"name": "pbp"}
    path = f"/projects/{world.project_id}/ensembles"
    assert pointers(refused(service, "POST", path, 422, "pbp is for regression", json={})) == ["/posterior"]
    with service.services.database.write() as session:  # as a round that is complete asks for it
        project = session.get_one(Project, world.project_id)
        job_id = request_training(session, project, service.services.settings).job.id
    service.run_jobs()
    job = service.get(f"/jobs/{job_id}")
    assert (job["status"], job["attempts"]) == ("failed", 1)
    assert "pbp is for regression" in job["error"]["detail"]


@on_sqlite
def test_trainings_and_rankings_with_options_out_of_bounds_are_refused(service: Service, world: World) -> None:
    path = f"/projects/{world.project_id}/ensembles"
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"posterior": {"name": "deep_ensemble", "members": 0}}, "greater than or equal to 1", "/posterior/members"),
        ({"posterior": {"name": "deep_ensemble", "members": 1000, "epochs": 100_000_000}}, "", "/posterior"),
        ({"n_members": 0}, "greater than or equal to 1", "/n_members"),
        ({"n_members": 1001}, "the cap is 1,000", "/n_members"),
        ({"seed": -1}, "greater than or equal to 0", "/seed"),
        ({"seed": 2**63}, "less than", "/seed"),
    ]
    for body, says, pointer in cases:
        problem = refused(service, "POST", path, 422, says, json=body)
        assert pointers(problem)[0].startswith(pointer), body
    refused(service, "POST", path, 422, "JSON object")
    path = f"/pools/{world.pool_id}/rankings"
    cases = [
        ({"acquisition": {"name": "luck"}}, 'there is no name "luck"; name is one of bald, ent', "/acquisition"),
        ({"acquisition": {}}, 'an object with a name, such as {"name": "bald"}, got {}; name is one', "/acquisition"),
        ({"acquisition": "bald"}, 'an object with a name, such as {"name": "bald"}, got "bald"', "/acquisition"),
        ({"acquisition": None}, 'such as {"name": "bald"}, got null', "/acquisition"),
        ({"target": {"pool_id": "x", "rows": [[1.0]]}}, "send one of pool_id and rows", "/target"),
        ({"target": {}}, "send one of pool_id and rows", "/target"),
        ({"target": [[1.0]]}, "send one of pool_id and rows", "/target"),
        ({"target": {"rows": [[1, 2, 3, "a"]]}}, "valid number", "/target/rows/0/3"),
        ({"target": {"pool_id": 3}}, "valid string", "/target/pool_id"),
        ({"acquisition": {"name": "bald", "estimate": "guess"}}, "Input should be", "/acquisition/estimate"),
        ({"selection": {"name": "power", "beta": -1}}, "", "/selection/beta"),
        ({"selection": {"name": "worst"}}, 'there is no name "worst"; name is one of top_k', "/selection"),
        ({"seed": 2**64}, "less than", "/seed"),
    ]
    for body, says, pointer in cases:
        problem = refused(service, "POST", path, 422, says, json={"k": 1, **body})
        assert pointers(problem) == [pointer], body
    path = f"/pools/{world.other_pool_id}/rankings"
    body = {"k": 1, "acquisition": {"name": "margin"}}
    problem = refused(service, "POST", path, 422, "not defined for regression; take one of", json=body)
    assert pointers(problem) == ["/acquisition/name"]


def test_a_schedule_that_would_never_run_is_refused(service: Service, world: World) -> None:
    path = f"/projects/{world.project_id}/schedules"
    for cron in (
        *("0 0 30 2 *", "0 0 31 4 *", "bad", "* * * *", "* * * * * *", "60 * * * *", "@daily", "*/0 * * * *"),
        *("² * * * *", "٣ * * * *", "5-1 * * * *", ", * * * *", "* " * 90, "0 0 * * 8", "9" * 150 + " * * * *"),
    ):
        problem = refused(
            service, "POST", path, 422, "can't be read or never fires", "five fields", json={"cron": cron}
        )
        assert pointers(problem) == ["/cron"]
    for zone in ("", "Mars/Olympus", "Europe", "UTC+1", "../../etc/passwd", "/etc/passwd", "zone.tab", "a" * 100, "."):
        body = {"cron": "0 3 * * *", "timezone": zone}
        problem = refused(service, "POST", path, 422, "IANA name such as Europe/Berlin", json=body)
        assert pointers(problem) == ["/timezone"]
    trigger = "exactly one of `cron`, `every_labels` and `on_round_complete: true`"
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, trigger),
        ({"cron": "0 3 * * *", "every_labels": 5}, trigger),
        ({"every_labels": 0}, "greater than or equal to 1"),
        ({"every_labels": 5, "debounce_seconds": -1}, "greater than or equal to 0"),
        ({"every_labels": 5, "training": {"n_members": 1001}}, "over the cap of 1,000"),
        ({"every_labels": 5, "training": {"posterior": {"name": "magic"}}}, 'there is no name "magic"'),
        ({"every_labels": 5, "then_open_round": {"pool_id": world.pool_id, "k": 10_001}}, "over the cap of 10,000"),
    ]
    for body, says in cases:
        refused(service, "POST", path, 422, says, json=body)
    schedule = service.post(path, {"every_labels": 5}, 201)
    refused(service, "PATCH", f"/schedules/{schedule['id']}", 422, "Field required", json={})
    refused(service, "PATCH", f"/schedules/{schedule['id']}", 422, "boolean", json={"paused": "perhaps"})


def test_a_closed_round_takes_no_labels(service: Service, world: World) -> None:
    opened = service.post(f"/projects/{world.project_id}/rounds", {"pool_id": world.pool_id, "k": 2}, 202)
    path = f"/rounds/{opened['round']['id']}"
    label = {"row": 5, "value": "red"}
    refused(service, "POST", f"{path}/labels", 409, "this round is ranking", json={"labels": [label]})
    refused(service, "POST", f"{path}/next", 409, "ranking is still under way", json={})
    service.run_jobs()
    rows = {item["row"] for item in service.post(f"{path}/next", {"count": 2})["items"]}
    outside = next(row for row in range(2, 10) if row not in rows)
    body = {"labels": [{"row": rows.copy().pop(), "value": "red"}, {"row": outside, "value": "red"}]}
    problem = refused(service, "POST", f"{path}/labels", 422, f"row {outside} is not in this round", json=body)
    assert pointers(problem) == ["/labels/1/row"]
    refused(service, "POST", f"{path}/next", 422, "less than or equal to 1000", json={"count": 1001})
    assert service.post(f"{path}/close", status=200)["status"] == "closed"
    body = {"labels": [{"row": rows.pop(), "value": "red"}]}
    refused(service, "POST", f"{path}/labels", 409, "this round is closed", json=body)


def test_a_key_with_impossible_terms_is_refused(service: Service) -> None:
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"scopes": []}, "at least 1 item", "/scopes"),
        ({"scopes": ["root"]}, "'read', 'label', 'write' or 'admin'", "/scopes/0"),
        ({"expires_at": "2001-01-01T00:00:00Z"}, "in the past", "/expires_at"),
        ({"expires_at": "2101-01-01T00:00:00"}, "timezone", "/expires_at"),
        ({"expires_at": "9999-12-31T23:59:59-12:00"}, "past the end of the calendar", "/expires_at"),
        ({"expires_at": "0001-01-01T00:00:00+12:00"}, "calendar", "/expires_at"),
        ({"expires_at": 1e300}, "datetime", "/expires_at"),
        ({"expires_at": "soon"}, "datetime", "/expires_at"),
        ({"project_ids": ["x" * 37]}, "at most 36 characters", "/project_ids/0"),
    ]
    for body, says, pointer in cases:
        problem = refused(service, "POST", "/keys", 422, says, json={"name": "k", **body})
        assert pointers(problem) == [pointer], body


def cursor(*values: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")


def test_a_cursor_that_is_not_ours_is_refused(service: Service, world: World) -> None:
    by_id = [
        "/projects",
        "/keys",
        *(f"/projects/{world.project_id}/{noun}" for noun in ("pools", "ensembles", "rounds")),
    ]
    by_id += [f"/projects/{world.project_id}/{noun}" for noun in ("schedules", "jobs")]
    by_id += [f"/pools/{world.pool_id}/rankings"]
    by_number = [f"/pools/{world.pool_id}/items", f"/projects/{world.project_id}/labels?history=true"]
    consensus = f"/projects/{world.project_id}/labels"
    never = ["x", "é", "\0", "[]", "=", cursor(), cursor(None), cursor(True), cursor(1.5), cursor([]), cursor("a\0")]
    never += [
        cursor("\ud800"),
        cursor("\ud800", 1),
        cursor("a", 2**63),
        cursor(2**63),
        cursor(-(2**63)),
        cursor("a", "b"),
    ]
    never += [base64.urlsafe_b64encode(b'{"a": 1}').decode()]
    says = "pass `next_cursor` of the page before, unchanged"
    for path in (*by_id, *by_number, consensus):
        query = {"history": "true"} if path.endswith("history=true") else {}
        bad = [*never, *([cursor(1)] if path in by_id else [cursor("a")])]
        for text in bad:
            refused(service, "GET", path, 422, says, params={**query, "cursor": text})
        refused(service, "GET", path, 422, "at most 500 characters", params={**query, "cursor": "x" * 501})
    assert service.get(by_number[0], cursor=cursor(2**63 - 1)) == {"items": [], "next_cursor": None}
    assert len(service.get(by_number[0], cursor=cursor(-(2**62)))["items"]) == 10


def test_page_sizes_and_other_parameters_out_of_range_are_refused(service: Service, world: World) -> None:
    for path in ("/projects", f"/pools/{world.pool_id}/items", f"/projects/{world.project_id}/labels"):
        for limit in ("0", "-1", "1001", "many", "9" * 5000, "1.5", ""):
            assert pointers(refused(service, "GET", path, 422, params={"limit": limit})) == ["/query/limit"]
    refused(service, "GET", f"/projects/{world.project_id}/labels", 422, params={"format": "xml"})
    refused(service, "GET", f"/projects/{world.project_id}/labels", 422, params={"history": "perhaps"})
    refused(service, "GET", f"/projects/{world.project_id}/jobs", 422, params={"status": "lost"})
    asked = service.post(f"/ensembles/{world.ensemble_id}/predictions", {"rows": ROWS}, 202)
    for wait in ("nan", "inf", "-1", "31"):
        refused(service, "GET", f"/predictions/{asked['prediction']['id']}", 422, params={"wait": wait})
    for name in ("key", "label", "payload"):
        for text in ("", "a\0b", "x" * 201):
            headers = {"Content-Type": "text/csv"}
            path = f"/pools/{world.empty_pool_id}/data"
            refused(service, "PUT", path, 422, params={name: text}, content=b"a,b\n1,2\n", headers=headers)


def test_garbage_in_place_of_an_id_is_not_found(service: Service) -> None:
    nouns = ("projects", "pools", "jobs", "ensembles", "rankings", "rounds", "schedules", "predictions")
    for garbage in ("%00", "a%00b", "x" * 5000, "é", "%ff", "%ED%A0%80", "😀", "a b", "%0a", "'", UNKNOWN, "0"):
        for noun in nouns:
            refused(service, "GET", f"/{noun}/{garbage}", 404, "there is no ")
        refused(service, "DELETE", f"/keys/{garbage}", 404, "there is no key")
        refused(
            service,
            "POST",
            f"/projects/{garbage}/labels",
            404,
            json={"labels": [{"pool_id": "p", "row": 0, "skip": True}]},
        )
        refused(
            service, "PUT", f"/pools/{garbage}/data", 404, content=b"a,b\n1,2\n", headers={"Content-Type": "text/csv"}
        )
    problem = service.client.get("/v1/nothing")
    assert (problem.status_code, problem.headers["content-type"]) == (404, "application/problem+json")
    problem = service.client.delete("/v1/methods")
    assert (problem.status_code, problem.json()["title"]) == (405, "Method Not Allowed")


def npy(array: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def parquet(**columns: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


def bomb(n_rows: int) -> bytes:
    """A kilobyte of text for each row, which Parquet spells once."""
    said_once = pa.DictionaryArray.from_arrays(np.zeros(n_rows, dtype=np.int32), ["x" * 1024])
    zeros = np.zeros(n_rows, dtype=np.float32)
    return parquet(a=zeros, b=zeros, payload=said_once)


@on_sqlite
def test_a_file_that_cannot_be_read_is_refused_at_once(service: Service, world: World) -> None:
    path = f"/pools/{world.empty_pool_id}/data"
    good = np.zeros((100, 2), dtype=np.float32)
    table = parquet(a=good[:, 0], b=good[:, 1])
    bad = good.copy()
    bad[7, 1] = np.nan
    npy_type, parquet_type = "application/x-npy", "application/vnd.apache.parquet"
    cases: list[tuple[bytes, str, str]] = [
        (npy(good)[:-1], npy_type, ""),
        (npy(good)[:40], npy_type, ""),
        (npy(good) + b"more", npy_type, ""),
        (npy(np.zeros((100, 3), dtype=np.float32)), npy_type, "2"),
        (npy(good.astype(object)), npy_type, ""),
        (npy(bad), npy_type, "Row 7"),
        (npy(np.full((2, 2), 1e39)), npy_type, "too large for float32"),
        (npy(np.zeros((0, 2), dtype=np.float32)), npy_type, "no rows"),
        (table[:-10], parquet_type, ""),
        (table[: len(table) // 2], parquet_type, ""),
        (b"PAR1" + table[4:-4] + b"PAR2", parquet_type, ""),
        (parquet(a=good[:, 0]), parquet_type, "2"),
        (parquet(a=good[:, 0], b=bad[:, 1]), parquet_type, "Row 7"),
        (b"a,b\n1,2\n1\n", "text/csv", ""),
        (b"a,b\n1,x\n", "text/csv", ""),
        (b"a,b\n1,nan\n", "text/csv", ""),
        (b"a,b\n", "text/csv", "no rows"),
        (b"\xff\xfe\x00", "text/csv", ""),
        (b'{"x": [1, 2]}\n{"x": [1]}\n', "application/x-ndjson", "Row 1"),
        (b'{"x": [1, NaN]}\n', "application/x-ndjson", ""),
        (b"not json\n", "application/x-ndjson", ""),
        (b"[" * 100_000, "application/x-ndjson", ""),
        (b"ARROW1\0\0rubbish", "application/vnd.apache.arrow.file", ""),
        (b"", "text/csv", "the body is empty"),
    ]
    for content, kind, says in cases:
        refused(service, "PUT", path, 422, says, content=content, headers={"Content-Type": kind})
    headers = {"Content-Type": npy_type}
    refused(service, "PUT", path, 422, "no columns", content=npy(good), headers=headers, params={"key": "id"})
    csv = {"content": b"a,b\n1,2\n", "headers": {"Content-Type": "text/csv"}}
    refused(service, "PUT", path, 422, "id", params={"key": "id"}, **csv)
    for kind in ("application/json", "image/png", "text/html", "nonsense", "application/zip"):
        refused(service, "PUT", path, 415, "accepted: ", content=npy(good), headers={"Content-Type": kind})
    assert service.get(f"/pools/{world.empty_pool_id}")["status"] == "empty"
    refused(service, "PUT", f"/pools/{world.pool_id}/data", 409, "create another pool", **csv)
    service.client.put(f"/v1{path}", **csv).raise_for_status()
    refused(service, "PUT", path, 409, "is being ingested by job", **csv)
    service.run_jobs()
    refused(service, "PUT", path, 409, "create another pool", **csv)


@on_sqlite
def test_a_parquet_bomb_is_defused(database: Database, make_service: Any) -> None:
    service = make_service(database, max_pool_bytes=2**26)
    pool_id = empty_pool(service, classification(service))
    before = stored(service)
    headers = {"Content-Type": "application/vnd.apache.parquet"}
    zeros = pa.ListArray.from_arrays(np.array([0, 2**25], dtype=np.int32), np.zeros(2**25, dtype=np.float32))
    for content, says in [
        (bomb(2**24), "split it"),  # its features alone
        (parquet(x=zeros), "numbers in 'x' for 1 rows"),
    ]:
        assert len(content) < 2**21
        refused(service, "PUT", f"/pools/{pool_id}/data", 422, says, content=content, headers=headers)
    content = bomb(2**20)  # a gigabyte of payloads, which the first rows do not show
    assert len(content) < 2**17
    assert service.client.put(f"/v1/pools/{pool_id}/data", content=content, headers=headers).status_code == 202
    service.run_jobs()
    found = service.get(f"/pools/{pool_id}")
    assert (found["status"], found["n_rows"], found["error"]["status"]) == ("failed", 0, 422)
    assert "at most 67,108,864 fit in a pool" in found["error"]["detail"]
    assert files(service) == before[1]


def raw(service: Service, head: str, body: bytes = b"") -> bytes:
    """What the service says to these very bytes; the connection is left open until it has said it."""
    url = service.client.base_url
    with socket.create_connection((url.host, url.port or 80), timeout=20) as connection:
        key = service.client.headers["Authorization"]
        connection.sendall(f"{head}\r\nHost: test\r\nAuthorization: {key}\r\n\r\n".encode() + body)
        return connection.recv(65536)


@on_sqlite
def test_a_body_announced_as_too_large_is_refused_before_it_is_read(service: Service, world: World) -> None:
    before = stored(service)
    for line, kind in [
        (f"PUT /v1/pools/{world.empty_pool_id}/data", "application/x-npy"),
        (f"POST /v1/projects/{world.project_id}/pools", "application/json"),
        ("POST /v1/projects", "application/json"),
    ]:
        answer = raw(service, f"{line} HTTP/1.1\r\nContent-Type: {kind}\r\nContent-Length: 10000000000")
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b"connection: close" in answer.lower()  # the body is not read to its end
        assert b"application/problem+json" in answer
        assert b"10,000,000,000 bytes" in answer
    assert stored(service) == before


@on_sqlite
def test_a_body_that_grows_past_the_cap_is_refused_on_the_way(database: Database, make_service: Any) -> None:
    service = make_service(database, max_json_bytes=10_000, max_upload_bytes=100_000)
    project_id = classification(service)
    pool_id = empty_pool(service, project_id)

    def endless(piece: bytes, n: int) -> Any:
        yield from (piece for _ in range(n))

    for path in (f"/projects/{project_id}/pools", f"/projects/{project_id}/labels"):
        body = {"content": endless(b"[" * 1000, 1000), "headers": JSON}
        refused(service, "POST", path, 413, "the cap here is 10,000", **body)
        body = {"content": endless(b"[" * 1000, 1000), "headers": {**JSON, "Idempotency-Key": "large"}}
        refused(service, "POST", path, 413, "the cap here is 10,000", **body)
    body = {"content": endless(b"0,1\n" * 1000, 1000), "headers": {"Content-Type": "text/csv"}}
    refused(service, "PUT", f"/pools/{pool_id}/data", 413, "the cap here is 100,000", **body)
    assert service.get(f"/pools/{pool_id}")["status"] == "empty"


@on_sqlite
def test_what_came_is_told_beside_what_was_expected(service: Service) -> None:
    path = f"/experiments/{experiment(service)}/simulations"
    for body, detail in (
        ({"rounds": 0}, "Input should be greater than or equal to 1, got 0"),
        ({"rounds": "many"}, 'Input should be a valid integer, got "many"'),
        ({"rounds": None}, "Input should be a valid integer, got null"),
        ({"rounds": {}}, "Input should be a valid integer, got an object"),
        ({"rounds": 3, "drws": 2}, "got 'drws': check its spelling, or leave it out"),
        ({"seed": 3}, "Field required; got only seed"),
        ({}, "Field required; nothing came"),
        ({"rounds": 3, "seed": "x" * 500}, f', got "{"x" * 79}…'),
    ):
        assert refused(service, "POST", path, 422, json=body)["errors"][0]["detail"].endswith(detail), body
    names = f"/experiments/{experiment(service)}/sessions"
    problem = refused(service, "POST", names, 422, json={"name": "n" * 201})
    assert problem["errors"][0]["detail"] == "String should have at most 200 characters, got 201"


@on_sqlite
def test_a_wrong_method_is_told_all_that_there_are(service: Service) -> None:
    for method, path, allowed in (
        ("PUT", "/sessions/x", "DELETE, GET, PATCH"),
        ("PATCH", "/sessions/x/token", "DELETE, POST"),
        ("DELETE", "/experiments", "GET, POST"),
        ("PUT", "/sessions/x/observations/1", "DELETE"),
        ("POST", "/pools/x/data", "PUT"),
    ):
        answer = service.client.request(method, f"/v1{path}", json={})
        assert (answer.status_code, answer.headers["Allow"]) == (405, allowed), path
        assert f"this address takes {allowed}" in answer.json()["detail"]
    assert service.client.post("/openapi.json").headers["Allow"] == "GET, HEAD"


@on_sqlite
def test_a_wrong_address_is_told_so(service: Service) -> None:
    for method, path, status, advice in (
        ("GET", "/project", 404, "there is no GET /v1/project; see /docs"),
        ("POST", "/projects/", 404, "leave out the slash at its end"),
        ("PUT", "/projects", 405, "this address takes "),
    ):
        answer = service.client.request(method, f"/v1{path}", json={})
        assert answer.status_code == status
        assert advice in answer.json()["detail"]
        assert answer.headers["content-type"] == "application/problem+json"
