"""Stochastic-gradient Hamiltonian Monte Carlo."""

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias

import torch
from torch import Tensor

from bensemble_core.posteriors.log_posterior import Target
from bensemble_core.posteriors.sampling.chains import Carry, Step
from bensemble_core.posteriors.sampling.stochastic import Gradients, Stochastic
from bensemble_core.types import Data, Tensors

Scheme: TypeAlias = Literal["baoab", "chen"]


@dataclass(frozen=True, kw_only=True)
class SGHMC(Stochastic):
    """Gradient steps on batches with momentum and friction, whose iterates are draws of the posterior.

    The dynamics dθ = ρ dt, dρ = ∇ log p(θ | D) dt − γ ρ dt + √(2γ) dW, with the likelihood of a batch times N/B, in
    coordinates θ / √G where G is the preconditioner (see sgld).

    `scheme="baoab"` (Leimkuhler & Matthews 2013) splits a step of length h = `lr` into half a kick, half a drift,
    friction with its noise, half a drift, half a kick: ρ keeps a share 1 − `friction` of itself. On a Gaussian
    positions have the exact variance at every h below 2 over the root of the largest curvature, whatever the friction.
    "chen" is the update of Chen et al. (2014), eq. 15: v' = (1 − α) v + η ∇ log p + N(0, 2αη), θ' = θ + v', with η =
    `lr`, α = `friction` and no estimate of the gradient's noise; its variance is larger by 1 / (1 − η / (2(2 − α))).

    The noise of batches heats both. There is no correction by acceptance: the answer is right to an error that falls
    with `lr`.
    """

    name: Literal["sghmc"] = "sghmc"
    lr: float = field(
        default=0.03,
        metadata={"gt": 0, "le": 1e6, "search": ("log", 1e-3, 0.3), "description": "step size: h of baoab, η of chen"},
    )
    friction: float = field(
        default=0.1, metadata={"gt": 0, "lt": 1, "description": "share of the momentum that a step loses"}
    )
    scheme: Scheme = field(default="baoab", metadata={"description": "how a step is made"})

    def kernel(self, data: Data | None = None) -> "Underdamped":
        gradients = self.gradients(data)
        return Underdamped(lr=self.lr, friction=self.friction, scheme=self.scheme, gradients=gradients)


@dataclass(frozen=True, kw_only=True)
class Underdamped:
    """The kernel of `sghmc`."""

    lr: float
    friction: float
    scheme: Scheme
    gradients: Gradients
    flat: ClassVar[tuple[str, ...]] = ("position", "momentum")
    scalars: ClassVar[tuple[str, ...]] = ()
    measures: ClassVar[tuple[str, ...]] = ()

    def start(self, target: Target, position: Tensor, warm: Tensors, step: Step) -> Carry:
        carry = {"position": position, **self.gradients.start(target, position, step)}
        _, slope = self.gradients(target, position, step)
        return {**carry, "momentum": warm.get("momentum", torch.zeros_like(position)), "slope": slope}

    def step(self, target: Target, carry: Carry, step: Step) -> Carry:
        position, momentum, root = carry["position"], carry["momentum"], carry["preconditioner"].sqrt()
        noise = step.normal(position)
        if self.scheme == "chen":
            _, slope = self.gradients(target, position, step)
            kick = self.lr * root * slope + math.sqrt(2 * self.friction * self.lr) * noise
            momentum = (1 - self.friction) * momentum + kick
            return {**carry, "position": position + root * momentum, "momentum": momentum, "slope": slope}
        keeps, h = 1 - self.friction, self.lr
        momentum = momentum + 0.5 * h * root * carry["slope"]
        position = position + 0.5 * h * root * momentum
        momentum = keeps * momentum + math.sqrt(1 - keeps**2) * noise
        position = position + 0.5 * h * root * momentum
        _, slope = self.gradients(target, position, step)
        return {**carry, "position": position, "momentum": momentum + 0.5 * h * root * slope, "slope": slope}

    def adapt(self, target: Target, carry: Carry, step: Step) -> Carry:
        return self.gradients.adapt(carry)
