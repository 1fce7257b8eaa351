"""Finer grids for those designs whose estimate shows an error: a sharp likelihood, or noise far below the prior."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bensemble_core.design.belief.belief import PointBelief
from bensemble_core.design.belief.infer import grid_belief, infer, next_frame
from bensemble_core.design.belief.memory import Memory
from bensemble_core.design.belief.points import Array, fits, fits_grid
from bensemble_core.design.cells.gains import cell_gains
from bensemble_core.design.cells.precise import uses_cells
from bensemble_core.design.information.eig import Estimates, estimate
from bensemble_core.design.information.shelf import n_outcomes
from bensemble_core.design.spec.model import Event, Model

TOLERANCE = 1e-6  # nats, or of a utility beside the greatest
SHIFTED = 1e-3  # of a utility averaged over shifted nodes, beside the greatest: a jump costs more than it is worth
MAX_LEVEL = 8
MAX_CELLS = 20_000_000  # points × outcomes × designs worked through on one level
GOOD = 0.02  # error of cells that finer grids are not tried beside
N_LOOKED_AT = 8  # designs that tell how many outcomes there are


def estimated(model: Model, events: Sequence[Event], rows: Tensor, memory: Memory, *, seed: int) -> Estimates:
    """EIG of each design [J, D], as exactly as the grids allow."""
    belief = infer(model, events, memory, seed=seed)
    if uses_cells(model) and isinstance(belief, PointBelief) and belief.points.frame is None:
        return by_cells(*cell_gains(model, events, rows.numpy(), memory))
    found = estimate(model, belief, rows, memory, seed=seed)
    return sharpened(model, events, rows, found, memory, np.ones(len(rows), dtype=np.bool_), seed=seed)


def sharpened(
    model: Model,
    events: Sequence[Event],
    rows: Tensor,
    found: Estimates,
    memory: Memory,
    wanted: npt.NDArray[np.bool_],
    *,
    seed: int,
    tolerance: float = TOLERANCE,
) -> Estimates:
    """The estimates of the wanted designs [J] again, on grids of half the spacing each time, until their error is
    within the tolerance, in nats, or of a utility beside the greatest.

    Where the grids end before that, the last change counts as an error too: a grid too coarse by far can miss the same
    thing at two spacings. Where no grid is fine enough for how precise an outcome is, cells are (`design.cells`).
    """
    k = model.prior.n_scores
    if k > 1:  # finer grids of one axis are cheap, and more exact
        found = _by_cells(model, events, rows, found, wanted, memory)
    if found.method not in ("enumeration", "quadrature") or not k >= 1 or not fits_grid(model.prior):
        return found
    if found.utility is not None:
        size = float(np.abs(np.nan_to_num(found.utility, posinf=0.0, neginf=0.0)).max())
        least = TOLERANCE * max(1.0, size) if found.method == "enumeration" else SHIFTED * size
        tolerance = max(tolerance, least)
    for level in range(1, MAX_LEVEL + 1):
        is_good = _of_cells(found) & (found.se <= GOOD)
        rough = (wanted & ((found.se > tolerance) | found.too_coarse) & ~is_good).nonzero()[0]
        if not len(rough):
            break
        before = grid_belief(model, events, memory, level=level - 1)
        following = next_frame(before)
        some = rough[np.linspace(0, len(rough) - 1, N_LOOKED_AT).round().astype(np.int64)]
        n = n_outcomes(model, before.points, rows[torch.from_numpy(some)])
        affordable = MAX_CELLS // (following.size * model.prior.n_listed * n)
        if not fits(model.prior, following) or not affordable:
            break
        if len(rough) > affordable:  # the most promising ones
            rough = rough[np.argsort(-(found.worth + found.se)[rough], kind="stable")[:affordable]]
        belief = infer(model, events, memory, seed=seed, level=level)
        finer = estimate(model, belief, rows[torch.from_numpy(rough)], memory, seed=seed)
        change = np.abs(finer.worth - found.worth[rough])
        se = np.where(finer.se > tolerance, np.maximum(finer.se, change), finer.se)
        kept = ~(finer.too_coarse & _of_cells(found)[rough])
        found = found.with_some(rough[kept], replace(finer, se=se, by_cells=np.zeros_like(finer.too_coarse)).some(kept))
    return _by_cells(model, events, rows, found, wanted, memory)


def _by_cells(
    model: Model, events: Sequence[Event], rows: Tensor, found: Estimates, wanted: npt.NDArray[np.bool_], memory: Memory
) -> Estimates:
    """The same, with wanted designs [J] that are too precise for the grid valued by cells, where these apply."""
    places = (wanted & found.too_coarse).nonzero()[0]
    if not len(places) or not uses_cells(model):
        return found
    eig, se = cell_gains(model, events, rows.numpy()[places], memory)
    here = np.ones(len(places), dtype=np.bool_)
    if found.by_cells is None:
        found = replace(found, by_cells=np.zeros(len(rows), dtype=np.bool_))
    return found.with_some(places, replace(found, eig=eig, se=se, too_coarse=~here, by_cells=here))


def by_cells(eig: Array, se: Array) -> Estimates:
    """Those of cells alone: [J] each."""
    return Estimates(eig=eig, se=se, method="cells", too_coarse=np.zeros(len(eig), dtype=np.bool_))


def _of_cells(found: Estimates) -> npt.NDArray[np.bool_]:
    return np.zeros(len(found.eig), dtype=np.bool_) if found.by_cells is None else found.by_cells
