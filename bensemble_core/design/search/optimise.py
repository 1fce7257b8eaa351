"""The nearest optimum of a black box in the unit cube, under constraints.

Where there are slopes, by scipy's SLSQP (Kraft 1988); the differences they are taken from are valued as one batch. At
kinks, and where the value has steps, by a compass search (Kolda, Lewis & Torczon 2003), which only compares values.
With scipy's COBYQA in its place, a design at a time, proposals at the tip of a constraint took 0.8 to 1.0 s, not 0.5 to
0.7 (an earlier version, with other stopping).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bensemble_core.design.belief.points import Array

STEP = 1e-6  # of differences
FIRST = 0.1  # slope of the scaled objective at the start: the length of a first step
GAIN = 3e-11  # of the scaled objective: what is left to gain at the end
INSIDE = 3e-10  # by which SLSQP keeps inside the constraints
NEARBY = 1e-2  # where the slopes of constraints are looked at
FAR = 1e6  # beyond which a distance from a constraint counts no more
N_ITERATIONS = 25  # of SLSQP: where it needs more there are kinks
NO_VALUE = 1e10  # a loss
REACH, RESOLVED = 0.02, 1e-8  # lengths of step that a compass search begins and ends with
N_POLLS = 120

Box: TypeAlias = Callable[[Array], Array]  # points [n, D] -> [n], or margins of constraints [n, C]


@dataclass(frozen=True, kw_only=True)
class Problem:
    value: Box  # also asked beyond constraints; −inf where there is none
    margins: Box  # at least 0 where a point is allowed
    admits: Callable[[Array], npt.NDArray[np.bool_]]  # [n, D] -> [n]

    def climb(self, start: Array) -> Array:
        """The best allowed point [D] on the way that slopes lead from a start, which need not be allowed; the start
        itself, where there is none."""
        from scipy.optimize import minimize  # slow to import, and only searches need it

        distances = self._distances(start)
        scale = -FIRST / (float(np.linalg.norm(with_slopes(self.value, start)[1])) or 1.0)
        top, best = -np.inf, start

        def loss(point: Array) -> tuple[float, Array]:
            nonlocal top, best
            value, slopes = with_slopes(self.value, point)
            if value > top and self.admits(point[None])[0]:
                top, best = value, point.copy()
            return (scale * value if np.isfinite(value) else NO_VALUE), scale * slopes

        limits: Any = {"type": "ineq", "fun": lambda point: distances(point) - INSIDE}
        found = minimize(
            loss,
            start,
            jac=True,
            method="SLSQP",
            bounds=[(0, 1)] * len(start),
            constraints=limits if distances(start).size else (),
            options={"ftol": GAIN, "maxiter": N_ITERATIONS, "eps": STEP},
        )
        return best if found.success else self.poll(best)

    def poll(self, point: Array) -> Array:
        """The optimum [D] near an allowed point: steps along the axes, random directions and the direction that was
        last of use; twice as long after one that is better, a quarter as long where none is."""
        random, axes = np.random.default_rng(0), np.eye(len(point))
        top, reach, last = self._allowed(point[None])[0], REACH, axes[0]
        for _ in range(N_POLLS):
            turned = np.linalg.qr(random.standard_normal(axes.shape))[0]
            directions = np.concatenate([axes, -axes, turned, -turned, last[None]])
            points = np.clip(point + reach * directions, 0, 1)
            values = self._allowed(points)
            best = int(values.argmax())
            if values[best] > top:
                point, top, reach, last = points[best], values[best], 2 * reach, directions[best]
            elif reach < RESOLVED:
                break
            else:
                reach /= 4
        return point

    def _distances(self, start: Array) -> Callable[[Array], Array]:
        """Margins of a point [D] for their slopes near the start, about its distances from the constraints: [C]."""
        sides = np.concatenate([np.eye(len(start)), -np.eye(len(start))])
        change = self.margins(np.clip(start + NEARBY * sides, 0, 1)) - self.margins(start[None])
        slopes = np.abs(change).max(0) / NEARBY
        slopes = np.where((slopes > 0) & np.isfinite(slopes), slopes, 1.0)
        return lambda point: np.nan_to_num(self.margins(point[None])[0] / slopes, nan=-1.0, posinf=FAR, neginf=-FAR)

    def _allowed(self, points: Array) -> Array:
        """Values [n], −inf where a point [n, D] is not allowed."""
        return np.where(self.admits(points), self.value(points), -np.inf)


def with_slopes(value: Box, point: Array) -> tuple[float, Array]:
    """Value at a point [D], and slopes [D] by differences into the cube, or to the other side where there is no value;
    0 where there is none on either."""
    steps = np.where(point < 0.5, STEP, -STEP)
    values = value(np.concatenate([point[None], point + np.diag(steps)]))
    with np.errstate(invalid="ignore"):
        slopes = (values[1:] - values[0]) / steps
        if not np.isfinite(slopes).all():
            back = (values[0] - value(point - np.diag(steps))) / steps
            slopes = np.where(np.isfinite(slopes), slopes, np.where(np.isfinite(back), back, 0.0))
    return float(values[0]), slopes
