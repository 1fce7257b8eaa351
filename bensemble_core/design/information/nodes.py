"""The outcomes to sum or integrate over at each design: enumerated, or nodes of a quadrature, or their product.

A count that is too large to enumerate is integrated over. Far from 0 the sum over its values is the integral to all
digits; the first values are summed all the same, and where the sum passes into the integral Gregory's rule sees to it
that nothing is counted twice.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bensemble_core.design.spec.counting import GREGORY, MANY, N_LEGENDRE, first_counts, panels
from bensemble_core.design.spec.families import MAX_COUNT, Arguments
from bensemble_core.design.spec.model import Model

MAX_NODES = 8192
RARE = 27.6  # points with less than 10⁻¹² of the greatest mass do not decide where outcomes may lie
N_PANELS = 24
N_PLACED = 200  # points whose outcomes place the panels
TEMPERED = 0.5  # power of the mass that says how many of them lie where
SCORES = (-8.0, -6.5, -5.0, -4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.5, 8.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Nodes:
    """Coordinates of the outcomes (y itself where discrete) and the weight of each in a sum over y."""

    coordinates: Tensor  # [Y, J, O]
    weights: Tensor | None  # [Y, J]; None is 1 throughout
    is_complete: bool  # every outcome is there: nothing is cut off and nothing interpolated
    integrated: int | None = None  # the number of the outcome variable that is not summed but integrated over


def can_enumerate(model: Model, arguments: Sequence[Arguments], log_mass: Tensor) -> bool:
    """Whether a table over all outcomes is small enough; otherwise bounds by sampling are used."""
    n = 1
    for variable, found in zip(model.outcomes, arguments, strict=True):
        n *= n_nodes(variable, _usual(variable, found, log_mass))
    return n_integrals(model, arguments, log_mass) <= 1 and n <= MAX_NODES


def n_integrals(model: Model, arguments: Sequence[Arguments], log_mass: Tensor) -> int:
    """How many of the outcome variables are integrated over."""
    pairs = zip(model.outcomes, arguments, strict=True)
    return sum(_is_integrated(variable, _usual(variable, found, log_mass)) for variable, found in pairs)


def n_nodes(variable: Any, arguments: Arguments) -> int:
    """At most how many outcomes of a variable there are to go through."""
    if not _is_integrated(variable, arguments):
        return int(variable.family.count(arguments))
    return N_PANELS * N_LEGENDRE + (int(MANY) + len(GREGORY) if variable.family.is_discrete else 0)


def _is_integrated(variable: Any, arguments: Arguments) -> bool:
    return not variable.family.is_discrete or int(variable.family.count(arguments)) > MAX_COUNT


def place_nodes(
    model: Model, arguments: Sequence[Arguments], log_mass: Tensor, n_designs: int, n_panels: int = 0
) -> Nodes:
    """Where outcomes of points with these masses [P] lie: arguments [J, P] -> nodes."""
    axes: list[Tensor] = []  # each [Y_i, J]
    weights: Tensor | None = None
    integrated: int | None = None
    is_complete = True
    for i, (variable, found) in enumerate(zip(model.outcomes, arguments, strict=True)):
        usual = _usual(variable, found, log_mass)
        if _is_integrated(variable, usual):
            rule = _counted if variable.family.is_discrete else _quadrature
            nodes, weights = rule(variable.family, usual, n_designs, n_panels or N_PANELS)
            axes.append(nodes)
            integrated, is_complete = i, False
        else:
            n = variable.family.count(usual)
            axes.append(torch.arange(n, dtype=torch.float64)[:, None].expand(n, n_designs))
            is_complete = is_complete and variable.family.is_finite
    sizes = [len(axis) for axis in axes]
    grid = torch.cartesian_prod(*(torch.arange(size) for size in sizes)).reshape(-1, len(sizes))
    coordinates = torch.stack([axis[grid[:, i]] for i, axis in enumerate(axes)], -1)  # [Y, J, O]
    if weights is not None:
        weights = weights[grid[:, integrated]]
    return Nodes(coordinates=coordinates, weights=weights, is_complete=is_complete, integrated=integrated)


def _usual(variable: Any, arguments: Arguments, log_mass: Tensor) -> dict[str, Tensor]:
    """The arguments at points of more than negligible mass, for continuous outcomes at some of them, mostly where much
    of it lies."""
    keep = (log_mass > log_mass.max() - RARE).nonzero()[:, 0]
    if not variable.family.is_discrete and len(keep) > N_PLACED:
        reached = (TEMPERED * (log_mass[keep] - log_mass.max())).exp().cumsum(0)
        quantiles = torch.linspace(0, 1, N_PLACED, dtype=torch.float64) * reached[-1]
        keep = keep[torch.searchsorted(reached, quantiles).clamp(max=len(keep) - 1)]
    n = len(log_mass)
    return {name: a[..., keep] if a.ndim and a.shape[-1] == n else a for name, a in arguments.items()}


def _quadrature(family: Any, arguments: Arguments, n_designs: int, n_panels: int) -> tuple[Tensor, Tensor]:
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
        pick = torch.linspace(0, n - 1, n_panels + 1).round().long()
        edges = torch.asinh((ordered[:, pick] - middle) / scale)
        s, share = panels(edges.mT)
        nodes = middle.mT + scale.mT * torch.sinh(s)
        weights = share * scale.mT * torch.cosh(s)
    return nodes.contiguous(), weights.contiguous()


def _counted(family: Any, arguments: Arguments, n_designs: int, n_panels: int) -> tuple[Tensor, Tensor]:
    """Counts one by one up to MANY, where any can come out as few, and beyond that panels in log y: [Y, J] twice."""
    with torch.no_grad():
        places = torch.broadcast_tensors(*(family.place(arguments, score) for score in SCORES))  # type: ignore[no-untyped-call]
        y = torch.stack(places, -1)
        while y.ndim < 3:
            y = y.unsqueeze(0)
        if y.shape[1] > N_PLACED:
            y = y[:, torch.linspace(0, y.shape[1] - 1, N_PLACED).round().long()]
        ordered = y.expand(n_designs, *y.shape[1:]).flatten(1).sort(1).values
        n = ordered.shape[1]
        few = (ordered <= MANY).sum(1, keepdim=True).clamp(max=n - 1)
        pick = few + (torch.linspace(0, 1, n_panels + 1, dtype=torch.float64) * (n - 1 - few)).round().long()
        edges = ordered.gather(1, pick).clamp(min=MANY).log()
        edges[:, 0] = torch.where(few[:, 0] > 0, math.log(MANY), edges[:, 0])
        log_y, share = panels(edges.mT)
        nodes, weights = log_y.exp(), share * log_y.exp()
        if bool((few > 0).any()):
            first, counts = first_counts()
            nodes = torch.cat([first[:, None].expand(-1, n_designs), nodes])
            weights = torch.cat([counts[:, None].expand(-1, n_designs), weights])
    return nodes.contiguous(), weights.contiguous()
