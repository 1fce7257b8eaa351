"""The nearest optimum of a black box in the unit cube, under constraints, by scipy.

SLSQP (Kraft 1988) with slopes by differences, whose designs are valued as one batch. Where that has not ended after
N_CLIMBED batches there are kinks or steps, and COBYQA (Ragonneau & Zhang 2023), which needs no slopes, goes on. Both
look beyond curved constraints on their way: the box is −inf where it has no value there. What is found is allowed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from bensemble_core.design.belief.points import Array

STEP = 1e-6  # of differences
FIRST = 0.1  # length of a first step of SLSQP
N_CLIMBED = 30  # batches
GAIN = 1e-12  # of the objective, whose slope is FIRST at the start: what is left to gain at the end
INSIDE = 1e-11  # distance that SLSQP keeps from the constraints
REACH, RESOLVED = 0.25, 1e-6  # radii that COBYQA begins and ends with
N_LOOKS = 50  # designs for each variable that it looks at
LEEWAY = 1e-9  # by which it may pass a constraint, and the distance that it keeps from them
N_HALVINGS = 45
FAR = 1e6  # beyond which a distance from a constraint counts no more

Box: TypeAlias = Callable[[Array], Array]  # points [n, D] -> [n], or distances from constraints [n, C]


@dataclass(frozen=True, kw_only=True)
class Problem:
    value: Box
    margins: Box  # at least 0 where a point is allowed
    admits: Callable[[Array], bool]

    def climbed(self, start: Array) -> Array:
        """The optimum [D] that slopes lead to from an allowed start."""
        first = with_slopes(self.value, start)
        steepness = float(np.linalg.norm(first[1]))
        if steepness == 0:
            return start
        n_seen, ends = 0, [start]

        def loss(point: Array) -> tuple[float, Array]:
            nonlocal n_seen
            if n_seen == N_CLIMBED:
                raise StopIteration
            value, slope = with_slopes(self.value, point) if n_seen else first
            n_seen += 1
            scale = -FIRST / steepness
            return (scale * float(value), scale * slope) if np.isfinite(value) else (1e10, 0 * slope)

        try:
            end = _slsqp(loss, self.margins, start, GAIN, lambda point: ends.append(point.copy()))
        except StopIteration:
            return self.polished(self._better(start, ends[-1]))
        return self._better(start, end)

    def polished(self, start: Array) -> Array:
        """The optimum [D] near an allowed start, found without slopes."""
        from scipy.optimize import NonlinearConstraint, minimize  # slow to import, and only searches need it

        distances = _distances(self.margins, start)
        limits: Any = [NonlinearConstraint(distances, LEEWAY, np.inf)] if distances(start).size else ()
        options: Any = {"initial_tr_radius": REACH, "final_tr_radius": RESOLVED, "feasibility_tol": LEEWAY}
        options["maxfev"] = N_LOOKS * (1 + len(start))

        def loss(point: Array) -> Any:
            return -float(self.value(point[None])[0])

        found = minimize(
            loss,
            start,
            method="COBYQA",
            bounds=[(0, 1)] * len(start),
            constraints=limits,
            options=options,
        )
        return self._better(start, np.clip(found.x, 0, 1))

    def nearest(self, point: Array) -> Array:
        """The allowed point [D] that is nearest; one that is not allowed if none is found."""
        if self.admits(point):
            return point
        return _slsqp(lambda x: (0.5 * float((x - point) @ (x - point)), x - point), self.margins, point, 1e-14)

    def _better(self, start: Array, end: Array) -> Array:
        """The allowed point nearest to an end, or else the last one on the way from the start; unless it is worse."""
        end = np.where(np.abs(end - end.round()) < LEEWAY, end.round(), end)  # a face of the cube
        found = self.nearest(end)
        if not self.admits(found):
            low, high = 0.0, 1.0
            for _ in range(N_HALVINGS):
                middle = 0.5 * (low + high)
                low, high = (middle, high) if self.admits(start + middle * (end - start)) else (low, middle)
            found = start + low * (end - start)
        before, after = self.value(np.stack([start, found]))
        return found if after >= before else start


def with_slopes(box: Box, point: Array) -> tuple[Array, Array]:
    """Value(s) of a black box at a point [D], and slopes [..., D] by differences into the cube, or to the other side
    where there is no value; 0 where there is none on either."""
    steps = np.where(point < 0.5, STEP, -STEP)
    values = box(np.concatenate([point[None], point + np.diag(steps)]))
    with np.errstate(invalid="ignore"):
        slopes = (values[1:] - values[0]).T / steps
        if not np.isfinite(slopes).all():
            back = (values[0] - box(point - np.diag(steps))).T / steps
            slopes = np.where(np.isfinite(slopes), slopes, np.where(np.isfinite(back), back, 0.0))
    return values[0], slopes


def _slsqp(loss: Callable[[Array], Any], margins: Box, start: Array, tolerance: float, note: Any = None) -> Array:
    from scipy.optimize import minimize

    distances = _distances(margins, start)
    limits: Any = {
        "type": "ineq",
        "fun": lambda x: distances(x) - INSIDE,
        "jac": lambda x: with_slopes(distances, x)[1],
    }
    found = minimize(
        loss,
        start,
        jac=True,
        method="SLSQP",
        bounds=[(0, 1)] * len(start),
        constraints=limits if distances(start).size else (),
        callback=note,
        options={"ftol": tolerance, "maxiter": N_CLIMBED},
    )
    return np.clip(found.x, 0, 1)


def _distances(margins: Box, start: Array) -> Box:
    """Margins of points [..., D] divided by their slopes at the start, about the distances from the constraints."""
    here, slopes = with_slopes(margins, start)
    scale = np.maximum(np.linalg.norm(slopes, axis=-1), np.abs(here))
    scale = np.where((scale > 0) & np.isfinite(scale), scale, 1.0)

    def distances(points: Array) -> Array:
        found = np.nan_to_num(margins(np.atleast_2d(points)) / scale, nan=-1.0, posinf=FAR, neginf=-FAR)
        return found if points.ndim == 2 else found[0]

    return distances
