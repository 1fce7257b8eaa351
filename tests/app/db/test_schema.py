"""A database whose schema is not the code's: one that nobody has migrated yet, an older one, a newer one."""

import asyncio
import logging
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from alembic import command
from sqlalchemy import text

from app import cli
from app.db.engine import Database
from app.db.migrate import NewerSchema, _config, _revisions, migrate, schema_problem
from app.main import create_app
from app.queue import worker as worker_module
from app.services import Services, open_objects
from app.settings import Settings, get_settings
from tests.app.upping import clean_environment
from tests.app.working import add, ended, on_sqlite, quick_settings, wait_for, working

SENTENCE = "the database is not migrated yet; run `bensemble migrate`"


@pytest.fixture
def unmigrated(database_url: str) -> Iterator[Database]:
    opened = Database.connect(database_url)
    yield opened
    opened.dispose()


def make_newer(database: Database) -> None:
    migrate(database)
    with database.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))


def test_what_is_wrong_with_a_schema_is_one_sentence(unmigrated: Database) -> None:
    problem = schema_problem(unmigrated)
    assert problem is not None
    assert problem.detail == SENTENCE
    with unmigrated.engine.begin() as connection:
        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, "0002")
    newest = _revisions()[0]
    problem = schema_problem(unmigrated)
    assert problem is not None
    assert problem.detail == f"the database has schema 0002, this version needs {newest}; run `bensemble migrate`"
    migrate(unmigrated)
    assert schema_problem(unmigrated) is None
    make_newer(unmigrated)
    problem = schema_problem(unmigrated)
    assert isinstance(problem, NewerSchema)
    assert problem.detail.startswith(f"the database has schema 9999, which is newer than {newest}, ")
    with pytest.raises(NewerSchema):
        migrate(unmigrated)


@on_sqlite
def test_an_api_that_starts_before_the_migration_says_so_and_then_serves(unmigrated: Database, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, database_url=unmigrated.engine.url.render_as_string())
    app = create_app(settings)
    app.state.services = Services(settings=settings, database=unmigrated, objects=open_objects(settings))

    async def ask() -> dict[str, httpx.Response]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://lab") as client:
            posted = await client.post("/v1/projects", json={"name": "x"}, headers={"Authorization": "Bearer bk_x"})
            paths = ("/v1/projects", "/metrics", "/readyz", "/healthz", "/docs")
            return {"POST": posted, **{path: await client.get(path) for path in paths}}

    answers = asyncio.run(ask())
    assert {name: answer.status_code for name, answer in answers.items()} == {
        **dict.fromkeys(("POST", "/v1/projects", "/metrics", "/readyz"), 503),
        **dict.fromkeys(("/healthz", "/docs"), 200),
    }
    refused: list[Any] = [answer for answer in answers.values() if answer.status_code == 503]
    assert {answer.headers["content-type"] for answer in refused} == {"application/problem+json"}
    assert {answer.json()["detail"] for answer in refused} == {SENTENCE}
    assert answers["POST"].headers["connection"] == "close"

    migrate(unmigrated)
    statuses = {name: answer.status_code for name, answer in asyncio.run(ask()).items()}
    assert statuses == {"POST": 401, "/v1/projects": 401, **dict.fromkeys(list(statuses)[2:], 200)}


@on_sqlite
def test_a_worker_waits_for_the_migration_says_so_once_and_goes_on(
    unmigrated: Database, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    looks: list[Any] = []

    def look(database: Database) -> Any:
        looks.append(schema_problem(database))
        return looks[-1]

    monkeypatch.setattr(worker_module, "schema_problem", look)
    ticks: list[int] = []
    settings = quick_settings(database_url, tmp_path)
    with working(settings, tick=lambda _: ticks.append(1)), caplog.at_level(logging.WARNING):
        wait_for(lambda: len(looks) >= 5)
        assert [record.getMessage() for record in caplog.records] == [f"waiting: {SENTENCE}"]
        assert ticks == []
        migrate(unmigrated)
        assert ended(unmigrated, add(unmigrated, "return_nothing")).status == "succeeded"
        wait_for(lambda: ticks)
    assert [problem is None for problem in looks].index(True) == len(looks) - 1, "it found its schema and looked again"


@on_sqlite
def test_a_waiting_worker_reminds_again_and_stops_when_it_is_told_to(
    unmigrated: Database, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    assert worker_module.REMIND_SECONDS == 60
    monkeypatch.setattr(worker_module, "REMIND_SECONDS", 0.1)
    with working(quick_settings(database_url, tmp_path)), caplog.at_level(logging.WARNING):
        wait_for(lambda: len(caplog.records) == 3)


@pytest.mark.parametrize("arguments", ["up", "api", "migrate", "key create --name ada"])
def test_a_newer_schema_ends_every_command_with_one_sentence(
    arguments: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, value in clean_environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("app.web.serving.logs.configure_logs", lambda *_: None)
    get_settings.cache_clear()
    try:
        database = Database.connect(get_settings().database_url)
        make_newer(database)
        database.dispose()
        assert cli.main(arguments.split()) == 78
    finally:
        get_settings.cache_clear()
    assert re.fullmatch(r"bensemble: the database has schema 9999, which is newer than .*\n", capfd.readouterr().err)


def test_a_newer_schema_ends_a_worker_too(tmp_path: Path) -> None:
    database = Database.connect(f"sqlite:///{tmp_path / 'bensemble.db'}")
    make_newer(database)
    database.dispose()
    argv = [sys.executable, "-m", "app.cli", "worker"]
    env = clean_environment(tmp_path, BENSEMBLE_LOG_LEVEL="warning")
    ran = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 78
    assert re.fullmatch(r"bensemble: the database has schema 9999, which is newer than .*\n", ran.stderr)


def test_an_api_starts_before_its_database_is_there(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    cli._look_at_schema(f"postgresql://127.0.0.1:{port}/nothing")
    cli._look_at_schema(f"sqlite:///{tmp_path / 'new.db'}")
    assert [record.getMessage() for record in caplog.records] == [f"{SENTENCE}; every call is answered 503 until then"]
