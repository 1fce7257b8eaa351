"""Who am I: the page and clients ask it to know what they may offer."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import bensemble_core as bc
from app.db.engine import Database
from tests.app.conftest import Service
from tests.app.designing import experiment
from tests.app.hammering import classification
from tests.app.working import on_sqlite


def me(service: Service, secret: str, status: int = 200) -> dict[str, Any]:
    answer = service.client.get("/v1/me", headers={"Authorization": f"Bearer {secret}"})
    assert answer.status_code == status, answer.text
    return dict(answer.json())


def test_a_key_of_any_scope_is_told_its_name_its_scopes_and_its_projects(service: Service) -> None:
    project_id = classification(service)
    assert me(service, service.key("admin")) == {
        "name": "tester",
        "scopes": ["admin"],
        "project_ids": None,
        "session_id": None,
        "expires_at": None,
        "version": bc.__version__,
    }
    narrow = me(service, service.key("read", "label", projects=[project_id], name="Ann"))
    assert (narrow["name"], narrow["scopes"], narrow["project_ids"]) == ("Ann", ["read", "label"], [project_id])


@on_sqlite
def test_a_key_with_an_end_is_told_when(service: Service) -> None:
    end = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    made = service.post("/keys", {"name": "short", "expires_at": end.isoformat()}, 201)
    assert datetime.fromisoformat(me(service, made["key"])["expires_at"]) == end


@on_sqlite
def test_a_sessions_token_is_told_its_session_and_sees_no_project(service: Service) -> None:
    opened = service.post(f"/experiments/{experiment(service)}/sessions", {"name": "Bob"}, 201)
    assert me(service, opened["token"]) == {
        "name": "Bob",
        "scopes": ["label"],
        "project_ids": [],
        "session_id": opened["id"],
        "expires_at": None,
        "version": bc.__version__,
    }


@on_sqlite
def test_nobody_is_told_nothing(service: Service) -> None:
    for secret in ("bk_unknown", "bs_unknown"):
        assert me(service, secret, 401)["title"] == "A valid API key is needed"
    assert service.client.get("/v1/me", headers={"Authorization": ""}).status_code == 401


@on_sqlite
def test_without_keys_everybody_is_anonymous(database: Database, make_service: Callable[..., Service]) -> None:
    service = make_service(database, auth=False)
    answer = service.client.get("/v1/me", headers={"Authorization": ""}).json()
    assert (answer["name"], answer["scopes"], answer["project_ids"]) == ("anonymous", ["admin"], None)
