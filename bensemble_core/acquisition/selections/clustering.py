"""Rows as points: squared distances, k-means++ seeding and Lloyd's k-means, seeded and in float64."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bensemble_core.acquisition import counter
from bensemble_core.acquisition.progress import Tick, silent
from bensemble_core.randomness import derive

SAME = 1e-10  # of the squared lengths: products nearer than this differ by rounding (float32) and count as equal
_NEAR = 1e-5  # of the squared lengths: below it |x|² + |c|² − 2x·c has lost too many digits
_CELLS = 1 << 20  # distances held at once: 8 MB
_NUMBERS = 1 << 22  # features compared between two ticks: some milliseconds


@dataclass(frozen=True, kw_only=True, eq=False)
class Points:
    """n points x_i = left_i ⊗ right_i kept as two factors, so that ⟨x_i, x_j⟩ = (left_i·left_j)(right_i·right_j).

    Without `left` the points are the rows of `right`.
    """

    right: Tensor  # [n, F]
    left: Tensor | None = None  # [n, C]

    @property
    def count(self) -> int:
        return self.right.shape[0]

    def squared_lengths(self) -> Tensor:
        """|x_i|²: [n]."""
        lengths = self.right.square().sum(1)
        return lengths if self.left is None else lengths * self.left.square().sum(1)

    def squared_distances(self, at: int, lengths: Tensor, tick: Tick = silent) -> Tensor:
        """|x_i − x_at|²: [n]. Exactly 0 for the same point; for products, for one that is the same but for rounding."""
        if self.left is None:
            parts = []
            for part in torch.split(self.right, max(1, _NUMBERS // max(1, self.right.shape[1]))):
                tick()
                parts.append(by_differences(part, self.right[at, None])[:, 0])
            return torch.cat(parts)
        products = (self.right @ self.right[at]) * (self.left @ self.left[at])
        size = lengths + lengths[at]
        squared = size - 2 * products
        return squared.masked_fill(squared <= SAME * size, 0.0)


def shifted(features: Tensor, *others: Tensor) -> list[Tensor]:
    """The rows of each as float64 about a middle of the first ones: distances stay, rounding shrinks.

    The middle is a median (of at most about a thousand rows), which one far row does not move away from all others.
    """
    middle = features[:: 1 + features.shape[0] // 1000].double().median(0).values if features.shape[0] else 0.0
    return [part.double() - middle for part in (features, *others)]


def by_differences(x: Tensor, centres: Tensor) -> Tensor:
    """|x_i − c_j|² as the sum of squared differences, which is 0 for equal points alone: [n, F], [k, F] -> [n, k]."""
    return torch.cdist(x, centres, compute_mode="donot_use_mm_for_euclid_dist").square_()


def cross_distances(x: Tensor, centres: Tensor, *, own: Tensor | None = None) -> Tensor:
    """The same by one matrix product, and by differences for rows where that cancels: [n, F], [k, F] -> [n, k].

    `own` [n] are centres that are the row itself; these distances come out as inf.
    """
    size = x.square().sum(1)[:, None] + centres.square().sum(1)
    squared = size - 2 * (x @ centres.T)
    cancelled = squared <= _NEAR * size
    every = torch.arange(x.shape[0], device=x.device)
    if own is not None:
        cancelled[every, own] = False
    again = cancelled.any(1).nonzero()[:, 0]
    squared[again] = by_differences(x[again], centres)
    if own is not None:
        squared[every, own] = math.inf
    return squared


def distinct(x: Tensor) -> tuple[Tensor, Tensor]:
    """Where each different row occurs first, and which of these every row is: [n, ...] -> [u], [n]."""
    x = x.float() if x.dtype == torch.bfloat16 else x  # which numpy does not know
    flat = np.ascontiguousarray(x.detach().flatten(1).cpu().numpy())
    if flat.shape[1] == 0:
        return torch.zeros(min(1, flat.shape[0]), dtype=torch.int64), torch.zeros(flat.shape[0], dtype=torch.int64)
    flat = flat + np.zeros(1, flat.dtype)  # −0 is 0
    whole = flat.view(np.dtype((np.void, flat.itemsize * flat.shape[1])))[:, 0]
    _, first, which = np.unique(whole, return_index=True, return_inverse=True)
    return torch.from_numpy(first), torch.from_numpy(which)


def nearest(x: Tensor, centres: Tensor, tick: Tick = silent) -> tuple[Tensor, Tensor]:
    """Squared distance to the nearest centre, and which it is, in blocks of rows: [n], [n]."""
    rows, parts = max(1, _CELLS // max(1, centres.shape[0])), []
    for at in range(0, x.shape[0], rows):
        tick()
        parts.append(cross_distances(x[at : at + rows], centres).min(1))
    return torch.cat([p.values for p in parts]), torch.cat([p.indices for p in parts])


def seeding(
    points: Points,
    k: int,
    seed: int,
    rows: Tensor,
    *,
    first: int | None = None,
    into: list[int] | None = None,
    tick: Tick = silent,
) -> tuple[list[int], list[float]]:
    """k-means++ (Arthur & Vassilvitskii 2007): up to k different points, and the chance with which each was drawn.

    The first is drawn uniformly unless it is given, every other with probability |x − nearest earlier|² / Σ; fewer than
    k where no point is left that differs from all that were drawn. A draw is the largest log-probability + Gumbel
    noise, which is a function of (seed, pick, row), so that other rows don't change it. Who wants to follow gives the
    list that picks go `into`.
    """
    lengths, ids = points.squared_lengths(), rows.cpu().numpy()
    squared = torch.ones_like(lengths)  # to the nearest earlier pick
    picked, chances = [] if into is None else into, list[float]()
    for step in range(min(k, points.count)):
        tick()
        total = float(squared.sum())
        if total == 0:
            break
        if step == 0 and first is not None:
            at, chance = first, 1.0
        else:
            noise = torch.from_numpy(counter.gumbel(derive(seed, step), ids, counter.SEEDING)).to(squared)
            at = int((squared.log() + noise).argmax())
            chance = float(squared[at]) / total
        picked.append(at)
        chances.append(chance)
        distances = points.squared_distances(at, lengths, tick)
        squared = distances if step == 0 else torch.minimum(squared, distances)
        squared[at] = 0.0
    return picked, chances


def kmeans(x: Tensor, k: int, seed: int, n_steps: int = 50, tick: Tick = silent) -> Tensor:
    """Which of up to k clusters each point belongs to, by Lloyd's (1982) steps from a k-means++ seeding: [n, F] -> [n].

    Ends when no point changes its cluster, or after `n_steps`. A cluster that loses its last point stays empty.
    """
    picked, _ = seeding(Points(right=x), k, seed, torch.from_numpy(np.arange(x.shape[0])), tick=tick)
    centres, belongs = x[picked], torch.full((x.shape[0],), -1, device=x.device)
    for _ in range(n_steps):
        _, now = nearest(x, centres, tick)
        if torch.equal(now, belongs):
            break
        belongs = now
        sizes = torch.bincount(belongs, minlength=len(picked))
        sums = torch.zeros_like(centres).index_add_(0, belongs, x)
        centres = torch.where((sizes > 0)[:, None], sums / sizes.clamp(min=1)[:, None], centres)
    return belongs


def mean_neighbour_distance(x: Tensor, n_neighbours: int, tick: Tick = silent) -> Tensor:
    """Mean distance to the `n_neighbours` nearest other points (or all there are), 0 if none: [n, F] -> [n]."""
    n_neighbours = min(n_neighbours, x.shape[0] - 1)
    if n_neighbours < 1:
        return x.new_zeros(x.shape[0])
    (x,) = shifted(x)
    rows, parts = max(1, _CELLS // x.shape[0]), []
    for start in range(0, x.shape[0], rows):
        tick()
        own = torch.arange(start, min(start + rows, x.shape[0]), device=x.device)
        squared = cross_distances(x[start : start + rows], x, own=own)
        parts.append(squared.topk(n_neighbours, largest=False).values.sqrt().mean(1))
    return torch.cat(parts)
