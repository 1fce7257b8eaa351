"""Where members lie in function space, and the loss between them: `python benchmarks/modes.py [--quick]`.

scikit-learn's digits, 500 rows to learn from and the rest to test on, a 64-16-10 network of 1,210 weights.

(a) Predictions along training runs and chains, in two dimensions: the class probabilities of each network on the test
    rows are one long vector, and all of them are projected on their first two principal components (after Fort et al.
    2019, who take t-SNE).
(b) The disagreement of each member with the others, which is the share of test rows on which another differs from it
    over its own error rate, against its accuracy.
(c) The rate and the test error along a run with a cyclical rate, and of the average of the weights that it collects at
    the ends of cycles (Izmailov et al. 2018).
(d) What training minimises, −log p(D, θ) / N up to a constant, on the plane through that run's three collected weights,
    whose average is that of `swa`.
"""

import argparse
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import bensemble_core as bc
from bensemble_core.posteriors.averaging.swag import rate_schedule
from bensemble_core.posteriors.networks import Networks
from bensemble_core.training.descent import Run
from bensemble_core.types import Data, Problem, Tensors

MODEL = {"name": "mlp", "hidden": [16]}
N_TRAIN = 500
N_MEMBERS = 20
COLOURS = {"deep_ensemble": "tab:blue", "snapshot_ensemble": "tab:orange", "swag": "tab:green", "hmc": "tab:red"}


@dataclass(frozen=True, kw_only=True)
class Plan:
    epochs: int  # of one network; a snapshot ensemble takes five times as many
    every: int  # epochs between two points of a run
    chain: dict[str, int]  # options of hmc


FULL = Plan(epochs=60, every=2, chain={"samples": 300, "warmup": 600, "leapfrog": 128})
QUICK = Plan(epochs=20, every=2, chain={"samples": 20, "warmup": 40, "leapfrog": 16})


@dataclass(frozen=True, kw_only=True, eq=False)
class Traced:
    """What was met on the way, and what is kept of it."""

    name: str
    runs: Tensor  # [R, T, N, C] log-probabilities on the test rows along R runs
    members: Tensor  # [M, N, C]
    seconds: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Cyclical:
    """A run whose rate falls in cycles, at the ends of which weights are collected."""

    rates: list[float]  # of each epoch, at its end
    errors: list[float]  # on the test rows, after each epoch
    collected: list[int]  # epochs
    average_errors: list[float]  # of the average of the weights so far, after each of them
    xs: Tensor  # of the plane, in units of the distance between weights
    ys: Tensor
    losses: Tensor  # [Y, X] of training
    points: Tensor  # [4, 2] the three collected weights and their average
    point_losses: list[float]  # of training
    point_errors: list[float]  # on the test rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short runs: a look, not a figure; draws below build/")
    parser.add_argument("--plot", type=Path, help="docs/modes.png by default")
    given = parser.parse_args()
    torch.set_num_threads(1)
    root = Path(__file__).resolve().parents[1]
    path = given.plot or root / ("build/modes-quick.png" if given.quick else "docs/modes.png")
    plan, task = (QUICK if given.quick else FULL), digits()
    traced = [trace(name, plan, task) for name in COLOURS]
    show(traced, task)
    cyclical = cycle(plan, task)
    names = ("first", "second", "third", "average")
    for name, loss, error in zip(names, cyclical.point_losses, cyclical.point_errors, strict=True):
        print(f"    {name:8} loss of training {loss:.4f}, test error {100 * error:.2f} %")
    path.parent.mkdir(parents=True, exist_ok=True)
    draw(path, traced, cyclical, task)
    print(f"wrote {path}: {path.stat().st_size / 1000:.0f} kB")


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor


def digits() -> Task:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    order = torch.randperm(len(bunch.target), generator=torch.Generator().manual_seed(0))
    x, y = torch.tensor(bunch.data, dtype=torch.float32)[order], torch.tensor(bunch.target)[order]
    return Task(x=x[:N_TRAIN], y=y[:N_TRAIN], x_test=x[N_TRAIN:], y_test=y[N_TRAIN:])


def recording(entry: type[Any], noted: list[dict[str, Tensor]]) -> type[Any]:
    """A method trained by descent that also notes its weights [M, ...] after every epoch."""

    class Recording(entry):  # type: ignore[misc]
        def run(self, problem: Problem, data: Data, *, seeds: list[int], warm: Tensors | None) -> Run:
            run: Run = super().run(problem, data, seeds=seeds, warm=warm)

            def watch(epoch: int, theta: Tensors, fixed: Tensors, kept: dict[str, Tensor]) -> None:
                if run.watch is not None:
                    run.watch(epoch, theta, fixed, kept)
                noted.append({k: v.clone() for k, v in theta.items()})

            return replace(run, watch=watch)

    return Recording


def fit(name: str, task: Task, *, seed: int, **options: Any) -> tuple[bc.Fitted, list[dict[str, Tensor]]]:
    """A fit, and the weights after each of its epochs."""
    noted: list[dict[str, Tensor]] = []
    entry = bc.POSTERIORS[name]
    if issubclass(entry, Networks):
        entry = recording(entry, noted)
    fitted = bc.fit(entry(**options), MODEL, (task.x, task.y), likelihood="categorical", seed=seed)
    return fitted, noted


def predicted(fitted: bc.Fitted, weights: Tensors, x: Tensor) -> Tensor:
    """Log-probabilities of plain networks [M, ...] on rows: [M, N, C]."""
    ensemble = bc.Ensemble(problem=fitted.problem, stacked=dict(weights), shared={})
    return ensemble.predict(x).log_probs


def trace(name: str, plan: Plan, task: Task) -> Traced:
    """Fit a method, and predict the test rows along the way."""
    options: dict[str, Any] = {
        "deep_ensemble": {"members": 5, "epochs": plan.epochs},
        "snapshot_ensemble": {"cycles": 5, "epochs": 5 * plan.epochs},
        "swag": {"rank": 10, "epochs": 2 * plan.epochs, "batch_size": 32},
        "hmc": {"chains": 3, **plan.chain},
    }[name]
    start = time.process_time()
    fitted, noted = fit(name, task, seed=list(COLOURS).index(name), **options)  # no two from one start
    seconds = time.process_time() - start
    members = fitted.sample(N_MEMBERS, seed=1, at_most=True).predict(task.x_test).log_probs
    if noted:
        steps = [predicted(fitted, weights, task.x_test) for weights in noted[plan.every - 1 :: plan.every]]
        runs = torch.stack(steps, 1)
    else:  # every draw of a chain is kept, chain after chain
        draws = predicted(fitted, {k: v for k, v in fitted.state.items() if "/" not in k}, task.x_test)
        runs = draws.unflatten(0, (options["chains"], -1))[:, :: max(1, options["samples"] // 40)]
    print(
        f"{name}: {len(runs)} runs of {runs.shape[1]} points, {seconds:.1f} s; {'; '.join(fitted.diagnostics.warnings)}"
    )
    return Traced(name=name, runs=runs, members=members, seconds=seconds)


def accuracy(log_probs: Tensor, y: Tensor) -> Tensor:
    """[M, N, C] -> [M]."""
    return (log_probs.argmax(-1) == y).double().mean(-1)


def disagreement(log_probs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Of each member: its accuracy, and the share of rows where another differs from it over its error rate: [M]."""
    voted, right = log_probs.argmax(-1), accuracy(log_probs, y)
    differ = (voted[:, None] != voted).double().mean(-1).sum(1) / (len(voted) - 1)
    return right, differ / (1 - right).clamp_min(1 / len(y))


def show(traced: list[Traced], task: Task) -> None:
    print(f"{'method':20}{'members':>8}{'member acc.':>13}{'ensemble acc.':>15}{'NLL':>8}{'disagreement':>14}{'s':>8}")
    for one in traced:
        mean = one.members.double().exp().mean(0).log()
        nll = -mean.gather(1, task.y_test[:, None]).mean()
        _, apart = disagreement(one.members, task.y_test)
        print(
            f"{one.name:20}{len(one.members):8}{float(accuracy(one.members, task.y_test).mean()):13.4f}"
            f"{float(accuracy(mean, task.y_test)):15.4f}{float(nll):8.4f}{float(apart.mean()):14.3f}{one.seconds:8.1f}"
        )


def cycle(plan: Plan, task: Task, n_grid: int = 41) -> Cyclical:
    """A run of three cycles by swag with rank 3, whose state has the average and the deviations of all three."""
    length = plan.epochs // 3
    options: dict[str, Any] = {
        "epochs": 4 * length,
        "cycle": length,
        "burn_in": 0.25,
        "lr": 0.03,
        "swa_lr_min": 0.001,
        "rank": 3,
        "batch_size": 32,
    }
    fitted, noted = fit("swag", task, seed=0, **options)
    names = [k for k in fitted.state if not k.startswith("swag/")]
    average = torch.cat([fitted.state[k].flatten() for k in names]).double()  # [P]
    apart = torch.cat([fitted.state[f"swag/deviation/{k}"][0].flatten(1) for k in names], 1).double()  # [3, P]
    collected = average + apart

    def networks(flat: Tensor) -> dict[str, Tensor]:
        parts = flat.float().split([fitted.state[k].numel() for k in names], 1)
        return {k: part.unflatten(1, fitted.state[k].shape[1:]) for k, part in zip(names, parts, strict=True)}

    def loss(flat: Tensor) -> Tensor:
        weights = networks(flat)
        log_probs = predicted(fitted, weights, task.x).gather(2, task.y[None, :, None].expand(len(flat), -1, 1))
        squares = sum(v.flatten(1).square().sum(1) for v in weights.values())  # of a prior N(0, 1)
        return -log_probs.mean((1, 2)) + 0.5 * squares / N_TRAIN

    across = collected[1] - collected[0]
    u = across / across.norm()
    up = collected[2] - collected[0]
    v = up - (up @ u) * u
    v = v / v.norm()
    marked = torch.cat([collected, collected.mean(0, keepdim=True)])
    points = torch.stack([(marked - collected[0]) @ u, (marked - collected[0]) @ v], 1)  # [4, 2]
    low, high = points.amin(0), points.amax(0)
    middle, half = 0.5 * (low + high), 0.9 * float((high - low).max())  # a square around them
    xs, ys = (torch.linspace(float(m) - half, float(m) + half, n_grid).double() for m in middle)
    plane = (collected[0] + xs[None, :, None] * u + ys[:, None, None] * v).flatten(0, 1)
    losses = torch.cat([loss(part) for part in plane.split(200)]).unflatten(0, (n_grid, n_grid))

    def errors(flat: Tensor) -> list[float]:
        return (1 - accuracy(predicted(fitted, networks(flat), task.x_test), task.y_test)).tolist()

    along = torch.cat([torch.cat([w[k].flatten(1) for k in names], 1) for w in noted]).double()
    factor = rate_schedule(fitted.posterior, N_TRAIN)
    so_far = torch.stack([collected[: i + 1].mean(0) for i in range(3)])
    n = options["epochs"]
    steps = -(-N_TRAIN // options["batch_size"])
    return Cyclical(
        rates=[options["lr"] * factor((e * steps + steps - 1) / (n * steps)) for e in range(n)],
        errors=errors(along),
        collected=[length * (i + 2) for i in range(3)],
        average_errors=errors(so_far),
        xs=xs,
        ys=ys,
        losses=losses,
        points=points,
        point_losses=loss(marked).tolist(),
        point_errors=errors(marked),
    )


def draw(path: Path, traced: list[Traced], cyclical: Cyclical, task: Task) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 2, figsize=(9, 7.4), dpi=100)
    draw_runs(axes[0, 0], traced)
    draw_disagreement(axes[0, 1], traced, task)
    draw_rate(axes[1, 0], cyclical)
    draw_plane(axes[1, 1], cyclical, figure)
    for axis in axes.flat:
        axis.tick_params(labelsize=7)
        axis.title.set_fontsize(9)
        axis.xaxis.label.set_fontsize(8)
        axis.yaxis.label.set_fontsize(8)
    handles, labels = axes[0, 1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", ncols=len(labels), fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 0.965))
    figure.savefig(path, metadata={"Software": None})
    pyplot.close(figure)


def draw_runs(axis: Any, traced: list[Traced]) -> None:
    """Lines along runs and chains, dots where members are; starts of training lie outside."""
    vectors = [one.runs.double().exp().flatten(2) for one in traced]  # [R, T, N·C]
    drawn = [one.members.double().exp().flatten(1) for one in traced]
    late = torch.cat(
        [v[:, v.shape[1] // 3 :].flatten(0, 1) for v in vectors] + drawn
    )  # the way there is not of interest
    centre = late.mean(0)
    _, _, axes = torch.linalg.svd(late - centre, full_matrices=False)
    basis = axes[:2].mT
    placed = (late - centre) @ basis
    shares = placed.square().sum(0) / (late - centre).square().sum()
    for one, runs, members in zip(traced, vectors, drawn, strict=True):
        colour = COLOURS[one.name]
        for run in (runs - centre) @ basis:  # [T, 2]
            axis.plot(run[:, 0], run[:, 1], color=colour, linewidth=0.7, alpha=0.6)
        where = (members - centre) @ basis
        axis.plot(where[:, 0], where[:, 1], "o", color=colour, markersize=3)
    low, high = placed.amin(0), placed.amax(0)
    margin = 0.06 * (high - low)
    axis.set_xlim(float((low - margin)[0]), float((high + margin)[0]))
    axis.set_ylim(float((low - margin)[1]), float((high + margin)[1]))
    axis.set_title("(a) predictions along runs and chains; dots: members")
    axis.set_xlabel(f"first principal component ({100 * float(shares[0]):.0f} % of the variance)")
    axis.set_ylabel(f"second ({100 * float(shares[1]):.0f} %)")


def draw_disagreement(axis: Any, traced: list[Traced], task: Task) -> None:
    for one in traced:
        right, apart = disagreement(one.members, task.y_test)
        axis.plot(right, apart, "o", color=COLOURS[one.name], markersize=4, alpha=0.8, label=one.name)
    axis.set_ylim(bottom=0)
    axis.grid(alpha=0.3)
    axis.set_title("(b) disagreement against accuracy")
    axis.set_xlabel("test accuracy of each member")
    axis.set_ylabel("rows on which another differs ÷ error rate")


def draw_rate(axis: Any, cyclical: Cyclical) -> None:
    epochs = range(1, len(cyclical.rates) + 1)
    axis.plot(epochs, [100 * e for e in cyclical.errors], color="black", linewidth=1, label="weights")
    at = [100 * e for e in cyclical.average_errors]
    axis.plot(cyclical.collected, at, "*", color="tab:purple", markersize=9, label="average so far")
    collected = [100 * cyclical.errors[e - 1] for e in cyclical.collected]
    axis.plot(cyclical.collected, collected, "o", color="black", markersize=4, label="collected")
    axis.set_ylim(0, 15)
    axis.legend(fontsize=7, loc="upper left")
    other = axis.twinx()
    other.plot(epochs, cyclical.rates, color="0.6", linewidth=1, linestyle="--")
    other.set_ylabel("learning rate (dashed)", fontsize=8, color="0.4")
    other.tick_params(labelsize=7)
    other.set_ylim(0, 1.5 * max(cyclical.rates))
    axis.set_title("(c) a run with a cyclical rate")
    axis.set_xlabel("epoch")
    axis.set_ylabel("test error, %")


def note(axis: Any, point: Tensor, text: str) -> None:
    axis.annotate(text, point.tolist(), xytext=(0, 7), textcoords="offset points", fontsize=8, ha="center")


def draw_plane(axis: Any, cyclical: Cyclical, figure: Any) -> None:
    levels = torch.linspace(float(cyclical.losses.min().log()), float(cyclical.losses.max().log()), 14).exp()
    from matplotlib.colors import LogNorm

    filled = axis.contourf(
        cyclical.xs, cyclical.ys, cyclical.losses, levels=levels.tolist(), norm=LogNorm(), cmap="viridis_r"
    )
    points = cyclical.points
    axis.plot(points[:3, 0], points[:3, 1], "o", color="black", markersize=5)
    for i in range(3):
        note(axis, points[i], f"{i + 1}: {100 * cyclical.point_errors[i]:.1f} %")
    axis.plot(*points[3], "*", color="tab:purple", markeredgecolor="white", markersize=11)
    note(axis, points[3], f"average: {100 * cyclical.point_errors[3]:.1f} %")
    bar = figure.colorbar(filled, ax=axis, format="%.2g")
    bar.set_label("loss of training a row, nats", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    axis.set_aspect("equal")
    axis.set_title("(d) loss on the plane of three weights; test error of each")
    axis.set_xlabel("distance in weights")
    axis.set_ylabel("distance in weights")


if __name__ == "__main__":
    main()
