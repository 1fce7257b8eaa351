"""The `outcome` of a spec, read into families with their arguments; and a likelihood uploaded as a table."""

from collections.abc import Mapping
from typing import Any

import torch

from bensemble_core.design.spec.blocks import POINT, Listed
from bensemble_core.design.spec.continuous import CONTINUOUS
from bensemble_core.design.spec.designs import read_listed_designs
from bensemble_core.design.spec.expressions import Expression, parse, stacked
from bensemble_core.design.spec.families import DISCRETE, Table
from bensemble_core.design.spec.model import Variable
from bensemble_core.design.spec.parameters import MAX_PARAMETERS, MAX_SAMPLES
from bensemble_core.design.spec.reading import Json
from bensemble_core.design.spec.spaces import DESIGN, MAX_DESIGNS, Space

MAX_OUTCOMES = 4  # outcome variables of one trial
MAX_CLASSES = 64
MAX_TABLE = 5_000_000  # cells of an uploaded likelihood

FAMILIES: dict[str, Any] = {**DISCRETE, **CONTINUOUS}


def read_outcomes(stated: Json, degrees: Mapping[str, int], taken: set[str]) -> list[Variable]:
    return [_outcome(label, given, degrees) for label, given in stated.named("outcomes", taken, most=MAX_OUTCOMES)]


def _outcome(label: str, stated: Json, degrees: Mapping[str, int]) -> Variable:
    name = stated.choice("family", FAMILIES)
    family = FAMILIES[name]
    known = dict.fromkeys(key for way in family.signatures for key in way)
    given = stated.fields("family", **dict.fromkeys(known), labels=None)
    keys = [key for key in sorted(known) if key in stated.value]
    if set(keys) not in map(set, family.signatures):
        expected = " or ".join(", ".join(way) for way in family.signatures)
        raise stated.refuse(f"{name} takes {expected}; got {', '.join(keys) or 'none'}")
    n_classes = 2 if name == "bernoulli" else 0
    arguments: dict[str, Expression] = {}
    for key in keys:
        if key in family.lists:
            entries = given[key].items(least=1 if key == "cuts" else 2, most=MAX_CLASSES)
            arguments[key] = stacked([parse(e.value, degrees=degrees, pointer=e.pointer) for e in entries])
            n_classes = len(entries) + (key == "cuts")
        else:
            arguments[key] = parse(given[key].value, degrees=degrees, pointer=given[key].pointer)
        if key in family.fixed and arguments[key].degree:
            raise given[key].refuse(f"{key} may depend on designs, not on parameters")
    labels = given["labels"].labels(most=MAX_CLASSES)
    if labels and not n_classes:
        raise given["labels"].refuse(f"{name} has no classes to label")
    if labels and len(labels) != n_classes:
        raise given["labels"].refuse(f"expected a label for each of {n_classes} classes, got {len(labels)}")
    return Variable(name=label, family=family, arguments=arguments, n_classes=n_classes or None, labels=labels)


def read_table(stated: Json, taken: set[str]) -> tuple[Listed, Space, Variable]:
    """Prior points, the list of designs, and the outcome y of a likelihood p[design, point, outcome]."""
    given = stated.fields("parameters", "designs", "outcomes", "probs", prior=None)
    columns: dict[str, list[float]] = {}
    n_points = None
    for label, column in given["parameters"].named("parameters", taken, most=MAX_PARAMETERS):
        columns[label] = column.numbers(least=n_points or 1, most=n_points or MAX_SAMPLES)
        n_points = len(columns[label])
    assert n_points is not None
    n_designs = len(given["designs"].entries(most=MAX_DESIGNS))
    labels = given["outcomes"].labels(most=MAX_CLASSES)
    if n_designs * n_points * len(labels) > MAX_TABLE:
        raise given["probs"].refuse(f"a table has at most {MAX_TABLE:,} cells")
    probs = torch.tensor(
        [
            rows.matrix(rows=n_points, columns=len(labels), ge=0)
            for rows in given["probs"].items(least=n_designs, most=n_designs)
        ],
        dtype=torch.float64,
    )
    wrong = ((probs.sum(2) - 1).abs() > 1e-6).nonzero().tolist()
    if wrong:
        j, p = wrong[0]
        raise given["probs"].inside(j).inside(p).refuse("expected probabilities that sum to 1")
    points = Listed(
        names=tuple(columns),
        values=torch.tensor(list(columns.values()), dtype=torch.float64).mT.contiguous(),
        log_weights=torch.tensor(given["prior"].probabilities(n_points), dtype=torch.float64).log(),
        numbered=True,
    )
    stated.add_name("y", taken)
    space = read_listed_designs(given["designs"], taken, numbered=True)
    family: Any = Table((probs / probs.sum(2, keepdim=True)).log())
    arguments = {"design": _hidden(DESIGN), "point": _hidden(POINT)}
    return points, space, Variable(name="y", family=family, arguments=arguments, n_classes=len(labels), labels=labels)


def _hidden(name: str) -> Expression:
    """The value of a name that no expression can use."""
    return Expression(run=lambda values: values[name], degree=0)
