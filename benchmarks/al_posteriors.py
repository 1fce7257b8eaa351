"""Which posterior pays for active learning: `python benchmarks/al_posteriors.py [--seeds 3] [--plot docs/…png]`.

scikit-learn's digits and a 64-64-64-10 network; the same loop with four posteriors at an equal number of gradient
steps a round in all (five members of 100 epochs, one run of 500), each with variation ratio and BALD, and random rows
for comparison. Jung et al. 2023 find that snapshots of one run are the best of it. Runs are recorded in
build/al_posteriors.jsonl and taken up again where they stopped; --fresh forgets them.
"""

import argparse
import statistics
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from active import Record, Run, Setting, draw, learn
from torch import Tensor

import bensemble_core as bc

MODEL = {"name": "mlp", "hidden": [64, 64]}
EPOCHS = 500  # in all, whatever the posterior makes of them
MEMBERS = 5
POSTERIORS: dict[str, tuple[str, dict[str, Any], int]] = {  # name, options, members sampled
    "snapshot": ("snapshot_ensemble", {"cycles": MEMBERS, "epochs": EPOCHS, "schedule": "constant"}, MEMBERS),
    "deep": ("deep_ensemble", {"members": MEMBERS, "epochs": EPOCHS // MEMBERS}, MEMBERS),
    "dropout": ("mc_dropout", {"rate": 0.2, "epochs": EPOCHS}, 20),
    "laplace": ("laplace", {"subset": "last_layer", "prior_precision": "marglik", "epochs": EPOCHS}, 20),
}
ACQUISITIONS = ("variation_ratio", "bald")
N_TEST = 600


@dataclass(frozen=True, kw_only=True)
class Study:
    posterior: str
    acquisition: str

    @property
    def name(self) -> str:
        return f"{self.posterior} {self.acquisition}"


STUDIES = [
    *(Study(posterior=p, acquisition=a) for p in POSTERIORS for a in ACQUISITIONS),
    Study(posterior="deep", acquisition="random"),
]


def fit(posterior: str, x: Tensor, y: Tensor, seed: int) -> bc.Ensemble:
    method, options, n_members = POSTERIORS[posterior]
    fitted = bc.fit(
        method, MODEL, (x, y), likelihood=bc.Categorical(n_classes=10), seed=seed, batch_size=32, lr=3e-3, **options
    )
    return fitted.sample(n_members, seed=seed)


def digits(most_labels: int) -> Setting:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    order = torch.randperm(len(bunch.target), generator=torch.Generator().manual_seed(0))
    x, y = torch.tensor(bunch.data / 16, dtype=torch.float32)[order], torch.tensor(bunch.target)[order]
    test, pool = (x[:N_TEST], y[:N_TEST]), (x[N_TEST:], y[N_TEST:])
    return Setting(pool=pool, test=test, per_round=10, most_labels=most_labels)


def table(record: Record) -> str:
    lines = [
        "posterior and score         seeds   last accuracy   last NLL   area under the accuracy   seconds a round",
        "---------------------------------------------------------------------------------------------------------",
    ]
    for study in STUDIES:
        runs = [record.rounds(study.name, seed) for seed in sorted({r["seed"] for r in record.rounds(study.name)})]
        runs = [run for run in runs if run]
        if not runs:
            continue
        last = [run[-1]["accuracy"] for run in runs]
        nll = [run[-1]["nll"] for run in runs]
        area = [statistics.fmean(line["accuracy"] for line in run) for run in runs]
        seconds = statistics.median(sum(line["seconds"]) for run in runs for line in run)
        lines.append(
            f"{study.name:26s}  {len(runs):5d}   {_spread(last)}   {statistics.fmean(nll):8.3f}   "
            f"{_spread(area):>23s}   {seconds:15.1f}"
        )
    return "\n".join(lines)


def _spread(values: list[float]) -> str:
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return f"{statistics.fmean(values):.3f} ± {error:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--labels", type=int, default=200, help="most labels of a run")
    parser.add_argument("--threads", type=int, default=0, help="of torch; 0 lets it choose")
    parser.add_argument("--record", type=Path, default=Path("build/al_posteriors.jsonl"))
    parser.add_argument("--fresh", action="store_true", help="forget earlier runs")
    parser.add_argument("--plot", type=Path, help="draw the curves of BALD into this PNG")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    if arguments.fresh:
        arguments.record.unlink(missing_ok=True)
    record, setting, started = Record(arguments.record), digits(arguments.labels), time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - started:6.0f} s] {line}", flush=True)

    for seed in range(arguments.seeds):
        for study in STUDIES:
            run = Run(
                name=study.name,
                seed=seed,
                fit=partial(fit, study.posterior),
                acquisition=study.acquisition,
                selection="top_k",
            )
            learn(run, setting, record, say)
    if arguments.plot is not None:
        shown = [study.name for study in STUDIES if study.acquisition != "variation_ratio"]
        draw(record, shown, arguments.plot, "digits: which posterior pays for active learning")
    print(f"\n{table(record)}")


if __name__ == "__main__":
    main()
