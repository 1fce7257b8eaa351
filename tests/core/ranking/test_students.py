"""A student is one network: scores of disagreement, 0 by construction, are refused; others rank as ever."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import bensemble_core as bc
from bensemble_core import io
from bensemble_core.ranking.kept import kept_scores

X = torch.randn(30, 3, generator=torch.Generator().manual_seed(0))
Y = {"categorical": (X[:, 0] > 0).long(), "gaussian": X[:, 0]}
EPISTEMIC = {"name": "predictive_variance", "part": "epistemic"}


def student(family: str = "categorical") -> bc.Ensemble:
    one = bc.fit("map", {"name": "mlp", "hidden": [4]}, (X, Y[family]), likelihood=family, epochs=1).sample(1)
    return replace(one, is_student=True)


@pytest.mark.parametrize("family", ["categorical", "gaussian"])
def test_whatever_measures_disagreement_is_refused_before_any_work(family: str) -> None:
    one, refused, taken = student(family), list[Any](), list[Any]()
    for entry in bc.ACQUISITIONS.values():
        if family in entry.families:
            asked = [entry.options(), *entry.kept]
            refused += [options for options in asked if entry.is_disagreement(options)]
            taken += [options for options in asked if not entry.is_disagreement(options)]
    names = {options.name for options in refused}
    assert names >= {"bald", "eig", "mean_std", "epig", "predictive_variance"}
    for options in refused:
        for call in (
            lambda options=options: bc.score(one, X, options),
            lambda options=options: bc.rank(one, X, acquisition=options, k=2),
            lambda options=options: bc.rank(one, X, acquisition=options, selection="power", k=2),
            lambda options=options: bc.conclude(one, torch.zeros(30), acquisition=options, k=2),
        ):
            with pytest.raises(bc.InvalidOption, match=r"is a student: one network.*use entropy, .*distilled from"):
                call()
    for options in taken:
        assert bc.rank(one, X, acquisition=options, k=2).rows.numel() == 2
        assert bc.score(one, X, options).shape == (30,)


def test_the_refusal_names_what_was_asked_for_and_what_there_is() -> None:
    with pytest.raises(bc.InvalidOption) as refusal:
        bc.rank(student(), X, acquisition=EPISTEMIC, k=2)
    said = str(refusal.value)
    assert said.startswith("predictive_variance (epistemic) measures how members disagree, and this ensemble is a")
    assert "use entropy, predictive_variance (total), least_confidence, margin, or rank with the ensemble" in said
    with pytest.raises(bc.InvalidOption, match=r"use entropy, predictive_variance \(total\), or rank"):
        bc.rank(student("gaussian"), X, k=2)  # for numbers the default is the members' spread


def test_batchbald_is_refused_whatever_its_score_and_selections_without_scores_are_not() -> None:
    for acquisition in (None, "entropy"):
        with pytest.raises(bc.InvalidOption, match=r"^batchbald measures how members disagree"):
            bc.rank(student(), X, acquisition=acquisition, selection="batchbald", k=2)
    for selection in ("kcenter", "typiclust", "badge"):
        assert bc.rank(student(), X, selection=selection, k=2).rows.numel() == 2
    assert bc.rank(student("gaussian"), X, selection="kcenter", k=2).rows.numel() == 2
    assert bc.rank(student(), X, k=2).rows.numel() == 2  # margin


def test_columns_are_scored_for_later_questions_and_the_question_is_refused() -> None:
    kept = kept_scores("categorical")
    columns = bc.score_columns(student(), X, kept)
    assert [bool(column.any()) for column in columns] == [
        not bc.ACQUISITIONS[options.name].is_disagreement(options) for options in kept
    ]


def test_an_ensemble_of_one_member_that_is_no_student_is_told_and_not_refused() -> None:
    ranking = bc.rank(replace(student(), is_student=False), X, acquisition="bald", k=2)
    assert "one member cannot disagree with itself" in ranking.notes[0]


def test_that_it_is_a_student_is_kept_in_the_file_and_by_copies(tmp_path: Path) -> None:
    one = student()
    one.save(tmp_path / "s")
    again = bc.load(tmp_path / "s")
    assert again.is_student
    assert again.to("cpu").is_student
    assert bc.calibrate(again, X, torch.arange(30) % 2).is_student
    assert "student=True" in repr(again)
    header, tensors = one.to_tensors()
    del header["is_student"]  # a file from before there were any
    assert not bc.load(io.to_bytes(header, tensors)).is_student


def test_a_student_is_one_network() -> None:
    two = bc.fit("deep_ensemble", "mlp", (X, Y["gaussian"]), likelihood="gaussian", members=2, epochs=0).sample(2)
    with pytest.raises(bc.InvalidData, match="a student is one network, and these tensors are of 2"):
        replace(two, is_student=True)
