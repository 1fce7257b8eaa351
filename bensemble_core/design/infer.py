"""From observations to a belief: on a grid that follows the posterior, by particles beyond three scores, in closed form
for linear-Gaussian models. Always from the whole list of observations: their order does not matter, and to take one
back is to leave it out."""

from collections.abc import Sequence

import torch
from torch import Tensor

from bensemble_core.design.belief import Belief, PointBelief, normalised
from bensemble_core.design.gaussian import gaussian_belief
from bensemble_core.design.memory import Memory
from bensemble_core.design.model import Event, Model
from bensemble_core.design.particles import particle_belief
from bensemble_core.design.points import Points, fits_grid, home, moved, widened
from bensemble_core.errors import InvalidData

MAX_MOVES = 40
RESOLVED = {1: 4.0, 2: 2.0, 3: 1.25}  # least sd of a posterior, in spacings
EDGE = 1e-10  # mass at the edge of a grid beyond which it is widened


def infer(model: Model, events: Sequence[Event], memory: Memory, *, seed: int = 0, level: int = 0) -> Belief:
    """The posterior. `level` asks for a grid with half the spacing per step, where there is a grid."""
    if model.is_linear_gaussian:
        return gaussian_belief(model, events)
    return points_belief(model, events, memory, seed=seed, level=level)


def points_belief(
    model: Model, events: Sequence[Event], memory: Memory, *, seed: int = 0, level: int = 0
) -> PointBelief:
    """The same as weighted points, also for a linear-Gaussian model."""
    if fits_grid(model.prior, level):
        return grid_belief(model, events, memory, level=level)
    return particle_belief(model, events, memory, seed=seed)


def grid_belief(model: Model, events: Sequence[Event], memory: Memory, *, level: int = 0) -> PointBelief:
    """Posterior weights ∝ φ(z) Π p(y_n | θ(z), ξ_n), on a grid moved until the posterior fills it.

    A grid resolves a posterior whose sd is some spacings in every direction: at 1.25 the trapezoid rule is off by
    2 exp(−2π² 1.25²) = 8e-14 for a normal. Fewer axes can afford more, which quantiles are glad of.
    """
    k = model.prior.n_scores
    frame = home(k, level)
    is_widened = False
    for _ in range(MAX_MOVES):
        points = memory.grid(model, frame)
        belief = _weigh(model, points, events, memory)
        if k == 0 or not events:
            return belief
        mean, covariance, least = _moments(belief)
        if belief.edge_mass > EDGE and not frame.is_home:
            frame, is_widened = widened(frame), True
            continue
        if is_widened or least >= RESOLVED[k] * frame.spacing:
            return belief
        factor = torch.tensor(frame.factor, dtype=torch.float64)
        # a posterior that falls between two nodes seems to have no width: give it half the spacing
        floor = (0.5 * frame.spacing) ** 2 * factor @ factor.mT
        following = moved(frame, mean, covariance + floor)
        if following == frame:
            return belief
        frame = following
    return belief


def _weigh(model: Model, points: Points, events: Sequence[Event], memory: Memory) -> PointBelief:
    log_likelihood = memory.log_likelihood(model, points, events)
    log_joint = points.log_prior + log_likelihood
    log_weights, log_evidence = normalised(log_joint)
    if log_evidence == -torch.inf:
        raise InvalidData("the model gives these observations together no chance; check them, or allow for lapses")
    return PointBelief(
        method="grid" if points.scores.shape[1] else "listed",
        points=points,
        names=model.prior.names,
        log_weights=log_weights,
        log_likelihood=log_likelihood,
        log_evidence=log_evidence if events else 0.0,
    )


def _moments(belief: PointBelief) -> tuple[Tensor, Tensor, float]:
    """Mean and covariance of z, and the least sd in any direction of u."""
    z, w = belief.points.scores, belief.weights
    mean = w @ z
    centred = z - mean
    covariance = (centred * w[:, None]).mT @ centred
    assert belief.points.frame is not None
    if z.shape[1] == 1:
        return mean, covariance, float(covariance[0, 0]) ** 0.5 / belief.points.frame.factor[0][0]
    factor = torch.tensor(belief.points.frame.factor, dtype=torch.float64)
    inner = torch.linalg.solve_triangular(factor, covariance, upper=False)
    inner = torch.linalg.solve_triangular(factor, inner.mT, upper=False)
    return mean, covariance, float(torch.linalg.eigvalsh((inner + inner.mT) / 2)[0].clamp(min=0)) ** 0.5
