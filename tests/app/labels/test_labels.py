"""Labels are events; what counts is computed from them."""

from typing import Any

import pytest

from tests.app.conftest import Service
from tests.app.working import on_sqlite


@pytest.fixture
def place(service: Service) -> tuple[str, str]:
    """A project of two features and classes a, b, c, and a pool of five rows with keys r0 … r4."""
    project = service.project(task={"kind": "classification", "classes": ["a", "b", "c"]}, input={"shape": [2]})
    pool = service.post(
        f"/projects/{project['id']}/pools",
        {"name": "pool", "rows": [[i, -i] for i in range(5)], "keys": [f"r{i}" for i in range(5)]},
    )
    return project["id"], pool["id"]


def say(service: Service, place: tuple[str, str], *events: dict[str, Any]) -> Any:
    return service.post(f"/projects/{place[0]}/labels", {"labels": [{"pool_id": place[1], **e} for e in events]}, 201)


def standing(service: Service, place: tuple[str, str]) -> dict[int, tuple[str, Any]]:
    items = service.get(f"/pools/{place[1]}/items")["items"]
    return {item["row"]: (item["status"], item["label"]) for item in items}


def test_the_majority_of_each_annotators_latest_label_counts(service: Service, place: tuple[str, str]) -> None:
    say(service, place, *({"row": 0, "value": v, "annotator": who} for who, v in (("x", "a"), ("y", "b"), ("z", "b"))))
    assert standing(service, place)[0] == ("labelled", "b")
    say(service, place, {"row": 0, "value": "a", "annotator": "z"})
    assert standing(service, place)[0] == ("labelled", "a")


def test_a_tie_leaves_the_row_open_until_somebody_breaks_it(service: Service, place: tuple[str, str]) -> None:
    say(service, place, {"row": 1, "value": "a", "annotator": "x"}, {"row": 1, "value": "c", "annotator": "y"})
    assert standing(service, place)[1] == ("open", None)
    assert service.get(f"/pools/{place[1]}")["n_labelled"] == 0
    say(service, place, {"key": "r1", "value": "c", "annotator": "z"})
    assert standing(service, place)[1] == ("labelled", "c")
    assert service.get(f"/pools/{place[1]}")["n_labelled"] == 1


def test_skips_and_retractions_take_effect_and_history_keeps_everything(
    service: Service, place: tuple[str, str]
) -> None:
    say(service, place, {"row": 2, "value": "a"}, {"row": 3, "skip": True}, {"row": 4, "value": "b"})
    say(service, place, {"row": 2, "value": "b", "lead_time": 2.5}, {"row": 4, "retract": True})
    assert standing(service, place) == {
        0: ("unlabelled", None),
        1: ("unlabelled", None),
        2: ("labelled", "b"),
        3: ("skipped", None),
        4: ("unlabelled", None),
    }
    pool = service.get(f"/pools/{place[1]}")
    assert (pool["n_labelled"], pool["n_skipped"]) == (1, 1)
    history = service.get(f"/projects/{place[0]}/labels", history=True)["items"]
    assert [(e["seq"], e["row"], e["key"], e["action"], e["value"]) for e in history] == [
        (1, 2, "r2", "label", "a"),
        (2, 3, "r3", "skip", None),
        (3, 4, "r4", "label", "b"),
        (4, 2, "r2", "label", "b"),
        (5, 4, "r4", "retract", None),
    ]
    assert {event["annotator"] for event in history} == {"tester"}
    assert history[3]["lead_time"] == 2.5


def test_a_label_with_a_skip_by_another_counts_as_labelled(service: Service, place: tuple[str, str]) -> None:
    say(service, place, {"row": 0, "skip": True, "annotator": "x"}, {"row": 0, "value": "c", "annotator": "y"})
    assert standing(service, place)[0] == ("labelled", "c")


def test_one_bad_label_refuses_them_all(service: Service, place: tuple[str, str]) -> None:
    body = {"labels": [{"pool_id": place[1], "row": 0, "value": "a"}, {"pool_id": place[1], "row": 1, "value": "?"}]}
    problem = service.post(f"/projects/{place[0]}/labels", body, 422)
    assert problem["errors"][0]["pointer"] == "/labels/1/value"
    assert "'a', 'b', 'c'" in problem["detail"]
    assert service.get(f"/projects/{place[0]}/labels", history=True)["items"] == []


def test_labels_page_and_export_as_csv(service: Service, place: tuple[str, str]) -> None:
    say(service, place, *({"row": i, "value": "abcab"[i]} for i in range(5)))
    for history in (False, True):
        rows, cursor = [], None
        while True:
            page = service.get(
                f"/projects/{place[0]}/labels", history=history, limit=2, **({"cursor": cursor} if cursor else {})
            )
            assert len(page["items"]) <= 2
            rows += [(item["row"], item["value"]) for item in page["items"]]
            cursor = page["next_cursor"]
            if cursor is None:
                break
        assert rows == list(enumerate("abcab"))
    text = service.client.get(f"/v1/projects/{place[0]}/labels", params={"format": "csv"}).text
    assert text.splitlines()[0] == "pool_id,row,key,status,value,n_annotators"
    assert text.splitlines()[3] == f"{place[1]},2,r2,labelled,c,1"


def test_labels_that_came_with_a_pool_are_corrected_by_their_sender(service: Service) -> None:
    project = service.project(task={"kind": "classification", "classes": [0, 1]}, input={"shape": [1]})
    pool = service.post(
        f"/projects/{project['id']}/pools", {"name": "p", "rows": [[0], [1], [2]], "labels": [0, None, "1"]}
    )
    assert pool["n_labelled"] == 2
    place = (project["id"], pool["id"])
    assert standing(service, place)[0] == ("labelled", "0")
    say(service, place, {"row": 0, "value": 1})
    assert standing(service, place)[0] == ("labelled", "1")


def test_regression_labels_are_averaged_over_annotators(service: Service) -> None:
    project = service.project(task={"kind": "regression", "outputs": 2}, input={"shape": [1]})
    pool = service.post(f"/projects/{project['id']}/pools", {"name": "p", "rows": [[0], [1]]})
    place = (project["id"], pool["id"])
    say(service, place, {"row": 1, "value": [1, 2], "annotator": "x"}, {"row": 1, "value": [2, 4], "annotator": "y"})
    assert standing(service, place)[1] == ("labelled", [1.5, 3.0])
    assert service.get(f"/pools/{pool['id']}")["n_labelled"] == 1
    problem = service.post(
        f"/projects/{project['id']}/labels", {"labels": [{"pool_id": pool["id"], "row": 0, "value": 3.0}]}, 422
    )
    assert "expected 2 number(s), got 1" in problem["detail"]


def test_numbers_stay_numbers_in_csv_and_formulas_are_defused(service: Service) -> None:
    project = service.project(task={"kind": "classification", "classes": ["-1", "+1"]}, input={"shape": [1]})
    pool = service.post(f"/projects/{project['id']}/pools", {"name": "p", "rows": [[0], [1]], "keys": ["-7", "=2+3"]})
    say(service, (project["id"], pool["id"]), {"row": 0, "value": "-1"}, {"row": 1, "value": "+1"})
    text = service.client.get(f"/v1/projects/{project['id']}/labels", params={"format": "csv"}).text
    assert [line.split(",")[1:5] for line in text.splitlines()[1:]] == [
        ["0", "-7", "labelled", "-1"],
        ["1", "'=2+3", "labelled", "+1"],
    ]


def test_several_outputs_may_come_in_a_file(service: Service) -> None:
    project = service.project(task={"kind": "regression", "outputs": 2}, input={"shape": [1]})
    files = {
        "application/x-ndjson": '{"x": [0.5], "label": [1, 2]}\n{"x": [1.5]}\n',
        "text/csv": 'a,label\n0.5,"[1, 2]"\n1.5,\n',
    }
    for kind, text in files.items():
        pool = service.post(f"/projects/{project['id']}/pools", {"name": kind})
        answer = service.client.put(f"/v1/pools/{pool['id']}/data", content=text, headers={"Content-Type": kind})
        assert answer.status_code == 202, answer.text
        service.run_jobs()
        found = standing(service, (project["id"], pool["id"]))
        assert found == {0: ("labelled", [1.0, 2.0]), 1: ("unlabelled", None)}


@on_sqlite
def test_true_is_no_number_and_may_be_a_class(service: Service) -> None:
    numbers = service.project(task={"kind": "regression"}, input={"shape": [1]})
    rows = {"name": "p", "rows": [[0.0], [1.0]]}
    refused = service.client.post(f"/v1/projects/{numbers['id']}/pools", json={**rows, "labels": [1, True]})
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/labels/1")
    pool = service.post(f"/projects/{numbers['id']}/pools", rows)
    said = [{"pool_id": pool["id"], "row": 0, "value": True}]
    refused = service.client.post(f"/v1/projects/{numbers['id']}/labels", json={"labels": said})
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/labels/0/value")
    assert "expected numbers, got true" in refused.text
    classes = service.project(task={"kind": "classification", "classes": ["true", "false"]}, input={"shape": [1]})
    assert service.post(f"/projects/{classes['id']}/pools", {**rows, "labels": [True, False]})["n_labelled"] == 2
