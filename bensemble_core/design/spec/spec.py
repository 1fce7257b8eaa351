"""An experiment stated as JSON, read into frozen dataclasses. Every refusal carries a JSON pointer.

JSON objects have no order, and databases reorder them: nothing here depends on the order of keys. `canonical` is the
text whose hash names a spec.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Any, Literal, TypeAlias, get_args

from bensemble_core.design.spec.blocks import MultivariateNormal, joint_prior
from bensemble_core.design.spec.designs import read_designs
from bensemble_core.design.spec.expressions import Expression, parse
from bensemble_core.design.spec.model import Model
from bensemble_core.design.spec.outcomes import read_outcomes, read_table
from bensemble_core.design.spec.parameters import Block, read_parameters
from bensemble_core.design.spec.reading import WHOLE, Json
from bensemble_core.design.spec.spaces import Space

MAX_LETS = 32
MAX_CONSTRAINTS = 16
MAX_RULES = 32
MAX_DEPTH = 8  # of rules within rules
MAX_TEXT = 10_000  # characters of a description

STATED = ("parameters", "designs", "outcome")  # what a table replaces
OPTIONAL: dict[str, Any] = {
    "name": "",
    "description": "",
    "instructions": "",
    "targets": None,
    "constraints": [],
    "cost": 1,
    "utility": None,
    "stop": None,
    "select": {},
}
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
    stated, taken = Json(source), set[str]()
    blocks: list[Block]
    lets: dict[str, Expression]
    if "table" in stated.members():
        for key in (*STATED, "let"):
            if key in stated.value:
                raise stated.inside(key).refuse(f"a table replaces {key}; state one of the two")
        given = stated.fields("table", **OPTIONAL)
        points, space, outcome = read_table(given["table"], taken)
        blocks, lets, outcomes = [points], {}, [outcome]
        degrees = _degrees(blocks, space)
    else:
        given = stated.fields(*STATED, **OPTIONAL, let={}, table=None)
        blocks = read_parameters(given["parameters"], taken)
        space = read_designs(given["designs"], taken)
        degrees = _degrees(blocks, space)
        lets = _lets(given["let"], degrees, taken)
        degrees |= {label: made.degree for label, made in lets.items()}
        outcomes = read_outcomes(given["outcome"], degrees, taken)
    names = [label for block in blocks for label in block.names]
    free = dict.fromkeys(space.names, 0)
    given["description"].text(most=MAX_TEXT)
    constraints = given["constraints"].items(least=0, most=MAX_CONSTRAINTS)
    utility = given["utility"]
    everything = {**degrees, **dict.fromkeys([variable.name for variable in outcomes], 2)}
    model = Model(
        prior=joint_prior(blocks, _targets(given["targets"], names, blocks)),
        space=replace(
            space,
            constraints=tuple(parse(c.value, degrees=free, pointer=c.pointer, truth=True) for c in constraints),
        ),
        lets=tuple(lets.items()),
        outcomes=tuple(outcomes),
        cost=parse(given["cost"].value, degrees=free, pointer="/cost"),
        utility=None if utility.value is None else parse(utility.value, degrees=everything, pointer="/utility"),
    )
    return Spec(
        name=given["name"].text(),
        model=model,
        instructions=given["instructions"].text(most=MAX_TEXT),
        stop=None if given["stop"].value is None else _rule(given["stop"], names, [0]),
        select=_select(given["select"]),
        source=stated.value,
    )


def canonical(source: Mapping[str, Any]) -> str:
    """One text for one spec: keys sorted, whole floats as integers, no spaces."""
    return json.dumps(_plain(source), sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < WHOLE else value
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    return value


def _degrees(blocks: Sequence[Block], space: Space) -> dict[str, int]:
    """In the parameters, of the names that expressions can use: 1 for a parameter, 0 for a design."""
    return {**{label: 1 for block in blocks for label in block.names}, **dict.fromkeys(space.names, 0)}


def _targets(stated: Json, names: Sequence[str], blocks: Sequence[Block]) -> list[str]:
    if stated.value is None:
        return list(names)
    found: list[str] = []
    for entry in stated.items(most=len(names)):
        target = entry.text(choices=sorted(names))
        if target in found:
            raise entry.refuse("named twice")
        found.append(target)
    joint = [set(block.names) for block in blocks if isinstance(block, MultivariateNormal)]
    if sum(bool(held & set(found)) and not held <= set(found) for held in joint) > 1:
        raise stated.refuse("at most one multivariate_normal may hold targets and other parameters; join them into one")
    return found


def _lets(stated: Json, degrees: Mapping[str, int], taken: set[str]) -> dict[str, Expression]:
    """Definitions in an order in which each uses only those before it."""
    given = dict(stated.named("definitions", taken, least=0, most=MAX_LETS))
    known = {**dict.fromkeys(given, 2), **degrees}
    needs = {
        label: sorted(parse(value.value, degrees=known, pointer=value.pointer).names & given.keys())
        for label, value in given.items()
    }
    try:
        order = list(TopologicalSorter(needs).static_order())
    except CycleError as reason:
        cycle = sorted(set(reason.args[1]))
        raise given[cycle[0]].refuse(f"defined by itself, through {', '.join(cycle)}") from None
    found: dict[str, Expression] = {}
    for label in order:
        found[label] = parse(given[label].value, degrees=known, pointer=given[label].pointer)
        known[label] = found[label].degree
    return found


def _rule(stated: Json, names: Sequence[str], count: list[int], depth: int = 0) -> Rule:
    """{"any": […]}, {"all": […]}, or a leaf; {"sd": {a: …, b: …}} asks for both."""
    count[0] += 1
    if count[0] > MAX_RULES or depth > MAX_DEPTH:
        raise stated.refuse(f"at most {MAX_RULES} rules, nested {MAX_DEPTH} deep")
    given = stated.fields(**dict.fromkeys((*get_args(Kind), *OLD_KINDS)))
    if len(stated.value) != 1:
        raise stated.refuse(f"expected one of {', '.join(get_args(Kind))}; combine rules with any or all")
    (key,) = stated.value
    kind, limit = OLD_KINDS.get(key, key), given[key]
    if kind in ("any", "all"):
        rules = [_rule(entry, names, count, depth + 1) for entry in limit.items(most=MAX_RULES)]
        return Rule(kind=kind, rules=tuple(rules))
    if kind == "sd":
        given = limit.fields(**dict.fromkeys(sorted(names)))
        leaves = [Rule(kind="sd", parameter=name, limit=given[name].number(gt=0)) for name in sorted(limit.value)]
        if not leaves:
            raise limit.refuse("expected a parameter and its limit")
        return leaves[0] if len(leaves) == 1 else Rule(kind="all", rules=tuple(leaves))
    return Rule(kind=kind, limit=limit.whole(ge=1) if kind == "max_trials" else limit.number(gt=0))


def _select(stated: Json) -> Select:
    given = stated.fields(rule="argmax", tie_tol=1e-6, seed=0, epsilon=0, max_repeats=None)
    rule: Any = given["rule"].text(choices=("argmax", "random"))
    return Select(
        rule=rule,
        tie_tol=given["tie_tol"].number(ge=0, le=1),
        seed=given["seed"].whole(ge=0),
        epsilon=given["epsilon"].number(ge=0, le=1),
        max_repeats=None if given["max_repeats"].value is None else given["max_repeats"].whole(ge=1),
    )


def _budgets(rule: Rule | None) -> list[float]:
    if rule is None:
        return []
    return [rule.limit] if rule.kind == "budget" else [limit for inner in rule.rules for limit in _budgets(inner)]
