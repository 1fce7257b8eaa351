"""The distribution of one parameter: of a list, of particles, of a normal posterior, and of a grid between its points.

A grid's masses are seen as a density that is a spline of order 5 through them: along every axis Σ c_i B(u / h − i),
with B the B-spline, and c from the filter that makes the sum pass through the masses (Unser 1999). B is the density of
the sum of six uniforms less 3: draws of the posterior and its distribution functions take no more than the c. Quantiles
of a normal posterior are right to 1e-6, 1e-4 and 3e-3 of an sd on grids of one to three axes.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from scipy import special
from torch import Tensor

from bensemble_core.design.belief.points import REACH, Array, Points
from bensemble_core.randomness import generator

NEGLIGIBLE = 1e-14  # of the mass: points that may be left out
ORDER: Final = 5  # of the spline
HALF = 3  # of the width of a B-spline, in spacings
PER_STEP = 32  # places of a mesh between two points,
N_MESH = 2**20  # or fewer, so that they are no more than this
N_ZOOMS = 4
N_STARTS = 200
TRACE = 0.0005  # of the mass on either side of a density that is drawn

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


def of_points(values: Array, mass: Array, *, is_list: bool) -> Marginal:
    """Points with these values and masses [P]: particles, of whose own mass half lies below them, or all of a list."""
    values, where = np.unique(values, return_inverse=True)
    weights = np.bincount(where, mass, len(values)).astype(np.float64)
    if not is_list:
        middle = weights.cumsum() - 0.5 * weights
        return Marginal(quantile=lambda q: np.interp(q, middle, values), below=lambda x: np.interp(x, values, middle))
    total = np.append(0.0, weights.cumsum())
    return Marginal(
        quantile=lambda q: values[np.searchsorted(total[1:-1], q - 1e-12)],
        below=lambda x: total[np.searchsorted(values, x, side="right")],
        masses=(values, weights),
    )


def of_grid(points: Points, mass: Array, name: str) -> Marginal:
    """A continuous parameter on a grid, which is a monotone map of v = o + Σ_{j ≤ i} m_j u_j, with u the coordinates of
    the grid and i the parameter's own axis (prior and frame are both triangular).

    Along its own axis the density is the spline; over the others the sum is the trapezoid rule, as exact as the grid.
    """
    from scipy.interpolate import PchipInterpolator  # slow to import, and only summaries need it

    assert points.prior is not None
    assert points.frame is not None
    frame = points.frame
    axis, slopes, offset, prior = points.prior.coordinate(name)
    factor = np.asarray(frame.factor)
    steps = np.asarray(frame.spacing) * (np.asarray(slopes) @ factor)  # of v, from point to point along each axis
    lines = mass.reshape(*frame.n, -1).sum(tuple(range(axis + 1, len(frame.n) + 1)))
    place = np.zeros(1)  # of the points, in steps along the own axis
    for step, n in zip(steps[: axis + 1] / steps[axis], frame.n[: axis + 1], strict=True):
        place = (place[:, None] + step * np.arange(n)).ravel()
    some = place[lines.ravel() > NEGLIGIBLE]
    first = math.floor(some.min())
    span = math.ceil(some.max()) - first
    per_step = min(PER_STEP, N_MESH / max(1, span))
    share, cell = np.modf((np.clip(place, first, first + span) - first) * per_step)
    coefficients = _spline_coefficients(lines, (axis,)).ravel()
    on_mesh = np.zeros(math.ceil(span * per_step) + 2)
    for beyond, part in ((0, 1 - share), (1, share)):
        on_mesh += np.bincount(cell.astype(np.int64) + beyond, coefficients * part, len(on_mesh))
    reach = math.ceil(HALF * per_step)
    rise = np.convolve(on_mesh, np.diff(_spline_below(np.arange(-reach, reach + 1) / per_step)))
    below = np.maximum.accumulate(np.maximum(np.append(0, rise.cumsum()), 0))
    below /= below[-1]
    start = offset + float(np.asarray(slopes) @ (np.asarray(frame.centre) - REACH * factor.sum(1)))
    v = start + steps[axis] * (first + (np.arange(len(below)) - reach) / per_step)
    values = v if prior is None else prior.at(torch.from_numpy(v)).numpy()
    rising, where = np.unique(below, return_index=True)
    try:
        with np.errstate(all="ignore"):
            quantile: Curve = PchipInterpolator(rising, values[where])
    except ValueError:  # slopes beyond what floating point holds
        quantile = lambda q: np.interp(q, rising, values[where])  # noqa: E731
    return Marginal(quantile=quantile, below=lambda x: np.interp(x, values, below))


def _spline_coefficients(cube: Array, axes: Iterable[int]) -> Array:
    """Those of the B-splines along some axes whose sum passes through the values of a cube."""
    from scipy.ndimage import spline_filter1d  # slow to import, and only summaries need it

    for axis in axes:
        cube = spline_filter1d(cube, ORDER, axis)
    return cube


def _spline_below(x: Array) -> Array:
    """∫ of the B-spline up to x: the distribution function of the sum of n uniforms less n / 2."""
    x, n = np.clip(x, -HALF, HALF), ORDER + 1
    terms = [(-1) ** i * math.comb(n, i) * np.maximum(x + HALF - i, 0) ** n for i in range(n + 1)]
    return np.asarray(np.sum(terms, 0) / math.factorial(n))


def draws_of_grid(points: Points, mass: Array, n: int, seed: int) -> dict[str, Tensor]:
    """n draws by name: a B-spline by its coefficient, and a place within it. Where points lie too far apart for what
    is between them some coefficients are negative; these are left out."""
    assert points.prior is not None
    assert points.frame is not None
    rng, frame = generator(seed), points.frame
    k = len(frame.n)
    coefficients = _spline_coefficients(mass.reshape(*frame.n, -1), range(k)).ravel()
    below = torch.from_numpy(np.where(coefficients > NEGLIGIBLE, coefficients, 0)).cumsum(0)
    u = torch.rand(n, generator=rng, dtype=torch.float64)
    chosen = torch.searchsorted(below, u * below[-1]).clamp(max=points.n - 1)
    away = torch.rand(n, k, ORDER + 1, generator=rng, dtype=torch.float64).sum(2) - HALF  # [n, K], in spacings
    step = torch.tensor(frame.factor, dtype=torch.float64).reshape(k, k) * torch.tensor(frame.spacing)
    listed = {name: points.values[name][chosen] for name in points.listed}
    return {**listed, **points.prior.at_scores(points.scores[chosen] + away @ step.mT)[0]}
