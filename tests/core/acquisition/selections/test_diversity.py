"""Badge, k-centre and TypiClust: explicit embeddings, brute force, the guarantee of farthest-first, no copies."""

import itertools
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

import bensemble_core as bc
from bensemble_core.acquisition import Badge, Candidates, Context, KCenter, Picks, TypiClust, counter
from bensemble_core.acquisition.selections.clustering import (
    Points,
    cross_distances,
    distinct,
    kmeans,
    mean_neighbour_distance,
    seeding,
)
from bensemble_core.acquisition.selections.tie_break import tie_keys
from bensemble_core.errors import InvalidData, InvalidOption, NotFinite
from bensemble_core.predictive import CategoricalPredictive, GaussianPredictive
from tests.core.ranking.test_scoring import LinearEnsemble


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def spread(
    select: Any, features: Tensor, k: int, *, seed: int = 0, labelled: Tensor | None = None, **more: Any
) -> Picks:
    some = Candidates(rows=torch.arange(len(features)), features=features, **more)
    picks: Picks = select(some, k, Context(seed=seed, labelled_features=labelled))
    return picks


def blobs(*sizes: int, seed: int = 0, apart: float = 20.0) -> tuple[Tensor, Tensor]:
    """Tight round clusters far from each other: points and which they belong to."""
    belongs = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    centres = apart * torch.eye(len(sizes), dtype=torch.float64)
    return centres[belongs] + normal(len(belongs), len(sizes), seed=seed), belongs


def test_distances_of_factored_points_are_those_of_the_outer_products() -> None:
    left, right = normal(9, 3), normal(9, 5, seed=1)
    left[7], right[7] = left[2], right[2]
    points = Points(left=left, right=right)
    whole = (left[:, :, None] * right[:, None, :]).flatten(1)
    torch.testing.assert_close(points.squared_lengths(), whole.square().sum(1))
    for at in range(9):
        found = points.squared_distances(at, points.squared_lengths())
        torch.testing.assert_close(found, (whole - whole[at]).square().sum(1), rtol=1e-9, atol=1e-9)
    assert points.squared_distances(2, points.squared_lengths())[7] == 0


def test_a_seeding_draws_pairs_with_the_probabilities_of_k_means_plus_plus() -> None:
    x, seeds = torch.tensor([[0.0], [1.0], [3.0]]).double(), 6000
    seen = Counter(tuple(seeding(Points(right=x), 2, seed, torch.arange(3))[0]) for seed in range(seeds))
    share = {}
    for i, j in itertools.permutations(range(3), 2):
        squared = (x[:, 0] - x[i, 0]).square()
        share[i, j] = float(squared[j] / squared.sum()) / 3
    assert stats.chisquare([seen[p] for p in share], np.array(list(share.values())) * seeds).pvalue > 1e-3


def test_the_chances_of_a_seeding_are_those_it_was_drawn_with() -> None:
    x = normal(20, 3)
    picked, chances = seeding(Points(right=x), 6, 3, torch.arange(20))
    assert chances[0] == pytest.approx(1 / 20)
    for step in range(1, 6):
        squared = cross_distances(x, x[picked[:step]]).amin(1)
        assert chances[step] == pytest.approx(float(squared[picked[step]] / squared.sum()), rel=1e-9)


def test_k_means_finds_clusters_that_lie_apart() -> None:
    x, belongs = blobs(30, 50, 20, apart=40.0)
    found = kmeans(x, 3, 0)
    assert len({(a, b) for a, b in zip(found.tolist(), belongs.tolist(), strict=True)}) == 3
    assert kmeans(torch.ones(5, 2).double(), 3, 0).tolist() == [0] * 5


def test_k_means_ends_where_centres_are_means_and_points_with_their_nearest() -> None:
    x = normal(200, 4)
    found = kmeans(x, 7, 1, n_steps=1000)
    centres = torch.stack([x[found == c].mean(0) for c in range(7)])
    assert torch.equal(cross_distances(x, centres).argmin(1), found)


def test_mean_neighbour_distances_are_those_of_a_full_sort() -> None:
    x = normal(40, 3)
    expected = torch.cdist(x, x).sort(1).values[:, 1:6].mean(1)
    torch.testing.assert_close(mean_neighbour_distance(x, 5), expected, rtol=1e-9, atol=1e-9)
    assert mean_neighbour_distance(x[:1], 5).tolist() == [0.0]


def predictive(n_rows: int, *, n_classes: int = 4, seed: int = 5) -> CategoricalPredictive:
    return CategoricalPredictive(logits=normal(3, n_rows, n_classes, seed=seed))


def badge(features: Tensor, pred: CategoricalPredictive | None, k: int, **more: Any) -> Picks:
    return spread(Badge(), features, k, predictive=pred, **more)


def test_badge_seeds_on_the_gradient_of_the_last_layer_had_it_the_predicted_label() -> None:
    features, weights, classes = normal(30, 6), normal(3, 6, 4, seed=2), torch.tensor([0.2, 0.5, 0.3]).double()
    pred = CategoricalPredictive(logits=features @ weights, log_weights=classes.log())
    gradients = []
    mean = pred.mean()
    for row in range(30):  # d/dW of −log softmax(Wh)[ŷ] where softmax(Wh) = p̄
        layer = torch.zeros(4, 6, dtype=torch.float64, requires_grad=True)
        offset = mean[row].log() - layer.detach() @ features[row]
        loss = torch.nn.functional.cross_entropy(layer @ features[row] + offset, mean[row].argmax())
        gradients.append(torch.autograd.grad(loss, layer)[0].flatten())
    longest = int(torch.stack(gradients).norm(dim=1).argmax())
    expected = seeding(Points(right=torch.stack(gradients)), 8, 11, torch.arange(30), first=longest)
    picks = badge(features, pred, 8, seed=11)
    assert picks.rows.tolist() == expected[0]
    assert picks.values.tolist() == pytest.approx(expected[1], rel=1e-8)
    assert picks.measure == "probability"
    assert (picks.rows[0].item(), picks.values[0].item()) == (longest, 1.0)


def test_badge_never_picks_a_copy_however_many_there_are() -> None:
    base, pred = normal(6, 5), predictive(6)
    copies = torch.arange(300) % 6
    for seed in range(40):
        picks = badge(base[copies], pred.take(copies), 6, seed=seed)
        assert sorted((picks.rows % 6).tolist()) == list(range(6))
        assert picks.notes == ()


def test_badge_never_picks_a_copy_that_differs_by_rounding_in_single_precision() -> None:
    base, pred = normal(6, 5).float(), predictive(6)
    copies = torch.arange(300) % 6
    noise = 1 + 1e-7 * torch.rand(300, 1, generator=torch.Generator().manual_seed(1))
    for seed in range(20):
        picks = badge(base[copies] * noise, CategoricalPredictive(logits=pred.logits.float()[:, copies]), 6, seed=seed)
        assert len(set((picks.rows % 6).tolist())) == 6


def test_badge_goes_on_by_score_or_seed_when_only_copies_are_left_and_says_so() -> None:
    features, pred = torch.ones(5, 3).double(), CategoricalPredictive(logits=torch.zeros(2, 5, 3).double())
    scores = torch.tensor([0.1, 0.5, 0.3, 0.2, 0.4])
    by_score, by_seed = badge(features, pred, 5, scores=scores), badge(features, pred, 5)
    by_key = (-tie_keys(0, np.arange(5))).argsort().tolist()
    assert by_score.rows.tolist() == by_key[:1] + [row for row in (1, 4, 2, 3, 0) if row != by_key[0]]
    assert by_seed.rows.tolist() == by_key
    assert by_seed.values.tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert "the last 4 picks repeat" in by_seed.notes[0]


def test_badge_takes_no_more_than_one_of_the_rows_that_would_change_nothing() -> None:
    logits = torch.zeros(1, 200, 2).double()
    logits[:, :100, 0] = 12.0  # the first hundred are certain
    chosen = [badge(normal(200, 8, seed=3), CategoricalPredictive(logits=logits), 10, seed=s).rows for s in range(10)]
    assert all((rows < 100).sum() <= 1 for rows in chosen)


def test_k_center_is_farthest_first_from_labelled_rows() -> None:
    x, labelled = normal(60, 3), normal(4, 3, seed=1)
    picks = spread(KCenter(), x, 10, labelled=labelled)
    centres = labelled
    for row, distance in zip(picks.rows.tolist(), picks.values.tolist(), strict=True):
        nearest = torch.cdist(x, centres).amin(1)
        assert row == int(nearest.argmax())
        assert distance == pytest.approx(float(nearest.max()), rel=1e-9)
        centres = torch.cat([centres, x[row : row + 1]])
    assert picks.measure == "distance"
    assert (picks.values.diff() <= 1e-12).all()


def test_k_center_without_labelled_rows_starts_at_the_row_nearest_to_the_mean() -> None:
    x = normal(50, 4)
    picks = spread(KCenter(), x, 1)
    assert picks.rows.item() == int((x - x.mean(0)).norm(dim=1).argmin())


@pytest.mark.parametrize("seed", range(5))
def test_k_center_covers_within_twice_the_best_radius(seed: int) -> None:
    x = normal(12, 2, seed=seed)
    distances = torch.cdist(x, x)
    best = min(float(distances[:, list(chosen)].amin(1).max()) for chosen in itertools.combinations(range(12), 3))
    rows = spread(KCenter(), x, 3).rows
    assert float(distances[:, rows].amin(1).max()) <= 2 * best + 1e-12


def test_k_center_leaves_copies_of_labelled_rows_for_the_end() -> None:
    x = torch.tensor([[0.0], [1.0], [1.0], [5.0]]).double()
    picks = spread(KCenter(), x, 4, labelled=torch.tensor([[0.0]]).double())
    assert picks.rows.tolist() == [3, 1, 0, 2]
    assert picks.values.tolist() == [5.0, 1.0, 0.0, 0.0]
    assert "the last 2 picks repeat labelled or earlier ones" in picks.notes[0]


def test_k_center_keeps_its_picks_when_all_rows_are_moved_far_away() -> None:
    x = normal(80, 3)
    assert torch.equal(spread(KCenter(), x, 12).rows, spread(KCenter(), x + 1e5, 12).rows)


def test_typiclust_takes_the_most_typical_row_of_each_cluster_largest_first() -> None:
    x, belongs = blobs(30, 60, 45)
    picks = spread(TypiClust(), x, 3)
    assert belongs[picks.rows].tolist() == [1, 2, 0]
    for row, value in zip(picks.rows.tolist(), picks.values.tolist(), strict=True):
        inside = (belongs == belongs[row]).nonzero()[:, 0]
        neighbours = min(20, len(inside) // 2)
        typical = 1 / (torch.cdist(x[inside], x[inside]).sort(1).values[:, 1 : neighbours + 1].mean(1) + 1e-5)
        assert inside[typical.argmax()] == row
        assert value == pytest.approx(typical.max().item(), rel=1e-9)
    assert picks.measure == "typicality"


def test_typiclust_leaves_covered_clusters_for_those_without_a_label() -> None:
    x, belongs = blobs(30, 60, 45)
    labelled = x[belongs == 1][:1] + 0.1
    assert belongs[spread(TypiClust(), x, 2, labelled=labelled).rows].tolist() == [2, 0]


def test_typiclust_comes_to_clusters_of_a_few_rows_last() -> None:
    x, belongs = blobs(40, 3, 30, apart=60.0)
    assert belongs[spread(TypiClust(), x, 3).rows].tolist() == [0, 2, 0]
    assert belongs[spread(TypiClust(max_clusters=3), x, 73).rows][-3:].tolist() == [1, 1, 1]


def test_typiclust_with_fewer_clusters_than_picks_goes_round_and_takes_no_copies() -> None:
    x, belongs = blobs(30, 60, 45)
    x = x.repeat_interleave(2, 0)  # every row twice
    picks = spread(TypiClust(max_clusters=3), x, 9)
    assert Counter(belongs.repeat_interleave(2)[picks.rows].tolist()) == {0: 3, 1: 3, 2: 3}
    assert len(set((picks.rows // 2).tolist())) == 9


def test_typiclust_and_k_center_do_better_than_chance_at_seeing_every_cluster() -> None:
    x, belongs = blobs(200, 10, 10, 10, 10)
    for select in (TypiClust(), KCenter()):
        assert len(set(belongs[spread(select, x, 5).rows].tolist())) == 5


@pytest.mark.parametrize("select", [TypiClust(), KCenter()])
def test_identical_rows_are_picked_by_the_seed_with_a_note(select: Any) -> None:
    picks = spread(select, torch.full((6, 2), 0.3).double(), 4)
    assert picks.rows.tolist() == (-tie_keys(0, np.arange(6))).argsort()[:4].tolist()
    assert "the last 3 picks repeat" in picks.notes[0]


def test_what_is_missing_or_does_not_fit_is_named() -> None:
    for select in (Badge(), KCenter(), TypiClust()):
        with pytest.raises(InvalidOption, match=f"{select.name} needs features"):
            select(Candidates(rows=torch.arange(3)), 1, Context())
        with pytest.raises(InvalidData, match=r"expected features \[3, F\]"):
            select(Candidates(rows=torch.arange(3), features=torch.ones(2, 2)), 1, Context())
        broken = torch.ones(3, 2)
        broken[1, 0] = math.nan
        with pytest.raises(NotFinite, match="row 11"):
            select(Candidates(rows=torch.arange(10, 13), features=broken), 1, Context())
    with pytest.raises(InvalidOption, match="class probabilities"):
        badge(torch.ones(3, 2), None, 1)
    gaussian = GaussianPredictive(means=torch.ones(2, 3), variances=torch.ones(2, 3))
    with pytest.raises(InvalidOption, match="class probabilities"):
        Badge()(Candidates(rows=torch.arange(3), features=torch.ones(3, 2), predictive=gaussian), 1, Context())
    with pytest.raises(InvalidData, match="labelled rows have features"):
        spread(KCenter(), normal(3, 2), 1, labelled=normal(3, 5))


@pytest.mark.parametrize("selection", ["badge", "kcenter", "typiclust"])
def test_a_trained_ensemble_ranks_no_row_together_with_its_copy(selection: str) -> None:
    x = normal(60, 4).float()
    fitted = bc.fit(
        "deep_ensemble",
        {"name": "mlp", "hidden": [16]},
        (x[:30], (x[:30, 0] > 0).long() + (x[:30, 1] > 0).long()),
        likelihood="categorical",
        seed=0,
        members=3,
        epochs=5,
    )
    order = torch.randperm(300, generator=torch.Generator().manual_seed(0)) % 60
    for labelled in (None, x[:5]):
        ranking = bc.rank(fitted.sample(3, seed=0), x[order], selection=selection, k=30, seed=2, labelled=labelled)
        base = set(order[ranking.rows].tolist())
        assert len(base) == 30
        assert ranking.notes == ()
        if labelled is not None and selection != "badge":
            assert not base & set(range(5))


def farthest_first(x: np.ndarray, first: int, k: int) -> list[int]:
    """Again and again the row farthest from all that are picked, by differences."""
    picked = [first]
    while len(picked) < k:
        picked.append(int(np.min([((x - x[at]) ** 2).sum(1) for at in picked], axis=0).argmax()))
    return picked


def with_an_outlier() -> np.ndarray:
    x = np.random.default_rng(0).standard_normal((200, 3)).astype(np.float32)
    x[7, 0] = 1e9
    return x


def two_far_clusters() -> np.ndarray:
    x = np.random.default_rng(0).standard_normal((100, 3))
    return x + np.where(np.arange(100) < 50, 1e6, -1e6)[:, None]


@pytest.mark.parametrize("x", [with_an_outlier(), two_far_clusters()], ids=["outlier", "clusters"])
def test_k_center_tells_rows_apart_that_are_near_beside_the_extent_of_the_pool(x: np.ndarray) -> None:
    ranking = bc.rank(None, x, acquisition="random", selection="kcenter", k=6)
    assert ranking.rows.tolist() == farthest_first(x.astype(np.float64), int(ranking.rows[0]), 6)
    distances = np.linalg.norm(x[ranking.rows][:, None].astype(np.float64) - x[ranking.rows], axis=-1)
    nearest = [distances[i, :i].min() for i in range(1, 6)]
    assert ranking.values[1:].tolist() == pytest.approx(nearest, rel=1e-6)
    assert min(nearest) > 1


@pytest.mark.parametrize("x", [with_an_outlier(), two_far_clusters()], ids=["outlier", "clusters"])
def test_typiclust_tells_rows_apart_that_are_near_beside_the_extent_of_the_pool(x: np.ndarray) -> None:
    ranking = bc.rank(None, x, acquisition="random", selection={"name": "typiclust", "max_clusters": 2}, k=20)
    assert len(set(ranking.rows.tolist())) == 20
    assert not any("repeat" in note for note in ranking.notes)
    assert (ranking.values < 1e4).all()  # a distance that cancels to 0 would have a typicality of 100,000


def test_distances_keep_their_digits_where_a_product_would_cancel() -> None:
    x = torch.from_numpy(two_far_clusters())
    exact = (x[:, None] - x).square().sum(-1)
    torch.testing.assert_close(cross_distances(x, x), exact, rtol=1e-9, atol=0.0)
    expected = exact.fill_diagonal_(math.inf).sqrt().sort(1).values[:, :4].mean(1)
    torch.testing.assert_close(mean_neighbour_distance(x, 4), expected, rtol=1e-9, atol=0.0)
    far = x + torch.tensor([1e9, 0, 0])
    assert mean_neighbour_distance(far, 4).min() > 0.1


def test_copies_in_different_places_of_a_pool_have_the_same_features() -> None:
    """Kernels may round a row by its place in a block; equal inputs are predicted once."""

    class Shaky(LinearEnsemble):
        def features(self, x: Tensor) -> Tensor:
            return x.flatten(1) * (1 + 1e-7 * torch.arange(len(x))[:, None])

    x = normal(20, 4).float()
    for selection in ("kcenter", {"name": "typiclust", "max_clusters": 3}):
        ranking = bc.rank(Shaky(), x.repeat(3, 1), selection=selection, k=18, labelled=x[:2])
        assert len({int(row) % 20 for row in ranking.rows} - {0, 1}) == 18
        assert ranking.values.min() > 1e-3


def test_which_rows_are_copies_is_told_by_their_values() -> None:
    x = torch.tensor([[1.0, 0.0], [2.0, 3.0], [1.0, -0.0], [2.0, 3.0 + 1e-6]])
    for given in (x, x.double(), x.bfloat16(), x.long(), x > 1):
        first, which = distinct(given)
        assert torch.equal(given[first][which], given)
        assert which[0] == which[2]
        assert len(set(which.tolist())) == len(first) == len({tuple(row) for row in given.tolist()})
    assert distinct(torch.empty(3, 0))[1].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("k", "share", "n_random"), [(6, 0.5, 3), (5, 0.5, 2), (1, 0.5, 0), (100, 0.29, 29), (4, 1.0, 4)]
)
def test_a_share_of_typiclust_is_random_and_comes_last(k: int, share: float, n_random: int) -> None:
    x = normal(120, 3)
    picks = spread(TypiClust(random_share=share), x, k, seed=2)
    typical = spread(TypiClust(), x, k - n_random, seed=2).rows.tolist()
    assert picks.rows[: k - n_random].tolist() == typical
    others = np.setdiff1d(np.arange(120), typical)
    keys = counter.uniform(2, others, counter.RANDOM_PICKS)
    assert picks.rows[k - n_random :].tolist() == others[(-keys).argsort()[:n_random]].tolist()
    assert (picks.measure, picks.notes) == ("typicality", ())
    assert (picks.values > 0).all()


def test_the_random_share_of_typiclust_is_uniform_over_the_rows_that_are_left() -> None:
    x, seeds = torch.arange(8).double()[:, None], 3000
    drawn = Counter(int(spread(TypiClust(random_share=1.0), x, 1, seed=seed).rows) for seed in range(seeds))
    assert stats.chisquare([drawn[row] for row in range(8)]).pvalue > 1e-3


def test_standardised_typical_rows_do_not_depend_on_the_units_of_an_input() -> None:
    x = normal(300, 4, seed=3)
    units = torch.tensor([1.0, 1024.0, 2.0**-10, 8.0])  # powers of two: the same bits
    some, others = (Candidates(rows=torch.arange(300), features=rows) for rows in (x, x * units))
    how = TypiClust(standardise=True)
    assert how(some, 10, Context(seed=1)).rows.tolist() == how(others, 10, Context(seed=1)).rows.tolist()
    raw = TypiClust()
    assert raw(some, 10, Context(seed=1)).rows.tolist() != raw(others, 10, Context(seed=1)).rows.tolist()


def test_where_rows_run_out_the_random_share_comes_before_the_repeats() -> None:
    x = torch.zeros(9, 1).double()
    picks = spread(TypiClust(random_share=0.5), x, 6)
    assert picks.rows.unique().numel() == 6
    assert picks.values[-2:].tolist() == [0.0, 0.0]
    assert "the last 2 picks repeat labelled or earlier ones" in picks.notes[0]


@pytest.mark.parametrize("selection", ["kcenter", {"name": "typiclust", "max_clusters": 2}])
def test_labelled_rows_of_another_precision_are_copies_all_the_same(selection: object) -> None:
    labelled = normal(5, 4)
    for x in (torch.cat([labelled.float(), normal(9, 4, seed=1).float()]), torch.arange(56).reshape(14, 4)):
        known = labelled if x.is_floating_point() else x[:5].double()
        ranking = bc.rank(None, x, acquisition="random", selection=selection, k=9, labelled=known)
        assert sorted(ranking.rows.tolist()) == list(range(5, 14))


def test_labelled_rows_of_another_shape_are_refused() -> None:
    with pytest.raises(InvalidData, match=r"labelled rows have shape \[5\], the pool's \[4\]"):
        bc.rank(LinearEnsemble(), normal(9, 4).float(), selection="kcenter", k=2, labelled=normal(3, 5).float())
