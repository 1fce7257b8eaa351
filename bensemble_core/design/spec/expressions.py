"""Small arithmetic expressions from strangers, as closures over torch tensors.

A text is capped in length, cut into tokens of a fixed alphabet, parsed by `ast` and walked against a whitelist; nothing
is ever handed to Python to run. Known tokens only means that attributes, subscripts, strings, brackets, look-alike
letters and keywords end at the first step, with their column. Numbers are float64 tensors from the start, so that a
tower of powers is infinite at once instead of a long integer.
"""

import ast
import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final, TypeAlias

import torch
from torch import Tensor

from bensemble_core.errors import InvalidSpec

MAX_CHARS: Final = 1000
MAX_TOKENS: Final = 400
MAX_DEPTH: Final = 50

Values: TypeAlias = Mapping[str, Tensor]
Run: TypeAlias = Callable[[Values], Tensor]

# A number ends where no letter, digit or point follows; hence no 1j, 0x10, 1_000 and no 1if.
_TOKEN = re.compile(
    r"[ \t\n]+|(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?![\w.])"
    r"|(?P<name>[A-Za-z_]\w*)|\*\*|<=|>=|==|!=|[-+*/(),<>]",
    re.ASCII,
)
_WORDS: Final = ("and", "or", "not")
_SIGNS: Final = "+ - * / **, comparisons, and, or, not"
_ZERO: Final = torch.zeros((), dtype=torch.float64)
_SQRT_HALF: Final = math.sqrt(0.5)


@dataclass(frozen=True, kw_only=True, eq=False)
class Expression:
    """A checked expression: call it with named tensors that broadcast against each other."""

    run: Run
    degree: int  # in the parameters: 0 does not depend on them, 1 affine, 2 anything else
    is_truth: bool = False  # a comparison rather than a number
    margins: tuple[Run, ...] = ()  # of a comparison: numbers that are all at least 0 where it holds, for their slopes
    names: frozenset[str] = frozenset()

    def __call__(self, values: Values) -> Tensor:
        return self.run(values)

    def margin(self, values: Values) -> Tensor:
        """The least of the margins."""
        return _smallest(*[margin(values) for margin in self.margins])


def _fold(pair: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    return lambda *several: reduce(pair, several)


def _nonlinear(*degrees: int) -> int:
    return 2 * any(degrees)


def _choice(condition: int, first: int, second: int) -> int:
    return 2 if condition else max(first, second)


_smallest, _largest = _fold(torch.minimum), _fold(torch.maximum)


@dataclass(frozen=True, kw_only=True)
class _Operation:
    """A function or an operator, and how many operands it takes, the first `truths` of them comparisons."""

    run: Callable[..., Tensor]
    least: int = 1
    most: int = 1
    truths: int = 0
    is_truth: bool = False
    degree: Callable[..., int] = _nonlinear  # from those of the operands
    margin: Callable[..., Tensor] | None = None  # of a comparison, from its operands or from their margins

    def margins(self, parts: Sequence[Expression]) -> tuple[Run, ...]:
        """All that have to be at least 0: where every part has to hold, those of each part, as they are smooth."""
        margin = self.margin
        if margin is _smallest:
            return tuple(each for part in parts for each in part.margins)
        if margin is None or (self.truths and not all(part.margins for part in parts)):
            return ()
        inner = [part.margin if self.truths else part.run for part in parts]
        return (lambda values: margin(*[each(values) for each in inner]),)


_UNARY: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "exp": torch.exp,
    "log": torch.log,
    "log1p": torch.log1p,
    "expm1": torch.expm1,
    "sqrt": torch.sqrt,
    "abs": torch.abs,
    "sigmoid": torch.sigmoid,
    "logit": torch.logit,
    "erf": torch.erf,
    "ncdf": lambda x: 0.5 * torch.erfc(-x * _SQRT_HALF),  # at -8 torch's own ndtr is 2 % off
    "tanh": torch.tanh,
    "softplus": lambda x: torch.logaddexp(x, _ZERO),  # torch's own is the identity above 20, which is 2e-9 off
    "sin": torch.sin,
    "cos": torch.cos,
}
FUNCTIONS: Final[dict[str, _Operation]] = {
    **{name: _Operation(run=run) for name, run in _UNARY.items()},
    "pow": _Operation(run=torch.pow, least=2, most=2),
    "min": _Operation(run=_smallest, least=2, most=8),
    "max": _Operation(run=_largest, least=2, most=8),
    "clip": _Operation(run=lambda x, low, high: torch.minimum(torch.maximum(x, low), high), least=3, most=3),
    "where": _Operation(run=torch.where, least=3, most=3, truths=1, degree=_choice),
}
CONSTANTS: Final[dict[str, float]] = {"pi": math.pi}
RESERVED: Final = frozenset([*FUNCTIONS, *CONSTANTS, *_WORDS])


def _comparison(run: Callable[..., Tensor], margin: Callable[[Tensor, Tensor], Tensor] | None) -> _Operation:
    return _Operation(run=run, is_truth=True, margin=margin)


def _connective(run: Callable[..., Tensor], margin: Callable[..., Tensor]) -> _Operation:
    return _Operation(run=run, truths=MAX_TOKENS, is_truth=True, margin=margin)


def _below(left: Tensor, right: Tensor) -> Tensor:
    return right - left


_OPERATORS: Final[dict[type[ast.AST], _Operation]] = {
    ast.Add: _Operation(run=torch.add, degree=max),
    ast.Sub: _Operation(run=torch.sub, degree=max),
    ast.Mult: _Operation(run=torch.mul, degree=lambda left, right: min(2, left + right)),
    ast.Div: _Operation(run=torch.div, degree=lambda left, right: 2 if right else left),
    ast.Pow: _Operation(run=torch.pow),
    ast.UAdd: _Operation(run=torch.positive, degree=lambda only: only),
    ast.USub: _Operation(run=torch.neg, degree=lambda only: only),
    ast.Lt: _comparison(torch.lt, _below),
    ast.LtE: _comparison(torch.le, _below),
    ast.Gt: _comparison(torch.gt, torch.sub),
    ast.GtE: _comparison(torch.ge, torch.sub),
    ast.Eq: _comparison(torch.eq, lambda left, right: -(left - right).abs()),
    ast.NotEq: _comparison(torch.ne, None),  # which has no side
    ast.Not: _connective(torch.logical_not, torch.neg),
    ast.And: _connective(_fold(torch.logical_and), _smallest),
    ast.Or: _connective(_fold(torch.logical_or), _largest),
}


def parse(text: object, *, degrees: Mapping[str, int], pointer: str, truth: bool = False) -> Expression:
    """A number or a text -> a checked expression.

    `degrees` names what may be used, with its degree in the parameters (1 for a parameter, 0 for a design). `truth`
    asks for a comparison, as a constraint is, instead of a number.
    """
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        made = _number(text)
        if made is None:
            raise InvalidSpec("expected a finite number of at most 1e308", pointer=pointer)
    elif isinstance(text, str):
        made = _Parser(text=text, degrees=degrees, pointer=pointer).expression()
    else:
        raise InvalidSpec(f"expected a number or an expression, got {type(text).__name__}", pointer=pointer)
    if made.is_truth != truth:
        raise InvalidSpec(
            "expected a comparison such as a + b <= 1, got a number"
            if truth
            else "expected a number, got a comparison; choose between numbers with where(comparison, a, b)",
            pointer=pointer,
            column=1,
        )
    return made


def constant(value: object, pointer: str) -> float:
    """A number, or an expression without names such as "log(3)"."""
    number = float(parse(value, degrees={}, pointer=pointer)({}))
    if not math.isfinite(number):
        raise InvalidSpec(f"expected a finite number, got {number}", pointer=pointer)
    return number


def stacked(parts: Sequence[Expression]) -> Expression:
    """A list of numbers [C, ...] as one expression."""

    def run(values: Values) -> Tensor:
        return torch.stack(torch.broadcast_tensors(*(part(values) for part in parts)))  # type: ignore[no-untyped-call]

    names = frozenset[str]().union(*(part.names for part in parts))
    return Expression(run=run, degree=max((part.degree for part in parts), default=0), names=names)


def _number(value: float) -> Expression | None:
    """None where it is too large, infinite or NaN."""
    try:
        found = torch.tensor(float(value), dtype=torch.float64)
    except OverflowError:
        return None
    return Expression(run=lambda values: found, degree=0) if found.isfinite() else None


@dataclass(frozen=True, kw_only=True, eq=False)
class _Parser:
    """From a text to tokens, a syntax tree and an expression, each by a list of what is allowed."""

    text: str
    degrees: Mapping[str, int]
    pointer: str

    @property
    def n_spaces(self) -> int:
        """Before the text that the syntax tree is of."""
        return len(self.text) - len(self.text.lstrip())

    def refuse(self, message: str, position: int | None = None) -> InvalidSpec:
        return InvalidSpec(message, pointer=self.pointer, column=None if position is None else position + 1)

    def refuse_node(self, node: ast.expr, message: str) -> InvalidSpec:
        return self.refuse(message, self.n_spaces + node.col_offset)

    def expression(self) -> Expression:
        names = self.names()
        return replace(self.visit(self.tree(), 0), names=names)

    def names(self) -> frozenset[str]:
        """The names in a text that consists of known tokens only."""
        text = self.text
        if len(text) > MAX_CHARS:
            raise self.refuse(
                f"an expression has at most {MAX_CHARS} characters, got {len(text)}; name its parts under let"
            )
        position, n_tokens, n_open, names = 0, 0, 0, set()
        while position < len(text):
            token = _TOKEN.match(text, position)
            if token is None:
                raise self.stray(position)
            name = token.group("name")
            if name is not None and text[token.end() : token.end() + 1].isalnum():  # a letter of another alphabet
                raise self.stray(token.end())
            if name is not None and name not in RESERVED:
                if name not in self.degrees:
                    known = ", ".join([*sorted(self.degrees), *CONSTANTS])
                    there_is = f"there is {known}, and the functions {', '.join(FUNCTIONS)}"
                    raise self.refuse(f"unknown name {name[:40]!r}; {there_is}", position)
                names.add(name)
            n_open += (token.group() == "(") - (token.group() == ")")
            if n_open > MAX_DEPTH:
                raise self.refuse(f"at most {MAX_DEPTH} parentheses may be open at once", position)
            n_tokens += not token.group().isspace()
            position = token.end()
        if n_tokens > MAX_TOKENS:
            raise self.refuse(f"an expression has at most {MAX_TOKENS} tokens, got {n_tokens}")
        return frozenset(names)

    def stray(self, position: int) -> InvalidSpec:
        """A refusal of a character that starts no token."""
        letter = self.text[position]
        if letter.isalnum() and not letter.isascii():
            name = unicodedata.name(letter, "no name")
            found = f"{letter!r} ({name}) is not an ASCII letter; names are made of a-z, A-Z, digits and _"
        else:
            found = f"{letter!r} has no place in an expression; there are names, numbers, {_SIGNS} and functions"
        return self.refuse(found, position)

    def tree(self) -> ast.expr:
        try:
            return ast.parse(self.text.replace("\n", " ").replace("\t", " ").strip(), mode="eval").body
        except SyntaxError as reason:
            last = len(self.text) - 1
            at = max(0, min(self.n_spaces + (reason.offset or 1) - 1, last))
            raise self.refuse("not a complete expression", at) from None
        except (RecursionError, MemoryError, ValueError):
            raise self.refuse("the expression is nested too deeply", 0) from None

    def visit(self, node: ast.expr, depth: int) -> Expression:
        if depth > MAX_DEPTH:
            raise self.refuse_node(node, f"an expression is at most {MAX_DEPTH} deep; name its parts under let")
        if isinstance(node, ast.Constant):
            return self.literal(node)
        if isinstance(node, ast.Name):
            return self.name(node)
        operation, operands = self.call(node) if isinstance(node, ast.Call) else self.operator(node)
        parts = [self.operand(each, depth + 1, truth=i < operation.truths) for i, each in enumerate(operands)]
        run = operation.run
        return Expression(
            run=lambda values: run(*[part.run(values) for part in parts]),
            degree=operation.degree(*(part.degree for part in parts)),
            is_truth=operation.is_truth,
            margins=operation.margins(parts),
        )

    def operand(self, node: ast.expr, depth: int, *, truth: bool) -> Expression:
        made = self.visit(node, depth)
        if truth and not made.is_truth:
            raise self.refuse_node(node, "expected a comparison here, such as a < b")
        if made.is_truth and not truth:
            raise self.refuse_node(node, "expected a number here, got a comparison; use where(comparison, a, b)")
        return made

    def literal(self, node: ast.Constant) -> Expression:
        if isinstance(node.value, bool) or not isinstance(node.value, (int, float)):
            raise self.refuse_node(node, "expected a decimal number")
        if (made := _number(node.value)) is None:
            raise self.refuse_node(node, "a number is at most 1e308")
        return made

    def name(self, node: ast.Name) -> Expression:
        name = node.id
        if name in CONSTANTS:
            value = torch.tensor(CONSTANTS[name], dtype=torch.float64)
            return Expression(run=lambda values: value, degree=0)
        if name not in self.degrees:
            raise self.refuse_node(node, f"{name} is a function; give it its arguments in parentheses")
        return Expression(run=lambda values: values[name], degree=self.degrees[name])

    def operator(self, node: ast.expr) -> tuple[_Operation, list[ast.expr]]:
        if isinstance(node, ast.Compare) and len(node.ops) > 1:
            raise self.refuse_node(node, "one comparison at a time: write a < b and b < c")
        kind: type[ast.AST] = type(node)
        operands: list[ast.expr] = []
        if isinstance(node, ast.UnaryOp):
            kind, operands = type(node.op), [node.operand]
        elif isinstance(node, ast.BinOp):
            kind, operands = type(node.op), [node.left, node.right]
        elif isinstance(node, ast.BoolOp):
            kind, operands = type(node.op), node.values
        elif isinstance(node, ast.Compare):
            kind, operands = type(node.ops[0]), [node.left, *node.comparators]
        if kind not in _OPERATORS:
            raise self.refuse_node(node, f"{kind.__name__} has no place in an expression; there are {_SIGNS}")
        return _OPERATORS[kind], operands

    def call(self, node: ast.Call) -> tuple[_Operation, list[ast.expr]]:
        if not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS:
            raise self.refuse_node(node.func, f"not a function; there are {', '.join(FUNCTIONS)}")
        name, function = node.func.id, FUNCTIONS[node.func.id]
        if node.keywords or any(isinstance(argument, ast.Starred) for argument in node.args):
            raise self.refuse_node(node, f"{name} takes plain arguments, neither starred nor by name")
        if not function.least <= len(node.args) <= function.most:
            wanted = str(function.least) if function.least == function.most else f"{function.least}-{function.most}"
            raise self.refuse_node(node, f"{name} takes {wanted} arguments, got {len(node.args)}")
        return function, node.args
