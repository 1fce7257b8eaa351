"""From observations to a belief: on a grid that follows the posterior, from three scores on by draws of a distribution
that follows it, in closed form for linear-Gaussian models. Where a posterior is too thin for a grid it is drawn from
cells, and where a normal distribution does not follow it, by particles. Always from the whole list of observations:
their order does not matter, and to take one back is to leave it out."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bensemble_core.design.belief.belief import Belief, PointBelief, normalised
from bensemble_core.design.belief.cloud import cloud_belief
from bensemble_core.design.belief.convergence import axis_errors, edge_masses, n_peaks
from bensemble_core.design.belief.gaussian import gaussian_belief
from bensemble_core.design.belief.memory import Memory
from bensemble_core.design.belief.particles import particle_belief
from bensemble_core.design.belief.points import (
    REACH,
    Array,
    Frame,
    Points,
    finer,
    fits,
    fits_grid,
    home,
    moved,
    widened,
)
from bensemble_core.design.belief.sampled import fits_draws, sampled_belief
from bensemble_core.design.cells.precise import uses_cells
from bensemble_core.design.spec.model import Event, Model
from bensemble_core.errors import InvalidData

MAX_MOVES = 40
RESOLVED = {1: 4.0, 2: 1.5}  # least sd of a posterior, in spacings
EDGE = 1e-10  # mass at either end of an axis beyond which it is widened
TOLERANCE = {1: 1e-10, 2: 1e-6}  # of the log evidence, along an axis
ENOUGH = 2**17  # points beyond which a grid is made finer no more for its own sake
PEAK, ALIASED = 2.0, 0.5  # effective points of a peak, and the error of a log evidence whose peaks have fewer
SEEN = {1: 1e-8, 2: 1e-3}  # error of the log evidence beyond which peaks may lie between the points
UNRESOLVED = 1e-3  # error of the log evidence beyond which cells are tried, where outcomes are precise
LOOKED = {1: 2**18, 2: 2**16}  # points beyond which a grid with such an error is left all the same


def infer(model: Model, events: Sequence[Event], memory: Memory, *, seed: int = 0, level: int = 0) -> Belief:
    """The posterior. `level` asks for a grid with half the spacing per step, where there is a grid."""
    if model.is_linear_gaussian:
        return gaussian_belief(model, events)
    belief = points_belief(model, events, memory, seed=seed, level=level)
    is_thin = belief.error > UNRESOLVED and model.prior.n_scores > 1  # along one axis a grid is made fine enough
    if not is_thin or not uses_cells(model) or belief.points.frame is None:
        return belief
    return min(belief, cloud_belief(model, events, memory, seed=seed), key=lambda each: each.error)


def points_belief(
    model: Model, events: Sequence[Event], memory: Memory, *, seed: int = 0, level: int = 0
) -> PointBelief:
    """The same as weighted points, also for a linear-Gaussian model."""
    if fits_draws(model.prior):
        found = sampled_belief(model, events, memory, seed=seed)
        return found or particle_belief(model, events, memory, seed=seed)
    if fits_grid(model.prior):
        return grid_belief(model, events, memory, level=level)
    return particle_belief(model, events, memory, seed=seed)


def grid_belief(model: Model, events: Sequence[Event], memory: Memory, *, level: int = 0) -> PointBelief:
    """Posterior weights ∝ φ(z) Π p(y_n | θ(z), ξ_n), on a grid moved until the posterior fills it and made finer along
    the axes that need it. Each level halves the spacing once more.

    A grid resolves a normal posterior whose sd is some spacings in every direction: at 1 the trapezoid rule is off by
    2 exp(−2π²) = 5e-9. Fewer axes can afford more, which quantiles are glad of. What the posterior is like otherwise,
    skewed or with several peaks, is seen from fewer points: while those give something else, there are too few.
    """
    key = ("belief", level, tuple(events))
    return memory.get(key, lambda: _resolved(model, events, memory, level), lambda belief: 2 * belief.points.n)


def _resolved(model: Model, events: Sequence[Event], memory: Memory, level: int) -> PointBelief:
    if level:
        before = grid_belief(model, events, memory, level=level - 1)
        return _again(model, next_frame(before), events, memory, before)
    belief = _followed(model, events, memory)
    if not model.prior.n_scores or not events:
        return belief
    while True:
        frame, errors = _errors(belief)
        if max(errors) <= TOLERANCE[len(errors)]:
            return belief
        following = _finer_where_worst(frame, errors)
        if following.size * model.prior.n_listed > ENOUGH:
            return belief
        belief = _again(model, following, events, memory, belief)


def _again(model: Model, frame: Frame, events: Sequence[Event], memory: Memory, before: PointBelief) -> PointBelief:
    """The belief on another grid; what led to the one before has led to this one, too."""
    return replace(_weigh(model, memory.grid(model, frame), events, memory), spread=before.spread)


def next_frame(belief: PointBelief) -> Frame:
    """That of the next level."""
    frame, errors = _errors(belief)
    return finer(frame, range(len(errors)))


def _finer_where_worst(frame: Frame, errors: list[float]) -> Frame:
    return finer(frame, [max(range(len(errors)), key=errors.__getitem__)])


def _errors(belief: PointBelief) -> tuple[Frame, list[float]]:
    frame = belief.points.frame
    assert frame is not None
    return frame, axis_errors(belief.mass, frame.n)


def _followed(model: Model, events: Sequence[Event], memory: Memory) -> PointBelief:
    """The belief on the grid that following the posterior leads to, from the prior's own on.

    To follow moments is to follow the one peak that is seen. Where a grid shows several and does not resolve them, any
    of them may owe its height to luck, and narrower ones lie between the points: it is made finer before it is left. On
    one axis a grid that had to be left all the same leaves its error to those that follow; on several, what seem to be
    peaks may be a ridge that runs askew, and tell nothing.
    """
    k = model.prior.n_scores
    frame = home(k)
    is_widened, spread = False, 0.0
    for _ in range(MAX_MOVES):
        points = memory.grid(model, frame)
        belief = _weigh(model, points, events, memory)
        if k == 0 or not events:
            return belief
        mean, covariance, least = _moments(belief)
        cut = []
        if belief.edge_mass > EDGE:
            cut = [i for i, mass in enumerate(edge_masses(belief.mass, frame.n)) if mass > EDGE]
        is_seen = not cut and (is_widened or least >= RESOLVED[k])
        if is_seen and k > 1:
            break
        doubt = _unseen(belief, frame)
        if is_seen and not doubt:
            break
        if doubt and (closer := _finer_where_worst(*_errors(belief))).size * model.prior.n_listed <= LOOKED[k]:
            frame = closer
            continue
        # at home a narrow posterior is moved to first: what seems to lie at the edge may lie beyond
        if cut and not (frame.is_home and least < RESOLVED[k]):
            following, is_widened = widened(frame, cut), True
        elif is_widened:
            break
        else:
            following = _spanning(moved(frame, mean, covariance), belief, LOOKED[k] // model.prior.n_listed)
        if is_seen or following == frame or not fits(model.prior, following):
            spread = max(spread, doubt if k == 1 else 0.0)
            break
        frame, spread = following, max(spread, doubt if k == 1 else 0.0)
    return replace(belief, spread=spread) if spread else belief


def _spanning(frame: Frame, belief: PointBelief, most: int) -> Frame:
    """The frame widened until no part of a belief lies beyond it, a far peak say, while it has at most so many
    points."""
    away = belief.points.score_array - np.array(frame.centre)
    while True:
        u = np.linalg.solve(np.array(frame.factor), away.T)
        lost = [i for i, axis in enumerate(np.abs(u)) if belief.mass[axis > REACH].sum() > EDGE]
        if not lost or (following := widened(frame, lost)).size > most:
            return frame
        frame = following


def _unseen(belief: PointBelief, frame: Frame) -> float:
    """The error of a log evidence that several peaks leave which are not resolved, 0 where they are or there is one."""
    error, k = max(axis_errors(belief.mass, frame.n)), len(frame.n)
    if k > 1 and error <= SEEN[k]:
        return 0.0
    peaks = n_peaks(belief.points.prior_array + belief.log_likelihood, frame.n)
    if peaks == 1:
        return 0.0
    # along one axis spacings that fit a swing of the outcome agree by luck: a peak that is seen has some points
    is_thin = k == 1 and belief.ess < PEAK * peaks
    return max(error, ALIASED) if is_thin else error * (error > SEEN[k])


def _weigh(model: Model, points: Points, events: Sequence[Event], memory: Memory) -> PointBelief:
    log_likelihood = memory.log_likelihood(model, points, events)
    mass, log_evidence = normalised(points.prior_array + log_likelihood)
    if log_evidence == -math.inf:
        raise InvalidData("the model gives these observations together no chance; check them, or allow for lapses")
    return PointBelief(
        method="grid" if points.scores.shape[1] else "listed",
        points=points,
        names=model.prior.names,
        mass=mass,
        log_likelihood=log_likelihood,
        log_evidence=log_evidence if events else 0.0,
    )


def _moments(belief: PointBelief) -> tuple[Array, Array, float]:
    """Mean and covariance of z, and the least sd in any direction, in spacings."""
    z, w = belief.points.score_array, belief.mass
    mean = w @ z
    centred = z - mean
    covariance = (w * centred.T) @ centred
    assert belief.points.frame is not None
    spacing = belief.points.frame.spacing
    factor = np.asarray(belief.points.frame.factor) * spacing
    if len(factor) == 1:
        return mean, covariance, math.sqrt(covariance[0, 0]) / factor[0, 0]
    inner = np.linalg.solve(factor, np.linalg.solve(factor, covariance).T)
    return mean, covariance, math.sqrt(max(0.0, np.linalg.eigvalsh((inner + inner.T) / 2)[0]))
