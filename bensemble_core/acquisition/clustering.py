"""Rows as points: squared distances, k-means++ seeding and Lloyd's k-means, seeded and in float64."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bensemble_core.acquisition import counter
from bensemble_core.randomness import derive

SAME = 1e-10  # of the squared lengths: nearer points differ by rounding (float32 predictions) and count as one
_CELLS = 1 << 20  # distances held at once: 8 MB


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

    def squared_distances(self, at: int, lengths: Tensor) -> Tensor:
        """|x_i − x_at|², exactly 0 for a point that is the same but for rounding: [n]."""
        products = self.right @ self.right[at]
        if self.left is not None:
            products = products * (self.left @ self.left[at])
        size = lengths + lengths[at]
        squared = size - 2 * products
        return squared.masked_fill(squared <= SAME * size, 0.0)


def centred(features: Tensor, *others: Tensor) -> list[Tensor]:
    """The rows of each as float64 about the first one's mean: distances stay, rounding shrinks."""
    mean = features.double().mean(0)
    return [part.double() - mean for part in (features, *others)]


def cross_distances(x: Tensor, centres: Tensor) -> Tensor:
    """|x_i − c_j|² with the same rule for equal points: [n, F], [k, F] -> [n, k]."""
    size = x.square().sum(1)[:, None] + centres.square().sum(1)
    squared = size - 2 * (x @ centres.T)
    return squared.masked_fill(squared <= SAME * size, 0.0)


def nearest(x: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """Squared distance to the nearest centre, and which it is, in blocks of rows: [n], [n]."""
    rows = max(1, _CELLS // max(1, centres.shape[0]))
    parts = [cross_distances(x[at : at + rows], centres).min(1) for at in range(0, x.shape[0], rows)]
    return torch.cat([p.values for p in parts]), torch.cat([p.indices for p in parts])


def seeding(
    points: Points, k: int, seed: int, rows: Tensor, *, first: int | None = None
) -> tuple[list[int], list[float]]:
    """k-means++ (Arthur & Vassilvitskii 2007): up to k different points, and the chance with which each was drawn.

    The first is drawn uniformly unless it is given, every other with probability |x − nearest earlier|² / Σ; fewer than
    k where no point is left that differs from all that were drawn. A draw is the largest log-probability + Gumbel
    noise, which is a function of (seed, pick, row), so that other rows don't change it.
    """
    lengths, ids = points.squared_lengths(), rows.cpu().numpy()
    squared = torch.ones_like(lengths)  # to the nearest earlier pick
    picked, chances = list[int](), list[float]()
    for step in range(min(k, points.count)):
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
        distances = points.squared_distances(at, lengths)
        squared = distances if step == 0 else torch.minimum(squared, distances)
        squared[at] = 0.0
    return picked, chances


def kmeans(x: Tensor, k: int, seed: int, n_steps: int = 50) -> Tensor:
    """Which of up to k clusters each point belongs to, by Lloyd's (1982) steps from a k-means++ seeding: [n, F] -> [n].

    Ends when no point changes its cluster, or after `n_steps`. A cluster that loses its last point stays empty.
    """
    picked, _ = seeding(Points(right=x), k, seed, torch.from_numpy(np.arange(x.shape[0])))
    centres, belongs = x[picked], torch.full((x.shape[0],), -1, device=x.device)
    for _ in range(n_steps):
        _, now = nearest(x, centres)
        if torch.equal(now, belongs):
            break
        belongs = now
        sizes = torch.bincount(belongs, minlength=len(picked))
        sums = torch.zeros_like(centres).index_add_(0, belongs, x)
        centres = torch.where((sizes > 0)[:, None], sums / sizes.clamp(min=1)[:, None], centres)
    return belongs


def mean_neighbour_distance(x: Tensor, n_neighbours: int) -> Tensor:
    """Mean distance to the `n_neighbours` nearest other points (or all there are), 0 if none: [n, F] -> [n]."""
    n_neighbours = min(n_neighbours, x.shape[0] - 1)
    if n_neighbours < 1:
        return x.new_zeros(x.shape[0])
    rows, parts = max(1, _CELLS // x.shape[0]), []
    for start in range(0, x.shape[0], rows):
        squared = cross_distances(x[start : start + rows], x)
        own = torch.arange(squared.shape[0], device=x.device)
        squared[own, start + own] = math.inf
        parts.append(squared.topk(n_neighbours, largest=False).values.sqrt().mean(1))
    return torch.cat(parts)
