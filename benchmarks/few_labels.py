"""How well is predicted from 20 to 320 random labels: `auto` beside the former default and what people use.

`python benchmarks/few_labels.py --data ../shared/data/pools` reads every npz of that folder (x [N, D], y [N], and the
names of the `classes`, none of them for numbers) and scikit-learn's digits and diabetes. A seed shuffles a set into
test rows (a quarter, at most 1,000) and a pool (at most 4,000), whose first n rows are labelled: the same rows for
every method, and the 20 are among the 40. `auto` is given the pool without labels, and the rows of scikit-learn's
methods are standardised by the pool.

Every cell (set, method, n, seed) is a line of JSON in `--results` and not measured again, so that the run can be
stopped; `--fresh auto` measures that method anew. `--posteriors` measures instead every method of the registry that
suits the task, on four sets; a cell over `--minutes` of the processor is given up, and so are that method's larger ones
of the set. `--best 6` measures on all sets and sizes the six methods whose NLL ranked best there. The tables between
the marks in docs/few_labels.md, and the picture beside it, are written by this script. RMSE is in standard deviations
of the set's target, and so is the NLL of numbers.
"""

import argparse
import json
import math
import signal
import sys
import time
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import bensemble_core as bc
from bensemble_core.predictive import CategoricalPredictive, GaussianPredictive
from bensemble_core.types import Analytic

SIZES = (20, 40, 80, 160, 320)
N_TEST, N_POOL, N_MEMBERS, N_TREES = 1000, 4000, 20, 100
MIXED_IN = 0.05  # of smoothed class frequencies, in a forest's shares of trees, many of which are 0
FLOOR = 1e-12  # of a logistic regression's probabilities
CHECK = ("digits", 100)  # a set, and a size that is in no table
SOME_SETS, SOME_SIZES, SOME_SEEDS = ("german_credit", "pendigits", "abalone", "puma8NH"), (20, 80, 320), 2
MARKS = ("<!-- measured: {} -->", "<!-- end of {} -->")


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """A set: x [N, D], y [N]."""

    name: str
    x: np.ndarray
    y: np.ndarray
    n_classes: int  # 0 for numbers

    @property
    def task(self) -> str:
        return "classes" if self.n_classes else "numbers"

    @property
    def sizes(self) -> tuple[int, ...]:
        return (*SIZES, CHECK[1]) if self.name == CHECK[0] else SIZES


@dataclass(frozen=True, kw_only=True, eq=False)
class Split:
    """What a method is given: labelled rows, those of the pool, and those to predict."""

    x: np.ndarray  # [n, D]
    y: np.ndarray  # [n]
    pool: np.ndarray  # [U, D], the labelled rows among them
    test: np.ndarray  # [N, D]
    n_classes: int
    seed: int

    def standardised(self) -> tuple[np.ndarray, np.ndarray]:
        """Labelled and test rows by the pool's means and sds, in float64."""
        mean, sd = self.pool.mean(0, dtype=np.float64), self.pool.std(0, dtype=np.float64)
        sd = np.where(sd > 1e-9, sd, 1.0)
        return (self.x - mean) / sd, (self.test - mean) / sd

    def frequencies(self) -> np.ndarray:
        """Class frequencies with one more row of each class: [C]."""
        return (np.bincount(self.y, minlength=self.n_classes) + 1) / (len(self.y) + self.n_classes)


Predicted = CategoricalPredictive | GaussianPredictive
Method = Callable[[Split], Predicted]


def posterior(name: str, model: Any, *, sees_pool: bool = False) -> Method:
    """A method of the library with its default options."""

    def predict(split: Split) -> Predicted:
        likelihood = bc.Categorical(n_classes=split.n_classes) if split.n_classes else "gaussian"
        more = {"unlabelled": torch.tensor(split.pool)} if sees_pool else {}
        data = torch.tensor(split.x), torch.tensor(split.y)
        fitted = bc.fit(name, model, data, likelihood=likelihood, seed=split.seed, **more)
        test = torch.tensor(split.test)
        if isinstance(fitted.posterior, Analytic):
            return fitted.predict(test)
        return fitted.sample(N_MEMBERS, at_most=True).predict(test)

    return predict


def frequencies(split: Split) -> Predicted:
    return categorical(np.tile(split.frequencies(), (len(split.test), 1)))


def mean(split: Split) -> Predicted:
    n = len(split.test)
    return gaussian(np.full(n, split.y.mean()), np.full(n, split.y.std(ddof=1)))


def logistic(split: Split) -> Predicted:
    """L2 penalty by cross-validated NLL; where a class has one row, scikit-learn's default penalty."""
    from sklearn.linear_model import LogisticRegression, LogisticRegressionCV

    seen, counts = np.unique(split.y, return_counts=True)
    if len(seen) == 1:
        return frequencies(split)
    folds = min(5, int(counts.min()))
    model = (
        LogisticRegressionCV(cv=folds, scoring="neg_log_loss", max_iter=1000, use_legacy_attributes=False)
        if folds > 1
        else LogisticRegression(max_iter=1000)
    )
    x, test = split.standardised()
    model.fit(x, split.y)
    # a class that no label has keeps its smoothed frequency; the model shares out the rest
    probs = np.tile(split.frequencies(), (len(test), 1))
    probs[:, seen] = model.predict_proba(test) * split.frequencies()[seen].sum()
    return categorical(np.maximum(probs, FLOOR))


def ridge(split: Split) -> Predicted:
    from sklearn.linear_model import BayesianRidge

    x, test = split.standardised()
    return gaussian(*BayesianRidge().fit(x, split.y).predict(test, return_std=True))


def forest(split: Split) -> Predicted:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    if split.n_classes:
        model = RandomForestClassifier(N_TREES, random_state=split.seed).fit(split.x, split.y)
        probs = np.tile(MIXED_IN * split.frequencies(), (len(split.test), 1))
        probs[:, model.classes_] += (1 - MIXED_IN) * model.predict_proba(split.test)
        return categorical(probs)
    model = RandomForestRegressor(N_TREES, oob_score=True, random_state=split.seed).fit(split.x, split.y)
    sd = math.sqrt(np.mean((split.y - model.oob_prediction_) ** 2))
    return gaussian(model.predict(split.test), np.full(len(split.test), sd))


def gp(split: Split) -> Predicted:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    x, test = split.standardised()
    kernel = ConstantKernel() * RBF(math.sqrt(x.shape[1])) + WhiteKernel()
    model = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=2, random_state=split.seed)
    return gaussian(*model.fit(x, split.y).predict(test, return_std=True))


def categorical(probs: np.ndarray) -> CategoricalPredictive:
    return CategoricalPredictive(logits=torch.tensor(probs).double().log()[None])


def gaussian(means: np.ndarray, sds: np.ndarray) -> GaussianPredictive:
    return GaussianPredictive(means=torch.tensor(means)[None].double(), variances=torch.tensor(sds)[None].double() ** 2)


MLP = {"name": "mlp"}
AUTO = posterior("auto", None, sees_pool=True)
BASELINE = {"classes": "frequencies", "numbers": "mean"}
METHODS: dict[str, dict[str, Method]] = {  # the order of measuring, so that a run that is stopped has the first
    "classes": {
        "auto": AUTO,
        "frequencies": frequencies,
        "logistic": logistic,
        "deep_ensemble": posterior("deep_ensemble", MLP),
        "forest": forest,
    },
    "numbers": {
        "auto": AUTO,
        "mean": mean,
        "bayesian_ridge": ridge,
        "deep_ensemble": posterior("deep_ensemble", MLP),
        "forest": forest,
        "gp_sklearn": gp,
    },
}
REGISTRY: dict[str, Method] = {name: AUTO if name == "auto" else posterior(name, MLP) for name in bc.POSTERIORS}

Key = tuple[str, str, int, int]  # set, method, n, seed
Cells = dict[Key, dict[str, Any]]


def main() -> int:
    options = parsed()
    torch.set_num_threads(1)
    sets = [rows for rows in read_sets(options.data) if not options.sets or rows.name in options.sets]
    cells = read_cells(options.results, options.fresh)
    if not options.only_tables:
        measure_all(sets, cells, options)
    seeds = range(options.seeds)
    kinds = [task for task in METHODS if named(sets, task)]
    if options.posteriors:
        tables = [summary(task, cells, named(sets, task), list(REGISTRY), SOME_SIZES, seeds) for task in kinds]
        text = "\n\n".join(tables)
        insert(options.page, "posteriors", text)
    elif options.best:
        best = best_posteriors(cells, sets, options.best)
        tables = [summary(task, cells, named(sets, task), ["auto", *best[task]], SIZES, seeds) for task in kinds]
        text = "\n\n".join(tables)
        insert(options.page, "best", text)
    else:
        text = report(cells, sets, seeds)
        insert(options.page, "methods", text)
        draw(cells, sets, seeds, options.plot)
    print(text)
    return 0


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/pools"), help="folder of NAME.npz")
    parser.add_argument("--sets", nargs="*", default=[], help="names of sets; all by default")
    parser.add_argument("--methods", nargs="*", default=[], help="measure these alone; all by default")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="two seeds")
    parser.add_argument("--posteriors", action="store_true", help="every posterior, on four sets")
    parser.add_argument("--best", type=int, default=0, metavar="N", help="the N best of --posteriors, on all sets")
    parser.add_argument("--minutes", type=float, default=5.0, help="most of the processor that a cell may take")
    parser.add_argument("--results", type=Path, default=Path("build/few_labels/cells.jsonl"), help="measured cells")
    parser.add_argument("--fresh", nargs="*", default=[], metavar="METHOD", help="measure these methods again")
    parser.add_argument("--only-tables", action="store_true", help="measure nothing")
    parser.add_argument("--page", type=Path, default=Path("docs/few_labels.md"), help="where the tables go")
    parser.add_argument("--plot", type=Path, default=Path("docs/few_labels.png"))
    options = parser.parse_args()
    if not list(options.data.glob("*.npz")):
        parser.error(f"no *.npz in {options.data}; pass --data (npz files with x [N, D], y [N], classes)")
    if options.posteriors:
        options.sets, options.seeds = options.sets or list(SOME_SETS), min(options.seeds, SOME_SEEDS)
    if options.quick:
        options.seeds = min(options.seeds, 2)
    return options


def read_sets(folder: Path) -> list[Rows]:
    from sklearn.datasets import load_diabetes, load_digits

    sets = []
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as file:
            n_classes = len(file["classes"])
            y = file["y"].astype(np.int64 if n_classes else np.float32)
            sets.append(Rows(name=path.stem, x=file["x"].astype(np.float32), y=y, n_classes=n_classes))
    digits, diabetes = load_digits(), load_diabetes()
    sets.append(Rows(name="digits", x=digits.data.astype(np.float32), y=digits.target.astype(np.int64), n_classes=10))
    sets.append(
        Rows(name="diabetes", x=diabetes.data.astype(np.float32), y=diabetes.target.astype(np.float32), n_classes=0)
    )
    return sets


def named(sets: Sequence[Rows], task: str) -> list[str]:
    return [rows.name for rows in sets if rows.task == task]


def read_cells(path: Path, fresh: Iterable[str]) -> Cells:
    """A later line replaces an earlier one."""
    cells: Cells = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        cell = json.loads(line)
        cells[cell["set"], cell["method"], cell["n"], cell["seed"]] = cell
    return {key: cell for key, cell in cells.items() if key[1] not in fresh}


def measure_all(sets: Sequence[Rows], cells: Cells, options: argparse.Namespace) -> None:
    options.results.parent.mkdir(parents=True, exist_ok=True)
    methods_of: dict[str, dict[str, Method]] = dict.fromkeys(METHODS, REGISTRY) if options.posteriors else METHODS
    if options.best:
        best = best_posteriors(cells, sets, options.best)
        methods_of = {task: {name: REGISTRY[name] for name in ("auto", *names)} for task, names in best.items()}
    known = dict.fromkeys(name for methods in methods_of.values() for name in methods)
    with options.results.open("a") as file:
        for seed in range(options.seeds):
            for name in known:
                for rows in sets:
                    method = methods_of[rows.task].get(name)
                    if method is None or (options.methods and name not in options.methods):
                        continue
                    for n in SOME_SIZES if options.posteriors else rows.sizes:
                        key = rows.name, name, n, seed
                        if key in cells or given_up(cells, key):
                            continue
                        cells[key] = measure(rows, name, method, n, seed, minutes=options.minutes)
                        file.write(json.dumps(cells[key]) + "\n")
                        file.flush()
                print(f"seed {seed} {name}: done at {time.strftime('%H:%M:%S')}", file=sys.stderr, flush=True)


def given_up(cells: Cells, key: Key) -> bool:
    """Whether the method does not suit this set, it said so once, or takes too long there with as many labels."""
    of_set = [cell for other, cell in cells.items() if other[:2] == key[:2]]
    return any("refused" in cell or ("slow" in cell and cell["n"] <= key[2]) for cell in of_set)


@contextmanager
def at_most(minutes: float) -> Iterator[None]:
    """TimeoutError once the block has used the processor for so long."""

    def stop(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, 60 * minutes)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def measure(rows: Rows, name: str, method: Method, n: int, seed: int, *, minutes: float) -> dict[str, Any]:
    split, y = divide(rows, n, seed)
    cell: dict[str, Any] = {"set": rows.name, "method": name, "n": n, "seed": seed}
    started = time.process_time()
    try:
        with warnings.catch_warnings(), at_most(minutes):
            # of solvers that stop before they are done: a figure of theirs is the answer to whether that matters
            warnings.simplefilter("ignore")
            predicted = method(split)
    except TimeoutError:
        return {**cell, "slow": f"over {minutes:g} minutes of the processor"}
    except (bc.InvalidOption, bc.InvalidModel) as reason:
        return {**cell, "refused": str(reason)}
    except (bc.BensembleError, torch.linalg.LinAlgError, ValueError, RuntimeError) as problem:
        return {**cell, "failed": f"{type(problem).__name__}: {problem}"}
    seconds = time.process_time() - started
    found = bc.metrics.evaluate(predicted, torch.tensor(y), level=None if rows.n_classes else 0.9)
    if not rows.n_classes:
        sd = float(rows.y.std(dtype=np.float64))
        found = {**found, "rmse": found["rmse"] / sd, "nll": found["nll"] - math.log(sd), "sd": sd}
    return {**cell, **found, "n": n, "n_test": len(y), "seconds": seconds}


def divide(rows: Rows, n: int, seed: int) -> tuple[Split, np.ndarray]:
    """The split, and the answers for its test rows."""
    order = np.random.default_rng([seed, zlib.crc32(rows.name.encode())]).permutation(len(rows.y))
    n_test = min(N_TEST, len(order) // 4)
    test, pool = order[:n_test], order[n_test : n_test + N_POOL]
    split = Split(
        x=rows.x[pool[:n]],
        y=rows.y[pool[:n]],
        pool=rows.x[pool],
        test=rows.x[test],
        n_classes=rows.n_classes,
        seed=seed,
    )
    return split, rows.y[test]


def report(cells: Cells, sets: Sequence[Rows], seeds: Sequence[int]) -> str:
    parts = []
    for task, methods in METHODS.items():
        names = named(sets, task)
        if names:
            whole = complete(cells, names, list(methods), seeds)
            parts.append(summary(task, cells, names, list(methods), SIZES, whole))
            parts.append(beside_best(task, cells, names, list(methods), whole))
    parts.append(losses(cells, sets, seeds))
    parts.append(checks(cells, sets, seeds))
    return "\n\n".join(parts)


def complete(cells: Cells, sets: Sequence[str], methods: Sequence[str], seeds: Sequence[int]) -> Sequence[int]:
    """The seeds that every method has all cells of, refusals and failures included; all, where there is none."""
    keys = [(name, method, n) for name in sets for method in methods for n in SIZES]
    return [seed for seed in seeds if all((*key, seed) in cells for key in keys)] or seeds


def summary(
    task: str, cells: Cells, sets: Sequence[str], methods: Sequence[str], sizes: Sequence[int], seeds: Sequence[int]
) -> str:
    """One line for each method that has all cells of some seeds: the others are named with the reason."""
    good, second, at = ("accuracy", "accuracy", "ece") if task == "classes" else ("rmse", "RMSE", "coverage")
    every = [(name, n, seed) for name in sets for n in sizes for seed in seeds]
    left = {m: why for m in methods if (why := missing(cells, every, m))}
    # a seed that is half done would compare methods on different sets
    present = [m for m in methods if m not in left]
    if not present:
        return f"No method has all cells of {task}: {'; '.join(left.values())}."
    label = 160 if 160 in sizes else 80
    kind = "ECE" if task == "classes" else "90 % interval covers"
    listed = ", ".join(map(str, sizes))
    head = ["method", "rank in NLL", f"rank in {second}", f"NLL at {listed}", f"{second} at {listed}"]
    head += [f"{kind} at {label}", "s"]
    lines = [
        f"**{task.capitalize()}**: {counted(sets, 'set')}, {counted(seeds, 'seed')}, n = {listed}.",
        "",
        f"| {' | '.join(head)} |",
        "|" + "---|" * len(head),
    ]
    ranks = {metric: mean_ranks(cells, sets, present, sizes, seeds, metric) for metric in ("nll", good)}
    for m in sorted(present, key=lambda m: float(np.mean(ranks["nll"][m]))):
        at_n = {
            metric: [np.mean([cells[s, m, n, seed][metric] for s in sets for seed in seeds]) for n in sizes]
            for metric in ("nll", good)
        }
        row = [f"**{m}**" if m == "auto" else m, *(with_error(ranks[k][m], 1) for k in ("nll", good))]
        row += [" ".join(f"{short(value)}" for value in at_n[k]) for k in ("nll", good)]
        row.append(short(float(np.mean([cells[s, m, label, seed][at] for s in sets for seed in seeds]))))
        row.append(f"{np.mean([cells[s, m, n, seed]['seconds'] for s, n, seed in every]):.2f}")
        lines.append(f"| {' | '.join(row)} |")
    parts = {m: part for m in left if (part := [key for key in every if "nll" in cells.get((key[0], m, *key[1:]), {})])}
    if parts:
        lines += ["", *in_part(cells, parts, good, second)]
    if left:
        lines += ["", "Not in the table: " + "; ".join(left.values()) + "."]
    return "\n".join(lines)


def in_part(cells: Cells, parts: Mapping[str, Sequence[tuple[str, int, int]]], good: str, second: str) -> list[str]:
    """Methods that have some cells, beside `auto` on the very same ones."""
    lines = [
        f"Measured in part, each beside `auto` on the same cells:\n\n| method | cells | NLL | of `auto` | {second} | "
        "of `auto` | s |",
        "|" + "---|" * 7,
    ]
    for m, keys in parts.items():
        by_set = {name: [key for key in keys if key[0] == name] for name in dict.fromkeys(key[0] for key in keys)}
        seeds = len({seed for _, _, seed in keys})
        which = "; ".join(
            f"{name} at {', '.join(map(str, sorted({k[1] for k in own})))}" for name, own in by_set.items()
        )
        row = [m, f"{which} ({seeds} seed{'s' * (seeds > 1)})"]
        for metric in ("nll", good):
            for of in (m, "auto"):
                row.append(short(float(np.mean([cells[name, of, n, seed][metric] for name, n, seed in keys]))))
        row.append(f"{np.mean([cells[name, m, n, seed]['seconds'] for name, n, seed in keys]):.0f}")
        lines.append(f"| {' | '.join(row)} |")
    return lines


def missing(cells: Cells, every: Iterable[tuple[str, int, int]], method: str) -> str:
    """Why a method is in no table: empty if it is."""
    found = [cells.get((name, method, n, seed), {}) for name, n, seed in every]
    for why, said in (("refused", "refused"), ("failed", "failed"), ("slow", "was given up")):
        if reasons := [f"{cell['set']} at {cell['n']}: {cell[why]}" for cell in found if why in cell]:
            return f"`{method}` {said} ({reasons[0]})"
    absent = sum("nll" not in cell for cell in found)
    return f"`{method}` has {len(found) - absent} of {len(found)} cells" if absent else ""


def best_posteriors(cells: Cells, sets: Sequence[Rows], n_best: int) -> dict[str, list[str]]:
    """Of each task the posteriors but `auto` with the best mean rank in NLL on the four sets of `--posteriors`."""
    best = {}
    for task in METHODS:
        names = [name for name in SOME_SETS if name in named(sets, task)]
        every = [(name, n, seed) for name in names for n in SOME_SIZES for seed in range(SOME_SEEDS)]
        present = [m for m in REGISTRY if not missing(cells, every, m)]
        ranks = mean_ranks(cells, names, present, SOME_SIZES, range(SOME_SEEDS), "nll") if names else {}
        in_order = sorted(ranks, key=lambda m: float(np.mean(ranks[m])))
        best[task] = [m for m in in_order if m != "auto"][:n_best]
    return best


def mean_ranks(
    cells: Cells, sets: Sequence[str], methods: Sequence[str], sizes: Sequence[int], seeds: Sequence[int], metric: str
) -> dict[str, list[float]]:
    """Each method's mean rank on every set, 1 the best; ties share theirs."""
    from scipy.stats import rankdata

    sign = -1 if metric == "accuracy" else 1
    by_set = []
    for name in sets:
        table = [[sign * cells[name, m, n, seed][metric] for m in methods] for n in sizes for seed in seeds]
        by_set.append(rankdata(table, axis=1).mean(0))
    return {m: [float(ranks[i]) for ranks in by_set] for i, m in enumerate(methods)}


def beside_best(task: str, cells: Cells, sets: Sequence[str], methods: Sequence[str], seeds: Sequence[int]) -> str:
    """Of every set the NLL of `auto`, and of the best other method at that n."""
    every = [(name, n, seed) for name in sets for n in SIZES for seed in seeds]
    present = [m for m in methods if not missing(cells, every, m)]
    if "auto" not in present or len(present) < 2:
        return f"Nothing to set beside `auto` on {task} yet."
    lines = [
        f"NLL of `auto` on each set of {task}, the best other method's behind it; bold where that one is lower:",
        "",
        "| set | " + " | ".join(map(str, SIZES)) + " |",
        "|" + "---|" * (1 + len(SIZES)),
    ]
    for name in sets:
        row = []
        for n in SIZES:
            scores = {m: float(np.mean([cells[name, m, n, seed]["nll"] for seed in seeds])) for m in present}
            own = scores.pop("auto")
            best = min(scores, key=scores.__getitem__)
            text = f"{short(own)} / {short(scores[best])} {best}"
            row.append(f"**{text}**" if scores[best] < own else text)
        lines.append(f"| {name} | {' | '.join(row)} |")
    return "\n".join(lines)


def losses(cells: Cells, sets: Sequence[Rows], seeds: Sequence[int]) -> str:
    """Where `auto` is worse than no model at all, by the seeds that both have."""
    lines, n_compared = [], 0
    for rows in sets:
        for n in SIZES:
            keys = [((rows.name, "auto", n, s), (rows.name, BASELINE[rows.task], n, s)) for s in seeds]
            keys = [pair for pair in keys if all("nll" in cells.get(key, {}) for key in pair)]
            if not keys:
                continue
            n_compared += 1
            own, plain = (np.array([cells[pair[i]]["nll"] for pair in keys]) for i in (0, 1))
            error = np.std(own - plain, ddof=1) / math.sqrt(len(own)) if len(own) > 1 else 0.0
            if np.mean(own - plain) > error:
                row = [rows.name, str(n), short(own.mean()), short(plain.mean()), with_error(own - plain, 2)]
                lines.append(f"| {' | '.join([*row, ', '.join(short(v) for v in own - plain)])} |")
    title = "Where `auto` has a worse NLL than frequencies, or the mean, by more than a standard error over the seeds"
    if not lines:
        return f"{title}: nowhere, of {n_compared} pairs of a set and a size."
    head = "| set | n | auto | frequencies or mean | difference | by seed |"
    return "\n".join([f"{title}: {len(lines)} of {n_compared}.", "", head, "|" + "---|" * 6, *lines])


def checks(cells: Cells, sets: Sequence[Rows], seeds: Sequence[int]) -> str:
    def values(name: str, method: str, n: int, metric: str) -> list[float]:
        found = [cells.get((name, method, n, seed), {}) for seed in seeds]
        return [cell[metric] for cell in found if metric in cell]

    lines = []
    if errors := [e for name in named(sets, "classes") for e in values(name, "auto", 160, "ece")]:
        average = float(np.mean(errors))
        lines.append(f"- mean ECE of `auto` at 160 labels is {average:.3f}: {verdict(average <= 0.05)} (at most .05)")
    if errors := [r * s for r, s in zip(*(values("diabetes", "auto", 40, k) for k in ("rmse", "sd")), strict=True)]:
        said = f"{with_error(errors, 1)}: {verdict(np.mean(errors) <= 60)} (at most 60)"
        lines.append(f"- diabetes, 40 labels: RMSE of `auto` is {said}")
    own, other = ({k: values(CHECK[0], m, CHECK[1], k) for k in ("nll", "accuracy")} for m in ("auto", "deep_ensemble"))
    if own["nll"] and other["nll"]:
        said = "; ".join(
            f"{k.replace('nll', 'NLL')} {with_error(own[k], 3)} beside {with_error(other[k], 3)}" for k in own
        )
        better = np.mean(own["nll"]) < np.mean(other["nll"]) and np.mean(own["accuracy"]) >= np.mean(other["accuracy"])
        lines.append(f"- digits, 100 labels, `auto` beside `deep_ensemble`: {said}: {verdict(better)} (better in both)")
    return "\n".join(["Checks:", "", *lines]) if lines else "No check has its cells yet."


def counted(things: Sequence[Any], what: str) -> str:
    return f"{len(things)} {what}{'s' * (len(things) != 1)}"


def verdict(holds: Any) -> str:
    return "holds" if holds else "**fails**"


def short(value: float) -> str:
    """Three digits, without the zero before the point."""
    if not math.isfinite(value) or abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.3f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.2f}"


def with_error(values: Sequence[float] | np.ndarray, digits: int) -> str:
    error = f" ± {np.std(values, ddof=1) / math.sqrt(len(values)):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{error}"


def insert(page: Path, part: str, text: str) -> None:
    """Replace what lies between the marks of that part."""
    first, last = (mark.format(part) for mark in MARKS)
    if page.exists() and first in (old := page.read_text()):
        before, after = old.split(first)[0], old.split(last)[1]
        page.write_text(f"{before}{first}\n\n{text}\n\n{last}{after}")


def draw(cells: Cells, sets: Sequence[Rows], seeds: Sequence[int], path: Path) -> None:
    """NLL, and accuracy or RMSE, against n: the mean over sets and seeds."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 4, figsize=(12, 3.2), layout="constrained")
    known = dict.fromkeys(m for methods in METHODS.values() for m in methods)
    colours = {m: f"C{i}" for i, m in enumerate(known)}
    for (task, methods), pair in zip(METHODS.items(), (panels[:2], panels[2:]), strict=True):
        names = named(sets, task)
        whole = complete(cells, names, list(methods), seeds)
        every = [(name, n, seed) for name in names for n in SIZES for seed in whole]
        for panel, metric in zip(pair, ("nll", "accuracy" if task == "classes" else "rmse"), strict=True):
            top = 0.0
            for m in methods:
                if not names or missing(cells, every, m):
                    continue
                line = [np.mean([cells[s, m, n, seed][metric] for s in names for seed in whole]) for n in SIZES]
                width = 2.4 if m == "auto" else 1.3
                panel.plot(SIZES, line, "o-", label=m, color=colours[m], lw=width, ms=width + 1.5)
                top = 1.3 * max(line) if m == BASELINE[task] else top
            if metric != "accuracy" and top:  # what is far worse than no model leaves the panel
                panel.set_ylim(top=min(panel.get_ylim()[1], top))
            panel.set(xscale="log", xlabel="labels", title=f"{task}: {metric.upper() if len(metric) < 5 else metric}")
            panel.set_xticks(SIZES, [str(n) for n in SIZES])
            panel.minorticks_off()
            panel.grid(alpha=0.3)
        pair[0].legend(fontsize=7)
    figure.savefig(path, dpi=90)
    plt.close(figure)


if __name__ == "__main__":
    sys.exit(main())
