"""Keys: who may do what, and see what."""

import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from app.cli import main
from app.db.engine import Database
from app.db.tables import Base
from app.errors import Malformed
from app.web.auth import SCOPES, Scope, create_key
from tests.app.conftest import Service
from tests.app.designing import propose, session
from tests.app.hammering import (
    ROWS,
    backtest,
    build_world,
    classification,
    empty_pool,
    pointers,
    pool,
    refused,
    regression,
    routes,
    stored,
)
from tests.app.working import on_sqlite

UNKNOWN = "0190a000-0000-7000-8000-000000000000"
NEEDED: dict[tuple[str, str], Scope] = {
    ("POST", "/v1/projects"): "write",
    ("GET", "/v1/projects"): "read",
    ("GET", "/v1/projects/{project_id}"): "read",
    ("PATCH", "/v1/projects/{project_id}"): "write",
    ("DELETE", "/v1/projects/{project_id}"): "admin",
    ("GET", "/v1/projects/{project_id}/changes"): "read",
    ("POST", "/v1/projects/{project_id}/current"): "write",
    ("GET", "/v1/projects/{project_id}/learning-curve"): "read",
    ("GET", "/v1/projects/{project_id}/advice"): "read",
    ("POST", "/v1/projects/{project_id}/pools"): "write",
    ("GET", "/v1/projects/{project_id}/pools"): "read",
    ("PUT", "/v1/pools/{pool_id}/data"): "write",
    ("GET", "/v1/pools/{pool_id}"): "read",
    ("DELETE", "/v1/pools/{pool_id}"): "write",
    ("GET", "/v1/pools/{pool_id}/items"): "read",
    ("GET", "/v1/pools/{pool_id}/map"): "read",
    ("POST", "/v1/projects/{project_id}/labels"): "label",
    ("GET", "/v1/projects/{project_id}/labels"): "read",
    ("GET", "/v1/projects/{project_id}/labels/summary"): "read",
    ("POST", "/v1/projects/{project_id}/ensembles"): "write",
    ("GET", "/v1/projects/{project_id}/ensembles"): "read",
    ("GET", "/v1/ensembles/{ensemble_id}"): "read",
    ("GET", "/v1/ensembles/{ensemble_id}/file"): "read",
    ("GET", "/v1/ensembles/{ensemble_id}/evaluation"): "read",
    ("POST", "/v1/ensembles/{ensemble_id}/predictions"): "read",
    ("GET", "/v1/predictions/{prediction_id}"): "read",
    ("POST", "/v1/pools/{pool_id}/rankings"): "label",
    ("GET", "/v1/pools/{pool_id}/rankings"): "read",
    ("GET", "/v1/rankings/{ranking_id}"): "read",
    ("GET", "/v1/rankings/{ranking_id}/scores"): "read",
    ("GET", "/v1/rankings/{ranking_id}/sample"): "read",
    ("POST", "/v1/rankings/{ranking_id}/replay"): "label",
    ("POST", "/v1/projects/{project_id}/rounds"): "write",
    ("GET", "/v1/projects/{project_id}/rounds"): "read",
    ("GET", "/v1/rounds/{round_id}"): "read",
    ("POST", "/v1/rounds/{round_id}/next"): "label",
    ("POST", "/v1/rounds/{round_id}/release"): "label",
    ("POST", "/v1/rounds/{round_id}/labels"): "label",
    ("POST", "/v1/rounds/{round_id}/close"): "write",
    ("POST", "/v1/projects/{project_id}/schedules"): "write",
    ("GET", "/v1/projects/{project_id}/schedules"): "read",
    ("GET", "/v1/schedules/{schedule_id}"): "read",
    ("PATCH", "/v1/schedules/{schedule_id}"): "write",
    ("DELETE", "/v1/schedules/{schedule_id}"): "write",
    ("POST", "/v1/projects/{project_id}/backtests"): "write",
    ("GET", "/v1/projects/{project_id}/backtests"): "read",
    ("GET", "/v1/backtests/{backtest_id}"): "read",
    ("POST", "/v1/models/validate"): "read",
    ("GET", "/v1/catalog"): "read",
    ("GET", "/v1/catalog/{catalogue_id}"): "read",
    ("GET", "/v1/catalog/{catalogue_id}/preview"): "read",
    ("POST", "/v1/experiments"): "write",
    ("GET", "/v1/experiments"): "read",
    ("GET", "/v1/experiments/{experiment_id}"): "read",
    ("PATCH", "/v1/experiments/{experiment_id}"): "write",
    ("DELETE", "/v1/experiments/{experiment_id}"): "write",
    ("POST", "/v1/experiments/{experiment_id}/simulations"): "write",
    ("GET", "/v1/experiments/{experiment_id}/simulations"): "read",
    ("GET", "/v1/simulations/{simulation_id}"): "read",
    ("POST", "/v1/experiments/{experiment_id}/sessions"): "write",
    ("GET", "/v1/experiments/{experiment_id}/sessions"): "read",
    ("GET", "/v1/sessions/{session_id}"): "read",
    ("PATCH", "/v1/sessions/{session_id}"): "write",
    ("DELETE", "/v1/sessions/{session_id}"): "write",
    ("POST", "/v1/sessions/{session_id}/token"): "write",
    ("DELETE", "/v1/sessions/{session_id}/token"): "write",
    ("POST", "/v1/sessions/{session_id}/proposals"): "label",
    ("GET", "/v1/sessions/{session_id}/proposals"): "read",
    ("GET", "/v1/proposals/{proposal_id}"): "read",
    ("POST", "/v1/proposals/{proposal_id}/abandon"): "label",
    ("POST", "/v1/sessions/{session_id}/observations"): "label",
    ("DELETE", "/v1/sessions/{session_id}/observations/{n}"): "label",
    ("GET", "/v1/sessions/{session_id}/posterior"): "read",
    ("GET", "/v1/sessions/{session_id}/eig"): "read",
    ("GET", "/v1/sessions/{session_id}/stop"): "read",
    ("GET", "/v1/sessions/{session_id}/rounds"): "read",
    ("GET", "/v1/sessions/{session_id}/trials"): "read",
    ("GET", "/v1/jobs"): "read",
    ("GET", "/v1/events"): "read",
    ("GET", "/v1/projects/{project_id}/jobs"): "read",
    ("GET", "/v1/jobs/{job_id}"): "read",
    ("POST", "/v1/jobs/{job_id}/cancel"): "write",
    ("POST", "/v1/jobs/{job_id}/retry"): "write",
    ("GET", "/v1/jobs/{job_id}/events"): "read",
    ("POST", "/v1/keys"): "admin",
    ("GET", "/v1/keys"): "admin",
    ("DELETE", "/v1/keys/{key_id}"): "admin",
    ("GET", "/v1/me"): "read",
    ("GET", "/v1/methods"): "read",
    ("POST", "/v1/examples"): "write",
    ("POST", "/v1/files/inspect"): "write",
}

ENDLESS = {"/v1/events": f"?project_id={UNKNOWN}"}  # a stream that nobody ends; so it is refused


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def test_every_route_has_a_scope_in_the_table_above() -> None:
    assert routes() == set(NEEDED)


def test_every_route_takes_its_scope_and_no_lesser_one(service: Service) -> None:
    secrets = {scope: service.key(scope) for scope in SCOPES}
    before = stored(service)
    for (method, path), needed in NEEDED.items():
        url = re.sub(r"\{\w+\}", UNKNOWN, path) + ENDLESS.get(path, "")
        for scope, secret in secrets.items():
            response = service.client.request(method, url, headers=bearer(secret))
            if SCOPES.index(scope) < SCOPES.index(needed):
                assert response.status_code == 403, (method, path, scope)
                assert f"a key with scope '{needed}'; yours has: {scope}" in response.json()["detail"]
            else:
                assert response.status_code in (200, 404, 422), (method, path, scope, response.text)
    assert stored(service) == before


def test_no_route_answers_without_a_good_key(service: Service) -> None:
    del service.client.headers["Authorization"]
    before = stored(service)
    for header in (
        None,
        "",
        "Bearer",
        "Basic YTpi",
        "bk_nothing",
        "Bearer bk_nothing",
        "Bearer é",
        "Bearer " + "x" * 5000,
    ):
        headers = [] if header is None else [(b"Authorization", header.encode())]
        for method, path in NEEDED:
            response = service.client.request(method, re.sub(r"\{\w+\}", UNKNOWN, path), headers=headers)
            assert (response.status_code, response.json()["status"]) == (401, 401), (method, path)
            assert response.headers["www-authenticate"] == "Bearer"
            assert response.headers["content-type"] == "application/problem+json"
    assert stored(service) == before
    for path in ("/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"):
        assert service.client.get(path).status_code == 200


def test_an_expired_key_is_refused_and_says_so(service: Service) -> None:
    long_ago = datetime.now(UTC) - timedelta(seconds=1)
    with service.services.database.write() as session:
        _, secret = create_key(session, name="old", scopes=["admin"], expires_at=long_ago)
        _, good = create_key(session, name="new", scopes=["admin"], expires_at=long_ago + timedelta(hours=1))
    refused(service, "GET", "/projects", 401, "expired at", headers=bearer(secret))
    assert service.client.get("/v1/projects", headers=bearer(good)).status_code == 200


def test_a_key_made_over_rest_works_until_its_end(service: Service) -> None:
    soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    made = service.post("/keys", {"name": "bot", "scopes": ["label", "read", "label"], "expires_at": soon}, 201)
    assert (made["name"], made["scopes"], made["project_ids"], made["revoked_at"]) == (
        "bot",
        ["label", "read"],
        None,
        None,
    )
    assert datetime.fromisoformat(made["expires_at"]) == datetime.fromisoformat(soon)
    assert service.client.get("/v1/projects", headers=bearer(made["key"])).status_code == 200
    refused(service, "GET", "/keys", 403, "scope 'admin'", headers=bearer(made["key"]))
    listed = {key["id"]: key for key in service.get("/keys")["items"]}
    assert listed[made["id"]] == {name: value for name, value in made.items() if name != "key"}


def test_revoking_a_key_works_at_once_and_keeps_it_listed(service: Service) -> None:
    made = service.post("/keys", {"name": "bot", "scopes": ["admin"]}, 201)
    headers = bearer(made["key"])
    assert service.client.get("/v1/projects", headers=headers).status_code == 200
    assert service.client.delete(f"/v1/keys/{made['id']}").status_code == 204
    refused(service, "GET", "/projects", 401, "unknown or was revoked", headers=headers)
    refused(service, "POST", "/projects", 401, "unknown or was revoked", json={}, headers=headers)
    ended = next(key for key in service.get("/keys")["items"] if key["id"] == made["id"])["revoked_at"]
    assert ended is not None
    assert service.client.delete(f"/v1/keys/{made['id']}").status_code == 204
    again = next(key for key in service.get("/keys")["items"] if key["id"] == made["id"])["revoked_at"]
    assert again == ended


def test_a_key_may_revoke_itself(service: Service) -> None:
    made = service.post("/keys", {"name": "bot", "scopes": ["admin"]}, 201)
    headers = bearer(made["key"])
    assert service.client.delete(f"/v1/keys/{made['id']}", headers=headers).status_code == 204
    refused(service, "DELETE", f"/keys/{made['id']}", 401, headers=headers)


def test_a_secret_is_nowhere_in_the_database(service: Service, tmp_path: Path) -> None:
    secrets = [service.post("/keys", {"name": "bot"}, 201, **{"Idempotency-Key": "once"})["key"] for _ in range(2)]
    secrets.append(service.key("write"))
    assert len(set(secrets)) == 3
    assert all(re.fullmatch(r"bk_[\w-]{43}", secret) for secret in secrets)
    with service.services.database.read() as session:
        rows = [repr(row) for table in Base.metadata.tables.values() for row in session.execute(select(table))]
    assert len(rows) >= 4
    for secret in secrets:
        assert not any(secret in row or secret.removeprefix("bk_") in row for row in rows)
        for path in tmp_path.glob("test.db*"):
            assert secret.removeprefix("bk_").encode() not in path.read_bytes()


def test_a_key_bound_to_a_project_sees_nothing_else(service: Service) -> None:
    world = build_world(service)
    ranked = service.post(f"/pools/{world.pool_id}/rankings", {"k": 2}, 202)["ranking"]["id"]
    service.run_jobs()  # what is drawn of a ranking is there when it has ended
    opened = service.post(f"/projects/{world.project_id}/rounds", {"pool_id": world.pool_id, "k": 2}, 202)["round"][
        "id"
    ]
    timed = service.post(f"/projects/{world.project_id}/schedules", {"every_labels": 50}, 201)["id"]
    asked = service.post(f"/ensembles/{world.ensemble_id}/predictions", {"rows": ROWS}, 202)["prediction"]["id"]
    ids = {
        "project_id": world.project_id,
        "pool_id": world.pool_id,
        "ensemble_id": world.ensemble_id,
        "prediction_id": asked,
        "ranking_id": ranked,
        "round_id": opened,
        "schedule_id": timed,
        "backtest_id": service.post(*backtest(service, world.project_id), 202)["backtest"]["id"],
        "job_id": world.job_id,
    }
    begun = session(service)
    of_no_project = {
        "experiment_id": begun["experiment_id"],
        "session_id": begun["id"],
        "proposal_id": propose(service, begun["id"])["id"],
        "simulation_id": service.post(f"/experiments/{begun['experiment_id']}/simulations", {"rounds": 1})[
            "simulation"
        ]["id"],
    }
    stranger = bearer(service.key("admin", projects=[world.other_project_id]))
    owner = bearer(service.key("admin", projects=[world.project_id]))
    before = stored(service)
    walked = 0
    for method, path in NEEDED:
        found = re.search(r"\{(\w+)\}", path)
        if found is None or found[1] in ("key_id", "catalogue_id"):
            continue
        url = path.replace(found[0], {**ids, **of_no_project}[found[1]]).replace("{n}", "1")
        response = service.client.request(method, url, headers=stranger, json={} if method != "GET" else None)
        assert response.status_code == 404, (method, path, response.text)
        assert "that this key can see" in response.json()["detail"]
        if method == "GET" and not path.endswith("/events"):
            expected = 404 if found[1] in of_no_project else 200
            assert service.client.get(url, headers=owner).status_code == expected, path
        walked += 1
    of_nothing = [path for _, path in NEEDED if not re.search(r"\{(?!key_id|catalogue_id)\w+\}", path)]
    assert walked == len(NEEDED) - len(of_nothing) > 60
    assert stored(service) == before
    seen = service.client.get("/v1/projects", headers=stranger).json()["items"]
    assert [project["id"] for project in seen] == [world.other_project_id]


def test_a_key_bound_to_projects_makes_no_wider_key_and_no_project(service: Service) -> None:
    mine, theirs = classification(service), regression(service)
    headers = bearer(service.key("admin", projects=[mine]))
    for project_ids in (None, [theirs], [mine, theirs]):
        body = {"name": "wide", "scopes": ["read"], "project_ids": project_ids}
        refused(service, "POST", "/keys", 403, "only make keys for these projects", json=body, headers=headers)
    refused(service, "GET", "/keys", 403, "can't list all keys", headers=headers)
    body = {"name": "new", "task": {"kind": "regression"}, "input": {"shape": [2]}}
    refused(service, "POST", "/projects", 403, "bound to projects", json=body, headers=headers)
    everything = service.post("/keys", {"name": "everything", "scopes": ["read"]}, 201)
    refused(service, "DELETE", f"/keys/{everything['id']}", 404, headers=headers)
    body = {"name": "narrow", "scopes": ["read"], "project_ids": [mine]}
    made = service.client.post("/v1/keys", json=body, headers=headers)
    assert made.status_code == 201
    assert service.client.delete(f"/v1/keys/{made.json()['id']}", headers=headers).status_code == 204


@on_sqlite
def test_a_key_with_an_end_makes_none_that_outlasts_it(service: Service) -> None:
    end = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    with service.services.database.write() as session:
        _, secret = create_key(session, name="guest", scopes=["admin"], expires_at=end)
    advice = (f"this key ends at {end.isoformat()}", "give an `expires_at` that is not later than its own")
    for expires_at in (None, (end + timedelta(seconds=1)).isoformat()):
        body = {"name": "longer", "scopes": ["read"], "expires_at": expires_at}
        refused(service, "POST", "/keys", 403, *advice, json=body, headers=bearer(secret))
    for expires_at in (end, end - timedelta(minutes=1)):
        body = {"name": "shorter", "scopes": ["read"], "expires_at": expires_at.isoformat()}
        made = service.client.post("/v1/keys", json=body, headers=bearer(secret))
        assert made.status_code == 201, made.text
    assert service.post("/keys", {"name": "lasting"}, 201)["expires_at"] is None


@on_sqlite
def test_a_key_for_no_project_at_all_is_refused(service: Service) -> None:
    problem = refused(service, "POST", "/keys", 422, json={"name": "blind", "scopes": ["read"], "project_ids": []})
    assert pointers(problem) == ["/project_ids"]
    with pytest.raises(Malformed, match="would see nothing"), service.services.database.write() as session:
        create_key(session, name="blind", scopes=["read"], project_ids=[])


@on_sqlite
def test_a_key_that_names_no_scope_is_the_same_by_command_and_by_request(
    service: Service, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("app.settings.get_settings", lambda: service.services.settings)
    assert main(["key", "create", "--name", "by command"]) == 0
    service.post("/keys", {"name": "by request"}, 201)
    scopes = {key["name"]: key["scopes"] for key in service.get("/keys")["items"]}
    assert scopes["by command"] == scopes["by request"] == ["admin"]
    capsys.readouterr()
    assert main(["key", "create", "--name", "blind", "--project", ""]) == 78
    told = capsys.readouterr()
    assert (told.out, told.err) == (
        "",
        "bensemble: there is no project ''; a key that names it would see nothing\n",
    )


@on_sqlite
def test_every_label_event_knows_the_key_by_which_it_came(service: Service) -> None:
    project_id = classification(service)
    keys = [service.post("/keys", {"name": name}, 201) for name in ("owner", "annotator")]
    owner, annotator = (bearer(key["key"]) for key in keys)

    def post(path: str, body: dict[str, Any], headers: dict[str, str]) -> Any:
        answer = service.client.post(f"/v1{path}", json=body, headers=headers)
        assert answer.is_success, answer.text
        return answer.json()

    pool_id = post(f"/projects/{project_id}/pools", {"name": "p", "rows": ROWS, "labels": ["red", *[None] * 9]}, owner)[
        "id"
    ]
    empty = empty_pool(service, project_id)
    csv = {**owner, "Content-Type": "text/csv"}
    assert service.client.put(f"/v1/pools/{empty}/data", content="a,b,label\n1,2,blue\n", headers=csv).is_success
    service.run_jobs()
    said = {"pool_id": pool_id, "row": 1, "value": "red", "annotator": "somebody else"}
    told = post(f"/projects/{project_id}/labels", {"labels": [said]}, annotator)
    asked = service.post(
        f"/projects/{project_id}/rounds", {"pool_id": pool_id, "k": 1, "acquisition": {"name": "random"}}, 202
    )
    service.run_jobs()
    (item,) = service.post(f"/rounds/{asked['round']['id']}/next", {})["items"]
    post(f"/rounds/{asked['round']['id']}/labels", {"labels": [{"row": item["row"], "skip": True}]}, annotator)
    first, second = (key["id"] for key in keys)
    assert told["labels"][0]["key_id"] == second
    history = service.get(f"/projects/{project_id}/labels", history=True)["items"]
    assert [event["key_id"] for event in history] == [first, first, second, second]
    exported = service.client.get(f"/v1/projects/{project_id}/labels", params={"format": "csv", "history": True}).text
    head, *lines = (line.split(",") for line in exported.splitlines())
    assert [line[head.index("key_id")] for line in lines] == [first, first, second, second]


def test_the_rate_limit_is_a_bucket_for_each_key(database: Database, make_service: Any) -> None:
    service = make_service(database, rate_limit=0.2, rate_burst=3)
    service.client.headers.update(bearer(service.key("read")))
    other = bearer(service.key("read"))
    assert [service.client.get("/v1/methods").status_code for _ in range(3)] == [200, 200, 200]
    response = service.client.get("/v1/methods")
    assert (response.status_code, response.json()["title"]) == (429, "Too many requests")
    assert 1 <= int(response.headers["retry-after"]) <= 5
    assert "try again in" in response.json()["detail"]
    assert service.client.get("/v1/methods", headers=other).status_code == 200
    assert service.client.get("/healthz").status_code == 200


def test_a_rate_limited_post_does_nothing(database: Database, make_service: Any) -> None:
    service = make_service(database, rate_limit=0.01, rate_burst=2)
    project_id = classification(service)
    pool(service, project_id)
    refused(service, "POST", f"/projects/{project_id}/pools", 429, json={"name": "p", "rows": ROWS})


def test_the_bucket_fills_again(database: Database, make_service: Any) -> None:
    service = make_service(database, rate_limit=5.0, rate_burst=1)
    codes = [service.client.get("/v1/projects").status_code for _ in range(100)]
    time.sleep(0.3)
    codes.append(service.client.get("/v1/projects").status_code)
    assert codes[0] == 200
    assert codes[-1] == 200
    assert 429 in codes
    assert set(codes) == {200, 429}


def test_with_auth_switched_off_everybody_may_do_everything(database: Database, make_service: Any) -> None:
    service = make_service(database, auth=False)
    del service.client.headers["Authorization"]
    project_id = classification(service)
    pool_id = pool(service, project_id)
    empty_pool(service, project_id)
    said = service.post(f"/projects/{project_id}/labels", {"labels": [{"pool_id": pool_id, "row": 0, "value": "red"}]})
    assert said["labels"][0]["annotator"] == "anonymous"
    assert said["labels"][0]["key_id"] is None
    headers = {"Authorization": "Bearer nonsense", "Idempotency-Key": "a"}
    first = service.client.post(f"/v1/projects/{project_id}/pools", json={"name": "p"}, headers=headers)
    second = service.client.post(f"/v1/projects/{project_id}/pools", json={"name": "p"}, headers=headers)
    assert (first.status_code, second.json()) == (201, first.json())
