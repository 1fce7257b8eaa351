"""Optima of black boxes in the unit cube, beside those that are known."""

import math

import numpy as np
import pytest

from bensemble_core.design.belief.points import Array
from bensemble_core.design.search.optimise import Box, Problem, with_slopes


def problem(value: Box, margins: Box | None = None) -> Problem:
    """With the points that were looked at checked to lie in the cube."""
    limits: Box = margins or (lambda x: np.empty((len(x), 0)))

    def inside(points: Array) -> Array:
        assert points.min() >= 0
        assert points.max() <= 1
        return value(points)

    return Problem(value=inside, margins=limits, admits=lambda points: (limits(points) >= 0).all(1))


def disc(x: Array) -> Array:
    """0.25 − |x − (½, ½)|² of points [n, 2]: [n, 1]."""
    return 0.25 - ((x - 0.5) ** 2).sum(1, keepdims=True)


def wanted(x: Array) -> Array:
    return -((x - [0.9, 0.7]) ** 2).sum(1) * 3


STARTS = [np.array([0.5, 0.5]), np.array([0.3, 0.6]), np.array([0.55, 0.1])]


@pytest.mark.parametrize("start", STARTS)
def test_an_optimum_beyond_a_curved_constraint_ends_at_its_nearest_point(start: Array) -> None:
    right = 0.5 + 0.5 * np.array([0.5, 0.25]) / math.hypot(0.5, 0.25)
    within = problem(lambda x: -((x - [1.0, 0.75]) ** 2).sum(1), disc)
    found = within.climb(start)
    assert found == pytest.approx(right, abs=1e-5)
    compared = within.poll(start)  # by values alone
    assert within.value(compared[None]) == pytest.approx(within.value(right[None]), abs=2e-4)
    assert within.admits(np.stack([found, compared])).all()


@pytest.mark.parametrize("start", STARTS)
def test_an_optimum_inside_is_found_whatever_the_units_of_the_value(start: Array) -> None:
    for factor in (1e-6, 1.0, 1e9):
        found = problem(lambda x, factor=factor: factor * (wanted(x) + 5)).climb(start)  # type: ignore[misc]
        assert found == pytest.approx([0.9, 0.7], abs=1e-5)


@pytest.mark.parametrize("start", STARTS)
def test_kinks_of_the_value_are_ended_at(start: Array) -> None:
    found = problem(lambda x: np.exp(-5 * np.abs(x[:, 0] - 0.3) - 2 * np.abs(x[:, 1] - 0.6))).climb(start)
    assert found == pytest.approx([0.3, 0.6], abs=1e-5)


@pytest.mark.parametrize("start", STARTS)
def test_the_tip_of_a_constraint_is_reached(start: Array) -> None:
    diamond = problem(lambda x: 2 * x[:, 0] + x[:, 1], lambda x: 0.45 - np.abs(x - 0.5).sum(1, keepdims=True))
    assert diamond.climb(start) == pytest.approx([0.95, 0.5], abs=1e-4)


def test_a_value_in_steps_is_climbed_without_slopes() -> None:
    found = problem(lambda x: np.floor(40 * (wanted(x) + 5))).poll(np.array([0.6, 0.5]))
    assert found == pytest.approx([0.9, 0.7], abs=0.1)


def test_no_value_is_needed_beyond_a_constraint() -> None:
    """√(1 − x − y) x is best at x = ⅔, y = 0; where 1 − x − y < 0 there is none."""

    def value(x: Array) -> Array:
        room = 1 - x.sum(1)
        return np.where(room >= 0, np.sqrt(np.maximum(room, 0)) * x[:, 0], -np.inf)

    triangle = problem(value, lambda x: 1 - x.sum(1, keepdims=True))
    for start in (np.array([0.1, 0.3]), np.array([0.5, 0.5])):
        assert triangle.climb(start) == pytest.approx([2 / 3, 0], abs=1e-5)


@pytest.mark.parametrize("start", [np.array([1.0, 0.75]), np.array([0.0, 1.0])])
def test_a_start_that_is_not_allowed_leads_to_what_is(start: Array) -> None:
    found = problem(wanted, disc).climb(start)
    assert found == pytest.approx([0.9, 0.7], abs=1e-4)
    nowhere = problem(wanted, lambda x: -1 - x)
    assert not nowhere.admits(nowhere.climb(start)[None]).any()


def test_slopes_are_taken_from_the_side_that_has_a_value() -> None:
    value, slope = with_slopes(lambda x: np.where(x[:, 0] <= 0.3, 2 * x[:, 0] + x[:, 1], -np.inf), np.array([0.3, 0.5]))
    assert value == pytest.approx(1.1)
    assert slope == pytest.approx([2, 1], abs=1e-8)
