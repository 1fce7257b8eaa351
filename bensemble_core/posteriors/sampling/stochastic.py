"""What samplers that read a batch of rows a step have in common: their options, and a preconditioner."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from bensemble_core.posteriors.log_posterior import Target
from bensemble_core.posteriors.sampling.chains import Carry, Step
from bensemble_core.posteriors.sampling.sampler import Sampling
from bensemble_core.types import Data

_MEMORY = 0.99  # of the running mean of squared gradients
_FLOOR = 0.1  # least root of a squared gradient that is divided by, as a share of their average


@dataclass(frozen=True, kw_only=True)
class Stochastic(Sampling):
    """The options of samplers that read a batch of rows a step."""

    batches: ClassVar[bool] = True

    warmup: int = field(
        default=2000, metadata={"ge": 0, "le": 10_000_000, "description": "steps before the first draw, to adapt in"}
    )
    thin: int = field(default=10, metadata={"ge": 1, "le": 1_000_000, "description": "steps a draw"})
    batch_size: int = field(default=256, metadata={"ge": 1, "le": 1_000_000, "description": "rows a step; ≥ N is all"})
    preconditioner: Literal["rmsprop", "none"] = field(
        default="rmsprop",
        metadata={"description": "steps of each weight by the size of its gradient, learnt in the warm-up, or alike"},
    )

    @property
    def advice(self) -> str:
        return "take more or larger steps (warmup, thin, lr)"

    def gradients(self, data: Data | None) -> "Gradients":
        """Where steps get their gradients from."""
        n_rows, is_augmented = (0, False) if data is None else (data.n_rows, data.augment is not None)
        return Gradients(
            batch_size=self.batch_size,
            n_rows=n_rows,
            preconditioner=self.preconditioner,
            is_augmented=is_augmented,
        )


@dataclass(frozen=True, kw_only=True)
class Gradients:
    """Batches of rows, and G = 1 / (λ + √V), V a running mean of squared gradients of the log posterior.

    After the warm-up G is held: a G that moves with θ would need the drift Γ = Σ ∂G/∂θ, which costs third derivatives,
    and without it chains go to another distribution (Li et al. 2016 drop it).
    """

    batch_size: int
    n_rows: int
    preconditioner: Literal["rmsprop", "none"]
    is_augmented: bool = False  # a batch of all rows is still one, since they change as they are read

    def start(self, target: Target, position: Tensor, step: Step) -> Carry:
        """The carry's own tensors, of a first gradient."""
        if self.preconditioner == "none":
            return {"preconditioner": torch.ones_like(position[:1])}
        _, slope = self(target, position, step)
        return _preconditioner({"squares": slope.square().mean(0, keepdim=True)})

    def __call__(self, target: Target, position: Tensor, step: Step) -> tuple[Tensor, Tensor]:
        """log p and its gradient at a position, by this step's batch."""
        if self.batch_size >= self.n_rows and not self.is_augmented:
            return target(position)
        return target(position, step.batch(self.n_rows, self.batch_size, position.device))

    def adapt(self, carry: Carry) -> Carry:
        """The carry with the last gradient, its "slope", in G."""
        if self.preconditioner == "none":
            return carry
        seen = carry["slope"].square().mean(0, keepdim=True)
        return {**carry, **_preconditioner({"squares": _MEMORY * carry["squares"] + (1 - _MEMORY) * seen})}


def _preconditioner(carry: Carry) -> Carry:
    root = carry["squares"].sqrt()
    return {**carry, "preconditioner": 1 / (root + _FLOOR * root.mean()).clamp(min=1e-12)}
