"""The posterior on points whose frame follows it (importance sampling).

    w ∝ p(z) Π p(y_n | z, ξ_n) / q(z),    q the density of the points

From the prior on, the frame is moved to the moments that its points tell, under as much of the likelihood as leaves
enough of them effective, until the posterior fills it. Frames are rounded, so that the points of one round mostly serve
the next one too and tables computed at them can be kept; where a frame lies does not depend on the order of outcomes.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from bensemble_core.design.belief.belief import PointBelief, normalised
from bensemble_core.design.belief.convergence import remaining
from bensemble_core.design.belief.memory import Memory
from bensemble_core.design.belief.points import MAX_POINTS, N_PARTS, REACH, Array, Frame, Points, draws, grid, home
from bensemble_core.design.spec.model import Event, Model
from bensemble_core.errors import InvalidData

SIZES = {0: (1,), 1: (513, 2049, 8193, 32769, 262145), 2: (49, 97, 193, 385)}  # points along each axis
MOST_DRAWN = 6  # scores
N_DRAWS = 2**14  # half as many where outcomes are integrated over: each then takes a hundred nodes
ENOUGH = 0.2  # share of effective points
SPARSE = 0.05  # the same of a grid that is fine enough: points that stay serve the next trial too
LEAST = 0.02  # of draws, below which they tell nothing
TEMPERED = 0.1  # share of effective points that moments are taken from
FEWEST = 0.005  # the same, where they lead no further
COLDEST = -80.0  # log of the least share of the likelihood
RESOLVED = {1: 3.0, 2: 1.0}  # least sd of a posterior along the axes of a grid, in spacings
WIDER = 1.2  # sds of a frame beside the posterior's, at least
TRACE = 1e-10  # mass that a grid may cut off
TOLERANCE = {1: 1e-9, 2: 2e-4}  # of the log evidence, beyond which a finer grid is taken
AFFORDABLE = 2**18 + 1  # points of such a grid
MAX_MOVES = 40
PEAK, SEEN = 3.0, 1e-6  # points of a peak at least, and its least height beside the highest
ALIASED = 0.5  # error of the log evidence where peaks have fewer points
TINY = 1e-300


def sizes(model: Model) -> list[int]:
    """Points along each axis of the grids that there may be, the coarsest first; none where points are drawn."""
    prior = model.prior
    return [n for n in SIZES.get(prior.n_scores, ()) if n**prior.n_scores * prior.n_listed <= MAX_POINTS]


def is_drawn(model: Model) -> bool:
    return 3 <= model.prior.n_scores <= MOST_DRAWN and not model.prior.listed and not sizes(model)


def grid_belief(model: Model, events: Sequence[Event], memory: Memory, *, level: int = 0) -> PointBelief:
    """On the coarsest grid that shows the posterior, or one so many times finer as far as there are any."""
    k, every = model.prior.n_scores, sizes(model)
    for place, n in enumerate(every):
        following = every[place + 1] if place + 1 < len(every) else None
        is_last = following is None or following**k * model.prior.n_listed > AFFORDABLE
        belief = followed(model, events, memory, home(k, n, is_grid=True), seed=0, is_last=is_last)
        if following is None or not k:
            break
        is_enough = is_last or belief.error <= TOLERANCE[k]
        if is_enough and level == 0:
            break
        level -= is_enough
    return belief


def drawn_belief(model: Model, events: Sequence[Event], memory: Memory, *, seed: int) -> PointBelief | None:
    """On draws; None where a normal distribution does not follow the posterior."""
    n = N_DRAWS if model.is_discrete else N_DRAWS // 2
    belief = followed(model, events, memory, home(model.prior.n_scores, n, is_grid=False), seed=seed)
    return belief if _share(belief.points, belief.mass) >= LEAST else None


def followed(
    model: Model, events: Sequence[Event], memory: Memory, frame: Frame, *, seed: int, is_last: bool = True
) -> PointBelief:
    """The belief on the frame that following the posterior from the prior's leads to; where finer grids are left to
    try, not from one that shows several peaks and does not resolve them: narrower ones may lie between its points."""
    key = ("followed", seed, frame, is_last, tuple(events))
    return memory.get(
        key, lambda: _followed(model, events, memory, frame, seed, is_last), lambda belief: 2 * belief.points.n + 100
    )


def _followed(
    model: Model, events: Sequence[Event], memory: Memory, frame: Frame, seed: int, is_last: bool
) -> PointBelief:
    best: PointBelief | None = None
    most, enough = -1.0, TEMPERED
    for _ in range(MAX_MOVES):
        belief = weighed(model, laid(model, frame, memory, seed), events, memory)
        if not events or not frame.centre:
            return belief
        if not is_last and len(frame.centre) == 1 and _are_thin(belief.points, belief.mass, least=2):
            return belief
        share = _share(belief.points, belief.mass)
        is_whole = not frame.is_grid or (belief.edge_mass <= TRACE and _is_resolved(belief, frame))
        is_exact = frame.is_grid and belief.error <= TOLERANCE[len(frame.centre)]
        if share >= (SPARSE if is_exact else ENOUGH) and is_whole:
            return belief if enough == TEMPERED else replace(belief, spread=max(belief.spread, ALIASED))
        if share + is_whole > most:
            best, most = belief, share + is_whole
        following = _around(belief, frame, enough)
        if following == frame:
            enough /= 4  # most of what is tempered may still be the points' own density, and no step to the posterior
            if enough < FEWEST or not is_last or len(frame.centre) > 1:  # which may pass by other peaks
                break
        frame = following
    assert best is not None
    return best


def laid(model: Model, frame: Frame, memory: Memory, seed: int) -> Points:
    is_smooth = all(variable.n_classes for variable in model.outcomes)
    draw = partial(draws, model.prior, frame, seed, is_smooth=is_smooth)
    make = partial(grid, model.prior, frame) if frame.is_grid else draw
    return memory.get(("points", frame, seed), make, lambda p: p.n * (len(p.values) + len(frame.centre) + 6))


def weighed(model: Model, points: Points, events: Sequence[Event], memory: Memory) -> PointBelief:
    log_likelihood = memory.log_likelihood(model, points, events)
    mass, log_evidence = normalised(points.prior_array + log_likelihood)
    if log_evidence == -math.inf:
        raise InvalidData("the model gives these observations together no chance; check them, or allow for lapses")
    is_grid = points.frame is not None and points.frame.is_grid
    return PointBelief(
        method="particles" if not is_grid else "grid" if points.scores.shape[1] else "listed",
        points=points,
        names=model.prior.names,
        mass=mass,
        log_likelihood=log_likelihood,
        log_evidence=log_evidence if events else 0.0,
        spread=_spread(points, mass) if events else 0.0,
    )


def _spread(points: Points, mass: Array) -> float:
    """How far log Σ w may be off: from every second and every fourth point of a grid, or from parts of the draws."""
    if points.half is not None and points.quarter is not None:
        k = points.scores.shape[1]
        sums = [mass[some.numpy()].sum() * 2 ** (k * i) for i, some in enumerate((points.half, points.quarter), 1)]
        error = float(remaining(*(np.log(np.maximum(total, TINY)) for total in (1.0, *sums))))
        # along one axis spacings that fit a swing of the outcome agree by luck
        return max(error, ALIASED) if k == 1 and _are_thin(points, mass) else error
    if points.frame is None or points.frame.is_grid:
        return 0.0
    parts = mass.reshape(N_PARTS, -1).sum(1) * N_PARTS
    return float(parts.std(ddof=1) / math.sqrt(N_PARTS))


def _are_thin(points: Points, mass: Array, *, least: int = 1) -> bool:
    """Whether there are so many peaks along one axis, of the listed value with most of them, and few points in each."""
    assert points.frame is not None
    along = mass.reshape(points.frame.n, -1)
    here, before, after = along[1:-1], along[:-2], along[2:]
    n = int(((here > before) & (here >= after) & (here > SEEN * mass.max())).sum(0).max())
    return n >= least and 1 / float(mass @ mass) < PEAK * n


def _share(points: Points, mass: Array) -> float:
    """Share of effective points, beside those of the rule itself: 1 / Σ w² / q."""
    return 1 / float((mass * mass / np.maximum(points.mass_array, TINY)).sum())


def _is_resolved(belief: PointBelief, frame: Frame) -> bool:
    """Whether the posterior is some spacings wide along every direction of a grid."""
    _, covariance = _moments(belief.points.score_array, belief.mass)
    factor = np.array(frame.factor) * frame.spacing
    inner = np.linalg.solve(factor, np.linalg.solve(factor, covariance).T)
    return bool(np.linalg.eigvalsh((inner + inner.T) / 2)[0] >= RESOLVED[len(factor)] ** 2)


def _moments(z: Array, mass: Array) -> tuple[Array, Array]:
    mean = mass @ z
    away = z - mean
    return mean, (mass * away.T) @ away


def _tempered(belief: PointBelief, enough: float) -> Array:
    """Weights [P] on the way from the points' own density to the posterior, q^(1−β) p^β, as far as leaves enough of
    them effective."""
    points = belief.points
    if _share(points, belief.mass) >= enough:
        return belief.mass
    log_q = np.log(np.maximum(points.mass_array, TINY))
    log_ratio = np.maximum(points.prior_array + belief.log_likelihood, -1e300) - log_q
    low, high = COLDEST, 0.0  # log β
    for _ in range(30):
        middle = 0.5 * (low + high)
        mass, _ = normalised(log_q + math.exp(middle) * log_ratio)
        low, high = (middle, high) if _share(points, mass) >= enough else (low, middle)
    return normalised(log_q + math.exp(low) * log_ratio)[0]


def _around(belief: PointBelief, frame: Frame, enough: float = TEMPERED) -> Frame:
    """The frame with the moments of a belief, widened, of a grid until it holds all but a trace, and rounded: scales up
    to a power of √2, the centre to a half and the slopes to a quarter of a scale."""
    z, mass = belief.points.score_array, _tempered(belief, enough)
    mean, covariance = _moments(z, mass)
    floor = 1e-10 * np.diag(covariance.diagonal()) + 1e-24 * np.eye(len(covariance))
    if frame.is_grid:  # a posterior between two points seems to have no width
        step = 0.5 * frame.spacing * np.array(frame.factor)
        floor = floor + step @ step.T
    root = np.linalg.cholesky(covariance + floor)
    wider = np.full(len(mean), WIDER)
    if frame.is_grid:
        away = np.abs(np.linalg.solve(root, (z[mass > TRACE] - mean).T)).max(1)
        wider = np.maximum(wider, away / REACH)
    scales = 2 ** (np.ceil(2 * np.log2(wider * root.diagonal()) - 1e-9) / 2)
    slopes = np.round(4 * root / scales[:, None] * (scales / root.diagonal())) / 4  # in units of scale / scale
    factor = np.tril(slopes, -1) * scales[:, None] + np.diag(scales)
    centre = np.round(2 * mean / scales) * scales / 2
    return Frame(
        centre=tuple(centre.tolist()), factor=tuple(map(tuple, factor.tolist())), n=frame.n, is_grid=frame.is_grid
    )
