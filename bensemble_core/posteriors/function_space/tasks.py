"""Tasks to learn over, some at each step: rows of the data by their task, or draws from a Gaussian process."""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from bensemble_core.errors import InvalidData
from bensemble_core.likelihoods import HeteroscedasticGaussian
from bensemble_core.randomness import generator
from bensemble_core.types import Data, Problem

AROUND = 0.5  # sd of a drawn input about a row, in standardised units
_JITTER = 1e-6  # of the process's own variance, added to its covariance


@dataclass(frozen=True, kw_only=True, eq=False)
class Split:
    """One step's tasks, each split in two at random; B tasks of at most P rows."""

    x: Tensor  # [B, P, D]
    y: Tensor  # [B, P, T]
    is_context: Tensor  # [B, P]
    is_target: Tensor  # [B, P], none of the context; where neither is, there is no row


class Tasks(Protocol):
    """A source of tasks."""

    @property
    def count(self) -> int:
        """Of an epoch."""
        ...

    @property
    def marks(self) -> Tensor:
        """Numbers by which a resumed training knows its rows again: [count, ...]."""
        ...

    def split(self, tasks: Tensor, seed: int) -> Split: ...


@runtime_checkable
class Process(Protocol):
    """A prior over functions, in the units of x and y handed in: `bc.GP`."""

    def mean(self, x: Tensor) -> Tensor:
        """[N, D] -> [N, T], or what broadcasts to it."""
        ...

    def gram(self, a: Tensor, b: Tensor) -> Tensor:
        """Covariance of one target: [N1, D], [N2, D] -> [N1, N2]."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class TasksOfRows:
    """Tasks of the data with two rows or more, sorted by task; a step uses at most `rows` of each."""

    x: Tensor  # [N, D]
    y: Tensor  # [N, T]
    start: Tensor  # [K] where a task's rows begin
    size: Tensor  # [K]
    rows: int

    @classmethod
    def of(cls, data: Data, *, rows: int) -> "TasksOfRows":
        """Raise unless there are two tasks to learn over."""
        task = torch.zeros(data.n_rows, dtype=torch.int64) if data.task is None else data.task.to("cpu", torch.int64)
        order = torch.argsort(task, stable=True)
        _, size = torch.unique_consecutive(task[order], return_counts=True)
        start = size.cumsum(0) - size
        enough = size >= 2
        if int(enough.sum()) < 2:
            raise InvalidData(
                f"neural_process learns over tasks, and these rows have {int(enough.sum())} with two rows or more; "
                "pass Data(x=…, y=…, task=…) with the rows of other tasks as 1, 2, … (over REST: pools with purpose "
                "'task'), draw tasks from a Gaussian process with prior=bc.GP(…), or use gp, which needs one task"
            )
        own = order.to(data.x.device)
        return cls(x=data.x.flatten(1)[own], y=data.y[own], start=start[enough], size=size[enough], rows=rows)

    @property
    def count(self) -> int:
        return len(self.size)

    @property
    def marks(self) -> Tensor:
        """A random product with each task's rows: [K, 1]."""
        both = torch.cat([self.x, self.y], 1).cpu().double()
        along = torch.randn(both.shape, generator=generator(0), dtype=torch.float64)
        sums = torch.cat([torch.zeros(1, dtype=torch.float64), (both * along).sum(1).cumsum(0)])
        return (sums[self.start + self.size] - sums[self.start])[:, None]

    def split(self, tasks: Tensor, seed: int) -> Split:
        rng = generator(seed)
        start, size = self.start[tasks], self.size[tasks]
        order = torch.rand(len(tasks), int(size.max()), generator=rng)
        order[torch.arange(order.shape[1]) >= size[:, None]] = 2.0  # behind all rows that are there
        used = size.clamp(max=self.rows)
        chosen = order.argsort(1)[:, : int(used.max())]
        rows = (start[:, None] + chosen.minimum(size[:, None] - 1)).to(self.x.device)
        return _split(self.x[rows], self.y[rows], used, rng)


@dataclass(frozen=True, kw_only=True, eq=False)
class TasksOfProcess:
    """Tasks drawn from a prior over functions with noise, at inputs drawn about the rows of the data."""

    process: Process
    noise: float  # sd, in units of y
    problem: Problem
    likelihood: HeteroscedasticGaussian
    centres: Tensor  # [N, D] standardised rows
    rows: int
    count: int

    @property
    def marks(self) -> Tensor:
        """The rows' sums, for each task: [count, D]."""
        return self.centres.cpu().double().sum(0).expand(self.count, -1)

    def split(self, tasks: Tensor, seed: int) -> Split:
        rng, n = generator(seed), len(tasks)
        x = inputs_around(self.centres, n * self.rows, rng).reshape(n, self.rows, -1)
        scaling = self.problem.scaling
        flat = x.reshape(n * self.rows, *self.problem.model.input_shape)
        raw = (flat if scaling is None else flat * scaling.scale + scaling.mean).reshape(x.shape).double()
        covariance = torch.stack([self.process.gram(own, own) for own in raw])  # [B, P, P]
        variance = self.noise**2 + _JITTER * covariance.diagonal(dim1=-2, dim2=-1)
        root = torch.linalg.cholesky(covariance + torch.diag_embed(variance))
        n_targets = len(self.likelihood.mean)
        white = torch.randn(n, self.rows, n_targets, generator=rng, dtype=torch.float64).to(root)
        y = root @ white + torch.stack([self._mean(own, n_targets) for own in raw])
        y = (y - y.new_tensor(self.likelihood.mean)) / y.new_tensor(self.likelihood.scale)
        return _split(x, y.to(x), torch.full((n,), self.rows), rng)

    def _mean(self, x: Tensor, n_targets: int) -> Tensor:
        mean = self.process.mean(x).to(x)
        return (mean[:, None] if mean.ndim == 1 else mean).expand(len(x), n_targets)


def inputs_around(centres: Tensor, n: int, rng: torch.Generator) -> Tensor:
    """Rows at random, moved by N(0, ½²) in standardised units: [n, D]."""
    chosen = torch.randint(len(centres), (n,), generator=rng)
    moved = torch.randn(n, centres.shape[1], generator=rng, dtype=centres.dtype)
    return centres[chosen.to(centres.device)] + AROUND * moved.to(centres.device)


def _split(x: Tensor, y: Tensor, used: Tensor, rng: torch.Generator) -> Split:
    """The first rows of each task, which are in random order, as its context: from 1 to all but one of them."""
    n_context = 1 + (torch.rand(len(used), generator=rng) * (used - 1)).long()
    at = torch.arange(x.shape[1])
    is_context = at < n_context[:, None]
    is_target = (at < used[:, None]) & ~is_context
    return Split(x=x, y=y, is_context=is_context.to(x.device), is_target=is_target.to(x.device))


def process_of(prior: Any) -> Process | None:
    """A prior that tasks can be drawn from, or None."""
    return prior if isinstance(prior, Process) else None
