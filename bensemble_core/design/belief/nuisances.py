"""p(y | φ) from particles, of which no two share their targets φ.

Particles with similar targets make up a cell. Before p(y | θ) is averaged over a cell its members are moved to the
cell's middle φ_g along the regression of the other scores on those of the targets (Beaumont, Zhang & Balding 2002),

    η_p  ->  η_p + B (φ_g − φ_p),    B = Cov(η, φ) Cov(φ)⁻¹,

so that what is averaged are draws of p(η | φ_g): exactly in a normal posterior, and else up to the square of the cell's
width, which a second look with larger cells tells.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from bensemble_core.design.belief.belief import PointBelief
from bensemble_core.design.belief.points import Points
from bensemble_core.design.spec.blocks import JointPrior

MEMBERS = (1.5, 6.0, 24.0)  # of a cell, of the root of the number of particles


def cells(prior: JointPrior, z: Tensor, values: dict[str, Tensor], size: float) -> tuple[Tensor, int]:
    """Numbers of the cells [P], of at most about `size` members, and how many there are.

    They are halved along one target after the other, where its value changes nearest to the median: values of a list
    are not torn apart, nor put together as long as there is room.
    """
    listed = [name for block in prior.listed for name in block.names if name in prior.targets]
    columns = [*z[:, : prior.n_target_scores].unbind(1), *(values[name] for name in listed)]

    def parts(cell: Tensor, turn: int) -> Iterator[Tensor]:
        if len(cell) > size:
            for column in range(turn, turn + len(columns)):
                halves = _halves(cell, columns[column % len(columns)])
                if halves is not None:
                    for half in halves:
                        yield from parts(half, column + 1)
                    return
        yield cell

    groups = torch.empty(len(z), dtype=torch.int64)
    found = list(parts(torch.arange(len(z)), 0))
    for number, cell in enumerate(found):
        groups[cell] = number
    return groups, len(found)


def _halves(cell: Tensor, column: Tensor) -> tuple[Tensor, Tensor] | None:
    """The cell cut in two along a column of values; None where all are the same."""
    order = cell[column[cell].argsort(stable=True)]
    changes = column[order].diff().nonzero()[:, 0] + 1
    if not len(changes):
        return None
    cut = int(changes[(changes - len(order) // 2).abs().argmin()])
    return order[:cut], order[cut:]


def aligned(prior: JointPrior, belief: PointBelief, *, n_members: float) -> Points:
    """The particles moved to the middle of their cells, in which they form groups."""
    points, weights = belief.points, belief.weights
    groups, n_groups = cells(prior, points.scores, points.values, n_members)
    k = prior.n_target_scores
    z = points.scores
    mean = weights @ z
    centred = z - mean
    spread = (centred * weights[:, None]).mT @ centred
    slopes = torch.linalg.lstsq(spread[:k, :k], spread[:k, k:]).solution  # [k, K − k]
    mass = torch.zeros(n_groups, dtype=torch.float64).index_add(0, groups, weights)
    middle = torch.zeros(n_groups, k, dtype=torch.float64).index_add(0, groups, weights[:, None] * z[:, :k])
    move = (middle / mass[:, None].clamp(min=1e-300))[groups] - z[:, :k]
    move = torch.where(mass[groups, None] > 0, move, 0.0)
    moved = torch.cat([z[:, :k] + move, z[:, k:] + move @ slopes], 1)
    return Points(
        key=("aligned", n_members, points.key, belief.mass.tobytes()),
        values={**points.values, **prior.at_scores(moved)[0]},
        log_prior=points.log_prior,
        log_density=points.log_density,
        scores=moved,
        groups=groups,
        n_groups=n_groups,
        listed=points.listed,
    )


def leftover(prior: JointPrior) -> float:
    """Share of the change from larger cells to smaller ones that is left below those: the error falls by the square of
    their width, which falls by the root of the number of members, as many as there are targets."""
    return float(1 / ((MEMBERS[1] / MEMBERS[0]) ** (2 / len(prior.targets)) - 1))
