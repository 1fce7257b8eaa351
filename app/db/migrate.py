"""Whether a database has the schema of this code, and how it gets it; safe to call from several processes at once."""

from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from app.db.engine import Database
from app.errors import NotReady

LOCK_NUMBER = 7_263_514


class NewerSchema(NotReady):
    """A newer version has migrated the database: nothing that this one could do or wait for would mend that."""


def migrate(database: Database) -> None:
    """SQLite's BEGIN IMMEDIATE and PostgreSQL's advisory lock let one migrator through at a time."""
    config = _config()
    with database.engine.begin() as connection:
        if not database.is_sqlite:
            connection.execute(text("SELECT pg_advisory_xact_lock(:n)"), {"n": LOCK_NUMBER})
        if isinstance(problem := _problem(connection), NewerSchema):
            raise problem
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def schema_problem(database: Database) -> NotReady | None:
    """Why this code can't use the database, and what to do, in one sentence; None where the schema is the code's."""
    with database.reader.connect() as connection:
        return _problem(connection)


def is_current(database: Database) -> bool:
    return schema_problem(database) is None


def _problem(connection: Connection) -> NotReady | None:
    found = MigrationContext.configure(connection).get_current_revision()
    ours = _revisions()
    if found == ours[0]:
        return None
    if found is None:
        return NotReady("the database is not migrated yet; run `bensemble migrate`")
    if found in ours:
        return NotReady(f"the database has schema {found}, this version needs {ours[0]}; run `bensemble migrate`")
    return NewerSchema(
        f"the database has schema {found}, which is newer than {ours[0]}, the newest of this version; "
        "start the version that migrated it, or name another database in BENSEMBLE_DATABASE_URL"
    )


@cache
def _revisions() -> tuple[str, ...]:
    """Newest first."""
    return tuple(script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions())


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    return config
