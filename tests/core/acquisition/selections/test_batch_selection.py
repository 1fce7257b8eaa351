"""BatchBALD against the reference implementation and brute force; the covariance form against log-determinants."""

import itertools
import math
import re
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from bensemble_core.acquisition import BatchBald, Candidates, Context, Picks, bald
from bensemble_core.acquisition.selections import joint
from bensemble_core.acquisition.selections.batch import covariance_picks
from bensemble_core.acquisition.selections.joint import Outcomes, expected_entropies, probabilities
from bensemble_core.acquisition.selections.tie_break import tie_keys
from bensemble_core.errors import InvalidOption, NotFinite
from bensemble_core.predictive import CategoricalPredictive, GaussianPredictive, Predictive, mixtures
from bensemble_core.threads import one_thread


def members(
    n_members: int, n_rows: int, n_classes: int, *, seed: int = 0, spread: float = 1.5
) -> CategoricalPredictive:
    """Rows differ in how sure they are and in how much the members disagree."""
    rng = torch.Generator().manual_seed(seed)
    shared = 2 * torch.randn(1, n_rows, n_classes, generator=rng, dtype=torch.float64)
    own = torch.randn(n_members, n_rows, n_classes, generator=rng, dtype=torch.float64)
    return CategoricalPredictive(logits=shared + spread * torch.rand(1, n_rows, 1, generator=rng).double() * own)


def select(predictive: Predictive, k: int, *, seed: int = 0, **options: Any) -> Picks:
    rows = torch.arange(predictive.n_rows)
    return BatchBald(**options)(Candidates(rows=rows, predictive=predictive), k, Context(seed=seed))


def joint_information(predictive: CategoricalPredictive, rows: list[int]) -> float:
    """H[y₁…y_b] − Σ_m w_m Σ_j H[p_m(y_j)], outcome by outcome."""
    log_w = mixtures.normalised(predictive.log_weights, predictive.n_members, predictive.logits)
    joint, lp = 0.0, predictive.log_probs
    for labels in itertools.product(range(lp.shape[2]), repeat=len(rows)):
        log_p = torch.logsumexp(log_w + sum(lp[:, r, c] for r, c in zip(rows, labels, strict=True)), 0)
        joint -= float(log_p.exp() * log_p)
    noise = mixtures.categorical_entropy(lp[:, rows]).sum(1)
    return joint - float(log_w.exp() @ noise)


def redux(predictive: CategoricalPredictive, k: int, n_samples: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from batchbald_redux.batchbald import get_batchbald_batch

        return get_batchbald_batch(predictive.log_probs.transpose(0, 1).contiguous(), k, n_samples, dtype=torch.double)


@pytest.mark.parametrize(
    ("n_members", "n_rows", "n_classes", "k", "seed"),
    [(20, 150, 10, 4, 0), (5, 100, 3, 7, 1), (50, 60, 2, 11, 2), (100, 60, 4, 5, 4)],
)
def test_exact_picks_and_scores_are_those_of_the_reference_implementation(
    n_members: int, n_rows: int, n_classes: int, k: int, seed: int
) -> None:
    predictive = members(n_members, n_rows, n_classes, seed=seed)
    picks, expected = select(predictive, k), redux(predictive, k, 10_000)
    assert picks.rows.tolist() == expected.indices
    assert picks.values.cumsum(0).tolist() == pytest.approx(expected.scores, abs=1e-9)
    assert picks.measure == "information_gained"


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(2, 3), st.booleans())
def test_gains_add_up_to_the_joint_information_by_brute_force(
    seed: int, n_members: int, n_classes: int, weighted: bool
) -> None:
    predictive = members(n_members, 6, n_classes, seed=seed)
    if weighted:
        log_weights = torch.randn(n_members, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        predictive = CategoricalPredictive(logits=predictive.logits, log_weights=log_weights)
    picks = select(predictive, 4)
    rows = picks.rows.tolist()
    for size in range(1, 5):
        best = max(joint_information(predictive, [*rows[: size - 1], r]) for r in range(6) if r not in rows[: size - 1])
        assert picks.values[:size].sum().item() == pytest.approx(joint_information(predictive, rows[:size]), abs=1e-9)
        assert picks.values[:size].sum().item() == pytest.approx(best, abs=1e-9)


def test_whole_weights_equal_repeated_members() -> None:
    predictive, counts = members(4, 50, 3), torch.tensor([3, 0, 1, 2])
    repeated = CategoricalPredictive(logits=predictive.logits.repeat_interleave(counts, 0))
    weighted = CategoricalPredictive(logits=predictive.logits, log_weights=counts.double().log())
    one, other = select(weighted, 5), select(repeated, 5)
    assert one.rows.tolist() == other.rows.tolist()
    torch.testing.assert_close(one.values, other.values, rtol=1e-9, atol=1e-12)


def test_the_first_pick_is_bald_and_gains_never_grow() -> None:
    predictive = members(30, 400, 5)
    picks, scores = select(predictive, 6), bald(predictive.log_probs)
    assert picks.rows[0] == scores.argmax()
    assert picks.values[0].item() == pytest.approx(scores.max().item(), abs=1e-12)
    assert (picks.values.diff() <= 1e-12).all()


def test_a_copy_of_a_pick_is_left_for_a_row_that_tells_something_else() -> None:
    """Certain members: rows 0 and 1 split them alike, row 2 splits them across, and only less sharply."""
    votes = torch.tensor([[0, 0, 0], [0, 0, 1], [1, 1, 0], [1, 1, 1]])
    logits = 40.0 * torch.nn.functional.one_hot(votes, 2).double()
    logits[:, 2] /= 10
    picks = select(CategoricalPredictive(logits=logits), 3)
    assert picks.rows.tolist() == [0, 2, 1]
    assert picks.values[0].item() == pytest.approx(math.log(2), abs=1e-9)
    assert picks.values[2].item() == pytest.approx(0, abs=1e-9)


def test_zero_probabilities_do_no_harm() -> None:
    logits = torch.tensor([[[0.0, -math.inf], [1.0, 0.0]], [[-math.inf, 0.0], [0.0, 1.0]]]).double()
    picks = select(CategoricalPredictive(logits=logits), 2)
    assert picks.rows.tolist() == [0, 1]
    assert picks.values.tolist() == pytest.approx([math.log(2), 0], abs=1e-12)


def test_zero_probabilities_do_no_harm_to_drawn_outcomes() -> None:
    logits = members(6, 40, 4).logits
    logits[torch.rand(logits.shape, generator=torch.Generator().manual_seed(1)) < 0.3] = -math.inf
    logits[..., 0] = 0.0
    picks = select(CategoricalPredictive(logits=logits), 5, outcomes=30)
    assert "drawn outcomes" in picks.notes[-1]
    assert bool(picks.values.isfinite().all())


def test_expected_entropies_known_beforehand_change_no_gain() -> None:
    """A fair coin to one member, certain to the other: ½ ln 2 is noise, the rest of H[¾, ¼] can be told."""
    logits = torch.tensor([[[0.0, 0.0]], [[0.0, -math.inf]]], dtype=torch.float64)
    known = CategoricalPredictive(logits=logits)
    noise = expected_entropies(known, torch.tensor([0]))
    assert noise.item() == pytest.approx(0.5 * math.log(2), abs=1e-15)
    before = Outcomes.none(mixtures.normalised(None, 2, logits))
    entropy = -0.75 * math.log(0.75) - 0.25 * math.log(0.25)
    assert before.gains(known, torch.tensor([0]), noise).item() == pytest.approx(entropy - noise.item(), abs=1e-15)
    predictive, some = members(7, 50, 4), torch.tensor([3, 41, 8])
    outcomes = Outcomes.none(mixtures.normalised(None, 7, predictive.logits)).then(
        probabilities(predictive, 5), 99, 0.5
    )
    every = expected_entropies(predictive, torch.arange(50))
    torch.testing.assert_close(
        outcomes.gains(predictive, some, every), outcomes.gains(predictive, some), rtol=0, atol=1e-14
    )
    assert outcomes.gains(predictive, some[:0]).shape == (0,)


def test_equal_gains_go_to_the_row_with_the_larger_key() -> None:
    one = members(6, 1, 3).logits
    predictive = CategoricalPredictive(logits=one.expand(-1, 37, -1))
    expected = (-tie_keys(4, np.arange(37))).argsort()[:5]
    assert select(predictive, 5, seed=4).rows.tolist() == expected.tolist()


def test_drawn_outcomes_give_each_pick_a_gain_within_three_standard_errors_of_the_best() -> None:
    predictive, k = members(12, 120, 6), 6
    picks = select(predictive, k, outcomes=500, seed=1)
    assert "from pick 5 on" in picks.notes[-1]
    rows, everyone = picks.rows.tolist(), torch.arange(120)
    exact = Outcomes.none(mixtures.normalised(None, 12, predictive.logits))
    for step, row in enumerate(rows):
        gains = exact.gains(predictive, everyone)
        gains[rows[:step]] = -math.inf
        mixed = exact.belief @ probabilities(predictive, row)
        entropies = mixtures.categorical_entropy(mixed.log())
        mean = exact.chance @ entropies
        error = math.sqrt(float(exact.chance @ (entropies - mean).square()) / 500)
        assert float(gains.max() - gains[row]) <= (3 * error if step >= 4 else 1e-9)
        assert picks.values[step].item() == pytest.approx(gains[row].item(), abs=3 * error + 1e-9)
        exact = exact.then(probabilities(predictive, row), 10**6, 0.5)
        assert exact.is_exact


def test_drawn_outcomes_are_right_on_average() -> None:
    """Over the place where the systematic draw starts, the estimate's mean is the exact gain."""
    predictive, everyone = members(5, 30, 3), torch.arange(30)
    before = Outcomes.none(mixtures.normalised(None, 5, predictive.logits)).then(probabilities(predictive, 0), 99, 0.5)
    exact = before.then(probabilities(predictive, 1), 99, 0.5).gains(predictive, everyone)
    starts = (torch.arange(2000).double() + 0.5) / 2000
    drawn = [before.then(probabilities(predictive, 1), 4, float(u)) for u in starts]
    assert not any(outcomes.is_exact for outcomes in drawn)
    mean = torch.stack([outcomes.gains(predictive, everyone) for outcomes in drawn]).mean(0)
    torch.testing.assert_close(mean, exact, rtol=0, atol=1e-3)


def test_drawn_picks_are_repeated_by_the_seed_and_do_not_depend_on_the_order_of_members() -> None:
    predictive, order = members(8, 60, 5), torch.tensor([3, 0, 7, 1, 6, 4, 2, 5])
    shuffled = CategoricalPredictive(logits=predictive.logits[order])
    first = select(predictive, 6, outcomes=50, seed=4)
    assert torch.equal(first.values, select(predictive, 6, outcomes=50, seed=4).values)
    assert first.rows.tolist() == select(shuffled, 6, outcomes=50, seed=4).rows.tolist()
    assert not torch.equal(first.values, select(predictive, 6, outcomes=50, seed=5).values)


@pytest.mark.parametrize(("outcomes", "k"), [(100_000, 5), (60, 8)])
@pytest.mark.parametrize("weighted", [False, True])
def test_outcomes_are_the_same_however_few_are_held_at_once(
    outcomes: int, k: int, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits = members(6, 30, 4, spread=4.0).logits
    logits[:, ::3, 1] = -math.inf  # some outcomes have no chance
    predictive = CategoricalPredictive(logits=logits, log_weights=torch.randn(6).double() if weighted else None)
    whole = select(predictive, k, outcomes=outcomes, seed=2)
    for cells in (1, 7, 100, 1000):
        monkeypatch.setattr(joint, "_CELLS", cells)
        parts = select(predictive, k, outcomes=outcomes, seed=2)
        assert parts.rows.tolist() == whole.rows.tolist()
        torch.testing.assert_close(parts.values, whole.values, rtol=1e-5, atol=1e-6)


def test_many_outcomes_of_many_classes_take_little_memory_and_are_heard_of_all_along(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """[C · S] numbers at once would be ten million; no tensor made on the way is a tenth of that."""
    monkeypatch.setattr(joint, "_CELLS", 1 << 16)
    monkeypatch.setattr("bensemble_core.acquisition.progress.REPORT_SECONDS", 0.0)
    predictive, heard = members(5, 4, 500, spread=5.0), 0

    def report(done: int, total: int, message: str) -> None:
        nonlocal heard
        heard += 1

    largest = 0

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal largest
            made = func(*args, **(kwargs or {}))
            largest = max(largest, made.numel() if isinstance(made, Tensor) else 0)
            return made

    candidates = Candidates(rows=torch.arange(4), predictive=predictive)
    with Sizes(), one_thread():
        picks = BatchBald(outcomes=20_000)(candidates, 3, Context(seed=0, report=report))
    assert picks.rows.numel() == 3
    assert largest <= 500 * 500  # of a look at two classes together, and 20,000 outcomes of five members
    assert heard > 50


def test_picks_have_the_same_bits_on_any_number_of_threads() -> None:
    predictive = members(20, 3000, 5)
    before = torch.get_num_threads()
    found = []
    try:
        for n_threads in (1, 2, 3):
            torch.set_num_threads(n_threads)
            found.append(select(predictive, 8, outcomes=500, seed=1))
            assert torch.get_num_threads() == n_threads
            predictive.logits.requires_grad_()  # makes no difference
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(found[0].rows, other.rows) for other in found)
    assert all(torch.equal(found[0].values, other.values) for other in found)


def test_five_members_run_out_and_the_batch_says_how_many_would_do() -> None:
    picks = select(members(5, 500, 3, spread=6.0), 4)
    told = picks.values.sum().item()
    assert told <= math.log(5) + 1e-9
    assert f"5 members hold at most 1.609 nats and these 4 rows use up {told:.4g}" in picks.notes[0]
    enough = int(re.findall(r"([\d,]+) would do", picks.notes[0])[0].replace(",", ""))
    assert enough == math.ceil(3 ** (4 / 0.9))
    assert select(members(enough, 500, 3, spread=6.0), 4).notes == ()
    assert select(members(100, 500, 10, spread=0.5), 3).notes == ()


@pytest.mark.parametrize(("n_members", "k"), [(5, 4), (6, 30), (20, 40)])
def test_where_no_number_of_members_would_do_a_smaller_batch_is_advised_and_does(n_members: int, k: int) -> None:
    predictive = members(n_members, 300, 8, spread=4.0)
    note = select(predictive, k, outcomes=200).notes[0]
    assert "would do" not in note
    told = float(re.findall(r"use up ([\d.]+):", note)[0])
    needed, magnitude = re.findall(r"More than ([\d,]+) members are needed, up to 10\^(\d+)", note)[0]
    assert int(needed.replace(",", "")) == pytest.approx(max(n_members + 1, math.exp(told / 0.9)), abs=1.01)
    assert int(magnitude) == math.ceil(k * math.log10(8) / 0.9)
    advised = int(re.findall(r"ask for k = (\d+)", note)[0])
    assert 1 <= advised < k
    assert not any("nats" in other for other in select(predictive, advised, outcomes=200).notes)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("weights", [None, [0.6, 0.2, 0.1, 0.1]])
def test_drawn_gains_never_add_up_to_more_than_the_members_can_tell(seed: int, weights: list[float] | None) -> None:
    logits = members(4, 80, 6, seed=seed, spread=5.0).logits
    log_weights = None if weights is None else torch.tensor(weights, dtype=torch.float64).log()
    picks = select(CategoricalPredictive(logits=logits, log_weights=log_weights), 12, outcomes=20, seed=seed)
    ceiling = mixtures.weight_entropy(log_weights, 4)
    assert (picks.values >= 0).all()
    assert picks.values.sum().item() <= ceiling + 1e-12
    assert f"use up {picks.values.sum().item():.4g}:" in picks.notes[0]


def test_unequal_weights_lower_what_members_can_tell() -> None:
    logits = members(3, 200, 5, spread=8.0).logits
    weighted = CategoricalPredictive(logits=logits, log_weights=torch.tensor([0.49, 0.49, 0.02]).log())
    assert "hold at most 0.7773 nats" in select(weighted, 4).notes[0]


def test_one_member_tells_nothing_and_the_batch_says_so() -> None:
    picks = select(members(1, 10, 3), 3)
    assert picks.rows.tolist() == (-tie_keys(0, np.arange(10))).argsort()[:3].tolist()
    assert picks.values.tolist() == pytest.approx([0, 0, 0], abs=1e-12)
    assert "one member cannot disagree" in picks.notes[0]


def gaussian(n_rows: int, *outputs: int, n_members: int = 7, weighted: bool = False) -> GaussianPredictive:
    rng = torch.Generator().manual_seed(0)
    means = 2 * torch.randn(n_members, n_rows, *outputs, generator=rng, dtype=torch.float64)
    noise = torch.rand(n_members, n_rows, *outputs, generator=rng, dtype=torch.float64) + 0.2
    log_weights = torch.randn(n_members, generator=rng, dtype=torch.float64) if weighted else None
    return GaussianPredictive(means=means, variances=noise, log_weights=log_weights)


def log_det(predictive: GaussianPredictive, rows: list[int]) -> float:
    """½ log det(I + D^-½ Cov D^-½) over all outputs of the rows."""
    shape = (predictive.n_members, len(rows) * predictive.n_outputs)
    means, noise = predictive.means[:, rows].reshape(shape), predictive.aleatoric_variance()[rows].flatten()
    weights = mixtures.normalised(predictive.log_weights, shape[0], means).exp()
    covariance = torch.cov(means.T, correction=0, aweights=weights) / (noise[:, None] * noise).sqrt()
    return 0.5 * torch.logdet(torch.eye(shape[1]).double() + covariance.reshape(shape[1], shape[1])).item()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("outputs", [(), (1,), (3,)])
def test_a_regression_batch_greedily_grows_the_log_determinant(outputs: tuple[int, ...], weighted: bool) -> None:
    predictive = gaussian(12, *outputs, weighted=weighted)
    picks = select(predictive, 9)  # more picks than members
    rows = picks.rows.tolist()
    for size in range(1, 10):
        before = rows[: size - 1]
        best = max(log_det(predictive, [*before, r]) for r in range(12) if r not in before)
        assert picks.values[:size].sum().item() == pytest.approx(log_det(predictive, rows[:size]), abs=1e-9)
        assert picks.values[:size].sum().item() == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize(
    ("n_members", "outputs", "n_new"), [(7, (), 6), (7, (1,), 6), (7, (3,), 2), (8, (3,), 3), (2, (), 1)]
)
def test_a_regression_batch_says_from_which_pick_on_no_row_is_new(
    n_members: int, outputs: tuple[int, ...], n_new: int
) -> None:
    predictive = gaussian(40, *outputs, n_members=n_members)
    assert select(predictive, n_new).notes == ()
    (note,) = select(predictive, n_new + 1).notes
    assert f"{n_members} members can differ in {n_members - 1} way" in note
    assert f"from pick {n_new + 1} on" in note
    enough = int(re.findall(r"(\d+) members or k", note)[0])
    assert select(gaussian(40, *outputs, n_members=enough), n_new + 1).notes == ()
    assert select(gaussian(40, *outputs, n_members=enough - 1), n_new + 1).notes != () or math.prod(outputs) > 1


def test_members_without_a_weight_add_no_direction_to_a_regression_batch() -> None:
    whole = gaussian(30, n_members=6)
    weights = torch.tensor([0.0, -math.inf, 0.3, -math.inf, -math.inf, 0.1])
    some = GaussianPredictive(means=whole.means, variances=whole.variances, log_weights=weights)
    assert select(some, 2).notes == ()
    assert "3 members can differ in 2 ways: from pick 3 on" in select(some, 3).notes[0]
    one = GaussianPredictive(means=whole.means[:1], variances=whole.variances[:1])
    assert "one member cannot disagree" in select(one, 3).notes[0]


def test_the_first_regression_gain_is_the_mutual_information() -> None:
    predictive = gaussian(30, 2, weighted=True)
    _, gains = covariance_picks(predictive, torch.arange(30), 1, Context())
    assert gains[0] == pytest.approx(predictive.mutual_information().max().item(), abs=1e-12)


def test_known_linear_gaussian_information_is_reached() -> None:
    """y = θx + ε with θ and ε standard normal: ½ log(1 + Σ x²); at x = 2 alone 0.8047189562."""
    theta = torch.special.ndtri((torch.arange(20_000).double() + 0.5) / 20_000)
    x = torch.tensor([0.5, 2.0, 1.0]).double()
    picks = select(GaussianPredictive(means=theta[:, None] * x, variances=torch.ones(20_000, 3).double()), 3)
    assert picks.rows.tolist() == [1, 2, 0]
    assert picks.values.cumsum(0).tolist() == pytest.approx([0.5 * math.log(v) for v in (5, 6, 6.25)], abs=1e-3)
    assert picks.values[0].item() == pytest.approx(0.8047189562, abs=1e-3)


def test_what_is_missing_or_not_finite_is_named() -> None:
    with pytest.raises(InvalidOption, match="pass predictive="):
        BatchBald()(Candidates(rows=torch.arange(3), scores=torch.ones(3)), 1, Context())
    logits = members(3, 5, 3).logits
    logits[1, 3, 0] = math.nan
    some = Candidates(rows=torch.arange(10, 15), predictive=CategoricalPredictive(logits=logits))
    with pytest.raises(NotFinite, match="row 13"):
        BatchBald()(some, 2, Context())
    means = torch.ones(3, 5).double()
    means[0, 2] = math.inf
    broken = GaussianPredictive(means=means, variances=torch.ones(3, 5).double())
    with pytest.raises(NotFinite, match="row 12"):
        BatchBald()(Candidates(rows=torch.arange(10, 15), predictive=broken), 2, Context())


def test_float32_predictions_are_batched_in_double_precision() -> None:
    predictive = members(20, 200, 4)
    single: Tensor = predictive.logits.float()
    ours, double = (select(CategoricalPredictive(logits=z), 5) for z in (single, single.double()))
    assert torch.equal(ours.rows, double.rows)
    assert torch.equal(ours.values, double.values)
