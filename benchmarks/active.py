"""One active-learning run, round by round, written down as it goes so that a stopped study can be taken up again."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import bensemble_core as bc

Fit = Callable[[Tensor, Tensor, int], bc.Ensemble]  # labelled rows, their classes, a seed -> the round's ensemble


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What all runs of a study share."""

    pool: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    per_round: int
    most_labels: int
    enough: float = 1.0  # a run stops at this accuracy
    per_class: int = 2  # labelled rows of each class to begin with


@dataclass(frozen=True, kw_only=True)
class Run:
    name: str
    seed: int
    fit: Fit
    acquisition: Any
    selection: Any


class Record:
    """Lines of JSON, one a round."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def rounds(self, name: str | None = None, seed: int | None = None) -> list[dict[str, Any]]:
        if not self._path.exists():
            return []
        lines = [json.loads(line) for line in self._path.read_text().splitlines()]
        return [x for x in lines if name in (None, x["run"]) and seed in (None, x["seed"])]

    def add(self, line: dict[str, Any]) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def first_rows(y: Tensor, per_class: int, seed: int) -> list[int]:
    """The same for every method of a seed, or luck with the first labels would hide what the methods do."""
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    return [int(row) for c in range(int(y.max()) + 1) for row in order[y[order] == c][:per_class]]


def learn(run: Run, setting: Setting, record: Record, say: Callable[[str], None]) -> None:
    """Rounds until the labels or the accuracy are enough; those on record are not repeated."""
    (x, y), (x_test, y_test) = setting.pool, setting.test
    done = record.rounds(run.name, run.seed)
    rows = first_rows(y, setting.per_class, run.seed)
    for line in done:
        rows += line["picked"]
    while not (done and (done[-1]["accuracy"] >= setting.enough or not done[-1]["picked"])):
        started = time.perf_counter()
        ensemble = run.fit(x[rows], y[rows], 1000 * run.seed + len(done))
        predictive = ensemble.predict(x_test)
        assert isinstance(predictive, bc.CategoricalPredictive)
        log_probs = predictive.log_mean()
        accuracy = float((log_probs.argmax(1) == y_test).double().mean())
        nll = -float(log_probs.gather(1, y_test[:, None]).double().mean())
        fitted = time.perf_counter()
        picked: list[int] = []
        if accuracy < setting.enough and len(rows) + setting.per_round <= setting.most_labels:
            chosen = bc.rank(
                ensemble,
                x,
                acquisition=run.acquisition,
                selection=run.selection,
                k=setting.per_round,
                seed=1000 * run.seed + len(done),
                exclude=rows,
            )
            picked = chosen.rows.tolist()
        line = {
            "run": run.name,
            "seed": run.seed,
            "n_labels": len(rows),
            "accuracy": accuracy,
            "nll": nll,
            "picked": picked,
            "seconds": [round(fitted - started, 2), round(time.perf_counter() - fitted, 2)],
        }
        record.add(line)
        say(f"{run.name} seed {run.seed}: {len(rows)} labels, accuracy {accuracy:.3f}, NLL {nll:.3f}")
        done.append(line)
        rows = rows + picked


def labels_to(rounds: Sequence[dict[str, Any]], accuracy: float) -> int | None:
    """Total labels at the first round at or above the accuracy; None if it was never reached."""
    return next((line["n_labels"] for line in rounds if line["accuracy"] >= accuracy), None)


def draw(record: Record, names: Sequence[str], path: Path, title: str) -> None:
    """Median accuracy by labels, with the range over seeds."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 4.2))
    for name in names:
        by_labels: dict[int, list[float]] = {}
        for line in record.rounds(name):
            by_labels.setdefault(line["n_labels"], []).append(line["accuracy"])
        n_seeds = len({line["seed"] for line in record.rounds(name)})
        points = sorted((n, values) for n, values in by_labels.items() if len(values) == n_seeds)
        if not points:
            continue
        counts = [n for n, _ in points]
        axes.plot(counts, [float(torch.tensor(v).median()) for _, v in points], label=name)
        axes.fill_between(counts, [min(v) for _, v in points], [max(v) for _, v in points], alpha=0.15)
    axes.set(xlabel="labels", ylabel="test accuracy", title=title)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
