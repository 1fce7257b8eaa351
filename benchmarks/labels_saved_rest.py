"""The default over REST, on sets that nothing was chosen on: `labels_saved_rest.py --data ../shared/data`.

An API and a worker as processes. For each set two projects that name no posterior, model or method: one opens rounds
that name nothing, the other rounds of random rows; an annotator who knows every label answers; 20 labels a round, up to
200; measured on an evaluation pool. The sets: scikit-learn's breast_cancer and wine, MNIST (5,000 digits, 784 inputs),
and as numbers the UCI sets concrete, energy, wine-quality-red and yacht. No default was ever chosen on any of them.
Printed: the mean accuracy (or minus the RMSE, in sds) over all rounds of both, and their difference, by seed.
"""

import argparse
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from big_pool import done
from labels_saved_task import Task
from running import Client, free_port, process, server
from sklearn.datasets import load_breast_cancer, load_wine

from app.db.engine import Database
from app.db.migrate import migrate
from app.settings import Settings
from app.web.auth import create_key

K = 20
RANDOM = {"acquisition": {"name": "random"}, "selection": {"name": "top_k"}}


def tasks(folder: Path | None) -> Iterator[Task]:
    for name, load in (("breast_cancer", load_breast_cancer), ("wine", load_wine)):
        x, y = load(return_X_y=True)
        yield Task(name=name, x=x, y=y, n_classes=int(y.max()) + 1)
    if folder is None:
        return
    with np.load(folder / "mnist.npz", allow_pickle=False) as held:
        x, y = held["x_train"][:5_000].reshape(5_000, -1) / 255.0, held["y_train"][:5_000].astype(np.int64)
    yield Task(name="mnist", x=x, y=y, n_classes=10)
    for path in sorted((folder / "uci").glob("*.npz")):
        with np.load(path, allow_pickle=False) as held:
            yield Task(name=path.stem, x=held["x"].astype(np.float64), y=held["y"].astype(np.float64), n_classes=0)


def play(client: Client, task: Task, seed: int, rounds: int, named: dict[str, Any]) -> list[float]:
    """A round after another; the metric after each."""
    pool_rows, test_rows = task.split(seed)
    answers: list[Any] = [str(value) if task.n_classes else float(value) for value in task.y]
    classes = [str(value) for value in range(task.n_classes)]
    kind: dict[str, Any] = {"kind": "classification", "classes": classes} if classes else {"kind": "regression"}
    body = {"name": task.name, "task": kind, "input": {"shape": [task.x.shape[1]]}}
    project = client.post("/v1/projects", body)["id"]

    def add(name: str, rows: Any, **more: Any) -> str:
        body = {"name": name, "rows": task.x[rows].round(6).tolist(), **more}
        return str(client.post(f"/v1/projects/{project}/pools", body)["id"])

    pool = add("pool", pool_rows)
    add("test", test_rows, purpose="evaluation", labels=[answers[row] for row in test_rows])
    for number in range(rounds):
        wanted = {"pool_id": pool, "k": K, "seed": 1_000 * seed + number, **named}
        asked = client.post(f"/v1/projects/{project}/rounds", wanted)
        done(client, asked["job"]["id"])
        ranking = client.get(f"/v1/rounds/{asked['round']['id']}")["ranking_id"]
        items = client.get(f"/v1/rankings/{ranking}")["items"]
        labels = [{"row": item["row"], "value": answers[pool_rows[item["row"]]]} for item in items]
        answer = client.post(f"/v1/rounds/{asked['round']['id']}/labels", {"labels": labels})
        for job in answer["triggered"]:
            done(client, job)
    points = client.get(f"/v1/projects/{project}/learning-curve")["points"]
    sd = float(task.y.std())
    return [p["metrics"]["accuracy"] if task.n_classes else -p["metrics"]["rmse"] / sd for p in points]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with mnist.npz and uci/; without it two sets")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--sets", nargs="*")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bensemble-bench-") as name:
        folder = Path(name)
        settings = Settings(data_dir=folder, port=free_port())
        database = Database.connect(settings.database_url)
        migrate(database)
        with database.write() as session:
            key = create_key(session, name="benchmark", scopes=["admin"])[1]
        database.dispose()
        environment = {"BENSEMBLE_DATA_DIR": str(folder), "BENSEMBLE_PORT": str(settings.port)}
        print("| set | by default | random rows | gain ± se | by seed |\n|---|---|---|---|---|")
        with (
            server(["app.cli", "api"], settings.port, folder / "api.log", **environment),
            process(["app.cli", "worker"], folder / "worker.log", **environment),
        ):
            client = Client(settings.port, key)
            for task in tasks(given.data):
                if given.sets and task.name not in given.sets:
                    continue
                rounds = min(given.rounds, len(task.split(0)[0]) // K - 1)
                areas = np.array(
                    [
                        [np.mean(play(client, task, seed, rounds, named)) for named in ({}, RANDOM)]
                        for seed in range(given.seeds)
                    ]
                )
                gain = areas[:, 0] - areas[:, 1]
                se = gain.std(ddof=1) / math.sqrt(len(gain)) if len(gain) > 1 else math.nan
                seeds = ", ".join(f"{value:+.4f}" for value in gain)
                mean = areas.mean(0)
                print(
                    f"| {task.name} | {mean[0]:.4f} | {mean[1]:.4f} | {gain.mean():+.4f} ± {se:.4f} | {seeds} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
