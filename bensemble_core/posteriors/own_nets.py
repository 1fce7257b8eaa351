"""Networks of a method's own (flows, mixing nets, encoders): tensors of its state under a prefix, trained with it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from bensemble_core.io import above, below
from bensemble_core.randomness import borrowed
from bensemble_core.types import Shapes, Tensors


@dataclass(frozen=True, eq=False)
class OwnNet:
    """A module that belongs to the method and not to the model, as tensors named prefix + its own names, [1, ...].

    A prefix ends with a slash, which no parameter of a model has: members are run without these tensors.
    """

    prefix: str
    build: Callable[[], nn.Module]

    def start(self, seed: int, *, dtype: torch.dtype, device: torch.device | str = "cpu") -> dict[str, Tensor]:
        """Fresh parameters, a function of the seed; the global generator is left as it was."""
        with borrowed(seed):
            module = self.build().to(dtype)
        own = {name: p.detach()[None].clone().to(device) for name, p in module.named_parameters()}
        return above(self.prefix, own)

    def shapes(self) -> Shapes:
        """Of a state, for `expected`; nothing is allocated."""
        return {self.prefix + name: (1, *p.shape) for name, p in self._outline.named_parameters()}

    def __call__(self, tensors: Tensors, *inputs: Tensor) -> Any:
        """What the module gives with the tensors of a state, or of θ in a descent."""
        own = {name: value[0] for name, value in below(self.prefix, tensors).items()}
        return functional_call(self._outline, own, inputs)

    @cached_property
    def _outline(self) -> nn.Module:
        with torch.device("meta"):
            return self.build()
