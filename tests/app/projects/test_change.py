"""PATCH of a project: checked as at its creation, recorded, and taken by the next training and ranking."""

from typing import Any

import pytest

from tests.app.conftest import Service
from tests.app.hammering import classification, pointers, pool, refused, regression
from tests.app.working import on_sqlite

MARGIN = {"acquisition": {"name": "margin"}, "selection": {"name": "top_k"}}


def patch(service: Service, project_id: str, **body: Any) -> dict[str, Any]:
    return dict(service.client.patch(f"/v1/projects/{project_id}", json=body).raise_for_status().json())


def rank(service: Service, pool_id: str, **body: Any) -> dict[str, Any]:
    asked = service.post(f"/pools/{pool_id}/rankings", {"k": 2, **body}, 202)
    service.run_jobs()
    return dict(service.get(f"/rankings/{asked['ranking']['id']}"))


def names(ranking: dict[str, Any]) -> tuple[str, str]:
    return ranking["acquisition"]["name"], ranking["selection"]["name"]


def test_changes_are_recorded_with_what_was_before_and_by_whom(service: Service) -> None:
    project_id = classification(service)
    before = service.get(f"/projects/{project_id}")
    assert (before["acquisition"], before["selection"], before["calibrate"]) == (None, None, True)
    changed = patch(service, project_id, name="better", calibrate="folds", **MARGIN)
    assert {name: changed[name] for name in ("name", "calibrate", *MARGIN)} == {
        "name": "better",
        "calibrate": "folds",
        **MARGIN,
    }
    assert patch(service, project_id, name="better") == changed  # nothing is new, nothing is recorded
    posterior = {"name": "mc_dropout", "epochs": 2}
    assert patch(service, project_id, posterior=posterior, acquisition=None)["posterior"]["epochs"] == 2
    first, second = service.get(f"/projects/{project_id}/changes")["items"]
    assert (first["n"], second["n"]) == (1, 2)
    assert first["changes"] == {
        **{name: [None, MARGIN[name]] for name in MARGIN},
        "name": ["colours", "better"],
        "calibrate": [True, "folds"],
    }
    assert second["changes"]["acquisition"] == [MARGIN["acquisition"], None]
    assert second["changes"]["posterior"][0] == before["posterior"]
    assert first["key_id"] is not None
    page = service.get(f"/projects/{project_id}/changes", limit=1)
    assert page["items"] == [first]
    assert service.get(f"/projects/{project_id}/changes", cursor=page["next_cursor"])["items"] == [second]


def test_rankings_and_rounds_that_name_nothing_take_the_projects_choice(service: Service) -> None:
    project_id = classification(service, **MARGIN)
    pool_id = pool(service, project_id, labels=["red", "blue", *[None] * 8])
    first = rank(service, pool_id)
    assert names(first) == ("random", "typiclust")
    assert first["notes"][0] == ("the project's choice, margin with top_k, needs an ensemble, and there is none yet")
    service.post(f"/projects/{project_id}/ensembles", {}, 202)
    service.run_jobs()
    second = rank(service, pool_id)
    assert names(second) == ("margin", "top_k")
    assert "chosen by the project's choice, margin with top_k" in second["notes"][0]
    opened = service.post(f"/projects/{project_id}/rounds", {"pool_id": pool_id, "k": 2}, 202)["round"]
    assert names(service.get(f"/rankings/{opened['ranking_id']}")) == ("margin", "top_k")
    named = rank(service, pool_id, acquisition={"name": "bald"})
    assert names(named) == ("bald", "top_k")
    assert not any("project's choice" in note for note in named["notes"])
    patch(service, project_id, acquisition=None, selection=None)
    assert names(rank(service, pool_id)) == ("margin", "cluster_margin")


@on_sqlite
def test_a_choice_that_needs_no_ensemble_is_taken_from_the_start(service: Service) -> None:
    project_id = regression(service, selection={"name": "kcenter"})
    ranking = rank(service, pool(service, project_id))
    assert names(ranking) == ("random", "kcenter")
    assert "chosen by the project's choice" in ranking["notes"][0]


@on_sqlite
def test_the_next_training_takes_the_changed_posterior_and_model(service: Service) -> None:
    project_id = classification(service)
    pool(service, project_id, labels=["red", "blue"] * 5)
    patch(service, project_id, posterior={"name": "map", "epochs": 2}, model={"name": "mlp", "hidden": [3]})
    asked = service.post(f"/projects/{project_id}/ensembles", {}, 202)
    service.run_jobs()
    ensemble = service.get(f"/ensembles/{asked['ensemble']['id']}")
    assert (ensemble["status"], ensemble["posterior"]["name"], ensemble["n_members"]) == ("succeeded", "map", 1)


@on_sqlite
@pytest.mark.parametrize(
    ("body", "says", "pointer"),
    [
        ({"posterior": {"name": "gp"}}, "", "/posterior"),
        ({"model": {"name": "conv"}}, "", "/model"),
        ({"posterior": None}, "", "/posterior"),
        ({"name": None}, "", "/name"),
        ({"calibrate": "fold"}, "expected true, false or", "/calibrate"),
        ({"calibrate": 1}, "expected true, false or", "/calibrate"),
        ({"acquisition": {"name": "epig"}}, "epig needs a target set", "/acquisition"),
        ({"acquisition": {"name": "entropy"}, "selection": {"name": "badge"}, "task": {}}, "", "/task"),
        ({"selection": {"name": "bald"}}, "", "/selection"),
    ],
)
def test_a_change_is_checked_as_at_the_creation(service: Service, body: Any, says: str, pointer: str) -> None:
    project_id = classification(service)
    problem = refused(service, "PATCH", f"/projects/{project_id}", 422, says, json=body)
    assert pointers(problem)[0].startswith(pointer)


@on_sqlite
def test_what_is_not_defined_for_the_task_is_no_choice_of_the_project(service: Service) -> None:
    project_id = regression(service)
    problem = refused(service, "PATCH", f"/projects/{project_id}", 422, "margin", json=MARGIN)
    assert pointers(problem) == ["/acquisition"]
    body = {"name": "p", "task": {"kind": "regression"}, "input": {"shape": [2]}, **MARGIN}
    refused(service, "POST", "/projects", 422, "margin", json=body)
