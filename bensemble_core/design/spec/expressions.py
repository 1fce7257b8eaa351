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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
_ZERO: Final = torch.zeros((), dtype=torch.float64)


@dataclass(frozen=True, kw_only=True, eq=False)
class Expression:
    """A checked expression: call it with named tensors that broadcast against each other."""

    source: str
    names: frozenset[str]
    degree: int  # in the parameters: 0 does not depend on them, 1 affine, 2 anything else
    is_truth: bool  # a comparison rather than a number
    run: Run
    margins: tuple[Run, ...] = ()  # of a comparison: numbers that are all at least 0 where it holds, for their slopes

    def __call__(self, values: Values) -> Tensor:
        return self.run(values)


@dataclass(frozen=True, kw_only=True)
class _Function:
    """How many arguments (at least, at most) and what it does; `truths` of the first ones are comparisons."""

    run: Callable[..., Tensor]
    least: int = 1
    most: int = 1
    truths: int = 0


def _fold(pair: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    def folded(first: Tensor, *rest: Tensor) -> Tensor:
        for other in rest:
            first = pair(first, other)
        return first

    return folded


FUNCTIONS: Final[dict[str, _Function]] = {
    "exp": _Function(run=torch.exp),
    "log": _Function(run=torch.log),
    "log1p": _Function(run=torch.log1p),
    "expm1": _Function(run=torch.expm1),
    "sqrt": _Function(run=torch.sqrt),
    "abs": _Function(run=torch.abs),
    "sigmoid": _Function(run=torch.sigmoid),
    "logit": _Function(run=torch.logit),
    "erf": _Function(run=torch.erf),
    "ncdf": _Function(run=torch.special.ndtr),
    "tanh": _Function(run=torch.tanh),
    # torch's own softplus is the identity above 20, which is 2e-9 off
    "softplus": _Function(run=lambda x: torch.logaddexp(x, _ZERO)),
    "sin": _Function(run=torch.sin),
    "cos": _Function(run=torch.cos),
    "pow": _Function(run=torch.pow, least=2, most=2),
    "min": _Function(run=_fold(torch.minimum), least=2, most=8),
    "max": _Function(run=_fold(torch.maximum), least=2, most=8),
    "clip": _Function(run=lambda x, low, high: torch.minimum(torch.maximum(x, low), high), least=3, most=3),
    "where": _Function(run=torch.where, least=3, most=3, truths=1),
}
CONSTANTS: Final[dict[str, float]] = {"pi": math.pi}
RESERVED: Final = frozenset([*FUNCTIONS, *CONSTANTS, *_WORDS])

_ARITHMETIC: Final[dict[type[ast.operator], Callable[[Tensor, Tensor], Tensor]]] = {
    ast.Add: torch.add,
    ast.Sub: torch.sub,
    ast.Mult: torch.mul,
    ast.Div: torch.div,
    ast.Pow: torch.pow,
}
_COMPARISONS: Final[dict[type[ast.cmpop], Callable[[Tensor, Tensor], Tensor]]] = {
    ast.Lt: torch.lt,
    ast.LtE: torch.le,
    ast.Gt: torch.gt,
    ast.GtE: torch.ge,
    ast.Eq: torch.eq,
    ast.NotEq: torch.ne,
}


def parse(text: object, *, degrees: Mapping[str, int], pointer: str, truth: bool = False) -> Expression:
    """A number or a text -> a checked expression.

    `degrees` names what may be used, with its degree in the parameters (1 for a parameter, 0 for a design). `truth`
    asks for a comparison, as a constraint is, instead of a number.
    """
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        text = _plain(text, pointer)
    if not isinstance(text, str):
        raise InvalidSpec(f"expected a number or an expression, got {type(text).__name__}", pointer=pointer)
    names = _scan(text, degrees, pointer)
    node = _Walk(degrees=degrees, pointer=pointer).visit(_tree(text, pointer), 0)
    if node.is_truth != truth:
        raise InvalidSpec(
            "expected a comparison such as a + b <= 1, got a number"
            if truth
            else "expected a number, got a comparison; choose between numbers with where(comparison, a, b)",
            pointer=pointer,
            column=1,
        )
    return Expression(
        source=text,
        names=names,
        degree=node.degree,
        is_truth=truth,
        run=node.run,
        margins=node.margins,
    )


def constant(value: object, pointer: str) -> float:
    """A number, or an expression without names such as "log(3)"."""
    number = float(parse(value, degrees={}, pointer=pointer)({}))
    if not math.isfinite(number):
        raise InvalidSpec(f"expected a finite number, got {number}", pointer=pointer)
    return number


def _plain(number: float, pointer: str) -> str:
    try:
        value = float(number)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise InvalidSpec("expected a finite number of at most 1e308", pointer=pointer)
    return repr(value)


def _scan(text: str, degrees: Mapping[str, int], pointer: str) -> frozenset[str]:
    """The names in a text that consists of known tokens; otherwise the column of the first that is not."""
    if len(text) > MAX_CHARS:
        raise InvalidSpec(
            f"an expression has at most {MAX_CHARS} characters, got {len(text)}; name its parts under let",
            pointer=pointer,
        )
    position, n_tokens, n_open, names = 0, 0, 0, set()
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None and text[position].isalpha():
            raise _foreign(text, position, pointer)
        if token is None:
            raise InvalidSpec(
                f"{text[position]!r} has no place in an expression; there are names, decimal numbers, + - * / **, "
                "comparisons, and, or, not, and functions",
                pointer=pointer,
                column=position + 1,
            )
        name = token.group("name")
        if name is not None and text[token.end() : token.end() + 1].isalnum():  # a letter of another alphabet
            raise _foreign(text, token.end(), pointer)
        if name is not None and name not in RESERVED:
            if name not in degrees:
                known = ", ".join([*sorted(degrees), *CONSTANTS])
                raise InvalidSpec(
                    f"unknown name {name[:40]!r}; there is {known}, and the functions {', '.join(FUNCTIONS)}",
                    pointer=pointer,
                    column=position + 1,
                )
            names.add(name)
        n_open += (token.group() == "(") - (token.group() == ")")
        if n_open > MAX_DEPTH:
            raise InvalidSpec(
                f"at most {MAX_DEPTH} parentheses may be open at once", pointer=pointer, column=position + 1
            )
        n_tokens += not token.group().isspace()
        position = token.end()
    if n_tokens > MAX_TOKENS:
        raise InvalidSpec(f"an expression has at most {MAX_TOKENS} tokens, got {n_tokens}", pointer=pointer)
    return frozenset(names)


def _foreign(text: str, position: int, pointer: str) -> InvalidSpec:
    letter = text[position]
    return InvalidSpec(
        f"{letter!r} ({unicodedata.name(letter, 'no name')}) is not an ASCII letter; names are made of a-z, A-Z, "
        "digits and _",
        pointer=pointer,
        column=position + 1,
    )


def _tree(text: str, pointer: str) -> ast.expr:
    lead = len(text) - len(text.lstrip(" \t\n"))
    line = text.replace("\n", " ").replace("\t", " ").strip()
    try:
        tree = ast.parse(line, mode="eval").body
    except SyntaxError as reason:
        column = max(1, min(lead + (reason.offset or 1), len(text)))
        raise InvalidSpec("not a complete expression", pointer=pointer, column=column) from None
    except (RecursionError, MemoryError, ValueError):
        raise InvalidSpec("the expression is nested too deeply", pointer=pointer, column=1) from None
    if lead:
        for node in ast.walk(tree):
            if isinstance(node, ast.expr):
                node.col_offset += lead
    return tree


@dataclass(frozen=True, kw_only=True, eq=False)
class _Node:
    run: Run
    degree: int
    is_truth: bool = False
    margins: tuple[Run, ...] = ()


def _margin(operator: type[ast.cmpop], left: Run, right: Run) -> tuple[Run, ...]:
    """How far a comparison is from its edge; that of a ≠ b has no side."""
    if operator in (ast.Lt, ast.LtE):
        return (lambda values: right(values) - left(values),)
    if operator in (ast.Gt, ast.GtE):
        return (lambda values: left(values) - right(values),)
    return (lambda values: -(left(values) - right(values)).abs(),) if operator is ast.Eq else ()


def _least(margins: tuple[Run, ...]) -> Run:
    return lambda values: _fold(torch.minimum)(*(margin(values) for margin in margins))


def _either(parts: list[tuple[Run, ...]]) -> tuple[Run, ...]:
    """The margin of comparisons one of which has to hold."""
    if not all(parts):
        return ()
    each = [_least(margins) for margins in parts]
    return (lambda values: _fold(torch.maximum)(*(margin(values) for margin in each)),)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Walk:
    degrees: Mapping[str, int]
    pointer: str

    def visit(self, node: ast.expr, depth: int) -> _Node:
        if depth > MAX_DEPTH:
            raise self.refuse(node, f"the expression is nested more than {MAX_DEPTH} deep; name its parts under let")
        if isinstance(node, ast.Constant):
            return self.literal(node)
        if isinstance(node, ast.Name):
            return self.name(node)
        if isinstance(node, ast.UnaryOp):
            return self.unary(node, depth)
        if isinstance(node, ast.BinOp):
            return self.binary(node, depth)
        if isinstance(node, ast.Compare):
            return self.comparison(node, depth)
        if isinstance(node, ast.BoolOp):
            return self.both(node, depth)
        if isinstance(node, ast.Call):
            return self.call(node, depth)
        raise self.refuse(node, f"{type(node).__name__} has no place in an expression")

    def refuse(self, node: ast.expr, message: str) -> InvalidSpec:
        return InvalidSpec(message, pointer=self.pointer, column=node.col_offset + 1)

    def number(self, node: ast.expr, depth: int) -> _Node:
        made = self.visit(node, depth + 1)
        if made.is_truth:
            raise self.refuse(node, "expected a number here, got a comparison; use where(comparison, a, b)")
        return made

    def truth(self, node: ast.expr, depth: int) -> _Node:
        made = self.visit(node, depth + 1)
        if not made.is_truth:
            raise self.refuse(node, "expected a comparison here, such as a < b")
        return made

    def literal(self, node: ast.Constant) -> _Node:
        value = node.value
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.refuse(node, "expected a decimal number")
        try:
            number = torch.tensor(float(value), dtype=torch.float64)
        except OverflowError:
            number = torch.tensor(math.inf, dtype=torch.float64)
        if not bool(number.isfinite()):
            raise self.refuse(node, "a number is at most 1e308")
        return _Node(run=lambda values: number, degree=0)

    def name(self, node: ast.Name) -> _Node:
        name = node.id
        if name in CONSTANTS:
            number = torch.tensor(CONSTANTS[name], dtype=torch.float64)
            return _Node(run=lambda values: number, degree=0)
        if name not in self.degrees:  # a function without its arguments
            raise self.refuse(node, f"{name} is a function; give it its arguments in parentheses")
        return _Node(run=lambda values: values[name], degree=self.degrees[name])

    def unary(self, node: ast.UnaryOp, depth: int) -> _Node:
        if isinstance(node.op, ast.Not):
            inner = self.truth(node.operand, depth)
            least = _least(inner.margins) if inner.margins else None
            return _Node(
                run=lambda values: ~inner.run(values),
                degree=2 * bool(inner.degree),
                is_truth=True,
                margins=() if least is None else (lambda values: -least(values),),
            )
        inner = self.number(node.operand, depth)
        if isinstance(node.op, ast.USub):
            return _Node(run=lambda values: -inner.run(values), degree=inner.degree)
        if isinstance(node.op, ast.UAdd):
            return inner
        raise self.refuse(node, f"{type(node.op).__name__} has no place in an expression")

    def binary(self, node: ast.BinOp, depth: int) -> _Node:
        if type(node.op) not in _ARITHMETIC:
            raise self.refuse(node, f"{type(node.op).__name__} has no place here; there are + - * / **")
        operate = _ARITHMETIC[type(node.op)]
        left, right = self.number(node.left, depth), self.number(node.right, depth)
        if isinstance(node.op, (ast.Add, ast.Sub)):
            degree = max(left.degree, right.degree)
        elif isinstance(node.op, ast.Mult):
            degree = min(2, left.degree + right.degree)
        elif isinstance(node.op, ast.Div):
            degree = left.degree if right.degree == 0 else 2
        else:
            degree = 2 * bool(left.degree or right.degree)
        return _Node(run=lambda values: operate(left.run(values), right.run(values)), degree=degree)

    def comparison(self, node: ast.Compare, depth: int) -> _Node:
        if len(node.ops) != 1:
            raise self.refuse(node, "one comparison at a time: write a < b and b < c")
        if type(node.ops[0]) not in _COMPARISONS:
            raise self.refuse(node, f"{type(node.ops[0]).__name__} has no place here; there are < <= > >= == !=")
        compare = _COMPARISONS[type(node.ops[0])]
        left, right = self.number(node.left, depth), self.number(node.comparators[0], depth)
        return _Node(
            run=lambda values: compare(left.run(values), right.run(values)),
            degree=2 * bool(left.degree or right.degree),
            is_truth=True,
            margins=_margin(type(node.ops[0]), left.run, right.run),
        )

    def both(self, node: ast.BoolOp, depth: int) -> _Node:
        parts = [self.truth(value, depth) for value in node.values]
        is_and = isinstance(node.op, ast.And)
        join = _fold(torch.logical_and if is_and else torch.logical_or)
        found = [part.margins for part in parts]
        return _Node(
            run=lambda values: join(*(part.run(values) for part in parts)),
            degree=max(part.degree for part in parts),
            is_truth=True,
            margins=sum(found, ()) if is_and else _either(found),
        )

    def call(self, node: ast.Call, depth: int) -> _Node:
        if not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS:
            raise self.refuse(node.func, f"not a function; there are {', '.join(FUNCTIONS)}")
        name, function = node.func.id, FUNCTIONS[node.func.id]
        if node.keywords or any(isinstance(argument, ast.Starred) for argument in node.args):
            raise self.refuse(node, f"{name} takes plain arguments, neither starred nor by name")
        if not function.least <= len(node.args) <= function.most:
            wanted = str(function.least) if function.least == function.most else f"{function.least}-{function.most}"
            raise self.refuse(node, f"{name} takes {wanted} arguments, got {len(node.args)}")
        parts = [
            self.truth(argument, depth) if i < function.truths else self.number(argument, depth)
            for i, argument in enumerate(node.args)
        ]
        choices = [part.degree for part in parts[function.truths :]]
        if name == "where" and parts[0].degree == 0:
            degree = max(choices)  # which of the two is chosen does not depend on the parameters
        else:
            degree = 2 * any(part.degree for part in parts)
        run = function.run
        return _Node(run=lambda values: run(*(part.run(values) for part in parts)), degree=degree)
