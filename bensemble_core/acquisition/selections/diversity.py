"""Batches that are spread out: by gradients, by distance, by density, by clusters; and no row with its own copy."""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bensemble_core.acquisition import counter
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
from bensemble_core.acquisition.selections.selection import check_count, checked_scores
from bensemble_core.acquisition.selections.tie_break import best, highest, largest
from bensemble_core.errors import InvalidData, InvalidOption, NotFinite
from bensemble_core.options import STRICT
from bensemble_core.predictive import CategoricalPredictive, mixtures

_MAX_CLUSTERS = {"ge": 1, "le": 10_000, "description": "Most clusters to look for"}


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

    With `random_share` s the last ⌊s·k⌋ picks are drawn instead: uniformly, by the seed, among all rows that the k −
    ⌊s·k⌋ typical ones leave. Half and half was nowhere clearly worse than random rows as a first batch, which the
    typical ones alone can be: they leave out whatever is rare. With `standardise` every feature is divided by its sd
    over the rows that are looked at, so that one in large units does not decide alone.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    name: Literal["typiclust"] = "typiclust"
    max_clusters: int = field(default=500, metadata=_MAX_CLUSTERS)
    random_share: float = field(
        default=0.0,
        metadata={
            "ge": 0.0,
            "le": 1.0,
            "description": "Share of the picks, rounded down, that is random; they come last",
        },
    )
    standardise: bool = field(
        default=False, metadata={"description": "Divide features by their sd; constant ones stay as they are"}
    )
    short_list: int | None = field(default=None, metadata=shortlist.OPTION)

    def __call__(self, candidates: Candidates, k: int, context: Context) -> Picks:
        x, labelled = _with_labelled(candidates, k, context, self.name)
        if k == 0:
            return _completed(candidates, [], [], k, "typicality", context)
        if self.standardise:
            sd = x.std(0, correction=0)
            sd = torch.where(sd > _CONSTANT * x.abs().amax(0), sd, torch.ones_like(sd))
            x, labelled = x / sd, labelled / sd
        n_typical = k - math.floor(self.random_share * k + 1e-9)  # 0.29 · 100 is 28.999…
        picked = list[int]()
        tick = ticking(context.report, picked, k)
        n_rows, n_labelled = x.shape[0], labelled.shape[0]
        everything = torch.cat([x, labelled])
        n_wanted = min(max(1, n_labelled + n_typical), self.max_clusters)
        belongs = kmeans(everything, n_wanted, context.seed, tick=tick)
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
        while len(picked) < n_typical and any(left):
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
        picked += _drawn(candidates, picked, k - n_typical, context)
        return _completed(candidates, picked, typical[picked].tolist(), k, "typicality", context)


@dataclass(frozen=True, kw_only=True)
class ClusterMargin:
    """The highest score of each of k clusters among the rows with the highest scores (Citovsky et al. 2021).

    Of the `candidates_per_pick`·k highest scores, k-means makes k clusters by the rows' features; each gives its
    highest score, best first. The paper's score is `margin`, and any other will do. Where k is above `max_clusters`
    each of so many gives its ⌈k / max_clusters⌉ highest, all clusters' first before any second. Where that are fewer
    than k, since rows are copies of each other, the highest scores that are left follow, with a note. Departures from
    the paper: it clusters the whole pool once, by average linkage, and goes round the clusters that its short list
    (10 a pick) falls into, the smallest first; here the short list alone is clustered, anew for every batch, so that
    the cost does not grow with the pool and each pick has its own cluster. Features are one member's, or the rows
    themselves where the model has no linear layer.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    name: Literal["cluster_margin"] = "cluster_margin"
    candidates_per_pick: int = field(
        default=5, metadata={"ge": 1, "le": 1000, "description": "Rows to look at for each pick: the highest scores"}
    )
    max_clusters: int = field(default=500, metadata=_MAX_CLUSTERS)

    def __call__(self, candidates: Candidates, k: int, context: Context) -> Picks:
        scores, rows = checked_scores(candidates, k)
        features = _features(candidates, k, self.name)
        listed = highest(scores, min(shortlist.short_list_size(self, k), rows.size), context.seed, rows)  # best first
        n_clusters = min(k, self.max_clusters)
        turns = _turns(self._clusters(features[torch.from_numpy(listed)], n_clusters, k, context))
        each = -(-k // max(1, n_clusters))
        order = np.argsort(np.minimum(turns, each), kind="stable")[:k]
        n_more = int((turns[order] >= each).sum())
        note = (
            f"the last {n_more} picks are the highest scores that were left: {self.name} found {k - n_more} rows in "
            "clusters of their own"
        )
        picked = listed[order]
        return Picks(
            rows=torch.from_numpy(rows[picked]),
            measure="score",
            values=torch.from_numpy(scores[picked].astype(np.float64)),
            notes=(note,) if n_more else (),
        )

    @staticmethod
    def _clusters(features: Tensor, n_clusters: int, k: int, context: Context) -> npt.NDArray[np.int64]:
        """[n, F] -> [n]."""
        if n_clusters == 0:
            return np.empty(0, dtype=np.int64)
        (x,) = shifted(features)
        found: npt.NDArray[np.int64] = (
            kmeans(x, n_clusters, context.seed, tick=ticking(context.report, (), k)).cpu().numpy()
        )
        return found


def _turns(groups: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How many earlier entries are of the same group: [n] -> [n]."""
    by_group = np.argsort(groups, kind="stable")
    _, starts, counts = np.unique(groups[by_group], return_index=True, return_counts=True)
    turns = np.empty_like(groups)
    turns[by_group] = np.arange(groups.size) - np.repeat(starts, counts)
    return turns


def _drawn(candidates: Candidates, picked: list[int], n_draws: int, context: Context) -> list[int]:
    """Positions of so many others, uniformly: a row's random number is a function of (seed, row) alone."""
    keys = counter.uniform(context.seed, candidates.rows.cpu().numpy(), counter.RANDOM_PICKS)
    keys[picked] = -math.inf
    found: list[int] = largest(keys, n_draws).tolist()
    return found


_CONSTANT = 1e-7  # of the largest size: an sd of rounding, not of values
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
