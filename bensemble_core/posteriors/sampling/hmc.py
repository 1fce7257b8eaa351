"""Hamiltonian Monte Carlo."""

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from bensemble_core.posteriors.log_posterior import Target
from bensemble_core.posteriors.sampling.chains import Carry, Step
from bensemble_core.posteriors.sampling.sampler import Sampling
from bensemble_core.types import Data, Tensors

_DIVERGED = 1000.0  # nats of energy error that no step size in use makes by chance, as in Stan
_SHRINKAGE, _TIME, _DECAY = 0.1, 10.0, 0.75  # γ, t₀, κ of Hoffman & Gelman (2014)
_DOUBLINGS = 60  # of the first step size, at most
_LEAST_WINDOW = 20  # steps of warm-up below which the mass stays as it is


@dataclass(frozen=True, kw_only=True)
class HMC(Sampling):
    """Draws of the posterior itself by simulated motion: the reference that approximations are judged by (Neal 2011).

    A momentum ρ ~ N(0, M) is drawn, (θ, ρ) moves along H = −log p(θ | D) + ½ ρᵀM⁻¹ρ by L leapfrog steps of size ε,
    and is accepted with probability min(1, exp(−ΔH)); a rejection repeats the state. A leapfrog step is a pass over all
    rows.

    In the warm-up ε goes to an acceptance of `acceptance`, averaged over chains, by dual averaging (Hoffman & Gelman
    2014), and M⁻¹ to the variance of each weight within chains, in windows that double as in Stan. Trajectories have a
    length of U(½, 1½) × `trajectory` in units of the posterior's standard deviations, at most `leapfrog` steps; all
    chains take the same number of steps, so that they move as one batch. (A fixed length may bring a chain back to
    where it was, for ever. The trees of NUTS do not batch.)

    Chains start apart, each at a MAP estimate of its own, and are not expected to cross between modes of a network:
    `Fitted.diagnostics` compares them by what they predict.
    """

    name: Literal["hmc"] = "hmc"
    trajectory: float = field(
        default=1.5,
        metadata={
            "gt": 0,
            "le": 1000,
            "description": "mean length of a trajectory, in standard deviations of the posterior",
        },
    )
    leapfrog: int = field(
        default=128, metadata={"ge": 1, "le": 10_000, "description": "most leapfrog steps of a trajectory"}
    )
    acceptance: float = field(
        default=0.8,
        metadata={"gt": 0, "lt": 1, "description": "share of proposals to accept, which sets the step size"},
    )

    def kernel(self, data: Data | None = None) -> "Hamiltonian":
        return Hamiltonian(trajectory=self.trajectory, most_steps=self.leapfrog, acceptance=self.acceptance)

    @property
    def passes_a_step(self) -> float:
        return float(self.leapfrog)


def leapfrog(
    target: Target, position: Tensor, momentum: Tensor, slope: Tensor, step_size: Tensor, inverse_mass: Tensor, n: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """n steps of every chain: position, momentum, log density and its gradient at the end.

    position, momentum, slope: [C, P]; step_size [1]; inverse_mass [1, P].
    """
    value, half, drift = slope.new_zeros(len(slope)), 0.5 * step_size, step_size * inverse_mass
    momentum = torch.addcmul(momentum, half, slope)
    for i in range(n):
        position = torch.addcmul(position, drift, momentum)
        value, slope = target(position)
        momentum = torch.addcmul(momentum, step_size if i + 1 < n else half, slope)
    return position, momentum, value, slope


@dataclass(frozen=True, kw_only=True)
class Hamiltonian:
    """The kernel of `hmc`."""

    trajectory: float
    most_steps: int
    acceptance: float = 0.8
    flat: ClassVar[tuple[str, ...]] = ("position", "inverse_mass")
    scalars: ClassVar[tuple[str, ...]] = ("step_size",)
    measures: ClassVar[tuple[str, ...]] = ("acceptance", "divergences", "step_size")

    def start(self, target: Target, position: Tensor, warm: Tensors, step: Step) -> Carry:
        log_joint, slope = target(position)
        n_chains = len(position)
        carry = {
            "position": position,
            "log_joint": log_joint,
            "slope": slope,
            "acceptance": log_joint.new_zeros(n_chains),
            "diverged": log_joint.new_zeros(n_chains),
            "inverse_mass": warm.get("inverse_mass", torch.ones_like(position[:1])),
            **_empty_window(position),
        }
        known = warm.get("step_size")
        carry["step_size"] = position.new_ones(1) if known is None else known
        return _averaged_from(carry if known is not None else self._first_step_size(target, carry, step))

    def step(self, target: Target, carry: Carry, step: Step) -> Carry:
        return self.move(target, carry, step, self.n_steps(carry, step))

    def n_steps(self, carry: Carry, step: Step) -> int:
        """Of the next trajectory, by the average step size: the same for all chains.

        Where the bound is met, the mean is what becomes shorter: lengths that were cut to the bound would all be alike.
        """
        mean = min(self.trajectory / float(carry["step_size"]), self.most_steps / 1.5)
        return max(1, min(self.most_steps, math.ceil((0.5 + step.shared_uniform()) * mean)))

    def move(self, target: Target, carry: Carry, step: Step, n: int) -> Carry:
        """One trajectory of n leapfrog steps, accepted or not."""
        position, inverse_mass = carry["position"], carry["inverse_mass"]
        momentum = step.normal(position) / inverse_mass.sqrt()
        end, last, log_joint, slope = leapfrog(
            target, position, momentum, carry["slope"], carry["step_size"], inverse_mass, n
        )
        gain = log_joint - carry["log_joint"] - _kinetic(last, inverse_mass) + _kinetic(momentum, inverse_mass)
        gain = torch.where(gain.isfinite(), gain, torch.full_like(gain, -math.inf))
        is_taken = step.uniform(position).log() < gain
        return {
            **carry,
            "position": torch.where(is_taken[:, None], end, position),
            "log_joint": torch.where(is_taken, log_joint, carry["log_joint"]),
            "slope": torch.where(is_taken[:, None], slope, carry["slope"]),
            "acceptance": gain.clamp(max=0).exp(),
            "diverged": (gain < -_DIVERGED).to(gain.dtype),
        }

    def adapt(self, target: Target, carry: Carry, step: Step) -> Carry:
        """Dual averaging of the step size, and the mass at the end of a window."""
        carry = self._average(carry)
        first, ends = windows(step.warmup)
        if ends and first <= step.number < ends[-1]:
            carry = _seen(carry)
        if step.number + 1 in ends:
            n = float(carry["window_n"][0])
            variance = (carry["window_m2"] / max(1.0, n - 1)).mean(0, keepdim=True)
            carry = {**carry, "inverse_mass": (n * variance + 5e-3) / (n + 5), **_empty_window(carry["position"])}
            carry = _averaged_from(self._first_step_size(target, carry, step))
        if step.number + 1 == step.warmup:
            carry = {**carry, "step_size": carry["mean_log_step"].exp()}
        return carry

    def _average(self, carry: Carry) -> Carry:
        t = carry["averaged_n"] + 1
        weight = 1 / (t + _TIME)
        error = (1 - weight) * carry["mean_error"] + weight * (self.acceptance - carry["acceptance"].mean())
        log_step = carry["centre"] - t.sqrt() / _SHRINKAGE * error
        share = t**-_DECAY
        return {
            **carry,
            "averaged_n": t,
            "mean_error": error,
            "mean_log_step": share * log_step + (1 - share) * carry["mean_log_step"],
            "step_size": log_step.exp(),
        }

    def _first_step_size(self, target: Target, carry: Carry, step: Step) -> Carry:
        """Doubled or halved until one leapfrog step is accepted about as often as is wanted."""
        position, inverse_mass = carry["position"], carry["inverse_mass"]
        size, factor = carry["step_size"], 1.0
        momentum = step.normal(position) / inverse_mass.sqrt()
        for i in range(_DOUBLINGS):
            _, last, log_joint, _ = leapfrog(target, position, momentum, carry["slope"], size, inverse_mass, 1)
            gain = log_joint - carry["log_joint"] - _kinetic(last, inverse_mass) + _kinetic(momentum, inverse_mass)
            share = float(gain.clamp(max=0).exp().nan_to_num().mean())
            wanted = 2.0 if share > self.acceptance else 0.5
            factor = wanted if i == 0 else factor
            if wanted != factor:
                break
            size = size * factor
        return {**carry, "step_size": size}


def windows(warmup: int) -> tuple[int, list[int]]:
    """The step at which the first window of the mass begins, and the steps before which each ends: Stan's schedule."""
    if warmup < _LEAST_WINDOW:
        return 0, []
    if warmup < 150:
        first, last, length = int(0.15 * warmup), int(0.1 * warmup), warmup
    else:
        first, last, length = 75, 50, 25
    end, ends = first, []
    while end < warmup - last:
        end += length
        length *= 2
        if end + length > warmup - last:  # no room for another: the last one takes what there is
            end = warmup - last
        ends.append(end)
    return first, ends


def _kinetic(momentum: Tensor, inverse_mass: Tensor) -> Tensor:
    return 0.5 * (momentum.square() * inverse_mass).sum(-1)


def _averaged_from(carry: Carry) -> Carry:
    """Dual averaging begun anew at the present step size."""
    size = carry["step_size"]
    zero = torch.zeros_like(size)
    return {
        **carry,
        "centre": (10 * size).log(),
        "averaged_n": zero,
        "mean_error": zero,
        "mean_log_step": size.log(),
    }


def _empty_window(position: Tensor) -> Carry:
    zero = torch.zeros_like(position)
    return {"window_n": zero.new_zeros(1), "window_mean": zero, "window_m2": zero}


def _seen(carry: Carry) -> Carry:
    """Welford's running mean and sum of squares, of each chain on its own."""
    n = carry["window_n"] + 1
    offset = carry["position"] - carry["window_mean"]
    mean = carry["window_mean"] + offset / n
    return {
        **carry,
        "window_n": n,
        "window_mean": mean,
        "window_m2": carry["window_m2"] + offset * (carry["position"] - mean),
    }
