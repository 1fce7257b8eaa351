"""What a descent minimises: a loss of each member, from one step's rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from torch import Tensor

from bensemble_core.ensemble.tensors import split_extra
from bensemble_core.types import Problem, Tensors

Forward: TypeAlias = Callable[[Tensors, Tensor], Tensor]  # θ [M, ...], x -> outputs [M, B, O]


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """One step's rows for the members of a group."""

    x: Tensor  # [M, B, ...], or [B, ...] where all members see the same rows
    y: Tensor  # [M, B(, T)]
    n_rows: int  # N, what the likelihood of a batch stands for
    seeds: Sequence[int]  # [M] this step's own, for objectives that draw
    group: slice = field(default_factory=lambda: slice(None))  # which members of the run these are
    done: float = 1.0  # share of the steps before this one, for objectives that change along the way


class Objective(Protocol):
    """Loss per row of each member, [M]: −(1/N) of a log joint or a bound, N the rows of the data.

    It is given the members of `batch.group`, all at once or one at a time as the network allows, and so must not mix
    them. θ has the network's tensors and, where it is learnt, the likelihood's own noise (`split_extra`).
    """

    def __call__(self, problem: Problem, forward: Forward, theta: Tensors, batch: Batch) -> Tensor: ...


def log_joint(problem: Problem, forward: Forward, theta: Tensors, batch: Batch) -> Tensor:
    """−(1/B) Σ log p(y | x, θ) − (1/N) log p(θ): [M]."""
    weights, extra = split_extra(theta)
    loss = -problem.likelihood.log_prob(forward(weights, batch.x), batch.y, extra).mean(-1)
    return loss if problem.prior is None else loss - problem.prior.log_prob(weights) / batch.n_rows
