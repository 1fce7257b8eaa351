"""Weighted points of the parameters in a frame that can be laid where the posterior is: a grid or Sobol draws.

z = centre + A u in normal scores of the prior, A lower triangular. A grid has u equally spaced along each axis, and its
sums are the trapezoid rule, which converges geometrically for a smooth integrand: every second point gives about the
square root of the error. Draws have u ~ N(0, I), and their sixteenths tell the error. Listed values stand beside both.

Points that agree in every target lie together, as a group.
"""

import math
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bensemble_core.design.spec.blocks import JointPrior
from bensemble_core.design.spec.priors import log_normal_density
from bensemble_core.design.spec.spaces import sobol
from bensemble_core.randomness import generator

REACH = 6.0  # half-width of a grid, in u
N_PARTS = 16  # of draws, by which their error is told
MAX_POINTS = 2**18 + 2**10
MOST_NODED = 3  # scores of draws with nodes
NODES = {1: 17, 2: 11}  # along each of the nuisances' scores, by how many they are
NODES_REACH = 5.5  # in u
N_NESTED = 2**7  # draws of more nuisances
LEAST_DRAWS = 2**8  # with nodes

Key: TypeAlias = tuple[object, ...]
Array = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Frame:
    """Where points lie, and how many: along each axis of a grid, one more than a multiple of four, or of all draws."""

    centre: tuple[float, ...]  # [K]
    factor: tuple[tuple[float, ...], ...]  # [K, K], lower triangular
    n: int
    is_grid: bool

    @property
    def spacing(self) -> float:
        """Of a grid, in u."""
        return 2 * REACH / (self.n - 1)


@cache
def home(k: int, n: int, *, is_grid: bool) -> Frame:
    """The prior's own frame, in which a grid reaches as far as eight normal scores."""
    scale = 8 / REACH if is_grid else 1.0
    return Frame(
        centre=(0.0,) * k,
        factor=tuple(tuple(scale * (i == j) for j in range(k)) for i in range(k)),
        n=n,
        is_grid=is_grid,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Points:
    key: Key  # points with the same key are the same points
    values: dict[str, Tensor]  # [P] by name
    log_prior: Tensor  # [P] log of the prior mass that a point stands for
    log_density: Tensor  # [P] log p(θ) in the units of θ
    scores: Tensor  # [P, K]
    mass: Tensor  # [P] of the rule itself, which says how densely points lie
    frame: Frame | None = None
    half: Tensor | None = None  # [P] bool, of a grid: every second point along each axis
    quarter: Tensor | None = None  # [P] bool: every fourth
    edge: Tensor | None = None  # [P] bool: the outermost points
    half_nodes: Tensor | None = None  # [P] bool, of draws with nodes: every second one along each axis, or half
    is_nested: bool = False  # whether those nodes are draws
    groups: Tensor | None = None  # [P] points with equal targets have equal numbers, in ascending order
    n_groups: int = 1
    listed: frozenset[str] = frozenset()  # parameters that take the values of a list
    prior: JointPrior | None = None  # of a grid: what leads from scores to values between the points

    @property
    def n(self) -> int:
        return int(self.log_prior.shape[0])

    # the same in numpy, for what is done in every round: to look at a tensor as an array takes longer than to add it

    @cached_property
    def prior_array(self) -> Array:
        return np.asarray(self.log_prior.numpy())

    @cached_property
    def score_array(self) -> Array:
        return np.asarray(self.scores.numpy())

    @cached_property
    def mass_array(self) -> Array:
        return np.asarray(self.mass.numpy())

    @cached_property
    def orders(self) -> dict[str, tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Array]]:
        """What marginal distributions keep by name: the order of the points, where values change, and the values."""
        return {}

    def only(self, keep: Tensor) -> "Points":
        """Some of the points, by mask; no longer a grid."""
        groups = None if self.groups is None else self.groups[keep]
        return replace(
            self,
            key=("some", self.key, keep.numpy().tobytes()),
            values={name: column[keep] for name, column in self.values.items()},
            log_prior=self.log_prior[keep],
            log_density=self.log_density[keep],
            scores=self.scores[keep],
            mass=self.mass[keep],
            frame=None,
            half=None,
            quarter=None,
            edge=None,
            half_nodes=None,
            groups=groups,
            prior=None,
        )


def grid(prior: JointPrior, frame: Frame) -> Points:
    """The tensor grid of a frame times every combination of listed values, targets first."""
    k, kt = prior.n_scores, prior.n_target_scores
    wanted = set(prior.targets)
    own = [i for i, block in enumerate(prior.listed) if wanted & set(block.names)]
    others = [i for i in range(len(prior.listed)) if i not in own]
    codes = [_target_codes(prior, i) for i in own]
    order = [torch.arange(frame.n)] * kt + [code.argsort(stable=True) for code in codes]
    order += [torch.arange(frame.n)] * (k - kt) + [torch.arange(prior.listed[i].n_points) for i in others]
    places = torch.cartesian_prod(*order).reshape(-1, len(order))  # [P, K + B]
    columns = [*range(kt), *range(kt + len(own), kt + len(own) + k - kt)]
    steps = places[:, columns]  # [P, K]
    index = torch.zeros(len(places), len(prior.listed), dtype=torch.int64)
    for column, number in zip([*range(kt, kt + len(own)), *range(k + len(own), len(order))], own + others, strict=True):
        index[:, number] = places[:, column]
    groups, n_groups = None, 1
    if prior.nuisances:
        groups = torch.zeros(len(places), dtype=torch.int64)
        digits = [(steps[:, i], frame.n) for i in range(kt)]
        digits += [(code[index[:, i]], int(code.max()) + 1) for code, i in zip(codes, own, strict=True)]
        for digit, base in digits:
            groups, n_groups = groups * base + digit, n_groups * base
        if bool((groups.diff() < 0).any()):  # lists that hold targets and nuisances
            together = groups.argsort(stable=True)
            steps, index, groups = steps[together], index[together], groups[together]
    factor = torch.tensor(frame.factor, dtype=torch.float64).reshape(k, k)
    u = steps.to(torch.float64) * frame.spacing - REACH if k else torch.zeros(len(steps), 0, dtype=torch.float64)
    z = torch.tensor(frame.centre, dtype=torch.float64) + u @ factor.mT
    values, log_density = prior.at(z, index)
    listed = torch.zeros(len(z), dtype=torch.float64)
    for column, block in enumerate(prior.listed):
        listed = listed + block.log_weights[index[:, column]]
    cell = k * math.log(frame.spacing) if k else 0.0
    return Points(
        key=("grid", frame),
        values=values,
        log_prior=log_normal_density(z).sum(1) + factor.diagonal().log().sum() + cell + listed,
        log_density=log_density.clamp(-745, 745),
        scores=z,
        mass=(log_normal_density(u).sum(1) + cell + listed).exp(),
        frame=frame,
        half=(steps % 2 == 0).all(1) if k else None,
        quarter=(steps % 4 == 0).all(1) if k else None,
        edge=((steps == 0) | (steps == frame.n - 1)).any(1) if k else None,
        groups=groups,
        n_groups=n_groups,
        listed=frozenset(name for block in prior.listed for name in block.names),
        prior=prior if k else None,
    )


def _target_codes(prior: JointPrior, number: int) -> Tensor:
    """Of each value of a list, the number of its targets among the different ones."""
    block = prior.listed[number]
    wanted = [i for i, name in enumerate(block.names) if name in prior.targets]
    _, codes = block.values[:, wanted].unique(dim=0, return_inverse=True)  # type: ignore[no-untyped-call]
    return torch.as_tensor(codes)


def draws(prior: JointPrior, frame: Frame, seed: int, *, is_smooth: bool) -> Points:
    """Sobol draws of a frame's normal distribution, weighted to be of the prior. Where there are nuisances each draw of
    the targets has nodes of its own for these, and is a group: few and evenly spaced where what comes out `is_smooth`
    in the nuisances, else draws, between which a precise outcome may well lie but not in the same place for all."""
    k, kt = prior.n_scores, prior.n_target_scores if prior.nuisances else prior.n_scores
    is_even = is_smooth and k <= MOST_NODED
    n_nodes = NODES.get(k - kt, 1) ** (k - kt) if is_even else N_NESTED if kt < k else 1
    n = frame.n if n_nodes == 1 else max(LEAST_DRAWS, 2 ** round(math.log2(frame.n / n_nodes)))
    outer = torch.special.ndtri(sobol(n, kt, seed))
    nodes, weights, is_half = _nodes(k - kt) if is_even else _nested(k - kt, n, n_nodes, seed)
    u = torch.cat([outer.repeat_interleave(n_nodes, 0), nodes.expand(n, *nodes.shape[-2:]).flatten(0, 1)], 1)
    factor = torch.tensor(frame.factor, dtype=torch.float64)
    z = torch.tensor(frame.centre, dtype=torch.float64) + u @ factor.mT
    log_odds = (log_normal_density(z) - log_normal_density(u)).sum(1) + factor.diagonal().log().sum()
    mass = weights.repeat(n) / n
    index = torch.empty(len(z), 0, dtype=torch.int64)
    found = scattered(prior, z, index, ("draws", seed, frame), log_odds=log_odds, mass=mass, frame=frame)
    if n_nodes == 1:
        return found
    groups = torch.arange(n).repeat_interleave(n_nodes)
    return replace(found, groups=groups, n_groups=n, half_nodes=is_half.repeat(n), is_nested=not is_even)


def _nested(k: int, n: int, n_nodes: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sobol draws of N(0, I) in k dimensions, shifted for each of n groups: [n, n_nodes, k], weights and the first half
    of them [n_nodes]."""
    shift = torch.rand(n, 1, k, generator=generator(seed, 5), dtype=torch.float64)
    u = (sobol(n_nodes, k, seed) + shift) % 1 if n_nodes > 1 else shift
    weights = torch.full((n_nodes,), 1 / n_nodes, dtype=torch.float64)
    return torch.special.ndtri(u.clamp(min=1e-16)), weights, torch.arange(n_nodes) < n_nodes // 2


@cache
def _nodes(k: int) -> tuple[Tensor, Tensor, Tensor]:
    """The trapezoidal rule of N(0, I) in k dimensions: [n, k], weights [n], and which of them are every second one
    along each axis [n]."""
    if not k:
        return torch.zeros(1, 0, dtype=torch.float64), torch.ones(1, dtype=torch.float64), torch.ones(1).bool()
    n = NODES[k]
    places = torch.cartesian_prod(*[torch.arange(n)] * k).reshape(-1, k)
    nodes = (places / (n - 1) * 2 - 1).to(torch.float64) * NODES_REACH
    weights = log_normal_density(nodes).sum(1).exp()
    return nodes, weights / weights.sum(), (places % 2 == 0).all(1)


def scattered(
    prior: JointPrior,
    z: Tensor,
    index: Tensor,
    key: Key,
    *,
    log_odds: Tensor | float = 0.0,
    mass: Tensor | None = None,
    frame: Frame | None = None,
) -> Points:
    """Points at scores [P, K] and numbers of listed values [P, B], which count alike but for mass and odds."""
    values, log_density = prior.at(z, index)
    mass = torch.full((len(z),), 1 / len(z), dtype=torch.float64) if mass is None else mass
    return Points(
        key=key,
        values=values,
        log_prior=mass.log() + log_odds,
        log_density=log_density.clamp(-745, 745),
        scores=z,
        mass=mass,
        frame=frame,
        listed=frozenset(name for block in prior.listed for name in block.names),
    )
