"""The prior of a project's weights is named in its task, and reaches the training."""

from pathlib import Path
from typing import Any

import pytest

import bensemble_core as bc
from app.projects.create import prior_of
from tests.app.conftest import Service
from tests.app.test_loop import train
from tests.app.working import on_sqlite

REGRESSION: dict[str, Any] = {"input": {"shape": [1]}, "posterior": {"name": "map", "epochs": 3}}
GIVEN: list[tuple[dict[str, Any], dict[str, Any], Any]] = [
    ({"scale": 0.3}, {"name": "normal", "scale": 0.3}, bc.Normal(scale=0.3)),
    ({"name": "normal", "scale": 2}, {"name": "normal", "scale": 2.0}, bc.Normal(scale=2.0)),
    (
        {"name": "double_exponential", "scale": 0.5},
        {"name": "double_exponential", "scale": 0.5},
        bc.DoubleExponential(scale=0.5),
    ),
    (
        {"name": "gp", "lengthscale": [2], "scale": 1.5},
        {"name": "gp", "lengthscale": [2.0], "scale": 1.5, "kernel": "rbf"},
        bc.GP(lengthscale=(2.0,), scale=1.5),
    ),
    ({"name": "student_t"}, {"name": "student_t", "df": 3.0, "scale": 1.0}, bc.StudentT(df=3.0, scale=1.0)),
]


@on_sqlite
@pytest.mark.parametrize(("given", "shown", "prior"), GIVEN, ids=["scale alone", "normal", "l1", "gp", "t"])
def test_a_prior_is_chosen_by_name(service: Service, given: Any, shown: Any, prior: Any, tmp_path: Path) -> None:
    wanted = REGRESSION | ({"posterior": {"name": "gp", "frequencies": 32}} if prior.over == "functions" else {})
    project = service.project(task={"kind": "regression", "prior": given}, **wanted)
    assert service.get(f"/projects/{project['id']}")["task"]["prior"] == shown
    rows = {"name": "p", "rows": [[float(i)] for i in range(12)], "labels": [float(i % 3) for i in range(12)]}
    service.post(f"/projects/{project['id']}/pools", rows)
    ensemble = train(service, project)
    path = tmp_path / "e"
    path.write_bytes(service.client.get(f"/v1/ensembles/{ensemble['id']}/file").content)
    assert bc.load(path).problem.prior == prior


def test_a_task_stored_before_priors_had_names_is_normal() -> None:
    assert prior_of({"prior": {"scale": 0.3}}) == bc.Normal(scale=0.3)


@on_sqlite
def test_a_method_that_needs_a_normal_prior_is_refused_with_the_project(service: Service) -> None:
    wrong = {"kind": "regression", "prior": {"name": "double_exponential"}}
    body = {"name": "p", "task": wrong, "input": {"shape": [1]}, "posterior": {"name": "mfvi"}}
    problem = service.post("/projects", body, 422)
    assert "mfvi needs a Normal prior, got DoubleExponential" in problem["errors"][0]["detail"]


@on_sqlite
def test_openapi_lists_the_priors(service: Service) -> None:
    schema = service.client.get("/openapi.json").json()["components"]["schemas"]
    prior = schema["Regression"]["properties"]["prior"]
    union = next(part for part in prior["anyOf"] if "discriminator" in part)
    assert set(union["discriminator"]["mapping"]) == {"normal", "double_exponential", "student_t", "gp"}
    assert schema["NormalPrior"]["properties"]["scale"]["default"] == 1.0
    assert "maximum likelihood" in prior["description"]


@on_sqlite
@pytest.mark.parametrize(
    ("posterior", "said"), [("gp", 'pass likelihood="gaussian"'), ("fbnn", "pass prior=GP(lengthscale=…")]
)
def test_a_refusal_in_words_of_the_library_says_how_a_project_has_it(
    service: Service, posterior: str, said: str
) -> None:
    task = {"kind": "classification", "classes": ["a", "b"]}
    body = {"name": "p", "task": task, "input": {"shape": [2]}, "posterior": {"name": posterior}}
    answer = service.client.post("/v1/projects", json=body)
    assert answer.status_code == 422
    reason = answer.json()["detail"]
    assert said in reason
    assert 'In a project the likelihood is task.kind, e.g. "regression"' in reason
    assert 'the prior is task.prior, e.g. {"name": "normal", "scale": 1.0} or {"name": "gp", …}' in reason
