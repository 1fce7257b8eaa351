"""Factorised Gaussians by their training, beside SWAG, a GLM and HMC: `python benchmarks/ris.py [--markdown]`.

scikit-learn's digits, 1,000 rows to learn from and 797 to test on, a 64-50-50-50-10 ReLU network (8,860 weights) under
the prior N(0, 1). Five seeds, each with a split of its own; HMC has the first alone. 100 epochs of batches of 64 at
lr .01 for whatever is trained by descent; `vogn` starts from a MAP of 50 more. The cases follow the slides of
reparameterised importance sampling, whose figures are of ResNet-20 on CIFAR-10: something to look at beside these, not
to reach.

Accuracy and NLL are of the average of 1,000 members (HMC: of the draws that it has), `one network` is the accuracy of
each alone. `bound` is the evidence lower bound of the Gaussian that training ended with, in nats a row, whatever it was
trained by. The picture, docs/ris.png, has (a) the loss by epoch, (b) the test accuracy of 20 draws by epoch and (c) the
accuracies of the 1,000 networks.

"plain means" is `ris` with moments="first" whose hidden units are averages of plain draws instead of importance draws;
the library has no option for it, and it is made here.

`--through-moments` judges the Gaussians of `ris` by what they were trained on, the moments of their units, in place of
networks drawn from them: the cases "ris, …" and "plain means", two seeds.

What was found is kept in `--results`, a file for each case and seed, and not measured again (`--fresh` does).
"""

import argparse
import json
import math
import time
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import bensemble_core as bc
from bensemble_core.posteriors.gaussian import Bound, Factorised, sample_gaussian
from bensemble_core.posteriors.variational.ris import RIS, _Moments, _root
from bensemble_core.randomness import borrowed
from bensemble_core.training.descent import Run
from bensemble_core.training.objectives import Batch, Forward
from bensemble_core.types import Problem, Report, Snapshot, Tensors

MODEL = {"name": "mlp", "hidden": [50, 50, 50]}
N_TRAIN, N_SEEDS, N_MEMBERS, N_WATCHED = 1000, 5, 1000, 20
EPOCHS, EVERY = 100, 2  # epochs, and those between two looks at the test rows


@dataclass(frozen=True, eq=False)
class PlainMeans(_Moments):
    """Algorithm 1 of the slides with q itself as the proposal: a unit is the mean of plain draws of f(a)."""

    def outputs(self, theta: Tensors, x: Tensor, draws: int) -> tuple[Tensor, Tensor]:
        mean, variance = x.flatten(1), None
        for name, kind in self.layers:
            mean, variance = self._linear(theta, name, mean, None)
            if kind is not None:
                drawn = mean + _root(variance) * torch.randn(draws, *mean.shape)
                mean = (drawn.relu() if kind == "relu" else drawn.tanh()).mean(0)
        assert variance is not None
        return mean, variance


class PlainRIS(RIS):
    def run(self, *arguments: Any, **named: Any) -> Run:
        run = super().run(*arguments, **named)
        return replace(run, objective=PlainMeans(**vars(run.objective)))


@dataclass(frozen=True, kw_only=True)
class Case:
    """A row of the table."""

    entry: type[Any]
    options: dict[str, Any] = field(default_factory=dict)
    n_seeds: int = N_SEEDS
    slides: str = ""  # accuracy on CIFAR-10, %


CASES: dict[str, Case] = {
    "mfvi": Case(entry=bc.POSTERIORS["mfvi"], options={"samples": 10}, slides="22.5"),
    "mfvi, tempered": Case(entry=bc.POSTERIORS["mfvi"], options={"samples": 10, "temperature": 0.1}, slides="83.6"),
    "mfvi, adversarial": Case(entry=bc.POSTERIORS["mfvi"], options={"adversarial": 0.8}, slides="86.3"),
    "swag": Case(entry=bc.POSTERIORS["swag"], slides="86.8"),
    "vogn": Case(entry=bc.POSTERIORS["vogn"], options={"hessian": "squares", "lr": 0.01}, slides="85.4"),
    "vogn, price": Case(entry=bc.POSTERIORS["vogn"], options={"lr": 0.01}),
    "glm": Case(entry=bc.POSTERIORS["laplace"], slides="84.4"),
    "glm, marglik": Case(entry=bc.POSTERIORS["laplace"], options={"prior_precision": "marglik"}),
    "ris, both moments": Case(entry=RIS),
    "ris, first moment": Case(entry=RIS, options={"moments": "first"}, slides="87.4"),
    "plain means": Case(entry=PlainRIS, options={"moments": "first"}),
    "hmc": Case(
        entry=bc.POSTERIORS["hmc"],
        options={"chains": 4, "warmup": 400, "samples": 100, "leapfrog": 160},
        n_seeds=1,
        slides="90.0",
    ),
}
TRACED = ("mfvi", "ris, both moments", "ris, first moment", "plain means")  # of the first panel
COLOURS = {
    "mfvi": "tab:green",
    "mfvi, tempered": "tab:olive",
    "mfvi, adversarial": "tab:red",
    "vogn": "tab:purple",
    "vogn, price": "tab:pink",
    "ris, both moments": "tab:blue",
    "ris, first moment": "tab:cyan",
    "plain means": "tab:orange",
}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What was measured of a case under one seed."""

    accuracy: float
    nll: float
    members: list[float]  # accuracy of each
    seconds: float  # of the processor, for the fit
    bound: float | None = None  # nats a row
    losses: list[float] = field(default_factory=list)  # of training, a mean for each epoch
    watched: list[float] = field(default_factory=list)  # accuracy of draws, every so many epochs
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, eq=False)
class Noting:
    """A bound whose values are written down."""

    inner: Any
    values: list[float]

    def __call__(self, problem: Problem, forward: Forward, theta: Tensors, batch: Batch) -> Tensor:
        loss: Tensor = self.inner(problem, forward, theta, batch)
        self.values.append(float(loss.detach().mean()))
        return loss

    def prior_of(self, theta: Tensors) -> dict[str, Tensor]:
        found: dict[str, Tensor] = self.inner.prior_of(theta)
        return found


def main() -> None:
    given = parsed()
    torch.set_num_threads(1)
    if given.through_moments:
        show_moments([name for name in given.cases if issubclass(CASES[name].entry, RIS)], given.quick)
        return
    found: dict[str, list[Cell]] = {}
    for name in given.cases:
        n_seeds = 1 if given.quick else CASES[name].n_seeds
        found[name] = [measure(name, seed, given) for seed in range(n_seeds)]
        print(show(name, found[name]), flush=True)
    if given.markdown:
        print("\n" + markdown(found))
    if given.plot is not None:
        draw(given.plot, found)
        print(f"wrote {given.plot}: {given.plot.stat().st_size / 1000:.0f} kB")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES), help="all by default")
    parser.add_argument("--quick", action="store_true", help="one seed, few epochs: a look, not a figure")
    parser.add_argument("--markdown", action="store_true", help="the table as it stands in the documentation")
    parser.add_argument("--through-moments", action="store_true", help="ris without drawn networks; draws no picture")
    parser.add_argument("--fresh", action="store_true", help="measure again what is there")
    parser.add_argument("--results", type=Path, default=Path("build/ris"), help="folder where figures are kept")
    parser.add_argument("--plot", type=Path, help="docs/ris.png by default, if all cases are run")
    given = parser.parse_args()
    if given.quick:
        given.results = given.results.with_name(given.results.name + "-quick")
    if given.plot is None and given.cases == list(CASES):
        docs = Path(__file__).resolve().parents[1] / "docs"
        given.plot = (given.results if given.quick else docs) / "ris.png"
    return given


def digits(seed: int) -> tuple[Tensor, Tensor]:
    """Rows and classes in the order of a seed; the first `N_TRAIN` are to learn from."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    order = torch.randperm(len(bunch.target), generator=torch.Generator().manual_seed(seed))
    return torch.tensor(bunch.data, dtype=torch.float32)[order], torch.tensor(bunch.target)[order]


def options_of(case: Case, quick: bool) -> dict[str, Any]:
    if case.entry is bc.POSTERIORS["hmc"]:
        return case.options | ({"warmup": 10, "samples": 5, "leapfrog": 10} if quick else {})
    if quick and case.entry is bc.POSTERIORS["swag"]:
        return {"epochs": 4, "rank": 2}
    return {"epochs": 4 if quick else EPOCHS, **case.options}


def measure(name: str, seed: int, given: argparse.Namespace) -> Cell:
    """Fit and judge a case under a seed, unless that was kept."""
    case = CASES[name]
    options = options_of(case, given.quick)
    setting = repr((case.entry.__name__, sorted(options.items()), seed, MODEL, N_TRAIN, N_MEMBERS, N_WATCHED, EVERY))
    slug = name.replace(", ", "-").replace(" ", "_")
    path = given.results / f"{slug}-{seed}-{zlib.crc32(setting.encode()):08x}.json"
    if path.exists() and not given.fresh:
        return Cell(**json.loads(path.read_text()))
    cell = fit(name, case.entry, options, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(cell)))
    return cell


def fit(name: str, entry: type[Any], options: dict[str, Any], seed: int) -> Cell:
    x, y = digits(seed)
    x_test, y_test = x[N_TRAIN:], y[N_TRAIN:]
    values: list[float] = []
    watched: list[float] = []
    is_gaussian = issubclass(entry, Factorised)
    looking = 0.0

    def look(problem: Problem, state: Tensors) -> None:
        nonlocal looking
        before = time.process_time()
        drawn = sample_gaussian(problem, state, N_WATCHED, rng=torch.Generator().manual_seed(seed))
        watched.append(score(drawn.predict(x_test).log_probs, y_test)[0])
        looking += time.process_time() - before

    if is_gaussian:
        entry = recording(entry, values, look)
    started = time.process_time()
    rows = (x[:N_TRAIN], y[:N_TRAIN])
    fitted = bc.fit(
        entry(**options), MODEL, rows, likelihood="categorical", seed=seed, report=progress(f"{name}, seed {seed}")
    )
    seconds = time.process_time() - started - looking
    log_probs = fitted.sample(N_MEMBERS, seed=seed, at_most=True).predict(x_test).log_probs  # [M, N, C]
    accuracy, nll, members = score(log_probs, y_test)
    bound = replace(fitted, posterior=bc.MFVI()).bound(rows, samples=50) / N_TRAIN if is_gaussian else None
    n_steps = -(-N_TRAIN // 64)
    by_epoch = torch.tensor(values).unflatten(0, (-1, n_steps)).mean(1) if values else torch.zeros(0)
    return Cell(
        accuracy=accuracy,
        nll=nll,
        members=[round(one, 4) for one in members],
        seconds=seconds,
        bound=bound,
        losses=by_epoch.tolist(),
        watched=watched,
        warnings=list(fitted.diagnostics.warnings),
    )


def show_moments(names: list[str], quick: bool) -> None:
    for name in names:
        for seed in range(1 if quick else 2):
            accuracy, nll = through_moments(CASES[name], options_of(CASES[name], quick), seed)
            print(f"{name}, seed {seed}: accuracy {100 * accuracy:.1f} %, NLL {nll:.3f}", flush=True)


def through_moments(case: Case, options: dict[str, Any], seed: int) -> tuple[float, float]:
    """Accuracy and NLL of 50 draws of the outputs, each as one of the training is made."""
    objectives: list[_Moments] = []

    class Catching(case.entry):  # type: ignore[misc]
        def run(self, *arguments: Any, **named: Any) -> Run:
            run: Run = super().run(*arguments, **named)
            assert isinstance(run.objective, _Moments)
            objectives.append(run.objective)
            return run

    x, y = digits(seed)
    entry = Catching(**options)
    fitted = bc.fit(entry, MODEL, (x[:N_TRAIN], y[:N_TRAIN]), likelihood="categorical", seed=seed)
    assert fitted.problem.scaling is not None
    rows = fitted.problem.scaling(x[N_TRAIN:])
    share = entry.samples if entry.moments == "first" else 1  # the mean of so many draws has their variance over it
    drawn = []
    with torch.no_grad(), borrowed(seed, rows.device):
        for _ in range(50):
            mean, variance = objectives[0].outputs(fitted.state, rows, entry.samples)
            drawn.append((mean + _root(variance / share) * torch.randn_like(mean)).log_softmax(-1))
    return score(torch.stack(drawn), y[N_TRAIN:])[:2]


def recording(entry: type[Any], values: list[float], look: Callable[[Problem, Tensors], None]) -> type[Any]:
    """A factorised Gaussian that notes its loss at every step, and is looked at every `EVERY` epochs."""

    class Recording(entry):  # type: ignore[misc]
        def run(self, *arguments: Any, **named: Any) -> Run:
            run: Run = super().run(*arguments, **named)
            assert isinstance(run.objective, Bound)

            def watch(epoch: int, theta: Tensors, fixed: Tensors, kept: dict[str, Tensor]) -> None:
                if epoch % EVERY == 0:
                    look(run.problem, {**theta, **fixed})

            return replace(run, objective=Noting(inner=run.objective, values=values), watch=watch)

    return Recording


def score(log_probs: Tensor, y: Tensor) -> tuple[float, float, list[float]]:
    """Accuracy and NLL of the average of members [M, N, C], and the accuracy of each of them."""
    mean = log_probs.double().logsumexp(0) - math.log(len(log_probs))
    nll = -mean.gather(1, y[:, None]).mean()
    accuracy = (mean.argmax(-1) == y).double().mean()
    return float(accuracy), float(nll), (log_probs.argmax(-1) == y).double().mean(1).tolist()


def progress(name: str, every: float = 20.0) -> Report:
    """Says how far a fit is, from time to time."""
    last = time.monotonic()

    def report(done: int, total: int, message: str, snapshot: Snapshot) -> None:
        nonlocal last
        if time.monotonic() - last >= every:
            print(f"    {name}: {100 * done / total:.0f} %, {message}", flush=True)
            last = time.monotonic()

    return report


def mean_and_error(values: list[float]) -> tuple[float, float | None]:
    """Of several seeds, with the standard error of their mean; one seed has none."""
    each = torch.tensor(values, dtype=torch.float64)
    return float(each.mean()), float(each.std() / math.sqrt(len(each))) if len(each) > 1 else None


def said(values: list[float], digits: int, factor: float = 1.0) -> str:
    mean, error = mean_and_error([factor * v for v in values])
    return f"{mean:.{digits}f}" + ("" if error is None else f" ± {error:.{digits}f}")


def columns(name: str, cells: list[Cell]) -> list[str]:
    each = torch.tensor([one for cell in cells for one in cell.members], dtype=torch.float64)
    low, high = torch.quantile(each, torch.tensor([0.05, 0.95], dtype=torch.float64)).tolist()
    bounds = [cell.bound for cell in cells if cell.bound is not None]
    return [
        name + " *" * any(cell.warnings for cell in cells),
        said([cell.accuracy for cell in cells], 1, 100),
        said([cell.nll for cell in cells], 3),
        f"{100 * float(each.mean()):.1f} ({100 * low:.0f} to {100 * high:.0f})",
        said(bounds, 2).replace("-", "−") if bounds else "",
        f"{sum(cell.seconds for cell in cells) / len(cells):.0f}",
        CASES[name].slides,
    ]


def show(name: str, cells: list[Cell]) -> str:
    widths = (22, 15, 18, 22, 18, 6, 8)
    line = "".join(f"{text:<{width}}" for text, width in zip(columns(name, cells), widths, strict=True))
    return line + "; ".join(sorted({warning for cell in cells for warning in cell.warnings}))


def markdown(found: dict[str, list[Cell]]) -> str:
    """The most accurate first."""
    head = [
        "",
        "accuracy, %",
        "NLL",
        "one network, % (5th to 95th percentile)",
        "bound a row",
        "s",
        "*slides, CIFAR-10, %*",
    ]
    table = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    order = sorted(found, key=lambda name: -mean_and_error([cell.accuracy for cell in found[name]])[0])
    for name in order:
        *cells, slides = columns(name, found[name])
        table.append(f"| {' | '.join([*cells, slides and f'*{slides}*'])} |")
    return "\n".join(table)


def draw(path: Path, found: dict[str, list[Cell]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(11, 4.1), dpi=90, width_ratios=(1, 1, 1.25))
    draw_losses(axes[0], found)
    draw_accuracies(axes[1], found)
    draw_members(axes[2], found)
    for axis in axes:
        axis.grid(alpha=0.3)
        axis.tick_params(labelsize=7)
        axis.title.set_fontsize(9)
        axis.xaxis.label.set_fontsize(8)
        axis.yaxis.label.set_fontsize(8)
    figure.tight_layout(pad=0.5, w_pad=1.0)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})
    pyplot.close(figure)


def draw_losses(axis: Any, found: dict[str, list[Cell]]) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    for name in TRACED:
        for i, cell in enumerate(found[name]):
            epochs = range(1, len(cell.losses) + 1)
            label = name if i == 0 else None
            axis.plot(epochs, cell.losses, color=COLOURS[name], linewidth=0.8, alpha=0.8, label=label)
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter(ScalarFormatter())
    axis.yaxis.set_minor_formatter(NullFormatter())
    axis.set_title("(a) what each minimises, mean of an epoch")
    axis.set_xlabel("epoch")
    axis.set_ylabel("nats a row")
    axis.legend(fontsize=7, frameon=False)


def draw_accuracies(axis: Any, found: dict[str, list[Cell]]) -> None:
    for name, colour in COLOURS.items():
        curves = torch.tensor([cell.watched for cell in found[name]])  # [S, T]
        epochs = EVERY * torch.arange(1, curves.shape[1] + 1)
        axis.plot(epochs, 100 * curves.mean(0), color=colour, linewidth=1.1, label=name)
        axis.fill_between(epochs, 100 * curves.amin(0), 100 * curves.amax(0), color=colour, alpha=0.15, linewidth=0)
    axis.set_ylim(0, 100)
    axis.set_title(f"(b) test accuracy of {N_WATCHED} draws; bands: all seeds")
    axis.set_xlabel("epoch")
    axis.set_ylabel("%")
    axis.legend(fontsize=7, loc="center right", bbox_to_anchor=(1.0, 0.67), ncols=1)  # between the curves


def draw_members(axis: Any, found: dict[str, list[Cell]]) -> None:
    names = list(reversed(found))
    each = [[100 * one for cell in found[name] for one in cell.members] for name in names]
    places = list(range(len(names)))
    parts = axis.violinplot(each, places, orientation="horizontal", widths=0.85, showextrema=False)
    for name, body in zip(names, parts["bodies"], strict=True):
        body.set_facecolor(COLOURS.get(name, "0.5"))
        body.set_alpha(0.6)
    means = [100 * mean_and_error([cell.accuracy for cell in found[name]])[0] for name in names]
    axis.plot(means, places, "|", color="black", markersize=9, markeredgewidth=1.5, label="average of all")
    axis.set_yticks(places, names)
    axis.set_xlim(0, 100)
    axis.set_title("(c) test accuracy of 1,000 networks, each alone")
    axis.set_xlabel("%")
    axis.legend(fontsize=7, loc="upper left")


if __name__ == "__main__":
    main()
