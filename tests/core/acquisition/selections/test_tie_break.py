"""Rows that are equally good: the seed decides, and neither their place in the pool nor how it is cut."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import bensemble_core as bc
from bensemble_core.acquisition import BatchBald, Candidates, Context, KCenter, Power, TopK, TypiClust
from bensemble_core.acquisition.selections.tie_break import highest, ranks, tie_keys
from bensemble_core.predictive import CategoricalPredictive, GaussianPredictive
from tests.core.ranking.test_scoring import LinearEnsemble, inputs


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=40), st.integers(0, 9), st.data())
def test_the_k_highest_are_in_order_with_ties_by_key(levels: list[int], seed: int, data: st.DataObject) -> None:
    k, rows = data.draw(st.integers(0, len(levels))), np.arange(7, 7 + 3 * len(levels), 3)
    keys = tie_keys(seed, rows)
    expected = sorted(range(len(levels)), key=lambda i: (-levels[i], -keys[i]))
    scores = np.array(levels, dtype=np.float32)
    assert highest(scores, k, seed, rows).tolist() == expected[:k]
    assert ranks(scores, seed, rows)[expected].tolist() == list(range(1, len(levels) + 1))


@pytest.mark.parametrize("selection", ["top_k", {"name": "power", "form": "softrank", "beta": 1000.0}])
def test_equal_scores_are_chosen_by_the_seed_and_every_row_has_the_same_chance(selection: Any) -> None:
    scores = torch.ones(20)
    seen = Counter(int(row) for seed in range(2000) for row in bc.choose(scores, selection, k=3, seed=seed)[0])
    assert stats.chisquare([seen[row] for row in range(20)]).pvalue > 1e-3
    assert (
        bc.choose(scores, selection, k=9, seed=4)[0][:3].tolist()
        == bc.choose(scores, selection, k=3, seed=4)[0].tolist()
    )


def equal(n_rows: int, family: str) -> Candidates:
    """Rows that differ in their pool row alone."""
    if family == "categorical":
        logits = torch.randn(4, 1, 3, generator=torch.Generator().manual_seed(0)).double()
        predictive: Any = CategoricalPredictive(logits=logits.expand(4, n_rows, 3))
    else:
        means = torch.randn(4, 1, generator=torch.Generator().manual_seed(0)).double().expand(4, n_rows)
        predictive = GaussianPredictive(means=means, variances=torch.ones_like(means))
    return Candidates(
        rows=torch.arange(50, 50 + n_rows),
        scores=torch.ones(n_rows),
        predictive=predictive,
        features=torch.ones(n_rows, 2),
    )


@pytest.mark.parametrize("family", ["categorical", "gaussian"])
@pytest.mark.parametrize("select", [BatchBald(), KCenter(), TypiClust()], ids=lambda select: select.name)
def test_the_first_of_equal_rows_is_the_one_with_the_largest_key(select: Any, family: str) -> None:
    some = equal(30, family)
    for seed in range(5):
        expected = TopK()(some, 30, Context(seed=seed)).rows.tolist()
        assert select(some, 3, Context(seed=seed)).rows.tolist() == expected[:3]
    assert expected != sorted(expected)


def test_a_short_list_is_cut_among_equal_scores_by_the_seed() -> None:
    ensemble, x = LinearEnsemble(), torch.ones(200, 4)
    found = [
        set(bc.rank(ensemble, x, selection=BatchBald(short_list=10), k=10, seed=seed).rows.tolist()) for seed in (1, 2)
    ]
    assert found[0] != found[1]
    assert found[0] == set(bc.rank(ensemble, x, k=10, seed=1).rows.tolist())


@pytest.mark.parametrize("selection", [TopK(), Power(form="softrank"), BatchBald(), KCenter()])
def test_which_of_equal_rows_is_taken_does_not_depend_on_shards(selection: Any) -> None:
    x = inputs(10).repeat(30, 1)
    whole, cut = (
        bc.rank(LinearEnsemble(), pool, acquisition="variation_ratio", selection=selection, k=20, seed=3, chunk_rows=10)
        for pool in (x, [x[:70], x[70:100], x[100:]])
    )
    assert whole.rows.tolist() == cut.rows.tolist()
