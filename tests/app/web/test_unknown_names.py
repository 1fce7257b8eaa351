"""What is misspelt or meant otherwise is refused and named, never silently ignored or bent into shape."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

import bensemble_core as bc
from app.db.engine import Database
from app.methods.schemas import AcquisitionSpec, ModelSpec, PosteriorSpec, SelectionSpec
from app.settings import warn_of_unknown
from app.web.fields import In
from bensemble_core.design import CATALOGUE
from tests.app.conftest import Service
from tests.app.designing import propose, session
from tests.app.hammering import ROWS, backtest, build_world, pointers, refused, routes, stored

NOT_BOOLEAN = ["yes", "true", "false", "1", 1, 0, 1.0]


@pytest.fixture
def service(sqlite_database: Database, make_service: Callable[..., Service]) -> Service:
    return make_service(sqlite_database)


def real_ids(service: Service) -> dict[str, str]:
    """One of each thing that a path can name."""
    world = build_world(service)
    begun = session(service)
    ranked = service.post(f"/pools/{world.pool_id}/rankings", {"k": 1}, 202)
    opened = service.post(f"/projects/{world.project_id}/rounds", {"pool_id": world.pool_id, "k": 1}, 202)
    asked = service.post(f"/ensembles/{world.ensemble_id}/predictions", {"rows": ROWS}, 202)
    simulated = service.post(f"/experiments/{begun['experiment_id']}/simulations", {"trials": 1}, 202)
    return {
        "project_id": world.project_id,
        "pool_id": world.empty_pool_id,
        "ensemble_id": world.ensemble_id,
        "job_id": world.job_id,
        "ranking_id": ranked["ranking"]["id"],
        "round_id": opened["round"]["id"],
        "prediction_id": asked["prediction"]["id"],
        "schedule_id": service.post(f"/projects/{world.project_id}/schedules", {"every_labels": 9})["id"],
        "backtest_id": service.post(*backtest(service, world.project_id), 202)["backtest"]["id"],
        "key_id": service.post("/keys", {"name": "other"})["id"],
        "experiment_id": begun["experiment_id"],
        "session_id": begun["id"],
        "proposal_id": propose(service, begun["id"])["id"],
        "simulation_id": simulated["simulation"]["id"],
        "catalogue_id": next(iter(CATALOGUE)),
        "n": "1",
    }


def test_every_address_refuses_a_query_parameter_that_it_does_not_have(service: Service) -> None:
    ids = real_ids(service)
    before = stored(service)
    for method, path in sorted(routes()):
        response = service.client.request(method, path.format(**ids), params={"surprise": "1"})
        problem = response.json()
        assert response.status_code == 422, f"{method} {path}: {response.text}"
        assert problem["errors"][0]["pointer"] == "/query/surprise", (method, path)
        assert "there is no query parameter 'surprise'" in problem["detail"]
    assert stored(service) == before


def test_an_unknown_parameter_is_answered_with_the_known_and_the_nearest(service: Service) -> None:
    near = "there is no query parameter 'limt'; did you mean 'limit'?; the parameters here are cursor, limit"
    problem = refused(service, "GET", "/projects", 422, near, params={"limt": "5", "cursor": "x"})
    assert pointers(problem) == ["/query/limt"]
    refused(service, "GET", "/methods", 422, "'zebra'; there are none here", params={"zebra": ""})
    several = refused(service, "GET", "/projects", 422, params={f"p{i}/": "" for i in range(50)} | {"x" * 9999: ""})
    assert len(several["errors"]) == 20
    assert pointers(several)[0] == "/query/p0~1"
    assert len(several["detail"]) < 500


def bodies() -> list[type[In]]:
    """Of every route: the service, imported by the conftest, has them all."""

    def below(model: type[In]) -> Iterator[type[In]]:
        for each in model.__subclasses__():
            yield each
            yield from below(each)

    return sorted(set(below(In)), key=lambda model: model.__name__)


def lax(schema: Any, kind: str) -> Iterator[dict[str, Any]]:
    """In a core schema; not in any JSON, which stays as it came, nor in those of methods, which the library checks."""
    if isinstance(schema, dict):
        if "JsonValue" in schema.get("ref", ""):
            return
        if schema.get("type") == kind and not schema.get("strict"):
            yield schema
        if schema.get("type") != "dataclass":
            for part in schema.values():
                yield from lax(part, kind)
    elif isinstance(schema, (list, tuple)):
        for part in schema:
            yield from lax(part, kind)


def test_no_body_takes_anything_but_true_and_false_for_a_boolean() -> None:
    found = bodies()
    assert len(found) > 20
    for model in found:
        assert not list(lax(model.__pydantic_core_schema__, "bool")), model.__name__


def test_no_body_takes_true_for_a_whole_number() -> None:
    """But for the value of a label, which may be anything that its project has a class for."""
    for model in bodies():
        found = list(lax(model.__pydantic_core_schema__, "int"))
        assert not found or model.__name__ in ("LabelIn", "RoundLabelIn", "LabelsIn", "RoundLabelsIn", "PoolIn"), model


def test_no_option_of_a_method_takes_anything_but_true_and_false_for_a_boolean() -> None:
    kinds: list[tuple[Any, Any]] = [
        (PosteriorSpec, bc.POSTERIORS),
        (ModelSpec, bc.MODELS),
        (AcquisitionSpec, {name: entry.options for name, entry in bc.ACQUISITIONS.items()}),
        (SelectionSpec, {name: entry.options for name, entry in bc.SELECTIONS.items()}),
    ]
    n_tried = 0
    for spec, registry in kinds:
        adapter = TypeAdapter(spec)
        for name, options in registry.items():
            for field in dataclasses.fields(options):
                if "bool" not in str(field.type):
                    continue
                n_tried += 1
                adapter.validate_python({"name": name, field.name: True})
                for value in NOT_BOOLEAN:
                    with pytest.raises(ValidationError):
                        adapter.validate_python({"name": name, field.name: value})
    assert n_tried > 5


def test_a_boolean_that_is_none_is_refused_over_http(service: Service) -> None:
    world = build_world(service)
    at = f"/projects/{world.project_id}"
    label = {"pool_id": world.pool_id, "row": 5}
    for value in NOT_BOOLEAN:
        said = [{**label, "skip": value}]
        problem = refused(service, "POST", f"{at}/labels", 422, "valid boolean", json={"labels": said})
        assert pointers(problem) == ["/labels/0/skip"]
        refused(service, "POST", f"{at}/ensembles", 422, "valid boolean", json={"warm_start": value})
    assert service.post(f"{at}/labels", {"labels": [{**label, "skip": True}]}, 201)["accepted"] == 1


def test_a_misspelt_setting_is_named_once_and_the_service_starts(caplog: pytest.LogCaptureFixture) -> None:
    given = {
        "BENSEMBLE_PROT": "80",
        "BENSEMBLE_ZEBRA": "1",
        "bensemble_port": "81",
        "BENSEMBLE_URL": "http://x",
        "P": "",
    }
    environment = dict(given)
    warn_of_unknown(environment)
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert said == [
        ("WARNING", "BENSEMBLE_PROT is not a setting and has no effect; did you mean 'BENSEMBLE_PORT'?"),
        ("WARNING", "BENSEMBLE_ZEBRA is not a setting and has no effect"),
    ]
    assert environment == {name: given[name] for name in ("bensemble_port", "BENSEMBLE_URL", "P")}
