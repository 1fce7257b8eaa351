"""Scoring streams, choosing is exact and repeatable, a ranking says what its reader should know."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from bensemble_core.acquisition import (
    SELECTIONS,
    Bald,
    BatchBald,
    Candidates,
    Context,
    Eig,
    KCenter,
    Power,
    Random,
    SelectionEntry,
    TopK,
    short_list,
    short_list_size,
)
from bensemble_core.acquisition.fused import kernels
from bensemble_core.acquisition.selections.tie_break import tie_keys
from bensemble_core.errors import Cancelled, InvalidData, InvalidOption, NotFinite
from bensemble_core.predictive import CategoricalPredictive, GaussianPredictive, Predictive
from bensemble_core.ranking import choose, conclude, rank, score, score_columns
from bensemble_core.ranking.kept import kept_scores
from bensemble_core.ranking.scoring import CHUNK_ROWS


class LinearEnsemble:
    """Members with linear logits (or means), run as the library's ensembles are: padded chunks, then cut."""

    def __init__(self, n_members: int = 5, n_inputs: int = 4, n_outputs: int = 3, family: str = "categorical") -> None:
        rng = torch.Generator().manual_seed(0)
        self.weights = torch.randn(n_members, n_inputs, n_outputs, generator=rng)
        self.family = family
        self.log_weights: Tensor | None = None
        self.is_concurrent = True
        self.longest = 0

    @property
    def n_members(self) -> int:
        return self.weights.shape[0]

    def iter_predict(self, x: Tensor, chunk_rows: int) -> Iterator[Predictive]:
        self.longest = max(self.longest, len(x))
        for start in range(0, len(x), chunk_rows):
            rows = x[start : start + chunk_rows]
            padded = torch.cat([rows, rows[-1:].expand(chunk_rows - len(rows), -1)])
            outputs = (padded @ self.weights)[:, : len(rows)]
            if self.family == "categorical":
                yield CategoricalPredictive(logits=outputs, log_weights=self.log_weights)
            else:
                yield GaussianPredictive(means=outputs[..., 0], variances=torch.ones_like(outputs[..., 0]))

    def features(self, x: Tensor) -> Tensor:
        return 2 * x


def inputs(n_rows: int, seed: int = 1) -> Tensor:
    return torch.randn(n_rows, 4, generator=torch.Generator().manual_seed(seed))


def whole(ensemble: LinearEnsemble, x: Tensor) -> Predictive:
    return next(ensemble.iter_predict(x, len(x)))


def test_streamed_scores_equal_the_predictive_as_a_whole() -> None:
    ensemble, x = LinearEnsemble(), inputs(2500)
    torch.testing.assert_close(
        score(ensemble, x, "bald"), whole(ensemble, x).mutual_information(), rtol=1e-5, atol=1e-6
    )


def test_no_more_than_a_chunk_is_predicted_at_once() -> None:
    ensemble = LinearEnsemble()
    score(ensemble, inputs(300), chunk_rows=64)
    assert ensemble.longest == 64


@pytest.mark.parametrize("acquisition", ["bald", "entropy", "mean_std", "variation_ratio", "margin"])
def test_a_score_has_the_same_bits_whatever_the_length_of_the_pool(acquisition: str) -> None:
    ensemble, x = LinearEnsemble(), inputs(2 * CHUNK_ROWS + 300)
    full = score(ensemble, x, acquisition)
    for n_rows in (1, 3, 1000, CHUNK_ROWS + 1, 2 * CHUNK_ROWS + 17):
        assert torch.equal(score(ensemble, x[:n_rows], acquisition), full[:n_rows])


@pytest.mark.parametrize("acquisition", ["bald", "random"])
def test_a_shard_scored_alone_has_the_bits_of_the_pool(acquisition: str) -> None:
    ensemble, x = LinearEnsemble(), inputs(3 * CHUNK_ROWS)
    part = score(ensemble, x[CHUNK_ROWS:], acquisition, seed=3, first_row=CHUNK_ROWS)
    assert torch.equal(part, score(ensemble, x, acquisition, seed=3)[CHUNK_ROWS:])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("family", ["categorical", "gaussian"])
def test_several_scores_from_one_forward_pass_have_the_bits_of_each_alone(family: str, weighted: bool) -> None:
    ensemble, x = LinearEnsemble(family=family), inputs(CHUNK_ROWS + 70)
    if weighted and family == "categorical":
        ensemble.log_weights = torch.linspace(-1, 1, 5)
    some = [*kept_scores(family), Eig(), Random()]  # type: ignore[arg-type]
    together = score_columns(ensemble, x, some, seed=4)
    for options, column in zip(some, together, strict=True):
        assert torch.equal(column, score(ensemble, x, options, seed=4))


def test_scores_of_the_fused_pass_share_one_run_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    ensemble, runs, statistics = LinearEnsemble(), [], kernels.statistics

    def counted(*given: Any, **options: Any) -> Tensor | None:
        runs.append(options["n_columns"])
        return statistics(*given, **options)

    monkeypatch.delenv(kernels.SWITCH, raising=False)
    monkeypatch.setattr(kernels, "statistics", counted)
    score_columns(ensemble, inputs(2 * CHUNK_ROWS), ["bald", "entropy", "eig", "margin", "random"])
    assert runs == [6, 6]
    score_columns(ensemble, inputs(10), kept_scores("categorical"))
    assert runs[2:] == [8]


@pytest.mark.parametrize("chunk_rows", [1, 7, 64, 5000])
def test_random_scores_do_not_depend_on_chunks(chunk_rows: int) -> None:
    x = np.zeros((333, 2))
    assert torch.equal(score(None, x, "random", seed=5, chunk_rows=chunk_rows), score(None, x, "random", seed=5))


def test_arrays_read_only_memory_maps_and_tensors_score_alike(tmp_path: Path) -> None:
    ensemble, x = LinearEnsemble(), inputs(1500)
    np.save(tmp_path / "x.npy", x.numpy())
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    expected = score(ensemble, x)
    assert torch.equal(score(ensemble, x.numpy()), expected)
    assert torch.equal(score(ensemble, mapped), expected)


@pytest.mark.parametrize("flip", [np.s_[::-1], np.s_[:, ::-1], np.s_[::-2, ::-1]])
def test_an_array_that_runs_backwards_ranks_as_its_copy(flip: Any) -> None:
    x = inputs(60).numpy()[flip]
    for selection in ("top_k", "batchbald"):
        ours, copied = (rank(LinearEnsemble(), rows, selection=selection, k=5) for rows in (x, x.copy()))
        assert torch.equal(ours.rows, copied.rows)
        assert torch.equal(ours.scores, copied.scores)


@pytest.mark.parametrize("seed", [-1, 2**63, 2**70])
def test_a_seed_that_no_service_would_take_is_refused_with_its_range(seed: int) -> None:
    calls: list[Any] = [
        lambda: rank(LinearEnsemble(), inputs(9), k=2, seed=seed),
        lambda: score(LinearEnsemble(), inputs(9), seed=seed),
        lambda: choose(torch.rand(9), k=2, seed=seed),
    ]
    for call in calls:
        with pytest.raises(InvalidOption, match=f"at least 0 and below 2\\*\\*63, got {seed}"):
            call()


def test_true_is_no_number_of_rows_and_no_seed() -> None:
    with pytest.raises(InvalidOption, match="k has to be a whole number, got True"):
        rank(LinearEnsemble(), inputs(9), k=True)
    with pytest.raises(InvalidOption, match="the seed has to be a whole number, got False"):
        rank(LinearEnsemble(), inputs(9), k=2, seed=False)
    assert rank(LinearEnsemble(), inputs(9), k=np.int64(2), seed=np.uint8(3)).rows.shape == (2,)


def test_an_empty_pool_has_no_scores() -> None:
    assert score(LinearEnsemble(), inputs(0)).shape == (0,)


def test_a_row_that_is_not_finite_is_named_by_its_pool_number() -> None:
    x = inputs(1500)
    x[1200, 2] = math.nan
    with pytest.raises(NotFinite, match="row 5200 has the score nan"):
        score(LinearEnsemble(), x, first_row=4000)
    outputs = LinearEnsemble(family="gaussian")
    with pytest.raises(NotFinite, match="row 1200 "):
        score(outputs, x, "predictive_variance")


@pytest.mark.parametrize("switch", ["on", "off"])
def test_members_cannot_vote_on_a_row_that_they_cannot_predict(switch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENSEMBLE_KERNELS", switch)
    x = inputs(50)
    x[30] = math.nan
    with pytest.raises(NotFinite, match="row 30 has the score nan"):
        score(LinearEnsemble(), x, "variation_ratio")
    with pytest.raises(NotFinite, match="row 0 has the score nan"):
        rank(LinearEnsemble(), torch.full_like(x, math.nan), acquisition="variation_ratio", k=1)


def test_progress_is_reported_and_can_cancel() -> None:
    seen: list[tuple[int, int]] = []

    def report(done: int, total: int, message: str) -> None:
        seen.append((done, total))
        if done >= 128:
            raise Cancelled(message)

    with pytest.raises(Cancelled):
        score(LinearEnsemble(), inputs(300), chunk_rows=64, report=report)
    assert seen == [(64, 300), (128, 300)]


@pytest.mark.parametrize("name", ["variation_ratio", "least_confidence", "margin"])
def test_scores_that_count_classes_are_refused_for_regression(name: str) -> None:
    with pytest.raises(InvalidOption, match=f"{name} is not defined for a gaussian likelihood; use one of bald"):
        score(LinearEnsemble(family="gaussian"), inputs(3), name)


def test_regression_scores_follow_their_definitions() -> None:
    ensemble, x = LinearEnsemble(family="gaussian"), inputs(40)
    means = whole(ensemble, x).means.double()  # type: ignore[union-attr]
    spread = means.var(0, correction=0)
    for acquisition, expected in [
        ("bald", 0.5 * torch.log1p(spread)),
        ("eig", 0.5 * torch.log1p(spread)),
        ("predictive_variance", 1 + spread),
        ({"name": "predictive_variance", "part": "epistemic"}, spread),
        ("mean_std", spread.sqrt()),
        ("entropy", 0.5 * torch.log(2 * math.pi * math.e * (1 + spread))),
    ]:
        torch.testing.assert_close(score(ensemble, x, acquisition).double(), expected, rtol=1e-5, atol=1e-6)


def test_the_mixture_estimate_is_used_when_asked_for() -> None:
    ensemble, x = LinearEnsemble(family="gaussian"), inputs(5)
    expected = whole(ensemble, x).mutual_information(method="mixture")  # type: ignore[call-arg]
    torch.testing.assert_close(score(ensemble, x, Bald(estimate="mixture")), expected, rtol=1e-5, atol=1e-6)


def test_an_acquisition_that_needs_an_ensemble_says_so() -> None:
    with pytest.raises(InvalidOption, match="bald needs an ensemble; only random"):
        score(None, inputs(3), "bald")


def test_top_k_of_a_large_pool_equals_a_sort_by_score_and_key() -> None:
    scores = np.random.default_rng(0).integers(0, 500, size=300_000).astype(np.float32)
    expected = np.lexsort((-tie_keys(0, np.arange(scores.size)), -scores))[:2000]
    rows, values = choose(scores, k=2000)
    np.testing.assert_array_equal(rows.numpy(), expected)
    np.testing.assert_array_equal(values.numpy(), scores[expected])
    assert rows.dtype == torch.int64
    assert values.dtype == torch.float32


def test_excluded_rows_are_never_chosen_by_mask_or_number() -> None:
    scores = torch.tensor([0.5, 0.9, 0.1, 0.7])
    mask = torch.tensor([False, True, False, False])
    for exclude in (mask, mask.numpy(), [1], np.array([1]), torch.tensor([1]), {1}):
        rows, values = choose(scores, k=2, exclude=exclude)
        assert rows.tolist() == [3, 0]
        assert values.tolist() == scores[[3, 0]].tolist()
    assert choose(scores, k=1, exclude=[])[0].tolist() == [1]


def test_a_bad_score_of_an_excluded_row_does_no_harm() -> None:
    assert choose(torch.tensor([math.nan, 1.0]), k=1, exclude=[0])[0].tolist() == [1]
    with pytest.raises(NotFinite, match="row 0"):
        choose(torch.tensor([math.nan, 1.0]), k=1)


@pytest.mark.parametrize("exclude", [[4], [-1], np.array([True]), np.array([0.5])])
def test_an_exclusion_that_does_not_fit_the_pool_is_refused(exclude: object) -> None:
    with pytest.raises(InvalidData):
        choose(torch.zeros(4), k=1, exclude=exclude)  # type: ignore[arg-type]


def test_asking_for_more_rows_than_there_are_says_how_many() -> None:
    with pytest.raises(InvalidOption, match="k = 4 rows were asked for and there are 3"):
        choose(torch.zeros(5), k=4, exclude=[0, 1])
    with pytest.raises(InvalidOption, match="there are 3 to choose from"):
        rank(LinearEnsemble(), inputs(3), k=9)
    with pytest.raises(InvalidOption, match="at least 1"):
        choose(torch.zeros(5), k=0)


def test_power_is_repeated_by_its_seed_alone() -> None:
    scores = torch.rand(5000, generator=torch.Generator().manual_seed(0))
    first = choose(scores, "power", k=50, seed=1)[0]
    assert torch.equal(first, choose(scores, Power(), k=50, seed=1)[0])
    assert not torch.equal(first, choose(scores, {"name": "power"}, k=50, seed=2)[0])


def test_a_selection_that_needs_more_than_scores_says_what(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SELECTIONS, "top_k", SelectionEntry(options=TopK, needs=("features",)))
    with pytest.raises(InvalidOption, match="top_k needs features"):
        choose(torch.zeros(3), k=1)


def test_a_ranking_is_the_best_rows_of_the_scores() -> None:
    ensemble, x = LinearEnsemble(), inputs(2000)
    ranking = rank(ensemble, x, selection="top_k", k=10, exclude=range(100))
    scores = score(ensemble, x)
    expected = 100 + scores[100:].argsort(descending=True, stable=True)[:10]
    assert torch.equal(ranking.rows, expected)
    assert torch.equal(ranking.scores, scores[expected])
    assert ranking.n_scored == 1900


@pytest.mark.parametrize(("acquisition", "selection"), [("bald", "top_k"), ("random", "top_k"), ("entropy", "power")])
def test_shards_rank_as_their_concatenation(acquisition: str, selection: str) -> None:
    ensemble, x = LinearEnsemble(), inputs(2 * CHUNK_ROWS + 77)
    shards = [x[:CHUNK_ROWS], x[CHUNK_ROWS : 2 * CHUNK_ROWS].numpy(), x[2 * CHUNK_ROWS :]]
    one = rank(ensemble, x, acquisition=acquisition, selection=selection, k=30, seed=8, exclude=[5, 2000])
    many = rank(ensemble, shards, acquisition=acquisition, selection=selection, k=30, seed=8, exclude=[5, 2000])
    assert torch.equal(one.rows, many.rows)
    assert torch.equal(one.scores, many.scores)


def test_scores_computed_shard_by_shard_conclude_in_the_same_ranking() -> None:
    ensemble, x = LinearEnsemble(n_members=3), inputs(2 * CHUNK_ROWS) * 50
    parts = [score(ensemble, x[start : start + CHUNK_ROWS], first_row=start) for start in (0, CHUNK_ROWS)]
    stored = torch.cat(parts).numpy()
    for selection in ("top_k", "power"):
        ranking = rank(ensemble, x, selection=selection, k=20, seed=2, exclude=[3])
        concluded = conclude(ensemble, stored, selection=selection, k=20, seed=2, exclude=[3])
        assert torch.equal(concluded.rows, ranking.rows)
        assert torch.equal(concluded.scores, ranking.scores)
        assert (concluded.n_scored, concluded.notes) == (ranking.n_scored, ranking.notes)


SETS = ["batchbald", "badge", "kcenter", "typiclust", "cluster_margin"]


@pytest.mark.parametrize("selection", SETS)
def test_a_set_selection_ranks_arrays_shards_and_memory_maps_alike(selection: str, tmp_path: Path) -> None:
    ensemble, x = LinearEnsemble(), inputs(2 * CHUNK_ROWS + 77)
    np.save(tmp_path / "x.npy", x[CHUNK_ROWS : 2 * CHUNK_ROWS].numpy())
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    how = {"name": selection, **({} if selection == "cluster_margin" else {"short_list": 200})}
    one = rank(ensemble, x, selection=how, k=6, seed=8, exclude=[5, 2000], labelled=inputs(9, seed=2))
    shards = [x[:CHUNK_ROWS], mapped, x[2 * CHUNK_ROWS :]]
    many = rank(ensemble, shards, selection=how, k=6, seed=8, exclude=[5, 2000], labelled=inputs(9, seed=2).numpy())
    assert len(set(one.rows.tolist())) == 6
    assert torch.equal(one.rows, many.rows)
    assert torch.equal(one.values, many.values)
    assert (one.measure, one.notes, one.n_scored) == (many.measure, many.notes, len(x) - 2)
    assert torch.equal(one.scores, score(ensemble, x, "bald" if selection == "batchbald" else None)[one.rows])


def test_batchbald_looks_at_the_highest_scores_alone() -> None:
    ensemble, x = LinearEnsemble(), inputs(1500)
    ranking = rank(ensemble, x, selection=BatchBald(short_list=40), k=5)
    listed = score(ensemble, x, "bald").argsort(descending=True, stable=True)[:40].sort().values
    (predictive,) = ensemble.iter_predict(x[listed], 40)
    expected = BatchBald()(Candidates(rows=listed, predictive=predictive), 5, Context())
    assert ranking.rows.tolist() == expected.rows.tolist()
    torch.testing.assert_close(ranking.values, expected.values, rtol=1e-4, atol=1e-6)
    assert ranking.measure == "information_gained"


def test_k_center_looks_at_a_seeded_draw_of_rows_and_keeps_away_from_labelled_ones() -> None:
    ensemble, x, labelled = LinearEnsemble(), inputs(1500), inputs(20, seed=3)
    how, entry, rows = KCenter(short_list=100), SELECTIONS["kcenter"], torch.arange(1500)
    listed = short_list(entry, how, rows, torch.zeros(1500), 4, 7)
    assert listed.tolist() == sorted(set(listed.tolist()))
    assert len(listed) == 100
    assert set(short_list(entry, how, rows[500:], torch.zeros(1000), 4, 7).tolist()) >= {
        r for r in listed.tolist() if r >= 500
    }
    ranking = rank(ensemble, x, selection=how, k=4, seed=7, labelled=labelled)
    assert ranking.rows[0] == listed[torch.cdist(x[listed], labelled).amin(1).argmax()]
    assert ranking.values[0].item() == pytest.approx(
        2 * torch.cdist(x[listed], labelled).amin(1).max().item(), rel=1e-5
    )


def test_the_size_of_a_short_list_is_five_rows_a_pick_five_thousand_or_what_was_asked_for() -> None:
    assert [short_list_size(BatchBald(), k) for k in (1, 1000, 10_000)] == [5000, 5000, 50_000]
    assert short_list_size(BatchBald(short_list=30), 30) == 30
    with pytest.raises(InvalidOption, match="short_list has to be at least k = 31, got 30"):
        rank(LinearEnsemble(), inputs(100), selection=BatchBald(short_list=30), k=31)


@pytest.mark.parametrize("selection", ["typiclust", "kcenter"])
def test_before_there_is_an_ensemble_rows_are_compared_as_they_are_and_the_ranking_says_so(selection: str) -> None:
    x = inputs(300)
    ranking = rank(None, x.numpy(), acquisition="random", selection=selection, k=8, seed=1)
    some = Candidates(rows=torch.arange(300), features=x)
    assert torch.equal(ranking.rows, SELECTIONS[selection].options()(some, 8, Context(seed=1)).rows)
    assert ranking.notes == (
        f"there is no ensemble yet: {selection} compared the rows as they were given, in their own units",
    )
    whole = rank(None, (100 * x).int(), acquisition="random", selection=selection, k=8)
    assert len(set(whole.rows.tolist())) == 8


def test_a_selection_that_does_not_fit_is_refused_before_any_row_is_scored() -> None:
    def report(done: int, total: int, message: str) -> None:
        raise AssertionError("scored")

    for selection in ("batchbald", "badge"):
        with pytest.raises(InvalidOption, match=f"{selection} needs an ensemble; .* top_k, power, kcenter, typiclust"):
            rank(None, inputs(9), acquisition="random", selection=selection, k=2, report=report)
    with pytest.raises(InvalidOption, match="badge is not defined for a gaussian likelihood; use one of top_k"):
        rank(LinearEnsemble(family="gaussian"), inputs(9), selection="badge", k=2, report=report)


@pytest.mark.parametrize("selection", SETS)
def test_scores_alone_do_not_make_a_set_and_with_rows_to_gather_they_do(selection: str) -> None:
    ensemble, x = LinearEnsemble(), inputs(CHUNK_ROWS)
    with pytest.raises(InvalidOption, match=f"{selection} needs .*, which a vector of scores does not have"):
        conclude(ensemble, score(ensemble, x), selection=selection, k=4)
    stored = score(ensemble, x, "bald")
    concluded = conclude(ensemble, stored, acquisition="bald", selection=selection, k=4, gather=lambda rows: x[rows])
    assert torch.equal(concluded.rows, rank(ensemble, x, acquisition="bald", selection=selection, k=4).rows)


def test_a_power_ranking_tells_the_probability_of_every_draw() -> None:
    ensemble, x = LinearEnsemble(), inputs(500)
    ranking, scores = rank(ensemble, x, selection="power", k=5, seed=3), score(ensemble, x).double()
    left = scores.sum()
    for row, value in zip(ranking.rows.tolist(), ranking.values.tolist(), strict=True):
        assert value == pytest.approx(float(scores[row] / left), rel=1e-9)
        left = left - scores[row]
    assert ranking.measure == "probability"


def test_shards_that_are_no_arrays_of_rows_are_refused() -> None:
    with pytest.raises(InvalidData, match="sequence of such arrays"):
        rank(LinearEnsemble(), [inputs(3)[0]], k=1)


def test_a_random_ranking_needs_no_ensemble() -> None:
    ranking = rank(None, np.zeros((50, 3)), acquisition="random", k=50, seed=1)
    assert sorted(ranking.rows.tolist()) == list(range(50))
    assert ranking.notes == ()


def test_a_random_ranking_tells_the_probability_of_every_draw() -> None:
    x = inputs(40)
    for ensemble in (None, LinearEnsemble()):
        ranking = rank(ensemble, x, acquisition="random", k=4, seed=1, exclude=range(10))
        assert ranking.measure == "probability"
        assert ranking.values.tolist() == pytest.approx([1 / 30, 1 / 29, 1 / 28, 1 / 27], rel=1e-15)
        assert torch.equal(ranking.scores, score(None, x, "random", seed=1)[ranking.rows])
    assert rank(LinearEnsemble(), x, acquisition="entropy", selection="top_k", k=4).measure == "score"


def test_every_row_is_drawn_as_often_as_a_random_ranking_says() -> None:
    first = torch.cat([rank(None, inputs(5), acquisition="random", k=2, seed=seed).rows[1:] for seed in range(2000)])
    assert stats.chisquare(torch.bincount(first, minlength=5).numpy()).pvalue > 1e-3


def test_a_vote_ranking_says_how_many_rows_tie() -> None:
    ensemble, x = LinearEnsemble(n_members=4), inputs(400)
    ranking = rank(ensemble, x, acquisition="variation_ratio", k=10)
    tied = int((score(ensemble, x, "variation_ratio") == ranking.scores.min()).sum())
    assert f"{tied} rows tie" in ranking.notes[0]
    assert "4 members" in ranking.notes[0]


@pytest.mark.parametrize("selection", ["top_k", "power", "batchbald"])
@pytest.mark.parametrize("family", ["categorical", "gaussian"])
def test_one_member_has_no_information_and_the_ranking_says_so(family: str, selection: str) -> None:
    ranking = rank(LinearEnsemble(n_members=1, family=family), inputs(50), acquisition="bald", selection=selection, k=5)
    assert ranking.scores.tolist() == [0.0] * 5
    assert "one member cannot disagree with itself: bald is 0 for every row" in ranking.notes[0]


def test_a_saturated_information_ranking_asks_for_more_members() -> None:
    ensemble, x = LinearEnsemble(n_members=2), inputs(400) * 50
    assert "more members would help" in rank(ensemble, x, acquisition="bald", k=5).notes[0]
    assert rank(ensemble, x / 1000, acquisition="bald", k=5).notes == ()
    assert rank(ensemble, x, acquisition="entropy", k=5).notes == ()


def test_weights_lower_the_information_a_ranking_can_resolve() -> None:
    ensemble, x = LinearEnsemble(n_members=3), inputs(400) * 50
    ensemble.log_weights = torch.tensor([0.49, 0.49, 0.02]).log()
    (note,) = rank(ensemble, x, acquisition="bald", k=5).notes
    assert "0.7773 nats" in note  # −2 · .49 ln .49 − .02 ln .02


def test_the_moment_match_has_no_ceiling_and_the_mixture_has() -> None:
    ensemble, x = LinearEnsemble(family="gaussian"), inputs(100) * 1000
    assert rank(ensemble, x, acquisition="bald", k=5).notes == ()
    assert rank(ensemble, x, acquisition={"name": "eig", "estimate": "mixture"}, k=5).notes != ()


def test_a_row_that_cannot_be_scored_matters_only_where_it_may_be_chosen() -> None:
    members, x = LinearEnsemble(), torch.randn(50, 4)
    x[7] = torch.nan
    with pytest.raises(NotFinite, match="row 7 "):
        rank(members, x, k=3)
    with pytest.raises(NotFinite, match="row 7 "):
        score_columns(members, x, ["bald", "entropy"])
    left = rank(members, x, k=3, exclude=[7])
    assert 7 not in left.rows.tolist()
    kept = score_columns(members, x, ["bald", "entropy"], finite=False)
    assert kept.isnan().any(0).nonzero().flatten().tolist() == [7]
