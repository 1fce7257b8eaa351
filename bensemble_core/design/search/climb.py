"""From a design up to the nearest optimum, within a box and constraints: sequential quadratic programming (Han 1977,
Powell 1978) of which every point that is looked at is allowed.

A step d maximises gᵀd − ½ dᵀBd under linearised constraints, with B from changes of the Lagrangian's gradient (BFGS,
damped). Where the step ends beyond a curved constraint it is brought back by the shortest way, and where it leads down
it is halved.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from bensemble_core.design.belief.points import Array

N_STEPS = 20  # usual number of evaluations
MOST = 40  # evaluations
FAR = 0.25  # of the range of a variable, in one step
FIRST = 0.1
N_HALVINGS = 8
N_RESTORED = 12  # Newton's steps back to the constraints
INSIDE = 1e-12  # distance from a constraint that is aimed at
GAIN = 1e-9  # of the value: what is left to gain where it ends

Value: TypeAlias = Callable[[Array], tuple[float, Array]]  # a point [D] -> the value and its gradient [D]


@dataclass(frozen=True, kw_only=True)
class Edges:
    """Constraints on points [D] of the unit cube."""

    admits: Callable[[Array], bool]
    margins: Callable[[Array], tuple[Array, Array]]  # [C] at least 0 where allowed, and their gradients [C, D]

    def restored(self, point: Array) -> Array | None:
        """The point brought back to what is allowed, by the shortest way as it looks from there; None if that fails."""
        for _ in range(N_RESTORED):
            if self.admits(point):
                return point
            margins, slopes = self.margins(point)
            steep = np.linalg.norm(slopes, axis=1)
            broken = (margins < INSIDE * steep) & (steep > 0)
            if not broken.any():
                return None
            lacking = INSIDE * steep[broken] * 2 - margins[broken]
            point = np.clip(point + np.linalg.lstsq(slopes[broken], lacking, rcond=1e-10)[0], 0, 1)
        return point if self.admits(point) else None


@dataclass(frozen=True, kw_only=True)
class Climbed:
    point: Array  # [D]
    value: float
    is_stationary: bool  # nothing is left to gain, as far as gradients tell


def climb(start: Array, value: Value, edges: Edges | None = None, gain: float = GAIN) -> Climbed:
    """The optimum that ways up from an allowed `start` [D] of the unit cube lead to."""
    at = start
    now, slope = value(at)
    n = len(at)
    margins, normals = _margins(edges, at)
    curvature: Array | None = None
    n_left = MOST
    while n_left > 0:
        steepness = float(np.linalg.norm(slope))
        if not (np.isfinite(now) and 0 < steepness < np.inf):
            return Climbed(point=at, value=now, is_stationary=np.isfinite(now) and steepness == 0)
        b = np.eye(n) * steepness / FIRST if curvature is None else curvature
        step, forces = _step(b, slope, at, margins, normals)
        promised = float(slope @ step)
        if promised <= gain * abs(now):
            return Climbed(point=at, value=now, is_stationary=True)
        share = 1.0
        for _ in range(N_HALVINGS):
            beyond = np.clip(at + share * step, 0, 1)
            tried = beyond if edges is None else edges.restored(beyond)
            if tried is not None:
                there, steeper = value(tried)
                n_left -= 1
                if there > now + 1e-4 * share * promised:
                    break
            share /= 2
        else:
            if curvature is None:
                return Climbed(point=at, value=now, is_stationary=False)
            curvature = None  # perhaps it was misled: begin again from the steepest way
            continue
        assert tried is not None
        room, following = _margins(edges, tried)
        moved = tried - at
        change = (slope + normals.T @ forces) - (steeper + following.T @ forces)
        curvature = _updated(curvature, moved, change, steepness / FIRST)
        at, now, slope, margins, normals = tried, there, steeper, room, following
    return Climbed(point=at, value=now, is_stationary=False)


def _margins(edges: Edges | None, at: Array) -> tuple[Array, Array]:
    return (np.zeros(0), np.zeros((0, len(at)))) if edges is None else edges.margins(at)


def _step(b: Array, slope: Array, at: Array, margins: Array, normals: Array) -> tuple[Array, Array]:
    """The best d of gᵀd − ½ dᵀBd with margins + normals · d ≥ 0 in the box: [D], and the multipliers of margins [C].

    With B = L Lᵀ and d = L⁻ᵀ(z + L⁻¹g) it is the shortest z under linear constraints, by non-negative least squares
    (Lawson & Hanson 1974, chapter 23).
    """
    from scipy.optimize import nnls  # slow to import, and only searches need it

    n = len(at)
    root = np.linalg.cholesky(b)
    free = np.linalg.solve(root, slope)
    low, high = np.maximum(-at, -FAR), np.minimum(1 - at, FAR)
    rows = np.concatenate([normals, np.eye(n), -np.eye(n)])
    bound = np.concatenate([-np.maximum(margins, 0), low, -high])
    length = np.linalg.norm(rows, axis=1)
    kept = length > 0
    rows, bound = rows[kept] / length[kept, None], bound[kept] / length[kept]
    g = np.linalg.solve(root, rows.T)  # [D, r], L⁻¹ of the rows
    h = bound - g.T @ free
    if (h <= 0).all():
        return np.linalg.solve(root.T, free), np.zeros(len(margins))
    weights, _ = nnls(np.concatenate([g, h[None]]), np.concatenate([np.zeros(n), [1.0]]))
    left = 1 - h @ weights
    if left <= 1e-14:  # no room at all
        return np.zeros(n), np.zeros(len(margins))
    forces = np.zeros(len(kept))
    forces[kept] = weights / left / length[kept]
    step = np.linalg.solve(root.T, free + g @ (weights / left))
    return np.clip(step, low, high), forces[: len(margins)]


def _updated(curvature: Array | None, moved: Array, change: Array, first: float) -> Array:
    """B after a step over which the gradient changed by so much; damped, so that it stays positive (Powell 1978)."""
    along = float(moved @ change)
    if curvature is None:
        scale = float(change @ change) / along if along > 0 else first
        curvature = np.eye(len(moved)) * min(max(scale, 1e-3 * first), 1e6 * first)
    bent = curvature @ moved
    quadratic = float(moved @ bent)
    if along < 0.2 * quadratic:
        part = 0.8 * quadratic / (quadratic - along)
        change = part * change + (1 - part) * bent
        along = float(moved @ change)
    made = curvature - np.outer(bent, bent) / quadratic + np.outer(change, change) / along
    return np.asarray((made + made.T) / 2)
