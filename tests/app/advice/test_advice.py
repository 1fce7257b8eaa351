"""Advice: one sentence, and figures that are those of the trainings and the labels as they stand."""

from typing import Any

import numpy as np
import pytest

from tests.app.conftest import Service
from tests.app.test_loop import train
from tests.app.working import on_sqlite

CENTRES = np.array([[0.0, 0.0], [4.0, 0.0], [2.0, 3.5]])


def rows_of(n: int, seed: int = 0, *, spread: float = 1.0) -> tuple[list[Any], list[str]]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, size=n)
    return (CENTRES[y] + spread * rng.normal(size=(n, 2))).astype(np.float32).tolist(), ["abc"[c] for c in y]


def project_of(service: Service, **changes: Any) -> dict[str, Any]:
    body = {"name": "blobs", "task": {"kind": "classification", "classes": ["a", "b", "c"]}, "input": {"shape": [2]}}
    return service.post("/projects", {**body, **changes}, 201)


def add_pool(service: Service, project: dict[str, Any], rows: list[Any], **more: Any) -> dict[str, Any]:
    return service.post(f"/projects/{project['id']}/pools", {"name": "p", "rows": rows, **more}, 201)


def say(service: Service, pool: dict[str, Any], values: dict[int, Any], annotator: str = "ada") -> None:
    labels = [{"pool_id": pool["id"], "row": r, "value": v, "annotator": annotator} for r, v in values.items()]
    service.post(f"/projects/{pool['project_id']}/labels", {"labels": labels}, 201)


def advice_of(service: Service, project: dict[str, Any]) -> Any:
    return service.get(f"/projects/{project['id']}/advice")


@on_sqlite
def test_an_empty_project_is_told_how_to_begin(service: Service) -> None:
    project = project_of(service)
    told = advice_of(service, project)
    assert (told["action"], "Add a pool" in told["sentence"]) == ("label", True)
    x, y = rows_of(60)
    pool = add_pool(service, project, x)
    assert "Label about 20 rows first" in advice_of(service, project)["sentence"]
    say(service, pool, dict(enumerate(y[:20])))
    told = advice_of(service, project)
    assert (told["action"], told["n_labels"], told["n_unseen"]) == ("train", 20, 20)
    service.post(f"/projects/{project['id']}/ensembles", {}, 202)
    told = advice_of(service, project)
    assert (told["action"], "queued or running" in told["sentence"]) == ("label", True)
    assert told["curve"]["reason"] == told["saved"]["reason"] == "There is no ensemble yet."


def test_three_versions_give_a_curve_their_agreement_and_labels_saved(service: Service) -> None:
    """Labels that came with the pool are a random sample; the others were chosen by hand."""
    x, y = rows_of(500)
    project = project_of(service)
    given = [label if i < 40 else None for i, label in enumerate(y[:300])]
    pool = add_pool(service, project, x[:300], labels=given)
    add_pool(service, project, x[300:], labels=y[300:], purpose="evaluation")
    for n in (40, 60, 80):
        say(service, pool, {row: y[row] for row in range(n, n + 20)})
        ensemble = train(service, project)
        assert ensemble["status"] == "succeeded", ensemble["error"]
    told = advice_of(service, project)
    curve = told["curve"]
    assert (curve["metric"], curve["n_points"], curve["n_labels"], curve["n_measured"]) == ("accuracy", 3, 100, 200)
    assert curve["value"] == ensemble["metrics"]["accuracy"]
    forecast = curve["in_100"]
    assert forecast["n_labels"] == 200
    assert forecast["low"] < forecast["value"] < forecast["high"]
    assert forecast["gain_low"] <= forecast["gain"] <= forecast["gain_high"]
    compared = told["agreement"]["comparisons"]
    assert [(each["version"], each["with_version"], each["n_labels_before"]) for each in compared] == [
        (2, 1, 60),
        (3, 2, 80),
    ]
    assert all(each["n_rows"] == 300 and 0.8 < each["value"] <= 1 for each in compared)
    assert told["agreement"]["mean_of_last_three"] is None
    points = service.get(f"/projects/{project['id']}/learning-curve")["points"]
    assert [point["n_labels"] for point in points[-1]["control"]] == [10, 20, 40]
    assert points[-1]["control"] == points[0]["control"]  # the same labels: nothing is trained again
    assert points[-1]["control"][-1]["n"] == 200
    right = points[-1]["metrics"]["accuracy"]
    assert points[-1]["metrics"]["accuracy_se"] == pytest.approx((right * (1 - right) / 200) ** 0.5)
    saved = told["saved"]
    assert saved["low"] is not None
    assert saved["labels"] is None or saved["low"] <= saved["labels"] == saved["random_needs"] - 100
    assert told["action"] in ("label", "stop")
    assert told["because"]


@on_sqlite
def test_flipped_labels_are_doubted_until_they_are_answered_again(service: Service) -> None:
    x, y = rows_of(220, seed=1, spread=0.5)
    project = project_of(service)
    pool = add_pool(service, project, x, keys=[f"k{i}" for i in range(220)])
    flipped = {row: "abc"[("abc".index(y[row]) + 1) % 3] for row in range(0, 200, 10)}
    say(service, pool, {**dict(enumerate(y[:200])), **flipped})
    train(service, project)
    told = advice_of(service, project)
    doubts = told["doubts"]
    assert (told["action"], doubts["in_sample"], doubts["n_labels"]) == ("relabel", False, 200)
    strong = {item["row"]: item for item in doubts["items"] if item["is_strong"]}
    assert (len(doubts["items"]), len(strong)) == (doubts["n"], doubts["n_strong"])
    assert doubts["n_sure"] == 60
    assert len({item["row"] for item in doubts["items"]} & set(flipped)) >= 14
    assert set(strong) <= set(flipped)
    row = next(iter(strong))
    item = strong[row]
    assert (item["label"], item["key"], item["annotators"]) == (flipped[row], f"k{row}", ["ada"])
    assert item["label_probability"] < 0.5 < item["probability"]
    say(service, pool, {row: y[row]})
    after = advice_of(service, project)["doubts"]
    assert (after["n"], after["n_strong"]) == (doubts["n"] - 1, doubts["n_strong"] - 1)
    confirmed = next(other for other in strong if other != row)
    say(service, pool, {confirmed: strong[confirmed]["label"]})
    train(service, project)
    assert confirmed not in {item["row"] for item in advice_of(service, project)["doubts"]["items"]}


def test_annotators_who_disagree_are_listed_with_their_agreement(service: Service) -> None:
    x, y = rows_of(60)
    project = project_of(service)
    pool = add_pool(service, project, x)
    say(service, pool, dict(enumerate(y[:40])))
    other = {row: "abc"[("abc".index(y[row]) + 1) % 3] if row < 6 else y[row] for row in range(20)}
    say(service, pool, other, annotator="ben")
    say(service, pool, {0: y[0]}, annotator="cy")
    train(service, project)
    told = advice_of(service, project)
    found = told["disagreements"]
    assert (found["n"], found["n_open"], found["n_several"]) == (6, 5, 20)
    assert [(item["row"], item["status"]) for item in found["items"]] == [
        *((row, "open") for row in range(1, 6)),
        (0, "labelled"),
    ]
    assert found["items"][0]["said"] == {"ada": y[1], "ben": other[1]}
    pair = found["pairs"][0]
    assert (pair["annotators"], pair["n"], pair["agreement"]) == (["ada", "ben"], 20, pytest.approx(14 / 20))
    assert pair["kappa"] < 0.7
    assert (told["action"], "annotators disagree" in told["sentence"]) == ("relabel", True)


@on_sqlite
def test_numbers_have_a_curve_and_far_labels_are_doubted(service: Service) -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(260, 1))
    y = (3 * x[:, 0] + rng.normal(0, 0.2, size=260)).tolist()
    task = {"kind": "regression", "outputs": 1}
    project = project_of(service, task=task, input={"shape": [1]})
    pool = add_pool(service, project, x[:160].tolist())
    add_pool(service, project, x[160:].tolist(), labels=y[160:], purpose="evaluation")
    said = {row: y[row] for row in range(30)}
    said[5] += 8
    for n in (10, 20, 30):
        say(service, pool, {row: said[row] for row in range(n - 10, n)})
        train(service, project)
    told = advice_of(service, project)
    assert (told["curve"]["metric"], told["curve"]["n_points"]) == ("rmse", 3)
    assert told["curve"]["in_100"]["low"] > 0
    assert [item["row"] for item in told["doubts"]["items"]] == [5]
    assert told["doubts"]["items"][0]["distance"] > 4
    assert told["agreement"]["measure"] == "concordance"
    assert told["agreement"]["comparisons"][-1]["value"] > 0.9


@on_sqlite
def test_another_posterior_doubts_by_its_own_predictions_and_says_so(service: Service) -> None:
    x, y = rows_of(80)
    how = {"model": {"name": "mlp", "hidden": [8]}, "posterior": {"name": "map", "epochs": 30}}
    project = project_of(service, **how)
    pool = add_pool(service, project, x)
    say(service, pool, dict(enumerate(y[:40])))
    train(service, project)
    told = advice_of(service, project)
    assert (told["doubts"]["in_sample"], told["doubts"]["n_labels"]) == (True, 40)
    assert "no rows to measure on" in told["saved"]["reason"]
    assert "Nothing to measure on" in told["curve"]["reason"]
    service.client.delete(f"/v1/pools/{pool['id']}")
    assert "there are no rows to label" in advice_of(service, project)["sentence"]


@on_sqlite
def test_labels_of_deleted_pools_leave_all_counts(service: Service) -> None:
    project = project_of(service, holdout=0)
    pools, doubted = [], []
    for seed in (1, 2):
        x, y = rows_of(60, seed=seed, spread=0.5)
        flipped = {row: "abc"[("abc".index(y[row]) + 1) % 3] for row in range(0, 60, 10)}
        pools.append(add_pool(service, project, x, labels=[flipped.get(row, said) for row, said in enumerate(y)]))
    train(service, project)
    doubts = advice_of(service, project)["doubts"]
    for pool in pools:
        doubted.append([item for item in doubts["items"] if item["pool_id"] == pool["id"]])
    assert all(doubted)
    service.client.delete(f"/v1/pools/{pools[0]['id']}").raise_for_status()
    service.run_jobs()
    told = advice_of(service, project)
    left = told["doubts"]
    assert (told["n_labels"], left["n_labels"]) == (60, 60)
    assert (left["items"], left["n"]) == (doubted[1], len(doubted[1]))
    assert left["n_strong"] == sum(item["is_strong"] for item in doubted[1])
    assert left["n_strong"] <= left["n_sure"] < doubts["n_sure"]
    service.client.delete(f"/v1/pools/{pools[1]['id']}").raise_for_status()
    service.run_jobs()
    told = advice_of(service, project)
    assert {told["doubts"][name] for name in ("n", "n_strong", "n_labels", "n_sure", "n_other")} == {0}
    assert told["sentence"] == "Add a pool of rows to choose from: there are no rows to label."
    assert told["because"][0] == "There are no rows to choose from."


@on_sqlite
@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_labels_too_few_to_hold_any_out_are_not_doubted(service: Service, kind: str) -> None:
    x, y = rows_of(30)
    task = {"kind": kind, **({"classes": ["a", "b", "c"]} if kind == "classification" else {"outputs": 1})}
    how = {"model": {"name": "mlp", "hidden": [4]}, "posterior": {"name": "auto", "epochs": 1}}
    project = project_of(service, task=task, **how)
    pool = add_pool(service, project, x)
    say(service, pool, {row: y[row] if kind == "classification" else float(row) for row in range(5)})
    assert train(service, project)["status"] == "succeeded"
    told = advice_of(service, project)
    assert (told["doubts"]["n"], told["doubts"]["n_labels"], told["action"]) == (0, 0, "label")
