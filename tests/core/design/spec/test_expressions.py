"""Expressions compute what they say, and what is not one is refused where it stands."""

import ast
import math
import tracemalloc
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bensemble_core.design.spec.expressions import (
    FUNCTIONS,
    MAX_CHARS,
    MAX_DEPTH,
    MAX_TOKENS,
    Expression,
    constant,
    parse,
)
from bensemble_core.errors import InvalidSpec

NAMES = {"theta": 1, "slope": 1, "xi": 0, "x2": 0}
POINT = {
    "theta": torch.tensor(0.7, dtype=torch.float64),
    "slope": torch.tensor(1.3, dtype=torch.float64),
    "xi": torch.tensor(2.0, dtype=torch.float64),
    "x2": torch.tensor(-0.4, dtype=torch.float64),
}


def value(text: object) -> float:
    return float(parse(text, degrees=NAMES, pointer="/p")(POINT))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("theta - xi", 0.7 - 2),
        ("-theta ** 2", -(0.7**2)),
        ("2 ** 3 ** 2", 512.0),
        ("(theta + slope) * xi / 4", (0.7 + 1.3) * 2 / 4),
        ("1e-3 + .5 + 2.", 2.501),
        (
            "exp(theta) + log(xi) + log1p(theta) + expm1(theta)",
            math.exp(0.7) + math.log(2) + math.log1p(0.7) + math.expm1(0.7),
        ),
        ("sqrt(xi) + abs(x2)", math.sqrt(2) + 0.4),
        ("sigmoid(theta) + logit(theta)", 1 / (1 + math.exp(-0.7)) + math.log(0.7 / 0.3)),
        ("erf(theta) + tanh(theta)", math.erf(0.7) + math.tanh(0.7)),
        ("ncdf(theta)", 0.5 * math.erfc(-0.7 / math.sqrt(2))),
        ("softplus(theta)", math.log1p(math.exp(0.7))),
        ("softplus(25)", 25 + math.log1p(math.exp(-25))),
        ("sin(pi / 6) + cos(xi)", 0.5 + math.cos(2)),
        ("pow(xi, 3) + min(theta, slope, x2) + max(theta, xi)", 8 - 0.4 + 2),
        ("clip(xi, 0, 1) + clip(x2, 0, 1)", 1.0),
        ("where(theta < slope, 10, 20) + where(xi == 3, 1, 2)", 12.0),
        ("where(not (xi > 1 and theta > 1) or xi != 2, 5, 6)", 5.0),
        ("  theta\n + \t1 ", 1.7),
        (3, 3.0),
        (-2.5, -2.5),
    ],
)
def test_an_expression_computes_what_it_says(text: object, expected: float) -> None:
    assert value(text) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(
    ("text", "degree"),
    [
        ("xi * 3 + pi", 0),
        ("theta * xi + slope / 2 - 1", 1),
        ("where(xi > 1, theta, slope)", 1),
        ("theta * slope", 2),
        ("xi / theta", 2),
        ("exp(theta)", 2),
        ("theta ** 1", 2),
        ("where(theta > 1, 1, 2)", 2),
        ("-(theta + 1)", 1),
    ],
)
def test_the_degree_in_the_parameters_is_known(text: str, degree: int) -> None:
    assert parse(text, degrees=NAMES, pointer="").degree == degree


def test_a_tower_of_powers_is_infinite_at_once() -> None:
    assert value("9**9**9**9") == math.inf
    assert value("exp(-9**9**9)") == 0


def test_tensors_broadcast() -> None:
    theta, xi = torch.arange(3.0).double(), torch.arange(2.0).double()[:, None]
    found = parse("theta - xi", degrees=NAMES, pointer="")({"theta": theta, "xi": xi})
    assert found.tolist() == [[0, 1, 2], [-1, 0, 1]]


HOSTILE = [
    # attribute walks and dunder names
    "theta.__class__", "().__class__.__bases__", "theta.real", "(1).__class__", "exp.__globals__", "__import__",
    "__import__('os')", "__builtins__", "_", "__class__", "theta.__class__.__mro__[1]", "1..real", "theta . grad",
    # names that mean something in Python
    "open('x')", "eval('1')", "exec('1')", "compile('1', '', 'eval')", "getattr(theta, 'x')", "globals()", "print(1)",
    "True", "None", "False", "torch", "math", "NotImplemented", "Ellipsis", "...",
    # syntax
    "lambda: 1", "lambda theta: theta", "[theta]", "[t for t in theta]", "{t for t in theta}", "{1: 2}", "(1, 2)",
    "(t for t in theta)", "f'{theta}'", "'text'", '"text"', "b'x'", "(a := 1)", "exp(*theta)", "exp(**theta)",
    "exp(x=theta)", "theta[0]", "theta[:]", "theta if xi else 1", "yield", "(yield)", "await theta", "async",
    "theta; 1", "theta = 1", "theta, 1", "import os", "del theta", "not theta", "theta and xi", "theta in xi",
    "theta is xi", "theta < xi < 1", "theta @ xi", "theta % 2", "theta // 2", "theta | 1", "theta & 1", "~theta",
    "theta ^ 2", "theta << 2", "1 < 2", "exp", "theta(1)", "exp()", "exp(1, 2)", "where(1, 2, 3)", "min(1)",
    "(theta < 1) + 1", "pow(1)", "exp(theta)(theta)", "clip(1, 2)", "theta xi", "", "   ", "()", "(", ")", "+", "1 +",
    # numbers that are not decimal
    "1j", "0x10", "0b1", "0o7", "1_000", "1e999", "9" * 400, "1e", "1.2.3", "007", "1if xi else 2", "0xfor",
    # look-alike letters and stray characters
    "tһeta", "ｅxp(1)", "θ", "theta＋1", "theta−1", "x²", "√2", "theta​", "тheta", "𝐞xp(1)", "1﹢1", "theta\x00", "\\",
    "#", "theta # comment", "$x", "theta?", "@", "`theta`", "theta\r", "\u202etheta", "theta\u00a0+ 1",
    # bombs
    "(" * 150 + "1" + ")" * 150, "-" * 900 + "1", "exp(" * 180 + "1" + ")" * 180, "(" * 999, "not " * 200 + "(1 < 2)",
    "1+" * 500, "+".join(["1"] * 300), "theta**" * 140 + "1", "9" * 2000, "a" * 5000, "-" * 10_000 + "1",
    "where(1<2," * 90 + "1" + ",1)" * 90, "1" + "*1" * 60, "[" * 900, "{" * 900, "'" * 900, "\n" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_expression_is_refused_at_its_place(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is run, with a pointer, after work that the caps bound: one parse of at most MAX_CHARS."""
    seen: list[int] = []
    plain: Callable[..., ast.AST] = ast.parse

    def watched(source: str, *rest: str, **options: str) -> ast.AST:
        seen.append(len(source))
        return plain(source, *rest, **options)

    refused: InvalidSpec | None = None
    tracemalloc.start()
    with monkeypatch.context() as patch:
        patch.setattr(ast, "parse", watched)
        try:
            parse(text, degrees=NAMES, pointer="/outcome/y/logit")
        except InvalidSpec as refusal:
            refused = refusal
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert refused is not None
    assert refused.pointer == "/outcome/y/logit"
    assert str(refused).startswith("/outcome/y/logit")
    if refused.column is not None:
        assert 1 <= refused.column <= max(1, len(text))
    assert len(str(refused)) < 1000
    assert len(seen) <= 1
    assert sum(seen) <= MAX_CHARS
    assert peak < 5_000_000


def test_there_are_enough_hostile_expressions() -> None:
    assert len(set(HOSTILE)) >= 120


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("theta + nope", 9),
        ("theta.real", 6),
        ("1 + exp(1, 2)", 5),
        ("theta @ 1", 7),
        ("  theta % 2", 9),
        ("xi + tһeta", 7),
        (" exp + 1", 2),
    ],
)
def test_a_refusal_names_the_column(text: str, column: int) -> None:
    with pytest.raises(InvalidSpec) as refusal:
        parse(text, degrees=NAMES, pointer="/p")
    assert refusal.value.column == column


def test_unknown_names_are_told_what_there_is() -> None:
    with pytest.raises(
        InvalidSpec, match="unknown name 'thta'; there is slope, theta, x2, xi, pi, and the functions exp"
    ):
        value("thta")


@pytest.mark.parametrize("bad", [None, True, [], {}, math.nan, math.inf, 10**400])
def test_what_is_neither_number_nor_text_is_refused(bad: object) -> None:
    with pytest.raises(InvalidSpec):
        parse(bad, degrees=NAMES, pointer="/p")


def test_a_constant_may_be_an_expression_without_names() -> None:
    assert constant("log(3) / 2", "") == pytest.approx(math.log(3) / 2)
    with pytest.raises(InvalidSpec, match="finite"):
        constant("1 / 0", "/x")


def test_a_sum_at_the_caps_is_accepted() -> None:
    assert value("+".join(["1"] * (MAX_DEPTH + 1))) == MAX_DEPTH + 1
    assert MAX_TOKENS < MAX_CHARS


grammar = st.recursive(
    st.sampled_from([*NAMES, "1", "0.5", "1e3", "pi", "nope", "", "1e999"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "**", "<", "==", " and ", "%", ",", "@"]), inner).map(
            "".join
        ),
        st.tuples(st.sampled_from([*FUNCTIONS, "nope", "not", "-", "lambda"]), st.lists(inner, max_size=4)).map(
            lambda parts: f"{parts[0]}({', '.join(parts[1])})"
        ),
        inner.map(lambda text: f"({text})"),
        st.tuples(inner, st.sampled_from([".real", "[0]", "!", "'", "é"])).map("".join),
    ),
    max_leaves=25,
)


def parsed_or_refused(text: str) -> Expression | None:
    """Any other exception than our own ends the test."""
    try:
        return parse(text, degrees=NAMES, pointer="/p")
    except InvalidSpec as refusal:
        pointer = refusal.pointer
    assert pointer == "/p"
    return None


@settings(max_examples=400, deadline=None)
@given(grammar)
def test_any_sentence_of_a_wilder_grammar_is_computed_or_refused(text: str) -> None:
    found = parsed_or_refused(text)
    if found is None:
        return
    result = found(POINT)
    assert isinstance(result, Tensor)
    assert result.dtype == torch.float64
    assert found.names <= set(NAMES)


@settings(max_examples=400, deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_computed_or_refused(text: str) -> None:
    found = parsed_or_refused(text)
    assert found is None or isinstance(found(POINT), Tensor)


@pytest.mark.parametrize(
    ("text", "column"), [("\u0442h - x", 1), ("t\u04bb - x", 2), ("x + \u03b8", 5), ("th\u00e9", 3)]
)
def test_a_letter_of_another_alphabet_is_pointed_at(text: str, column: int) -> None:
    with pytest.raises(InvalidSpec, match="is not an ASCII letter") as refusal:
        parse(text, degrees={"th": 1, "x": 0, "t": 1}, pointer="/outcome/y/logit")
    assert refusal.value.column == column
    assert repr(text[column - 1]) in refusal.value.message


def test_the_margins_of_a_comparison_are_at_least_0_where_it_holds() -> None:
    values = {name: torch.linspace(-2, 2, 41, dtype=torch.float64).roll(shift) for name, shift in (("a", 0), ("b", 7))}
    for text in (
        "a < b",
        "a*a >= b",
        "a <= 1 and b > 0",
        "a < 0 or b < 0",
        "not (a < 0 or b < 0)",
        "not (a > 0 and b > 0)",
    ):
        made = parse(text, degrees={"a": 0, "b": 0}, pointer="/constraints/0", truth=True)
        margins = torch.stack([margin(values) for margin in made.margins])
        holds = made(values)
        assert bool((margins[:, holds] >= 0).all())
        assert bool((margins[:, ~holds] <= 0).any(0).all())
