"""Designs spread over a space, to draw a curve or a map of what they promise."""

import math
from typing import Any

import pytest

from bensemble_core.design import Experiment
from bensemble_core.errors import InvalidData, InvalidOption

INTEGER = {"type": "integer", "low": 1, "high": 15}
FLOAT = {"type": "float", "low": -1, "high": 3}
LOG = {"type": "float", "low": 0.01, "high": 100, "scale": "log"}


def designs(points: int, constraints: tuple[str, ...] = (), **variables: Any) -> list[dict[str, Any]]:
    spec = {
        "parameters": {"theta": {"dist": "normal", "loc": 0, "scale": 1}},
        "designs": variables,
        "outcome": {"y": {"family": "bernoulli", "logit": "theta"}},
        "constraints": list(constraints),
    }
    return Experiment.from_spec(spec).spread(points)


def test_a_list_is_given_whole_where_it_fits() -> None:
    assert designs(15, xi=INTEGER) == [{"xi": i} for i in range(1, 16)]


def test_a_longer_list_is_thinned_evenly_with_both_ends() -> None:
    assert [each["xi"] for each in designs(3, xi=INTEGER)] == [1, 8, 15]
    some = {"type": "list", "values": [0.5, 1, 2, 4, 8, 16, 32]}
    assert [each["xi"] for each in designs(4, constraints=("xi < 20",), xi=some)] == [0.5, 2, 4, 16]


def test_one_continuous_variable_is_even_on_its_scale() -> None:
    assert [each["x"] for each in designs(5, x=FLOAT)] == [-1, 0, 1, 2, 3]
    assert [each["x"] for each in designs(5, x=LOG)] == pytest.approx([0.01, 0.1, 1, 10, 100])
    beside = designs(5, x=FLOAT, of={"type": "fixed", "value": 7})
    assert beside == [{"x": x, "of": 7} for x in (-1, 0, 1, 2, 3)]


def test_two_variables_are_a_grid_of_about_as_many() -> None:
    found = designs(61, x=FLOAT, z=LOG)
    assert len(found) == 56
    assert len({each["x"] for each in found}) * len({each["z"] for each in found}) == 56
    few = designs(61, x=FLOAT, kind={"type": "categorical", "values": ["a", "b"]})
    assert len({each["x"] for each in few}) == 30
    listed = designs(16, a={"type": "integer", "low": 0, "high": 99}, b={"type": "integer", "low": 0, "high": 9})
    assert sorted({each["a"] for each in listed}) == [0, 33, 66, 99]
    assert len(listed) == 16


def test_more_variables_are_a_latin_hypercube_of_twenty() -> None:
    found = designs(61, a=FLOAT, b=LOG, c=FLOAT)
    assert len(found) == 20
    for name, low, high in (("a", -1, 3), ("c", -1, 3), ("b", math.log(0.01), math.log(100))):
        values = [math.log(each[name]) if name == "b" else each[name] for each in found]
        assert sorted(int((value - low) / (high - low) * 20) for value in values) == list(range(20))
    assert designs(61, a=FLOAT, b=LOG, c=FLOAT) == found


def test_constraints_hold_wherever_designs_are_spread() -> None:
    assert [each["x"] for each in designs(5, constraints=("x > 0",), x=FLOAT)] == [1, 2, 3]
    scattered = designs(61, constraints=("a + c > 5",), a=FLOAT, b=LOG, c=FLOAT)
    assert len(scattered) == 20
    assert all(each["a"] + each["c"] > 5 for each in scattered)
    with pytest.raises(InvalidData, match="name designs that do"):
        designs(5, constraints=("x > 0.2", "x < 0.3"), x=FLOAT)


@pytest.mark.parametrize("points", [1, 2.5, True])
def test_fewer_than_two_points_are_refused(points: Any) -> None:
    with pytest.raises(InvalidOption, match="points is"):
        designs(points, x=FLOAT)
