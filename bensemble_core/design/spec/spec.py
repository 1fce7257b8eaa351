"""An experiment stated as JSON, read into frozen dataclasses. Every refusal carries a JSON pointer.

JSON objects have no order, and databases reorder them: nothing here depends on the order of keys. `canonical` is the
text whose hash names a spec.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias, get_args

from bensemble_core.design.spec.blocks import MultivariateNormal, joint_prior
from bensemble_core.design.spec.designs import read_designs, read_listed_designs
from bensemble_core.design.spec.expressions import Expression, parse
from bensemble_core.design.spec.model import Model
from bensemble_core.design.spec.outcomes import read_outcomes, read_table
from bensemble_core.design.spec.parameters import read_parameters
from bensemble_core.design.spec.reading import below, items, members, name, number, text, whole
from bensemble_core.design.spec.spaces import Space
from bensemble_core.errors import InvalidSpec

MAX_LETS = 32
MAX_CONSTRAINTS = 16
MAX_RULES = 32
MAX_TEXT = 10_000  # characters of a description

KEYS = [
    "name",
    "description",
    "instructions",
    "parameters",
    "designs",
    "let",
    "outcome",
    "table",
    "targets",
    "constraints",
    "cost",
    "utility",
    "stop",
    "select",
]
Kind: TypeAlias = Literal["any", "all", "sd", "max_eig_below", "max_trials", "budget"]
OLD_KINDS: dict[str, Kind] = {"max_rounds": "max_trials"}  # older names, still read


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A stopping rule: a leaf with a limit (and, for sd, a parameter), or any/all of `rules`."""

    kind: Kind
    limit: float = 0.0
    parameter: str = ""
    rules: tuple["Rule", ...] = ()


@dataclass(frozen=True, kw_only=True)
class Select:
    """How the next design is chosen among the estimates."""

    rule: Literal["argmax", "random"] = "argmax"
    tie_tol: float = 1e-6
    seed: int = 0
    epsilon: float = 0.0  # share of rounds at a random design
    max_repeats: int | None = None  # times that one design may be run


@dataclass(frozen=True, kw_only=True, eq=False)
class Spec:
    name: str
    model: Model
    instructions: str  # for whoever runs the trials; nothing is computed from it
    stop: Rule | None
    select: Select
    source: Mapping[str, Any] = field(repr=False)

    @cached_property
    def canonical(self) -> str:
        return canonical(self.source)

    @property
    def hash(self) -> str:
        return hashlib.sha256(self.canonical.encode()).hexdigest()

    @property
    def seeks_information(self) -> bool:
        """Whether the design with the greatest EIG is what is looked for."""
        return self.select.rule == "argmax" and not self.model.cost.names and self.model.utility is None

    @property
    def budget(self) -> float:
        """The least budget that any rule names; no design beyond it is proposed."""
        return min(_budgets(self.stop), default=math.inf)


def read_spec(source: object) -> Spec:
    """Read, but do not probe."""
    given = members(source, "", known=KEYS)
    text(given.get("description", ""), "/description", most=MAX_TEXT)
    taken: set[str] = set()
    if "table" in given:
        for key in ("parameters", "designs", "let", "outcome"):
            if key in given:
                raise InvalidSpec(f"a table replaces {key}; state one of the two", pointer=below("", key))
        points, designs, outcome = read_table(given["table"], "/table", taken)
        blocks: list[Any] = [points]
        names = list(points.names)
        space = read_listed_designs(designs, "/table/designs", taken, numbered=True)
        lets: list[tuple[str, Expression]] = []
        outcomes = [outcome]
        degrees = {**dict.fromkeys(names, 1), **dict.fromkeys(space.names, 0)}
    else:
        members(given, "", known=KEYS, required=["parameters", "designs", "outcome"])
        blocks = read_parameters(given["parameters"], "/parameters", taken)
        names = [label for block in blocks for label in block.names]
        space = read_designs(given["designs"], taken)
        degrees = {**dict.fromkeys(names, 1), **dict.fromkeys(space.names, 0)}
        lets, degrees = _lets(given.get("let", {}), degrees, taken)
        outcomes = read_outcomes(given["outcome"], "/outcome", degrees, taken)
    free = dict.fromkeys(space.names, 0)
    constraints = [
        parse(text_, degrees=free, pointer=f"/constraints/{i}", truth=True)
        for i, text_ in enumerate(items(given.get("constraints", []), "/constraints", most=MAX_CONSTRAINTS))
    ]
    utility = None
    if given.get("utility") is not None:
        everything = {**degrees, **{variable.name: 2 for variable in outcomes}}
        utility = parse(given["utility"], degrees=everything, pointer="/utility")
    model = Model(
        prior=joint_prior(blocks, _targets(given.get("targets"), names, blocks)),
        space=Space(
            variables=space.variables, rows=space.rows, numbered=space.numbered, constraints=tuple(constraints)
        ),
        lets=tuple(lets),
        outcomes=tuple(outcomes),
        cost=parse(given.get("cost", 1), degrees=free, pointer="/cost"),
        utility=utility,
    )
    return Spec(
        name=text(given.get("name", ""), "/name"),
        model=model,
        instructions=text(given.get("instructions", ""), "/instructions", most=MAX_TEXT),
        stop=None if given.get("stop") is None else _rule(given["stop"], "/stop", names, [0]),
        select=_select(given.get("select", {})),
        source=given,
    )


def canonical(source: Mapping[str, Any]) -> str:
    """One text for one spec: keys sorted, whole floats as integers, no spaces."""
    return json.dumps(_plain(source), sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind is float:
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    if kind is str or kind is int:
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def _targets(value: object, names: Sequence[str], blocks: Sequence[Any]) -> list[str]:
    if value is None:
        return list(names)
    found: list[str] = []
    for i, entry in enumerate(items(value, "/targets", least=1, most=len(names))):
        target = text(entry, f"/targets/{i}", choices=sorted(names))
        if target in found:
            raise InvalidSpec("named twice", pointer=f"/targets/{i}")
        found.append(target)
    mixed = [
        b for b in blocks if isinstance(b, MultivariateNormal) and 0 < len(set(b.names) & set(found)) < len(b.names)
    ]
    if len(mixed) > 1:
        raise InvalidSpec(
            "at most one multivariate_normal may hold targets and other parameters; join them into one",
            pointer="/targets",
        )
    return found


def _lets(
    value: object, degrees: Mapping[str, int], taken: set[str]
) -> tuple[list[tuple[str, Expression]], dict[str, int]]:
    """Definitions in an order in which each uses only those before it."""
    stated = members(value, "/let")
    if len(stated) > MAX_LETS:
        raise InvalidSpec(f"expected at most {MAX_LETS} definitions, got {len(stated)}", pointer="/let")
    for label in stated:
        taken.add(name(label, below("/let", label), taken))
    found: list[tuple[str, Expression]] = []
    known = dict(degrees)
    waiting = sorted(stated)
    while waiting:
        # parsed first with every name allowed, to see which of the others it waits for
        loose = {**dict.fromkeys(stated, 2), **known}
        ready = [
            label
            for label in waiting
            if parse(stated[label], degrees=loose, pointer=below("/let", label)).names <= set(known)
        ]
        if not ready:
            raise InvalidSpec(f"defined by itself, through {', '.join(waiting)}", pointer=below("/let", waiting[0]))
        for label in ready:
            made = parse(stated[label], degrees=known, pointer=below("/let", label))
            found.append((label, made))
        known |= {label: made.degree for label, made in found}
        waiting = [label for label in waiting if label not in ready]
    return found, known


def _rule(value: object, pointer: str, names: Sequence[str], count: list[int], depth: int = 0) -> Rule:
    """{"any": […]}, {"all": […]}, or a leaf; {"sd": {a: …, b: …}} asks for both."""
    count[0] += 1
    if count[0] > MAX_RULES or depth > 8:
        raise InvalidSpec(f"at most {MAX_RULES} rules, nested 8 deep", pointer=pointer)
    kinds = get_args(Kind)
    given = members(value, pointer, known=(*kinds, *OLD_KINDS))
    if len(given) != 1:
        raise InvalidSpec(f"expected one of {', '.join(kinds)}; combine rules with any or all", pointer=pointer)
    ((kind, stated),) = given.items()
    at = below(pointer, kind)
    if kind in ("any", "all"):
        rules = [
            _rule(entry, below(at, i), names, count, depth + 1)
            for i, entry in enumerate(items(stated, at, least=1, most=MAX_RULES))
        ]
        return Rule(kind="any" if kind == "any" else "all", rules=tuple(rules))
    if kind == "sd":
        limits = members(stated, at, known=sorted(names))
        if not limits:
            raise InvalidSpec("expected a parameter and its limit", pointer=at)
        leaves = [
            Rule(kind="sd", parameter=key, limit=number(limit, below(at, key), gt=0))
            for key, limit in sorted(limits.items())
        ]
        return leaves[0] if len(leaves) == 1 else Rule(kind="all", rules=tuple(leaves))
    if OLD_KINDS.get(kind, kind) == "max_trials":
        return Rule(kind="max_trials", limit=whole(stated, at, ge=1))
    if kind == "budget":
        return Rule(kind="budget", limit=number(stated, at, gt=0))
    return Rule(kind="max_eig_below", limit=number(stated, at, gt=0))


def _select(value: object) -> Select:
    given = members(value, "/select", known=["rule", "tie_tol", "seed", "epsilon", "max_repeats"])
    rule = text(given.get("rule", "argmax"), "/select/rule", choices=("argmax", "random"))
    repeats = given.get("max_repeats")
    return Select(
        rule="random" if rule == "random" else "argmax",
        tie_tol=number(given.get("tie_tol", 1e-6), "/select/tie_tol", ge=0, le=1),
        seed=whole(given.get("seed", 0), "/select/seed", ge=0),
        epsilon=number(given.get("epsilon", 0), "/select/epsilon", ge=0, le=1),
        max_repeats=None if repeats is None else whole(repeats, "/select/max_repeats", ge=1),
    )


def _budgets(rule: Rule | None) -> list[float]:
    if rule is None:
        return []
    return [rule.limit] if rule.kind == "budget" else [limit for inner in rule.rules for limit in _budgets(inner)]
