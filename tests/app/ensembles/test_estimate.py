"""What an ensemble's own labels say of its pool: covered picks, shares of labels, and rows that are no fair sample."""

from typing import Any

import numpy as np
import pytest

import bensemble_core as bc
from app.db.label_history import label_history
from app.db.tables import EnsembleResult
from tests.app.conftest import Service
from tests.app.test_loop import train
from tests.app.working import on_sqlite

N = 300
RANDOM = {"acquisition": {"name": "random"}, "selection": {"name": "top_k"}}
POWER = {"acquisition": {"name": "least_confidence"}, "selection": {"name": "power"}}


class Loop:
    """A project on points in a square, and what stands for its annotator: in a noisy circle, or how far out."""

    def __init__(self, service: Service, *, numbers: bool = False, **changes: Any) -> None:
        rng = np.random.default_rng(0)
        self.x = rng.uniform(-1, 1, (N, 2)).astype(np.float32)
        far = (self.x**2).sum(1) + 0.15 * rng.normal(size=N)
        self.y: list[Any] = [float(f) for f in far] if numbers else ["in" if f < 0.5 else "out" for f in far]
        task = {"kind": "regression"} if numbers else {"kind": "classification", "classes": ["in", "out"]}
        body = {"name": "square", "task": task, "input": {"shape": [2]}, **changes}
        self.service = service
        self.project = service.post("/projects", body, 201)
        rows = {"name": "points", "rows": self.x.tolist()}
        self.pool = service.post(f"/projects/{self.project['id']}/pools", rows, 201)["id"]

    def label(self, rows: list[int], **said: Any) -> None:
        labels = [{"pool_id": self.pool, "row": row, **(said or {"value": self.y[row]})} for row in rows]
        self.service.post(f"/projects/{self.project['id']}/labels", {"labels": labels}, 201)

    def rank(self, k: int, **wanted: Any) -> dict[str, Any]:
        asked = self.service.post(f"/pools/{self.pool}/rankings", {"k": k, **wanted}, 202)
        self.service.run_jobs()
        found = self.service.get(f"/rankings/{asked['ranking']['id']}")
        assert found["status"] == "succeeded", found["error"]
        return found

    def pick(self, k: int, **wanted: Any) -> list[int]:
        rows = [item["row"] for item in self.rank(k, **wanted)["items"]]
        self.label(rows)
        return rows

    def metrics(self) -> dict[str, Any]:
        self.ensemble = train(self.service, self.project)
        assert self.ensemble["status"] == "succeeded", self.ensemble["error"]
        return self.ensemble["metrics"]

    def losses(self) -> dict[int, float]:
        """Out-of-fold errors, or squares, by row, as the file of the fitted posterior has them."""
        with self.service.services.database.read() as session:
            stored = session.get_one(EnsembleResult, self.ensemble["id"])
            history = label_history(session, self.pool, kind=self.project["task"]["kind"], watermark=stored.watermark)
        fitted = bc.load(self.service.services.objects.local_path(stored.fitted_key))
        assert isinstance(fitted, bc.Fitted)
        kept = fitted.held_out()
        assert kept is not None
        rows = sorted(
            row for row in history.settled_at(stored.watermark).tolist() if row != getattr(self, "skipped", -1)
        )
        guess = kept[0].mean().numpy()
        if self.project["task"]["kind"] == "regression":
            return {row: float((guess[i] - self.y[row]) ** 2) for i, row in enumerate(rows)}
        return {row: float(guess[i].argmax() != ("in", "out").index(self.y[row])) for i, row in enumerate(rows)}


def test_labels_that_all_come_from_draws_estimate_the_pool(service: Service) -> None:
    loop = Loop(service)
    loop.pick(25, **RANDOM)
    first = loop.metrics()
    assert (first["n"], first["measured_on"]) == (0, "none")
    assert "`estimate`" in first["warning"]
    found = first["estimate"]
    assert (found["kind"], found["n"], found["coverage"], found["population"]) == ("lure", 25, 1.0, N)
    assert found["accuracy"]["value"] == pytest.approx(1 - np.mean(list(loop.losses().values())))  # an even draw
    for _ in range(2):
        ranking = loop.rank(15, **POWER)
        assert ranking["seed"] == ranking["watermark"]
        loop.label([item["row"] for item in ranking["items"]])
        found = loop.metrics()["estimate"]
    assert (found["kind"], found["n"], found["coverage"], found["population"]) == ("lure", 55, 1.0, N)
    assert 0 <= found["accuracy"]["low"] < found["accuracy"]["value"] < found["accuracy"]["high"] <= 1
    points = service.get(f"/projects/{loop.project['id']}/learning-curve")["points"]
    assert [point["metrics"]["estimate"]["n"] for point in points] == [25, 40, 55]


@on_sqlite
def test_the_estimate_is_lure_of_the_stored_probabilities_with_rows_that_left_as_known(service: Service) -> None:
    loop = Loop(service)
    loop.label(list(range(10)))  # labels to begin with
    loop.metrics()
    first = loop.rank(12, seed=1, **POWER)
    loop.label([item["row"] for item in first["items"]])
    outside = next(row for row in range(10, N) if row not in [item["row"] for item in first["items"]])
    loop.label([outside])
    second = loop.rank(12, seed=2, **POWER)
    loop.skipped = second["items"][3]["row"]
    loop.label([item["row"] for item in second["items"] if item["row"] != loop.skipped])
    loop.label([loop.skipped], skip=True)
    found = loop.metrics()["estimate"]
    losses = loop.losses()

    def draws(ranking: dict[str, Any], known: list[int]) -> bc.predictive.lure.Draws:
        return bc.predictive.lure.Draws(
            losses=np.array([losses.get(item["row"], np.nan) for item in ranking["items"]]),
            probabilities=np.array([item["value"] for item in ranking["items"]]),
            n_rows=ranking["n_scored"],
            known=np.array([losses[row] for row in known]),
        )

    known = [item["row"] for item in first["items"]] + [outside]
    expected = bc.predictive.lure.lure_rounds([[draws(first, []), draws(second, known)]], within="share")
    assert found["accuracy"]["value"] == pytest.approx(1 - expected.value)
    assert found["accuracy"]["standard_error"] == pytest.approx(expected.standard_error)
    assert found["accuracy"]["low"] == pytest.approx(1 - expected.high)
    assert (found["n"], found["population"]) == (23, N - 10)
    assert found["coverage"] == pytest.approx(23 / 34)  # without the ten at the beginning and the one outside


@on_sqlite
def test_rows_that_no_draw_picked_are_marked_as_chosen(service: Service) -> None:
    loop = Loop(service)
    loop.pick(20, seed=1)  # typiclust and random rows: no probabilities
    loop.metrics()
    loop.pick(20, acquisition={"name": "margin"}, selection={"name": "cluster_margin"})
    found = loop.metrics()["estimate"]
    assert (found["kind"], found["n"], found["coverage"], found["population"]) == ("chosen_rows", 40, 1.0, 40)
    assert "not of the pool" in found["note"]
    assert found["accuracy"]["value"] == pytest.approx(1 - np.mean(list(loop.losses().values())))


@on_sqlite
def test_a_ranking_counts_to_its_first_unanswered_pick_once_and_not_with_a_seed_that_was_used(service: Service) -> None:
    loop = Loop(service)
    rows = [item["row"] for item in loop.rank(20, seed=0, **RANDOM)["items"]]
    loop.label([*rows[:12], *rows[15:]])
    assert loop.metrics()["estimate"]["n"] == 12
    again = loop.rank(20, seed=0, **RANDOM)  # goes on in the same order: what was left open comes first
    assert [item["row"] for item in again["items"]][:3] == rows[12:15]
    service.post(f"/rankings/{again['id']}/replay", {}, 202)
    service.run_jobs()
    loop.label([item["row"] for item in again["items"]])
    assert loop.metrics()["estimate"]["n"] == 32  # and five that were labelled after a gap
    loop.pick(10, seed=7, **POWER)
    loop.metrics()
    loop.pick(10, seed=7, **POWER)
    found = loop.metrics()["estimate"]
    assert (found["n"], found["coverage"]) == (42, pytest.approx(42 / 57))
    assert "1 ranking(s) by power do not count" in found["note"]


@on_sqlite
def test_numbers_have_an_rmse_of_the_pool(service: Service) -> None:
    loop = Loop(service, numbers=True)
    loop.pick(30)  # the default: random rows
    loop.metrics()
    loop.pick(10)  # the default: power
    found = loop.metrics()["estimate"]
    assert (found["kind"], found["n"], found["coverage"]) == ("lure", 40, 1.0)
    square = np.mean(list(loop.losses().values()))
    assert found["rmse"]["value"] == pytest.approx(np.sqrt(square), rel=0.5)
    assert 0 < found["rmse"]["low"] < found["rmse"]["value"] < found["rmse"]["high"]
    assert found["nll"]["low"] < found["nll"]["value"] < found["nll"]["high"]


@on_sqlite
def test_other_posteriors_keep_no_predictions_to_estimate_from_and_classes_are_measured(service: Service) -> None:
    posterior = {"name": "map", "epochs": 5}
    loop = Loop(service, posterior=posterior, model={"name": "mlp", "hidden": [4]})
    labelled = {"name": "measured", "purpose": "evaluation", "rows": loop.x[:50].tolist(), "labels": loop.y[:50]}
    service.post(f"/projects/{loop.project['id']}/pools", labelled, 201)
    loop.pick(20, **RANDOM)
    found = loop.metrics()
    assert "estimate" not in found
    counts = np.array(found["confusion"]["counts"])
    assert found["confusion"]["classes"] == ["in", "out"]
    assert counts.sum() == found["n"] == 50
    assert found["classes"]["in"]["n"] == counts[0].sum() == loop.y[:50].count("in")
    assert found["classes"]["out"]["recall"] == pytest.approx(counts[1, 1] / counts[1].sum())
    assert found["accuracy"] == pytest.approx(np.trace(counts) / 50)
    assert 0 <= found["auroc"] <= 1
    listed = service.get(f"/projects/{loop.project['id']}/ensembles")["items"][0]["metrics"]
    point = service.get(f"/projects/{loop.project['id']}/learning-curve")["points"][0]["metrics"]
    result = service.get(f"/jobs/{loop.ensemble['job_id']}")["result"]["metrics"]
    brief = {name: value for name, value in found.items() if name not in ("classes", "confusion", "reliability")}
    assert listed == point == result == brief
