"""Where an experiment may be run: variables, constraints between them, and the list or the search that follows.

A design is a dict to the outside and a row of float64 inside, its variables in sorted order: JSON objects have no
order, so that nothing may depend on it. A label of a categorical variable is its number in the list of labels.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bensemble_core.design.spec.expressions import Expression
from bensemble_core.errors import InvalidData, InvalidSpec
from bensemble_core.options import is_number, quoted

MAX_DESIGNS = 10_000  # in a list, or enumerated
FAR = 10.0  # times its range that a design that was run may lie outside
MAX_COMBINATIONS = 1_000_000  # looked at when constraints thin them out
DESIGN = "#design"  # the number of a design, by which a likelihood table is looked up

Design: TypeAlias = Mapping[str, Any]
Row: TypeAlias = tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Variable:
    """`values` is the list of a categorical or listed variable; otherwise it runs from low to high."""

    name: str
    kind: Literal["integer", "float", "values"]
    low: float = 0.0
    high: float = 0.0
    step: int = 1
    is_log: bool = False
    values: tuple[float, ...] = ()
    labels: tuple[str, ...] = ()

    @property
    def size(self) -> float:
        if self.kind == "values":
            return len(self.values)
        return math.inf if self.kind == "float" else (self.high - self.low) // self.step + 1

    def listed(self) -> Tensor:
        if self.kind == "values":
            return torch.tensor(self.values, dtype=torch.float64)
        return torch.arange(self.low, self.high + 0.5, self.step, dtype=torch.float64)

    def from_unit(self, u: Tensor) -> Tensor:
        """[0, 1) -> a value of this variable; of an integer, the nearest."""
        if self.kind == "values":
            return self.listed()[(u * len(self.values)).long().clamp(max=len(self.values) - 1)]
        if self.kind == "integer":
            return self.low + self.step * (u * self.size).floor().clamp(max=self.size - 1)
        return self.relaxed(u).clamp(self.low, self.high)

    def to_unit(self, x: Tensor) -> Tensor:
        """The inverse, for floats and relaxed integers."""
        half, width = self._halves
        return (0.5 * (x.log() if self.is_log else x) - half) / max(width, 1e-300)

    def relaxed(self, u: Tensor) -> Tensor:
        """[0, 1] -> a real number between low and high."""
        half, width = self._halves
        x = 2 * (half + u * width)
        return x.exp() if self.is_log else x

    @cached_property
    def _halves(self) -> tuple[float, float]:
        """Half of the lower end and of the distance between the ends, which itself may be too large a number."""
        low, high = (math.log(end) if self.is_log else end for end in (self.low, self.high))
        return 0.5 * low, 0.5 * high - 0.5 * low

    def encode(self, value: Any) -> float:
        if self.labels:
            if value not in self.labels:
                raise InvalidData(f"design {self.name}: expected one of {', '.join(self.labels)}, got {quoted(value)}")
            return float(self.labels.index(value))
        if not is_number(value):
            raise InvalidData(f"design {self.name}: expected a finite number, got {quoted(value)}")
        if self.kind == "integer" and value != int(value):
            raise InvalidData(f"design {self.name}: expected a whole number, got {quoted(value)}")
        return float(value)

    def refuse_far(self, x: float) -> None:
        """What was run may lie beyond low and high, but ten times their distance away it is a slip of the pen."""
        low, high = (min(self.values), max(self.values)) if self.kind == "values" else (self.low, self.high)
        room = FAR * max(high - low, abs(low), abs(high), 1.0)
        if not self.labels and not low - room <= x <= high + room:
            raise InvalidData(
                f"design {self.name}: {x:g} is more than {FAR:g} times the declared range away from {low:g} to "
                f"{high:g}; check it, or declare a wider range in a new experiment"
            )

    def decode(self, x: float) -> Any:
        if self.labels:
            return self.labels[int(x)]
        return int(x) if self.kind == "integer" or (self.kind == "values" and x == int(x)) else x


@dataclass(frozen=True, kw_only=True, eq=False)
class Space:
    """All designs that may be proposed. `rows` are those of an explicit list of whole designs."""

    variables: tuple[Variable, ...]  # by name
    constraints: tuple[Expression, ...] = ()
    rows: Tensor | None = None  # [J, D]
    numbered: bool = False  # designs are rows of a likelihood table, and others are not known

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(variable.name for variable in self.variables)

    @cached_property
    def is_listed(self) -> bool:
        """Whether all designs can be compared; otherwise the best is searched for."""
        if self.rows is not None:
            return True
        size = math.prod(variable.size for variable in self.variables)
        return size <= MAX_DESIGNS or (bool(self.constraints) and size <= MAX_COMBINATIONS and len(self._rows) > 0)

    @cached_property
    def _rows(self) -> Tensor:
        grids = torch.meshgrid(*(variable.listed() for variable in self.variables), indexing="ij")
        rows = torch.stack([grid.flatten() for grid in grids], 1)
        rows = rows[self.admits(rows)]
        return rows if len(rows) <= MAX_DESIGNS else rows[:0]

    def all(self) -> Tensor:
        """Every design, in lexicographic order: [J, D]."""
        return self._all

    @cached_property
    def _all(self) -> Tensor:
        rows = self._rows if self.rows is None else self.rows[self.admits(self.rows)]
        if not len(rows):
            raise InvalidSpec("no design satisfies the constraints; loosen one of them", pointer="/constraints")
        return rows

    def admits(self, rows: Tensor) -> Tensor:
        """Which rows [J, D] satisfy the constraints: [J]."""
        good = torch.ones(len(rows), dtype=torch.bool)
        for constraint in self.constraints:
            good = good & constraint(self.columns(rows))
        return good

    def margins(self, rows: Tensor) -> npt.NDArray[np.float64]:
        """Numbers that are all at least 0 where designs [J, D] satisfy the constraints: [J, C]."""
        values = self.columns(rows)
        found = [margin(values).expand(len(rows)) for constraint in self.constraints for margin in constraint.margins]
        return torch.stack(found, 1).numpy() if found else np.empty((len(rows), 0))

    def columns(self, rows: Tensor) -> dict[str, Tensor]:
        """The variables of designs [..., D] by name."""
        found = dict(zip(self.names, rows.unbind(-1), strict=False))
        if self.numbered:
            found[DESIGN] = rows[..., -1]
        return found

    def from_unit(self, u: Tensor, fixed: Mapping[str, float] | None = None) -> Tensor:
        """Points of the unit cube [n, D] -> designs; fixed variables keep their value."""
        columns = [
            torch.full_like(u[:, i], fixed[v.name]) if fixed and v.name in fixed else v.from_unit(u[:, i])
            for i, v in enumerate(self.variables)
        ]
        return torch.stack(columns, 1)

    def corners(self) -> Tensor:
        """Designs with every variable at one of its ends; of a list of whole designs, its ends: [n, D]."""
        ends = [(v.values[0], v.values[-1]) if v.kind == "values" else (v.low, v.high) for v in self.variables]
        if self.rows is not None:
            return self.rows[[0, -1]]
        return torch.tensor(list(itertools.product(*ends)), dtype=torch.float64)

    def encode(self, design: Design) -> Row:
        """A dict -> its row. Values beyond low and high are taken: what was run is what counts."""
        if not isinstance(design, Mapping) or set(design) != set(self.names):
            came = ", ".join(map(str, design)) if isinstance(design, Mapping) else type(design).__name__
            raise InvalidData(f"a design has exactly the names {', '.join(self.names)}, got {came or 'none'}")
        row = tuple(variable.encode(design[variable.name]) for variable in self.variables)
        if not self.numbered:
            return row
        assert self.rows is not None
        found = (self.rows[:, :-1] == torch.tensor(row, dtype=torch.float64)).all(1).nonzero()
        if not len(found):
            raise InvalidData(f"the table has no design {dict(design)}; choose one of its {len(self.rows)}")
        return (*row, float(found[0, 0]))

    def decode(self, row: Sequence[float]) -> dict[str, Any]:
        return {v.name: v.decode(x) for v, x in zip(self.variables, row, strict=False)}

    def partial(self, fixed: Design) -> dict[str, float]:
        """Checked values of some variables."""
        known = {variable.name: variable for variable in self.variables}
        for name in fixed:
            if name not in known:
                raise InvalidData(f"there is no design {name!r} to fix; there is {', '.join(known)}")
        found = {name: known[name].encode(value) for name, value in fixed.items()}
        for name, x in found.items():
            if not self.is_listed and not known[name].low <= x <= known[name].high:
                low, high = known[name].low, known[name].high
                raise InvalidData(f"design {name}: expected a value of {low:g} to {high:g}, got {x:g}")
        return found


def sobol(n: int, dimension: int, seed: int) -> Tensor:
    """n scrambled Sobol points inside the open unit cube, in float64: [n, dimension]."""
    if dimension == 0:
        return torch.empty(n, 0, dtype=torch.float64)
    points = torch.quasirandom.SobolEngine(dimension, scramble=True, seed=seed % 2**31).draw(n, dtype=torch.float64)  # type: ignore[no-untyped-call]
    return points.clamp(2.0**-40, 1 - 2.0**-40)


def unique_rows(rows: Tensor) -> Tensor:
    """Rows without repetition, in lexicographic order."""
    return torch.as_tensor(np.unique(rows.numpy(), axis=0))
