"""The fused pass: the numbers of the float64 formulas, bits that depend on the row alone, and when it steps aside."""

import importlib
import math
import sys
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bensemble_core import acquisition as acq
from bensemble_core.acquisition import ACQUISITIONS, Rows
from bensemble_core.acquisition.fused import kernels
from bensemble_core.predictive import CategoricalPredictive

pytest.importorskip("numba")
import numba

from bensemble_core.acquisition.fused import compiled, elementary, lanes

ERROR = 2e-6
FORMULAS: dict[str, Callable[..., Tensor]] = {
    "bald": acq.bald,
    "entropy": acq.entropy,
    "variation_ratio": acq.variation_ratio,
    "least_confidence": acq.least_confidence,
    "margin": acq.margin,
    "total_variance": acq.predictive_variance,
    "epistemic_variance": lambda lp, lw: acq.predictive_variance(lp, lw, part="epistemic"),
    "mean_std": acq.mean_std,
}


def draw(shape: tuple[int, int, int], scale: float = 2.0, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale


def by_column(logits: Tensor, log_weights: Tensor | None = None) -> dict[str, Tensor]:
    found = kernels.statistics(logits, log_weights)
    assert found is not None
    assert found.dtype == torch.float32
    return dict(zip(kernels.COLUMNS, found, strict=True))


def exact(logits: Tensor, log_weights: Tensor | None = None) -> dict[str, Tensor]:
    """The formulas on float64, which the fused pass does not take."""
    log_probs = logits.double().log_softmax(-1)
    assert not kernels.applies(log_probs)
    weights = None if log_weights is None else log_weights.double()
    return {name: formula(log_probs, weights) for name, formula in FORMULAS.items()}


def largest_error(logits: Tensor, log_weights: Tensor | None = None) -> float:
    found, expected = by_column(logits, log_weights), exact(logits, log_weights)
    return max(float((found[name].double() - expected[name]).abs().max()) for name in kernels.COLUMNS)


SHAPES = [(1, 70, 2), (2, 500, 3), (10, 3000, 10), (7, 65, 50), (100, 1000, 10), (3, 9, 300), (40, 3, 3000)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 5.0, 100.0])
def test_every_column_is_the_float64_formula(shape: tuple[int, int, int], scale: float) -> None:
    logits = draw(shape, scale)
    assert largest_error(logits) < ERROR
    weights = torch.randn(shape[0], generator=torch.Generator().manual_seed(1)) * 3
    assert largest_error(logits, weights) < ERROR


def test_every_column_is_the_float64_formula_where_classes_share_the_first_place() -> None:
    assert largest_error(draw((10, 500, 6), 1.0).round()) < ERROR
    assert largest_error(draw((20, 100, 400), 1.0).round()) < ERROR


def test_log_probabilities_are_taken_as_logits_are() -> None:
    logits = draw((10, 400, 10))
    found, expected = by_column(logits.log_softmax(-1)), exact(logits)
    for name in kernels.COLUMNS:
        torch.testing.assert_close(found[name].double(), expected[name], rtol=0, atol=ERROR)


def test_huge_logits_give_the_float64_values_and_no_nan() -> None:
    signs = torch.randint(0, 2, (6, 300, 5), generator=torch.Generator().manual_seed(2)) * 2 - 1
    assert largest_error(signs * 1e4) < ERROR
    assert largest_error(draw((6, 300, 5)) + signs * 1e4) < ERROR
    assert largest_error(torch.full((4, 3, 10), 3e38)) < ERROR


def test_a_logit_of_minus_infinity_is_probability_zero() -> None:
    logits = draw((4, 200, 6))
    gone = torch.rand(logits.shape, generator=torch.Generator().manual_seed(3)) < 0.4
    gone[..., 0] = False
    logits = logits.masked_fill(gone, -math.inf)
    assert largest_error(logits) < ERROR
    certain = torch.full((2, 1, 3), -math.inf)
    certain[0, 0, 0] = certain[1, 0, 1] = 5.0
    found = by_column(certain)
    assert found["bald"].item() == pytest.approx(math.log(2), abs=1e-7)
    assert (found["variation_ratio"].item(), found["least_confidence"].item(), found["margin"].item()) == (0.5, 0.5, 1)
    sure = by_column(certain[:1])
    assert all(float(column) == 0 for column in sure.values())


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_row_that_is_no_distribution_gives_nan_and_leaves_its_neighbours_alone(bad: float) -> None:
    logits = draw((3, 100, 4))
    clean = by_column(logits)
    logits[1, 40, 2] = bad
    found = by_column(logits)
    for name in kernels.COLUMNS:
        assert math.isnan(found[name][40]), name
    others = torch.arange(100) != 40
    for name in kernels.COLUMNS:
        assert torch.equal(found[name][others], clean[name][others])
    everything_gone = by_column(torch.full((2, 1, 3), -math.inf))
    assert all(math.isnan(column) for column in everything_gone.values())


def test_two_members_have_the_known_values() -> None:
    two = torch.tensor([[0.9, 0.1], [0.2, 0.8]])[:, None].log()
    known = {
        "bald": 0.2753961152,
        "entropy": -0.55 * math.log(0.55) - 0.45 * math.log(0.45),
        "variation_ratio": 0.5,
        "least_confidence": 0.45,
        "margin": 0.9,
        "total_variance": 0.495,
        "epistemic_variance": 0.245,
        "mean_std": 0.35,
    }
    assert {name: column.item() for name, column in by_column(two).items()} == pytest.approx(known, abs=1e-7)
    weighted = by_column(two, torch.tensor([0.25, 0.75]).log() + 5.0)
    assert weighted["bald"].item() == pytest.approx(0.2049906772, abs=1e-7)


def test_three_of_five_votes_leave_two_fifths_to_the_last_bit() -> None:
    votes = torch.nn.functional.one_hot(torch.tensor([1, 2, 1, 1, 4]), 5).float()[:, None]
    assert torch.equal(by_column(votes.log())["variation_ratio"], torch.tensor([2 / 5]))


def test_weighted_votes_that_round_above_one_leave_nothing() -> None:
    found = by_column(torch.zeros(7, 1, 1), torch.linspace(-2, 1, 7))
    assert all(float(column) == 0 for column in found.values())
    many = [torch.randn(9, generator=torch.Generator().manual_seed(seed)) for seed in range(200)]
    assert min(float(by_column(torch.zeros(9, 1, 1), weights)["variation_ratio"]) for weights in many) == 0


def test_equal_logits_vote_for_the_lower_class() -> None:
    logits = torch.zeros(3, 1, 4)
    logits[2, 0, 3] = 1.0
    assert by_column(logits)["variation_ratio"].item() == pytest.approx(1 / 3)


def test_confident_rows_keep_their_order_where_one_minus_p_would_tie() -> None:
    gaps = torch.tensor([20.0, 30.0, 40.0, 60.0])
    logits = torch.stack([gaps, torch.zeros(4)], -1)[None]  # [1, 4, 2]
    expected = 1 / (1 + gaps.double().exp())
    torch.testing.assert_close(by_column(logits)["least_confidence"].double(), expected, rtol=3e-6, atol=0)


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 12),
    st.integers(1, 130),
    st.integers(1, 12),
    st.sampled_from([1e-4, 1.0, 30.0, 1e4]),
    st.integers(0, 10**6),
    st.booleans(),
)
def test_any_members_give_the_float64_values_within_their_bounds(
    m: int, n: int, c: int, scale: float, seed: int, is_weighted: bool
) -> None:
    logits = draw((m, n, c), scale, seed)
    weights = torch.randn(m, generator=torch.Generator().manual_seed(seed)) * 2 if is_weighted else None
    assert largest_error(logits, weights) < ERROR
    found = by_column(logits, weights)
    assert all(bool((column >= 0).all()) for column in found.values())
    assert bool((found["bald"] <= math.log(min(m, c)) + 1e-6).all())
    assert bool((found["bald"] <= found["entropy"] + 1e-6).all())


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 9), st.integers(2, 9), st.sampled_from([1.0, 30.0]), st.integers(0, 10**6))
def test_members_that_agree_disagree_by_exactly_nothing(m: int, c: int, scale: float, seed: int) -> None:
    found = by_column(draw((1, 70, c), scale, seed).expand(m, 70, c))
    for name in ("bald", "epistemic_variance", "mean_std", "variation_ratio"):
        assert not found[name].any()


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 200), st.integers(1, 5), st.integers(2, 12), st.randoms(use_true_random=False))
def test_a_row_has_the_same_bits_in_any_chunk(n: int, m: int, c: int, random: Any) -> None:
    logits = draw((m, n, c), seed=n)
    whole = kernels.statistics(logits)
    cuts = sorted({0, n, *(random.randrange(n + 1) for _ in range(4))})
    parts = [kernels.statistics(logits[:, a:b]) for a, b in pairwise(cuts)]
    assert all(part is not None for part in parts)
    assert torch.equal(whole, torch.cat([part for part in parts if part is not None], 1))  # type: ignore[arg-type]
    order = list(range(n))
    random.shuffle(order)
    assert torch.equal(whole[:, order], kernels.statistics(logits[:, order]))  # type: ignore[index, arg-type]


def test_the_number_of_threads_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = draw((3, 1000, 4))
    alone = kernels.statistics(logits)
    monkeypatch.setattr(kernels, "_PART", 1)  # a block a piece
    for n_threads in (1, 2, 3, 16, 99):
        monkeypatch.setattr(torch, "get_num_threads", lambda n=n_threads: n)
        assert torch.equal(alone, kernels.statistics(logits))  # type: ignore[arg-type]


def test_the_layout_of_the_input_changes_no_bit() -> None:
    logits = draw((4, 90, 6))
    plain = kernels.statistics(logits)
    by_classes = logits.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    every_other = torch.stack([logits, logits + 1], 2).flatten(1, 2)[:, ::2]
    for same in (by_classes, every_other, torch.cat([logits, logits], 1)[:, :90]):
        assert not same.is_contiguous()
        assert torch.equal(same, logits)
        assert torch.equal(plain, kernels.statistics(same))  # type: ignore[arg-type]


def test_no_rows_give_no_scores() -> None:
    assert by_column(torch.empty(3, 0, 4))["bald"].shape == (0,)


@pytest.mark.parametrize(
    "name", [n for n, e in ACQUISITIONS.items() if "categorical" in e.families and e.needs == ("ensemble",)]
)
def test_registry_entries_score_logits_by_the_fused_pass(name: str) -> None:
    entry = ACQUISITIONS[name]
    logits = draw((5, 80, 4))
    rows = Rows(seed=0, first=0, count=80)
    predictive = CategoricalPredictive(logits=logits)
    fast = entry.score(predictive, entry.options(), rows)
    assert "log_probs" not in vars(predictive)  # never computed
    column = {"eig": "bald", "predictive_variance": "total_variance"}.get(name, name)
    assert torch.equal(fast, by_column(logits)[column])
    slow = entry.score(CategoricalPredictive(logits=logits.double()), entry.options(), rows)
    torch.testing.assert_close(fast.double(), slow, rtol=0, atol=ERROR)


def test_other_dtypes_gradients_transforms_and_the_switch_take_the_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = draw((2, 3, 4))
    assert kernels.applies(logits)
    for dtype in (torch.float64, torch.bfloat16):
        assert kernels.statistics(logits.to(dtype)) is None
    assert not kernels.applies(logits.to("meta"))
    with_gradient = logits.clone().requires_grad_()
    assert kernels.statistics(with_gradient) is None
    assert kernels.statistics(logits, torch.zeros(2, requires_grad=True)) is None
    with torch.no_grad():
        assert kernels.applies(with_gradient)
    acq.bald(with_gradient.log_softmax(-1)).sum().backward()
    assert with_gradient.grad is not None
    assert bool(with_gradient.grad.any())
    each_row = torch.vmap(lambda row: acq.bald(row[:, None])[0], in_dims=1)(logits.log_softmax(-1))
    torch.testing.assert_close(each_row, acq.bald(logits), rtol=0, atol=ERROR)
    monkeypatch.setenv(kernels.SWITCH, "off")
    assert kernels.statistics(logits) is None
    torch.testing.assert_close(acq.bald(logits.log_softmax(-1)), each_row, rtol=0, atol=ERROR)


def test_without_numba_the_formula_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = draw((3, 20, 4)).log_softmax(-1)
    fast = acq.bald(logits)
    monkeypatch.setitem(sys.modules, "numba", None)
    kernels._compiled.cache_clear()
    try:
        assert not kernels.applies(logits)
        assert kernels.warm_up() == 0
        torch.testing.assert_close(acq.bald(logits), fast, rtol=0, atol=ERROR)
    finally:
        monkeypatch.undo()
        kernels._compiled.cache_clear()
    assert kernels.applies(logits)
    assert kernels.warm_up() >= 0


def test_a_numba_that_is_too_old_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba, "version_info", SimpleNamespace(short=(0, 61)))
    monkeypatch.setattr(numba, "__version__", "0.61.2")
    with pytest.raises(ImportError, match=r"numba 0\.62 or later, found 0\.61\.2"):
        importlib.reload(lanes)


@pytest.mark.parametrize("problem", [RuntimeError("cannot cache function"), OSError("no space left on device")])
def test_where_nothing_can_be_kept_on_disk_it_is_compiled_without(
    problem: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile_fake(signature: str | None = None, *, cache: bool = False) -> Callable[..., Any]:
        if cache:
            raise problem
        return lambda function: ("compiled", function)

    monkeypatch.setattr(compiled, "jit", compile_fake)
    assert compiled._cached("void()")(len) == ("compiled", len)


def in_lanes(function: Callable[..., Any], values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A function of sixteen lanes over an array whose length is a multiple of sixteen; the result in float64."""

    @numba.njit(error_model="numpy")  # type: ignore[untyped-decorator]
    def run(given: Any, out: Any) -> None:
        for at in range(0, given.shape[0], lanes.WIDTH):
            lanes.store(out, at, function(lanes.load(given, at)))

    out = np.empty_like(values)
    run(values, out)
    return out.astype(np.float64)


def test_the_exponential_and_the_logarithms_are_as_exact_as_they_say() -> None:
    z = np.linspace(-87, 0, 16_000, dtype=np.float32)
    relative = np.abs(in_lanes(elementary.exp, z) / np.exp(z.astype(np.float64)) - 1)
    assert relative.max() < 2e-7
    assert in_lanes(elementary.exp, np.zeros(16, np.float32)).tolist() == [1.0] * 16
    v = np.concatenate([np.geomspace(1.2e-38, 1e30, 16_000), 1 + np.linspace(-0.4, 0.5, 16_000)]).astype(np.float32)
    v = np.where(v == 1, np.float32(2), v)
    assert np.abs(in_lanes(elementary.log, v) / np.log(v.astype(np.float64)) - 1).max() < 2e-7
    t = np.concatenate([np.geomspace(1e-37, 1e6, 16_000), np.linspace(1e-3, 9, 16_000)]).astype(np.float32)
    assert np.abs(in_lanes(elementary.log1p, t) / np.log1p(t.astype(np.float64)) - 1).max() < 2e-7
    assert in_lanes(elementary.log1p, np.zeros(16, np.float32)).tolist() == [0.0] * 16
    assert np.isnan(in_lanes(elementary.log1p, np.full(16, np.nan, np.float32))).all()


def test_rows_are_turned_into_columns() -> None:
    @numba.njit  # type: ignore[untyped-decorator]
    def run(rows: Any, out: Any) -> None:
        lanes.transpose(rows, 3, 2, out, 5, 20)

    table = np.arange(400, dtype=np.float32).reshape(20, 20)[:, :9]
    out = np.full(100, -1, np.float32)
    run(table, out)
    expected = np.full(100, -1, np.float32)
    for i in range(lanes.QUARTER):
        expected[5 + 20 * i : 21 + 20 * i] = table[3:19, 2 + i]
    assert out.tolist() == expected.tolist()


def test_lanes_are_added_compared_converted_and_gathered_one_by_one() -> None:
    @numba.njit  # type: ignore[untyped-decorator]
    def run(a: Any, b: Any, table: Any, out: Any) -> None:
        x, y = lanes.load(a, 1), lanes.load(b, 0)
        lanes.store(out, 0, lanes.select(x < y, x * np.float32(2), np.float32(3) - y))
        lanes.store(out, 16, lanes.narrow(lanes.widen(x) / 4.0))
        whole = (lanes.order() << np.int32(2)) >> np.int32(1)
        lanes.store(out, 32, lanes.select(whole == np.int32(6), lanes.splat(np.float32(-1)), lanes.as_float32(whole)))
        lanes.fetch(table, 3)
        lanes.store(out, 48, lanes.gather(table, 2, 1, lanes.order() * np.int32(table.strides[0])))

    rng = np.random.default_rng(0)
    a, b = rng.integers(-8, 8, 17).astype(np.float32), rng.integers(-8, 8, 16).astype(np.float32)
    table, out = np.arange(100, dtype=np.float32).reshape(20, 5)[:, ::2], np.empty(64, np.float32)
    run(a, b, table, out)
    assert out[:16].tolist() == np.where(a[1:] < b, 2 * a[1:], 3 - b).tolist()
    assert out[16:32].tolist() == (a[1:] / 4).tolist()
    assert out[32:48].tolist() == [-1.0 if i == 3 else 2.0 * i for i in range(16)]
    assert out[48:].tolist() == table[2:18, 1].tolist()


@settings(deadline=None, max_examples=30)
@given(
    st.integers(1, 40), st.integers(1, 150), st.integers(1, 40), st.sampled_from([0.1, 3.0, 1e3]), st.integers(0, 10**6)
)
def test_a_column_has_the_same_bits_however_many_are_asked_for(m: int, n: int, c: int, scale: float, seed: int) -> None:
    logits = draw((m, n, c), scale, seed)
    every = kernels.statistics(logits)
    assert every is not None
    assert len(every) == len(kernels.COLUMNS)
    for last, n_columns in (("entropy", 1), ("bald", 2), ("total_variance", 6), ("mean_std", 8)):
        assert kernels.width(["entropy", last]) == n_columns
        fewer = kernels.statistics(logits, n_columns=n_columns)
        assert fewer is not None
        assert torch.equal(every[:n_columns], fewer)


def test_information_keeps_its_digits_where_members_are_all_but_certain() -> None:
    """1 − p is 1e-9 and less: float32 formulas give 0 or noise, and such rows could not be told apart."""
    logits = draw((6, 500, 4))
    logits[..., 0] += 30
    found, expected = by_column(logits), exact(logits)
    assert float(expected["bald"].max()) < 1e-6
    for name in ("bald", "entropy", "least_confidence", "margin", "total_variance"):
        torch.testing.assert_close(found[name].double(), expected[name], rtol=2e-5, atol=1e-15)  # float64's own


def test_members_without_a_weight_do_not_keep_the_others_from_agreeing() -> None:
    logits = draw((1, 90, 5)).repeat(4, 1, 1)
    logits[0] = draw((1, 90, 5), seed=1)[0]
    found = by_column(logits, torch.tensor([-math.inf, 0.0, 1.0, 0.5]))
    for name in ("bald", "variation_ratio"):
        assert not found[name].any()


def test_a_thousand_members_and_a_thousand_classes_are_summed_exactly() -> None:
    assert largest_error(draw((1500, 20, 3), 3.0)) < ERROR
    assert largest_error(draw((2, 20, 5000), 1.0)) < ERROR


def test_rows_far_apart_in_memory_are_copied_first(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = draw((3, 70, 4))
    plain = kernels.statistics(logits)
    monkeypatch.setattr(kernels, "_LONGEST", 3)
    assert torch.equal(plain, kernels.statistics(logits))  # type: ignore[arg-type]
