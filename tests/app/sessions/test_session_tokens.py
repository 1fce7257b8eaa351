"""A session's token is for that session, in a participant's browser, and for nothing else."""

from collections.abc import Callable

import httpx
from sqlalchemy import select

from app.db.engine import Database
from app.db.tables import Base, DesignSession
from tests.app.conftest import Service
from tests.app.designing import answer, session
from tests.app.hammering import refused

PAGE = "https://lab.example"


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_a_token_proposes_observes_and_reads_its_own_session(service: Service) -> None:
    made = session(service)
    client = httpx.Client(base_url=service.client.base_url, headers=bearer(made["token"]), timeout=60)
    path = f"/v1/sessions/{made['id']}"
    proposal = client.post(f"{path}/proposals", json={}).json()
    body = {"proposal_id": proposal["id"], "outcome": answer(proposal["design"])}
    learnt = client.post(f"{path}/observations?next=true", json=body)
    assert (learnt.status_code, learnt.json()["n"]) == (201, 1)
    following = learnt.json()["next"]["id"]
    assert client.post(f"/v1/proposals/{following}/abandon", json={"reason": "tired"}).status_code == 200
    for what in ("", "/posterior", "/eig", "/stop", "/trials", "/proposals"):
        assert client.get(f"{path}{what}").status_code == 200, what
    client.close()


def test_a_token_can_do_nothing_else(service: Service) -> None:
    made = session(service)
    other = session(service, made["experiment_id"])
    project = service.project()
    headers = bearer(made["token"])
    for method, path, status in (
        ("GET", f"/sessions/{other['id']}", 404),
        ("POST", f"/sessions/{other['id']}/proposals", 404),
        ("GET", f"/experiments/{made['experiment_id']}", 404),
        ("GET", f"/projects/{project['id']}", 404),
        ("POST", f"/experiments/{made['experiment_id']}/sessions", 403),
        ("POST", "/experiments", 403),
        ("GET", "/experiments", 403),
        ("GET", "/projects", 403),
        ("GET", "/methods", 403),
        ("GET", "/catalog", 403),
        ("GET", "/keys", 403),
        ("POST", "/models/validate", 403),
        ("DELETE", f"/sessions/{made['id']}", 403),
        ("PATCH", f"/sessions/{made['id']}", 403),
        ("DELETE", f"/sessions/{other['id']}/observations/1", 404),
    ):
        json = {"json": {}} if method in ("POST", "PATCH") else {}
        refused(service, method, path, status, headers=headers, **json)


def test_a_token_takes_its_last_outcome_back_and_no_other(service: Service) -> None:
    made = session(service)
    path = f"/sessions/{made['id']}"
    for xi in (3, 5, 7):
        service.post(f"{path}/observations", {"design": {"xi": xi}, "outcome": {"y": 1}}, 201)
    headers = bearer(made["token"])
    refused(service, "DELETE", f"{path}/observations/1", 403, "last observation only, which is 3", headers=headers)
    for n in (3, 2):  # each was the last one when it was taken back
        assert service.client.delete(f"/v1{path}/observations/{n}", headers=headers).status_code == 204
    assert [each["design"] for each in service.get(f"{path}/trials")["items"]] == [{"xi": 3}]
    refused(service, "DELETE", f"{path}/observations/3", 404, "no observation 3", headers=headers)
    service.client.patch(f"/v1{path}", json={"closed": True}).raise_for_status()
    refused(service, "DELETE", f"{path}/observations/1", 409, "closed", headers=headers)


def test_a_token_sees_the_job_of_its_own_proposal(database: Database, make_service: Callable[..., Service]) -> None:
    service = make_service(database, max_design_work=1.0)
    made, other = session(service), session(service)
    asked = service.client.post(f"/v1/sessions/{made['id']}/proposals", json={}, headers=bearer(made["token"]))
    path = f"/v1/jobs/{asked.json()['job']['id']}"
    assert asked.status_code == 202
    assert service.client.get(path, headers=bearer(made["token"])).status_code == 200
    refused(service, "GET", path.removeprefix("/v1"), 404, headers=bearer(other["token"]))
    refused(service, "POST", f"{path.removeprefix('/v1')}/cancel", 403, headers=bearer(made["token"]))


def test_a_token_is_not_kept_and_ends_with_its_session(service: Service) -> None:
    made = session(service)
    with service.services.database.read() as reading:
        for table in Base.metadata.sorted_tables:
            assert made["token"] not in str(reading.execute(select(table)).all())
        assert len(reading.scalars(select(DesignSession.token_digest)).one()) == 64
    assert service.client.delete(f"/v1/sessions/{made['id']}").status_code == 204
    refused(service, "GET", f"/sessions/{made['id']}", 401, "token is unknown", headers=bearer(made["token"]))


def test_a_new_token_replaces_the_one_before(service: Service) -> None:
    made = session(service)
    other = session(service, made["experiment_id"])
    path = f"/sessions/{made['id']}"
    sent = {"Idempotency-Key": "k"}
    first = service.post(f"{path}/token", None, 201, **sent)
    assert first["session_id"] == made["id"]
    assert first["token"].startswith("bs_")
    assert service.post(f"{path}/token", None, 201, **sent) == {**first, "token": None}
    refused(service, "GET", path, 401, "revoked or replaced", headers=bearer(made["token"]))
    for token in (first["token"], other["token"]):
        refused(service, "POST", f"{path}/token", 403, "session's token can", headers=bearer(token))
    assert service.client.get(f"/v1{path}", headers=bearer(first["token"])).status_code == 200
    with service.services.database.read() as reading:
        for table in Base.metadata.sorted_tables:
            assert first["token"] not in str(reading.execute(select(table)).all())


def test_a_revoked_token_is_refused_and_the_session_goes_on(service: Service) -> None:
    made = session(service)
    path = f"/sessions/{made['id']}"
    refused(service, "DELETE", f"{path}/token", 403, "API key with scope 'write'", headers=bearer(made["token"]))
    assert service.client.delete(f"/v1{path}/token").status_code == 204
    refused(service, "POST", f"{path}/proposals", 401, "revoked", json={}, headers=bearer(made["token"]))
    assert service.post(f"{path}/proposals", {}, 201)["design"] == {"xi": 7}
    token = service.post(f"{path}/token", None, 201)["token"]
    assert service.client.post(f"/v1{path}/proposals", json={}, headers=bearer(token)).status_code == 201


def test_a_token_of_a_closed_session_can_only_read(service: Service) -> None:
    made = session(service)
    headers = bearer(made["token"])
    path = f"/sessions/{made['id']}"
    pending = service.post(f"{path}/proposals", {"client_id": "a"}, 201)
    service.client.patch(f"/v1{path}", json={"closed": True}).raise_for_status()
    for where, body in (
        (f"{path}/proposals", {"client_id": "a"}),
        (f"{path}/observations", {"proposal_id": pending["id"], "outcome": {"y": 1}}),
        (f"/proposals/{pending['id']}/abandon", {}),
    ):
        refused(service, "POST", where, 409, "is closed", json=body, headers=headers)
    assert service.client.get(f"/v1{path}/posterior", headers=headers).status_code == 200


def test_a_session_is_opened_once_and_its_replay_hides_the_token(service: Service) -> None:
    experiment_id = session(service)["experiment_id"]
    path = f"/v1/experiments/{experiment_id}/sessions"
    first = service.client.post(path, json={}, headers={"Idempotency-Key": "k"})
    again = service.client.post(path, json={}, headers={"Idempotency-Key": "k"})
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.json() == {**first.json(), "token": None}
    assert again.headers["location"] == first.headers["location"]
    with service.services.database.read() as reading:
        for table in Base.metadata.sorted_tables:
            assert first.json()["token"] not in str(reading.execute(select(table)).all())


def test_only_pages_of_the_list_may_call_from_a_browser(
    database: Database, make_service: Callable[..., Service]
) -> None:
    service = make_service(database, cors_origins=[PAGE])
    made = session(service)
    path = f"/v1/sessions/{made['id']}/proposals"
    asks = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type,prefer",
    }
    allowed = service.client.options(path, headers={"Origin": PAGE, **asks})
    assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, PAGE)
    assert "authorization" in allowed.headers["access-control-allow-headers"].lower()
    other = service.client.options(path, headers={"Origin": "https://evil.example", **asks})
    assert "access-control-allow-origin" not in other.headers
    answered = service.client.post(path, json={}, headers={"Origin": PAGE, **bearer(made["token"])})
    assert (answered.status_code, answered.headers["access-control-allow-origin"]) == (201, PAGE)
    assert "Preference-Applied" in answered.headers["access-control-expose-headers"]
    problem = service.client.post(path, json={"count": 0}, headers={"Origin": PAGE})
    assert (problem.status_code, problem.headers["access-control-allow-origin"]) == (422, PAGE)


def test_without_the_setting_no_page_may(service: Service) -> None:
    answered = service.client.get("/v1/experiments", headers={"Origin": PAGE})
    assert "access-control-allow-origin" not in answered.headers
