"""Labels saved beside random rows: `python benchmarks/labels_saved.py --data FOLDER [--plot docs/labels_saved.png]`.

Every set of the folder (npz with x, y and classes) and scikit-learn's digits: at most 4,000 rows are the pool, at most
1,000 test it. A strategy chooses the first 20 rows itself, then 20 more a round up to 300; after each round the
posterior is fitted anew and measured. The area is the mean accuracy (of numbers: minus the RMSE, in sds of the target)
over all rounds, and is compared with random rows of the same seed and posterior. Labels saved are those to 95 % of the
way from the class frequencies (or the mean) to what the posterior has on the whole pool (numbers: with 1,000 rows),
beside those that random rows took; sets on which random rows do not arrive by 300 are counted apart.

What was found is kept in `--results`, a file a set, strategy and seed, and not measured again.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.datasets import load_digits

import bensemble_core as bc

POOL, TEST, FIRST, STEP, LAST = 4_000, 1_000, 20, 20, 300
WHOLE_NUMBERS = 1_000  # rows that stand for the whole pool, for a Gaussian process
SHARE = 0.95
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """What fits, and what chooses: nothing named is the default."""

    posterior: str = bc.DEFAULT_POSTERIOR
    model: Any = None
    first: Mapping[str, Any] | None = None
    later: Mapping[str, Any] | None = None


RANDOM: dict[str, Any] = {"acquisition": "random", "selection": "top_k"}
STRATEGIES: dict[str, Strategy] = {
    "default": Strategy(),
    "random": Strategy(first=RANDOM, later=RANDOM),
    "margin": Strategy(first=RANDOM, later={"acquisition": "margin", "selection": "top_k"}),
    "entropy": Strategy(first=RANDOM, later={"acquisition": "entropy", "selection": "top_k"}),
    "bald": Strategy(first=RANDOM, later={"acquisition": "bald", "selection": "top_k"}),
    "power_bald": Strategy(first=RANDOM, later={"acquisition": "bald", "selection": "power"}),
    "variance": Strategy(
        first=RANDOM,
        later={"acquisition": {"name": "predictive_variance", "part": "epistemic"}, "selection": "top_k"},
    ),
    "kcenter": Strategy(first=RANDOM, later={"selection": "kcenter"}),
}
CLASSES_ONLY = ("margin",)
NUMBERS_ONLY = ("variance",)


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    name: str
    x: Floats
    y: npt.NDArray[Any]
    n_classes: int  # 0: numbers

    def split(self, seed: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Rows of the pool, and of the test."""
        order = np.random.default_rng(seed).permutation(len(self.x))
        n_test = min(TEST, len(order) // 4)
        return order[n_test : n_test + POOL], order[:n_test]

    @property
    def likelihood(self) -> Any:
        return bc.Categorical(n_classes=self.n_classes) if self.n_classes else "gaussian"


def tasks(folder: Path | None) -> Iterator[Task]:
    x, y = load_digits(return_X_y=True)
    yield Task(name="digits", x=x, y=y, n_classes=10)
    for path in sorted(folder.glob("*.npz")) if folder is not None else ():
        with np.load(path, allow_pickle=False) as held:
            n_classes = len(held["classes"])
            y = held["y"].astype(np.int64 if n_classes else np.float64)
            yield Task(name=path.stem, x=held["x"].astype(np.float64), y=y, n_classes=n_classes)


def play(task: Task, strategy: Strategy, seed: int) -> list[dict[str, float]]:
    """A round after another, with the answers at hand."""
    pool, test = task.split(seed)
    x, y = task.x[pool].astype(np.float32), task.y[pool]
    chosen = _first(task, strategy, x, seed)
    found = []
    while True:
        ensemble = fit(task, strategy, x, y, chosen, seed)
        found.append({"n": len(chosen), **measure(task, ensemble, test)})
        if len(chosen) + STEP > min(LAST, len(x)):
            return found
        ranking = bc.rank(
            ensemble, x, k=STEP, seed=seed + len(chosen), exclude=chosen, labelled=x[chosen], **(strategy.later or {})
        )
        chosen = np.concatenate([chosen, ranking.rows.numpy()])


def _first(task: Task, strategy: Strategy, x: Any, seed: int) -> npt.NDArray[np.int64]:
    """As the service does it, which knows the task: random rows for numbers, unless something is named."""
    named = strategy.first if strategy.first is not None else {} if task.n_classes else RANDOM
    return bc.rank(None, x, k=FIRST, seed=seed, **named).rows.numpy()


def fit(task: Task, strategy: Strategy, x: Any, y: Any, rows: Any, seed: int) -> bc.Ensemble:
    extra = {"unlabelled": x} if strategy.posterior == "auto" else {}
    data = (x[rows], y[rows])
    fitted = bc.fit(strategy.posterior, strategy.model, data, likelihood=task.likelihood, seed=seed, **extra)
    return fitted.sample(20, seed=seed, at_most=True)


def measure(task: Task, ensemble: bc.Ensemble, test: Any) -> dict[str, float]:
    got = bc.metrics.evaluate(ensemble.predict(task.x[test].astype(np.float32)), torch.from_numpy(task.y[test]))
    if task.n_classes:
        return {"value": got["accuracy"], "nll": got["nll"], "ece": got["ece"]}
    sd = float(task.y.std())
    return {"value": -got["rmse"] / sd, "nll": got["nll"] - math.log(sd)}


def ceiling(task: Task, seed: int) -> dict[str, float]:
    """What all labels give, and none: of the strategies' common posterior."""
    pool, test = task.split(seed)
    rows = pool if task.n_classes else pool[:WHOLE_NUMBERS]
    x, y = task.x[pool].astype(np.float32), task.y[pool]
    whole = fit(task, Strategy(), x, y, np.arange(len(rows)), seed)
    if task.n_classes:
        none = float((task.y[test] == np.bincount(y).argmax()).mean())
    else:
        none = -float(np.sqrt(np.square(task.y[test] - y.mean()).mean()) / task.y.std())
    return {"whole": measure(task, whole, test)["value"], "none": none}


def kept(path: Path, make: Any) -> Any:
    if path.exists():
        return json.loads(path.read_text())
    started = time.monotonic()
    found = make()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found))
    print(f"{path.stem}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    return found


def reached(curve: list[dict[str, float]], goal: float) -> float:
    """Labels at the goal, between rounds by a straight line; inf where it was not reached."""
    before = curve[0]
    if before["value"] >= goal:
        return before["n"]
    for point in curve[1:]:
        if point["value"] >= goal:
            share = (goal - before["value"]) / (point["value"] - before["value"])
            return before["n"] + share * (point["n"] - before["n"])
        before = point
    return math.inf


def summarise(task: Task, curves: dict[str, list[Any]], limits: list[dict[str, float]]) -> dict[str, dict[str, Any]]:
    """Of each strategy: gain in area over random rows with its standard error, and the share of labels saved."""
    area = {name: np.array([np.mean([p["value"] for p in c]) for c in found]) for name, found in curves.items()}
    random = curves["random"]
    goals = [limit["none"] + SHARE * (limit["whole"] - limit["none"]) for limit in limits]
    at_random = [reached(c, goal) for c, goal in zip(random, goals, strict=True)]
    found = {}
    for name, own in curves.items():
        n = min(len(own), len(random))
        gain = area[name][:n] - area["random"][:n]
        saved = [1 - reached(c, goal) / r for c, goal, r in zip(own, goals, at_random, strict=False) if r < math.inf]
        found[name] = {
            "gain": float(gain.mean()),
            "se": float(gain.std(ddof=1) / math.sqrt(n)) if n > 1 else math.nan,
            "saved": float(np.median(saved)) if 2 * len(saved) > n else math.nan,
            "nll": float(np.mean([np.mean([p["nll"] for p in c]) for c in own])),
            "seeds": n,
        }
    return found


def table(results: dict[str, dict[str, dict[str, Any]]], names: list[str]) -> str:
    lines = ["| set | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for task, found in results.items():
        cells = []
        for name in names:
            if name not in found:
                cells.append("")
                continue
            f = found[name]
            saved = "–" if math.isnan(f["saved"]) else f"{f['saved']:.0%}"
            cells.append(f"{f['gain']:+.4f} ± {f['se']:.4f}, {saved}")
        lines.append(f"| {task} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(curves: dict[str, dict[str, list[Any]]], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    columns = min(5, len(curves))
    rows = -(-len(curves) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(2.4 * columns, 2.0 * rows), squeeze=False)
    for axis, (task, found) in zip(axes.flat, curves.items(), strict=False):
        for name, colour in (("random", "#888888"), ("default", "#d95f02")):
            if name in found:
                values = np.array([[p["value"] for p in c] for c in found[name]])
                n = [p["n"] for p in found[name][0]]
                mean, se = values.mean(0), values.std(0) / math.sqrt(len(values))
                axis.plot(n, mean, color=colour, label=name, lw=1.4)
                axis.fill_between(n, mean - se, mean + se, color=colour, alpha=0.25, lw=0)
        axis.set_title(task, fontsize=8)
        axis.tick_params(labelsize=6)
        axis.grid(alpha=0.3)
    for axis in list(axes.flat)[len(curves) :]:
        axis.axis("off")
    axes.flat[0].legend(fontsize=7)
    figure.supxlabel("labels", fontsize=8)
    figure.supylabel("accuracy, or − RMSE in sds", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=90)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of npz files; without it, digits alone")
    parser.add_argument("--results", type=Path, default=Path("build/labels_saved"))
    parser.add_argument("--seeds", type=int, default=7, help="of default, random and margin")
    parser.add_argument("--other-seeds", type=int, default=3, help="of the other strategies")
    parser.add_argument("--sets", nargs="*", help="names of sets, default all")
    parser.add_argument("--strategies", nargs="*", default=list(STRATEGIES), choices=list(STRATEGIES))
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    chosen = [task for task in tasks(given.data) if not given.sets or task.name in given.sets]
    names = ["random", *(name for name in given.strategies if name != "random")]
    curves: dict[str, dict[str, list[Any]]] = {task.name: {} for task in chosen}
    limits: dict[str, list[Any]] = {task.name: [] for task in chosen}
    for seed in range(given.seeds):
        for task in chosen:
            limits[task.name].append(
                kept(given.results / f"{task.name}-whole-{seed}.json", partial(ceiling, task, seed))
            )
            for name in names:
                if name in (NUMBERS_ONLY if task.n_classes else CLASSES_ONLY):
                    continue
                if seed >= given.other_seeds and name not in ("default", "random", "margin"):
                    continue
                path = given.results / f"{task.name}-{name}-{seed}.json"
                got = kept(path, partial(play, task, STRATEGIES[name], seed))
                curves[task.name].setdefault(name, []).append(got)
    for kind in ("classes", "numbers"):
        own = [task for task in chosen if bool(task.n_classes) == (kind == "classes")]
        results = {task.name: summarise(task, curves[task.name], limits[task.name]) for task in own}
        if not results:
            continue
        print(f"\n{kind}: gain in area over random rows ± standard error, labels saved to {SHARE:.0%}\n")
        print(table(results, [name for name in names if name != "random"]))
        for name in names[1:]:
            gains = [found[name]["gain"] for found in results.values() if name in found]
            saved = [f[name]["saved"] for f in results.values() if name in f and not math.isnan(f[name]["saved"])]
            if gains:
                middle = f"{np.median(saved):.0%} of {len(saved)} sets" if saved else "no set reached"
                print(f"{name}: mean gain {np.mean(gains):+.4f}, worst {min(gains):+.4f}, median saved {middle}")
    if given.plot is not None:
        draw(curves, given.plot)


if __name__ == "__main__":
    main()
