"""The one descent loop: all members at once, progress and cancel, resumable bit for bit.

Minimises, for each member on its own, −(1/N) [ (N/B) Σ_batch log p(y | x, θ) + log p(θ) ], or another objective with
the same signature. All randomness is a function of (member's seed, epoch or step), so a member has the same start,
rows and noise whether it is trained alone or among others, bit for bit, and a snapshot needs no generator beyond its
seed.

Its arithmetic is the same to rounding only: an operation runs over all members at once, and how a number is rounded
depends on its place there and on torch's threads. A long training magnifies that. After 100 epochs of an MLP with two
layers of 50, trained by ones or twos instead of by eights, float32 weights differed by up to .08, float64 ones by
4e-14. The same members on the same machine, with as many threads, end in the same bits.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

import torch
from torch import Tensor
from torch.optim.adam import adam

from bensemble_core.ensemble.members import Members, Mode, count_members, gather
from bensemble_core.ensemble.tensors import split_extra
from bensemble_core.errors import InvalidData, NotFinite
from bensemble_core.io import above, below
from bensemble_core.options import STRICT
from bensemble_core.priors import Normal
from bensemble_core.randomness import borrowed, derive, generator, permutation
from bensemble_core.threads import one_thread
from bensemble_core.training.early_stopping import have_stopped, hold_out, remember
from bensemble_core.training.max_norm import limit, limited_weights
from bensemble_core.training.objectives import Batch, Objective, log_joint
from bensemble_core.training.resuming import numbers_of, restore, stamp, words_of
from bensemble_core.types import Data, Over, Problem, Report, Tensors, Transform, silent

Schedule: TypeAlias = Callable[[float], float]  # share of the steps done -> factor on the learning rate
Watch: TypeAlias = Callable[[int, Tensors, Tensors, dict[str, Tensor]], None]  # epoch, θ, fixed, what is kept

_ORDER, _NOISE, _AUGMENT = 1, 2, 4  # branches of a member's seed; 3 is of early stopping
_QUIET_SECONDS = 0.2  # longest time between two reports, unless a step takes longer
_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8  # of Adam
_SMALL_STEP = 1e8  # weights × rows of a step: about 5 ms on one core
COUNTED_ROWS = 64  # most rows a step by which `cost` divides what a step costs beside them: there may be few rows


@dataclass(frozen=True, kw_only=True)
class Descent:
    """The options that every method trained by descent has; such a method inherits these and nothing else."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    batches: ClassVar[bool] = True
    over: ClassVar[Over] = "weights"
    epochs: int = field(default=100, metadata={"ge": 0, "le": 1_000_000, "description": "passes over the rows"})
    batch_size: int = field(default=64, metadata={"ge": 1, "le": 1_000_000, "description": "rows a step; ≥ N is all"})
    lr: float = field(
        default=0.01,
        metadata={"gt": 0, "le": 100, "search": ("log", 1e-4, 1e-1), "description": "learning rate at the start"},
    )
    optimiser: Literal["adam", "sgd"] = field(default="adam", metadata={"description": "how a step is made"})
    momentum: float = field(default=0.9, metadata={"ge": 0, "lt": 1, "description": "of sgd"})
    schedule: Literal["cosine", "constant"] = field(
        default="cosine", metadata={"description": "learning rate over the steps: to 0 along half a cosine, or level"}
    )
    patience: int | None = field(
        default=None,
        metadata={"ge": 1, "le": 1_000_000, "description": "stop after as many epochs with no better held-out loss"},
    )
    validation: float = field(
        default=0.1, metadata={"gt": 0, "lt": 1, "description": "share of rows held out, where patience is given"}
    )
    max_norm: float | None = field(
        default=None,
        metadata={
            "gt": 0,
            "le": 1e6,
            "description": "largest norm of the weights into any one unit of a linear or convolution layer",
        },
    )


class Mover(Protocol):
    """Moves some tensors of θ by a rule of its own; the optimiser of the options moves the others."""

    @property
    def names(self) -> frozenset[str]:
        """Of those that it moves."""
        ...

    def move(
        self, theta: Tensors, gradient: Tensors, moment: Tensors, *, step: int, lr: float, decay: float, n_rows: int
    ) -> None:
        """Take step number `step` (from 1) in place, and keep in `moment` what the next one needs (from 0).

        gradient: of the objective, a loss per row of N = `n_rows`. lr: of this step, that of the options times `decay`,
        the schedule's factor.
        """
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Trained:
    """Where the descent ended."""

    theta: dict[str, Tensor]  # [M, ...] what was trained
    fixed: dict[str, Tensor]  # [M, ...] buffers and frozen parameters
    kept: dict[str, Tensor]  # what `watch` gathered


def count_steps(n_rows: int, batch_size: int) -> int:
    """Steps in an epoch: equal batches of at most `batch_size` rows."""
    return max(1, -(-n_rows // batch_size))


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """All that a descent depends on: the same Run ends in the same weights, wherever it is run.

    `watch(epoch, theta, fixed, kept)` is called after each epoch and may gather tensors in `kept`, which travels in
    snapshots.
    """

    problem: Problem
    data: Data
    theta: Tensors  # [M, ...] where the members start
    fixed: Tensors  # [M, ...] buffers and frozen parameters
    options: Descent
    seeds: Sequence[int]  # [M]
    rows: Tensor | None = None  # [M, N] each member's rows of the data; None is all of them
    held_out: Tensor | None = None  # [M, H] rows whose loss stops each member, beside `rows`; None: by its seed
    targets: Tensor | None = None  # [M, N(, T)] each member's own labels of the data's rows; None is the data's
    objective: Objective = log_joint
    transform: Transform | None = None
    schedule: Schedule | None = None  # None is that of the options
    watch: Watch | None = None
    mover: Mover | None = None
    mode: Mode | None = None  # how members run; None is chosen for the network


def descend(run: Run, *, resume: Tensors | None = None, report: Report = silent) -> Trained:
    """Train the members of a run, or go on from a snapshot of it. Nothing handed in is changed."""
    state = _State(run)
    if resume is not None:
        state.restore(resume)
    reported = time.monotonic()
    with one_thread(state.has_small_steps()):
        while state.step < state.total and not state.has_stopped():
            loss = state.take_step()
            ended_epoch = state.step % state.steps_per_epoch == 0
            if ended_epoch:
                epoch = state.step // state.steps_per_epoch
                state.validate()
                if run.watch is not None:
                    run.watch(epoch, state.theta, state.fixed, state.kept)
            if ended_epoch or time.monotonic() - reported >= _QUIET_SECONDS:
                report(state.step, state.total, state.message(loss), state.snapshot)
                reported = time.monotonic()
    return state.finish()


class _State:
    """Where a descent is: every tensor of θ has the members as its first axis, so a step is a few operations."""

    def __init__(self, run: Run) -> None:
        self.problem, self.data, self.options, self.objective = run.problem, run.data, run.options, run.objective
        self.without_prior = replace(run.problem, prior=None)
        self.seeds = [int(s) for s in run.seeds]
        self.schedule = run.schedule or _SCHEDULES[run.options.schedule]
        self.device = run.data.x.device
        own = {"memory_format": torch.contiguous_format}
        self.theta = {k: v.detach().clone(**own) for k, v in run.theta.items()}  # [M, ...]
        self.fixed = {k: v.detach().clone() for k, v in run.fixed.items()}
        self.kept: dict[str, Tensor] = {}
        self.pulled = self._names_pulled()
        tensors = {**run.theta, **run.fixed}
        self.members: Members = gather(run.problem, tensors, {}, transform=run.transform, training=True, mode=run.mode)
        self.held_out: Tensor | None = None  # [M, H]
        self.rows = run.rows  # [M, N]
        self.targets = run.targets  # [M, N(, T)]
        if self.options.patience is not None and run.held_out is not None:
            self.held_out = run.held_out
        elif self.options.patience is not None:
            every = torch.arange(self.data.n_rows, device=self.device).expand(len(self.seeds), -1)
            rows = every if run.rows is None else run.rows
            self.held_out, self.rows = hold_out(rows, self.options.validation, self.seeds)
        self.n_rows = self.data.n_rows if self.rows is None else int(self.rows.shape[1])
        if not self.n_rows and self.options.epochs:
            raise InvalidData("there is nothing to train on: the data has no rows; label some, or use epochs=0")
        self.steps_per_epoch = count_steps(self.n_rows, self.options.batch_size)
        trains = any(v.numel() for v in self.theta.values())
        self.total = self.options.epochs * self.steps_per_epoch if trains else 0
        self.step = 0
        self.order: Tensor | None = None
        self.order_epoch = -1
        self.moment1 = {k: torch.zeros_like(v) for k, v in self.theta.items()}
        self.mover = run.mover
        self.optimised = [k for k in self.theta if self.mover is None or k not in self.mover.names]
        adam_moves = self.optimised if self.options.optimiser == "adam" else []
        self.moment2 = {k: torch.zeros_like(self.theta[k]) for k in adam_moves}
        self.best: dict[str, Tensor] = {}
        self.limited = {} if self.options.max_norm is None else limited_weights(self.members.module, self.theta)

    def has_small_steps(self) -> bool:
        """Whether a step is some milliseconds of products on a CPU, which torch's threads would cut too fine."""
        rows = min(self.options.batch_size, self.n_rows)
        work = rows * sum(v.numel() for v in self.theta.values())
        return self.device.type == "cpu" and self.members.dense is not None and work < _SMALL_STEP

    def take_step(self) -> Tensor:
        """One step of every member; the losses before it, without the prior where that is `pulled`: [M]."""
        x, y = self._batch()
        n_members = len(self.seeds)
        if self.data.augment is not None:
            x = self._augmented(x)
        if self.members.mode == "vmap":
            loss, gradient = self._gradient(slice(0, n_members), x, y)
        else:
            parts = []
            for m in range(n_members):
                with borrowed(derive(self.seeds[m], _NOISE, self.step, 1), self.device):
                    own = x if self._shares_rows() else x[m : m + 1]
                    parts.append(self._gradient(slice(m, m + 1), own, y[m : m + 1]))
            loss = torch.cat([loss for loss, _ in parts])
            gradient = [torch.cat(of_members) for of_members in zip(*(own for _, own in parts), strict=True)]
        self._move(gradient, self.options.lr * self.schedule(self.step / self.total))
        if self.options.max_norm is not None:
            limit(self.theta, self.limited, self.options.max_norm)
        self.step += 1
        return loss

    def validate(self) -> None:
        """Remember each member's best epoch by its held-out loss, until it has waited for `patience` epochs."""
        if self.held_out is None:
            return
        self.members.module.eval()
        losses = []
        for m in range(len(self.seeds)):  # one by one: this happens once an epoch, and rows may be many
            held = self.held_out[m]
            one = {k: v[m] for k, v in self.theta.items()}
            fixed = {k: v[m] for k, v in self.fixed.items()}
            weights, extra = split_extra({**fixed, **one})
            with torch.no_grad():
                outputs = self.members.one(weights, fixed, self.data.x[held])
                losses.append(-self.problem.likelihood.log_prob(outputs, self.data.y[held], extra).mean())
        self.members.module.train()
        now = above("theta/", self.theta) | above("fixed/", self.fixed)
        remember(self.best, torch.stack(losses), now, self.options.patience or 0)

    def has_stopped(self) -> bool:
        return have_stopped(self.best, self.options.patience or 0)

    def message(self, loss: Tensor) -> str:
        value = float(loss.mean())
        epoch = -(-self.step // self.steps_per_epoch)
        if self.pulled and self.problem.prior is not None:
            weights = {k: self.theta[k] for k in self.pulled}
            value -= float(self.problem.prior.log_prob(weights).mean()) / self.n_rows
        if not math.isfinite(value):
            raise NotFinite(
                f"training left the finite numbers in epoch {epoch} of {self.options.epochs} (loss {value}); "
                f"lower lr (now {self.options.lr:g}), or check the scale of the data"
            )
        return f"epoch {epoch} of {self.options.epochs}, loss {value:.4g}"

    def snapshot(self) -> dict[str, Tensor]:
        """Everything needed to go on: parameters, moments, step and seeds, as tensors of our own."""
        state = {
            "step": torch.tensor(self.step),
            "seeds": torch.tensor(self.seeds),
            **above("theta/", self.theta),
            **above("moment1/", self.moment1),
            **above("moment2/", self.moment2),
            **above("fixed/", self.fixed),
            **above("best/", self.best),
            **above("kept/", self.kept),
        }
        return stamp(state, self._settings(), self._given())

    def restore(self, state: Tensors) -> None:
        own = restore(state, self._settings(), self._given(), self.device)
        self.step = int(own["step"])
        self.fixed = below("fixed/", own)
        for part, found in ((self.theta, "theta/"), (self.moment1, "moment1/"), (self.moment2, "moment2/")):
            part |= {k: own[found + k] for k in part}  # in the order of θ, whatever a file made of it
        self.best = below("best/", own)
        if self.best:
            self.best["waited"] = self.best["waited"].cpu()
        self.kept = below("kept/", own)

    def finish(self) -> Trained:
        theta, fixed = self.theta, self.fixed
        if self.best:
            theta, fixed = below("theta/", self.best), below("fixed/", self.best)
        if not all(bool(v.isfinite().all()) for v in theta.values()):
            raise NotFinite(f"training ended with weights that are not finite; lower lr (now {self.options.lr:g})")
        return Trained(theta=theta, fixed=fixed, kept=self.kept)

    def _gradient(self, group: slice, x: Tensor, y: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The losses of a group of members and their gradient, a tensor for each of θ."""
        leaves = {k: v[group].detach().requires_grad_() for k, v in self.theta.items()}
        fixed = {k: v[group] for k, v in self.fixed.items()}
        n_members = len(self.seeds[group])

        def forward(theta: Tensors, x: Tensor) -> Tensor:
            draws = count_members(theta)  # an objective may run several draws of one member
            own = fixed if draws == n_members else {k: v.expand(draws, *v.shape[1:]) for k, v in fixed.items()}
            return self.members({**theta, **own}, {}, x, own_rows=x.ndim > self.data.x.ndim)

        if self.pulled:
            batch = Batch(x=x, y=y, n_rows=self.n_rows, seeds=(), group=group)
            loss = log_joint(self.without_prior, forward, leaves, batch)
        else:
            seeds = [derive(s, _NOISE, self.step) for s in self.seeds[group]]
            done = self.step / self.total
            batch = Batch(x=x, y=y, n_rows=self.n_rows, seeds=seeds, group=group, done=done)
            loss = self.objective(self.problem, forward, leaves, batch)
        slopes = torch.autograd.grad(loss.sum(), list(leaves.values()), materialize_grads=True)
        gradient = dict(zip(leaves, (slope.contiguous() for slope in slopes), strict=True))  # the fused step needs it
        if not self._pulls_in_step():  # not in place: autograd may give one tensor for two
            gradient |= {k: gradient[k].add(self.theta[k][group], alpha=self._pull()) for k in self.pulled}
        return loss.detach(), list(gradient.values())

    def _pull(self) -> float:
        """−∇ log p(θ) / N = pull · θ under a Normal prior."""
        assert isinstance(self.problem.prior, Normal)
        return 1 / (self.problem.prior.scale**2 * self.n_rows)

    def _pulls_in_step(self) -> bool:
        """Adam adds pull · θ to the gradient as it reads both (the coupled decay, which is the prior's gradient)."""
        return self.options.optimiser == "adam" and 0 < len(self.pulled) == len(self.theta)

    def _names_pulled(self) -> tuple[str, ...]:
        """What a Normal prior covers of θ, where the objective is plain `log_joint`; else nothing.

        Its gradient θ / scale² is then added in place, and its value computed for reports only: through autograd
        it costs as much as the network.
        """
        plain = self.objective is log_joint and type(self.problem.prior) is Normal
        return tuple(split_extra(self.theta)[0] if plain else ())

    def _shares_rows(self) -> bool:
        return self.rows is None and self.steps_per_epoch == 1 and self.data.augment is None

    def _batch(self) -> tuple[Tensor, Tensor]:
        n_members = len(self.seeds)
        if self._shares_rows():
            y = self.data.y.expand(n_members, *self.data.y.shape) if self.targets is None else self.targets
            return self.data.x, y
        epoch, at = divmod(self.step, self.steps_per_epoch)
        if self.order is None or self.order_epoch != epoch:
            order = torch.stack([permutation(self.n_rows, s, _ORDER, epoch) for s in self.seeds]).to(self.device)
            self.order = order if self.rows is None else self.rows.gather(1, order)
            self.order_epoch = epoch
        start, stop = (self.n_rows * i // self.steps_per_epoch for i in (at, at + 1))
        chosen = self.order[:, start:stop]  # [M, B]
        if self.targets is None:
            return self.data.x[chosen], self.data.y[chosen]
        own = torch.arange(n_members, device=chosen.device)[:, None]
        return self.data.x[chosen], self.targets[own, chosen]

    def _move(self, gradient: Sequence[Tensor], lr: float) -> None:
        named = dict(zip(self.theta, gradient, strict=True))
        if self.mover is not None:
            at = {"step": self.step + 1, "n_rows": self.n_rows}
            self.mover.move(self.theta, named, self.moment1, lr=lr, decay=lr / self.options.lr, **at)
        theta, slopes, moment1 = ([part[k] for k in self.optimised] for part in (self.theta, named, self.moment1))
        if self.options.optimiser == "sgd":
            for value, slope, moment in zip(theta, slopes, moment1, strict=True):
                moment.mul_(self.options.momentum).add_(slope)
                value.sub_(moment, alpha=lr)
            return
        if not theta:
            return
        adam(
            theta,
            slopes,
            moment1,
            list(self.moment2.values()),
            [],
            [torch.tensor(float(self.step), device=self.device) for _ in theta],
            amsgrad=False,
            beta1=_BETA1,
            beta2=_BETA2,
            lr=lr,
            weight_decay=self._pull() if self._pulls_in_step() else 0.0,
            eps=_EPSILON,
            maximize=False,
            foreach=False,
            fused=self.device.type in ("cpu", "cuda"),
        )

    def _augmented(self, x: Tensor) -> Tensor:
        """Each member's rows through the caller's function, with a generator of the member and step: [M, B, ...]."""
        assert self.data.augment is not None
        made = []
        for own, s in zip(x, self.seeds, strict=True):
            seed = derive(s, _AUGMENT, self.step)
            with borrowed(seed, x.device):
                made.append(self.data.augment(own, generator(seed, device=x.device)))
        return torch.stack(made)

    def _given(self) -> tuple[Tensor, ...]:
        return numbers_of(self.problem, self.data)

    def _settings(self) -> tuple[object, ...]:
        """What a snapshot has to agree in, beside the numbers of `_given`."""
        prior, likelihood = words_of(self.problem)
        network = [(k, v.shape[1:], str(v.dtype)) for k, v in self.theta.items()]
        return (self.options, self.seeds, self.n_rows, network, prior, likelihood, self.data.augment is not None)


_SCHEDULES: dict[str, Schedule] = {
    "cosine": lambda done: 0.5 * (1 + math.cos(math.pi * done)),
    "constant": lambda done: 1.0,
}
