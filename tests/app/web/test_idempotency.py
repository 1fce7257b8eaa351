"""A POST with an Idempotency-Key happens once, however often it is sent."""

import threading
from collections.abc import Callable
from typing import Any

import httpx
from sqlalchemy import func, select

from app.db.tables import Label, StoredAnswer
from tests.app.conftest import Service
from tests.app.designing import DIGIT_SPAN, propose, session
from tests.app.hammering import ROWS, SMALL, World, backtest, build_world, classification, pool, refused, routes, stored

AGAIN = "Idempotent-Replayed"
PROJECT = {"name": "p", "task": {"kind": "classification", "classes": ["red", "blue"]}, **SMALL}
SECRETIVE = (
    "/v1/keys",
    "/v1/experiments/{experiment_id}/sessions",
    "/v1/sessions/{session_id}/token",
)  # test_auth.py and test_session_tokens.py have these
Send = Callable[[], httpx.Response]


def send(service: Service, path: str, body: Any, key: str, secret: str | None = None) -> httpx.Response:
    headers = {"Idempotency-Key": key, **({"Authorization": f"Bearer {secret}"} if secret else {})}
    sent: dict[str, Any] = {"content": body} if isinstance(body, bytes) else {"json": body}
    return service.client.post(f"/v1{path}", **sent, headers=headers)


def requests(service: Service, world: World) -> dict[str, tuple[str, Any]]:
    """For every POST but that of keys, a path and a body that succeed in this order."""
    project, pool_path = f"/projects/{world.project_id}", f"/pools/{world.pool_id}"
    label = {"pool_id": world.pool_id, "row": 9, "value": "red"}
    opened = service.post(f"{project}/rounds", {"pool_id": world.pool_id, "k": 2}, 202)["round"]["id"]
    service.run_jobs()
    taken = service.post(f"/rounds/{opened}/next", {"annotator": "ann"})["items"][0]["row"]
    ranked = service.post(f"{pool_path}/rankings", {"k": 1}, 202)["ranking"]["id"]
    service.run_jobs()
    cancelled = service.post(f"{pool_path}/rankings", {"k": 1}, 202)["job"]["id"]
    service.post(f"/jobs/{cancelled}/cancel")
    waiting = service.post(f"{pool_path}/rankings", {"k": 1}, 202)["job"]["id"]
    begun = session(service)
    given_up, of_experiment = propose(service, begun["id"])["id"], f"/experiments/{begun['experiment_id']}"
    return {
        "/v1/projects": ("/projects", PROJECT),
        "/v1/projects/{project_id}/current": (f"{project}/current", {"ensemble_id": world.ensemble_id}),
        "/v1/projects/{project_id}/pools": (f"{project}/pools", {"name": "p", "rows": ROWS, "labels": ["red"] * 10}),
        "/v1/projects/{project_id}/labels": (f"{project}/labels", {"labels": [label]}),
        "/v1/projects/{project_id}/ensembles": (f"{project}/ensembles", {"seed": 3}),
        "/v1/ensembles/{ensemble_id}/predictions": (f"/ensembles/{world.ensemble_id}/predictions", {"rows": ROWS}),
        "/v1/pools/{pool_id}/rankings": (f"{pool_path}/rankings", {"k": 1}),
        "/v1/rankings/{ranking_id}/replay": (f"/rankings/{ranked}/replay", None),
        "/v1/projects/{project_id}/rounds": (f"{project}/rounds", {"pool_id": world.pool_id, "k": 1}),
        "/v1/projects/{project_id}/schedules": (f"{project}/schedules", {"cron": "0 3 * * *"}),
        "/v1/projects/{project_id}/backtests": backtest(service, world.project_id),
        "/v1/rounds/{round_id}/next": (f"/rounds/{opened}/next", {"annotator": "ann", "count": 2}),
        "/v1/rounds/{round_id}/release": (f"/rounds/{opened}/release", {"annotator": "ann"}),
        "/v1/rounds/{round_id}/labels": (f"/rounds/{opened}/labels", {"labels": [{"row": taken, "value": "red"}]}),
        "/v1/rounds/{round_id}/close": (f"/rounds/{opened}/close", None),
        "/v1/models/validate": ("/models/validate", DIGIT_SPAN),
        "/v1/experiments": ("/experiments", DIGIT_SPAN),
        "/v1/experiments/{experiment_id}/simulations": (f"{of_experiment}/simulations", {"rounds": 2}),
        "/v1/sessions/{session_id}/proposals": (f"/sessions/{begun['id']}/proposals", {}),
        "/v1/proposals/{proposal_id}/abandon": (f"/proposals/{given_up}/abandon", {}),
        "/v1/sessions/{session_id}/observations": (
            f"/sessions/{begun['id']}/observations?next=true",
            {"design": {"xi": 5}, "outcome": {"y": 1}},
        ),
        "/v1/jobs/{job_id}/cancel": (f"/jobs/{waiting}/cancel", None),
        "/v1/jobs/{job_id}/retry": (f"/jobs/{cancelled}/retry", None),
        "/v1/examples": ("/examples", {"name": "digits"}),
        "/v1/files/inspect": ("/files/inspect?name=a.csv", b"a,b\n1,2\n"),
    }


def test_every_post_is_replayed(service: Service) -> None:
    wanted = requests(service, build_world(service))
    assert {path for method, path in routes() if method == "POST"} == {*wanted, *SECRETIVE}
    for path, body in wanted.values():
        first = send(service, path, body, f"key of {path}")
        assert first.is_success, (path, first.text)
        assert AGAIN not in first.headers
        between = stored(service)
        second = send(service, path, body, f"key of {path}")
        assert (second.status_code, second.headers[AGAIN]) == (first.status_code, "true"), path
        assert second.content == first.content
        for name in ("content-type", "location"):
            assert second.headers.get(name) == first.headers.get(name)
        assert stored(service) == between
        refused(
            service,
            "POST",
            path,
            409,
            "take a new key",
            json={"other": 1},
            headers={"Idempotency-Key": f"key of {path}"},
        )


def test_the_same_key_for_another_path_is_refused(service: Service) -> None:
    mine, theirs = classification(service), classification(service)
    assert send(service, f"/projects/{mine}/pools", {"name": "p"}, "k").status_code == 201
    refused(service, "POST", f"/projects/{theirs}/pools", 409, json={"name": "p"}, headers={"Idempotency-Key": "k"})


def test_a_request_that_failed_can_be_sent_again(service: Service) -> None:
    project_id = classification(service)
    path = f"/projects/{project_id}/ensembles"
    headers = {"Idempotency-Key": "train"}
    refused(service, "POST", path, 409, "nothing to train on", json={}, headers=headers)
    refused(service, "POST", path, 422, json={"seed": -1}, headers=headers)
    refused(service, "POST", path, 422, json={"n_members": 1001}, headers=headers)
    pool(service, project_id, labels=["red", "blue"] * 5)
    assert send(service, path, {}, "train").status_code == 202
    assert send(service, path, {}, "train").headers[AGAIN] == "true"


def test_keys_of_different_callers_do_not_meet(service: Service) -> None:
    secrets = [service.key("admin"), service.key("admin")]
    answers = [send(service, "/projects", PROJECT, "same", secret) for secret in secrets for _ in range(2)]
    assert [answer.headers.get(AGAIN) for answer in answers] == [None, "true", None, "true"]
    assert len({answer.json()["id"] for answer in answers}) == 2


def test_the_answer_with_a_secret_is_never_stored(service: Service) -> None:
    send(service, "/projects", PROJECT, "k")
    before = stored(service)[0]["replay"]
    answers = [send(service, "/keys", {"name": "bot"}, "k") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json()["key"] != answers[1].json()["key"]
    assert stored(service)[0]["replay"] == before
    with service.services.database.read() as session:
        assert not any("bk_" in body for body in session.scalars(select(StoredAnswer.body)))


def test_a_key_that_is_no_key_is_refused(service: Service) -> None:
    for key in ("", "x" * 256):
        refused(service, "POST", "/projects", 422, "it takes 1 to 255", json=PROJECT, headers={"Idempotency-Key": key})
    for key in ("x" * 255, "é", "a b", "'; --"):
        headers = [(b"Idempotency-Key", key.encode())]
        first = service.client.post("/v1/projects", json=PROJECT, headers=headers)
        second = service.client.post("/v1/projects", json=PROJECT, headers=headers)
        assert (first.status_code, second.json()) == (201, first.json())


def test_other_methods_take_no_notice(service: Service) -> None:
    project_id = classification(service)
    for _ in range(2):
        response = service.client.get(f"/v1/projects/{project_id}", headers={"Idempotency-Key": "k"})
        assert (response.status_code, AGAIN in response.headers) == (200, False)
    assert stored(service)[0]["replay"] == 0


def at_once(n: int, one: Send) -> list[httpx.Response]:
    gate = threading.Barrier(n)
    answers: list[httpx.Response] = []

    def work() -> None:
        gate.wait()
        answers.append(one())

    threads = [threading.Thread(target=work) for _ in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def test_of_many_at_once_one_takes_effect_and_all_get_its_answer(service: Service) -> None:
    project_id = classification(service)
    pool_id = pool(service, project_id)
    wanted: list[tuple[str, Any, str]] = [
        ("/projects", PROJECT, "project"),
        (f"/projects/{project_id}/labels", {"labels": [{"pool_id": pool_id, "row": 1, "value": "red"}]}, "label"),
        (f"/projects/{project_id}/pools", {"name": "p", "rows": ROWS}, "pool"),
        (f"/projects/{project_id}/ensembles", {}, "ensemble"),
        (f"/projects/{project_id}/schedules", {"cron": "0 3 * * *"}, "schedule"),
    ]
    for path, body, table in wanted:
        before = stored(service)[0]
        answers = at_once(6, lambda path=path, body=body: send(service, path, body, f"key of {path}"))  # type: ignore[misc]
        assert {answer.status_code for answer in answers} <= {201, 202}, [answer.text for answer in answers]
        assert len({answer.content for answer in answers}) == 1, path
        assert sum(AGAIN not in answer.headers for answer in answers) == 1
        after = stored(service)[0]
        assert (after[table] - before[table], after["replay"] - before["replay"]) == (1, 1)


def test_of_many_at_once_the_last_label_of_a_round_is_taken_once(service: Service) -> None:
    project_id = classification(service)
    pool_id = pool(service, project_id, labels=["red", "blue", *[None] * 8])
    body = {"pool_id": pool_id, "k": 1, "acquisition": {"name": "random"}}
    opened = service.post(f"/projects/{project_id}/rounds", body, 202)["round"]["id"]
    service.run_jobs()
    row = service.post(f"/rounds/{opened}/next", {})["items"][0]["row"]
    said = {"labels": [{"row": row, "value": "red"}]}
    answers = at_once(6, lambda: send(service, f"/rounds/{opened}/labels", said, "last"))
    assert [answer.status_code for answer in answers] == [201] * 6, [answer.text for answer in answers]
    assert len({answer.content for answer in answers}) == 1
    assert service.get(f"/rounds/{opened}")["status"] == "complete"
    with service.services.database.read() as session:
        n = session.execute(select(func.count()).where(Label.pool_id == pool_id, Label.row == row)).scalar_one()
    assert n == 1
