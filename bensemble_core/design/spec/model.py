"""A stated model: prior, designs, and p(y | θ, ξ) as families whose arguments are expressions."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bensemble_core.design.deadline import check
from bensemble_core.design.spec.blocks import JointPrior
from bensemble_core.design.spec.continuous import CONTINUOUS
from bensemble_core.design.spec.expressions import Expression
from bensemble_core.design.spec.families import Arguments
from bensemble_core.design.spec.spaces import Row, Space
from bensemble_core.errors import InvalidData, InvalidSpec
from bensemble_core.options import is_number, quoted

Outcome: TypeAlias = Mapping[str, Any]
Observation: TypeAlias = tuple[Mapping[str, Any], Outcome]
Event: TypeAlias = tuple[Row, Row]  # an observation, checked: design and outcome as numbers, names sorted

DEAREST = 1e100  # cost of a design, and the least is as far below 1
N_SEEN = 10_000  # designs and outcomes that are remembered as checked


@dataclass(frozen=True, kw_only=True, eq=False)
class Variable:
    """One outcome: a family and its arguments."""

    name: str
    family: Any  # a DiscreteFamily or ContinuousFamily
    arguments: Mapping[str, Expression]
    n_classes: int | None = None  # how many classes an outcome is one of; None for counts and numbers
    labels: tuple[str, ...] = ()

    @cached_property
    def ends(self) -> tuple[float | None, float | None]:
        """The least and the greatest outcome, where there is one at every design and parameter."""
        low, high = self.family.support
        n = self.arguments.get("n")  # of trials, in a binomial
        return low, float(n({})) if n is not None and not n.names else high

    def evaluate(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: expression(values) for name, expression in self.arguments.items()}

    def encode(self, value: Any) -> float:
        if self.labels and value in self.labels:
            return float(self.labels.index(value))
        if self.labels and value not in range(len(self.labels)):
            raise InvalidData(f"outcome {self.name}: expected one of {', '.join(self.labels)}, got {quoted(value)}")
        if not isinstance(value, bool) and not is_number(value):
            raise InvalidData(f"outcome {self.name}: expected a finite number, got {quoted(value)}")
        number = float(value)
        if (expected := self.family.admits(number)) is not None:
            raise InvalidData(f"outcome {self.name}: expected {expected}, got {quoted(value)}")
        return number

    def decode(self, y: float) -> Any:
        if self.labels:
            return self.labels[int(y)]
        return int(y) if self.family.is_discrete else y


@dataclass(frozen=True, kw_only=True, eq=False)
class Model:
    """p(θ), ξ and p(y | θ, ξ) = Π p(y_i | θ, ξ) over the outcome variables."""

    prior: JointPrior
    space: Space
    lets: tuple[tuple[str, Expression], ...]  # each after those that it uses
    outcomes: tuple[Variable, ...]  # by name
    cost: Expression
    utility: Expression | None = None

    @cached_property
    def is_discrete(self) -> bool:
        return all(variable.family.is_discrete for variable in self.outcomes)

    @cached_property
    def is_linear_gaussian(self) -> bool:
        """Normal outcomes whose means are affine in the parameters and whose sds do not depend on them.

        A utility may be anything, and is averaged over points.
        """
        if self.utility is not None or not self.prior.is_gaussian:
            return False
        return all(
            v.family is CONTINUOUS["normal"] and v.arguments["mean"].degree <= 1 and v.arguments["sd"].degree == 0
            for v in self.outcomes
        )

    def values(self, theta: Mapping[str, Tensor], rows: Tensor) -> dict[str, Tensor]:
        """Everything an expression may name: θ by name, designs [..., D] that broadcast against them, and the lets."""
        found = {**theta, **self.space.columns(rows)}
        for name, expression in self.lets:
            check()
            found[name] = expression(found)
        return found

    def arguments(self, theta: Mapping[str, Tensor], rows: Tensor) -> list[dict[str, Tensor]]:
        """Arguments of each outcome's family."""
        check()
        values = self.values(theta, rows)
        return [variable.evaluate(values) for variable in self.outcomes]

    def log_likelihood(self, theta: Mapping[str, Tensor], event: Event) -> Tensor:
        """log p(y | θ, ξ) of one observation at points θ [P]: [P]; NaN where the model is not defined."""
        row, outcome = event
        total = torch.zeros(len(next(iter(theta.values()))), dtype=torch.float64)
        arguments = self.arguments(theta, torch.tensor(row, dtype=torch.float64))
        for variable, found, y in zip(self.outcomes, arguments, outcome, strict=True):
            total = total + variable.family.log_prob(found, torch.tensor(y, dtype=torch.float64))
            for _, wrong, _ in variable.family.faults(found):
                if wrong.numpy().any():
                    total = torch.where(wrong, math.nan, total)
        return total

    def draw(self, theta: Mapping[str, Tensor], rows: Tensor, u: Tensor) -> Tensor:
        """Outcomes [..., O] by inversion of uniforms u [..., O]; θ and designs broadcast against u's leading axes."""
        drawn = [
            variable.family.quantile(arguments, u[..., i])
            for i, (variable, arguments) in enumerate(zip(self.outcomes, self.arguments(theta, rows), strict=True))
        ]
        return torch.stack(torch.broadcast_tensors(*drawn), -1)  # type: ignore[no-untyped-call]

    def log_prob(self, arguments: Sequence[Arguments], y: Tensor) -> Tensor:
        """Σ over the outcome variables of log p(y_i): y [..., O] broadcasts against the arguments."""
        check()
        terms = [v.family.log_prob(a, y[..., i]) for i, (v, a) in enumerate(zip(self.outcomes, arguments, strict=True))]
        return torch.stack(torch.broadcast_tensors(*terms)).sum(0)  # type: ignore[no-untyped-call]

    def event(self, observation: Observation) -> Event:
        """An observation, checked."""
        try:
            design, outcome = observation
        except (TypeError, ValueError):
            raise InvalidData("an observation is a pair (design, outcome)") from None
        return self._row(design), self._outcome(outcome)

    def events(self, observations: Sequence[Observation]) -> tuple[Event, ...]:
        """Observations, checked: those seen lately are known by names, values and types, as True is not 1."""
        row, outcome = self._seen
        try:
            return tuple([(row(**design), outcome(**found)) for design, found in observations])
        except (TypeError, ValueError):  # no pairs, no dicts, or a value without a hash: to be told which
            return tuple(self.event(observation) for observation in observations)

    @cached_property
    def _seen(self) -> tuple[Callable[..., Row], Callable[..., Row]]:
        """Caches of `_row` and `_outcome`, as every call hands in all observations: 1000 of them in 0.5 ms, not 11."""
        remember = lru_cache(N_SEEN, typed=True)
        return remember(lambda **design: self._row(design)), remember(lambda **outcome: self._outcome(outcome))

    def _row(self, design: Mapping[str, Any]) -> Row:
        """A design that was run, checked, with 0 for -0, which is the same key."""
        row = self.space.encode(design)
        for variable, x in zip(self.space.variables, row, strict=False):
            variable.refuse_far(x)
        return tuple(x + 0.0 for x in row)

    def _outcome(self, outcome: Outcome) -> Row:
        """An outcome, checked."""
        names = [variable.name for variable in self.outcomes]
        if not isinstance(outcome, Mapping) or set(outcome) != set(names):
            came = ", ".join(map(str, outcome)) if isinstance(outcome, Mapping) else type(outcome).__name__
            raise InvalidData(f"an outcome has exactly the names {', '.join(names)}, got {came or 'none'}")
        return tuple(v.encode(outcome[v.name]) + 0.0 for v in self.outcomes)

    @cached_property
    def listed_costs(self) -> npt.NDArray[np.float64]:
        """Cost of each design of a list: [J]."""
        return np.asarray(self.costs(self.space.all()).numpy())

    def costs(self, rows: Tensor) -> Tensor:
        """Cost of each design: [J, D] -> [J]."""
        cost = self.cost(self.space.columns(rows)).expand(len(rows))
        bad = (~((cost >= 1 / DEAREST) & (cost <= DEAREST))).nonzero()
        if len(bad):
            first = int(bad[0])
            came = f"not so at {self.space.decode(rows[first].tolist())}" if self.cost.names else f"got {cost[first]:g}"
            raise InvalidSpec(
                f"a cost is a number above 0, from {1 / DEAREST:g} to {DEAREST:g}, {came}", pointer="/cost"
            )
        return cost

    def spent(self, used: Mapping[Row, int]) -> float:
        """Cost of all designs that were run, so many times each."""
        if not used:
            return 0.0
        costs = self.costs(torch.tensor(list(used), dtype=torch.float64)).tolist()
        return math.fsum(cost * n for cost, n in zip(costs, used.values(), strict=True))

    def faults(self, theta: Mapping[str, Tensor], rows: Tensor) -> Iterator[tuple[str, Tensor, str]]:
        """What is wrong where: a JSON pointer, a mask over the pairs of θ [n] and designs [n, D], what is expected."""
        check()
        values = self.values(theta, rows)
        shape = (len(rows),)
        for variable in self.outcomes:
            for name, wrong, expected in variable.family.faults(variable.evaluate(values)):
                yield f"/outcome/{variable.name}/{name}", wrong.expand(shape), expected
        if self.utility is not None:
            u = torch.full((len(rows), len(self.outcomes)), 0.5, dtype=torch.float64)
            y = self.draw(theta, rows, u)
            named = {**values, **dict(zip((v.name for v in self.outcomes), y.unbind(-1), strict=True))}
            yield "/utility", ~self.utility(named).isfinite().expand(shape), "a finite number"


def readable(point: Mapping[str, Any]) -> str:
    """A point of parameters or designs, in a sentence."""
    shown = {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in point.items()}
    return ", ".join(f"{name} = {value}" for name, value in shown.items())
