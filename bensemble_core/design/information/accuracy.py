"""Finer grids for those designs whose estimate shows an error, and cells where no grid is fine enough."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from bensemble_core.design.belief.belief import PointBelief
from bensemble_core.design.belief.follow import SIZES
from bensemble_core.design.belief.infer import infer
from bensemble_core.design.belief.memory import Memory
from bensemble_core.design.cells.gains import cell_gains
from bensemble_core.design.cells.precise import uses_cells
from bensemble_core.design.information.coarseness import Flags, too_coarse
from bensemble_core.design.information.eig import Estimates, estimate, plain_estimates
from bensemble_core.design.information.tables import method_of, n_numbers
from bensemble_core.design.spec.model import Event, Model

TOLERANCE = {1: 3e-5, 2: 1e-3}  # nats, by the axes of the grid: finer ones of two axes cost much more
SUMMED = 1e-6  # of a utility beside the greatest, of outcomes that are enumerated
SHIFTED = 1e-3  # of a utility averaged over shifted nodes, beside the greatest: a jump costs more than it gains
MAX_NUMBERS = 20_000_000  # points × outcomes × designs worked through on one grid
GOOD = 0.02  # error of cells that finer grids are not tried beside


def estimated(model: Model, events: Sequence[Event], rows: Tensor, memory: Memory, *, seed: int) -> Estimates:
    """EIG of each design [J, D], as exactly as the grids allow, or by cells where these are too coarse."""
    belief = infer(model, events, memory, seed=seed)
    if not isinstance(belief, PointBelief) or not uses_cells(model):
        found = estimate(model, belief, rows, memory, seed=seed)
    elif method_of(model, belief.points, rows, memory) == "bounds":
        return plain_estimates(*cell_gains(model, events, rows.numpy(), memory), "cells")
    elif model.prior.n_scores == 1:
        found = estimate(model, belief, rows, memory, seed=seed)
    elif belief.method == "particles" or (coarse := too_coarse(model, belief, rows)).all():
        return plain_estimates(*cell_gains(model, events, rows.numpy(), memory), "cells")
    else:
        by_grid = estimate(model, belief, rows[torch.from_numpy(~coarse)], memory, seed=seed)
        blank = plain_estimates(np.zeros(len(rows)), np.zeros(len(rows)), by_grid.method)
        found = replace(blank.with_some((~coarse).nonzero()[0], by_grid), too_coarse=coarse)
    return sharpened(model, events, rows, found, memory, np.ones(len(rows), dtype=np.bool_), seed=seed)


def sharpened(
    model: Model,
    events: Sequence[Event],
    rows: Tensor,
    found: Estimates,
    memory: Memory,
    wanted: Flags,
    *,
    seed: int,
    tolerance: float = 0.0,
) -> Estimates:
    """The estimates of the wanted designs [J] again, on ever finer grids until their error is within the tolerance, in
    nats, or of a utility beside the greatest; there is a least one that is worth its time.

    Where the grids end before that, the last change counts as an error too: a grid too coarse by far can miss the same
    thing at two spacings. Where no grid is fine enough for how precise an outcome is, cells are (`design.cells`).
    """
    if model.prior.n_scores > 1:  # finer grids of one axis are cheap, and more exact
        found = _by_cells(model, events, rows, found, wanted, memory)
    if found.method not in ("enumeration", "quadrature"):
        return found
    if found.utility is not None:
        size = float(np.abs(np.nan_to_num(found.utility, posinf=0.0, neginf=0.0)).max())
        tolerance = max(tolerance, SUMMED * max(1.0, size) if found.method == "enumeration" else SHIFTED * size)
    else:
        tolerance = max(tolerance, TOLERANCE.get(model.prior.n_scores, 0.0))
    before = infer(model, events, memory, seed=seed)
    for level in range(1, len(SIZES.get(model.prior.n_scores, ()))):
        is_good = np.zeros(len(rows), dtype=np.bool_) if found.by_cells is None else found.by_cells & (found.se <= GOOD)
        rough = (wanted & ((found.se > tolerance) | found.too_coarse) & ~is_good).nonzero()[0]
        belief = infer(model, events, memory, seed=seed, level=level) if len(rough) else before
        assert isinstance(belief, PointBelief)
        if belief.points.key == getattr(before, "points", belief.points).key:
            break
        n = n_numbers(model, belief.points, rows[torch.from_numpy(rough[[0, len(rough) // 2, -1]])])
        affordable = MAX_NUMBERS // n
        if not affordable:
            break
        if len(rough) > affordable:  # the most promising ones
            rough = rough[np.argsort(-(found.value + found.se)[rough], kind="stable")[:affordable]]
        finer = estimate(model, belief, rows[torch.from_numpy(rough)], memory, seed=seed)
        change = np.abs(finer.value - found.value[rough])
        se = np.where(finer.se > tolerance, np.maximum(finer.se, change), finer.se)
        found = found.with_some(rough, replace(finer, se=se, by_cells=np.zeros(len(rough), dtype=np.bool_)))
        before = belief
    return _by_cells(model, events, rows, found, wanted, memory)


def _by_cells(
    model: Model, events: Sequence[Event], rows: Tensor, found: Estimates, wanted: Flags, memory: Memory
) -> Estimates:
    """The same, with wanted designs [J] that are too precise for the grid valued by cells, where these apply."""
    places = (wanted & found.too_coarse).nonzero()[0]
    if not len(places) or not uses_cells(model):
        return found
    cells = plain_estimates(*cell_gains(model, events, rows.numpy()[places], memory), "cells")
    return found.with_some(places, replace(cells, by_cells=np.ones(len(places), dtype=np.bool_)))
