"""The OpenAPI tells the truth: Schemathesis asks for everything that it says, and for much that it does not."""

import json
import re
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import jsonschema
import numpy as np
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from app.db.engine import Database
from app.db.migrate import migrate
from app.main import create_app
from app.settings import Settings
from bensemble_core.design import CATALOGUE
from tests.app.conftest import Service
from tests.app.designing import DIGIT_SPAN, experiment, propose, session
from tests.app.hammering import ROWS, backtest, build_world, empty_pool, routes, stored
from tests.app.pools.test_uploads import FORMATS, npy

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
EXAMPLES = 20
FILES = [content for content, _ in FORMATS.values()] + [npy(np.array(ROWS))]
MAY_MAKE_A_JOB = {  # and say so in an answer other than 202
    ("post", "/v1/jobs/{job_id}/retry"),
    ("post", "/v1/projects/{project_id}/labels"),
    ("post", "/v1/rounds/{round_id}/labels"),
    ("post", "/v1/sessions/{session_id}/observations"),
}
Pick = Callable[[], Any]


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return dict(create_app(Settings()).openapi())


def operations(schema: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(method, path, found) for path, item in schema["paths"].items() for method, found in item.items()]


def test_every_route_is_in_the_schema(schema: dict[str, Any]) -> None:
    named = {(method.upper(), path) for method, path, _ in operations(schema)}
    assert named == routes() | {("GET", path) for path in ("/healthz", "/readyz", "/metrics")}


def test_every_operation_is_told_in_words(schema: dict[str, Any]) -> None:
    ids = [found["operationId"] for _, _, found in operations(schema)]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)+", name) for name in ids), ids
    assert {"create_pool", "open_round", "next_items", "record_observation", "follow_job"} <= set(ids)
    tags = {tag["name"] for tag in schema["tags"]}
    for method, path, found in operations(schema):
        assert found["summary"], (method, path)
        assert set(found["tags"]) <= tags, (method, path)
        for status, response in found["responses"].items():
            assert response["description"], (method, path, status)
        for parameter in found.get("parameters", []):
            assert parameter["schema"], (method, path)


def test_every_problem_is_documented_as_one(schema: dict[str, Any]) -> None:
    for method, path, found in operations(schema):
        if not path.startswith("/v1/"):
            continue
        statuses = {int(status) for status in found["responses"]}
        assert {401, 403, 422, 429, 503} <= statuses, (method, path)
        assert ("{" not in path) or 404 in statuses, (method, path)
        assert method in ("get", "delete") or {409, 413, 415} <= statuses, (method, path)
        good = {status for status in statuses if status < 300}
        assert good in ({200}, {201}, {204}, {200, 202}, {200, 201, 202}), (method, path)
        for status, response in found["responses"].items():
            if int(status) >= 400:
                assert response["content"] == {
                    "application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemOut"}}
                }


def test_every_request_that_makes_a_job_can_wait_for_it(schema: dict[str, Any]) -> None:
    for method, path, found in operations(schema):
        makes_a_job = "202" in found["responses"] or (method, path) in MAY_MAKE_A_JOB
        headers = [p["name"] for p in found.get("parameters", []) if p["in"] == "header"]
        assert headers == ["Prefer"] * makes_a_job, (method, path)
        for status, response in found["responses"].items():
            assert ("Preference-Applied" in response.get("headers", {})) == (makes_a_job and int(status) < 300)
        if "202" in found["responses"]:
            now, later = (found["responses"][status]["content"] for status in ("200", "202"))
            assert now == later, (method, path)


def test_nothing_of_fastapis_own_errors_is_left(schema: dict[str, Any]) -> None:
    assert "ValidationError" not in json.dumps(schema)


def test_every_reference_leads_somewhere_and_every_schema_is_one(schema: dict[str, Any]) -> None:
    defined = schema["components"]["schemas"]

    def walk(part: Any) -> None:
        if isinstance(part, dict):
            if "$ref" in part:
                assert part["$ref"].removeprefix("#/components/schemas/") in defined
            for value in part.values():
                walk(value)
        elif isinstance(part, list):
            for value in part:
                walk(value)

    walk(schema)
    for found in defined.values():
        jsonschema.Draft202012Validator.check_schema(found)


def test_every_example_is_valid(schema: dict[str, Any]) -> None:
    components = {"components": schema["components"]}

    def check(found: dict[str, Any]) -> None:
        for example in [*found.get("examples", []), *([found["example"]] if "example" in found else [])]:
            jsonschema.validate(example, {**found, **components})

    for found in schema["components"]["schemas"].values():
        check(found)
        for part in found.get("properties", {}).values():
            check(part)
    for _, _, found in operations(schema):
        for media in found.get("requestBody", {}).get("content", {}).values():
            check({**media["schema"], **({"example": media["example"]} if "example" in media else {})})
            for example in media.get("examples", {}).values():
                jsonschema.validate(example["value"], {**media["schema"], **components})


class Attack:
    """Real things by the name of the path's parameter; fresh ones where the operation would end them."""

    def __init__(self, service: Service) -> None:
        self.service = service
        world = build_world(service)
        self.world = world
        ranked = service.post(f"/pools/{world.pool_id}/rankings", {"k": 2}, 202)["ranking"]["id"]
        asked = service.post(f"/ensembles/{world.ensemble_id}/predictions", {"rows": ROWS}, 202)["prediction"]["id"]
        rounds = f"/projects/{world.project_id}/rounds"
        opened = []
        for _ in range(2):  # one after the other: a round leaves out what another one hands out
            opened.append(service.post(rounds, {"pool_id": world.pool_id, "k": 2}, 202)["round"]["id"])
            service.run_jobs()
        service.run_jobs()
        service.post(f"/rounds/{opened[1]}/close")
        self.ids: dict[str, list[str]] = {
            "project_id": [world.project_id, world.other_project_id],
            "pool_id": [world.pool_id, world.other_pool_id, world.evaluation_id, world.empty_pool_id],
            "ensemble_id": [world.ensemble_id],
            "prediction_id": [asked],
            "ranking_id": [ranked],
            "round_id": opened,
            "schedule_id": [self.new_schedule()],
            "backtest_id": [service.post(*backtest(service, world.project_id), 202)["backtest"]["id"]],
            "job_id": [world.job_id],
            "experiment_id": [self.new_experiment()],
            "session_id": [self.new_session(), self.new_session()],
            "proposal_id": [self.new_proposal(), self.new_proposal()],
            "simulation_id": [self.new_simulation()],
            "catalogue_id": [*CATALOGUE],
        }

        self.likely: dict[str, list[Any]] = {
            "pool_id": self.ids["pool_id"][:1],
            "ensemble_id": self.ids["ensemble_id"],
            "k": [1, 2, 3, 8],
            "row": [0, 3, 9, 10],
            "value": ["red", "blue", 1.5],
            "rows": [ROWS, ROWS[:1], [[1.0]]],
            "shape": [[2], [1, 4, 4]],
            "hidden": [[4], []],
            "fixed": [{}, {"xi": 3}],
            "excluded": [[], [{"xi": 7}]],
            "design": [{"xi": 5}, {"xi": 7}],
            "outcome": [{"y": 0}, {"y": 1}, {"y": 2}],
            "proposal_id": self.ids["proposal_id"],
            "session_ids": [self.ids["session_id"]],
            "spec": [DIGIT_SPAN, {}],
            "truths": [[{"theta": 5.0}]],
            "designs": [[], [{"xi": 5}]],
            "name": ["mlp", "conv", "map", "deep_ensemble", "bald", "random", "top_k", "power"],
        }

    def new_schedule(self) -> str:
        return str(self.service.post(f"/projects/{self.world.project_id}/schedules", {"every_labels": 1000})["id"])

    def new_project(self) -> str:
        return str(self.service.project()["id"])

    def new_pool(self) -> str:
        return empty_pool(self.service, self.world.project_id)

    def new_key(self) -> str:
        return str(self.service.post("/keys", {"name": "short-lived"})["id"])

    def new_experiment(self) -> str:
        return experiment(self.service)

    def new_session(self) -> str:
        return str(session(self.service, self.ids["experiment_id"][0] if hasattr(self, "ids") else None)["id"])

    def new_proposal(self) -> str:
        return str(propose(self.service, self.new_session())["id"])

    def new_simulation(self) -> str:
        path = f"/experiments/{self.new_experiment()}/simulations"
        return str(self.service.post(path, {"rounds": 1}, 202)["simulation"]["id"])

    def new_job(self) -> str:
        return str(self.service.post(f"/pools/{self.world.pool_id}/rankings", {"k": 1})["job"]["id"])

    def picks(self, method: str, path: str) -> dict[str, list[Pick]]:
        fresh: dict[tuple[str, str], tuple[str, Pick]] = {
            ("DELETE", "/v1/projects/{project_id}"): ("project_id", self.new_project),
            ("DELETE", "/v1/pools/{pool_id}"): ("pool_id", self.new_pool),
            ("DELETE", "/v1/schedules/{schedule_id}"): ("schedule_id", self.new_schedule),
            ("DELETE", "/v1/keys/{key_id}"): ("key_id", self.new_key),
            ("DELETE", "/v1/experiments/{experiment_id}"): ("experiment_id", self.new_experiment),
            ("DELETE", "/v1/sessions/{session_id}"): ("session_id", self.new_session),
            ("POST", "/v1/jobs/{job_id}/cancel"): ("job_id", self.new_job),
        }
        if (method, path) in fresh:
            name, make = fresh[method, path]
            return {name: [make]}
        return {name: [lambda found=found: found for found in known] for name, known in self.ids.items()}  # type: ignore[misc]

    def aim(self, draw: Any, case: Case) -> None:
        """Most ids become real ones, and most values such as could be right."""
        picks = self.picks(case.operation.method.upper(), case.operation.path)
        for name in case.path_parameters:
            if name in picks and draw(st.integers(0, 15)):
                case.path_parameters[name] = draw(st.sampled_from(picks[name]))()
        if case.operation.path.endswith(("/data", "/inspect")):
            content = draw(st.sampled_from(FILES))
            end = draw(st.integers(0, 2 * len(content)))
            case.body = draw(st.binary(max_size=20)) if end == 0 else content[:end]
        if case.operation.path in ("/v1/experiments", "/v1/models/validate") and draw(st.integers(0, 3)):
            stated = case.body if isinstance(case.body, dict) else {}
            case.body = {**deepcopy(DIGIT_SPAN), **dict(list(stated.items())[: draw(st.integers(0, 1))])}
        if case.operation.path == "/v1/events":  # a stream that nobody would end
            case.query["project_id"] = "nothing"
        self._aim_body(draw, case.body)

    def _aim_body(self, draw: Any, body: Any) -> None:
        if isinstance(body, dict):
            for name in list(body):
                if name in self.likely and draw(st.integers(0, 15)):
                    body[name] = deepcopy(draw(st.sampled_from(self.likely[name])))
                self._aim_body(draw, body[name])
        elif isinstance(body, list):
            for part in body:
                self._aim_body(draw, part)


@schemathesis.serializer(
    "application/x-npy",
    "application/vnd.apache.parquet",
    "application/vnd.apache.arrow.file",
    "application/vnd.apache.arrow.stream",
)
def as_it_is(context: Any, value: Any) -> Any:
    return value if isinstance(value, bytes) else str(value).encode()


def without_security(schema: dict[str, Any]) -> dict[str, Any]:
    """Else much of the time would go into requests without a key, and test_auth.py asks those."""
    del schema["components"]["securitySchemes"]
    for _, _, found in operations(schema):
        found.pop("security", None)
    return schema


def without_tuples(part: Any) -> Any:
    """Schemathesis reads `prefixItems` as the `items` of an older draft, which a validator of ours refuses; those that
    are all alike are said by `items` as well, beside the bounds on their number."""
    if isinstance(part, list):
        return [without_tuples(value) for value in part]
    if not isinstance(part, dict):
        return part
    found = {name: without_tuples(value) for name, value in part.items()}
    if isinstance(parts := found.get("prefixItems"), list):
        assert all(each == parts[0] for each in parts)
        found["items"] = found.pop("prefixItems")[0]
    return found


@pytest.mark.timeout(600)
def test_schemathesis_finds_no_server_error_and_nothing_undocumented(tmp_path: Any, make_service: Any) -> None:
    database = Database.connect(f"sqlite:///{tmp_path / 'test.db'}")
    migrate(database)
    service = make_service(database)
    attack = Attack(service)
    url = str(service.client.base_url).rstrip("/")
    headers = {"Authorization": service.client.headers["Authorization"]}
    loaded = schemathesis.openapi.from_dict(
        without_tuples(without_security(service.client.get("/openapi.json").json()))
    )
    seen: dict[int, int] = {}
    tried = set()
    for found in loaded.get_all_operations():
        operation = found.ok()
        tried.add((operation.method.upper(), operation.path))
        modes = [operation.as_strategy(generation_mode=mode) for mode in GenerationMode]

        @given(case=st.one_of(modes), data=st.data())
        @settings(
            max_examples=EXAMPLES,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def ask(case: Case, data: st.DataObject) -> None:
            attack.aim(data.draw, case)
            if "Prefer" in case.headers:  # there is no worker here to wait for
                case.headers["Prefer"] = "wait=0"
            response = case.call(base_url=url, headers=headers, timeout=30)
            seen[response.status_code] = seen.get(response.status_code, 0) + 1
            case.validate_response(response, checks=CHECKS)

        ask()
    assert tried == routes() | {("GET", path) for path in ("/healthz", "/readyz", "/metrics")}
    assert sum(seen.values()) >= EXAMPLES * len(tried) / 2, seen
    assert {200, 201, 202, 204, 404, 422} <= set(seen), seen
    assert stored(service)[0]["project"] >= 2
    database.dispose()
