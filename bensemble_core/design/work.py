"""How much a proposal costs, in evaluations of the model, so that a service can decide who computes it."""

import math
from dataclasses import dataclass

from bensemble_core.design.belief.follow import N_DRAWS, is_drawn, sizes
from bensemble_core.design.belief.particles import N_MOVES, N_PARTICLES
from bensemble_core.design.information.batch import MAX_JOINT
from bensemble_core.design.information.bounds import N_INNER, N_OUTER
from bensemble_core.design.information.nodes import can_enumerate, n_nodes
from bensemble_core.design.search.search import n_compared
from bensemble_core.design.spec.model import Model
from bensemble_core.design.spec.spaces import sobol

N_TEMPERATURES = 8  # a usual number


@dataclass(frozen=True, kw_only=True)
class Work:
    """About how many evaluations of p(y | θ, ξ), nothing remembered; and what they are spent on. 10⁸ take about a
    second on one core."""

    evaluations: int
    n_designs: int  # that are compared
    explanation: str


def work_of(model: Model, *, n_observations: int, count: int, n_pending: int) -> Work:
    n_designs = len(model.space.all()) if model.space.is_listed else n_compared(model.space)
    if model.is_linear_gaussian:
        k = len(model.prior.names)
        return Work(
            evaluations=(n_designs * count + n_observations) * k * k,
            n_designs=n_designs,
            explanation=f"closed form of {n_designs} designs",
        )
    on_grid, is_followed = sizes(model), bool(sizes(model)) or is_drawn(model)
    n_points = N_DRAWS if is_followed else N_PARTICLES
    if on_grid:
        n_points = on_grid[0] ** model.prior.n_scores * model.prior.n_listed
    belief = n_points * (n_observations + 1)
    if not is_followed and n_observations:
        belief *= 1 + N_MOVES * N_TEMPERATURES
    n_outcomes = _outcomes(model)
    if n_outcomes is None:
        each, what = N_OUTER * N_INNER, f"{N_OUTER} × {N_INNER} samples"
        members = sum(range(1 + n_pending, 1 + n_pending + count))
        total = n_designs * each * members
    else:
        each, what = n_points * (n_outcomes + 1), f"{n_points} points × {n_outcomes} outcomes"
        joint = [min(MAX_JOINT, n_outcomes ** min(n_pending + i, 8)) for i in range(count)]
        total = n_designs * each * (1 + math.ceil(sum(joint) / 16))  # a product of matrices is cheap beside the table
    return Work(
        evaluations=int(belief + total),
        n_designs=n_designs,
        explanation=f"{n_designs} designs × {what}, {n_observations} observations",
    )


def _outcomes(model: Model) -> int | None:
    """Outcomes to sum over at a design, or None where they are sampled; judged at the middle of prior and designs."""
    u = sobol(64, model.prior.n_scores + len(model.prior.listed), 0)
    theta, _ = model.prior.at(*model.prior.draw(u))
    rows = model.space.all() if model.space.is_listed else model.space.from_unit(sobol(8, len(model.space.names), 0))
    arguments = model.arguments(theta, rows[:8, None])
    if not can_enumerate(model, arguments, u.new_zeros(64)):
        return None
    return math.prod(n_nodes(v, a) for v, a in zip(model.outcomes, arguments, strict=True))
