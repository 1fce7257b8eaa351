"""The service in one process: the API through a test client, the worker's handlers run on demand."""

import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import uvicorn
from sklearn.datasets import load_digits

from app.db.engine import Database
from app.main import create_app
from app.queue.handlers import HANDLERS, QUEUES
from app.queue.inline import run_due
from app.services import Services, _opened, open_objects
from app.settings import Settings
from app.web.auth import Scope, create_key


@dataclass
class Service:
    client: httpx.Client
    services: Services

    def key(self, *scopes: Scope, projects: list[str] | None = None, name: str = "tester") -> str:
        with self.services.database.write() as session:
            return create_key(session, name=name, scopes=scopes or ("admin",), project_ids=projects)[1]

    def run_jobs(self) -> list[str]:
        """What a worker would do until nothing is due; job ids in the order in which they ran."""
        return run_due(self.services.database, self.services.settings, list(QUEUES), HANDLERS)

    def post(self, path: str, body: Any = None, status: int | None = None, **headers: str) -> Any:
        response = self.client.post(f"/v1{path}", json=body, headers=headers)
        return self._checked(response, status if status is not None else range(200, 300))

    def get(self, path: str, status: int = 200, **params: Any) -> Any:
        return self._checked(self.client.get(f"/v1{path}", params=params or None), status)

    def _checked(self, response: Any, status: Any) -> Any:
        expected = status if isinstance(status, range) else (status,)
        assert response.status_code in expected, f"{response.status_code}: {response.text}"
        if response.status_code >= 400:
            assert response.headers["content-type"] == "application/problem+json"
            assert response.json()["status"] == response.status_code
        return response.json() if response.content else None

    def project(self, **changes: Any) -> dict[str, Any]:
        body = {
            "name": "digits",
            "task": {"kind": "classification", "classes": [str(i) for i in range(10)]},
            "input": {"shape": [64]},
            "model": {"name": "mlp", "hidden": [32]},
            "posterior": {"name": "deep_ensemble", "members": 3, "epochs": 20},
        }
        return self.post("/projects", {**body, **changes}, 201)


@pytest.fixture
def make_service(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    opened: list[tuple[uvicorn.Server, threading.Thread, httpx.Client]] = []

    def make(database: Database, **changes: Any) -> Service:
        settings = Settings(
            data_dir=tmp_path,
            database_url=database.engine.url.render_as_string(hide_password=False),
            **{"design_seconds": 60.0, **changes},  # a busy machine must not turn proposals into jobs
        )
        services = Services(settings=settings, database=database, objects=open_objects(settings))
        listener = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(create_app(settings, services), log_config=None, lifespan="on"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        service = Service(
            client=httpx.Client(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=60),
            services=services,
        )
        opened.append((server, thread, service.client))
        service.client.headers["Authorization"] = f"Bearer {service.key()}"
        return service

    yield make
    for server, thread, client in opened:
        client.close()
        server.should_exit = True
        thread.join()
    _opened.clear()  # jobs run in this process, and would keep the files of every test's pools open


@pytest.fixture
def service(database: Database, make_service: Callable[..., Service]) -> Service:
    """On SQLite and on PostgreSQL."""
    return make_service(database)


@pytest.fixture(scope="session")
def digits() -> tuple[np.ndarray[Any, Any], list[str]]:
    x, y = load_digits(return_X_y=True)
    return (x / 16.0).astype(np.float32), [str(label) for label in y]
