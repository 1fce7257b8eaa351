"""From observations to a belief: in closed form for linear-Gaussian models, on points whose frame follows the
posterior, and where none does by particles. Where a posterior is too thin for points it is drawn from cells.

Always from the whole list of observations: their order does not matter, and to take one back is to leave it out."""

from collections.abc import Sequence

from bensemble_core.design.belief.belief import Belief, PointBelief
from bensemble_core.design.belief.cloud import cloud_belief
from bensemble_core.design.belief.follow import drawn_belief, grid_belief, is_drawn, sizes
from bensemble_core.design.belief.gaussian import gaussian_belief
from bensemble_core.design.belief.memory import Memory
from bensemble_core.design.belief.particles import particle_belief
from bensemble_core.design.cells.precise import uses_cells
from bensemble_core.design.spec.model import Event, Model

UNRESOLVED = 1e-3  # error of the log evidence beyond which cells are tried, where outcomes are precise
ROUGH = 0.05  # beyond which particles are


def infer(model: Model, events: Sequence[Event], memory: Memory, *, seed: int = 0, level: int = 0) -> Belief:
    """The posterior. `level` asks for a grid so many times finer, where there is a grid."""
    if model.is_linear_gaussian:
        return gaussian_belief(model, events)
    return points_belief(model, events, memory, seed=seed, level=level)


def points_belief(
    model: Model, events: Sequence[Event], memory: Memory, *, seed: int = 0, level: int = 0
) -> PointBelief:
    """The same as weighted points, also for a linear-Gaussian model."""
    found: PointBelief | None = None
    if sizes(model):
        found = grid_belief(model, events, memory, level=level)
    elif is_drawn(model):
        found = drawn_belief(model, events, memory, seed=seed)
    candidates = [] if found is None else [found]
    if found is None or (found.error > UNRESOLVED and model.prior.n_scores > 1):
        if uses_cells(model):
            candidates.append(cloud_belief(model, events, memory, seed=seed))
        elif found is None or found.error > ROUGH:
            candidates.append(particle_belief(model, events, memory, seed=seed))
    return min(candidates, key=lambda each: each.error)
