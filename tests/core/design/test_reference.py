"""The published and exact answers of the design section, to 1e-9 where closed or enumerated."""

import math
from typing import Any

import pytest

import bensemble_core as bc
from tests.core.design.specs import DIGIT_SPAN, LINEAR

EIG = {
    1: 0.022194651907,
    3: 0.079644620817,
    5: 0.176599709500,
    6: 0.216066729865,
    7: 0.231138302111,
    8: 0.216066729865,
    10: 0.126454579234,
    15: 0.004241963878,
}


@pytest.fixture(scope="module")
def span() -> bc.design.Experiment:
    return bc.design.Experiment.from_spec(DIGIT_SPAN)


def test_eig_of_the_digit_span(span: bc.design.Experiment) -> None:
    found = span.eig([{"xi": xi} for xi in EIG], observations=())
    for estimate, expected in zip(found, EIG.values(), strict=True):
        assert estimate.eig == pytest.approx(expected, abs=1e-9)
        assert estimate.method == "enumeration"
        assert estimate.se < 1e-9


def test_joint_eig_of_pairs(span: bc.design.Experiment) -> None:
    assert span.joint_eig([{"xi": 7}, {"xi": 7}]).eig == pytest.approx(0.3823915169, abs=1e-9)
    assert span.joint_eig([{"xi": 6}, {"xi": 8}]).eig == pytest.approx(0.3682410179, abs=1e-9)


def test_posterior_and_evidence(span: bc.design.Experiment) -> None:
    belief = span.posterior([({"xi": 5}, {"y": 1}), ({"xi": 7}, {"y": 1}), ({"xi": 9}, {"y": 0})])
    assert belief.mean["theta"] == pytest.approx(7.744812878, abs=1e-9)
    assert belief.sd["theta"] == pytest.approx(1.229420209, abs=1e-9)
    assert belief.log_evidence == pytest.approx(-1.271770834, abs=1e-9)


def test_ten_greedy_rounds(span: bc.design.Experiment) -> None:
    observations: list[Any] = []
    for _ in range(10):
        design = span.propose(observations, count=1)[0].design
        observations.append((design, {"y": int(design["xi"] < 6)}))
    assert [design["xi"] for design, _ in observations] == [7, 6, 5, 6, 5, 6, 5, 6, 5, 6]
    belief = span.posterior(observations)
    assert belief.mean["theta"] == pytest.approx(5.4081102848, abs=1e-9)
    assert belief.sd["theta"] == pytest.approx(0.6550636263, abs=1e-9)


def test_expected_total_of_ten_greedy_rounds(span: bc.design.Experiment) -> None:
    """Σ over all outcome histories of P(history) × EIG of the greedy design after it; histories with equal designs and
    outcomes, in whatever order, are the same belief and are counted together."""
    total = 0.0
    frontier: dict[tuple[tuple[int, int], ...], float] = {(): 1.0}
    for _ in range(10):
        following: dict[tuple[tuple[int, int], ...], float] = {}
        for history, chance in frontier.items():
            observations: list[Any] = [({"xi": xi}, {"y": y}) for xi, y in history]
            pick = span.propose(observations)[0]
            total += chance * pick.eig
            before = span.posterior(observations).log_evidence
            for y in (0, 1):
                after = span.posterior([*observations, (pick.design, {"y": y})]).log_evidence
                key = tuple(sorted([*history, (pick.design["xi"], y)]))
                following[key] = following.get(key, 0.0) + chance * math.exp(after - before)
        frontier = following
    assert total == pytest.approx(1.0892709323, abs=1e-9)


def test_information_gained_has_two_meanings_and_each_averages_to_the_eig(span: bc.design.Experiment) -> None:
    right, wrong = (span.information([({"xi": 5}, {"y": y})]) for y in (1, 0))
    assert (right.entropy_drop, right.kl) == pytest.approx((0.151444, 0.065631), abs=1e-6)
    assert (wrong.entropy_drop, wrong.kl) == pytest.approx((0.263347, 0.559264), abs=1e-6)
    chance = math.exp(-right.surprise)
    assert chance + math.exp(-wrong.surprise) == pytest.approx(1, abs=1e-12)
    for meaning in ("entropy_drop", "kl"):
        mean = chance * getattr(right, meaning) + (1 - chance) * getattr(wrong, meaning)
        assert mean == pytest.approx(EIG[5], abs=1e-9)


def test_linear_gaussian_eig_in_closed_form() -> None:
    found = bc.design.Experiment.from_spec(LINEAR).eig()
    assert [e.method for e in found] == ["linear_gaussian"] * 3
    for estimate, expected in zip(found, (0.1115717757, 0.3465735903, 0.8047189562), strict=True):
        assert estimate.eig == pytest.approx(expected, abs=1e-10)
        assert estimate.se == 0
