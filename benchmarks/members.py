"""Accuracy and NLL against the number of members: `python benchmarks/members.py [--quick] [--plot docs/members.png]`.

scikit-learn's digits, 500 rows to learn from and the rest to test on, a 64-64-64-10 network. Accuracy is near its best
with a few members; the log-likelihood of the averaged predictive goes on improving. Methods of kept members are fitted
once at the largest number; batch_ensemble, whose members share weights and deal each batch among them, once per number
(past about eight a member sees too few rows of a batch, and the NLL rises again); densities are sampled once. Each
figure is a mean over random subsets of the members and over the repeats.
"""

import argparse
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import bensemble_core as bc

MODEL = {"name": "mlp", "hidden": [64, 64]}
N_TRAIN = 500
N_SUBSETS = 20
COUNTS = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True, kw_only=True)
class Method:
    """A posterior and its options, with `size` the option that counts members, if it keeps them."""

    options: dict[str, Any]
    size: str | None = None
    refit: bool = False  # one fit per number of members


METHODS: dict[str, Method] = {
    "deep_ensemble": Method(options={}, size="members"),
    "snapshot_ensemble": Method(options={}, size="cycles"),
    "mc_dropout": Method(options={"rate": 0.2}),
    "swag": Method(options={"rank": 5}),
    "multi_swag": Method(options={"members": 4, "rank": 5}),
    "laplace": Method(options={"prior_precision": "validation"}),
    "mfvi": Method(options={}),
    "batch_ensemble": Method(options={}, size="members", refit=True),
    "rank1_bnn": Method(options={"components": 4}),
}
EPOCHS = {"snapshot_ensemble": 5, "mfvi": 2, "batch_ensemble": 2}  # times the epochs of the others
Curve = dict[int, tuple[float, float]]  # members -> accuracy, NLL


def digits(seed: int) -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    order = torch.randperm(len(bunch.target), generator=torch.Generator().manual_seed(seed))
    return torch.tensor(bunch.data, dtype=torch.float32)[order], torch.tensor(bunch.target)[order]


def scores(log_probs: Tensor, y: Tensor, n: int, seed: int) -> tuple[float, float]:
    """Accuracy and NLL of n of the members, log_probs [M, N, C], averaged over subsets."""
    g = torch.Generator().manual_seed(seed)
    m = log_probs.shape[0]
    subsets = [torch.randperm(m, generator=g)[:n] for _ in range(1 if n == m else N_SUBSETS)]
    accuracy, nll = 0.0, 0.0
    for chosen in subsets:
        mean = log_probs[chosen].double().logsumexp(0) - torch.tensor(float(n)).log()
        accuracy += float((mean.argmax(1) == y).double().mean()) / len(subsets)
        nll -= float(mean.gather(1, y[:, None]).mean()) / len(subsets)
    return accuracy, nll


def curve(name: str, counts: tuple[int, ...], epochs: int, seed: int) -> Curve:
    """The scores of one method for each number of members."""
    method = METHODS[name]
    x, y = digits(seed)
    x_test, y_test = x[N_TRAIN:], y[N_TRAIN:]
    found: Curve = {}
    most = max(counts)
    log_probs = None
    for n in counts:
        if log_probs is None or method.refit:
            size = {} if method.size is None else {method.size: n if method.refit else most}
            fitted = bc.fit(
                name,
                MODEL,
                (x[:N_TRAIN], y[:N_TRAIN]),
                likelihood="categorical",
                seed=seed,
                epochs=EPOCHS.get(name, 1) * epochs,
                **method.options,
                **size,
            )
            log_probs = fitted.sample(most, seed=seed).predict(x_test).log_probs
        if log_probs.shape[0] < n:
            break
        found[n] = scores(log_probs, y_test, n, seed)
    return found


def average(curves: list[Curve]) -> Curve:
    return {n: tuple(sum(c[n][i] for c in curves) / len(curves) for i in (0, 1)) for n in curves[0]}  # type: ignore[misc]


def draw(path: Path, curves: dict[str, Curve]) -> None:
    """Two panels, small."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(8, 3.2), dpi=100)
    for which, (axis, title) in enumerate(zip(axes, ("accuracy", "negative log-likelihood"), strict=True)):
        for name, found in curves.items():
            axis.plot(
                list(found), [v[which] for v in found.values()], marker="o", markersize=3, linewidth=1, label=name
            )
        axis.set_xscale("log", base=2)
        axis.set_ylim(**({"bottom": 0.93} if which == 0 else {"top": 0.35, "bottom": 0.1}))  # the table has the rest
        axis.set_xticks(COUNTS, [str(n) for n in COUNTS])
        axis.set_xlabel("members")
        axis.set_title(title, fontsize=10)
        axis.grid(alpha=0.3)
    axes[1].legend(fontsize=6)
    figure.tight_layout()
    figure.savefig(path, metadata={"Software": None})
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one repeat, fewer epochs, up to 8 members")
    parser.add_argument("--plot", type=Path, default=Path(__file__).resolve().parents[1] / "docs" / "members.png")
    parser.add_argument("--methods", default=",".join(METHODS), help="which, separated by commas")
    given = parser.parse_args()
    torch.set_num_threads(1)
    counts = COUNTS[:4] if given.quick else COUNTS
    epochs, n_repeats = (15, 1) if given.quick else (40, 2)
    print(f"digits, {N_TRAIN} rows, {epochs} epochs, torch {torch.__version__}, {platform.machine()}")
    print(f"{'accuracy / NLL':18}" + "".join(f"{n:>16}" for n in counts) + f"{'seconds':>9}")
    curves: dict[str, Curve] = {}
    for name in given.methods.split(","):
        if name not in bc.POSTERIORS:
            continue
        start = time.perf_counter()
        curves[name] = average([curve(name, counts, epochs, seed) for seed in range(n_repeats)])
        cells = [f"{curves[name][n][0]:.4f} / {curves[name][n][1]:.4f}" if n in curves[name] else "" for n in counts]
        print(f"{name:18}" + "".join(f"{c:>16}" for c in cells) + f"{time.perf_counter() - start:9.1f}", flush=True)
    if not given.quick:
        draw(given.plot, curves)
        print(f"wrote {given.plot.name}")


if __name__ == "__main__":
    main()
