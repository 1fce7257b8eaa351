"""Whether a stated model is defined wherever it will be asked: every argument of every outcome, the utility, the cost.

Looked at on Sobol points of prior × designs, then far out in the prior: beliefs live on grids that reach eight normal
scores, and a model that is not defined on more than a trace of its prior would be refused there in every round. Who
states a model is told so at once.
"""

import torch
from torch import Tensor

from bensemble_core.design.belief.memory import DROPPABLE
from bensemble_core.design.belief.points import PER_AXIS, REACH, fits, grid, home
from bensemble_core.design.search.search import N_TRIES
from bensemble_core.design.spec.blocks import JointPrior
from bensemble_core.design.spec.model import Model, readable
from bensemble_core.design.spec.spaces import sobol, unique_rows
from bensemble_core.errors import InvalidSpec

N_PROBES = 512
N_DESIGNS = 48  # that the far ends of the prior are looked at with
SURELY = 0.1  # of what is let pass later: grids differ in how much of the prior they see beyond an edge
LARGEST = 1e100  # parameter: squares and cubes of it are numbers still
FINEST = 1e-10  # width of a prior, beside its values
FAR = 6.15  # normal scores: beyond them, on both sides, lies less than DROPPABLE


def probe(model: Model, seed: int = 0) -> None:
    """Evaluate everything; the first wrong value is refused with its place and its point."""
    prior = model.prior
    _probe_prior(prior)
    n_listed = len(prior.listed)
    u = sobol(N_PROBES, prior.n_scores + n_listed + len(model.space.variables), seed)
    theta, _ = prior.at(*prior.draw(u[:, : prior.n_scores + n_listed]))
    designs = _designs(model, u[:, prior.n_scores + n_listed :], seed)
    rows = designs[torch.arange(N_PROBES) % len(designs)]
    for pointer, wrong, expected in model.faults(theta, rows):
        if wrong.any():
            at = int(wrong.nonzero()[0])
            point = {name: float(theta[name][at]) for name in prior.names}
            raise _refusal(point | model.space.decode(rows[at].tolist()), expected, pointer)
    model.costs(rows)
    _probe_far(model, designs)


def _probe_prior(prior: JointPrior) -> None:
    """Whether floating point can hold the prior as far as grids reach, and tell its values apart."""
    k = prior.n_scores
    axes = torch.cat([torch.eye(k), -torch.eye(k)]).to(torch.float64)
    far, near = prior.at_scores(REACH * axes)[0], prior.at_scores(axes)[0]
    for block in prior.continuous:
        pointer = f"/parameters/{block.names[0]}" if len(block.names) == 1 else "/parameters"
        for name in block.names:
            reach = float(far[name].abs().max())
            if not reach <= LARGEST:
                raise InvalidSpec(
                    f"{name} reaches {reach:.1g} within {REACH:g} normal scores of its prior, and a parameter at most "
                    f"{LARGEST:.0e}; state a narrower prior, or the parameter in other units",
                    pointer=pointer,
                )
            width, size = float(near[name].max() - near[name].min()), float(near[name].abs().max())
            if not width >= FINEST * size:
                raise InvalidSpec(
                    f"the prior of {name} is {width:.1g} wide about {size:.6g}, which floating point hardly tells "
                    "apart; state how far the parameter is from a known value instead",
                    pointer=pointer,
                )


def _refusal(point: dict[str, float], expected: str, pointer: str, advice: str = "") -> InvalidSpec:
    return InvalidSpec(f"expected {expected}; not so at {readable(point)}{advice}", pointer=pointer)


def _designs(model: Model, u: Tensor, seed: int) -> Tensor:
    """Some of the designs, in no order: [n, D]."""
    space = model.space
    if space.is_listed:
        listed = space.all()
        chosen = torch.linspace(0, len(listed) - 1, N_PROBES).round().long()
        return listed[chosen[torch.randperm(N_PROBES, generator=torch.Generator().manual_seed(seed))]]
    rows = space.from_unit(u)
    rows = rows[space.admits(rows)]
    if not len(rows):
        tried = torch.cat([space.from_unit(sobol(N_TRIES, u.shape[1], seed)), space.corners()])
        rows = tried[space.admits(tried)][:N_PROBES]
    if not len(rows):
        raise InvalidSpec(
            f"none of {N_TRIES:,} tried designs, nor any corner, satisfies the constraints; narrow low and high around "
            "those that do, or state designs as a list of the allowed ones",
            pointer="/constraints",
        )
    return rows


def _probe_far(model: Model, designs: Tensor) -> None:
    """What of the prior an argument is wrong on, at each of a few designs and at the corners of their space."""
    corners = model.space.corners()
    rows = unique_rows(torch.cat([designs[:N_DESIGNS], corners[model.space.admits(corners)]]))
    theta, mass = _far_points(model)
    n = len(mass)
    for row in rows:
        for pointer, wrong, expected in model.faults(theta, row.expand(n, -1)):
            share = float(mass[wrong].sum())
            if share > SURELY * DROPPABLE:
                worst = int(torch.where(wrong, mass, -1.0).argmax())
                point = {name: float(theta[name][worst]) for name in model.prior.names}
                advice = (
                    f", nor on {share:.2g} of the prior; take a prior that ends where the model does (truncnormal, "
                    "lognormal, beta, …), or clip() the expression"
                )
                raise _refusal(point | model.space.decode(row.tolist()), expected, pointer, advice)


def _far_points(model: Model) -> tuple[dict[str, Tensor], Tensor]:
    """Points of the parameters and the prior mass of each; beyond what a grid can hold, the ends of every axis, each of
    which speaks for more than is let pass."""
    prior = model.prior
    if prior.n_scores in PER_AXIS and fits(prior, home(prior.n_scores)):
        points = grid(prior, home(prior.n_scores))
        return points.values, points.log_prior.exp()
    k = prior.n_scores
    ends = torch.cat([torch.eye(k), -torch.eye(k), torch.zeros(1, k)]).to(torch.float64) * FAR
    index = torch.stack([block.log_weights.argmax() for block in prior.listed]) if prior.listed else torch.zeros(0)
    theta, _ = prior.at(ends, index.long().expand(len(ends), -1))
    return theta, torch.full((len(ends),), 2 * DROPPABLE, dtype=torch.float64)
