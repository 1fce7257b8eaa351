"""What a method does to any module: masks, fixed or random; rank-one factors; linearisation. Names never change.

A transform registers extra tensors as buffers of the layers concerned and reads them in a forward hook, so that they
travel with all other named tensors: stacked for what differs between members, shared for what does not.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from bensemble_core.errors import InvalidFile
from bensemble_core.types import Shapes, Tensors, Transform

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
Call: TypeAlias = Callable[[Tensors, Tensor], Tensor]
MASK, LOGIT = "input_mask", "input_logit"
MaskKind: TypeAlias = Literal["bernoulli", "gaussian"]
FACTOR_IN, FACTOR_OUT, _BIAS = "factor_r", "factor_s", "factor_bias"


@contextmanager
def removing(hooks: Sequence[RemovableHandle]) -> Iterator[None]:
    """Removes the hooks at the end of the block, however it ends."""
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


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
    with removing(hooks):
        run()
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
    """Dropout for training: a fresh mask per row and call, from torch's global generator.

    Bernoulli(1 − rate)/(1 − rate), or N(1, rate/(1 − rate)); both have mean 1 and variance rate/(1 − rate).
    The training loop lends the global generator to each step from the member's own seed and restores it. Nothing is
    dropped in eval mode. A mask is one entry per feature (channel): the positions of a sequence or image share it.
    """

    layers: tuple[str, ...]
    rate: float
    kind: MaskKind = "bernoulli"
    name: str = "random_masks"

    def prepare(self, module: nn.Module) -> nn.Module:
        for name in self.layers:
            layer = module.get_submodule(name)
            layer.register_forward_pre_hook(self._drop)
        return module

    def forward(self, call: Call, member: Tensors, shared: Tensors, x: Tensor) -> Tensor:
        return call({**shared, **member}, x)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "layers": list(self.layers), "rate": self.rate, "kind": self.kind}

    def _drop(self, layer: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if not layer.training:
            return args
        x = args[0]
        mask = torch.empty(_row_mask_shape(layer, x), dtype=x.dtype, device=x.device)
        return (x * fill_mask(mask, self.rate, self.kind, None), *args[1:])


@dataclass(frozen=True, kw_only=True)
class ConcreteMasks:
    """Dropout for training with a rate per layer that has a gradient (Gal, Hron & Kendall 2017).

    The share dropped of a feature is sigmoid((logit p + logit u) / temperature), u ~ Uniform(0, 1), in place of a
    Bernoulli(p); what is left is divided by 1 − p. The buffer `input_logit` [1] of each layer holds logit p. Otherwise
    as RandomMasks.
    """

    layers: tuple[str, ...]
    temperature: float = 0.1
    name: str = "concrete_masks"

    def prepare(self, module: nn.Module) -> nn.Module:
        for name in self.layers:
            layer = module.get_submodule(name)
            layer.register_buffer(LOGIT, torch.zeros(1), persistent=False)
            layer.register_forward_pre_hook(self._drop)
        return module

    def forward(self, call: Call, member: Tensors, shared: Tensors, x: Tensor) -> Tensor:
        return call({**shared, **member}, x)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "layers": list(self.layers), "temperature": self.temperature}

    def _drop(self, layer: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if not layer.training:
            return args
        x = args[0]
        logit: Tensor = getattr(layer, LOGIT)
        u = torch.rand(_row_mask_shape(layer, x), dtype=x.dtype, device=x.device)
        u = u.clamp(torch.finfo(x.dtype).tiny, 1 - torch.finfo(x.dtype).eps)  # rand may give 0, never 1
        dropped = torch.sigmoid((logit + torch.logit(u)) / self.temperature)
        return (x * (1 - dropped) / torch.sigmoid(-logit), *args[1:])


def fill_mask(mask: Tensor, rate: float, kind: MaskKind, generator: torch.Generator | None) -> Tensor:
    """Draw a mask in place: mean 1, variance rate/(1 − rate)."""
    if kind == "gaussian":
        return mask.normal_(1.0, math.sqrt(rate / (1 - rate)), generator=generator)
    return mask.bernoulli_(1 - rate, generator=generator).div_(1 - rate)


def _row_mask_shape(layer: nn.Module, x: Tensor) -> list[int]:
    """One entry per row and feature (channel): x is [B, ..., D] before a linear layer, else [B, C, ...]."""
    if isinstance(layer, nn.Linear):
        return [*x.shape[:1], *[1] * (x.ndim - 2), x.shape[-1]]
    return [*x.shape[:2], *[1] * (x.ndim - 2)]


@dataclass(frozen=True, kw_only=True)
class RankOne:
    """W ∘ (s rᵀ) in each named layer (Wen, Tran & Ba 2020): its input times r, its output times s, then the bias.

    Buffers `factor_r` [D] and `factor_s` [O] (channels of a convolution), 1 where left out. In training a member of the
    descent holds a whole ensemble: factors and biases [G, …], and rows in G equal runs, the g-th of which is run under
    the g-th factors, all in one pass. A batch that G does not divide is filled up with its first rows, then cut.
    """

    layers: tuple[str, ...]
    name: str = "rank_one"

    def prepare(self, module: nn.Module) -> nn.Module:
        for name in self.layers:
            layer = module.get_submodule(name)
            n_in, n_out = widths(layer)
            for buffer, start in ((FACTOR_IN, torch.ones(n_in)), (FACTOR_OUT, torch.ones(n_out))):
                layer.register_buffer(buffer, start, persistent=False)
            if layer.bias is not None:
                layer.register_buffer(_BIAS, torch.zeros(n_out), persistent=False)
            layer.register_forward_pre_hook(_times_r)
            layer.register_forward_hook(_times_s)
        return module

    def forward(self, call: Call, member: Tensors, shared: Tensors, x: Tensor) -> Tensor:
        tensors = {**shared, **member}
        n_groups = 1
        for name in self.layers:
            bias = join(name, "bias")
            if bias in tensors:  # the layer's own would be multiplied by s
                own = tensors[bias]
                tensors[join(name, _BIAS)] = own
                tensors[bias] = torch.zeros(own.shape[-1], dtype=own.dtype, device=own.device)
            for factor in (FACTOR_IN, FACTOR_OUT):
                found = tensors.get(join(name, factor))
                if found is not None and found.ndim == 2:
                    n_groups = found.shape[0]
        n_rows = x.shape[0]
        if n_rows % n_groups:
            full = -(-n_rows // n_groups) * n_groups
            return call(tensors, x[torch.arange(full, device=x.device) % n_rows])[:n_rows]
        return call(tensors, x)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "layers": list(self.layers)}


@dataclass(frozen=True, kw_only=True)
class Linearised:
    """f(x, θ*) + J(x) (θ − θ*): a member holds θ, and θ* is shared under the same names.

    The product with the Jacobian J = ∂f/∂θ at θ* is one forward derivative; no Jacobian is formed.
    """

    name: str = "linearised"

    def prepare(self, module: nn.Module) -> nn.Module:
        return module

    def forward(self, call: Call, member: Tensors, shared: Tensors, x: Tensor) -> Tensor:
        centre = {k: shared[k] for k in member}
        offset = {k: member[k] - centre[k] for k in member}
        _load_forward_derivatives()
        pair: Any = torch.func.jvp(lambda theta: call({**shared, **theta}, x), (centre,), (offset,))
        linear: Tensor = pair[0] + pair[1]
        return linear

    def centre(self, call: Call, member: Tensors, shared: Tensors, x: Tensor) -> Tensor:
        """The network at θ*: its layers' inputs are the features of every member."""
        return call(shared, x)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name}


@cache
def _load_forward_derivatives() -> None:
    """torch loads them at the first use, by a call of its own that it deprecates: no caller should see that warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.func.jvp(torch.sin, (torch.zeros(()),), (torch.zeros(()),))


def join(layer: str, tensor: str) -> str:
    """The full name of a layer's tensor; a module that is itself the layer has no prefix."""
    return f"{layer}.{tensor}" if layer else tensor


def widths(layer: nn.Module) -> tuple[int, int]:
    """Input and output features, or channels, of a layer."""
    if isinstance(layer, nn.Linear):
        return layer.in_features, layer.out_features
    assert isinstance(layer, CONVOLUTIONS)
    return layer.in_channels, layer.out_channels


def _times_r(layer: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (args[0] * _per_row(layer, FACTOR_IN, args[0]), *args[1:])


def _times_s(layer: nn.Module, _args: tuple[Tensor, ...], out: Tensor) -> Tensor:
    s = _per_row(layer, FACTOR_OUT, out)
    return out * s if layer.bias is None else torch.addcmul(_per_row(layer, _BIAS, out), out, s)


def _per_row(layer: nn.Module, name: str, x: Tensor) -> Tensor:
    """A layer's factor [D], or [G, D] for G runs of rows, to broadcast against x [B, ..., D] or [B, D, ...]."""
    factor: Tensor = getattr(layer, name)
    if factor.ndim == 2:
        run = x.shape[0] // factor.shape[0]
        factor = factor[:, None].expand(-1, run, -1).reshape(-1, factor.shape[1])  # [B, D]
    gaps = [1] * (x.ndim - 2)
    if isinstance(layer, nn.Linear):
        return factor.view(-1, *gaps, factor.shape[1]) if factor.ndim == 2 else factor
    return factor.view(*factor.shape, *gaps)


def _multiply(layer: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (args[0] * getattr(layer, MASK), *args[1:])


TRANSFORMS: dict[str, type[FixedMasks] | type[RandomMasks] | type[ConcreteMasks] | type[RankOne] | type[Linearised]] = {
    "fixed_masks": FixedMasks,
    "random_masks": RandomMasks,
    "concrete_masks": ConcreteMasks,
    "rank_one": RankOne,
    "linearised": Linearised,
}


def extra_shapes(transform: Transform | None, module: nn.Module) -> Shapes:
    """Names and shapes of the tensors that a transform adds to those of a module, which it changes."""
    if transform is None:
        return {}
    layers: tuple[str, ...] = getattr(transform, "layers", ())
    for name in layers:
        if layers.count(name) > 1 or not isinstance(module.get_submodule(name), (nn.Linear, *CONVOLUTIONS)):
            raise InvalidFile(f"{transform.name} is of linear and convolution layers, each named once; got {name!r}")
    before = {name for name, _ in module.named_buffers()}
    with torch.device("meta"):
        named = dict(transform.prepare(module).named_buffers())
    return {
        name: tuple(buffer.shape)
        for name, buffer in named.items()
        if name not in before and name.rpartition(".")[2] != _BIAS
    }


def transform_from_json(spec: Mapping[str, Any] | None) -> Transform | None:
    """The inverse of `to_json`; None is the module as it is."""
    if spec is None:
        return None
    if spec.get("name") not in TRANSFORMS:
        raise InvalidFile(f"unknown transform {spec.get('name')!r}; there are {', '.join(TRANSFORMS)}")
    options: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in spec.items()}
    made: Transform = TRANSFORMS[spec["name"]](**options)
    return made
