"""Bring a database to the newest schema; safe to call from several processes at once."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from app.db.engine import Database

LOCK_NUMBER = 7_263_514


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    return config


def migrate(database: Database) -> None:
    """SQLite's BEGIN IMMEDIATE and PostgreSQL's advisory lock let one migrator through at a time."""
    config = _config()
    with database.engine.begin() as connection:
        if not database.is_sqlite:
            connection.execute(text("SELECT pg_advisory_xact_lock(:n)"), {"n": LOCK_NUMBER})
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def is_current(database: Database) -> bool:
    head = ScriptDirectory.from_config(_config()).get_current_head()
    with database.reader.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision() == head
