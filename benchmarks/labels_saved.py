"""Labels saved beside random rows and beside peers: `python benchmarks/labels_saved.py --data ../shared/data/pools`.

Every set of the folder (npz with x, y and classes) and scikit-learn's digits and diabetes: at most 4,000 rows are the
pool, at most 1,000 test it. A strategy chooses the first 20 rows itself (what needs a model first: at random, the same
rows for all), then 20 more a round up to 300; after each round its model is fitted anew and measured. Peers run in
environments of their own under build/bench with their own models, on rows standardised by the pool.

Seven seeds of the default, random rows and margins on every set, then three seeds of the others on six sets. What was
measured is kept in `--results`, a file a set, strategy and seed, and not measured again: a run can be stopped at any
time, and `--only-report` says what there is. Tables go between the marks of docs/labels_saved.md, the picture beside
it.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from beside import ROOT, NoPeer, environment
from labels_saved_logistic import fit as fit_logistic
from labels_saved_peer import Given
from labels_saved_report import Found, write_report
from labels_saved_task import FIRST, LAST, STEP, Floats, Ints, Task, halves, read_tasks

import bensemble_core as bc
from bensemble_core.predictive import CategoricalPredictive

WHOLE_NUMBERS = 1_000  # rows that stand for the whole pool, for a Gaussian process
WHOLE_SEEDS = 3  # it takes as long as two strategies, and varies less
FLOOR = 1e-12  # of a peer's probabilities
Curve = list[dict[str, Any]]  # a point a round: n, value, nll, ece, and the rows that were new


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """What chooses: nothing named is the default."""

    first: Mapping[str, Any] | None = None
    later: Mapping[str, Any] | None = None
    kinds: tuple[str, ...] = ("classes", "numbers")


@dataclass(frozen=True, kw_only=True)
class Peer:
    """`benchmarks/labels_saved_SCRIPT.py STRATEGY`, in an environment of its own where it has requirements."""

    script: str
    strategy: str
    kinds: tuple[str, ...] = ("classes",)


RANDOM: dict[str, Any] = {"acquisition": "random", "selection": "top_k"}
SPREAD: dict[str, Any] = {"name": "predictive_variance", "part": "epistemic"}


def random_first(kinds: str = "classes numbers", **later: Any) -> Strategy:
    return Strategy(first=RANDOM, later=later, kinds=tuple(kinds.split()))


STRATEGIES: dict[str, Strategy | Peer] = {
    "random": Strategy(first=RANDOM, later=RANDOM),
    "default": Strategy(),
    "margin": random_first("classes", acquisition="margin", selection="top_k"),
    "logistic_margin": Peer(script="logistic", strategy="margin"),
    "logistic_random": Peer(script="logistic", strategy="random"),
    "activeml_margin": Peer(script="activeml", strategy="margin"),
    "activeml_qbc": Peer(script="activeml", strategy="qbc"),
    "activeml_badge": Peer(script="activeml", strategy="badge"),
    "activeml_typiclust": Peer(script="activeml", strategy="typiclust"),
    "baal_bald": Peer(script="baal", strategy="bald"),
    "typical_first": Strategy(first={"selection": {"name": "typiclust", "standardise": True}}, kinds=("classes",)),
    "cluster_margin": random_first("classes", acquisition="margin", selection="cluster_margin"),
    "entropy": random_first("classes", acquisition="entropy", selection="top_k"),
    "bald": random_first("classes", acquisition="bald", selection="top_k"),
    "power_bald": random_first("classes", acquisition="bald", selection="power"),
    "badge": random_first("classes", selection="badge"),
    "typiclust": Strategy(
        first={"selection": "typiclust"}, later={"acquisition": "random", "selection": "typiclust"}, kinds=("classes",)
    ),
    "variance": random_first("numbers", acquisition=SPREAD, selection="top_k"),
    "kcenter": random_first(selection="kcenter"),
}
LEADING = ("random", "default", "logistic_margin", "activeml_margin")  # measured first, on every set and seed
ON_ALL = (*LEADING, "logistic_random", "margin", "typical_first")


def play(task: Task, name: str, seed: int) -> Curve:
    """A round after another, with the answers at hand."""
    strategy = STRATEGIES[name]
    if isinstance(strategy, Peer):
        return play_peer(task, strategy, seed)
    pool, test = task.split(seed)
    x, y = task.x[pool].astype(np.float32), task.y[pool]
    chosen = new = first_rows(task, strategy, x, seed)
    found: Curve = []
    while True:
        ensemble = fit(task, x, y, chosen, seed)
        found.append({"n": len(chosen), **measure(task, ensemble, test), "rows": new.tolist()})
        if len(chosen) + STEP > min(LAST, len(x)):
            return found
        ranking = bc.rank(
            ensemble, x, k=STEP, seed=seed + len(chosen), exclude=chosen, labelled=x[chosen], **(strategy.later or {})
        )
        new = ranking.rows.numpy()
        chosen = np.concatenate([chosen, new])


def first_rows(task: Task, strategy: Strategy, x: Any, seed: int) -> Ints:
    """As the service does it, which knows the task: random rows for numbers, unless something is named."""
    named = strategy.first if strategy.first is not None else {} if task.n_classes else RANDOM
    rows: Ints = bc.rank(None, x, k=FIRST, seed=seed, **named).rows.numpy()
    return rows


def fit(task: Task, x: Any, y: Any, rows: Any, seed: int) -> bc.Ensemble:
    likelihood = bc.Categorical(n_classes=task.n_classes) if task.n_classes else "gaussian"
    data = (x[rows], y[rows])
    fitted = bc.fit(bc.DEFAULT_POSTERIOR, None, data, likelihood=likelihood, seed=seed, unlabelled=x)
    return fitted.sample(20, seed=seed, at_most=True)


def measure(task: Task, ensemble: bc.Ensemble, test: Any) -> dict[str, float]:
    return score(task, ensemble.predict(task.x[test].astype(np.float32)), test)


def score(task: Task, predicted: Any, test: Any) -> dict[str, float]:
    got = bc.metrics.evaluate(predicted, torch.from_numpy(task.y[test]))
    if task.n_classes:
        return {"value": got["accuracy"], "nll": got["nll"], "ece": got["ece"]}
    sd = float(task.y.std())
    return {"value": -got["rmse"] / sd, "nll": got["nll"] - math.log(sd)}


def play_peer(task: Task, peer: Peer, seed: int) -> Curve:
    """In a process of its own, which gives back rows and probabilities; measured here, as ours are."""
    pool, test = task.split(seed)
    x, of_test = task.standardised(seed)
    first = first_rows(task, random_first(), task.x[pool].astype(np.float32), seed)
    given = Given(
        x=x, y=task.y[pool], test=of_test, first=first, n_classes=task.n_classes, seed=seed, step=STEP, last=LAST
    )
    python, script = python_of(peer.script), ROOT / "benchmarks" / f"labels_saved_{peer.script}.py"
    with tempfile.TemporaryDirectory() as folder:
        asked, answer = Path(folder) / "given.npz", Path(folder) / "found.npz"
        given.save(asked)
        done = subprocess.run(
            [str(python), str(script), str(asked), peer.strategy, str(answer)], capture_output=True, text=True
        )
        if done.returncode:
            raise NoPeer(f"{peer.script} ended with {done.returncode}: {done.stderr[-300:]}")
        with np.load(answer, allow_pickle=False) as held:
            rows, probs = held["rows"], held["probs"]
    found: Curve = []
    for of_round in probs:
        n = FIRST + STEP * len(found)
        smoothed = with_unseen(of_round, task.y[pool][rows[:n]])
        predicted = CategoricalPredictive(logits=torch.from_numpy(smoothed).log()[None])
        new = rows[n - STEP if found else 0 : n].tolist()
        found.append({"n": n, **score(task, predicted, test), "rows": new})
    return found


def python_of(script: str) -> Path:
    needed = ROOT / "benchmarks" / f"labels_saved_{script}.requirements.txt"
    if not needed.exists():
        return Path(sys.executable)
    return environment(f"labels_saved_{script}", ("-r", str(needed), "-c", str(ROOT / "constraints.txt")))


def with_unseen(probs: Floats, y: Ints) -> Floats:
    """Probabilities [T, C] in which a class without labels has its smoothed frequency, so that the NLL is finite."""
    n_classes = probs.shape[1]
    smoothed = (np.bincount(y, minlength=n_classes) + 1) / (len(y) + n_classes)
    unseen = np.bincount(y, minlength=n_classes) == 0
    mixed = np.where(unseen, smoothed, probs * (1 - smoothed[unseen].sum()))
    floored: Floats = np.maximum(mixed, FLOOR)
    return floored


def play_picks(task: Task, curve: Curve, seed: int) -> list[float]:
    """Accuracy of a plain logistic regression on the picks of a strategy, a figure a round: one model for all."""
    pool, test = task.split(seed)
    x, of_test = task.standardised(seed)
    rows, found = np.array([], dtype=np.int64), []
    for point in curve:
        rows = np.concatenate([rows, np.array(point["rows"], dtype=np.int64)])
        predict = fit_logistic(x[rows], task.y[pool][rows], task.n_classes)
        found.append(float((predict(of_test).argmax(1) == task.y[test]).mean()))
    return found


def ceiling(task: Task, seed: int) -> dict[str, float]:
    """What all labels give, and none: of the strategies' common posterior."""
    pool, test = task.split(seed)
    rows = pool if task.n_classes else pool[:WHOLE_NUMBERS]
    x, y = task.x[pool].astype(np.float32), task.y[pool]
    whole = fit(task, x, y, np.arange(len(rows)), seed)
    if task.n_classes:
        none = float((task.y[test] == np.bincount(y).argmax()).mean())
    else:
        none = -float(np.sqrt(np.square(task.y[test] - y.mean()).mean()) / task.y.std())
    return {"whole": measure(task, whole, test)["value"], "none": none}


@dataclass(frozen=True, kw_only=True, eq=False)
class Cell:
    task: Task
    name: str
    seed: int

    def path(self, folder: Path) -> Path:
        return folder / f"{self.task.name}-{self.name}-{self.seed}.json"

    def make(self) -> Any:
        return ceiling(self.task, self.seed) if self.name == "whole" else play(self.task, self.name, self.seed)


def plan(tasks: Sequence[Task], names: Sequence[str], seeds: int, other_seeds: int) -> Iterator[Cell]:
    """In the order of measuring: what a verdict needs first, and classes before numbers."""
    for kind in ("classes", "numbers"):
        own = [task for task in tasks if task.kind == kind]
        some = [name for half in halves(own) for name in half[:3]]
        fitting = [name for name in names if kind in STRATEGIES[name].kinds]
        leading = [name for name in fitting if name in LEADING]
        for seed in range(seeds):
            for task in own:
                for name in [*(["whole"] if seed == 0 else []), *leading]:
                    yield Cell(task=task, name=name, seed=seed)
        others = [name for name in fitting if name not in LEADING]
        for seed in range(seeds):
            if 0 < seed < WHOLE_SEEDS:
                yield from (Cell(task=task, name="whole", seed=seed) for task in own)
            for name in others:
                for task in own:
                    if name in ON_ALL or (seed < other_seeds and task.name in some):
                        yield Cell(task=task, name=name, seed=seed)


def keep(path: Path, make: Callable[[], Any]) -> None:
    started = time.process_time(), time.monotonic()
    found = make()
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = path.with_suffix(".part")
    whole.write_text(json.dumps(found))
    whole.rename(path)  # what is stopped leaves no half of a file
    used, passed = time.process_time() - started[0], time.monotonic() - started[1]
    print(f"{path.stem}: {passed:.0f} s, {used:.0f} of the processor", file=sys.stderr, flush=True)


def measure_all(cells: Sequence[Cell], folder: Path) -> None:
    missing: dict[str, str] = {}
    for cell in cells:
        strategy, path = STRATEGIES.get(cell.name), cell.path(folder)
        peer = strategy.script if isinstance(strategy, Peer) else ""
        if path.exists() or peer in missing:
            continue
        try:
            keep(path, cell.make)
        except NoPeer as reason:
            missing[peer] = str(reason)
            print(f"{peer} is left out: {reason}", file=sys.stderr, flush=True)


def read_found(tasks: Sequence[Task], cells: Sequence[Cell], folder: Path) -> list[Found]:
    """What there is of the cells, by set; picks under one model are measured here, which is cheap."""
    found = []
    choosing = [name for kind in ("classes", "numbers") for name in halves([t for t in tasks if t.kind == kind])[0]]
    for task in tasks:
        curves: dict[str, dict[int, Curve]] = {}
        picks: dict[str, dict[int, list[float]]] = {}
        limits = []
        for cell in cells:
            path = cell.path(folder)
            if cell.task is not task or not path.exists():
                continue
            got = json.loads(path.read_text())
            if cell.name == "whole":
                limits.append(got)
                continue
            curves.setdefault(cell.name, {})[cell.seed] = got
            if task.n_classes:
                under = path.with_suffix(".picks.json")
                if not under.exists():
                    under.write_text(json.dumps(play_picks(task, got, cell.seed)))
                picks.setdefault(cell.name, {})[cell.seed] = json.loads(under.read_text())
        if limits and "random" in curves:
            half = "choosing" if task.name in choosing else "reported"
            found.append(Found(name=task.name, kind=task.kind, half=half, curves=curves, picks=picks, limits=limits))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of npz files; without it, digits and diabetes alone")
    parser.add_argument("--results", type=Path, default=Path("build/labels_saved"))
    parser.add_argument("--seeds", type=int, default=7, help=f"of {', '.join(ON_ALL)}")
    parser.add_argument("--other-seeds", type=int, default=3, help="of the other strategies, on six sets")
    parser.add_argument("--sets", nargs="*", help="names of sets, default all")
    parser.add_argument("--strategies", nargs="*", default=list(STRATEGIES), choices=list(STRATEGIES))
    parser.add_argument("--only-report", action="store_true", help="measure nothing")
    parser.add_argument("--page", type=Path, default=ROOT / "docs/labels_saved.md", help="where the tables go")
    parser.add_argument("--plot", type=Path, default=ROOT / "docs/labels_saved.png")
    given = parser.parse_args()
    torch.set_num_threads(1)
    tasks = read_tasks(given.data)
    planned = plan(tasks, given.strategies, given.seeds, given.other_seeds)
    cells = [cell for cell in planned if not given.sets or cell.task.name in given.sets]
    if not given.only_report:
        measure_all(cells, given.results)
    order = [name for name in STRATEGIES if name in given.strategies]
    peers = [name for name, strategy in STRATEGIES.items() if isinstance(strategy, Peer)]
    print(write_report(read_found(tasks, cells, given.results), order, peers, given.page, given.plot))


if __name__ == "__main__":
    main()
