"""Priors over functions, neural processes and a digit that turns, in pictures: `python benchmarks/functions.py`.

After the figures of the slides that the library grew from:

(a) A regression with a gap (that of gap.py): `mfvi` with a prior on weights, `fbnn` and `gp` with the prior
    GP(lengthscale=.8, scale=1) on functions. Log-likelihood of 1,000 fresh rows, and the members' spread.
(b) Neural processes that learnt from 2,000 functions of a Gaussian process (those of neural_process.py), given 2, 5 or
    10 rows of a new one, with both encoders, beside the exact answer.
(c) Images of digits completed from 10, 20 or 32 of their 64 pixels: a task is an image, x a pixel's place, y its
    intensity in [0, 1]. Beside it the Gaussian with the mean and covariance of the 1,500 training images, conditioned
    in closed form on the same pixels.
(d) A digit that turns by 0° to 180° under `map` and `mnf`: class probabilities, the members' spread, and the entropy of
    the predictive averaged over 200 test digits.

(a) and (b) are drawn in docs/functions.png, (c) and (d) in docs/functions_digits.png. What was found is kept in
`--results`, a file for each fit, and not measured again (`--fresh` does). `fbnn` is left out where it isn't registered.
"""

import argparse
import math
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import gap
import neural_process as processes
import numpy as np
import torch
from torch import Tensor

import bensemble_core as bc

PRIOR = bc.GP(lengthscale=0.8, scale=1.0)
TOY: dict[str, dict[str, Any]] = {
    "mfvi": {"epochs": 3000},
    "fbnn": {"epochs": 2000, "lr": 0.03, "prior": PRIOR},
    "gp": {"prior": PRIOR},
}
TOY_MODEL = {"name": "mlp", "hidden": [50, 50], "activation": "tanh"}
ENCODERS = ("attention", "mean")
CONTEXTS, N_TASKS = (2, 5, 10), 200
PIXELS, N_IMAGES, N_COMPLETED, NOISE = (10, 20, 32), 1500, 200, 0.05  # the noise is the least sd of an intensity
SIDE = 8
ANGLES = tuple(range(0, 181, 5))
TURNED = {"map": 1, "mnf": 200}  # members
N_TURNED, N_TRAIN = 200, 1000
DIGIT = 3  # that is drawn: the first of them among the test rows
N_MEMBERS = 30
Arrays: TypeAlias = dict[str, np.ndarray]


def main() -> None:
    given = parsed()
    torch.set_num_threads(1)

    toys = {m: keep(given, f"toy-{m}", fit_toy, m, (TOY[m], TOY_MODEL)) for m in TOY if m in bc.POSTERIORS}
    learnt = {e: keep(given, f"process-{e}", learn, e, (CONTEXTS, N_TASKS)) for e in ENCODERS}
    completed = {e: keep(given, f"images-{e}", complete, e, (PIXELS, N_IMAGES, NOISE)) for e in ENCODERS}
    turned = {m: keep(given, f"turned-{m}", turn, m, (ANGLES, N_TURNED, DIGIT)) for m in TURNED}
    show(toys, learnt, completed, turned)
    folder = given.results if given.quick else Path(__file__).resolve().parents[1] / "docs"
    draw_functions(folder / "functions.png", toys, learnt)
    draw_digits(folder / "functions_digits.png", completed, turned)
    for path in (folder / "functions.png", folder / "functions_digits.png"):
        print(f"wrote {path}: {path.stat().st_size / 1000:.0f} kB")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short runs: a look, not a figure; draws below build/")
    parser.add_argument("--fresh", action="store_true", help="measure again what is there")
    parser.add_argument("--results", type=Path, default=Path("build/functions"), help="folder where figures are kept")
    given = parser.parse_args()
    if given.quick:
        given.results = given.results.with_name(given.results.name + "-quick")
    return given


def keep(
    given: argparse.Namespace, name: str, measure: Callable[[str, bool], Arrays], what: str, setting: object
) -> Arrays:
    """What `measure` finds of a method or an encoder, unless it is there from a run with the same setting."""
    path = given.results / f"{name}-{zlib.crc32(repr(setting).encode()):08x}.npz"
    if given.fresh or not path.exists():
        started = time.process_time()
        found = measure(what, given.quick)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, seconds=time.process_time() - started, **found)
        print(f"    {name}: {time.process_time() - started:.0f} s", flush=True)
    with np.load(path) as file:
        return dict(file)


def log_likelihood(found: Any, y: Tensor) -> Tensor:
    """log of the average density of the members at y, a value for each row: [N]."""
    each = torch.distributions.Normal(found.means, found.variances.sqrt()).log_prob(y.to(found.means))
    return each.logsumexp(0) - math.log(len(each))


def truth(x: Tensor) -> Tensor:
    return 0.8 * torch.sin(2.5 * x) + 0.3 * x


def fit_toy(name: str, quick: bool) -> Arrays:
    options = dict(TOY[name])
    prior = options.pop("prior", bc.Normal(scale=1.0))
    if quick and "epochs" in options:
        options["epochs"] = 20
    fitted = bc.fit(
        name,
        TOY_MODEL,
        gap.rows(),
        likelihood=bc.Gaussian(noise=gap.NOISE),
        prior=prior,
        standardise=False,
        **options,
    )
    ensemble = fitted.sample(200, seed=1)
    on_grid = ensemble.predict(gap.grid())
    found: Arrays = {"mean": on_grid.mean().numpy(), "sd": on_grid.epistemic_variance().sqrt().numpy()}
    g = torch.Generator().manual_seed(1)
    for part, ends in {"gap": (gap.LEFT[1], gap.RIGHT[0]), "left": gap.LEFT, "right": gap.RIGHT}.items():
        x = ends[0] + (ends[1] - ends[0]) * torch.rand(500, generator=g, dtype=torch.float64)
        y = truth(x) + gap.NOISE * torch.randn(500, generator=g, dtype=torch.float64)
        predicted = ensemble.predict(x[:, None])
        found[f"{part}/score"] = log_likelihood(predicted, y).mean().numpy()
        found[f"{part}/sd"] = predicted.epistemic_variance().sqrt().mean().numpy()
    return found


def new_task() -> tuple[Tensor, Tensor, Tensor]:
    """A function of the process: a grid [G, 1], its values there [G], and which of them are rows, in order [10]."""
    x = torch.linspace(-2, 2, 121, dtype=torch.float64)[:, None]
    cover = processes.gram(x, x) + 1e-6 * torch.eye(len(x), dtype=x.dtype)
    g = torch.Generator().manual_seed(6)
    f = torch.linalg.cholesky(cover) @ torch.randn(len(x), generator=g, dtype=x.dtype)
    return x, f, torch.randperm(len(x), generator=g)[: max(CONTEXTS)]


def exact_process(x: Tensor, y: Tensor) -> bc.Fitted:
    prior = bc.GP(lengthscale=processes.LENGTHSCALE, scale=1.0)
    likelihood = bc.Gaussian(noise=processes.NOISE)
    return bc.fit("gp", "mlp", (x, y), likelihood=likelihood, prior=prior, standardise=False)


def learn(encoder: str, quick: bool) -> Arrays:
    """A neural process, and the exact one where the encoder is the first: scores by context, and one function."""
    x, y = processes.draw_tasks(2000, 30, 0)
    rows = (x.reshape(-1, 1).float(), y.reshape(-1), torch.arange(2000).repeat_interleave(30))
    fitted = bc.fit(
        "neural_process", "mlp", rows, likelihood="gaussian", encoder=encoder, epochs=1 if quick else 32, seed=0
    )
    new_x, new_y = (t.float() for t in processes.draw_tasks(5 if quick else N_TASKS, 30, 1))
    on_x, f, order = new_task()
    noisy = f[order] + processes.NOISE * torch.randn(len(order), generator=torch.Generator().manual_seed(7)).double()
    found: Arrays = {"labels": noisy.numpy()}
    for n in CONTEXTS:
        scores, exact = [], []
        for i in range(len(new_x)):
            there = fitted.update((new_x[i, :n], new_y[i, :n]), keep=False, epochs=0)
            scores.append(log_likelihood(there.sample(N_MEMBERS, seed=i).predict(new_x[i, 10:]), new_y[i, 10:]).mean())
            closed = exact_process(new_x[i, :n].double(), new_y[i, :n].double()).predict(new_x[i, 10:].double())
            exact.append(log_likelihood(closed, new_y[i, 10:].double()).mean())
        found[f"score/{n}"], found[f"exact/{n}"] = (torch.stack(s).numpy() for s in (scores, exact))
        context = (on_x[order[:n]].float(), noisy[:n].float())
        drawn = fitted.update(context, keep=False, epochs=0).sample(N_MEMBERS, seed=0).predict(on_x.float())
        found[f"mean/{n}"], found[f"sd/{n}"] = drawn.mean().numpy(), drawn.variance().sqrt().numpy()
        found[f"members/{n}"] = drawn.means[:8].numpy()
        closed = exact_process(on_x[order[:n]], noisy[:n]).predict(on_x)
        found[f"exact_mean/{n}"], found[f"exact_sd/{n}"] = closed.mean().numpy(), closed.variance().sqrt().numpy()
    return found


def digits() -> tuple[Tensor, Tensor]:
    """Intensities in [0, 1] and classes, in an order by chance: [N, 64], [N]."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    order = torch.randperm(len(bunch.target), generator=torch.Generator().manual_seed(0))
    return torch.tensor(bunch.data, dtype=torch.float32)[order] / 16, torch.tensor(bunch.target)[order]


def places() -> Tensor:
    """Of the pixels, row by row, in [−1, 1]: [64, 2]."""
    line = torch.linspace(-1, 1, SIDE)
    return torch.cartesian_prod(line, line)


def complete(encoder: str, quick: bool) -> Arrays:
    """A neural process of images: RMSE and log-likelihood of the pixels not seen, and one image of each of some."""
    images = digits()[0]
    train, test = images[:N_IMAGES], images[N_IMAGES:]
    x = places()
    task = torch.arange(N_IMAGES).repeat_interleave(SIDE**2)
    fitted = bc.fit(
        "neural_process",
        "mlp",
        (x.repeat(N_IMAGES, 1), train.reshape(-1), task),
        likelihood=bc.Gaussian(noise=NOISE),
        standardise=False,
        encoder=encoder,
        rows=SIDE**2,
        epochs=1 if quick else 64,
        seed=0,
    )
    found: Arrays = {}
    for n in PIXELS:
        errors, scores, by_gaussian = [], [], []
        means, sds, chosen = [], [], []
        for i in range(5 if quick else N_COMPLETED):
            order = torch.randperm(SIDE**2, generator=torch.Generator().manual_seed(i))
            seen, unseen = order[:n], order[n:]
            there = fitted.update((x[seen], test[i, seen]), keep=False, epochs=0)
            predicted = there.sample(N_MEMBERS, seed=i).predict(x)
            mean, sd = predicted.mean(), predicted.variance().sqrt()
            errors.append((mean - test[i])[unseen].square().mean())
            scores.append(log_likelihood(predicted, test[i])[unseen].mean())
            by_gaussian.append(condition(train, test[i], seen, unseen))
            if i < 5:
                means.append(mean)
                sds.append(sd)
                chosen.append(seen)
        found[f"squares/{n}"], found[f"score/{n}"] = torch.stack(errors).numpy(), torch.stack(scores).numpy()
        found[f"gaussian/{n}"] = np.array(by_gaussian)  # [S, 2]
        found[f"mean/{n}"], found[f"sd/{n}"] = torch.stack(means).numpy(), torch.stack(sds).numpy()
        found[f"seen/{n}"] = torch.stack(chosen).numpy()
    found["blank"] = np.array([float((test[: len(errors)] - train.mean(0)).square().mean().sqrt())])
    return found


def condition(train: Tensor, image: Tensor, seen: Tensor, unseen: Tensor) -> tuple[float, float]:
    """Mean squared error and log-likelihood under the Gaussian of the training images given the pixels seen."""
    rows = train.double()
    mean, cover = rows.mean(0), rows.T.cov() + NOISE**2 * torch.eye(SIDE**2, dtype=torch.float64)
    gain = torch.linalg.solve(cover[seen][:, seen], cover[seen][:, unseen]).T
    predicted = mean[unseen] + gain @ (image.double() - mean)[seen]
    variance = (cover[unseen][:, unseen] - gain @ cover[seen][:, unseen]).diagonal()
    normal = torch.distributions.Normal(predicted, variance.sqrt())
    return float((predicted - image[unseen]).square().mean()), float(normal.log_prob(image[unseen].double()).mean())


def rotate(images: Tensor, angle: float) -> Tensor:
    """Images [N, 64] turned by degrees against the clock, by cubic splines and cut at the edge."""
    from scipy.ndimage import rotate as turn_array

    turned = turn_array(images.view(-1, SIDE, SIDE).numpy(), angle, axes=(2, 1), reshape=False, order=3)
    return torch.from_numpy(turned).clamp(0, 1).reshape(-1, SIDE**2)


def drawn_digit() -> Tensor:
    """[1, 64]."""
    images, classes = digits()
    return images[N_TRAIN:][classes[N_TRAIN:] == DIGIT][:1]


def turn(name: str, quick: bool) -> Arrays:
    """Class probabilities of one digit's members by angle [A, M, C]; entropies and accuracy of many [A]."""
    images, classes = digits()
    fitted = bc.fit(
        name,
        {"name": "mlp", "hidden": [50, 50]},
        (images[:N_TRAIN], classes[:N_TRAIN]),
        likelihood="categorical",
        standardise=False,  # or a pixel that is blank in nearly all rows would count a hundredfold where one turns
        epochs=5 if quick else 100,
        seed=0,
    )
    ensemble = fitted.sample(TURNED[name], seed=0)
    test, right = images[N_TRAIN : N_TRAIN + N_TURNED], classes[N_TRAIN : N_TRAIN + N_TURNED]
    one, entropies, shares, accuracies = [], [], [], []
    for angle in ANGLES:
        one.append(ensemble.predict(rotate(drawn_digit(), angle)).log_probs[:, 0].exp())
        log_probs = ensemble.predict(rotate(test, angle)).log_probs.double()  # [M, N, C]
        mean = log_probs.logsumexp(0) - math.log(len(log_probs))
        total = -(mean.exp() * mean).sum(1)
        within = -(log_probs.exp() * log_probs).sum(2).mean(0)
        entropies.append(total.mean())
        shares.append((total - within).mean())
        accuracies.append((mean.argmax(1) == right).double().mean())
    curves = {"entropy": entropies, "information": shares, "accuracy": accuracies}
    return {"probabilities": torch.stack(one).numpy()} | {k: torch.stack(v).numpy() for k, v in curves.items()}


def error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / math.sqrt(len(values)))


def show(
    toys: dict[str, Arrays], learnt: dict[str, Arrays], completed: dict[str, Arrays], turned: dict[str, Arrays]
) -> None:
    print("(a)      log-likelihood: rows     gap   sd: rows     gap       s")
    for name, found in toys.items():
        rows = [0.5 * (float(found[f"left/{k}"]) + float(found[f"right/{k}"])) for k in ("score", "sd")]
        print(
            f"    {name:6}{rows[0]:19.2f}{float(found['gap/score']):8.2f}{rows[1]:11.3f}{float(found['gap/sd']):8.3f}"
            f"{float(found['seconds']):8.0f}"
        )
    print(f"(b) log-likelihood of a target, {'':9}" + "".join(f"{n:>10} rows" for n in CONTEXTS))
    for name, key, found in [*((e, "score", learnt[e]) for e in ENCODERS), ("exact", "exact", learnt[ENCODERS[0]])]:
        cells = (found[f"{key}/{n}"] for n in CONTEXTS)
        print(f"    {name:36}" + "".join(f"{float(v.mean()):8.2f} ± {error(v):.2f}" for v in cells))
    print(f"(c) RMSE and log-likelihood of a pixel, {'':1}" + "".join(f"{n:>10} pixels" for n in PIXELS))
    for name, found in completed.items():
        cells = ((math.sqrt(found[f"squares/{n}"].mean()), float(found[f"score/{n}"].mean())) for n in PIXELS)
        print(f"    {name:36}" + "".join(f"{a:9.3f} {b:6.2f} " for a, b in cells) + f"{float(found['seconds']):5.0f} s")
    gaussian = [completed[ENCODERS[0]][f"gaussian/{n}"].mean(0) for n in PIXELS]
    print(f"    {'Gaussian of the images':36}" + "".join(f"{math.sqrt(a):9.3f} {b:6.2f} " for a, b in gaussian))
    print(f"    {'average image':36}{float(completed[ENCODERS[0]]['blank'][0]):9.3f}")
    shown = [ANGLES.index(angle) for angle in (0, 30, 60, 90, 120, 150, 180)]
    print(f"(d) {'':36}" + "".join(f"{ANGLES[i]:>6}°" for i in shown))
    for name, found in turned.items():
        for key in ("accuracy", "entropy", "information"):
            print(f"    {name + ', ' + key:36}" + "".join(f"{float(found[key][i]):7.2f}" for i in shown))


def draw_functions(path: Path, toys: dict[str, Arrays], learnt: dict[str, Arrays]) -> None:
    from matplotlib import pyplot

    figure, axes = new_figure(3, 3, (9, 7.2), 75)
    x, (x_rows, y_rows) = gap.grid()[:, 0], gap.rows()
    titles = {"mfvi": "mfvi, prior on weights", "fbnn": "fbnn, prior on functions", "gp": "gp, exact"}
    for axis, name in zip(axes[0], titles, strict=True):
        if name not in toys:
            axis.set_visible(False)
            continue
        mean, sd = toys[name]["mean"], toys[name]["sd"]
        axis.fill_between(x, mean - 2 * sd, mean + 2 * sd, color="tab:blue", alpha=0.25, linewidth=0, label="± 2 sd")
        axis.plot(x, mean, color="tab:blue", linewidth=1.1, label="mean")
        axis.plot(x, truth(x), color="0.4", linewidth=0.9, linestyle="--", label="truth")
        axis.plot(x_rows, y_rows, ".", color="black", markersize=3, label="rows")
        axis.set_ylim(-2.6, 2.6)
        axis.set_title(f"(a) {titles[name]}")
    axes[0, 0].legend(fontsize=7, ncols=2, loc="lower left", frameon=False)
    on_x, f, order = new_task()
    for line, encoder in zip(axes[1:], ENCODERS, strict=True):
        found = learnt[encoder]
        for axis, n in zip(line, CONTEXTS, strict=True):
            mean, sd = found[f"mean/{n}"], found[f"sd/{n}"]
            low, high = (found[f"exact_mean/{n}"] + sign * 2 * found[f"exact_sd/{n}"] for sign in (-1, 1))
            inner = on_x[:, 0]
            band = (mean - 2 * sd, mean + 2 * sd)
            axis.fill_between(inner, *band, color="tab:orange", alpha=0.25, linewidth=0, label="± 2 sd")
            for i, member in enumerate(found[f"members/{n}"]):
                label = "members" if i == 0 else None
                axis.plot(inner, member, color="tab:orange", linewidth=0.5, alpha=0.8, label=label)
            axis.plot(inner, low, color="0.3", linewidth=0.8, linestyle=":", label="exact, ± 2 sd")
            axis.plot(inner, high, color="0.3", linewidth=0.8, linestyle=":")
            axis.plot(inner, f, color="0.4", linewidth=0.9, linestyle="--", label="truth")
            axis.plot(on_x[order[:n], 0], found["labels"][:n], "o", color="black", markersize=3, label="context")
            axis.set_ylim(-4, 3)  # the legend needs the lowest part
            axis.set_title(f"(b) {encoder}, {n} rows of context")
    axes[1, 0].legend(fontsize=7, ncols=2, loc="lower left", frameon=False)
    save(figure, pyplot, path)


def draw_digits(path: Path, completed: dict[str, Arrays], turned: dict[str, Arrays]) -> None:
    from matplotlib import pyplot

    figure, _ = new_figure(1, 1, (9, 5.9), 90)
    figure.clf()
    upper, lower = figure.subfigures(2, 1, height_ratios=(1, 1.25))
    draw_completions(upper, completed["attention"])
    draw_turning(lower, turned)
    figure.savefig(path, metadata={"Software": None})
    pyplot.close(figure)


def draw_completions(figure: Any, found: Arrays) -> None:
    """Three images, each with three contexts: pixels seen, mean and sd."""
    test = digits()[0][N_IMAGES:]
    images = (0, 1, 2)
    axes = figure.subplots(3, 1 + 3 * len(PIXELS))
    for line, i in zip(axes, images, strict=True):
        line[0].imshow(test[i].view(SIDE, SIDE), cmap="gray", vmin=0, vmax=1)
        for j, n in enumerate(PIXELS):
            seen = np.tile([0.25, 0.35, 0.6], (SIDE**2, 1))
            at = found[f"seen/{n}"][i]
            seen[at] = test[i].numpy()[at, None]
            parts = (seen.reshape(SIDE, SIDE, 3), found[f"mean/{n}"][i].reshape(SIDE, SIDE), None)
            for k, part in enumerate(parts):
                axis = line[1 + 3 * j + k]
                if part is None:
                    axis.imshow(found[f"sd/{n}"][i].reshape(SIDE, SIDE), cmap="magma", vmin=0, vmax=0.4)
                else:
                    axis.imshow(part, cmap="gray", vmin=0, vmax=1)
    axes[0, 0].set_title("image", fontsize=8)
    for j, n in enumerate(PIXELS):
        for k, title in enumerate((f"{n} pixels", "mean", "sd")):
            axes[0, 1 + 3 * j + k].set_title(title, fontsize=8)
    for axis in axes.flat:
        axis.set_xticks([])
        axis.set_yticks([])
    figure.suptitle("(c) images completed by a neural process (attention); blue: not seen; sd from 0 to .4", fontsize=9)
    figure.subplots_adjust(left=0.02, right=0.98, top=0.82, bottom=0.03, wspace=0.08, hspace=0.08)


def draw_turning(figure: Any, turned: dict[str, Arrays]) -> None:
    axes = figure.subplots(1, 3, width_ratios=(1, 1, 0.8))
    found = {name: turned[name]["probabilities"] for name in TURNED}  # [A, M, C]
    largest = np.max([p.mean(1).max(0) for p in found.values()], 0)
    classes = [int(c) for c in np.argsort(-largest)[:5]]
    for axis, (name, each) in zip(axes, found.items(), strict=False):
        for i, c in enumerate(sorted(classes)):
            colour = f"C{i}"
            low, high = np.quantile(each[:, :, c], (0.1, 0.9), axis=1)
            axis.fill_between(ANGLES, low, high, color=colour, alpha=0.2, linewidth=0)
            axis.plot(ANGLES, each[:, :, c].mean(1), color=colour, linewidth=1.3, label=f"class {c}")
        bands = f"; bands: 80 % of {TURNED[name]} members" if TURNED[name] > 1 else ""
        axis.set_title(f"(d) a {DIGIT} that turns, {name}{bands}")
        axis.set_ylabel("probability")
        for angle in (0, 45, 90, 135, 180):
            place = axis.inset_axes((angle / 180 * 0.88, 1.12, 0.12, 0.16))
            place.imshow(rotate(drawn_digit(), angle).view(SIDE, SIDE), cmap="gray_r", vmin=0, vmax=1)
            place.set_axis_off()
        axis.title.set_position((0.5, 1.0))
    labelled(figure, axes[0], 0.33, 5)
    for name, colour in zip(TURNED, ("0.4", "tab:red"), strict=True):
        axes[2].plot(ANGLES, turned[name]["entropy"], color=colour, linewidth=1.3, label=f"{name}, entropy")
        axes[2].plot(
            ANGLES, turned[name]["accuracy"], color=colour, linewidth=1, linestyle=":", label=f"{name}, accuracy"
        )
    axes[2].set_title(f"(d) averages over {N_TURNED} digits")
    axes[2].set_ylabel("nats, or share")
    labelled(figure, axes[2], 0.85, 2)
    for axis in axes:
        axis.set_xlabel("degrees", fontsize=8)
        axis.set_xticks(range(0, 181, 45))
        axis.set_xlim(0, 180)
        axis.grid(alpha=0.3)
        axis.tick_params(labelsize=7)
        axis.title.set_fontsize(9)
        axis.yaxis.label.set_fontsize(8)
    figure.subplots_adjust(left=0.06, right=0.98, top=0.72, bottom=0.25, wspace=0.28)


def labelled(figure: Any, axis: Any, x: float, n_columns: int) -> None:
    """A legend below the panels, where it covers no curve."""
    handles, labels = axis.get_legend_handles_labels()
    place = {"loc": "lower center", "bbox_to_anchor": (x, 0.0)}
    figure.legend(handles, labels, fontsize=7, ncols=n_columns, frameon=False, columnspacing=1.2, **place)


def new_figure(n_lines: int, n_columns: int, size: tuple[float, float], dpi: int) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot.subplots(n_lines, n_columns, figsize=size, dpi=dpi, squeeze=False)


def save(figure: Any, pyplot: Any, path: Path) -> None:
    for axis in figure.axes:
        axis.tick_params(labelsize=7)
        axis.title.set_fontsize(9)
    figure.tight_layout(pad=0.5)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})
    pyplot.close(figure)


if __name__ == "__main__":
    main()
