"""The log posterior of many draws at once, θ as one matrix [C, P]: what chains sample and draws are weighed by."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from bensemble_core.ensemble.members import Members, gather, plan
from bensemble_core.ensemble.tensors import split_extra
from bensemble_core.likelihoods import LOG_NOISE
from bensemble_core.posteriors.recording import Function, record
from bensemble_core.priors import PRIORS
from bensemble_core.randomness import borrowed, generator
from bensemble_core.types import Data, Problem, Shapes, Tensors

_AT_ONCE = 50  # draws in a pass
_BLOCKS = 4  # a pass with gradients takes as many of the rows that a prediction would have in a block


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows of each chain, [C, B], and a seed of each chain for whatever changes them as they are read."""

    rows: Tensor
    seeds: Sequence[int]


class Target(Protocol):
    """A log density known up to a constant, and its gradient; of all rows, or of a batch."""

    def __call__(self, theta: Tensor, batch: Batch | None = None) -> tuple[Tensor, Tensor]:
        """θ [C, P] -> log p [C], ∇ log p [C, P]. Of a batch N/B times its likelihood stands for that of all N rows."""
        ...

    def log_density(self, theta: Tensor) -> Tensor:
        """θ [C, P] -> log p [C], of all rows."""
        ...


@dataclass(frozen=True)
class Layout:
    """Named tensors side by side in one row of P numbers."""

    shapes: Mapping[str, tuple[int, ...]]  # of one chain

    @classmethod
    def of(cls, tensors: Tensors) -> "Layout":
        """The layout of tensors with a leading axis of chains."""
        return cls({name: tuple(t.shape[1:]) for name, t in tensors.items()})

    @property
    def size(self) -> int:
        return sum(torch.Size(shape).numel() for shape in self.shapes.values())

    def join(self, tensors: Tensors) -> Tensor:
        """Named [C, ...] -> [C, P]."""
        return torch.cat([tensors[name].flatten(1) for name in self.shapes], 1)

    def split(self, flat: Tensor) -> dict[str, Tensor]:
        """[C, P] -> named views [C, ...]."""
        parts = torch.split(flat, [torch.Size(shape).numel() for shape in self.shapes.values()], 1)
        return {
            name: part.view(len(flat), *shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }

    def under(self, prefix: str, leading: Mapping[str, int]) -> Shapes:
        """Shapes of the tensors with a prefix to their names and a leading axis of their own."""
        return {prefix + name: (leading.get(name, 1), *shape) for name, shape in self.shapes.items()}


class LogPosterior:
    """log p(y | x, θ) + log p(θ) over all rows, in blocks of rows that keep activations in the cache.

    A learnt noise has the prior σ / sd(y) ~ |N(0, 1)|: under a flat one, which optimisers have, the posterior of a
    network that can interpolate has no finite mass. Layers run as in prediction: no dropout, and batch normalisation
    by the statistics it has. `tick` is called after every block. What is `shared` is the same in every chain, [...],
    also the likelihood's own, which then has no prior: a trunk of such weights is computed once for all of them. θ may
    be wider than the network's dtype: it is rounded for the network alone, and sums are in its own.
    """

    def __init__(
        self, problem: Problem, data: Data, theta: Tensors, fixed: Tensors, shared: Tensors | None = None
    ) -> None:
        if data.x.ndim == 2:  # by columns: the gradient of a first layer takes a quarter of the time
            data = replace(data, x=data.x.mT.contiguous().mT)
        self.problem, self.data = problem, data
        self.fixed = fixed  # [C, ...] buffers and frozen parameters
        self.layout = Layout.of(theta)
        self.tick: Callable[[], None] = lambda: None
        self.shared, self.extra = split_extra(shared or {})
        weights = {k: v.to(problem.dtype) for k, v in split_extra(theta)[0].items()}
        # a trial run in training mode would write to buffers that are shared
        self.members: Members = gather(problem, {**weights, **fixed}, self.shared, training=not self.shared)
        self.members.module.eval()
        self.block: int = _BLOCKS * plan(problem, {**weights, **fixed}, self.shared, None).rows
        self._recorded: tuple[torch.Size, Function | None] | None = None

    def __call__(self, theta: Tensor, batch: Batch | None = None) -> tuple[Tensor, Tensor]:
        """θ [C, P] -> log p [C], ∇ log p [C, P]."""
        recorded = self._record(theta) if batch is None else None
        if recorded is not None:
            found_at_once = recorded(theta)
            self.tick()
            return found_at_once
        n_rows = self.data.n_rows if batch is None else batch.rows.shape[1]
        x, y = (self.data.x, self.data.y) if batch is None else self._read(batch)
        scale = self.data.n_rows / max(1, n_rows)
        groups = [slice(0, len(theta))]
        if self.members.mode == "loop":  # a graph for each chain: only one is in memory at a time
            groups = [slice(c, c + 1) for c in range(len(theta))]
        total: tuple[Tensor, Tensor] | None = None
        for start in range(0, max(1, n_rows), self.block):
            part = slice(start, start + self.block)
            found = []
            for group in groups:
                rows = (x[part], y[part]) if batch is None else (x[group, part], y[group, part])
                found.append(self._value_and_slope(theta[group], group, rows, scale, with_prior=start == 0))
                self.tick()
            value, slope = (torch.cat(of_groups) for of_groups in zip(*found, strict=True))
            total = (value, slope) if total is None else (total[0] + value, total[1] + slope)
        assert total is not None
        return total

    def log_density(self, theta: Tensor, chain: int | None = None) -> Tensor:
        """θ [C, P] -> log p [C]; or draws [S, P] of one chain -> [S]."""
        fixed = self.fixed if chain is None else self._of_chain(chain, len(theta))
        with torch.no_grad():
            parts = self.layout.split(theta)
            value = self._log_prior(theta)
            for start in range(0, self.data.n_rows, self.block):
                part = slice(start, start + self.block)
                value = value + self._log_likelihood(parts, fixed, (self.data.x[part], self.data.y[part]))
                self.tick()
        return value

    def outputs(self, theta: Tensor, chain: int, x: Tensor) -> Tensor:
        """Network outputs of draws θ [S, P] of one chain for standardised rows: [S, N, O]."""
        with torch.no_grad():
            return self._run(self.layout.split(theta), self._of_chain(chain, len(theta)), x)

    def _of_chain(self, chain: int, n: int) -> dict[str, Tensor]:
        return {k: v[chain].expand(n, *v.shape[1:]) for k, v in self.fixed.items()}

    def _record(self, theta: Tensor) -> Function | None:
        """The pass over all rows as a list of operations, where one block and one graph hold it."""
        if self._recorded is None or self._recorded[0] != theta.shape:
            function = None
            if self.members.mode == "vmap" and self.data.n_rows <= self.block:
                every, rows = slice(0, len(theta)), (self.data.x, self.data.y)
                function = record(lambda t: self._value_and_slope(t, every, rows, 1.0, with_prior=True), theta)
            self._recorded = theta.shape, function
        return self._recorded[1]

    def _value_and_slope(
        self, theta: Tensor, group: slice, rows: tuple[Tensor, Tensor], scale: float, *, with_prior: bool
    ) -> tuple[Tensor, Tensor]:
        theta = theta.detach().requires_grad_()
        parts = self.layout.split(theta)
        fixed = {k: v[group] for k, v in self.fixed.items()}
        value = self._log_likelihood(parts, fixed, rows)
        if scale != 1:
            value = scale * value
        if with_prior:
            value = value + self._log_prior(theta)
        (slope,) = torch.autograd.grad(value.sum(), theta, materialize_grads=True)
        return value.detach(), slope

    def _read(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """x [C, B, ...] and y [C, B(, T)] of a batch, each chain's rows through the caller's augmentation."""
        x, y = self.data.x[batch.rows], self.data.y[batch.rows]
        if self.data.augment is not None:
            made = []
            for own, seed in zip(x, batch.seeds, strict=True):
                with borrowed(seed, x.device):
                    made.append(self.data.augment(own, generator(seed, device=x.device)))
            x = torch.stack(made)
        return x, y

    def _log_likelihood(self, parts: Tensors, fixed: Tensors, rows: tuple[Tensor, Tensor]) -> Tensor:
        """Σ log p(y | x, θ) over rows that all chains share, [B, ...], or of each its own, [C, B, ...]: [C]."""
        x, y = rows
        own_rows = x.ndim > self.data.x.ndim
        outputs = self._run(parts, fixed, x, own_rows=own_rows)
        targets = y if own_rows else y.expand(len(outputs), *y.shape)
        return self.problem.likelihood.log_prob(outputs, targets, {**self.extra, **split_extra(parts)[1]}).sum(-1)

    def _run(self, parts: Tensors, fixed: Tensors, x: Tensor, *, own_rows: bool = False) -> Tensor:
        weights = {k: v.to(self.problem.dtype) for k, v in split_extra(parts)[0].items()}
        outputs = self.members({**weights, **fixed}, self.shared, x, own_rows=own_rows)
        return outputs.to(next(iter(parts.values())).dtype)

    def _log_prior(self, theta: Tensor) -> Tensor:
        weights, extra = split_extra(self.layout.split(theta))
        value = theta.new_zeros(len(theta))
        if self.problem.prior is not None and weights:
            if type(self.problem.prior) in PRIORS.values() and not extra:  # of each weight alone: all in one tensor
                weights = {"weights": theta}
            value = self.problem.prior.log_prob(weights)
        if LOG_NOISE in extra:  # the density of log σ where σ ~ |N(0, sd(y)²)|
            spread = torch.tensor(getattr(self.problem.likelihood, "spread", (1.0,)), dtype=torch.float64)
            log_ratio = extra[LOG_NOISE] - spread.log().to(extra[LOG_NOISE])
            value = value + (log_ratio - 0.5 * (2 * log_ratio).exp()).sum(-1)
        return value


def log_likelihoods(problem: Problem, centre: Tensors, drawn: Tensors, data: Data) -> Tensor:
    """Σ_n log p(y_n | x_n, θ_s) of draws of some weights, the others and the noise as at the centre: [S, ...] -> [S].

    `centre` has no leading axis.
    """
    shared = {k: v for k, v in centre.items() if k not in drawn}
    target = LogPosterior(replace(problem, prior=None), data, {k: v[:1] for k, v in drawn.items()}, {}, shared)
    return torch.cat([target.log_density(part) for part in torch.split(target.layout.join(drawn), _AT_ONCE)])
