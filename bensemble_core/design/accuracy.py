"""Finer grids for those designs whose estimate shows an error: a sharp likelihood, or noise far below the prior."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from bensemble_core.design.eig import Estimates, estimate
from bensemble_core.design.infer import infer
from bensemble_core.design.memory import Memory
from bensemble_core.design.model import Event, Model
from bensemble_core.design.nodes import N_LEGENDRE, N_PANELS
from bensemble_core.design.points import fits_grid, home

TOLERANCE = 1e-7  # nats
MAX_LEVEL = 8
MAX_CELLS = 20_000_000  # points × outcomes × designs worked through on one level


def estimated(model: Model, events: Sequence[Event], rows: Tensor, memory: Memory, *, seed: int) -> Estimates:
    """EIG of each design [J, D], as exactly as the grids allow."""
    belief = infer(model, events, memory, seed=seed)
    found = estimate(model, belief, rows, memory, seed=seed)
    return sharpened(model, events, rows, found, memory, torch.ones(len(rows), dtype=torch.bool), seed=seed)


def sharpened(
    model: Model, events: Sequence[Event], rows: Tensor, found: Estimates, memory: Memory, wanted: Tensor, *, seed: int
) -> Estimates:
    """The estimates of the wanted designs [J] again, on grids of half the spacing each time, until their error is gone.

    Where the grids end before that, the last change counts as an error too: a grid too coarse by far can miss the same
    thing at two spacings.
    """
    k = model.prior.n_scores
    if found.method not in ("enumeration", "quadrature") or not k >= 1 or not fits_grid(model.prior):
        return found
    for level in range(1, MAX_LEVEL + 1):
        rough = (wanted & (found.se > TOLERANCE)).nonzero()[:, 0]
        n_outcomes = 2 if model.is_discrete else N_PANELS * N_LEGENDRE
        affordable = MAX_CELLS // (home(k, level).n ** k * model.prior.n_listed * n_outcomes)
        if not len(rough) or not fits_grid(model.prior, level) or not affordable:
            break
        if len(rough) > affordable:  # the most promising ones
            rough = rough[(found.eig + found.se)[rough].argsort(descending=True, stable=True)[:affordable]]
        finer = estimate(model, infer(model, events, memory, seed=seed, level=level), rows[rough], memory, seed=seed)
        change = (finer.eig - found.eig[rough]).abs()
        se = torch.where(finer.se > TOLERANCE, torch.maximum(finer.se, change), finer.se)
        utility = found.utility
        if utility is not None and finer.utility is not None:
            utility = utility.index_copy(0, rough, finer.utility)
        found = replace(
            found,
            eig=found.eig.index_copy(0, rough, finer.eig),
            se=found.se.index_copy(0, rough, se),
            utility=utility,
        )
    return found
