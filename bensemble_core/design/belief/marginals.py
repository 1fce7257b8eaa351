"""The distribution of one parameter: of a list, of draws, of a normal posterior, and of a grid between its points."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy import special
from torch import Tensor

from bensemble_core.design.belief.points import Array, Points
from bensemble_core.randomness import generator

N_ZOOMS = 4
N_STARTS = 200
N_MESH = 2049
TRACE = 0.0005  # of the mass on either side of a density that is drawn
EVEN = 1e-6  # by which distances of evenly spaced values may differ
ROUNDING = 1e-13  # of the greatest value, by which equal ones may differ

Curve = Callable[[Array], Array]


@dataclass(frozen=True, kw_only=True, eq=False)
class Marginal:
    """A distribution by its quantiles and P(θ ≤ x), or by its masses."""

    quantile: Curve
    below: Curve
    masses: tuple[Array, Array] | None = None  # values of a list and the mass of each

    def shortest(self, mass: float) -> tuple[float, float]:
        """Looked for on a mesh of where it begins, and again on a finer one around the best."""
        low, high, best = 0.0, 1 - mass, 0.0
        for _ in range(1 if self.masses else N_ZOOMS):
            starts = np.linspace(low, high, N_STARTS + 2)[1:-1]
            best = float(starts[(self.quantile(starts + mass) - self.quantile(starts)).argmin()])
            low, high = max(0.0, best - starts[1] + starts[0]), min(1 - mass, best + starts[1] - starts[0])
        first, last = self.quantile(np.array([best, best + mass]))
        return float(first), float(last)

    def density(self, n: int) -> tuple[list[float], list[float]]:
        """At the middles of n bins, or the masses."""
        if self.masses:
            values, weights = self.masses
            return values.tolist(), weights.tolist()
        low, high = self.quantile(np.array([TRACE, 1 - TRACE])).tolist()
        edges = np.linspace(low, high, n + 1)
        rise, width = np.diff(self.below(edges)), np.diff(edges)
        density = np.divide(rise, width, out=np.zeros_like(rise), where=width > 0)
        return (0.5 * (edges[1:] + edges[:-1])).tolist(), density.tolist()


def normal(mean: float, sd: float) -> Marginal:
    return Marginal(quantile=lambda q: mean + sd * special.ndtri(q), below=lambda x: special.ndtr((x - mean) / sd))


def of_points(points: Points, mass: Array, name: str) -> Marginal:
    """Of weighted points: all of a list, or points of whose own mass half lies below them."""
    values, weights = _sorted(points, mass, name, points.values[name])
    if name not in points.listed:
        middle = weights.cumsum() - 0.5 * weights
        return Marginal(quantile=lambda q: np.interp(q, middle, values), below=lambda x: np.interp(x, values, middle))
    total = np.append(0.0, weights.cumsum())
    return Marginal(
        quantile=lambda q: values[np.searchsorted(total[1:-1], q - 1e-12)],
        below=lambda x: total[np.searchsorted(values, x, side="right")],
        masses=(values, weights),
    )


def of_grid(points: Points, mass: Array, name: str) -> Marginal:
    """A continuous parameter of a grid: a monotone map of a sum v of scores, whose distribution function is
    interpolated between the grid's values of v."""
    from scipy.interpolate import PchipInterpolator  # slow to import, and only summaries need it

    assert points.prior is not None
    assert points.frame is not None
    _, slopes, offset, prior = points.prior.coordinate(name)
    m = torch.tensor(slopes, dtype=torch.float64)
    v, weights = _sorted(points, mass, name, offset + points.scores @ m)
    steps = np.diff(v)
    if len(steps) > 2 and np.ptp(steps) <= EVEN * steps[0]:
        middle = weights.cumsum() - 0.5 * weights
        middle[1:-1] -= (weights[2:] - weights[:-2]) / 24  # half of a mass is not quite what lies below a point
    else:  # sums of those of two axes
        width = points.frame.spacing * float((m @ torch.tensor(points.frame.factor, dtype=torch.float64)).abs().max())
        v, middle = _spread_out(v, weights, width)
    mapped = (lambda v: v) if prior is None else (lambda v: prior.at(torch.from_numpy(v)).numpy())
    theta, score = mapped(v), special.ndtri(np.maximum.accumulate(middle.clip(0, 1)))
    with np.errstate(invalid="ignore"):
        some = (
            np.isfinite(score + theta) & (np.diff(score, prepend=-np.inf) > 0) & (np.diff(theta, prepend=-np.inf) > 0)
        )
    v, theta, score = v[some], theta[some], score[some]

    def curve(x: Array, y: Array) -> Curve:
        """A normal posterior is a straight line in normal scores."""
        if len(x) < 2:
            return lambda at: np.full(np.shape(at), y[0])
        found = PchipInterpolator(x, y)
        return lambda at: np.asarray(found(np.clip(at, x[0], x[-1])))

    v_of, score_of = curve(score, v), curve(theta, score)
    return Marginal(
        quantile=lambda q: np.asarray(mapped(v_of(special.ndtri(q)))), below=lambda x: special.ndtr(score_of(x))
    )


def _spread_out(v: Array, weights: Array, width: float) -> tuple[Array, Array]:
    """An even mesh and what lies below it, where each weight is spread evenly over so much about its value; without
    what that adds to the variance, width² / 12."""
    total, first = np.append(0.0, weights.cumsum()), np.append(0.0, (weights * v).cumsum())

    def ramp(x: Array) -> Array:
        i = np.searchsorted(v, x)
        return np.asarray(x * total[i] - first[i])

    def below(x: Array) -> Array:
        return (ramp(x + 0.5 * width) - ramp(x - 0.5 * width)) / width

    at = np.linspace(v[0] - width, v[-1] + width, N_MESH)
    return at, below(at) - (below(at + width) - 2 * below(at) + below(at - width)) / 24


def _sorted(points: Points, mass: Array, name: str, column: Tensor) -> tuple[Array, Array]:
    """Different values of a column [P] in ascending order, and the mass of each."""
    if name not in points.orders:
        values = column.numpy()
        order = values.argsort(kind="stable")
        ascending = values[order]
        starts = np.append(True, np.diff(ascending) > ROUNDING * max(1.0, float(np.abs(ascending).max()))).nonzero()[0]
        points.orders[name] = order, starts, ascending[starts]
    order, starts, values = points.orders[name]
    return values, np.add.reduceat(mass[order], starts)


def draws_of_grid(points: Points, mass: Array, n: int, seed: int) -> dict[str, Tensor]:
    """n draws by name: a point by its mass, and a place in the cell around it."""
    assert points.prior is not None
    assert points.frame is not None
    rng, k = generator(seed), len(points.frame.centre)
    u = torch.rand(n, generator=rng, dtype=torch.float64)
    chosen = torch.searchsorted(torch.from_numpy(mass).cumsum(0), u).clamp(max=points.n - 1)
    away = torch.rand(n, k, generator=rng, dtype=torch.float64) - 0.5
    step = torch.tensor(points.frame.factor, dtype=torch.float64).reshape(k, k) * points.frame.spacing
    listed = {name: points.values[name][chosen] for name in points.listed}
    return {**listed, **points.prior.at_scores(points.scores[chosen] + away @ step.mT)[0]}
