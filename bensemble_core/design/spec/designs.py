"""The `designs` of a spec: variables with their ranges, or a list of whole designs."""

from collections.abc import Callable

import torch

from bensemble_core.design.spec.reading import Json
from bensemble_core.design.spec.spaces import MAX_DESIGNS, Space, Variable

MAX_VARIABLES = 8  # of a design


def read_designs(stated: Json, taken: set[str]) -> Space:
    if isinstance(stated.value, (list, tuple)):
        return read_listed_designs(stated, taken)
    variables = stated.named("design variables", taken, most=MAX_VARIABLES)
    return Space(variables=tuple(TYPES[given.choice("type", TYPES)](label, given) for label, given in variables))


def _integer(label: str, stated: Json) -> Variable:
    given = stated.fields("type", "low", "high", step=1)
    low, high, step = given["low"].whole(), given["high"].whole(), given["step"].whole(ge=1)
    if high < low:
        raise given["high"].refuse(f"expected a number above low = {low:g}, got {high:g}")
    return Variable(name=label, kind="integer", low=low, high=low + (high - low) // step * step, step=step)


def _float(label: str, stated: Json) -> Variable:
    given = stated.fields("type", "low", "high", scale="linear")
    low, high = given["low"].number(), given["high"].number()
    if high <= low:
        raise given["high"].refuse(f"expected a number above low = {low:g}, got {high:g}")
    is_log = given["scale"].text(choices=("linear", "log")) == "log"
    if is_log and low <= 0:
        raise given["low"].refuse("expected a number above 0 on a log scale")
    return Variable(name=label, kind="float", low=low, high=high, is_log=is_log)


def _fixed(label: str, stated: Json) -> Variable:
    return Variable(name=label, kind="values", values=(stated.fields("type", "value")["value"].number(),))


def _values(label: str, stated: Json) -> Variable:
    """A list of numbers, or a categorical's texts, each of which is its place in the list."""
    given = stated.fields("type", "values")
    entries = given["values"].items(most=MAX_DESIGNS)
    labels: tuple[str, ...] = ()
    if given["type"].value == "categorical" and all(isinstance(entry.value, str) for entry in entries):
        labels = tuple(entry.text() for entry in entries)
    values = [float(i) for i in range(len(labels))] or given["values"].numbers(most=MAX_DESIGNS)
    if len(set(labels or values)) < len(values):
        raise given["values"].refuse("expected different values")
    return Variable(name=label, kind="values", values=tuple(values), labels=labels)


TYPES: dict[str, Callable[[str, Json], Variable]] = {
    "integer": _integer,
    "float": _float,
    "categorical": _values,
    "list": _values,
    "fixed": _fixed,
}


def read_listed_designs(stated: Json, taken: set[str], *, numbered: bool = False) -> Space:
    """Whole designs, one an entry; `numbered` ones also keep their number, by which a table is looked up."""
    entries = stated.items(most=MAX_DESIGNS)
    names = [label for label, _ in entries[0].named("design variables", taken, most=MAX_VARIABLES)]
    designs = [entry.fields(*names) for entry in entries]
    variables, columns = [], []
    for label in names:
        column = [design[label] for design in designs]
        if all(isinstance(entry.value, str) for entry in column):
            texts = [entry.text() for entry in column]
            labels = tuple(sorted(set(texts)))
            numbers = [float(labels.index(text)) for text in texts]
        else:
            labels, numbers = (), [entry.number() for entry in column]
        variables.append(Variable(name=label, kind="values", values=tuple(sorted(set(numbers))), labels=labels))
        columns.append(numbers)
    if len(set(zip(*columns, strict=True))) < len(entries):
        raise stated.refuse("expected different designs")
    if numbered:
        columns.append([float(i) for i in range(len(entries))])
    rows = torch.tensor(columns, dtype=torch.float64).mT.contiguous()
    return Space(variables=tuple(variables), rows=rows, numbered=numbered)
