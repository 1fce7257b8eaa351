"""Backtests on a project's own labels: curves, labels saved, a recommendation that one call adopts, and refusals."""

from typing import Any

import numpy as np
import pytest

import bensemble_core as bc
from app.db.tables import Job
from app.db.types import database_time
from app.queue.context import JobContext
from bensemble_core.backtesting.play import Play
from tests.app.conftest import Service
from tests.app.hammering import classification, pointers, pool, refused, regression
from tests.app.working import on_sqlite

ROWS = np.random.default_rng(0).normal(size=(80, 2)).round(3)
COLOURS = ["red" if a > b else "blue" for a, b in ROWS]
SHORT: dict[str, Any] = {"k": 6, "rounds": 2, "seeds": 2, "strategies": []}


def labelled(service: Service, project_id: str, **changes: Any) -> str:
    return pool(service, project_id, **{"rows": ROWS.tolist(), "labels": COLOURS, **changes})


def ask(service: Service, project_id: str, **body: Any) -> dict[str, Any]:
    return dict(service.post(f"/projects/{project_id}/backtests", {**SHORT, **body}, 202))


def test_a_backtest_answers_as_the_library_and_its_recommendation_is_adopted_with_one_call(service: Service) -> None:
    project_id = classification(service)
    pool_id = labelled(service, project_id, purpose="evaluation")
    margin = {"name": "mine", "acquisition": {"name": "margin"}, "selection": {"name": "top_k"}}
    asked = ask(service, project_id, pool_id=pool_id, strategies=[margin])
    assert (asked["backtest"]["status"], asked["backtest"]["curves"]) == ("queued", None)
    later = [{"pool_id": pool_id, "row": 0, "value": "blue" if COLOURS[0] == "red" else "red"}]
    service.post(f"/projects/{project_id}/labels", {"labels": later})  # after the watermark: not played on
    service.run_jobs()
    found = service.get(f"/backtests/{asked['backtest']['id']}")
    project = service.get(f"/projects/{project_id}")
    direct = bc.backtest(
        ROWS.astype(np.float32),
        [["red", "blue"].index(colour) for colour in COLOURS],
        likelihood=bc.Categorical(n_classes=2),
        posterior=project["posterior"],
        model=project["model"],
        strategies=[margin],
        **{name: SHORT[name] for name in ("k", "rounds", "seeds")},
    )
    assert (found["status"], found["metric"], found["n_pool"], found["n_test"]) == ("succeeded", "accuracy", 60, 20)
    assert [curve["strategy"] for curve in found["curves"]] == ["default", "random", "mine"]
    for shown, curve in zip(found["curves"], direct.curves, strict=True):
        assert shown["n"] == [6, 12]
        assert shown["mean"]["accuracy"] == pytest.approx(curve.mean["accuracy"])
        assert shown["gain"]["mean"] == pytest.approx(curve.gain.mean)
    assert {run["strategy"] for run in found["runs"]} == {"default", "random", "mine", "all labels"}
    assert found["recommendation"]["strategy"] == direct.choice.strategy
    body = found["recommendation"]["body"]
    assert body == direct.chosen.choice()
    adopted = service.client.patch(f"/v1/projects/{project_id}", json=body).raise_for_status().json()
    assert {name: adopted[name] for name in body} == body
    (listed,) = service.get(f"/projects/{project_id}/backtests")["items"]
    assert {**listed, "runs": found["runs"]} == found
    again = ask(service, project_id, pool_id=pool_id, strategies=[margin])
    assert again["backtest"]["watermark"] > found["watermark"]


def test_a_backtest_of_numbers_plays_the_projects_own_choice_too(service: Service) -> None:
    project_id = regression(service, selection={"name": "typiclust"})
    pool_id = labelled(service, project_id, labels=ROWS.sum(1).tolist())
    asked = service.post(
        f"/projects/{project_id}/backtests", {"pool_id": pool_id, "k": 5, "seeds": 2, "rounds": 1}, 202
    )
    assert [each["name"] for each in asked["backtest"]["strategies"]] == [
        *("default", "variance", "kcenter", "random"),
        "project",
    ]
    service.run_jobs()
    found = service.get(f"/backtests/{asked['backtest']['id']}")
    assert (found["status"], found["metric"]) == ("succeeded", "rmse")
    assert found["recommendation"]["reason"].endswith(".")


def test_a_backtest_that_was_stopped_runs_nothing_twice_and_ends_the_same(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    project_id = classification(service)
    pool_id = labelled(service, project_id)
    whole = ask(service, project_id, pool_id=pool_id)
    service.run_jobs()
    fits: list[str] = []
    learn = Play._learn

    def until_the_fourth(self: Play, strategy: Any, *arguments: Any) -> Any:
        fits.append(strategy.name)
        if len(fits) == 4:
            raise RuntimeError("the machine fell over")
        return learn(self, strategy, *arguments)

    monkeypatch.setattr(JobContext, "is_checkpoint_due", lambda self: True)
    monkeypatch.setattr(Play, "_learn", until_the_fourth)
    cut = ask(service, project_id, pool_id=pool_id)
    service.run_jobs()
    under_way = service.get(f"/backtests/{cut['backtest']['id']}")
    assert (under_way["status"], under_way["curves"]) == ("queued", None)
    assert [(run["strategy"], run["n"]) for run in under_way["runs"]] == [("default", [6, 12]), ("random", [6])]
    with service.services.database.write() as session:
        session.get_one(Job, cut["job"]["id"]).run_at = database_time(session)  # without the back-off
    service.run_jobs()
    first, second = (service.get(f"/backtests/{each['backtest']['id']}") for each in (whole, cut))
    assert second["status"] == "succeeded", second["error"]
    assert len(fits) == 2 * (2 * 2 + 1) + 1  # the one that fell over is made again, and no other
    assert (second["curves"], second["recommendation"]) == (first["curves"], first["recommendation"])


def test_a_training_that_is_asked_for_meanwhile_goes_first(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    project_id = classification(service)
    pool_id = labelled(service, project_id)
    asked = ask(service, project_id, pool_id=pool_id)
    trained: list[dict[str, Any]] = []
    learn = Play._learn

    def meanwhile(self: Play, *arguments: Any) -> Any:
        if not trained:
            trained.append(service.post(f"/projects/{project_id}/ensembles", {}, 202))
        return learn(self, *arguments)

    monkeypatch.setattr(Play, "_learn", meanwhile)
    backtest, training = asked["job"]["id"], trained
    ran = service.run_jobs()
    assert ran == [backtest, training[0]["job"]["id"], backtest]
    found = service.get(f"/jobs/{backtest}")
    assert (found["status"], found["attempts"]) == ("succeeded", 1)
    assert service.get(f"/backtests/{asked['backtest']['id']}")["seconds"] > 0


@on_sqlite
def test_too_few_labels_are_refused_with_how_many_are_needed(service: Service) -> None:
    project_id = classification(service)
    path = f"/projects/{project_id}/backtests"
    few = pool(service, project_id, labels=["red", "blue"] * 5)
    said = "at least 38 labelled rows (3 k + 20)", "there are 10. Label 28 more, or take a smaller k"
    refused(service, "POST", path, 409, *said, json={**SHORT, "pool_id": few})
    single = labelled(service, project_id, labels=["red"] * 79 + ["blue"])
    refused(service, "POST", path, 409, "1 of 2 classes were: blue", json={**SHORT, "pool_id": single})
    enough = labelled(service, project_id)
    for body, says, pointer in (
        ({"rounds": 11}, "60 of the 80 labelled rows can be asked for; take at most 10 rounds", "/rounds"),
        ({"seeds": 1}, "greater than or equal to 2", "/seeds"),
        ({"strategies": [{"name": "random"}]}, "'random' is the name of what is always played", "/strategies"),
        ({"strategies": [{"name": "a"}, {"name": "b", "acquisition": {"name": "epig"}}]}, "epig", "/strategies/1/acqu"),
        ({"strategies": [{"name": "a", "posterior": {"name": "gp"}}]}, "strategy 'a': ", "/strategies/0"),
    ):
        problem = refused(service, "POST", path, 422, json={**SHORT, "pool_id": enough, **body})
        assert says in problem["errors"][0]["detail"], problem
        assert pointers(problem)[0].startswith(pointer)
    refused(service, "POST", path, 404, "no pool", json={**SHORT, "pool_id": "x"})


@on_sqlite
def test_all_trainings_of_a_backtest_together_are_under_the_cap(service: Service) -> None:
    project_id = classification(service, posterior={"name": "deep_ensemble", "members": 10, "epochs": 10_000})
    pool_id = labelled(service, project_id)
    service.services.settings.max_training_cost = 1e7
    path, body = f"/projects/{project_id}/backtests", {**SHORT, "pool_id": pool_id}
    refused(service, "POST", path, 422, "all trainings of this backtest", "Take fewer strategies", json=body)


@on_sqlite
def test_a_backtest_goes_with_its_pool_and_its_job_is_cancelled(service: Service) -> None:
    project_id = classification(service)
    pool_id = labelled(service, project_id)
    asked = ask(service, project_id, pool_id=pool_id)
    service.client.delete(f"/v1/pools/{pool_id}").raise_for_status()
    assert service.get(f"/jobs/{asked['job']['id']}")["status"] == "cancelled"
    service.get(f"/backtests/{asked['backtest']['id']}", 404)
