"""Every posterior beside HMC on a regression with a gap: `python benchmarks/gap.py [--quick] [--markdown]`.

Rows of one input lie on either side of a gap; noise and prior are known, the network has one layer of 50 ReLU units
(151 weights). A long run of HMC is the reference, and its diagnostics are printed. Each method of the registry is
fitted under the same prior and noise, and drawn beside the reference in docs/gap.png.

W1 is the Wasserstein-1 distance between the predictives of y, weighted mixtures of one Gaussian a member, averaged over
a grid of x: ∫ |F⁻¹(q) − G⁻¹(q)| dq, computed as ∫ |F(y) − G(y)| dy, which is the same and needs no inverse. `bias` is
the mean over the grid of the predictive mean minus HMC's. The row `hmc` is a run of ordinary length from another seed,
and says how exact the reference is. A star: the method's own diagnostics warn.

What was found is kept in `--results`, a file a method, and not measured again (`--fresh` does).
"""

import argparse
import dataclasses
import json
import math
import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import bensemble_core as bc
from bensemble_core.predictive import GaussianPredictive
from bensemble_core.priors import DEFAULT_PRIOR
from bensemble_core.types import Report, Snapshot, over

MODEL = {"name": "mlp", "hidden": [50]}  # ReLU, without which there is no pbp
NOISE, PRIOR = 0.15, 0.7  # standard deviations of y, and of each weight
LEFT, RIGHT, ENDS = (-2.0, -0.9), (0.7, 1.8), (-2.6, 2.4)  # the rows' two parts, and those of the grid
N_ROWS, N_GRID = 40, 101
N_MEMBERS = 1000
N_LEVELS = 400  # of y, in the integral of W1
REFERENCE = "reference"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A method as it is run here; options that it does not have are left out."""

    method: str = ""  # where it is not the name of the row
    options: dict[str, Any] = field(default_factory=dict)
    density: str = ""  # what is known of its distribution over weights; by default read off the draws


DESCENT: dict[str, Any] = {"epochs": 1000, "batch_size": 20, "lr": 0.01}  # of whatever has such options
CASES: dict[str, Case] = {
    "map": Case(density="point"),
    "deep_ensemble": Case(options={"members": 10}),
    "anchored": Case(method="deep_ensemble", options={"members": 10, "anchored": True}),
    "snapshot_ensemble": Case(options={"cycles": 10, "epochs": 5000}),
    "mc_dropout": Case(options={"rate": 0.1}, density="masks"),
    "swa": Case(density="point"),
    "swag": Case(density="Gaussian, low rank"),
    "multi_swag": Case(options={"members": 10}, density="mixture of Gaussians"),
    "laplace": Case(options={"structure": "full"}, density="Gaussian, full"),
    "mfvi": Case(options={"epochs": 5000}, density="Gaussian, factorised"),
    "renyi": Case(options={"epochs": 2000}, density="Gaussian, factorised"),
    "pbp": Case(options={"epochs": 40}, density="Gaussian, factorised"),
    "batch_ensemble": Case(options={"members": 10, "epochs": 5000}),
    "rank1_bnn": Case(options={"epochs": 3000}, density="Gaussian, of factors"),
    "hmc": Case(options={"leapfrog": 128}),
    "sgld": Case(options={"warmup": 5000, "thin": 40, "batch_size": 256}),  # all rows, as by default
    "sghmc": Case(options={"warmup": 5000, "thin": 40, "batch_size": 256}),
    "metropolis": Case(options={"warmup": 40_000, "thin": 200}),
    "annealing": Case(options={"steps": 60_000}, density="point"),
    "fbnn": Case(options={"epochs": 2000, "lr": 0.03}, density="Gaussian, factorised"),
}
LONG: dict[str, Any] = {"chains": 8, "samples": 500, "warmup": 1000, "leapfrog": 256}  # of the reference
QUICK: dict[str, Any] = {"epochs": 60, "samples": 100, "warmup": 200, "leapfrog": 32, "thin": 2, "steps": 500}


@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """A method's predictive on the grid, and what else is worth a column."""

    predictive: GaussianPredictive | None  # None where it refused
    seconds: float = 0.0  # of the processor, for the fit
    diagnostics: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Line:
    """A row of the table."""

    name: str
    distance: dict[str, float]  # W1 everywhere, in the gap, on the rows
    spread: float  # mean epistemic sd in the gap, over HMC's
    bias: float
    members: int
    seconds: float
    aims: str
    density: str
    has_warnings: bool

    @property
    def label(self) -> str:
        return self.name + " *" * self.has_warnings


def main() -> None:
    given = parsed()
    torch.set_num_threads(1)
    reference = measure(REFERENCE, given)
    assert reference.predictive is not None
    show_reference(reference)
    fitted: dict[str, Found] = {}
    lines: list[Line] = []
    print(heading())
    for name in given.methods:
        found = measure(name, given)
        if found.predictive is None:
            print(f"{name}: refused ({found.notes[0]})", flush=True)
            continue
        fitted[name] = found
        lines.append(compare(name, found, reference))
        print(said(lines[-1]), flush=True)
    if given.markdown:
        print("\n" + markdown(lines))
    if given.plot is not None:
        draw(given.plot, fitted, lines, reference.predictive)
        print(f"wrote {given.plot}: {given.plot.stat().st_size / 1000:.0f} kB")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = [name for name, case in CASES.items() if (case.method or name) in bc.POSTERIORS]
    known += [name for name in bc.POSTERIORS if name not in CASES]
    parser.add_argument("--methods", nargs="*", default=known, choices=known, help="all that are registered by default")
    parser.add_argument("--quick", action="store_true", help="short runs, a look and no figure; draws below build/")
    parser.add_argument("--markdown", action="store_true", help="the table as it stands in the documentation")
    parser.add_argument("--fresh", action="store_true", help="measure again what is there")
    parser.add_argument("--results", type=Path, default=Path("build/gap"), help="folder where figures are kept")
    parser.add_argument("--plot", type=Path, help="docs/gap.png by default, if all methods are run")
    given = parser.parse_args()
    if given.quick:
        given.results = given.results.with_name(given.results.name + "-quick")
    if given.plot is None and given.methods == known:
        docs = Path(__file__).resolve().parents[1] / "docs"
        given.plot = (given.results if given.quick else docs) / "gap.png"
    return given


def rows() -> tuple[Tensor, Tensor]:
    """x [N, 1] and y [N], half of them on either side of the gap."""
    g = torch.Generator().manual_seed(0)
    u = torch.rand(2, N_ROWS // 2, generator=g, dtype=torch.float64)
    x = torch.cat([low + (high - low) * part for part, (low, high) in zip(u, (LEFT, RIGHT), strict=True)])
    y = 0.8 * torch.sin(2.5 * x) + 0.3 * x
    return x[:, None], y + NOISE * torch.randn(N_ROWS, generator=g, dtype=torch.float64)


def grid() -> Tensor:
    """[G, 1]."""
    return torch.linspace(*ENDS, N_GRID, dtype=torch.float64)[:, None]


def parts() -> dict[str, Tensor]:
    """Which points of the grid count: [G]."""
    x = grid()[:, 0]
    on_rows = ((x >= LEFT[0]) & (x <= LEFT[1])) | ((x >= RIGHT[0]) & (x <= RIGHT[1]))
    return {"all": torch.ones_like(on_rows), "gap": (x > LEFT[1]) & (x < RIGHT[0]), "rows": on_rows}


def settings(name: str, quick: bool) -> tuple[str, dict[str, Any], int]:
    """Method, options and seed of a row of the table, or of the reference."""
    case = CASES.get(name, Case())
    method, wanted, seed = case.method or name, DESCENT | case.options, 0
    if name == REFERENCE:
        method, wanted, seed = "hmc", LONG, 1
    has = {f.name for f in dataclasses.fields(bc.POSTERIORS[method])}
    short = {k: v for k, v in QUICK.items() if quick and k in has}
    return method, {k: v for k, v in wanted.items() if k in has} | short, seed


def measure(name: str, given: argparse.Namespace) -> Found:
    """Fit a method and predict the grid, unless it was kept. A method that refuses is kept with its reason."""
    method, options, seed = settings(name, given.quick)
    setting = repr((method, sorted(options.items()), seed, NOISE, PRIOR, LEFT, RIGHT, ENDS, N_ROWS, N_GRID, N_MEMBERS))
    path = given.results / f"{name}-{zlib.crc32(setting.encode()):08x}.npz"
    if path.exists() and not given.fresh:
        return read(path)
    started = time.process_time()
    try:
        fitted = bc.fit(
            method,
            MODEL,
            rows(),
            likelihood=bc.Gaussian(noise=NOISE),
            prior=bc.Normal(scale=PRIOR) if over(bc.POSTERIORS[method]) == "weights" else DEFAULT_PRIOR,
            standardise=False,
            seed=seed,
            report=progress(name),
            **options,
        )
    except (bc.InvalidOption, bc.InvalidModel, bc.InvalidData) as reason:
        found = Found(predictive=None, notes=(str(reason),))
    else:
        seconds = time.process_time() - started
        predictive = fitted.sample(N_MEMBERS, seed=seed, at_most=True).predict(grid())
        told = fitted.diagnostics
        found = Found(predictive=predictive, seconds=seconds, diagnostics=dict(told.values), notes=told.warnings)
    write(path, found)
    return found


def progress(name: str, every: float = 15.0) -> Report:
    """Says how far a fit is, from time to time."""
    last = time.monotonic()

    def report(done: int, total: int, message: str, snapshot: Snapshot) -> None:
        nonlocal last
        if time.monotonic() - last >= every:
            print(f"    {name}: {100 * done / total:.0f} %, {message}", flush=True)
            last = time.monotonic()

    return report


def read(path: Path) -> Found:
    with np.load(path) as file:
        told = json.loads(str(file["told"]))
        tensors = {k: torch.from_numpy(file[k]) for k in file.files if k != "told"}
    predictive = GaussianPredictive(**tensors) if tensors else None
    return Found(predictive=predictive, **told | {"notes": tuple(told["notes"])})


def write(path: Path, found: Found) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    told = {"seconds": found.seconds, "diagnostics": found.diagnostics, "notes": found.notes}
    arrays = {}
    if (p := found.predictive) is not None:
        arrays = {"means": p.means.numpy(), "variances": p.variances.numpy()}
        arrays |= {} if p.log_weights is None else {"log_weights": p.log_weights.numpy()}
    np.savez(path, told=json.dumps(told), **arrays)


def wasserstein(ours: GaussianPredictive, theirs: GaussianPredictive) -> Tensor:
    """∫ |F − G| dy at each point, from below all members to above them: [G]."""
    reach = [(p.means - 6 * p.variances.sqrt(), p.means + 6 * p.variances.sqrt()) for p in (ours, theirs)]
    low = torch.minimum(*(below.amin(0) for below, _ in reach))
    high = torch.maximum(*(above.amax(0) for _, above in reach))
    total = torch.zeros_like(low)
    for i in range(N_LEVELS):
        y = low + (high - low) * (i + 0.5) / N_LEVELS
        total += (ours.cdf(y) - theirs.cdf(y)).abs()
    return total * (high - low) / N_LEVELS


def compare(name: str, found: Found, reference: Found) -> Line:
    ours, theirs = found.predictive, reference.predictive
    assert ours is not None
    assert theirs is not None
    apart = wasserstein(ours, theirs)  # [G]
    in_gap = parts()["gap"]
    spread = [p.epistemic_variance().sqrt()[in_gap].mean() for p in (ours, theirs)]
    density = CASES.get(name, Case()).density
    if not density:
        density = "members" if ours.n_members < N_MEMBERS else "draws"
        density = density if ours.log_weights is None else "weighted draws"
    return Line(
        name=name,
        distance={part: float(apart[chosen].mean()) for part, chosen in parts().items()},
        spread=float(spread[0] / spread[1]),
        bias=float((ours.mean() - theirs.mean()).mean()),
        members=ours.n_members,
        seconds=found.seconds,
        aims=bc.POSTERIORS[CASES.get(name, Case()).method or name].aims.replace("_", " "),
        density=density,
        has_warnings=bool(found.notes),
    )


def show_reference(reference: Found) -> None:
    values = ", ".join(f"{k} {v:.4g}" for k, v in reference.diagnostics.items())
    print(f"reference: hmc, {LONG['chains']} chains, {reference.seconds:.0f} s; {values}")
    for warning in reference.notes:
        print(f"    {warning}")


def heading() -> str:
    return (
        f"{'method':18}{'W1':>8}{'gap':>8}{'rows':>8}{'sd/hmc':>8}{'bias':>9}{'members':>9}{'s':>8}"
        f"  {'aims':12}{'density'}"
    )


def said(line: Line) -> str:
    distances = "".join(f"{line.distance[part]:8.3f}" for part in parts())
    return (
        f"{line.label:18}{distances}{line.spread:8.2f}{line.bias:+9.3f}{line.members:9}{line.seconds:8.1f}"
        f"  {line.aims:12}{line.density}"
    )


def markdown(lines: list[Line]) -> str:
    """The nearest to the reference first."""
    head = ["method", "W1", "in the gap", "on the rows", "sd in the gap ÷ HMC's", "bias", "s", "aims at", "density"]
    table = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for line in sorted(lines, key=lambda line: line.distance["all"]):
        distances = [f"{line.distance[part]:.3f}" for part in parts()]
        bias = f"{line.bias:+.3f}".replace("-", "−")
        cells = [line.label, *distances, f"{line.spread:.2f}", bias, f"{line.seconds:.1f}", line.aims, line.density]
        table.append(f"| {' | '.join(cells)} |")
    return "\n".join(table)


def draw(path: Path, found: dict[str, Found], lines: list[Line], reference: GaussianPredictive) -> None:
    """A panel a method: its mean and two epistemic sds over HMC's, and the rows."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from PIL import Image

    columns = 5
    n_lines = math.ceil(len(found) / columns)
    figure, axes = pyplot.subplots(
        n_lines, columns, figsize=(2 * columns, 1.55 * n_lines + 0.4), dpi=90, sharex=True, sharey=True, squeeze=False
    )
    x, (x_rows, y_rows) = grid()[:, 0], rows()
    low, high, mean = band(reference)
    for axis, line, one in zip(axes.flat, lines, found.values(), strict=False):
        assert one.predictive is not None
        axis.fill_between(x, low, high, color="0.85", linewidth=0, label="HMC, ± 2 sd")
        axis.plot(x, mean, color="0.45", linewidth=0.9, linestyle="--", label="HMC, mean")
        own_low, own_high, own_mean = band(one.predictive)
        axis.fill_between(x, own_low, own_high, color="tab:blue", alpha=0.3, linewidth=0, label="method, ± 2 sd")
        axis.plot(x, own_mean, color="tab:blue", linewidth=1.1, label="method, mean")
        axis.plot(x_rows, y_rows, ".", color="black", markersize=2, label="rows")
        axis.set_title(line.name, fontsize=8, pad=3)
        axis.text(
            0.97, 0.95, f"W1 {line.distance['all']:.3f}", transform=axis.transAxes, fontsize=7, ha="right", va="top"
        )
        axis.tick_params(labelsize=7, length=2)
    for i in range(len(found), axes.size):
        axes.flat[i].set_visible(False)
        axes.flat[i - columns].tick_params(labelbottom=True)
    axes[0, 0].set_xlim(*ENDS)
    axes[0, 0].set_ylim(-2.4, 2.4)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(labels), fontsize=7, frameon=False)
    figure.tight_layout(rect=(0, 0.25 / figure.get_figheight(), 1, 1), pad=0.4, w_pad=0.4, h_pad=0.5)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})
    pyplot.close(figure)
    with Image.open(path) as drawn:  # 64 colours are enough, in a third of the bytes
        small = drawn.convert("RGB").quantize(64)
    small.save(path, optimize=True)


def band(predictive: GaussianPredictive) -> tuple[Tensor, Tensor, Tensor]:
    mean, sd = predictive.mean(), predictive.epistemic_variance().sqrt()
    return mean - 2 * sd, mean + 2 * sd, mean


if __name__ == "__main__":
    main()
