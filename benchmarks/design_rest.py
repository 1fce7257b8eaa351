"""A trial over REST beside a plain numpy table: `python benchmarks/design_rest.py [--trials 40]`.

Every model of the catalogue whose outcome is a class: an outcome is posted with `?next=true`, and the answer holds the
next design. Counted is the processor time of the API process, so that clients and other work do not matter. The table
beside it has 100,000 points and 50 designs: one update of weights and two products, as a script of a few lines would do
it. Then the EIG of 61 designs of a continuous space, asked twice.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
from running import HOST, Client, _is_ready, free_port, process
from scipy import special

from bensemble_core.design import CATALOGUE, Experiment
from bensemble_core.threads import one_thread

N_POINTS, N_DESIGNS = 100_000, 50
N_CURVE = 61


def table_seconds(n_trials: int) -> float:
    """Median processor time of a step on the table."""
    rng = np.random.default_rng(0)
    p = special.expit(rng.normal(size=(N_DESIGNS, 1)) - rng.normal(size=N_POINTS))
    entropy = special.entr(p) + special.entr(1 - p)
    weights = np.full(N_POINTS, 1 / N_POINTS)
    seconds = []
    for trial in range(n_trials):
        start = time.process_time()
        mean = p @ weights
        best = int((special.entr(mean) + special.entr(1 - mean) - entropy @ weights).argmax())
        weights = weights * (p[best] if trial % 2 else 1 - p[best])
        weights /= weights.sum()
        seconds.append(time.process_time() - start)
    return statistics.median(seconds)


def outcomes_of(name: str, n_trials: int) -> Experiment | None:
    """The model, if its outcome is one of few classes."""
    experiment = Experiment.from_spec(CATALOGUE[name].spec)
    variables = experiment.spec.model.outcomes
    return experiment if len(variables) == 1 and variables[0].n_classes and n_trials else None


def trials(client: Client, api: psutil.Process, name: str, experiment: Experiment, n: int) -> list[float]:
    """Processor seconds of each trial."""
    made = client.post("/v1/experiments", {**CATALOGUE[name].spec, "name": name})
    session = client.post(f"/v1/experiments/{made['id']}/sessions", {})
    proposal = client.post(f"/v1/sessions/{session['id']}/proposals", {})
    truth = dict(experiment.posterior().mean)
    seconds = []
    for trial in range(n):
        outcome = experiment.draw(truth, proposal["design"], trial)
        before = sum(api.cpu_times()[:2])
        answer = client.post(
            f"/v1/sessions/{session['id']}/observations?next=true",
            {"proposal_id": proposal["id"], "outcome": outcome},
        )
        seconds.append(sum(api.cpu_times()[:2]) - before)
        if not answer.get("next"):
            break
        proposal = answer["next"]
    return seconds


def curve(client: Client, api: psutil.Process, name: str) -> tuple[float, float]:
    """Processor seconds of the EIG at 61 designs, asked twice."""
    made = client.post("/v1/experiments", {**CATALOGUE[name].spec, "name": f"{name} curve"})
    session = client.post(f"/v1/experiments/{made['id']}/sessions", {})
    seconds = []
    for _ in range(2):
        before = sum(api.cpu_times()[:2])
        client.get(f"/v1/sessions/{session['id']}/eig?points={N_CURVE}")
        seconds.append(sum(api.cpu_times()[:2]) - before)
    return seconds[0], seconds[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--models", nargs="*", default=list(CATALOGUE))
    options = parser.parse_args()
    with one_thread():
        table = table_seconds(options.trials)
    print(f"table of {N_POINTS:,} points × {N_DESIGNS} designs: {1e3 * table:.1f} ms a step\n")
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        environment = {
            "BENSEMBLE_DATA_DIR": folder,
            "BENSEMBLE_DATABASE_URL": f"sqlite:///{folder}/design.db",
            "BENSEMBLE_STORAGE_URL": f"file://{folder}/objects",
            "BENSEMBLE_HOST": HOST,
            "BENSEMBLE_PORT": str(port),
        }
        log = Path(folder) / "log"
        with process(["app.cli", "migrate"], log, **environment) as migrating:
            migrating.wait(60)
        key = made_key(log, environment)
        with process(["app.cli", "api"], log, **environment) as started:
            while not _is_ready(port):
                time.sleep(0.1)
            client, api = Client(port, key), psutil.Process(started.pid)
            print("| model | median ms a trial | worst | beside the table | EIG of 61 designs, ms: first | again |")
            print("|---|---|---|---|---|---|")
            for name in options.models:
                report(client, api, name, options.trials, table)


def made_key(log: Path, environment: dict[str, str]) -> str:
    where = log.with_name("key")
    with process(["app.cli", "key", "create", "--name", "bench"], where, **environment) as making:
        making.wait(60)
    return where.read_text().split()[-1]


def report(client: Client, api: psutil.Process, name: str, n_trials: int, table: float) -> None:
    experiment = outcomes_of(name, n_trials)
    found = ["–"] * 3
    if experiment is not None:
        seconds = trials(client, api, name, experiment, n_trials)
        middle = statistics.median(seconds)
        found = [f"{1e3 * middle:.0f}", f"{1e3 * max(seconds):.0f}", f"{middle / table:.1f} ×"]
    looks = ["–"] * 2
    if not Experiment.from_spec(CATALOGUE[name].spec).spec.model.space.is_listed:
        looks = [f"{1e3 * each:.0f}" for each in curve(client, api, name)]
    if experiment is not None or looks[0] != "–":
        print(f"| {name} | " + " | ".join([*found, *looks]) + " |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
