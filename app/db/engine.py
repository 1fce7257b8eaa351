"""One engine, two kinds of transaction: writers take their lock at once, readers never block them."""

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.orm import Session

BUSY_TIMEOUT_MS = 30_000


@dataclass(frozen=True, kw_only=True)
class Database:
    """`write()` and `read()` open a session each; `write()` commits when its block ends, or rolls back."""

    engine: Engine
    reader: Engine

    @classmethod
    def connect(cls, url: str, *, pool_size: int = 10) -> "Database":
        kind = make_url(url).get_backend_name()
        if kind not in ("sqlite", "postgresql"):
            raise ValueError(f"the database is sqlite:///… or postgresql://…, not {kind}; set BENSEMBLE_DATABASE_URL")
        engine = _sqlite(url) if kind == "sqlite" else _postgres(url, pool_size)
        return cls(engine=engine, reader=engine.execution_options(reads_only=True))

    @property
    def is_sqlite(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    def session(self, *, writes: bool) -> Session:
        return Session(self.engine if writes else self.reader, expire_on_commit=False)

    @contextmanager
    def write(self) -> Iterator[Session]:
        with self.session(writes=True) as session, session.begin():
            yield session

    @contextmanager
    def read(self) -> Iterator[Session]:
        with self.session(writes=False) as session:
            yield session

    def dispose(self) -> None:
        self.engine.dispose()


def _sqlite(url: str) -> Engine:
    path = make_url(url).database
    if not path or path == ":memory:":
        raise ValueError(
            "the service needs a database file that several processes share, e.g. sqlite:////data/bensemble.db"
        )
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(
        url, connect_args={"check_same_thread": False, "timeout": BUSY_TIMEOUT_MS / 1000}, pool_size=10, max_overflow=40
    )

    # SQLite's own wait is a sleep that grows to 100 ms; among the threads of one process there is a better one
    turn = threading.Lock()

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # BEGIN is ours: the driver's own would be deferred
        _use_write_ahead_log(connection)
        for pragma in ("synchronous=FULL", "foreign_keys=ON", f"busy_timeout={BUSY_TIMEOUT_MS}"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        if connection.get_execution_options().get("reads_only", False):
            connection.exec_driver_sql("BEGIN")
            return
        if not connection.info.get("has_turn"):
            connection.info["has_turn"] = turn.acquire(timeout=BUSY_TIMEOUT_MS / 1000)  # without it SQLite decides
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    @event.listens_for(engine, "checkin")
    def _end_turn(_connection: Any, record: Any) -> None:
        if record.info.pop("has_turn", False):
            turn.release()

    return engine


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Of several that open a new file at once, one changes its mode; SQLite refuses the others without waiting."""
    until = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.01)


def _postgres(url: str, pool_size: int) -> Engine:
    driver_url = make_url(url).set(drivername="postgresql+psycopg")
    return create_engine(driver_url, pool_size=pool_size, max_overflow=40, pool_pre_ping=True)
