"""The outcomes to sum or integrate over at each design: enumerated, or nodes of a quadrature, or their product."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bensemble_core.design.families import MAX_COUNT, Arguments
from bensemble_core.design.model import Model

MAX_NODES = 8192
RARE = 27.6  # points with less than 10⁻¹² of the greatest prior mass do not decide where outcomes may lie
N_PANELS = 24
N_LEGENDRE = 6
N_PLACED = 200  # points whose outcomes place the panels
SCORES = (-8.0, -6.5, -5.0, -4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.5, 8.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Nodes:
    """Coordinates of the outcomes (y itself where discrete) and the weight of each in a sum over y."""

    coordinates: Tensor  # [Y, J, O]
    weights: Tensor | None  # [Y, J]; None is 1 throughout
    is_complete: bool  # every outcome is there: nothing is cut off and nothing interpolated


def can_enumerate(model: Model, arguments: Sequence[Arguments], log_prior: Tensor) -> bool:
    """Whether a table over all outcomes is small enough; otherwise bounds by sampling are used."""
    n = 1
    n_continuous = 0
    for variable, found in zip(model.outcomes, arguments, strict=True):
        if variable.family.is_discrete:
            count = variable.family.count(_usual(variable, found, log_prior))
            n *= count if count <= MAX_COUNT else MAX_NODES + 1
        else:
            n_continuous += 1
            n *= N_PANELS * N_LEGENDRE
    return n_continuous <= 1 and n <= MAX_NODES


def place_nodes(model: Model, arguments: Sequence[Arguments], log_prior: Tensor, n_designs: int) -> Nodes:
    """arguments [J, P], log_prior [P] -> nodes."""
    axes: list[Tensor] = []  # each [Y_i, J]
    weights: Tensor | None = None
    is_complete = True
    for variable, found in zip(model.outcomes, arguments, strict=True):
        usual = _usual(variable, found, log_prior)
        if variable.family.is_discrete:
            n = variable.family.count(usual)
            axes.append(torch.arange(n, dtype=torch.float64)[:, None].expand(n, n_designs))
            is_complete = is_complete and variable.family.is_finite
        else:
            nodes, weights = _quadrature(variable.family, usual, n_designs)
            axes.append(nodes)
            is_complete = False
    sizes = [len(axis) for axis in axes]
    grid = torch.cartesian_prod(*(torch.arange(size) for size in sizes)).reshape(-1, len(sizes))
    coordinates = torch.stack([axis[grid[:, i]] for i, axis in enumerate(axes)], -1)  # [Y, J, O]
    if weights is not None:
        (which,) = (i for i, variable in enumerate(model.outcomes) if not variable.family.is_discrete)
        weights = weights[grid[:, which]]
    return Nodes(coordinates=coordinates, weights=weights, is_complete=is_complete)


def _usual(variable: Any, arguments: Arguments, log_prior: Tensor) -> dict[str, Tensor]:
    """The arguments at points of more than negligible mass, thinned evenly for continuous outcomes."""
    keep = (log_prior > log_prior.max() - RARE).nonzero()[:, 0]
    if not variable.family.is_discrete and len(keep) > N_PLACED:
        keep = keep[torch.linspace(0, len(keep) - 1, N_PLACED).round().long()]
    n = len(log_prior)
    return {name: a[..., keep] if a.ndim and a.shape[-1] == n else a for name, a in arguments.items()}


def _quadrature(family: Any, arguments: Arguments, n_designs: int) -> tuple[Tensor, Tensor]:
    """Gauss-Legendre on panels between quantiles of where the points' outcomes lie, dense where many are: [Y, J] twice.

    Panels are cut in asinh((c − middle) / scale): linear in the middle, logarithmic in the tails, so that heavy tails
    and widely different scales are covered by few.
    """
    with torch.no_grad():
        places = torch.broadcast_tensors(*(family.place(arguments, score) for score in SCORES))  # type: ignore[no-untyped-call]
        c = torch.stack(places, -1)  # [J or 1, P, S] or fewer axes
        while c.ndim < 3:
            c = c.unsqueeze(0)
        c = c.expand(n_designs, *c.shape[1:]).flatten(1)
        ordered = c.sort(1).values
        n = ordered.shape[1]
        middle = ordered[:, n // 2 : n // 2 + 1]
        scale = (ordered[:, int(0.8 * n)] - ordered[:, int(0.2 * n)]).clamp(min=1e-12)[:, None]
        pick = torch.linspace(0, n - 1, N_PANELS + 1).round().long()
        edges = torch.asinh((ordered[:, pick] - middle) / scale)
        x, w = np.polynomial.legendre.leggauss(N_LEGENDRE)
        at, share = torch.as_tensor(0.5 * (x + 1)), torch.as_tensor(0.5 * w)
        widths = edges.diff(dim=1)[..., None]
        s = (edges[:, :-1, None] + widths * at).flatten(1)  # [J, Q]
        nodes = middle + scale * torch.sinh(s)
        weights = (widths * share).flatten(1) * scale * torch.cosh(s)
    return nodes.mT.contiguous(), weights.mT.contiguous()
