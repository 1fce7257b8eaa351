"""E[U(θ, ξ, y) | θ, ξ] of an outcome y that is not enumerated, by a trapezoidal rule that is shifted at each point θ.

    E[U | θ, ξ] ≈ Σ_k p_k U(c_k) / Σ_k p_k,    c_k = m + d sinh(s_k),    p_k = p(c_k | θ, ξ) cosh(s_k)
    s_k = s_0 + (k + N_RULES (v − ½)) h,    k = ½, 1½ … n − ½

with c the coordinate of y in which its density is smooth, m its median, d its scale, and s from one tail to the other.
Where U is smooth the rule converges geometrically. A jump costs up to h p / 2 at a point θ; as the shift v, uniform on
(0, 1), differs from point to point, these errors are independent, and their average over θ is far smaller (Cranley &
Patterson 1976).

Every N_RULES-th node makes a rule of its own, with an independent phase. The spread of what these rules give on average
over θ is the standard error. It sees jumps, bends and sharp peaks without being told where they are, except those that
hardly any node meets: of a probability below 1 / (nodes × points that have weight), 1e-4 or less. What lies beyond the
outermost nodes is judged by `beyond`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bensemble_core.design.belief.points import REACH as WIDTH
from bensemble_core.design.belief.points import Array, Points
from bensemble_core.design.deadline import check
from bensemble_core.design.spec.families import Arguments
from bensemble_core.design.spec.model import Model
from bensemble_core.randomness import generator

N_RULES = 4
N_ROWS = N_RULES + 2
PER_AXIS = 4  # nodes for each point along an axis of the grid: an outcome counts as one more axis
LEAST, MOST = 64, 1024  # nodes
REACH = 7.0  # normal score of the outermost nodes: Φ(−7) = 1e-12
AT_ONCE = 2**16  # numbers worked on at once
STEEPEST = 100.0  # ratio of what two rings of a sum add
TINY = 1e-300


def n_nodes(model: Model, points: Points) -> int:
    """Nodes at each point and design."""
    along: float = points.n ** (1 / max(1, model.prior.n_scores))
    return 16 * round(min(max(PER_AXIS * along, LEAST), MOST) / 16)


def shifts(points: Points) -> Tensor:
    """v of each point, the same for every design and history: [P]."""
    return torch.rand(points.n, generator=generator(0), dtype=torch.float64)


def expected(
    model: Model,
    theta: Mapping[str, Tensor],
    rows: Tensor,
    arguments: Sequence[Arguments],
    integrated: int,
    shift: Tensor,
    n: int,
) -> Tensor:
    """At designs [J, D] and points θ [P] with their shifts [P], by n nodes: what each part of the nodes gives, and of
    |E[U]| what the outermost sixteenths of the nodes add and those next to them: [N_ROWS, J, P]."""
    assert model.utility is not None
    with torch.no_grad():
        shape = (len(rows), len(shift))
        variable = model.outcomes[integrated]
        own = _flat(arguments[integrated], shape)
        values = model.values(theta, rows[:, None, :])
        stated = _flat({name: values[name] for name in model.utility.names if name in values}, shape)
        named = [i for i, v in enumerate(model.outcomes) if i != integrated and v.name in model.utility.names]
        others, probs = _enumerated(model, arguments, named, shape)
        k = torch.arange(n, dtype=torch.float64) + 0.5
        at = (k + N_RULES * (shift.repeat(len(rows))[:, None] - 0.5)) / n  # [J P, n]
        found = []
        stride = max(1, AT_ONCE // (n * (1 if probs is None else len(probs))))
        for first in range(0, len(at), stride):
            check()
            some = slice(first, first + stride)
            here = {name: a[some, None] for name, a in own.items()}
            y, p = _nodes(variable.family, here, at[some])
            given = {**{name: a[some, None] for name, a in stated.items()}, variable.name: y}
            utility = model.utility(given | {name: other[:, None, None] for name, other in others.items()})
            if probs is not None:
                share = probs[:, some, None]
                utility = torch.where(share > 0, share * utility, 0.0).sum(0)
            terms = torch.where(p > 0, p * utility, 0.0)
            parts = N_RULES * terms.reshape(len(y), -1, N_RULES).sum(1)
            outer, inner, *_, last_but_one, last = terms.reshape(len(y), 16, -1).sum(2).abs().unbind(1)
            ends = torch.stack([outer + last, inner + last_but_one], 1)
            found.append(torch.cat([parts, ends], 1) / p.sum(1, keepdim=True))
        return torch.cat(found).mT.reshape(N_ROWS, *shape)


def average(rows: Array) -> tuple[Array, Array]:
    """What the rows of `expected` are on average under columns of weights, [N_ROWS, J, c] -> E[U | ξ] [J, c], and its
    error under the first column [J]."""
    parts, ends = rows[:N_RULES], rows[N_RULES:, :, 0]
    return parts.mean(0), parts[..., 0].std(0, ddof=1) / N_RULES**0.5 + beyond(*ends)


def rings(points: Points) -> Array:
    """1 in the outer eighth and in the next eighth of a grid, 0 elsewhere: [P, 2]."""
    assert points.frame is not None
    k = len(points.frame.centre)
    u = np.linalg.solve(np.array(points.frame.factor).reshape(k, k), (points.score_array - points.frame.centre).T)
    away = np.abs(u).max(0) / WIDTH
    return np.stack([away > 7 / 8, (away > 6 / 8) & (away <= 7 / 8)], 1).astype(np.float64)


def beyond(outer: Array, before: Array) -> Array:
    """What a sum probably lacks beyond its edges, from what its outer ring gives and the ring before that: [J] each.

    Rings add ever less, by a factor that does not grow; where the outer one adds more, the sum lies outside.
    """
    last = np.abs(outer)
    ratio = np.minimum(last / np.maximum(np.abs(before), TINY), STEEPEST)
    return np.asarray(last * ratio / (1 - np.minimum(ratio, 0.9)))


def _flat(tensors: Mapping[str, Tensor], shape: tuple[int, int]) -> dict[str, Tensor]:
    """Tensors that broadcast to designs × points, one after the other: [J P] each."""
    return {name: a.expand(shape).reshape(-1) for name, a in tensors.items()}


def _nodes(family: Any, arguments: Arguments, at: Tensor) -> tuple[Tensor, Tensor]:
    """Outcomes at shares of the way through s [N, n], and p of each. A count is the one nearest to c: the sum over
    counts is the integral of steps."""
    low, near, middle, far, high = (family.place(arguments, score) for score in (-REACH, -1.0, 0.0, 1.0, REACH))
    if family.is_discrete:
        low, high = low - 0.5, high + 0.5
    scale = (0.5 * (far - near)).clamp(min=TINY)
    start, end = torch.asinh((low - middle) / scale), torch.asinh((high - middle) / scale)
    up = 0.5 * (start + (end - start) * at).exp()
    down = 0.25 / up  # sinh s = up − down, cosh s = up + down
    c = torch.addcmul(middle.expand(up.shape), scale.expand(up.shape), up - down)
    if family.is_discrete:
        y = c.round().clamp(min=0)
        return y, family.log_prob(arguments, y[None])[0].exp() * (up + down)  # `by_size` takes a first axis apart
    return family.outcome(c), family.log_density(arguments, c).exp() * (up + down)


def _enumerated(
    model: Model, arguments: Sequence[Arguments], which: Sequence[int], shape: tuple[int, int]
) -> tuple[dict[str, Tensor], Tensor | None]:
    """Outcomes of these variables in all combinations, by name [Q], and their probabilities [Q, J P]."""
    if not which:
        return {}, None
    counts = [model.outcomes[i].family.count(arguments[i]) for i in which]
    index = torch.cartesian_prod(*(torch.arange(n, dtype=torch.float64) for n in counts)).reshape(-1, len(which))
    log_p = torch.zeros((), dtype=torch.float64)
    for column, i in enumerate(which):
        log_p = log_p + model.outcomes[i].family.log_prob(arguments[i], index[:, column, None, None])
    probs = log_p.exp().expand(len(index), *shape).reshape(len(index), -1)
    return {model.outcomes[i].name: index[:, column] for column, i in enumerate(which)}, probs
