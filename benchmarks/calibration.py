"""What calibration does to the NLL of test rows: `python benchmarks/calibration.py --data ../shared/data/pools`.

For every set of classes and of numbers, 40 and 160 random labels: `auto` with and without the calibration of its own
folds, and `deep_ensemble`, `laplace` and `mc_dropout` with and without that of `fit_calibrated` (five folds). A cell is
a set and a size; its difference is paired by seed. The aim: nowhere worse by more than a standard error.
"""

import argparse
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from labels_saved_task import Task, read_tasks

import bensemble_core as bc

MLP = {"name": "mlp"}
SIZES = (40, 160)
ROUNDING = 1e-6  # nats
METHODS = ("auto", "deep_ensemble", "laplace", "mc_dropout")


def calibrated(name: str, task: Task, seed: int, n: int) -> tuple[bc.Ensemble, np.ndarray]:
    """An ensemble with its calibration, and its test rows."""
    pool, test = task.split(seed)
    x, y = task.x[pool].astype(np.float32), task.y[pool]
    likelihood = bc.Categorical(n_classes=task.n_classes) if task.n_classes else "gaussian"
    data = (x[:n], y[:n])
    if name == "auto":
        fitted = bc.fit(name, None, data, likelihood=likelihood, seed=seed, unlabelled=x)
        return fitted.sample(20, seed=seed, at_most=True), test
    found = bc.fit_calibrated(name, MLP, data, likelihood=likelihood, seed=seed)
    return replace(found.fitted.sample(20, seed=seed, at_most=True), calibration=found.calibration), test


def before_and_after(name: str, task: Task, seed: int, n: int) -> tuple[float, float]:
    """NLL without and with it, in sds of the target."""
    ensemble, test = calibrated(name, task, seed, n)
    y, unit = torch.from_numpy(task.y[test]), 0.0 if task.n_classes else math.log(task.y.std())
    rows = task.x[test].astype(np.float32)
    before = bc.metrics.nll(replace(ensemble, calibration=None).predict(rows), y)
    return before - unit, bc.metrics.nll(ensemble.predict(rows), y) - unit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of npz files; without it, digits and diabetes alone")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    given = parser.parse_args()
    torch.set_num_threads(1)
    print("| method | | cells | NLL before | after | better in | worse by more than a standard error |\n|" + "---|" * 7)
    for name in given.methods:
        for kind in ("classes", "numbers"):
            before, after, worse, better = [], [], [], 0
            own = [task for task in read_tasks(given.data) if task.kind == kind]
            for task in own:
                for n in SIZES:
                    pairs = np.array([before_and_after(name, task, seed, n) for seed in range(given.seeds)])
                    gain = pairs[:, 1] - pairs[:, 0]
                    before.append(pairs[:, 0].mean())
                    after.append(pairs[:, 1].mean())
                    better += int(gain.mean() < 0)
                    if gain.mean() > gain.std(ddof=1) / math.sqrt(len(gain)) + ROUNDING:
                        worse.append(f"{task.name} {n} ({gain.mean():+.4f})")
            print(
                f"| {name} | {kind} | {len(before)} | {np.mean(before):.3f} | {np.mean(after):.3f} | {better} | "
                f"{', '.join(worse) or 'nowhere'} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
