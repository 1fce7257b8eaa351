"""The rules of advice, one by one."""

from dataclasses import replace
from typing import Any

import pytest

from app.advice.decide import Facts, because, decide
from app.advice.schemas import (
    AgreementAdvice,
    CurveAdvice,
    DisagreementsAdvice,
    DoubtsAdvice,
    Forecast,
    SavedAdvice,
)


def forecast(gain: float, high: float) -> Forecast:
    return Forecast(n_labels=300, value=0.9 + gain, low=0.88, high=0.9 + high, gain=gain, gain_low=0, gain_high=high)


def curve(in_100: Forecast | None) -> CurveAdvice:
    figures: dict[str, Any] = {"metric": "accuracy", "measured_on": "evaluation", "n_measured": 500, "n_labels": 200}
    return CurveAdvice(**figures, value=0.9, se=0.013, n_points=4, in_100=in_100, reason=None)


def agreement(mean: float | None, *, is_stable: bool = False) -> AgreementAdvice:
    figures: dict[str, Any] = {"measure": "kappa", "comparisons": [], "threshold": 0.99}
    return AgreementAdvice(**figures, mean_of_last_three=mean, is_stable=is_stable)


def doubts(n_strong: int, n_other: int = 10) -> DoubtsAdvice:
    figures: dict[str, Any] = {
        "n_labels": 200,
        "n_sure": 60,
        "n_other": n_other,
        "expected": 1.0,
        "in_sample": False,
        "items": [],
    }
    return DoubtsAdvice(n=n_strong, n_strong=n_strong, **figures)


def differing(n_open: int) -> DisagreementsAdvice:
    return DisagreementsAdvice(n=n_open, n_open=n_open, n_several=60, items=[], pairs=[])


FACTS = Facts(
    n_rows=1000,
    n_labels=200,
    n_unseen=0,
    has_ensemble=True,
    trains_soon=False,
    round_trains=False,
    curve=curve(forecast(0.02, 0.04)),
    agreement=agreement(0.95),
    saved=SavedAdvice(labels=80, low=10, high=None, random_needs=280, reason=None),
    doubts=doubts(0),
    disagreements=differing(0),
)


@pytest.mark.parametrize(
    ("changes", "action"),
    [
        ({}, "label"),
        ({"doubts": doubts(2)}, "label"),
        ({"doubts": doubts(3)}, "relabel"),
        ({"doubts": doubts(5, n_other=50)}, "label"),  # a model that is too often wrong to judge
        ({"disagreements": differing(5)}, "label"),
        ({"disagreements": differing(6)}, "relabel"),
        ({"n_unseen": 9}, "label"),
        ({"n_unseen": 10}, "train"),
        ({"n_unseen": 10, "trains_soon": True}, "label"),
        ({"n_unseen": 10, "round_trains": True}, "label"),
        ({"agreement": agreement(0.995, is_stable=True)}, "label"),  # and yet a clear gain is ahead
        ({"agreement": agreement(0.995, is_stable=True), "curve": curve(forecast(0.008, 0.04))}, "stop"),
        ({"agreement": agreement(0.995, is_stable=True), "curve": curve(None)}, "stop"),
        ({"curve": curve(forecast(0.003, 0.012))}, "stop"),
        ({"curve": curve(forecast(0.003, 0.03))}, "label"),  # it might be much
        ({"curve": curve(None)}, "label"),
        ({"n_labels": 1000}, "stop"),
    ],
)
def test_the_first_rule_that_applies_decides(changes: dict[str, Any], action: str) -> None:
    assert decide(replace(FACTS, **changes))[0] == action


def test_sentences_have_the_figures() -> None:
    assert decide(FACTS)[1] == (
        "Go on labelling: with 100 more labels the accuracy should be about 0.92 (95 %: 0.88 to 0.94); today it is 0.9."
    )
    told = " ".join(because(FACTS))
    assert "about 80 labels were saved (95 %: 10 or more)" in told
    assert "still changing: kappa 0.950" in told
