"""The `outcome` of a spec, read into families with their arguments; and a likelihood uploaded as a table."""

from collections.abc import Mapping
from typing import Any

import torch

from bensemble_core.design.spec.blocks import POINT, Listed
from bensemble_core.design.spec.continuous import CONTINUOUS
from bensemble_core.design.spec.expressions import Expression, parse
from bensemble_core.design.spec.families import DISCRETE, Table
from bensemble_core.design.spec.model import Variable
from bensemble_core.design.spec.parameters import MAX_PARAMETERS, MAX_SAMPLES, log_weights
from bensemble_core.design.spec.reading import below, items, matrix, members, name, numbers, text
from bensemble_core.design.spec.spaces import DESIGN, MAX_DESIGNS
from bensemble_core.errors import InvalidSpec

MAX_OUTCOMES = 4  # outcome variables of one trial
MAX_CLASSES = 64
MAX_TABLE = 5_000_000  # cells of an uploaded likelihood

FAMILIES: dict[str, Any] = {**DISCRETE, **CONTINUOUS}


def read_outcomes(value: object, pointer: str, degrees: Mapping[str, int], taken: set[str]) -> list[Variable]:
    found = []
    for label, stated in sorted(members(value, pointer).items()):
        at = below(pointer, label)
        found.append(_outcome(name(label, at, taken), stated, at, degrees))
        taken.add(label)
    if not 1 <= len(found) <= MAX_OUTCOMES:
        raise InvalidSpec(f"expected 1 to {MAX_OUTCOMES} outcomes, got {len(found)}", pointer=pointer)
    return found


def _outcome(label: str, stated: object, at: str, degrees: Mapping[str, int]) -> Variable:
    given = members(stated, at, required=["family"])
    family = FAMILIES[text(given["family"], below(at, "family"), choices=FAMILIES)]
    ways = [set(way) for way in family.signatures]
    stated_names = set(given) - {"family", "labels"}
    if stated_names not in ways:
        known = ["family", *dict.fromkeys(key for way in family.signatures for key in way), "labels"]
        members(given, at, known=known)
        expected = " or ".join(", ".join(way) for way in family.signatures)
        came = ", ".join(sorted(stated_names)) or "none"
        raise InvalidSpec(f"{given['family']} takes {expected}; got {came}", pointer=at)
    arguments: dict[str, Expression | tuple[Expression, ...]] = {}
    for key in stated_names:
        where = below(at, key)
        if key in family.lists:
            entries = items(given[key], where, least=1 if key == "cuts" else 2, most=MAX_CLASSES)
            arguments[key] = tuple(parse(e, degrees=degrees, pointer=below(where, i)) for i, e in enumerate(entries))
        else:
            made = parse(given[key], degrees=degrees, pointer=where)
            if key in family.fixed and made.degree:
                raise InvalidSpec(f"{key} may depend on designs, not on parameters", pointer=where)
            arguments[key] = made
    labels = _labels(given.get("labels"), below(at, "labels"))
    if labels:
        sizes = [len(a) + (key == "cuts") for key, a in arguments.items() if isinstance(a, tuple)]
        n_classes = sizes[0] if sizes else 2 if given["family"] == "bernoulli" else 0
        if len(labels) != n_classes:
            raise InvalidSpec(
                f"expected a label for each of {n_classes} classes, got {len(labels)}"
                if n_classes
                else f"{given['family']} has no classes to label",
                pointer=below(at, "labels"),
            )
    return Variable(name=label, family=family, arguments=dict(sorted(arguments.items())), labels=labels)


def _labels(value: object, at: str) -> tuple[str, ...]:
    if value is None:
        return ()
    found = tuple(text(v, below(at, i)) for i, v in enumerate(items(value, at, least=2, most=MAX_CLASSES)))
    if len(set(found)) != len(found):
        raise InvalidSpec("expected different labels", pointer=at)
    return found


def read_table(value: object, pointer: str, taken: set[str]) -> tuple[Listed, list[Any], Variable]:
    """Prior points, the list of designs, and the outcome y of a likelihood p[design, point, outcome]."""
    given = members(
        value,
        pointer,
        known=["parameters", "prior", "designs", "outcomes", "probs"],
        required=["parameters", "designs", "outcomes", "probs"],
    )
    at = below(pointer, "parameters")
    stated = sorted(members(given["parameters"], at).items())
    if not 1 <= len(stated) <= MAX_PARAMETERS:
        raise InvalidSpec(f"expected 1 to {MAX_PARAMETERS} parameters, got {len(stated)}", pointer=at)
    columns: list[list[float]] = []
    for label, column in stated:
        taken.add(name(label, below(at, label), taken))
        n = len(columns[0]) if columns else None
        columns.append(numbers(column, below(at, label), least=n or 1, most=n or MAX_SAMPLES))
    n_points = len(columns[0])
    designs = items(given["designs"], below(pointer, "designs"), least=1, most=MAX_DESIGNS)
    labels = _labels(given["outcomes"], below(pointer, "outcomes"))
    if len(designs) * n_points * len(labels) > MAX_TABLE:
        raise InvalidSpec(f"a table has at most {MAX_TABLE:,} cells", pointer=below(pointer, "probs"))
    at = below(pointer, "probs")
    probs = torch.tensor(
        [
            matrix(rows, below(at, j), rows=n_points, columns=len(labels), ge=0)
            for j, rows in enumerate(items(given["probs"], at, least=len(designs), most=len(designs)))
        ],
        dtype=torch.float64,
    )
    wrong = (probs.sum(2) - 1).abs() > 1e-6
    if wrong.any():
        j, p = (int(i) for i in wrong.nonzero()[0])
        raise InvalidSpec("expected probabilities that sum to 1", pointer=below(at, j, p))
    prior = log_weights(given.get("prior"), n_points, below(pointer, "prior"))
    points = Listed(
        names=tuple(label for label, _ in stated),
        values=torch.tensor(columns, dtype=torch.float64).mT.contiguous(),
        log_weights=prior,
        numbered=True,
    )
    taken.add(name("y", pointer, taken))
    family: Any = Table((probs / probs.sum(2, keepdim=True)).log())
    numbers_of = {"design": DESIGN, "point": POINT}
    arguments = {key: _number_of(hidden) for key, hidden in numbers_of.items()}
    return points, list(designs), Variable(name="y", family=family, arguments=arguments, labels=labels)


def _number_of(hidden: str) -> Expression:
    return Expression(source=hidden, names=frozenset(), degree=0, is_truth=False, run=lambda values: values[hidden])
