"""The migrations make exactly the tables that the code speaks of."""

import threading
from pathlib import Path

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import select

from app.db.engine import Database
from app.db.migrate import _config, is_current, migrate
from app.db.tables import Base, DesignSession, Ensemble, Job, Label, Observation, Pool, Project
from app.ensembles.views import ensemble_view


def test_a_migrated_database_has_the_tables_of_the_code(database: Database) -> None:
    with database.engine.connect() as connection:
        differences = compare_metadata(MigrationContext.configure(connection), Base.metadata)
    assert differences == []
    assert is_current(database)


def test_several_processes_may_migrate_at_once(database_url: str) -> None:
    errors: list[BaseException] = []

    def run() -> None:
        opened = Database.connect(database_url)
        try:
            migrate(opened)
        except BaseException as error:
            errors.append(error)
        finally:
            opened.dispose()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    opened = Database.connect(database_url)
    assert is_current(opened)
    opened.dispose()


def test_many_may_open_a_new_database_at_once(tmp_path: Path) -> None:
    """SQLite does not wait for another's change to the write-ahead log: one in fifty rounds failed before we did."""
    errors: list[BaseException] = []

    def run(url: str, start: threading.Barrier) -> None:
        start.wait()
        opened = Database.connect(url)
        try:
            with opened.engine.begin():
                pass
        except BaseException as error:
            errors.append(error)
        finally:
            opened.dispose()

    for round_number in range(100):
        start = threading.Barrier(8)
        url = f"sqlite:///{tmp_path}/{round_number}.db"
        threads = [threading.Thread(target=run, args=(url, start)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors == []


def test_what_an_older_database_has_of_sessions_is_taken_over(database_url: str) -> None:
    """Numbers 1, 3 and 4 are left of four observations: the next is 5, and what 3 and 4 taught is computed anew."""
    opened = Database.connect(database_url)
    try:
        with opened.engine.begin() as connection:
            config = _config()
            config.attributes["connection"] = connection
            command.upgrade(config, "0004")
            made = "'2026-01-01 00:00:00+00:00'"
            connection.exec_driver_sql(f"INSERT INTO experiment VALUES ('e', 'e', '{{}}', 'h', {made})")
            connection.exec_driver_sql(
                f"INSERT INTO session VALUES ('s', 'e', 's', NULL, '{{}}', '[]', 5, 5, 'd', {made}, NULL)"
            )
            for n in (1, 3, 4):
                connection.exec_driver_sql(
                    f"INSERT INTO observation VALUES ('o{n}', 's', {n}, NULL, NULL, '{{}}', '{{}}', '{{}}', {made})"
                )
            connection.exec_driver_sql(
                "INSERT INTO job (id, queue, kind, payload, status, run_at, attempts, crashes, token, "
                "cancel_requested, created_at) VALUES "
                f"('j', 'design', 'simulate', '{{}}', 'queued', {made}, 0, 0, 0, false, {made})"
            )
        migrate(opened)
        with opened.read() as session:
            assert session.scalars(select(DesignSession.last_n)).one() == 4
            assert session.scalars(select(Job.queue)).one() == "simulate"
            stale = select(Observation.n, Observation.is_stale).order_by(Observation.n)
            assert session.execute(stale).all() == [(1, False), (3, True), (4, True)]
    finally:
        opened.dispose()


def test_labels_of_an_older_database_are_counted(database_url: str) -> None:
    """Rows of both pools: 0 is agreed on, 1 a tie of classes, 2 corrected, 3 skipped, 4 taken back."""
    said = [
        *((0, who, "label", value) for who, value in (("x", 1), ("y", 1), ("z", 2))),
        *((1, who, "label", value) for who, value in (("x", 1), ("y", 2))),
        *((2, "x", "label", value) for value in (1, 2)),
        *((3, who, "skip", None) for who in ("x", "y")),
        *((4, "x", action, value) for action, value in (("label", 1), ("skip", None), ("retract", None))),
    ]
    opened = Database.connect(database_url)
    try:
        with opened.engine.begin() as connection:
            config = _config()
            config.attributes["connection"] = connection
            command.upgrade(config, "0008")
            made = "'2026-01-01 00:00:00+00:00'"
            for kind in ("classification", "regression"):
                connection.exec_driver_sql(
                    "INSERT INTO project (id, name, task, input, model, posterior, holdout, created_at, last_seq, "
                    f"last_version, last_round) VALUES ('{kind}', 'p', '{{\"kind\": \"{kind}\"}}', '{{}}', '{{}}', "
                    f"'{{}}', 0.2, {made}, {len(said)}, 0, 0)"
                )
                connection.exec_driver_sql(
                    "INSERT INTO pool (id, project_id, name, purpose, created_at) "
                    f"VALUES ('{kind}', '{kind}', 'p', 'candidates', {made})"
                )
                for seq, (row, annotator, action, value) in enumerate(said, 1):
                    connection.exec_driver_sql(
                        'INSERT INTO label (project_id, seq, pool_id, "row", annotator, action, value, source, '
                        f"created_at) VALUES ('{kind}', {seq}, '{kind}', {row}, '{annotator}', '{action}', "
                        f"{'NULL' if value is None else repr(str(value))}, 'api', {made})"
                    )
        migrate(opened)
        with opened.read() as session:
            counted = session.execute(select(Pool.id, Pool.n_labelled, Pool.n_skipped).order_by(Pool.id)).all()
            assert counted == [("classification", 2, 1), ("regression", 3, 1)]
            assert set(session.scalars(select(Label.key_id))) == {None}
    finally:
        opened.dispose()


def test_ensembles_of_an_older_database_say_nothing_of_themselves(database_url: str) -> None:
    opened = Database.connect(database_url)
    try:
        with opened.engine.begin() as connection:
            config = _config()
            config.attributes["connection"] = connection
            command.upgrade(config, "0009")
            made = "'2026-01-01 00:00:00+00:00'"
            connection.exec_driver_sql(
                "INSERT INTO project (id, name, task, input, model, posterior, holdout, created_at, last_seq, "
                f"last_version, last_round) VALUES ('p', 'p', '{{}}', '{{}}', '{{}}', '{{}}', 0.2, {made}, 0, 1, 0)"
            )
            connection.exec_driver_sql(
                "INSERT INTO ensemble (id, project_id, version, posterior, n_members, seed, warm_start, job_id, "
                f"origin, created_at) VALUES ('e', 'p', 1, '{{}}', 3, 0, false, 'j', 'request', {made})"
            )
            connection.exec_driver_sql(
                "INSERT INTO ensemble_result (ensemble_id, file_key, fitted_key, n_bytes, n_members, watermark, "
                "snapshot_hash, n_labels, metrics, seconds, created_at) "
                f"VALUES ('e', 'f', 'g', 1, 3, 0, 'h', 2, '{{}}', 0.1, {made})"
            )
        migrate(opened)
        with opened.read() as session:
            view = ensemble_view(session, session.get_one(Ensemble, "e"))
        assert (view.status, view.diagnostics, view.log_evidence, view.bound) == ("succeeded", None, None, None)
    finally:
        opened.dispose()


def test_projects_of_an_older_database_keep_their_pools_and_choose_as_before(database_url: str) -> None:
    opened = Database.connect(database_url)
    try:
        with opened.engine.begin() as connection:
            config = _config()
            config.attributes["connection"] = connection
            command.upgrade(config, "0010")
            made = "'2026-01-01 00:00:00+00:00'"
            connection.exec_driver_sql(
                "INSERT INTO project (id, name, task, input, model, posterior, holdout, created_at, last_seq, "
                f"last_version, last_round) VALUES ('p', 'p', '{{}}', '{{}}', '{{}}', '{{}}', 0.2, {made}, 0, 1, 0)"
            )
            connection.exec_driver_sql(
                f"INSERT INTO pool (id, project_id, name, purpose, created_at) VALUES ('q', 'p', 'q', 'task', {made})"
            )
        migrate(opened)
        with opened.read() as session:
            project = session.get_one(Project, "p")
            assert (project.calibrate, project.acquisition, project.selection) == (True, None, None)
            assert project.display is None
            assert session.get(Pool, "q") is not None
        with opened.engine.begin() as connection:
            config.attributes["connection"] = connection
            command.downgrade(config, "0010")
            assert connection.exec_driver_sql("SELECT id FROM pool").scalars().all() == ["q"]
    finally:
        opened.dispose()
