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
from bensemble_core.design.belief.points import fits, fits_grid
from bensemble_core.design.cells.gains import cell_gains
from bensemble_core.design.cells.precise import uses_cells
from bensemble_core.design.information.eig import Estimates, estimate
from bensemble_core.design.information.shelf import n_outcomes
from bensemble_core.design.spec.model import Event, Model

TOLERANCE = 1e-7  # nats, or of a utility beside the greatest
SHIFTED = 1e-3  # of a utility averaged over shifted nodes, beside the greatest: a jump costs more than it is worth
MAX_LEVEL = {1: 8, 2: 8, 3: 2}
MAX_CELLS = 20_000_000  # points × outcomes × designs worked through on one level
FINE = 2e-2  # error of what is searched, beside the greatest
N_LOOKED_AT = 8  # designs that tell how many outcomes there are


def estimated(model: Model, events: Sequence[Event], rows: Tensor, memory: Memory, *, seed: int) -> Estimates:
    """EIG of each design [J, D], as exactly as the grids allow."""
    belief = infer(model, events, memory, seed=seed)
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
) -> Estimates:
    """The estimates of the wanted designs [J] again, on grids of half the spacing each time, until their error is gone.

    Where the grids end before that, the last change counts as an error too: a grid too coarse by far can miss the same
    thing at two spacings. Where no grid is fine enough for how precise an outcome is, cells are (`design.cells`).
    """
    k = model.prior.n_scores
    if k > 1:  # finer grids of one axis are cheap, and more exact
        found = _by_cells(model, events, rows, found, wanted)
    if found.method not in ("enumeration", "quadrature") or not k >= 1 or not fits_grid(model.prior):
        return found
    tolerance = TOLERANCE
    if found.utility is not None:
        size = float(np.abs(np.nan_to_num(found.utility, posinf=0.0, neginf=0.0)).max())
        tolerance = TOLERANCE * max(1.0, size) if found.method == "enumeration" else SHIFTED * size
    for level in range(1, MAX_LEVEL[k] + 1):
        rough = (wanted & ((found.se > tolerance) | found.too_coarse) & ~_of_cells(found)).nonzero()[0]
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
        found = found.with_some(rough, replace(finer, se=se))
    return _by_cells(model, events, rows, found, wanted)


def _by_cells(
    model: Model, events: Sequence[Event], rows: Tensor, found: Estimates, wanted: npt.NDArray[np.bool_]
) -> Estimates:
    """The same, with wanted designs [J] that are too precise for the grid valued by cells, where these apply."""
    places = (wanted & found.too_coarse).nonzero()[0]
    if not len(places) or not uses_cells(model):
        return found
    eig, se = cell_gains(model, events, rows.numpy()[places])
    here = np.ones(len(places), dtype=np.bool_)
    if found.by_cells is None:
        found = replace(found, by_cells=np.zeros(len(rows), dtype=np.bool_))
    return found.with_some(places, replace(found, eig=eig, se=se, too_coarse=~here, by_cells=here))


def _of_cells(found: Estimates) -> npt.NDArray[np.bool_]:
    return np.zeros(len(found.eig), dtype=np.bool_) if found.by_cells is None else found.by_cells


def resolving(model: Model, events: Sequence[Event], rows: Tensor, memory: Memory, *, seed: int) -> PointBelief | None:
    """The belief on the first finer grid on which a few of the designs [J, D] show no error to speak of, or on the last
    one that is affordable for all of them; None where its own will do, and where there is no grid."""
    k = model.prior.n_scores
    if not 1 <= k <= max(MAX_LEVEL) or not fits_grid(model.prior):
        return None
    some = rows[torch.linspace(0, len(rows) - 1, N_LOOKED_AT).round().long()]
    belief = grid_belief(model, events, memory)
    for level in range(MAX_LEVEL[k] + 1):
        found = estimate(model, belief, some, memory, seed=seed)
        following = next_frame(belief)
        n = n_outcomes(model, belief.points, some)
        is_affordable = following.size * model.prior.n_listed * n * len(rows) <= 4 * MAX_CELLS
        if (
            found.method == "bounds"
            or float(found.se.max()) <= FINE * float(np.abs(found.worth).max())
            or not (is_affordable and fits(model.prior, following) and level < MAX_LEVEL[k])
        ):
            break
        belief = grid_belief(model, events, memory, level=level + 1)
    return belief if level else None
