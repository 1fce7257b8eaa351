"""What figures of an ensemble are drawn from: confusion, classes, reliability, coverage."""

from typing import Any

import numpy as np
import pytest
import torch

import bensemble_core as bc
from app.db.tables import EnsembleResult
from app.ensembles.measure import _reliability
from tests.app.conftest import Service
from tests.app.ensembles.test_estimate import RANDOM, Loop
from tests.app.hammering import refused
from tests.app.working import on_sqlite

NET = {"posterior": {"name": "map", "epochs": 5}, "model": {"name": "mlp", "hidden": [4]}}


def measured_loop(service: Service, *, numbers: bool = False) -> Loop:
    loop = Loop(service, numbers=numbers, **NET)
    labelled = {"name": "measured", "purpose": "evaluation", "rows": loop.x[:60].tolist(), "labels": loop.y[:60]}
    service.post(f"/projects/{loop.project['id']}/pools", labelled, 201)
    loop.pick(30, **RANDOM)
    return loop


def predictions(service: Service, loop: Loop) -> list[dict[str, Any]]:
    body = {"rows": loop.x[:60].tolist()}
    asked = service.post(f"/ensembles/{loop.ensemble['id']}/predictions", body, 202)["prediction"]
    service.run_jobs()
    return list(service.get(f"/predictions/{asked['id']}")["items"])


def test_the_reliability_of_classes_is_that_of_the_predictions(service: Service) -> None:
    loop = measured_loop(service)
    metrics = loop.metrics()
    found = service.get(f"/ensembles/{loop.ensemble['id']}/evaluation")
    assert (found["ensemble_id"], found["version"]) == (loop.ensemble["id"], 1)
    assert (found["measured_on"], found["n"], found["coverage"], found["note"]) == ("evaluation", 60, None, None)
    assert found["confusion"] == metrics["confusion"]
    assert [each.pop("name") for each in found["classes"]] == ["in", "out"]
    assert found["classes"] == [metrics["classes"]["in"], metrics["classes"]["out"]]
    bins: dict[int, list[tuple[float, bool]]] = {}
    for item, truth in zip(predictions(service, loop), loop.y[:60], strict=True):
        sure = item["probabilities"][item["label"]]
        bins.setdefault(int(np.ceil(sure * 10)) - 1, []).append((sure, item["label"] == truth))
    expected = [np.mean(bins[b], axis=0).tolist() for b in sorted(bins)]
    assert [[each["confidence"], each["accuracy"]] for each in found["reliability"]] == [
        pytest.approx(pair, abs=1e-5) for pair in expected
    ]
    assert [each["n"] for each in found["reliability"]] == [len(bins[b]) for b in sorted(bins)]


def test_the_coverage_of_numbers_is_that_of_the_predictions(service: Service) -> None:
    loop = measured_loop(service, numbers=True)
    loop.metrics()
    found = service.get(f"/ensembles/{loop.ensemble['id']}/evaluation")
    assert (found["confusion"], found["classes"], found["reliability"], found["n"]) == (None, None, None, 60)
    assert [each["expected"] for each in found["coverage"]] == pytest.approx([i / 10 for i in range(1, 10)])
    z = [abs(y - p["mean"]) / p["sd"] for p, y in zip(predictions(service, loop), loop.y[:60], strict=True)]
    edges = [0.12566, 0.25335, 0.38532, 0.52440, 0.67449, 0.84162, 1.03643, 1.28155, 1.64485]
    expected = [float(np.mean(np.array(z) <= edge)) for edge in edges]  # one member: its own normal quantiles
    assert [each["observed"] for each in found["coverage"]] == pytest.approx(expected, abs=1e-9)


@on_sqlite
def test_an_older_ensemble_says_what_was_not_measured(service: Service) -> None:
    loop = measured_loop(service)
    loop.metrics()
    path = f"/ensembles/{loop.ensemble['id']}"
    with service.services.database.write() as session:
        row = session.get_one(EnsembleResult, loop.ensemble["id"])
        row.metrics = {name: value for name, value in row.metrics.items() if name != "reliability"}
    found = service.get(f"{path}/evaluation")
    assert found["reliability"] is None
    assert found["note"] == "Trained before reliability was measured; train again to see it."
    assert found["confusion"] is not None


@on_sqlite
def test_an_ensemble_without_rows_to_measure_on_says_so(service: Service) -> None:
    loop = Loop(service, holdout=0, **NET)
    loop.pick(20, **RANDOM)
    loop.metrics()
    found = service.get(f"/ensembles/{loop.ensemble['id']}/evaluation")
    assert (found["measured_on"], found["n"], found["reliability"], found["classes"]) == ("none", 0, None, None)
    assert "purpose 'evaluation'" in found["note"]


@on_sqlite
def test_an_ensemble_that_is_not_trained_is_a_conflict(service: Service) -> None:
    loop = Loop(service, **NET)
    loop.pick(20, **RANDOM)
    asked = service.post(f"/projects/{loop.project['id']}/ensembles", {}, 202)["ensemble"]
    refused(service, "GET", f"/ensembles/{asked['id']}/evaluation", 409, "not trained; look at its job")


def test_empty_bins_are_left_out() -> None:
    evaluation = bc.metrics.Evaluation(n_bins=10)
    evaluation.add(
        bc.CategoricalPredictive(logits=torch.tensor([[[0.95, 0.05], [0.55, 0.45]]]).log()), np.array([0, 1])
    )
    assert _reliability(evaluation.reliability()) == [
        {"confidence": pytest.approx(0.55), "accuracy": 0.0, "n": 1},
        {"confidence": pytest.approx(0.95), "accuracy": 1.0, "n": 1},
    ]
