"""Acquisitions and selections: known values, properties that hold for any members, gradients at p = 0."""

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from bensemble_core import acquisition as acq
from bensemble_core.acquisition import Candidates, Context, Power, TopK
from bensemble_core.acquisition.fused import kernels
from bensemble_core.errors import InvalidData, InvalidOption, NotFinite
from bensemble_core.predictive import CategoricalPredictive, GaussianPredictive

Kernel = Callable[..., Tensor]


def epistemic_variance(log_probs: Tensor, log_weights: Tensor | None = None) -> Tensor:
    return acq.predictive_variance(log_probs, log_weights, part="epistemic")


KERNELS: list[Kernel] = [
    acq.bald,
    acq.eig,
    acq.entropy,
    acq.least_confidence,
    acq.margin,
    acq.mean_std,
    acq.predictive_variance,
    epistemic_variance,
    acq.variation_ratio,
]
SMOOTH = KERNELS[:-1]
DISAGREEMENT: list[Kernel] = [acq.bald, acq.eig, acq.mean_std, epistemic_variance]


def log_probs(*members: list[float], dtype: torch.dtype = torch.float64) -> Tensor:
    """One row; each argument is a member's class probabilities."""
    return torch.tensor(members, dtype=dtype)[:, None, :].log()


TWO = log_probs([0.9, 0.1], [0.2, 0.8])
CERTAIN = log_probs([1.0, 0.0], [0.0, 1.0])


@st.composite
def members(draw: st.DrawFn, dtype: torch.dtype = torch.float64) -> Tensor:
    shape = [draw(st.integers(1, 7)), draw(st.integers(1, 5)), draw(st.integers(2, 6))]
    scale = draw(st.sampled_from([1e-3, 1.0, 10.0, 1e4]))
    logits = torch.randn(shape, generator=torch.Generator().manual_seed(draw(st.integers(0, 10**6))), dtype=dtype)
    return (logits * scale).log_softmax(-1)


@pytest.mark.parametrize(
    ("kernel", "value"),
    [
        (acq.bald, 0.2753961152),
        (acq.eig, 0.2753961152),
        (acq.entropy, -0.55 * math.log(0.55) - 0.45 * math.log(0.45)),
        (acq.predictive_variance, 0.495),
        (epistemic_variance, 0.245),
        (acq.mean_std, 0.35),
        (acq.least_confidence, 0.45),
        (acq.margin, 0.9),
        (acq.variation_ratio, 0.5),
    ],
)
def test_two_members_give_the_known_value(kernel: Kernel, value: float) -> None:
    assert kernel(TWO).item() == pytest.approx(value, abs=1e-10)


def test_weighted_bald_has_the_known_value() -> None:
    weights = torch.tensor([0.25, 0.75], dtype=torch.float64).log()
    assert acq.bald(TWO, weights).item() == pytest.approx(0.2049906772, abs=1e-10)
    assert acq.bald(TWO, weights + 5.0).item() == pytest.approx(0.2049906772, abs=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_log_probability_that_is_nan_makes_its_row_nan_and_no_other(kernel: Kernel, dtype: torch.dtype) -> None:
    lp = TWO.repeat(1, 3, 1).to(dtype)
    whole = kernel(lp)
    lp[1, 1, 0] = math.nan
    assert kernel(lp).isnan().tolist() == [False, True, False]
    assert torch.equal(kernel(lp)[::2], whole[::2])


def test_certain_members_that_contradict_each_other_give_ln_two() -> None:
    assert acq.bald(CERTAIN).item() == pytest.approx(math.log(2), abs=1e-12)
    assert acq.variation_ratio(CERTAIN).item() == 0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_three_of_five_votes_leave_two_fifths(dtype: torch.dtype) -> None:
    votes = torch.nn.functional.one_hot(torch.tensor([1, 2, 1, 1, 4]), 5).to(dtype)
    assert torch.equal(acq.variation_ratio(votes[:, None].log()), torch.tensor([2 / 5], dtype=dtype))


@pytest.mark.parametrize("n_members", [3, 7, 10, 49])
def test_equal_majorities_tie_to_the_last_bit_however_the_rest_voted(n_members: int) -> None:
    half = n_members // 2 + 1
    scattered = [0] * half + [1 + i % 4 for i in range(n_members - half)]
    united = [0] * half + [1] * (n_members - half)
    votes = torch.nn.functional.one_hot(torch.tensor([scattered, united]).T, 5).float()
    first, second = acq.variation_ratio(votes.log())
    assert first == second


@settings(deadline=None)
@given(members())
def test_every_score_is_finite_and_not_negative(lp: Tensor) -> None:
    for kernel in KERNELS:
        values = kernel(lp)
        assert values.shape == (lp.shape[1],)
        assert torch.isfinite(values).all()
        assert (values >= 0).all()


@settings(deadline=None)
@given(members(dtype=torch.float32))
def test_float32_bald_is_never_negative(lp: Tensor) -> None:
    assert (acq.bald(lp) >= 0).all()


def test_the_float32_formula_of_bald_is_not_negative_where_rounding_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENSEMBLE_KERNELS", "off")
    one = torch.randn(1, 2000, 5, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    same = one.expand(7, -1, -1)
    by_hand = acq.entropy(same) - acq.entropy(one)
    assert by_hand.min() < 0
    assert acq.bald(same).min() == 0


@settings(deadline=None)
@given(members())
def test_bald_is_at_most_the_entropy_and_ln_of_members_and_classes(lp: Tensor) -> None:
    bald = acq.bald(lp)
    assert (bald <= acq.entropy(lp) + 1e-12).all()
    assert (bald <= math.log(min(lp.shape[0], lp.shape[2])) + 1e-9).all()


@settings(deadline=None)
@given(members(), st.randoms(use_true_random=False))
def test_the_order_of_members_and_classes_does_not_matter(lp: Tensor, random) -> None:  # type: ignore[no-untyped-def]
    by_member, by_class = list(range(lp.shape[0])), list(range(lp.shape[2]))
    random.shuffle(by_member)
    random.shuffle(by_class)
    for kernel in SMOOTH:
        torch.testing.assert_close(kernel(lp[by_member][..., by_class]), kernel(lp), rtol=1e-9, atol=1e-12)
    assert torch.equal(acq.variation_ratio(lp[by_member]), acq.variation_ratio(lp))


@settings(deadline=None)
@given(members(), st.integers(1, 6))
def test_members_that_agree_have_nothing_to_tell(lp: Tensor, copies: int) -> None:
    same = lp[:1].expand(copies, -1, -1)
    for kernel in DISAGREEMENT:
        torch.testing.assert_close(kernel(same), torch.zeros(lp.shape[1]).double(), rtol=0, atol=1e-7)
    assert (acq.variation_ratio(same) == 0).all()


@settings(deadline=None)
@given(members(), st.data())
def test_whole_weights_equal_repeated_members(lp: Tensor, data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.integers(0, 3), min_size=lp.shape[0], max_size=lp.shape[0]).filter(any))
    repeated = lp.repeat_interleave(torch.tensor(counts), dim=0)
    weights = torch.tensor(counts, dtype=torch.float64).log()  # a weight of 0 is −inf
    for kernel in KERNELS:
        torch.testing.assert_close(kernel(lp, weights), kernel(repeated), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kernel", SMOOTH)
@pytest.mark.parametrize(
    "lp",
    [
        CERTAIN,
        log_probs([1.0, 0.0, 0.0], [1.0, 0.0, 0.0]),
        log_probs([0.5, 0.5, 0.0], [0.3, 0.7, 0.0]),
        CERTAIN.float(),
    ],
)
def test_a_zero_probability_gives_no_nan_in_value_or_gradient(kernel: Kernel, lp: Tensor) -> None:
    leaf = lp.clone().requires_grad_()
    value = kernel(leaf)
    value.sum().backward()  # type: ignore[no-untyped-call]
    assert torch.isfinite(value).all()
    assert leaf.grad is not None
    assert torch.isfinite(leaf.grad).all()


@pytest.mark.parametrize("kernel", SMOOTH)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_logits_of_ten_thousand_give_finite_values_and_gradients(kernel: Kernel, dtype: torch.dtype) -> None:
    logits = torch.tensor([[[1e4, -1e4, 0.0]], [[-1e4, 1e4, 0.0]]], dtype=dtype, requires_grad=True)
    value = kernel(logits.log_softmax(-1))
    value.sum().backward()  # type: ignore[no-untyped-call]
    assert torch.isfinite(value).all()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("kernel", SMOOTH)
def test_gradients_are_those_of_finite_differences(kernel: Kernel) -> None:
    logits = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64, requires_grad=True)
    weights = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64).log()
    assert torch.autograd.gradcheck(lambda z: kernel(z.log_softmax(-1), weights), (logits,))


def test_confident_rows_keep_their_order_in_float32() -> None:
    logits = torch.tensor([[[20.0, 0.0], [25.0, 0.0], [30.0, 0.0]]])
    for kernel in (acq.least_confidence, acq.margin, acq.entropy):
        values = kernel(logits.log_softmax(-1))
        assert values[0] > values[1] > values[2] > 0


PURE = [*KERNELS, lambda lp, weights=None: acq.epig(lp, lp, weights)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kernel", PURE)
def test_every_score_refuses_weights_that_are_not_one_a_member(kernel: Kernel, dtype: torch.dtype) -> None:
    for wrong in (torch.zeros(1), torch.zeros(3), torch.zeros(2, 1), torch.tensor(0.0)):
        with pytest.raises(InvalidData, match="expected 2 log-weights, one a member, got shape"):
            kernel(TWO.to(dtype), wrong)
    for weights in ([-math.inf, -math.inf], [0.0, math.nan], [0.0, math.inf]):
        with pytest.raises(InvalidData, match="not all of them −inf; got"):
            kernel(TWO.to(dtype), torch.tensor(weights))
    one = kernel(TWO.to(dtype), torch.tensor([0.0, -math.inf]))
    torch.testing.assert_close(one, kernel(TWO[:1].to(dtype)), rtol=0, atol=1e-7)


@pytest.mark.parametrize("kernel", PURE)
def test_every_score_refuses_what_has_no_axis_of_members(kernel: Kernel) -> None:
    with pytest.raises(InvalidData, match=r"expected log-probabilities \[members, rows, classes\], got shape \(1, 2\)"):
        kernel(TWO[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kernel", PURE)
def test_half_precision_is_scored_in_single_precision(kernel: Kernel, dtype: torch.dtype) -> None:
    logits = torch.randn(5, 40, 7, generator=torch.Generator().manual_seed(0)).to(dtype)
    half, single = (CategoricalPredictive(logits=z) for z in (logits, logits.float()))
    assert torch.equal(kernel(half.log_probs), kernel(single.log_probs))
    assert kernel(logits).dtype == torch.float32
    assert torch.equal(half.votes(), single.votes())
    assert torch.equal(half.mutual_information(), single.mutual_information())


def test_a_gaussian_of_half_precision_is_held_in_single_precision() -> None:
    means = torch.tensor([[0.0], [1.0]], dtype=torch.float16)
    found = GaussianPredictive(means=means, variances=torch.full_like(means, 0.1)).mutual_information()
    assert found.item() == pytest.approx(0.5 * math.log1p(0.25 / 0.0999755859375), abs=1e-7)  # 0.1 in float16


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_a_certain_row_has_an_entropy_of_zero_and_not_of_minus_zero(dtype: torch.dtype) -> None:
    certain = torch.tensor([[[0.0, -math.inf]], [[0.0, -math.inf]]], dtype=dtype)
    found = acq.entropy(certain)
    assert found.tolist() == [0.0]
    assert not found.signbit().any()
    assert not CategoricalPredictive(logits=certain.double()).entropy().signbit().any()


def test_an_unknown_part_of_the_variance_is_refused() -> None:
    with pytest.raises(InvalidOption, match="epistemic"):
        acq.predictive_variance(TWO, part="aleatoric")  # type: ignore[arg-type]


def drawn_members(variance: float, n_members: int = 5, draws: int = 4000) -> GaussianPredictive:
    means = torch.randn(n_members, draws, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return GaussianPredictive(means=means * math.sqrt(variance), variances=torch.ones_like(means))


@pytest.mark.parametrize(("exact", "moment", "mixture"), [(0.805, 0.65, 0.59), (3.91, 3.67, 1.55)])
def test_few_members_lose_the_information_that_is_known(exact: float, moment: float, mixture: float) -> None:
    pred = drawn_members(math.exp(2 * exact) - 1)
    assert pred.mutual_information().mean().item() == pytest.approx(moment, abs=0.02)
    assert pred.mutual_information(method="mixture").mean().item() == pytest.approx(mixture, abs=0.02)


def test_many_members_reach_the_exact_information() -> None:
    pred = drawn_members(4.0, n_members=60, draws=60)
    assert pred.mutual_information(method="mixture").mean().item() == pytest.approx(0.8047, abs=0.03)


def test_random_scores_are_uniform_and_seeds_do_not_resemble_each_other() -> None:
    first, second = acq.random(0, 0, 100_000).numpy(), acq.random(1, 0, 100_000).numpy()
    assert stats.kstest(first, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.015
    assert abs(np.corrcoef(first[1:], first[:-1])[0, 1]) < 0.015
    by_seed = np.array([acq.random(seed, 7, 1).item() for seed in range(3000)])
    assert stats.kstest(by_seed, "uniform").pvalue > 1e-3


@given(st.integers(-(2**70), 2**70), st.integers(0, 10**12), st.integers(0, 200), st.integers(0, 200))
def test_a_random_score_depends_on_seed_and_row_only(seed: int, first: int, n: int, skip: int) -> None:
    whole = acq.random(seed, first, skip + n)
    assert torch.equal(whole[skip:], acq.random(seed, first + skip, n))
    assert ((whole > 0) & (whole < 1)).all()


def test_random_scores_are_splitmix64_read_by_row() -> None:
    """In whole Python numbers; pins the stream, so that old rankings stay reproducible."""
    mask = 2**64 - 1

    def mix(z: int) -> int:
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
        return z ^ (z >> 31)

    start = mix(mix(42) ^ int.from_bytes(b"RANDOM", "big"))
    expected = [((mix((start + (row + 1) * 0x9E3779B97F4A7C15) & mask) >> 12) + 0.5) / 2**52 for row in (5, 6, 7)]
    assert acq.random(42, 5, 3).tolist() == expected


def candidates(scores: list[float], rows: list[int] | None = None) -> Candidates:
    return Candidates(rows=torch.tensor(rows or range(len(scores))), scores=torch.tensor(scores, dtype=torch.float64))


def test_top_k_answers_with_pool_rows() -> None:
    picked = TopK()(candidates([0.1, 0.5, 0.5, 0.2], rows=[3, 7, 9, 20]), 3, Context())
    assert sorted(picked.rows[:2].tolist()) == [7, 9]
    assert picked.rows[2] == 20
    assert (picked.measure, picked.values.tolist()) == ("score", [0.5, 0.5, 0.2])


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0, 3.0])
def test_power_draws_one_row_with_probability_of_its_score_to_beta(beta: float) -> None:
    scores = [0.1, 0.5, 1.0, 2.0]
    seeds = 4000
    seen = Counter(int(Power(beta=beta)(candidates(scores), 1, Context(seed=seed)).rows) for seed in range(seeds))
    share = np.array(scores) ** beta / np.sum(np.array(scores) ** beta)
    assert stats.chisquare([seen[i] for i in range(4)], share * seeds).pvalue > 1e-3


def test_power_draws_later_rows_from_those_that_are_left() -> None:
    scores, seeds = np.array([0.5, 1.0, 2.0]), 4000
    seen = Counter(tuple(Power()(candidates(scores.tolist()), 2, Context(seed=s)).rows.tolist()) for s in range(seeds))
    pairs = [(i, j) for i in range(3) for j in range(3) if i != j]
    share = [scores[i] / scores.sum() * scores[j] / (scores.sum() - scores[i]) for i, j in pairs]
    assert stats.chisquare([seen[pair] for pair in pairs], np.array(share) * seeds).pvalue > 1e-3


@pytest.mark.parametrize(
    ("form", "weights"),
    [
        ("power", lambda s: s**1.5),
        ("softmax", lambda s: np.exp(1.5 * s)),
        ("softrank", lambda s: stats.rankdata(-s) ** -1.5),
    ],
)
def test_every_form_draws_pairs_with_its_own_probabilities_and_tells_them(
    form: Any, weights: Callable[[np.ndarray], np.ndarray]
) -> None:
    scores, seeds = np.array([0.2, 2.0, 1.0, 0.5]), 6000
    share, seen = weights(scores), Counter[tuple[int, ...]]()
    for seed in range(seeds):
        picks = Power(beta=1.5, form=form)(candidates(scores.tolist()), 2, Context(seed=seed))
        first, second = picks.rows.tolist()
        expected = [share[first] / share.sum(), share[second] / (share.sum() - share[first])]
        assert picks.values.tolist() == pytest.approx(expected, rel=1e-12)
        seen[first, second] += 1
    pairs = [(i, j) for i in range(4) for j in range(4) if i != j]
    chance = [share[i] / share.sum() * share[j] / (share.sum() - share[i]) for i, j in pairs]
    assert stats.chisquare([seen[pair] for pair in pairs], np.array(chance) * seeds).pvalue > 1e-3


def test_softmax_and_softrank_take_scores_below_zero_and_zero_scores_like_any_other() -> None:
    for form in ("softmax", "softrank"):
        picks = Power(form=form)(candidates([-2.0, 0.0, 1.0]), 3, Context(seed=1))  # type: ignore[arg-type]
        assert sorted(picks.rows.tolist()) == [0, 1, 2]
        assert picks.values[-1] == 1.0


def test_probabilities_of_zero_scores_are_those_of_the_rows_that_are_left() -> None:
    picks = Power()(candidates([0.0, 2.0, 0.0, 0.0]), 4, Context(seed=2))
    assert picks.values.tolist() == pytest.approx([1, 1 / 3, 1 / 2, 1])


def test_power_takes_zero_scores_only_when_the_others_run_out() -> None:
    orders = set()
    for seed in range(50):
        picked = Power()(candidates([0.0, 1e-300, 0.0, 3.0, 0.0]), 5, Context(seed=seed)).rows.tolist()
        assert set(picked[:2]) == {1, 3}
        orders.add(tuple(picked[2:]))
    assert len(orders) == 6


def test_power_with_a_large_beta_is_top_k() -> None:
    some = candidates([0.3, 0.9, 0.1, 0.5])
    assert Power(beta=1000.0)(some, 4, Context(seed=5)).rows.tolist() == TopK()(some, 4, Context()).rows.tolist()


def test_power_noise_of_a_row_does_not_depend_on_the_other_rows() -> None:
    scores = torch.rand(200, generator=torch.Generator().manual_seed(0)).double() + 0.1
    rows = torch.arange(200)
    full = Power()(Candidates(rows=rows, scores=scores), 200, Context(seed=4)).rows.tolist()
    odd = Power()(Candidates(rows=rows[1::2], scores=scores[1::2]), 100, Context(seed=4)).rows.tolist()
    assert odd == [row for row in full if row % 2]


def test_power_does_not_reuse_the_noise_of_random_scores() -> None:
    drawn = Power()(candidates([1.0] * 100), 100, Context(seed=6)).rows
    assert not torch.equal(drawn, acq.random(6, 0, 100).argsort(descending=True))


def test_power_refuses_negative_scores_and_names_the_row() -> None:
    with pytest.raises(InvalidOption, match=r"row 9 has -0\.5"):
        Power()(candidates([1.0, -0.5], rows=[4, 9]), 1, Context())


@pytest.mark.parametrize("selection", [TopK(), Power()])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_not_finite_names_its_row(selection: TopK | Power, bad: float) -> None:
    with pytest.raises(NotFinite, match="row 17"):
        selection(candidates([1.0, bad], rows=[3, 17]), 1, Context())


@pytest.mark.parametrize(
    "name", ["bald", "entropy", "variation_ratio", "least_confidence", "margin", "mean_std", "eig"]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_rows_have_no_scores_with_the_fused_pass_and_without(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    for switch in ("on", "off"):
        monkeypatch.setenv(kernels.SWITCH, switch)
        assert getattr(acq, name)(torch.zeros(3, 0, 2, dtype=dtype)).shape == (0,)


def test_no_members_are_refused() -> None:
    with pytest.raises(InvalidData, match="at least one member"):
        acq.bald(torch.zeros(0, 2, 3))
    with pytest.raises(InvalidData, match="at least one member"):
        GaussianPredictive(means=torch.zeros(0, 2), variances=torch.ones(0, 2))
