"""What a ranking refuses before any work, and what it says about the rows that it looked at."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import bensemble_core as bc
from bensemble_core.acquisition import resolve_pair
from bensemble_core.errors import InvalidOption
from bensemble_core.predictive import Predictive
from bensemble_core.ranking import choose, conclude, rank
from bensemble_core.ranking.ranking import check_combination
from tests.core.ranking.test_scoring import LinearEnsemble, inputs


@pytest.mark.parametrize("bad", [{"k": 2.5}, {"k": "3"}, {"k": None}, {"k": 3, "seed": 1.5}, {"k": 3, "seed": None}])
def test_k_and_seed_are_whole_numbers(bad: dict[str, Any]) -> None:
    for call in (
        lambda: choose(torch.ones(9), **bad),
        lambda: conclude(None, torch.ones(9), acquisition="random", **bad),
        lambda: rank(LinearEnsemble(), inputs(9), **bad),
        lambda: rank(None, inputs(9), acquisition="random", selection="kcenter", **bad),
    ):
        with pytest.raises(InvalidOption, match="has to be a whole number"):
            call()


def test_whole_numbers_of_other_libraries_do() -> None:
    one = choose(torch.ones(9), k=np.int64(3), seed=np.int32(2))  # type: ignore[arg-type]
    assert torch.equal(one[0], choose(torch.ones(9), k=3, seed=2)[0])


class Untouchable(LinearEnsemble):
    def iter_predict(self, x: Tensor, chunk_rows: int) -> Iterator[Predictive]:
        raise AssertionError("nothing should have been predicted")


def test_scores_that_may_be_negative_are_not_drawn_by_their_power_and_no_work_is_done() -> None:
    ensemble = Untouchable(family="gaussian")
    with pytest.raises(InvalidOption, match="entropy may be negative for a gaussian likelihood"):
        rank(ensemble, inputs(9), acquisition="entropy", selection="power", k=2)
    with pytest.raises(InvalidOption, match="form softmax or softrank"):
        conclude(ensemble, torch.ones(9), acquisition="entropy", selection="power", k=2)


def test_combinations_are_checked_without_an_ensemble() -> None:
    for selection in ("power", {"name": "power", "beta": 2.0}):
        with pytest.raises(InvalidOption, match="may be negative"):
            check_combination("entropy", selection, "gaussian")
        check_combination("entropy", selection, "categorical")
        check_combination("bald", selection, "gaussian")
    check_combination("entropy", {"name": "power", "form": "softrank"}, "gaussian")
    check_combination("entropy", "top_k", "gaussian")
    with pytest.raises(InvalidOption, match="margin is not defined for a gaussian"):
        check_combination("margin", "top_k", "gaussian")
    with pytest.raises(InvalidOption, match="badge is not defined for a gaussian"):
        check_combination("bald", "badge", "gaussian")


@pytest.mark.parametrize(
    ("selection", "which"), [("batchbald", "highest scores"), ("kcenter", "drawn"), ("badge", "drawn")]
)
def test_a_ranking_says_how_many_rows_a_set_selection_looked_at(selection: str, which: str) -> None:
    how = {"name": selection, "short_list": 30}
    ranking = bc.rank(LinearEnsemble(), inputs(100), selection=how, k=5, exclude=range(10))
    note = next(note for note in ranking.notes if "looked at" in note)
    assert f"{selection} looked at 30 of 90 rows" in note
    assert which in note
    for enough in (90, 100):
        ranking = bc.rank(
            LinearEnsemble(), inputs(100), selection={**how, "short_list": enough}, k=5, exclude=range(10)
        )
        assert not any("looked at" in note for note in ranking.notes)


def assert_same(one: bc.Ranking, other: bc.Ranking) -> None:
    assert one.rows.tolist() == other.rows.tolist()
    assert one.scores.tolist() == other.scores.tolist()
    assert one.measure == other.measure


def test_where_nothing_is_named_the_family_decides() -> None:
    classes, numbers = LinearEnsemble(), LinearEnsemble(family="gaussian")
    named = bc.rank(classes, inputs(40), acquisition="margin", selection="cluster_margin", k=5)
    assert_same(bc.rank(classes, inputs(40), k=5), named)
    assert_same(bc.rank(classes, inputs(40), selection="cluster_margin", k=5), named)
    spread = {"name": "predictive_variance", "part": "epistemic"}
    assert_same(
        bc.rank(numbers, inputs(40), k=5, seed=2),
        bc.rank(numbers, inputs(40), acquisition=spread, selection="power", k=5, seed=2),
    )
    named = bc.rank(numbers, inputs(40), acquisition=spread, selection="top_k", k=5)
    assert_same(bc.rank(numbers, inputs(40), acquisition=spread, k=5), named)
    joint = bc.rank(classes, inputs(40), acquisition="bald", selection="batchbald", k=2)
    assert_same(bc.rank(classes, inputs(40), selection="batchbald", k=2), joint)


@pytest.mark.parametrize("auto", ["auto", {"name": "auto"}, bc.acquisition.Auto()])
def test_auto_is_the_same_as_naming_nothing(auto: object) -> None:
    for ensemble in (LinearEnsemble(), LinearEnsemble(family="gaussian"), None):
        left_out = bc.rank(ensemble, inputs(40), k=5, seed=1)
        named = bc.rank(ensemble, inputs(40), acquisition=auto, selection=auto, k=5, seed=1)
        assert_same(named, left_out)
        assert named.notes == left_out.notes
    ensemble = LinearEnsemble()
    assert torch.equal(bc.score(ensemble, inputs(40), auto), bc.score(ensemble, inputs(40), "margin"))
    half = bc.rank(ensemble, inputs(40), acquisition="bald", selection=auto, k=5)
    assert_same(half, bc.rank(ensemble, inputs(40), acquisition="bald", selection="top_k", k=5))
    joint = bc.rank(ensemble, inputs(40), acquisition=auto, selection="batchbald", k=2)
    assert_same(joint, bc.rank(ensemble, inputs(40), acquisition="bald", selection="batchbald", k=2))


def test_auto_has_no_options() -> None:
    with pytest.raises(InvalidOption, match="auto has no options, got beta"):
        bc.rank(LinearEnsemble(), inputs(9), selection={"name": "auto", "beta": 2.0}, k=2)


@pytest.mark.parametrize(
    ("ensemble", "what"),
    [
        (LinearEnsemble(), "margin with cluster_margin, which"),
        (LinearEnsemble(family="gaussian"), "predictive_variance (epistemic) with power, which"),
        (None, "typiclust with random_share 0.5, which"),
    ],
)
def test_a_ranking_says_once_what_was_chosen_by_default_and_why(ensemble: Any, what: str) -> None:
    ranking = bc.rank(ensemble, inputs(40), k=5)
    assert ranking.notes[0].startswith(f"chosen by default: {what}")
    assert ranking.notes[0].endswith("; name an acquisition or selection to override")
    assert sum("by default" in note for note in ranking.notes) == 1
    if ensemble is not None:
        how: Any = {"k": 5, "gather": lambda rows: inputs(40)[rows]}
        assert conclude(ensemble, bc.score(ensemble, inputs(40)), **how).notes == ranking.notes
    for named in ({"acquisition": "random"}, {"selection": "kcenter"}):
        assert not any("by default" in note for note in bc.rank(ensemble, inputs(40), k=5, **named).notes)


def test_the_first_batch_is_half_typical_for_classes_and_random_for_numbers() -> None:
    typical = bc.acquisition.Random(), bc.acquisition.TypiClust(random_share=0.5, standardise=True)
    assert resolve_pair(None, None, None) == resolve_pair("auto", None, "categorical", is_first=True) == typical
    assert resolve_pair(None, None, "gaussian", is_first=True) == (bc.acquisition.Random(), bc.acquisition.TopK())
    assert resolve_pair(None, "typiclust", "gaussian", is_first=True) == (typical[0], bc.acquisition.TypiClust())


def test_before_there_is_an_ensemble_typiclust_chooses_and_scores_are_refused() -> None:
    half = {"name": "typiclust", "random_share": 0.5, "standardise": True}
    assert_same(bc.rank(None, inputs(40), k=5), bc.rank(None, inputs(40), acquisition="random", selection=half, k=5))
    with pytest.raises(InvalidOption, match="power chooses by scores, and there is no ensemble"):
        bc.rank(None, inputs(40), selection="power", k=5)
