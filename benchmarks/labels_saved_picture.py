"""The picture of `benchmarks/labels_saved.py`: a panel a set, the default beside random rows and the best peer."""

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

COLOURS = {"random": "#8a8a8a", "peer": "#3b6fb6", "default": "#d1495b"}
COLUMNS, DPI, N_COLOURS = 5, 120, 64


def draw(found: Sequence[Any], peer: str | None, title: str, path: Path) -> None:
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt
    from PIL import Image

    n_rows = math.ceil(len(found) / COLUMNS)
    columns = min(COLUMNS, len(found))
    figure, axes = plt.subplots(
        n_rows, columns, figsize=(2.0 * columns + 0.4, 1.85 * n_rows + 0.9), squeeze=False, layout="constrained"
    )
    lines = [
        ("random", "random", "random rows"),
        *([("peer", peer, f"best peer: {_readable(peer)}")] if peer is not None else []),
    ]
    lines.append(("default", "default", "Bensemble's default"))
    for axis, f in zip(axes.flat, found, strict=False):
        _panel(axis, f, lines)
    for axis in list(axes.flat)[len(found) :]:
        axis.axis("off")
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.suptitle(title, fontsize=10.5, fontweight="bold")
    goal = "dotted: 95 % of the way from no label to the whole pool"
    figure.legend(handles, labels, loc="outside lower left", ncols=3, fontsize=8, frameon=False, borderaxespad=0.3)
    figure.text(0.995, 0.012, goal, ha="right", va="bottom", fontsize=7.5, color="#444444")
    figure.supylabel("test accuracy" if found[0].kind == "classes" else "− RMSE in sds", fontsize=8.5)
    axes[-1][columns // 2].set_xlabel("labels", fontsize=8.5)
    held = io.BytesIO()
    figure.savefig(held, dpi=DPI)
    plt.close(figure)
    with Image.open(held) as image:  # few colours: half of the bytes
        image.convert("RGB").quantize(N_COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


def _panel(axis: Any, f: Any, lines: Sequence[tuple[str, str, str]]) -> None:
    n, low, high = f.n(), [], [f.goal]
    for key, name, label in lines:
        if name not in f.curves:
            continue
        values = f.values(name, f.seeds(name))
        mean = values.mean(0)
        se = values.std(0, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else np.zeros_like(mean)
        axis.plot(n, mean, color=COLOURS[key], lw=1.8 if key == "default" else 1.2, label=label)
        axis.fill_between(n, mean - se, mean + se, color=COLOURS[key], alpha=0.22, lw=0)
        low.append(mean[1])  # the first round is far below, and would flatten what follows
        high.append((mean + se).max())
    axis.axhline(f.goal, color="#444444", lw=0.8, ls=":")
    bottom = min(low)
    axis.set_ylim(bottom - 0.04 * (max(high) - bottom), max(high) + 0.06 * (max(high) - bottom))
    axis.set_xlim(n[0], n[-1])
    saved = f.saved("default")
    axis.set_title(f.name, fontsize=9, pad=3)
    axis.text(0.97, 0.06, _said(saved), transform=axis.transAxes, ha="right", fontsize=8, color=COLOURS["default"])
    if not math.isnan(saved.share) and saved.share > 0:
        ends = [min(saved.own, n[-1]), min(saved.random, n[-1])]
        axis.plot(ends, [f.goal, f.goal], color=COLOURS["default"], lw=3, alpha=0.6, solid_capstyle="butt")
    axis.tick_params(labelsize=7, length=2, pad=2)
    axis.set_xticks([100, 200, 300])
    axis.grid(alpha=0.25, lw=0.5)


def _said(saved: Any) -> str:
    if math.isnan(saved.share):
        return "goal not reached"
    if math.isinf(saved.own) and math.isinf(saved.random):
        return "neither arrives"
    bound = "≥ " if math.isinf(saved.random) else ""
    if saved.share < 0:
        return f"{-saved.share:.0%} more labels"
    return f"{bound}{saved.share:.0%} saved"


def _readable(name: str) -> str:
    words = {"activeml": "scikit-activeml,", "baal": "baal,", "logistic": "logistic regression,", "qbc": "committee"}
    return " ".join(words.get(word, word) for word in name.split("_"))
