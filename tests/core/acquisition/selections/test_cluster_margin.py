"""Cluster-Margin: the best of each cluster, by brute force; copies, many picks, and what it looks at."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import bensemble_core as bc
from bensemble_core.acquisition import Candidates, ClusterMargin, Context, Picks, short_list_size
from bensemble_core.acquisition.selections.clustering import kmeans, shifted
from bensemble_core.errors import InvalidOption, NotFinite
from tests.core.acquisition.selections.test_diversity import blobs, normal
from tests.core.ranking.test_scoring import LinearEnsemble, inputs


def pick(features: Tensor, scores: Tensor, k: int, *, seed: int = 0, **options: Any) -> Picks:
    some = Candidates(rows=torch.arange(100, 100 + len(features)), features=features, scores=scores)
    return ClusterMargin(**options)(some, k, Context(seed=seed))


def test_each_cluster_gives_its_highest_score_best_first() -> None:
    x, belongs = blobs(8, 3, 9)
    scores = torch.rand(20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    scores[belongs == 0] += 1  # the three highest are of one cluster
    picks = pick(x, scores, 3, candidates_per_pick=7)
    best = torch.stack([scores.masked_fill(belongs != c, -1).argmax() for c in range(3)])
    expected = best[scores[best].argsort(descending=True)]
    assert (picks.rows - 100).tolist() == expected.tolist()
    assert (picks.measure, picks.notes) == ("score", ())
    assert picks.values.tolist() == scores[expected].tolist()
    assert set(belongs[scores.topk(3).indices].tolist()) == {0}


def test_it_looks_at_five_rows_a_pick_and_no_others() -> None:
    x, scores = normal(60, 3), torch.linspace(1, 0, 60).double()
    picks = pick(x, scores, 4, seed=3)
    belongs = kmeans(shifted(x[:20])[0], 4, 3)
    expected = sorted(int((belongs == c).nonzero()[0]) for c in range(4))
    assert (picks.rows - 100).tolist() == expected
    assert pick(x, scores, 4, candidates_per_pick=1).rows.tolist() == [100, 101, 102, 103]
    assert [short_list_size(ClusterMargin(), k) for k in (1, 20, 2000)] == [5, 100, 10_000]


def test_copies_make_fewer_clusters_and_the_highest_scores_that_are_left_follow_with_a_note() -> None:
    x = torch.eye(3).double()[[0, 0, 0, 1, 1, 2]]
    scores = torch.tensor([0.9, 0.8, 0.7, 0.2, 0.1, 0.3]).double()
    picks = pick(x, scores, 5)
    assert (picks.rows - 100).tolist() == [0, 5, 3, 1, 2]
    (note,) = picks.notes
    assert note.startswith("the last 2 picks are the highest scores that were left: cluster_margin found 3 rows")


def test_more_picks_than_clusters_go_round_them() -> None:
    x, belongs = blobs(10, 10, apart=50.0)
    scores = torch.linspace(1, 0, 20).double()  # the first cluster has the higher half
    picks = pick(x, scores, 5, max_clusters=2, candidates_per_pick=4)
    assert (picks.rows - 100).tolist() == [0, 10, 1, 11, 2]
    assert picks.notes == ()
    assert belongs[picks.rows - 100].tolist() == [0, 1, 0, 1, 0]


def test_equal_scores_are_told_apart_by_the_seed() -> None:
    x, _ = blobs(10, 10)
    chosen = {tuple(pick(x, torch.ones(20), 2, seed=seed, candidates_per_pick=10).rows.tolist()) for seed in range(20)}
    assert len(chosen) > 5
    assert all({row < 110 for row in rows} == {True, False} for rows in chosen)


def test_scores_are_needed_and_finite() -> None:
    with pytest.raises(InvalidOption, match="needs a score"):
        ClusterMargin()(Candidates(rows=torch.arange(4), features=normal(4, 2)), 2, Context())
    with pytest.raises(NotFinite, match="row 102"):
        pick(normal(4, 2), torch.tensor([1, 2, np.nan, 3]), 2)


def test_negative_scores_do_too() -> None:
    entropy = bc.rank(
        LinearEnsemble(family="gaussian"), inputs(90), acquisition="entropy", selection="cluster_margin", k=5
    )
    assert entropy.rows.unique().numel() == 5


@pytest.mark.parametrize("family", ["categorical", "gaussian"])
def test_a_ranking_is_the_selection_of_the_highest_scores_and_ignores_labelled_rows(family: Any) -> None:
    ensemble, x = LinearEnsemble(family=family), inputs(300)
    ranking = bc.rank(ensemble, x, selection="cluster_margin", k=6, seed=4)
    some = Candidates(rows=torch.arange(300), features=ensemble.features(x), scores=bc.score(ensemble, x))
    assert ranking.rows.tolist() == ClusterMargin()(some, 6, Context(seed=4)).rows.tolist()
    assert (
        "cluster_margin looked at 30 of 300 rows, those with the highest scores; `candidates_per_pick` sets"
        in (ranking.notes[-1])
    )
    beside = bc.rank(ensemble, x, selection="cluster_margin", k=6, seed=4, labelled=inputs(50, seed=9))
    assert torch.equal(beside.rows, ranking.rows)
    one_thread = torch.get_num_threads()
    try:
        torch.set_num_threads(2 if one_thread == 1 else 1)
        assert torch.equal(bc.rank(ensemble, x, selection="cluster_margin", k=6, seed=4).rows, ranking.rows)
    finally:
        torch.set_num_threads(one_thread)


def test_of_functions_without_layers_the_standardised_rows_are_compared() -> None:
    x = torch.cat([normal(40, 1), 1000 + 500 * normal(40, 1, seed=1)], 1)
    y = x[:, 0] + x[:, 1] / 500
    ensemble = bc.fit("gp", "mlp", (x[:15], y[:15]), likelihood="gaussian", starts=1).sample(4)
    features = ensemble.features(x)
    mean, sd = x[:15].mean(0), x[:15].std(0, unbiased=False)
    torch.testing.assert_close(features.double(), (x - mean) / sd, rtol=1e-4, atol=1e-4)
    ranking = bc.rank(ensemble, x, selection="cluster_margin", k=4)
    assert ranking.rows.unique().numel() == 4
