"""What the labels add up to, against the consensus of each row and a count by hand."""

import random
import statistics
from collections import Counter
from typing import Any

import pytest

from app.db import consensus
from tests.app.conftest import Service
from tests.app.hammering import classification, pool, regression
from tests.app.working import on_sqlite


def say(service: Service, project_id: str, *labels: dict[str, Any]) -> None:
    service.post(f"/projects/{project_id}/labels", {"labels": list(labels)}, 201)


def summary(service: Service, project_id: str) -> dict[str, Any]:
    return dict(service.get(f"/projects/{project_id}/labels/summary"))


def test_a_project_without_labels_has_a_summary_of_nothing(service: Service) -> None:
    assert summary(service, classification(service)) == {
        "n_labelled": 0,
        "n_skipped": 0,
        "n_open": 0,
        "by_class": [{"value": "red", "n": 0}, {"value": "blue", "n": 0}],
        "numbers": None,
        "by_annotator": [],
    }
    assert summary(service, regression(service))["numbers"] is None


def test_classes_are_counted_by_the_consensus_and_annotators_by_their_latest_word(service: Service) -> None:
    project_id = classification(service)
    pool_id = pool(service, project_id)
    evaluation = pool(service, project_id, purpose="evaluation", labels=["red"] * 10)

    def said(row: int, annotator: str, value: str | None = None, **more: Any) -> dict[str, Any]:
        what = {"value": value} if value else {}
        return {"pool_id": pool_id, "row": row, "annotator": annotator, **what, **more}

    say(
        service,
        project_id,
        *(said(0, who, value) for who, value in (("x", "red"), ("y", "red"), ("z", "blue"))),  # a majority
        *(said(1, who, value) for who, value in (("x", "red"), ("y", "blue"))),  # a tie
        said(2, "x", "red", lead_time=9.0),
        said(2, "x", "blue", lead_time=1.0),  # corrected
        said(3, "x", skip=True, lead_time=3.0),
        said(4, "x", "red"),
        said(4, "x", retract=True),
        said(5, "y", skip=True),
        said(5, "z", "blue", lead_time=2.0),  # a label beats a skip
        {"pool_id": evaluation, "row": 0, "annotator": "x", "value": "blue"},  # is not counted
    )
    found = summary(service, project_id)
    assert (found["n_labelled"], found["n_open"], found["n_skipped"]) == (3, 1, 1)
    assert found["by_class"] == [{"value": "red", "n": 1}, {"value": "blue", "n": 2}]
    counts = [(who["annotator"], who["n_labels"], who["n_skips"]) for who in found["by_annotator"]]
    assert counts == [("x", 3, 1), ("y", 2, 1), ("z", 2, 0)]
    assert [who["median_lead_time"] for who in found["by_annotator"]] == [2.0, None, 2.0]
    events = service.get(f"/projects/{project_id}/labels", history=True)["items"]
    assert found["by_annotator"][0]["last_at"] == events[-1]["created_at"]
    assert found["numbers"] is None


@pytest.mark.parametrize("seed", range(3))
def test_a_summary_says_what_the_rows_say(service: Service, seed: int) -> None:
    """Of random events: labels, skips, corrections and retractions by three annotators."""
    rng = random.Random(seed)
    project_id = service.project(task={"kind": "classification", "classes": ["a", 'b"', "é"]}, input={"shape": [2]})[
        "id"
    ]
    pool_ids = [pool(service, project_id) for _ in range(2)]
    events = []
    for _ in range(150):
        what = rng.choice([{"value": rng.choice(["a", 'b"', "é"])}, {"skip": True}, {"retract": True}])
        event = {"pool_id": rng.choice(pool_ids), "row": rng.randrange(8), "annotator": rng.choice("xyz"), **what}
        events.append({**event, **({"lead_time": rng.random()} if rng.random() < 0.7 else {})})
    say(service, project_id, *events)
    found = summary(service, project_id)
    with service.services.database.read() as session:
        rows = [
            verdict
            for pool_id in pool_ids
            for verdict in consensus.verdicts(session, pool_id, range(8), kind="classification").values()
        ]
    statuses = Counter(verdict.status for verdict in rows)
    assert (found["n_labelled"], found["n_open"], found["n_skipped"]) == tuple(
        statuses[name] for name in ("labelled", "open", "skipped")
    )
    agreed = Counter(verdict.value for verdict in rows if verdict.status == "labelled")
    assert {each["value"]: each["n"] for each in found["by_class"]} == {name: agreed[name] for name in ("a", 'b"', "é")}
    latest = {(event["pool_id"], event["row"], event["annotator"]): event for event in events}
    standing = [event for event in latest.values() if not event.get("retract")]
    for who in found["by_annotator"]:
        own = [event for event in standing if event["annotator"] == who["annotator"]]
        assert (who["n_labels"], who["n_skips"]) == (sum("value" in e for e in own), sum("skip" in e for e in own))
        times = [event["lead_time"] for event in own if "lead_time" in event]
        assert who["median_lead_time"] == (pytest.approx(statistics.median(times)) if times else None)
    assert sum(who["n_labels"] + who["n_skips"] for who in found["by_annotator"]) == len(standing)


def test_numbers_are_summed_up_without_losing_digits(service: Service) -> None:
    project_id = regression(service)
    pool_id = pool(service, project_id)
    values = {0: [1e6 + 0.25], 1: [1e6 + 0.5, 1e6 + 1.0], 2: [1e6 - 0.5]}
    say(
        service,
        project_id,
        *(
            {"pool_id": pool_id, "row": row, "annotator": f"a{i}", "value": value}
            for row, several in values.items()
            for i, value in enumerate(several)
        ),
        {"pool_id": pool_id, "row": 3, "skip": True, "annotator": "a0"},
    )
    means = [statistics.mean(several) for several in values.values()]
    found = summary(service, project_id)
    assert found["by_class"] is None
    assert (found["n_labelled"], found["n_open"], found["n_skipped"]) == (3, 0, 1)
    numbers = found["numbers"]
    assert (numbers["n"], numbers["min"], numbers["max"]) == (3, min(means), max(means))
    assert numbers["mean"] == pytest.approx(statistics.mean(means), abs=1e-9)
    assert numbers["sd"] == pytest.approx(statistics.stdev(means), abs=1e-9)


@on_sqlite
def test_one_number_has_no_spread_and_several_outputs_have_no_summary(service: Service) -> None:
    project_id = regression(service)
    say(service, project_id, {"pool_id": pool(service, project_id), "row": 0, "value": 2.5})
    assert summary(service, project_id)["numbers"] == {"n": 1, "mean": 2.5, "sd": None, "min": 2.5, "max": 2.5}
    two = service.project(task={"kind": "regression", "outputs": 2}, input={"shape": [2]})["id"]
    say(service, two, {"pool_id": pool(service, two), "row": 0, "value": [1.0, 2.0]})
    found = summary(service, two)
    assert (found["n_labelled"], found["numbers"], found["by_class"]) == (1, None, None)
