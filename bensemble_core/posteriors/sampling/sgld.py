"""Stochastic-gradient Langevin dynamics."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias

import torch
from torch import Tensor

from bensemble_core.errors import InvalidOption
from bensemble_core.posteriors.log_posterior import Target
from bensemble_core.posteriors.sampling.chains import Carry, Step
from bensemble_core.posteriors.sampling.stochastic import Gradients, Stochastic
from bensemble_core.types import Data, Problem, Tensors

Noise: TypeAlias = Literal["averaged", "plain", "none"]


@dataclass(frozen=True, kw_only=True)
class SGLD(Stochastic):
    """Noisy gradient steps on batches whose iterates are draws of the posterior (Welling & Teh 2011).

        θ' = θ + ½ ε G ∇ log p(θ | D) + √(ε G) ξ,   ξ ~ N(0, I),   the likelihood of a batch times N/B, ε = `lr`.

    `noise="averaged"` takes (ξ_t + ξ_{t+1}) / 2 for ξ (Leimkuhler & Matthews 2013): on a Gaussian the variance is then
    exact at every ε below 4 over the largest curvature, where "plain" has it larger by 1 / (1 − ε/4) in units of the
    curvature. "none" is gradient descent with a constant rate, whose iterates spread by the noise of batches alone
    (Mandt et al. 2017): no posterior in general. The noise of batches comes on top of ξ: with gradient variance V the
    variance of a draw grows by 1 + εV/4, so take larger batches or a smaller ε where it matters.

    G: `preconditioner="rmsprop"` (Li et al. 2016), learnt in the warm-up and then held; `lr` is then in units of the
    gradient's own size, as in Adam. With "none" `lr` is ε itself.

    `schedule="cyclical"` (Zhang et al. 2020): in each of `cycles` cycles the rate falls from `lr` to 0 along half a
    cosine; the first half of a cycle explores without noise, the second half gives draws. Steps are not corrected by
    acceptance: the answer is right to an error that falls with `lr`.
    """

    name: Literal["sgld"] = "sgld"
    lr: float = field(
        default=3e-3,
        metadata={"gt": 0, "le": 1e6, "search": ("log", 1e-5, 1e-1), "description": "step size ε"},
    )
    noise: Noise = field(
        default="averaged", metadata={"description": "of a step: averaged with the next one's, plain, or none"}
    )
    schedule: Literal["constant", "cyclical"] = field(
        default="constant", metadata={"description": "step size over the steps: level, or in cycles"}
    )
    cycles: int = field(default=4, metadata={"ge": 1, "le": 1000, "description": "of schedule cyclical"})

    def check(self, problem: Problem) -> None:
        super().check(problem)
        if self.schedule == "cyclical" and self.cycles > self.samples:
            raise InvalidOption(f"sgld: {self.cycles} cycles need as many samples, these are {self.samples}")

    def kernel(self, data: Data | None = None) -> "Langevin":
        gradients = self.gradients(data)
        half = self._half_cycle if self.schedule == "cyclical" else None
        return Langevin(lr=self.lr, noise=self.noise, gradients=gradients, half_cycle=half)

    def schedule_of_cycles(self, warmup: int) -> list[int]:
        """Steps that are kept: in the second half of each cycle, every `thin`-th, the last ones."""
        kept: list[int] = []
        for cycle in range(self.cycles):
            n = self.samples * (cycle + 1) // self.cycles - self.samples * cycle // self.cycles
            end = warmup + (cycle + 1) * 2 * self._half_cycle
            kept += range(end - 1 - (n - 1) * self.thin, end, self.thin)
        return kept

    def steps_kept(self, *, goes_on: bool = False) -> tuple[int, Sequence[int]]:
        warmup, kept = super().steps_kept(goes_on=goes_on)
        return warmup, kept if self.schedule == "constant" else self.schedule_of_cycles(warmup)

    @property
    def _half_cycle(self) -> int:
        return -(-self.samples // self.cycles) * self.thin


@dataclass(frozen=True, kw_only=True)
class Langevin:
    """The kernel of `sgld`."""

    lr: float
    noise: Noise
    gradients: Gradients
    half_cycle: int | None = None  # steps
    flat: ClassVar[tuple[str, ...]] = ("position",)
    scalars: ClassVar[tuple[str, ...]] = ()
    measures: ClassVar[tuple[str, ...]] = ()

    def start(self, target: Target, position: Tensor, warm: Tensors, step: Step) -> Carry:
        carry = {"position": position, **self.gradients.start(target, position, step)}
        return {**carry, "slope": torch.zeros_like(position)}

    def step(self, target: Target, carry: Carry, step: Step) -> Carry:
        position = carry["position"]
        _, slope = self.gradients(target, position, step)
        rate, is_noisy = self._rate(step)
        size = rate * carry["preconditioner"]  # ε G [1, P]
        moved = position + 0.5 * size * slope
        if is_noisy and self.noise == "plain":
            moved = moved + size.sqrt() * step.normal(position)
        elif is_noisy and self.noise == "averaged":
            moved = moved + size.sqrt() * 0.5 * (step.normal(position) + step.normal(position, later=1))
        return {**carry, "position": moved, "slope": slope}

    def adapt(self, target: Target, carry: Carry, step: Step) -> Carry:
        return self.gradients.adapt(carry)

    def _rate(self, step: Step) -> tuple[float, bool]:
        """ε of a step, and whether it has noise."""
        if self.half_cycle is None or step.number < step.warmup:
            return self.lr, True
        share = (step.number - step.warmup) % (2 * self.half_cycle) / (2 * self.half_cycle)
        return self.lr * 0.5 * (1 + math.cos(math.pi * share)), share >= 0.5
