"""The one loop of Markov chains: all chains at once, progress and cancel, resumable bit for bit.

All randomness is a function of (chain's seed, step). θ is one matrix [C, P] of chains by weights, so that a step of a
kernel is a few operations whatever the network looks like.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, TypeAlias

import torch
from torch import Tensor

from bensemble_core.errors import NotFinite
from bensemble_core.io import above, below
from bensemble_core.posteriors.log_posterior import Batch, LogPosterior, Target
from bensemble_core.randomness import derive, generator
from bensemble_core.threads import one_thread
from bensemble_core.training.resuming import numbers_of, restore, stamp, words_of
from bensemble_core.types import Report, Tensors, silent

Carry: TypeAlias = dict[str, Tensor]  # what a kernel takes from step to step: "position" [C, P], "acceptance" [C], …

_QUIET_SECONDS = 0.2  # longest silence between two reports, a block of rows permitting
_ASTRAY = 1e15  # a weight that no prior in use gives: steps too large for the curvature lead there
_SMALL_STEP = 1e8  # weights × rows: about 5 ms on one core
_SHARED, _NORMAL, _UNIFORM, _ROWS, _AUGMENT = 0, 1, 2, 3, 4  # branches of a chain's seed


@dataclass(frozen=True)
class Step:
    """Where a run is, and the chance of that step: the same for the same seeds and step, whoever runs them."""

    number: int
    warmup: int  # steps in which a kernel may adapt
    total: int
    seeds: Sequence[int]  # [C]

    @property
    def is_warmup(self) -> bool:
        return self.number < self.warmup

    def normal(self, like: Tensor, *, later: int = 0) -> Tensor:
        """N(0, 1) for each chain and weight, of the step so many steps later: [C, P] as `like`."""
        draws = torch.empty(like.shape, dtype=like.dtype)
        rng = torch.Generator()  # one for all chains, each from its own seed: to make one takes longer than to seed it
        for own, seed in zip(draws, self.seeds, strict=True):
            own.normal_(generator=rng.manual_seed(derive(seed, _NORMAL, self.number + later)))
        return draws.to(like.device)

    def uniform(self, like: Tensor) -> Tensor:
        """U(0, 1) for each chain: [C]."""
        draws = [derive(seed, _UNIFORM, self.number) / 2**63 for seed in self.seeds]  # SplitMix64's own 63 bits
        return torch.tensor(draws, dtype=torch.float64).to(like)

    def shared_uniform(self) -> float:
        """U(0, 1), the same for all chains."""
        return float(torch.rand(1, generator=generator(self.seeds[0], _SHARED, self.number), dtype=torch.float64))

    def batch(self, n_rows: int, size: int, device: torch.device) -> Batch:
        """Rows for each chain, drawn with replacement; all of them, once each, where a batch would hold them.

        Reshuffled epochs would have batches cancel each other's errors, and the noise of a step would no longer be
        that of the theory.
        """
        if size >= n_rows:
            draws = [torch.arange(n_rows) for _ in self.seeds]
        else:
            draws = [torch.randint(n_rows, (size,), generator=generator(s, _ROWS, self.number)) for s in self.seeds]
        seeds = [derive(s, _AUGMENT, self.number) for s in self.seeds]
        return Batch(rows=torch.stack(draws).to(device), seeds=seeds)


class Kernel(Protocol):
    """One step of every chain. Carries are never written to: a step gives a new one."""

    flat: ClassVar[tuple[str, ...]]  # of the carry, [C or 1, P]: what a later run goes on from
    scalars: ClassVar[tuple[str, ...]]  # of the carry, [1]: likewise
    measures: ClassVar[tuple[str, ...]]  # what diagnostics it has beside those of the draws

    def start(self, target: Target, position: Tensor, warm: Tensors, step: Step) -> Carry:
        """The carry at a position [C, P]; `warm` has what an earlier run ended with, if there was one."""
        ...

    def step(self, target: Target, carry: Carry, step: Step) -> Carry:
        """The next carry: "position" and, where the kernel knows them, "log_joint", "acceptance", "diverged"."""
        ...

    def adapt(self, target: Target, carry: Carry, step: Step) -> Carry:
        """After a step of the warm-up: a carry with other settings."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Chains:
    """Where the chains went."""

    draws: Tensor  # [C, S, P]
    log_joint: Tensor | None  # [C, S]
    last: Carry
    acceptance: float | None  # mean over the steps after the warm-up
    divergences: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """All that a run depends on."""

    target: LogPosterior
    kernel: Kernel
    position: Tensor  # [C, P]
    kept: Sequence[int]  # steps after which a draw is kept
    warmup: int
    seeds: Sequence[int]
    settings: object  # what a snapshot has to agree in
    warm: Tensors = field(default_factory=dict)
    start: Tensors = field(default_factory=dict)  # what was found before the chains, and has to be in a snapshot


def run(plan: Plan, *, resume: Tensors | None = None, report: Report = silent) -> Chains:
    """Run the chains of a plan, or go on from a snapshot of it. Nothing handed in is changed."""
    state = _State(plan, report)
    with one_thread(state.has_small_steps()):
        if resume is None:
            state.begin()
        else:
            state.restore(resume)
        while state.number < state.total:
            state.take_step()
    return state.finish()


def start_of(snapshot: Tensors) -> dict[str, Tensor]:
    """What was found before the chains of a snapshot."""
    return below("start/", snapshot)


class _State:
    def __init__(self, plan: Plan, report: Report) -> None:
        self.plan, self.report = plan, report
        self.total = plan.kept[-1] + 1
        self.number = 0
        n_chains, n_weights = plan.position.shape
        self.carry: Carry = {}
        self.draws = plan.position.new_empty(n_chains, len(plan.kept), n_weights)
        self.log_joint = plan.position.new_zeros(n_chains, len(plan.kept))
        self.n_kept = 0
        self.accepted = torch.zeros(n_chains, dtype=torch.float64, device=plan.position.device)  # sums after warm-up
        self.diverged = torch.zeros_like(self.accepted)
        self.reported = 0.0  # so that the first step is reported
        plan.target.tick = self._tick

    def has_small_steps(self) -> bool:
        """Whether a pass is some milliseconds of products on a CPU, which torch's threads would cut too fine."""
        target = self.plan.target
        work = target.data.n_rows * self.plan.position.numel()
        return self.plan.position.device.type == "cpu" and target.members.dense is not None and work < _SMALL_STEP

    def begin(self) -> None:
        plan = self.plan
        self.carry = plan.kernel.start(plan.target, plan.position, plan.warm, self._step(-1))
        log_joint = self.carry.get("log_joint")
        if log_joint is not None and not bool(log_joint.isfinite().all()):
            raise NotFinite(
                "the log posterior is not finite where the chains start; check the scale of the data, or pass "
                "standardise=True"
            )

    def take_step(self) -> None:
        plan, step = self.plan, self._step(self.number)
        carry = plan.kernel.step(plan.target, self.carry, step)
        if step.is_warmup:
            carry = plan.kernel.adapt(plan.target, carry, step)
        elif "acceptance" in carry:
            self.accepted = self.accepted + carry["acceptance"]
            self.diverged = self.diverged + carry["diverged"]
        self.carry = carry
        if self.n_kept < len(plan.kept) and self.number == plan.kept[self.n_kept]:
            self.draws[:, self.n_kept] = carry["position"]
            if "log_joint" in carry:
                self.log_joint[:, self.n_kept] = carry["log_joint"]
            self.n_kept += 1
        self.number += 1
        self._tick(at_last=self.number == self.total)

    def finish(self) -> Chains:
        if not bool((self.draws.abs() < _ASTRAY).all()):  # also where it is not a number
            raise NotFinite("the chains ran away; take smaller steps (lr), or check the scale of the data")
        known = "acceptance" in self.carry
        steps = max(1, self.total - self.plan.warmup)
        return Chains(
            draws=self.draws,
            log_joint=self.log_joint if "log_joint" in self.carry else None,
            last=self.carry,
            acceptance=float(self.accepted.mean()) / steps if known else None,
            divergences=int(self.diverged.sum()),
        )

    def snapshot(self) -> dict[str, Tensor]:
        """Everything needed to go on, as of the last whole step."""
        state = {
            "number": torch.tensor(self.number),
            "draws": self.draws[:, : self.n_kept],
            "log_joint": self.log_joint[:, : self.n_kept],
            "accepted": self.accepted,
            "diverged": self.diverged,
            **above("carry/", self.carry),
            **above("start/", self.plan.start),
        }
        return stamp(state, self._settings(), self._given())

    def restore(self, snapshot: Tensors) -> None:
        own = restore(snapshot, self._settings(), self._given(), self.plan.position.device)
        self.number = int(own["number"])
        self.carry = below("carry/", own)
        self.n_kept = own["draws"].shape[1]
        self.draws[:, : self.n_kept] = own["draws"]
        self.log_joint[:, : self.n_kept] = own["log_joint"]
        self.accepted, self.diverged = own["accepted"], own["diverged"]

    def _step(self, number: int) -> Step:
        return Step(number=number, warmup=self.plan.warmup, total=self.total, seeds=self.plan.seeds)

    def _tick(self, at_last: bool = False) -> None:
        if not (at_last or time.monotonic() - self.reported >= _QUIET_SECONDS):
            return
        if not self.carry:  # nothing to go on from yet: whoever is stopped here starts again
            self.report(1, self.total, "finding where the chains start, and how far they step", dict)
            self.reported = time.monotonic()
            return
        self.report(min(self.number + 1, self.total), self.total, self._message(), self.snapshot)
        self.reported = time.monotonic()

    def _message(self) -> str:
        phase = "warm-up" if self.number < self.plan.warmup else "sampling"
        words = [f"{phase}, step {min(self.number + 1, self.total)} of {self.total}"]
        if "acceptance" in self.carry:
            after = self.number - self.plan.warmup
            mean = self.carry["acceptance"].mean() if after < 1 else self.accepted.mean() / after
            words.append(f"acceptance {float(mean):.2f}")
        if "step_size" in self.carry:
            words.append(f"step size {float(self.carry['step_size'].mean()):.2g}")
        if "diverged" in self.carry:
            words.append(f"{int(self.diverged.sum())} divergences")
        return ", ".join(words)

    def _settings(self) -> tuple[object, ...]:
        layout = list(self.plan.target.layout.shapes.items())
        words = words_of(self.plan.target.problem)
        return (self.plan.settings, list(self.plan.seeds), self.plan.warmup, layout, str(self.draws.dtype), words)

    def _given(self) -> tuple[Tensor, ...]:
        return numbers_of(self.plan.target.problem, self.plan.target.data)
