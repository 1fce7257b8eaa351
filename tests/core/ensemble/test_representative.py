"""The member whose features stand for the ensemble: the heaviest, else one found by its numbers and not its place."""

import dataclasses

import pytest
import torch
from torch import Tensor

import bensemble_core as bc
from bensemble_core.ensemble.representative import representative


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("order", [[3, 1, 4, 0, 2], [4, 3, 2, 1, 0]])
def test_the_same_member_is_found_in_any_order(order: list[int]) -> None:
    stacked = {"b": normal(5, 3, 2), "a": torch.ones(5, 5000), "c": normal(5, seed=1)}
    stacked["a"][1:4, 4500] = 2.0
    moved = {name: tensor[order] for name, tensor in reversed(stacked.items())}
    at = representative(stacked)
    assert at in (1, 2, 3)
    assert order[representative(moved)] == at


def test_the_heaviest_comes_first_and_equally_heavy_ones_are_told_apart() -> None:
    stacked = {"a": torch.tensor([[9.0], [1.0], [2.0]])}
    assert representative(stacked) == 0
    assert representative(stacked, torch.tensor([-1.0, 0.0, 0.0])) == 2
    assert representative(stacked, torch.tensor([-1.0, 0.1, 0.0])) == 1


def test_members_with_the_same_numbers_are_interchangeable() -> None:
    assert representative({"a": torch.ones(3, 2), "b": torch.zeros(3)}) == 0
    assert representative({"a": torch.full((2, 2), torch.nan)}) == 0


@pytest.mark.parametrize("selection", ["badge", "kcenter", "typiclust"])
def test_picks_of_a_spread_batch_do_not_depend_on_the_order_of_members(selection: str) -> None:
    x = normal(200, 4)
    fitted = bc.fit(
        "deep_ensemble",
        {"name": "mlp", "hidden": [16]},
        (x[:40], (x[:40, 0] > 0).long()),
        likelihood="categorical",
        seed=0,
        members=5,
        epochs=5,
    )
    ensemble = fitted.sample(5, seed=0)
    moved = dataclasses.replace(ensemble, stacked={k: v[[3, 1, 4, 0, 2]] for k, v in ensemble.stacked.items()})
    for labelled in (None, x[:40]):
        one, other = (
            bc.rank(e, x, selection=selection, k=8, seed=1, exclude=range(40), labelled=labelled)
            for e in (ensemble, moved)
        )
        assert one.rows.tolist() == other.rows.tolist()


def test_badge_takes_the_same_of_two_equally_probable_classes_in_any_order_of_members() -> None:
    """Members in mirrored pairs: the mean is one half each but for rounding, which depends on the order of the sum."""
    from bensemble_core.acquisition import Badge, Candidates, Context
    from bensemble_core.predictive import CategoricalPredictive

    half = normal(3, 60, 2).double()
    logits, features = torch.cat([half, half.flip(2)]), normal(60, 4, seed=2)
    picks = []
    for order in ([0, 1, 2, 3, 4, 5], [5, 0, 3, 1, 4, 2], [2, 4, 0, 5, 1, 3]):
        some = Candidates(
            rows=torch.arange(60), predictive=CategoricalPredictive(logits=logits[order]), features=features
        )
        picks.append(Badge()(some, 20, Context(seed=3)).rows.tolist())
    assert picks[0] == picks[1] == picks[2]
