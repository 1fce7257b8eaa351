"""What the tests of bad requests share: a small world to attack, and a look at all that is stored."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import httpx
from fastapi.routing import APIRoute
from sqlalchemy import func, select

from app.db.tables import Base
from app.main import ROUTERS, create_app
from app.settings import Settings
from tests.app.conftest import Service

SMALL: dict[str, Any] = {
    "input": {"shape": [2]},
    "model": {"name": "mlp", "hidden": [4]},
    "posterior": {"name": "deep_ensemble", "members": 2, "epochs": 2},
}
ROWS = [[i / 10, 1.0 - i / 10] for i in range(10)]


@dataclass(frozen=True, kw_only=True)
class World:
    """Two projects of one person; the first has a pool of ten rows, two of them labelled, and an ensemble."""

    project_id: str
    pool_id: str
    empty_pool_id: str
    evaluation_id: str
    ensemble_id: str
    job_id: str
    other_project_id: str
    other_pool_id: str


def classification(service: Service, **changes: Any) -> str:
    body = {"name": "colours", "task": {"kind": "classification", "classes": ["red", "blue"]}, **SMALL, **changes}
    return str(service.post("/projects", body, 201)["id"])


def regression(service: Service, **changes: Any) -> str:
    return str(
        service.post("/projects", {"name": "heat", "task": {"kind": "regression"}, **SMALL, **changes}, 201)["id"]
    )


def pool(service: Service, project_id: str, **changes: Any) -> str:
    body = {"name": "rows", "rows": ROWS, **changes}
    return str(service.post(f"/projects/{project_id}/pools", body, 201)["id"])


def empty_pool(service: Service, project_id: str, **changes: Any) -> str:
    return str(service.post(f"/projects/{project_id}/pools", {"name": "file", **changes}, 201)["id"])


def build_world(service: Service) -> World:
    project_id = classification(service)
    pool_id = pool(
        service,
        project_id,
        keys=[f"k{i}" for i in range(10)],
        labels=["red", "blue", *[None] * 8],
        payloads=[*range(10)],
    )
    evaluation_id = pool(service, project_id, purpose="evaluation", labels=["red", "blue"] * 5)
    trained = service.post(f"/projects/{project_id}/ensembles", {}, 202)
    service.run_jobs()
    other_project_id = regression(service)
    return World(
        project_id=project_id,
        pool_id=pool_id,
        empty_pool_id=empty_pool(service, project_id),
        evaluation_id=evaluation_id,
        ensemble_id=trained["ensemble"]["id"],
        job_id=trained["job"]["id"],
        other_project_id=other_project_id,
        other_pool_id=pool(service, other_project_id),
    )


def backtest(service: Service, project_id: str, **changes: Any) -> tuple[str, dict[str, Any]]:
    """Path and body of a short backtest, on a pool of its own."""
    rows = [[i / 24, (i % 5) / 5] for i in range(24)]
    own = pool(service, project_id, purpose="evaluation", rows=rows, labels=["red", "blue"] * 12)
    body = {"pool_id": own, "k": 1, "rounds": 1, "seeds": 2, "strategies": []}
    return f"/projects/{project_id}/backtests", {**body, **changes}


def files(service: Service) -> list[str]:
    """Every file of the storage, half-written ones too."""
    root = Path(service.services.settings.storage_url.removeprefix("file://"))
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def stored(service: Service) -> tuple[dict[str, int], list[str]]:
    """How many rows each table has, and which files there are."""
    with service.services.database.read() as session:
        tables = Base.metadata.tables.items()
        counts = select(*(select(func.count()).select_from(t).scalar_subquery().label(name) for name, t in tables))
        return dict(session.execute(counts).one()._mapping), files(service)


@lru_cache
def documented() -> dict[str, Any]:
    return dict(create_app(Settings()).openapi()["paths"])


def is_documented(service: Service, response: httpx.Response) -> bool:
    """Whether the OpenAPI names this status for the operation that answered."""
    parts = response.request.url.raw_path.decode().partition("?")[0].split("/")
    for path, operations in documented().items():
        named = path.split("/")
        if len(named) == len(parts) and all(n == p or n.startswith("{") for n, p in zip(named, parts, strict=True)):
            return str(response.status_code) in operations[response.request.method.lower()]["responses"]
    return False


def refused(service: Service, method: str, path: str, status: int, *says: str, **request: Any) -> dict[str, Any]:
    """Send it; it must come to nothing but a documented problem whose detail has all of these words."""
    before = stored(service)
    response = service.client.request(method, f"/v1{path}", **request)
    problem = response.json()
    assert response.status_code == status, f"{response.status_code} instead of {status}: {response.text[:500]}"
    assert response.headers["content-type"] == "application/problem+json"
    assert (problem["status"], problem["type"]) == (status, "about:blank")
    for words in says:
        assert words in problem["detail"], f"{words!r} is not in {problem['detail']!r}"
    assert is_documented(service, response), f"{method} {path} does not document {status}"
    assert stored(service) == before
    return dict(problem)


def pointers(problem: dict[str, Any]) -> list[str]:
    return [error["pointer"] for error in problem["errors"]]


def routes() -> set[tuple[str, str]]:
    """Method and path of every route under /v1, in the schema or not."""
    return {
        (method, route.path)
        for router in ROUTERS
        for route in router.routes
        if isinstance(route, APIRoute) and route.path.startswith("/v1/")
        for method in route.methods
    }
