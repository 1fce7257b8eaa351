"""Batches that are spread out: by gradient embeddings, by distance, by density; and no row with its own copy."""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from bensemble_core.acquisition.entries import Candidates, Context, Picks
from bensemble_core.acquisition.progress import ticking
from bensemble_core.acquisition.selections import shortlist
from bensemble_core.acquisition.selections.clustering import (
    Points,
    distinct,
    kmeans,
    mean_neighbour_distance,
    nearest,
    seeding,
    shifted,
)
from bensemble_core.acquisition.selections.selection import check_count
from bensemble_core.acquisition.selections.tie_break import best, highest
from bensemble_core.errors import InvalidData, InvalidOption, NotFinite
from bensemble_core.options import STRICT
from bensemble_core.predictive import CategoricalPredictive, mixtures


@dataclass(frozen=True, kw_only=True)
class Badge:
    """Rows that would change the network much, each in another direction (Ash et al. 2020): k-means++ on gradients.

    g(x) = (p̄ − onehot(argmax p̄)) ⊗ h: the gradient of the cross-entropy in the last layer's weights, had the row the
    label that is predicted now. The paper has one network; here p̄ is the ensemble's mean prediction and h the features
    of one member, the heaviest. g is never formed: ⟨g_i, g_j⟩ = (e_i·e_j)(h_i·h_j). The first row is the one with the
    longest g, as in the authors' code; the others are drawn. The measure of a pick is the probability of its draw given
    the earlier ones. Rows with the embedding of an earlier pick have probability 0; where only such rows are left they
    follow by score, or by the seed, with a note.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    name: Literal["badge"] = "badge"
    short_list: int | None = field(default=None, metadata=shortlist.OPTION)

    def __call__(self, candidates: Candidates, k: int, context: Context) -> Picks:
        features = _features(candidates, k, self.name)
        predictive = candidates.predictive
        if not isinstance(predictive, CategoricalPredictive):
            raise InvalidOption("badge needs the members' class probabilities for every candidate; pass predictive=…")
        with torch.no_grad():
            log_probs = mixtures.log_softmax(predictive.logits.double())
            mean = mixtures.log_mean(log_probs, predictive.log_weights).exp()  # [n, C]
            # of equally probable classes the first: rounding, and so the order of the members, must not decide
            predicted = (mean >= mean.amax(1, keepdim=True) - 1e-12).int().argmax(1)
            errors = mean - torch.nn.functional.one_hot(predicted, mean.shape[1])
            points = Points(left=errors, right=features.double())
            longest = _best(points.squared_lengths(), candidates, context) if points.count else None
            picked = list[int]()
            tick = ticking(context.report, picked, k)
            tick()
            _, chances = seeding(points, k, context.seed, candidates.rows, first=longest, into=picked, tick=tick)
        return _completed(candidates, picked, chances, k, "probability", context)


@dataclass(frozen=True, kw_only=True)
class KCenter:
    """Repeatedly the row farthest from all labelled and picked ones (Sener & Savarese 2018, algorithm 1).

    The greedy 2-approximation of the smallest radius around k centres that covers every row. Without labelled rows it
    starts from the row nearest to the mean. The measure of a pick is its distance to the nearest labelled or earlier
    one (for that first row: to the mean). Features are one member's, or the rows themselves where there is no ensemble.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    name: Literal["kcenter"] = "kcenter"
    short_list: int | None = field(default=None, metadata=shortlist.OPTION)

    def __call__(self, candidates: Candidates, k: int, context: Context) -> Picks:
        x, labelled = _with_labelled(candidates, k, context, self.name)
        picked, distances, points = list[int](), list[float](), Points(right=x)
        tick = ticking(context.report, picked, k)
        lengths = (x - x.mean(0)).square().sum(1)
        squared = nearest(x, labelled, tick)[0] if labelled.shape[0] else None
        for _ in range(k):
            tick()
            if squared is None:
                at = _best(-lengths, candidates, context)
                value = float(lengths[at])
            else:
                at, value = _best(squared, candidates, context), float(squared.max())
                if value == 0:
                    break
            picked.append(at)
            distances.append(math.sqrt(value))
            now = points.squared_distances(at, lengths, tick)
            squared = now if squared is None else torch.minimum(squared, now)
            squared[at] = 0.0
        return _completed(candidates, picked, distances, k, "distance", context)


@dataclass(frozen=True, kw_only=True)
class TypiClust:
    """The most typical row of each cluster that no label covers (Hacohen et al. 2022): for the first labels of all.

    Rows and labelled rows together fall into min(labelled + k, `max_clusters`) clusters by k-means. Repeatedly the
    cluster with the fewest labels and picks, of these the largest, gives the row with the highest typicality
    1 / (mean distance to its nearest neighbours in the cluster + 1e-5): at most 20 neighbours, at most half of the
    cluster; clusters under 5 rows come last. Departures from the paper: features are the ensemble's (one member's), or
    the rows themselves, where it trains a self-supervised network; neighbours include labelled rows; counts change with
    every pick where its code goes round the clusters in a fixed order.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    name: Literal["typiclust"] = "typiclust"
    max_clusters: int = field(default=500, metadata={"ge": 1, "le": 10_000, "description": "Most clusters to look for"})
    short_list: int | None = field(default=None, metadata=shortlist.OPTION)

    def __call__(self, candidates: Candidates, k: int, context: Context) -> Picks:
        x, labelled = _with_labelled(candidates, k, context, self.name)
        if k == 0:
            return _completed(candidates, [], [], k, "typicality", context)
        picked = list[int]()
        tick = ticking(context.report, picked, k)
        n_rows, n_labelled = x.shape[0], labelled.shape[0]
        everything = torch.cat([x, labelled])
        belongs = kmeans(everything, min(n_labelled + k, self.max_clusters), context.seed, tick=tick)
        n_clusters = int(belongs.max()) + 1
        typical = torch.zeros(n_rows + n_labelled, dtype=x.dtype, device=x.device)
        for cluster in range(n_clusters):
            inside = (belongs == cluster).nonzero()[:, 0]
            n_neighbours = max(1, min(_NEIGHBOURS, inside.numel() // 2))
            typical[inside] = 1 / (mean_neighbour_distance(everything[inside], n_neighbours, tick) + 1e-5)
        sizes = torch.bincount(belongs, minlength=n_clusters).tolist()
        covered = torch.bincount(belongs[n_rows:], minlength=n_clusters).tolist()
        copies, mine = distinct(everything)[1].to(x.device), belongs[:n_rows]
        is_open = ~torch.isin(copies[:n_rows], copies[n_rows:])  # a copy of a labelled row adds nothing
        left = torch.bincount(mine[is_open], minlength=n_clusters).tolist()
        while len(picked) < k and any(left):
            tick()
            cluster = min(
                (c for c in range(n_clusters) if left[c]),
                key=lambda c: (sizes[c] < _SMALL, covered[c], -sizes[c], c),
            )
            values = typical[:n_rows].masked_fill(~is_open | (mine != cluster), -math.inf)
            at = _best(values, candidates, context)
            picked.append(at)
            covered[cluster] += 1
            is_open &= copies[:n_rows] != copies[at]
            left = torch.bincount(mine[is_open], minlength=n_clusters).tolist()
        return _completed(candidates, picked, typical[picked].tolist(), k, "typicality", context)


_NEIGHBOURS, _SMALL = 20, 5  # most neighbours of a row, and rows that a cluster should have; the paper's


def _features(candidates: Candidates, k: int, name: str) -> Tensor:
    check_count(candidates, k)
    features = candidates.features
    if features is None:
        raise InvalidOption(f"{name} needs features of every candidate; pass features=…")
    if features.ndim != 2 or features.shape[0] != candidates.rows.numel():
        raise InvalidData(
            f"expected features [{candidates.rows.numel()}, F], one row a candidate, got {list(features.shape)}"
        )
    finite = features.isfinite().all(1)
    if not finite.all():
        at = int((~finite).nonzero()[0])
        raise NotFinite(f"row {int(candidates.rows[at])} has features that are not finite; check its inputs")
    return features


def _with_labelled(candidates: Candidates, k: int, context: Context, name: str) -> tuple[Tensor, Tensor]:
    """Features of candidates and labelled rows about the candidates' middle: [n, F], [L, F]."""
    features, labelled = _features(candidates, k, name), context.labelled_features
    if labelled is None:
        labelled = features[:0]
    if labelled.ndim != 2 or labelled.shape[1] != features.shape[1]:
        raise InvalidData(f"labelled rows have features {list(labelled.shape)}, candidates {list(features.shape)}")
    if not labelled.isfinite().all():
        raise NotFinite("a labelled row has features that are not finite; check its inputs")
    x, others = shifted(features, labelled.to(features.device))
    return x, others


def _best(values: Tensor, candidates: Candidates, context: Context) -> int:
    """Where the largest value is; of values that differ by rounding alone the seed takes one."""
    return best(values, 1e-12 * float(values.max().abs()), context.seed, candidates.rows)


def _completed(
    candidates: Candidates, picked: list[int], values: list[float], k: int, measure: str, context: Context
) -> Picks:
    """Where nothing new is left: the rest by score, or by the seed, with the measure 0 and a note."""
    missing = k - len(picked)
    notes: tuple[str, ...] = ()
    if missing:
        keys = torch.zeros(candidates.rows.numel()) if candidates.scores is None else candidates.scores.detach().cpu()
        keys = keys.double().index_fill(0, torch.tensor(picked, dtype=torch.int64), -math.inf)
        picked = picked + highest(keys.numpy(), missing, context.seed, candidates.rows.cpu().numpy()).tolist()
        values = values + [0.0] * missing
        by = "the seed" if candidates.scores is None else "score"
        notes = (
            f"the last {missing} picks repeat labelled or earlier ones: no other rows were left, and these go by {by}",
        )
    rows = candidates.rows.cpu()[torch.tensor(picked, dtype=torch.int64)]
    return Picks(rows=rows, measure=measure, values=torch.tensor(values, dtype=torch.float64), notes=notes)
