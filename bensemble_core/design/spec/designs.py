"""The `designs` of a spec: variables with their ranges, or a list of whole designs."""

from collections.abc import Sequence
from typing import Any

import torch

from bensemble_core.design.spec.reading import below, items, members, name, number, numbers, text, whole
from bensemble_core.design.spec.spaces import MAX_DESIGNS, Space, Variable
from bensemble_core.errors import InvalidSpec

MAX_VARIABLES = 8  # of a design


def read_designs(value: object, taken: set[str]) -> Space:
    if isinstance(value, (list, tuple)):
        return read_listed_designs(value, "/designs", taken)
    stated = members(value, "/designs")
    if not 1 <= len(stated) <= MAX_VARIABLES:
        raise InvalidSpec(f"expected 1 to {MAX_VARIABLES} design variables, got {len(stated)}", pointer="/designs")
    variables = []
    for label, given in sorted(stated.items()):
        at = below("/designs", label)
        taken.add(name(label, at, taken))
        variables.append(_variable(label, given, at))
    return Space(variables=tuple(variables))


def _variable(label: str, stated: object, at: str) -> Variable:
    given = members(stated, at, required=["type"])
    kind = text(given["type"], below(at, "type"), choices=("integer", "float", "categorical", "list", "fixed"))
    if kind == "integer":
        members(given, at, known=["type", "low", "high", "step"], required=["low", "high"])
        low, high = (whole(given[key], below(at, key)) for key in ("low", "high"))
        _ordered(low, high, at)
        step = whole(given.get("step", 1), below(at, "step"), ge=1)
        return Variable(name=label, kind="integer", low=low, high=low + (high - low) // step * step, step=step)
    if kind == "float":
        members(given, at, known=["type", "low", "high", "scale"], required=["low", "high"])
        low_, high_ = (number(given[key], below(at, key)) for key in ("low", "high"))
        _ordered(low_, high_, at, strictly=True)
        is_log = text(given.get("scale", "linear"), below(at, "scale"), choices=("linear", "log")) == "log"
        if is_log and low_ <= 0:
            raise InvalidSpec("expected a number above 0 on a log scale", pointer=below(at, "low"))
        return Variable(name=label, kind="float", low=low_, high=high_, is_log=is_log)
    if kind == "fixed":
        members(given, at, known=["type", "value"], required=["value"])
        return Variable(name=label, kind="values", values=(number(given["value"], below(at, "value")),))
    members(given, at, known=["type", "values"], required=["values"])
    entries = items(given["values"], below(at, "values"), least=1, most=MAX_DESIGNS)
    if kind == "categorical" and all(isinstance(entry, str) for entry in entries):
        labels = tuple(text(entry, below(at, "values", i)) for i, entry in enumerate(entries))
        values = [float(i) for i in range(len(labels))]
    else:
        labels, values = (), numbers(entries, below(at, "values"), most=MAX_DESIGNS)
    if len(set(labels or values)) != len(values):
        raise InvalidSpec("expected different values", pointer=below(at, "values"))
    return Variable(name=label, kind="values", values=tuple(values), labels=labels)


def _ordered(low: float, high: float, at: str, *, strictly: bool = False) -> None:
    if high < low or (strictly and high == low):
        raise InvalidSpec(f"expected a number above low = {low:g}, got {high:g}", pointer=below(at, "high"))


def read_listed_designs(value: Sequence[Any], pointer: str, taken: set[str], *, numbered: bool = False) -> Space:
    entries = items(value, pointer, least=1, most=MAX_DESIGNS)
    names = sorted(members(entries[0], below(pointer, 0)))
    if not 1 <= len(names) <= MAX_VARIABLES:
        raise InvalidSpec(
            f"expected 1 to {MAX_VARIABLES} design variables, got {len(names)}", pointer=below(pointer, 0)
        )
    for label in names:
        taken.add(name(label, below(pointer, 0, label), taken))
    columns = [
        [members(entry, below(pointer, i), known=names, required=names)[label] for i, entry in enumerate(entries)]
        for label in names
    ]
    variables, coded = [], []
    for label, column in zip(names, columns, strict=True):
        if all(isinstance(entry, str) for entry in column):
            labels = tuple(sorted({text(entry, below(pointer, i, label)) for i, entry in enumerate(column)}))
            coded.append([float(labels.index(entry)) for entry in column])
            listed = tuple(float(i) for i in range(len(labels)))
            variables.append(Variable(name=label, kind="values", values=listed, labels=labels))
        else:
            coded.append([number(entry, below(pointer, i, label)) for i, entry in enumerate(column)])
            variables.append(Variable(name=label, kind="values", values=tuple(sorted(set(coded[-1])))))
    rows = torch.tensor(coded, dtype=torch.float64).mT.contiguous()
    if len(rows.unique(dim=0)) != len(rows):  # type: ignore[no-untyped-call]
        raise InvalidSpec("expected different designs", pointer=pointer)
    if numbered:
        rows = torch.cat([rows, torch.arange(len(rows), dtype=torch.float64)[:, None]], 1)
    return Space(variables=tuple(variables), rows=rows, numbered=numbered)
