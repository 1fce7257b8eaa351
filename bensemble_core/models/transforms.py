"""What a method does to any module: fixed masks, random masks. Parameter names never change.

A transform registers extra tensors as buffers of the layers concerned and reads them in a forward hook, so that they
travel with all other named tensors: stacked for what differs between members, shared for what does not.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from bensemble_core.errors import InvalidFile
from bensemble_core.types import Tensors, Transform

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
Call: TypeAlias = Callable[[Tensors, Tensor], Tensor]
MASK = "input_mask"


def layers_in_order(module: nn.Module, run: Callable[[], object]) -> list[str]:
    """Names of the linear and convolution layers that `run` calls, in the order of their first call."""
    found: list[str] = []
    hooks = []
    for name, part in module.named_modules():
        if isinstance(part, (nn.Linear, *CONVOLUTIONS)):

            def note(_part: nn.Module, _args: object, name: str = name) -> None:
                if name not in found:
                    found.append(name)

            hooks.append(part.register_forward_pre_hook(note))
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    return found


def mask_shape(layer: nn.Module) -> tuple[int, ...]:
    """Of a mask over a layer's input: one entry per feature, or per channel of a convolution."""
    if isinstance(layer, nn.Linear):
        return (layer.in_features,)
    assert isinstance(layer, CONVOLUTIONS)
    return (layer.in_channels, *[1] * (layer.weight.ndim - 2))


@dataclass(frozen=True, kw_only=True)
class FixedMasks:
    """Multiply the input of each named layer by its buffer `input_mask`: [D], or [C, 1, 1] before a convolution."""

    layers: tuple[str, ...]
    name: str = "fixed_masks"

    def prepare(self, module: nn.Module) -> nn.Module:
        for name in self.layers:
            layer = module.get_submodule(name)
            layer.register_buffer(MASK, torch.ones(mask_shape(layer)), persistent=False)
            layer.register_forward_pre_hook(_multiply)
        return module

    def forward(self, call: Call, member: Tensors, shared: Tensors, x: Tensor) -> Tensor:
        return call({**shared, **member}, x)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "layers": list(self.layers)}


@dataclass(frozen=True, kw_only=True)
class RandomMasks:
    """Dropout for training: a fresh mask per row and call, scaled by 1/(1 − rate), from torch's global generator.

    The training loop lends the global generator to each step from the member's own seed and restores it. Nothing is
    dropped in eval mode. A mask is one entry per feature (channel): the positions of a sequence or image share it.
    """

    layers: tuple[str, ...]
    rate: float
    name: str = "random_masks"

    def prepare(self, module: nn.Module) -> nn.Module:
        for name in self.layers:
            layer = module.get_submodule(name)
            layer.register_forward_pre_hook(self._drop)
        return module

    def forward(self, call: Call, member: Tensors, shared: Tensors, x: Tensor) -> Tensor:
        return call({**shared, **member}, x)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "layers": list(self.layers), "rate": self.rate}

    def _drop(self, layer: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if not layer.training:
            return args
        x = args[0]  # [B, ..., D] before a linear layer, [B, C, ...] before a convolution
        linear = isinstance(layer, nn.Linear)
        shape = [*x.shape[:1], *[1] * (x.ndim - 2), x.shape[-1]] if linear else [*x.shape[:2], *[1] * (x.ndim - 2)]
        mask = torch.empty(shape, dtype=x.dtype, device=x.device).bernoulli_(1 - self.rate)
        return (x * mask.div_(1 - self.rate), *args[1:])


def _multiply(layer: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (args[0] * getattr(layer, MASK), *args[1:])


TRANSFORMS: dict[str, type[FixedMasks] | type[RandomMasks]] = {"fixed_masks": FixedMasks, "random_masks": RandomMasks}


def transform_from_json(spec: Mapping[str, Any] | None) -> Transform | None:
    """The inverse of `to_json`; None is the module as it is."""
    if spec is None:
        return None
    if spec.get("name") not in TRANSFORMS:
        raise InvalidFile(f"unknown transform {spec.get('name')!r}; there are {', '.join(TRANSFORMS)}")
    options: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in spec.items()}
    made: Transform = TRANSFORMS[spec["name"]](**options)
    return made
