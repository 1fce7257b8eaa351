"""What is stated wrongly is refused at its place; what is stated right has one canonical form."""

import json
import math
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bensemble_core as bc
from bensemble_core.design import Experiment, canonical, read_spec
from bensemble_core.design.spec.outcomes import FAMILIES
from bensemble_core.design.spec.priors import PRIORS
from bensemble_core.design.spec.reading import Json
from bensemble_core.errors import InvalidData, InvalidSpec
from tests.core.design.specs import DIGIT_SPAN, changed

THETA = DIGIT_SPAN["parameters"]["theta"]
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"paramters": {}}, "/paramters", "did you mean parameters"),
    ({"parameters": {}}, "/parameters", "1 to 16 parameters"),
    ({"parameters": {"theta": {"dist": "normel"}}}, "/parameters/theta/dist", "expected one of normal"),
    ({"parameters": {"theta": {"dist": "normal", "loc": 7}}}, "/parameters/theta/scale", "scale is missing"),
    ({"parameters": {"theta": {"dist": "normal", "loc": 7, "scale": -1}}}, "/parameters/theta/scale", "above 0"),
    ({"parameters": {"theta": {**THETA, "df": 3}}}, "/parameters/theta/df", "unknown key"),
    ({"parameters": {"theta": {"dist": "uniform", "low": 3, "high": 1}}}, "/parameters/theta/high", "above low"),
    ({"parameters": {"exp": THETA}}, "/parameters/exp", "function"),
    ({"parameters": {"__x": THETA}}, "/parameters/__x", "starts with a letter"),
    ({"parameters": {"lambda": THETA}}, "/parameters/lambda", "not a word of Python"),
    ({"parameters": {"a/b": THETA}}, "/parameters/a~1b", "up to 32 ASCII letters"),
    ({"parameters": {"xi": THETA}}, "/designs/xi", "used twice"),
    (
        {"parameters": {"theta": {"dist": "categorical", "values": [1, 2], "probs": [0.5, 0.6]}}},
        "/parameters/theta/probs",
        "sum to 1",
    ),
    ({"parameters": {"theta": {"dist": "samples", "values": [1, "a"]}}}, "/parameters/theta/values/1", "got a text"),
    ({"designs": {"xi": {"type": "integer", "low": 9, "high": 1}}}, "/designs/xi/high", "above low"),
    ({"designs": {"xi": {"type": "float", "low": -1, "high": 1, "scale": "log"}}}, "/designs/xi/low", "above 0"),
    ({"designs": [{"xi": 1}, {"x": 2}]}, "/designs/1/x", "unknown key"),
    ({"designs": [{"xi": 1}, {"xi": 1}]}, "/designs", "different designs"),
    ({"let": {"z": "q"}}, "/let/z", "unknown name 'q'"),
    ({"let": {"z": "w + 1", "w": "z"}}, "/let/w", "defined by itself"),
    ({"outcome": {"y": {"family": "bernoulli"}}}, "/outcome/y", "takes logit or prob; got none"),
    ({"outcome": {"y": {"family": "bernoulli", "logit": 0, "prob": 1}}}, "/outcome/y", "got logit, prob"),
    ({"outcome": {"y": {"family": "binomial", "n": "theta", "prob": 0.5}}}, "/outcome/y/n", "not on parameters"),
    ({"outcome": {"y": {"family": "ordinal", "eta": "z", "cuts": []}}}, "/outcome/y/cuts", "1 to 64 entries"),
    ({"outcome": {"y": {"family": "bernoulli", "logit": "theta ! xi"}}}, "/outcome/y/logit", "column 7"),
    ({"targets": ["xi"]}, "/targets/0", "expected one of theta"),
    ({"constraints": ["xi + 1"]}, "/constraints/0", "expected a comparison"),
    ({"constraints": ["theta < 1"]}, "/constraints/0", "unknown name 'theta'"),
    ({"constraints": ["xi > 99"]}, "/constraints", "no design satisfies"),
    ({"cost": "xi - 5"}, "/cost", "above 0, .*not so at"),
    ({"cost": 0}, "/cost", "above 0, .*got 0"),
    ({"utility": "log(0 - 1)"}, "/utility", "finite"),
    ({"stop": {"sd": {"phi": 1}}}, "/stop/sd/phi", "unknown key"),
    ({"stop": {"max_trials": 1, "budget": 2}}, "/stop", "combine rules"),
    ({"stop": {"any": [{"max_trials": 0.5}]}}, "/stop/any/0/max_trials", "at least 1"),
    ({"select": {"rule": "softmax"}}, "/select/rule", "argmax, random"),
    ({"select": {"tie_tol": math.nan}}, "/select/tie_tol", "finite"),
    ({"name": "x" * 201}, "/name", "at most 200"),
    # found by the probes, with the point
    (
        {"outcome": {"y": {"family": "bernoulli", "prob": "theta / 10"}}},
        "/outcome/y/prob",
        r"within \[0, 1\]; not so at theta = ",
    ),
    (
        {"outcome": {"y": {"family": "normal", "mean": "theta", "sd": "theta - 6"}}},
        "/outcome/y/sd",
        "above 0, from 1e-40 to .*; not so at theta = ",
    ),
    (
        {"outcome": {"y": {"family": "normal", "mean": "log(theta - 6)", "sd": 1}}},
        "/outcome/y/mean",
        "a finite number.*; not so at theta = ",
    ),
    (
        {"outcome": {"y": {"family": "poisson", "rate": "xi - 1"}}},
        "/outcome/y/rate",
        "above 0 and at most 1e.15; not so at theta = .* xi = 1",
    ),
    ({"outcome": {"y": {"family": "bernoulli", "logit": "9**9**9**9 * theta"}}}, "/outcome/y/logit", "finite"),
]


@pytest.mark.parametrize(("parts", "pointer", "message"), REFUSED, ids=[f"{i}{p[1]}" for i, p in enumerate(REFUSED)])
def test_a_wrong_statement_is_refused_at_its_place(parts: dict[str, Any], pointer: str, message: str) -> None:
    with pytest.raises(InvalidSpec, match=message) as refusal:
        Experiment.from_spec(changed(DIGIT_SPAN, **parts))
    assert refusal.value.pointer == pointer


@pytest.mark.parametrize("missing", ["parameters", "designs", "outcome"])
def test_what_is_required_is_asked_for(missing: str) -> None:
    with pytest.raises(InvalidSpec, match=f"/{missing}: {missing} is missing"):
        read_spec({key: value for key, value in DIGIT_SPAN.items() if key != missing})


def test_a_refusal_survives_the_way_to_another_process() -> None:
    refusal = InvalidSpec("no", pointer="/a/b", column=3)
    again = pickle.loads(pickle.dumps(refusal))  # noqa: S301
    assert (str(again), again.pointer, again.column) == ("/a/b, column 3: no", "/a/b", 3)


def test_the_order_of_keys_changes_nothing() -> None:
    """As after a database that keeps objects in its own order."""

    def reversed_keys(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: reversed_keys(value[key]) for key in reversed(list(value))}
        return value

    spec = changed(
        DIGIT_SPAN,
        parameters={"b": THETA, "a": {"dist": "lognormal", "loc": 0, "scale": 0.3}},
        designs={"xi": {"type": "integer", "low": 1, "high": 5}, "arm": {"type": "categorical", "values": ["p", "q"]}},
        let={"v": "z + arm", "z": "a * (b - xi)"},
        outcome={"y": {"family": "bernoulli", "logit": "v"}},
        targets=["b"],
        stop=None,
    )
    one, other = Experiment.from_spec(spec), Experiment.from_spec(reversed_keys(spec))
    assert one.hash == other.hash
    assert one.designs() == other.designs()
    history = [({"xi": 3, "arm": "q"}, {"y": 1}), ({"xi": 4, "arm": "p"}, {"y": 0})]
    assert [e.eig for e in one.eig(observations=history)] == [e.eig for e in other.eig(observations=history)]
    assert one.propose(history, 3) == other.propose(history, 3)


def test_the_canonical_form_is_json_with_whole_numbers_as_such() -> None:
    assert canonical({"b": [1.0, 2.5], "a": {"d": "é", "c": None}}) == '{"a":{"c":null,"d":"\\u00e9"},"b":[1,2.5]}'
    assert read_spec(DIGIT_SPAN).hash == read_spec(json.loads(json.dumps(DIGIT_SPAN))).hash
    assert read_spec(DIGIT_SPAN).hash != read_spec(changed(DIGIT_SPAN, cost="2")).hash


def test_prior_numbers_may_be_constant_expressions() -> None:
    spec = changed(DIGIT_SPAN, parameters={"theta": {"dist": "normal", "loc": "log(exp(7))", "scale": "sqrt(4)"}})
    assert Experiment.from_spec(spec).eig([{"xi": 7}])[0].eig == pytest.approx(0.231138302111, abs=1e-9)


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (({"xi": 3}, {"y": 2}), "outcome y: expected 0 or 1, got 2"),
        (({"xi": 3}, {"z": 1}), "exactly the names y, got z"),
        (({"x": 3}, {"y": 1}), "exactly the names xi, got x"),
        (({"xi": 3.5}, {"y": 1}), "design xi: expected a whole number"),
        (({"xi": math.inf}, {"y": 1}), "finite number"),
        (({"xi": 3},), "a pair"),
    ],
)
def test_a_wrong_observation_is_refused(observation: Any, message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        Experiment.from_spec(DIGIT_SPAN).posterior([observation])


def test_a_design_beyond_those_proposed_is_taken_as_it_was_run() -> None:
    assert Experiment.from_spec(DIGIT_SPAN).posterior([({"xi": 40}, {"y": 0})]).log_evidence == pytest.approx(
        0, abs=1e-9
    )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=8,
)
named = st.sampled_from(["theta", "xi", "y", "z", "a b", ""])
parts = st.fixed_dictionaries(
    {},
    optional={
        "parameters": json_values
        | st.dictionaries(
            named,
            st.fixed_dictionaries(
                {"dist": st.sampled_from([*PRIORS, "grid"])},
                optional=dict.fromkeys(("loc", "scale", "low", "high", "a", "b", "values"), json_values),
            ),
            max_size=2,
        ),
        "designs": json_values
        | st.dictionaries(
            named,
            st.fixed_dictionaries(
                {"type": st.sampled_from(["integer", "float", "list"])},
                optional=dict.fromkeys(("low", "high", "values"), json_values),
            ),
            max_size=2,
        ),
        "let": json_values | st.dictionaries(named, json_values, max_size=2),
        "outcome": json_values
        | st.dictionaries(
            named,
            st.fixed_dictionaries(
                {"family": st.sampled_from(list(FAMILIES))},
                optional=dict.fromkeys(("logit", "prob", "mean", "sd", "rate", "cuts", "eta", "probs"), json_values),
            ),
            max_size=2,
        ),
        **dict.fromkeys(
            ("name", "description", "targets", "constraints", "cost", "utility", "stop", "select", "table", "extra"),
            json_values,
        ),
    },
)


@settings(max_examples=300, deadline=None)
@given(parts)
def test_any_json_is_read_or_refused_with_our_own_error(given_parts: dict[str, Any]) -> None:
    try:
        Experiment.from_spec({**DIGIT_SPAN, **given_parts})
    except InvalidSpec as refusal:
        pointer = refusal.pointer
    else:
        return
    assert pointer == "" or pointer.startswith("/")


def test_the_table_on_the_page_about_design_is_an_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    """Bayes' rule by hand: 0.5, 0.3, 0.2 times 0.05, 0.4, 0.9, of which the sum is 0.325."""
    page = (Path(bc.__file__).parents[1] / "docs" / "design.md").read_text()
    (code,) = re.findall(r"<!-- example: table -->\n```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {"bc": bc}
    exec(code, names)
    assert names["proposal"].design == {"task": "hard"}
    belief = names["uploaded"].posterior([({"task": "hard"}, {"y": "solves"})])
    assert belief.mean["skill"] == pytest.approx((0.3 * 0.4 + 2 * 0.2 * 0.9) / 0.325, abs=1e-12)
    assert "hard" in capsys.readouterr().out


def test_a_list_of_the_wrong_length_and_a_greek_name_are_refused_in_words() -> None:
    with pytest.raises(InvalidSpec, match="expected 3 entries, got 2"):
        Json([1, 2], "/x").items(least=3, most=3)
    with pytest.raises(InvalidSpec, match="ASCII letters"):
        Json({}, "/parameters/\u03b8").add_name("\u03b8", set())


def test_an_outcome_that_a_table_does_not_have_is_refused() -> None:
    table = {"parameters": {"s": [0, 1]}, "designs": [{"t": 1}], "outcomes": ["no", "yes"], "probs": [[[0.5, 0.5]] * 2]}
    for outcome in (7, -1, 0.5, "maybe", None):
        with pytest.raises(InvalidData, match="expected one of no, yes"):
            Experiment.from_spec({"table": table}).posterior([({"t": 1}, {"y": outcome})])


def test_a_number_that_is_null_is_refused_at_its_place() -> None:
    with pytest.raises(InvalidSpec) as refusal:
        read_spec(changed(DIGIT_SPAN, parameters={"theta": {"dist": "normal", "loc": None, "scale": 1}}))
    assert refusal.value.pointer == "/parameters/theta/loc"
