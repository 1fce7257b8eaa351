"""The pictures of docs/design.md: `python docs/draw_design.py`, after `make setup`.

How points of the parameters follow a posterior, and how a mixture of cells sees a precise outcome.
"""

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from bensemble_core.design import CATALOGUE, Experiment
from bensemble_core.design.belief.belief import PointBelief
from bensemble_core.design.cells.fit import fit
from bensemble_core.design.cells.mixture import push
from bensemble_core.design.cells.precise import Precise

matplotlib.use("Agg")
import matplotlib.pyplot as plt

FOLDER = Path(__file__).parent
INK, BLUE, RED, RULE = "#1c1e22", "#0b5a8f", "#c33a68", "#d9d5c9"
STYLE = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": INK}
N_TRIALS = (0, 12, 300)
TRUTH = {"threshold": 0.4, "slope": 3.0, "lapse": 0.02}
SD = 0.03
OBSERVED, ASKED = 0.4, 1.6
MAGNIFIED = 5


def frames() -> None:
    """Draws of threshold and slope, and how much of the posterior each stands for, after more and more trials."""
    experiment = Experiment.from_spec(CATALOGUE["psychometric_logistic_2afc"].spec)
    history: list[Any] = []
    figure, axes = plt.subplots(1, len(N_TRIALS), figsize=(9, 3), sharex=True, sharey=True)
    for axis, n in zip(axes, N_TRIALS, strict=True):
        while len(history) < n:
            design = experiment.propose(history)[0].design
            history.append((design, experiment.draw(TRUTH, design, seed=len(history))))
        belief = experiment.posterior(history)
        assert isinstance(belief, PointBelief)
        z = belief.points.score_array[:, :2]
        size = 6 * belief.mass / belief.mass.max()
        axis.scatter(z[:, 1], z[:, 0], s=0.6, color=RULE, linewidths=0, rasterized=True)
        axis.scatter(z[:, 1], z[:, 0], s=size, color=BLUE, linewidths=0, rasterized=True)
        axis.set(title=f"{n} trials: sd of the threshold {belief.sd['threshold']:.2f}", xlim=(-4, 4), ylim=(-4, 4))
        axis.set_xlabel("threshold, in sds of the prior")
    axes[0].set_ylabel("slope (scores of the prior)")
    figure.tight_layout()
    figure.savefig(FOLDER / "design_frame.png", dpi=110)
    plt.close(figure)


def cells() -> None:
    """exp(−b x) with b and the scale a unknown, measured once and precisely: the posterior is a thin bent ridge."""
    experiment = Experiment.from_spec(
        {
            "parameters": {name: {"dist": "normal", "loc": 0, "scale": 1} for name in "ab"},
            "designs": {"x": {"type": "float", "low": 0, "high": 2}},
            "outcome": {"y": {"family": "normal", "mean": "exp(0.5 * a - exp(0.5 * b) * x)", "sd": SD}},
        }
    )
    precise = Precise(model=experiment.spec.model)
    data = precise.observed([[((OBSERVED,), (0.6,))]])
    (mixture,) = fit(precise, data, 0.56)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4))
    a, b = np.meshgrid(np.linspace(-3.2, 3.2, 500), np.linspace(-3.2, 3.2, 500))
    misfit = (0.6 - np.exp(0.5 * a - np.exp(0.5 * b) * OBSERVED)) / SD
    left.contourf(a, b, np.exp(-0.5 * (misfit**2 + a**2 + b**2)), levels=12, cmap="Greys")
    turn = np.linspace(0, 2 * np.pi, 60)
    circle = np.stack([np.cos(turn), np.sin(turn)])
    for weight, centre, factor in zip(mixture.weights, mixture.centres, mixture.factors, strict=True):
        x, y = centre[:, None] + factor @ circle
        left.plot(x, y, color=BLUE, linewidth=0.8, alpha=float(np.sqrt(weight / mixture.weights.max())))
    left.set(xlabel="a", ylabel="b", title="after one outcome: the posterior, and its cells")
    left.set(xlim=(-2, 2), ylim=(-3, 3))
    found = push(precise, mixture, np.array([[ASKED]]))
    mean, sd = found.means[0, :, 0], found.sds[0, :, 0]
    y = np.linspace((mean - 4 * sd).min(), (mean + 4 * sd).max(), 600)
    each = mixture.weights * np.exp(-0.5 * ((y[:, None] - mean) / sd) ** 2) / (sd * np.sqrt(2 * np.pi))
    right.plot(y, MAGNIFIED * each, color=BLUE, linewidth=0.6, alpha=0.5)
    right.plot(y, each.sum(1), color=RED, linewidth=1.6)
    right.set(
        xlabel=f"outcome at x = {ASKED}",
        ylabel="density",
        title=f"what each cell expects (× {MAGNIFIED}), and all together",
    )
    right.set_xlim(-0.1, 0.6)
    figure.tight_layout()
    figure.savefig(FOLDER / "design_cells.png", dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    plt.rcParams.update(STYLE)
    frames()
    cells()
