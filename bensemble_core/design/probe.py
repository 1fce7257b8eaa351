"""Whether a stated model is defined wherever it will be asked: every argument of every outcome, the utility, the cost.

Looked at on Sobol points of prior × designs, then far out in the prior: beliefs live on grids that reach eight normal
scores, and a model that is not defined on more than a trace of its prior would be refused there in every round. Who
states a model is told so at once.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from bensemble_core.design.belief.follow import SIZES
from bensemble_core.design.belief.memory import DROPPABLE
from bensemble_core.design.belief.points import MAX_POINTS, grid, home
from bensemble_core.design.search.search import N_TRIES, allowed, with_corners
from bensemble_core.design.spec.blocks import JointPrior
from bensemble_core.design.spec.model import Model, readable
from bensemble_core.design.spec.spaces import Space, sobol
from bensemble_core.errors import InvalidSpec
from bensemble_core.randomness import derive

N_PROBES = 512
N_DESIGNS = 48  # that the far ends of the prior are looked at with
SURELY = 0.1  # of what is let pass later: grids differ in how much of the prior they see beyond an edge
REACH = 8.0  # normal scores as far as which a parameter has to be a number
LARGEST = 1e100  # parameter: squares and cubes of it are numbers still
FINEST = 1e-10  # width of a prior, beside its values
ADVICE = (
    ", nor on {share:.2g} of the prior; take a prior that ends where the model does (truncnormal, lognormal, beta, …), "
    "or clip() the expression"
)
FAR = 6.15  # normal scores: beyond them, on both sides, lies less than DROPPABLE


def probe(model: Model, seed: int = 0) -> None:
    """Evaluate everything; the first wrong value is refused with its place and its point."""
    prior = model.prior
    _refuse_extreme(prior)
    theta, _ = prior.at(*prior.draw(sobol(N_PROBES, prior.n_scores + len(prior.listed), seed)))
    designs = _designs(model.space, seed)
    rows = designs[torch.arange(N_PROBES) % len(designs)]
    _refuse_faults(model, theta, rows, torch.ones(N_PROBES, dtype=torch.float64))
    model.costs(rows)
    _probe_far(model, designs)


def _refuse_extreme(prior: JointPrior) -> None:
    """Floating point has to hold the prior as far as grids reach, and tell its values apart."""
    k = prior.n_scores
    axes = torch.cat([torch.eye(k), -torch.eye(k)]).to(torch.float64)
    far, near = prior.at_scores(REACH * axes)[0], prior.at_scores(axes)[0]
    for block in prior.continuous:
        pointer = f"/parameters/{block.names[0]}" if len(block.names) == 1 else "/parameters"
        for name in block.names:
            reach, size = float(far[name].abs().max()), float(near[name].abs().max())
            width = float(near[name].max() - near[name].min())
            if not reach <= LARGEST:
                raise InvalidSpec(
                    f"{name} reaches {reach:.1g} within {REACH:g} normal scores of its prior, and a parameter at most "
                    f"{LARGEST:.0e}; state a narrower prior, or the parameter in other units",
                    pointer=pointer,
                )
            if not width >= FINEST * size:
                raise InvalidSpec(
                    f"the prior of {name} is {width:.1g} wide about {size:.6g}, which floating point hardly tells "
                    "apart; state how far the parameter is from a known value instead",
                    pointer=pointer,
                )


def _refuse_faults(model: Model, theta: Mapping[str, Tensor], rows: Tensor, mass: Tensor, advice: str = "") -> None:
    """Points of the parameters and designs, a pair in each place, at which the model is not defined may have no more
    mass than a trace."""
    for pointer, wrong, expected in model.faults(theta, rows):
        share = float(mass[wrong].sum())
        if share > SURELY * DROPPABLE:
            worst = int(torch.where(wrong, mass, -1.0).argmax())
            point = {name: float(theta[name][worst]) for name in model.prior.names}
            told = readable(point | model.space.decode(rows[worst].tolist()))
            raise InvalidSpec(f"expected {expected}; not so at {told}{advice.format(share=share)}", pointer=pointer)


def _designs(space: Space, seed: int) -> Tensor:
    """Some of the designs, in no order: [n, D]."""
    if space.is_listed:
        listed = space.all()
        chosen = torch.linspace(0, len(listed) - 1, N_PROBES).round().long()
        return listed[chosen[torch.randperm(N_PROBES, generator=torch.Generator().manual_seed(seed))]]
    rows = allowed(space, N_PROBES, derive(seed, 0), {})
    if not len(rows):
        raise InvalidSpec(
            f"none of {N_TRIES:,} tried designs, nor any corner, satisfies the constraints; narrow low and high around "
            "those that do, or state designs as a list of the allowed ones",
            pointer="/constraints",
        )
    return rows


def _probe_far(model: Model, designs: Tensor) -> None:
    """Ask the model far out in the prior, at a few designs and the corners of their space."""
    theta, mass = _far_points(model)
    for row in with_corners(model.space, designs[:N_DESIGNS], {}).unbind():
        _refuse_faults(model, theta, row.expand(len(mass), -1), mass, ADVICE)


def _far_points(model: Model) -> tuple[dict[str, Tensor], Tensor]:
    """Points of the parameters and the prior mass of each; beyond what a grid can hold, the ends of every axis, each of
    which speaks for more than is let pass."""
    prior = model.prior
    n = SIZES.get(prior.n_scores, (MAX_POINTS,))[0]
    if n**prior.n_scores * prior.n_listed <= MAX_POINTS:
        points = grid(prior, home(prior.n_scores, n, is_grid=True))
        return points.values, points.log_prior.exp()
    k = prior.n_scores
    ends = torch.cat([torch.eye(k), -torch.eye(k), torch.zeros(1, k)]).to(torch.float64) * FAR
    index = torch.stack([block.log_weights.argmax() for block in prior.listed]) if prior.listed else torch.zeros(0)
    theta, _ = prior.at(ends, index.long().expand(len(ends), -1))
    return theta, torch.full((len(ends),), 2 * DROPPABLE, dtype=torch.float64)
