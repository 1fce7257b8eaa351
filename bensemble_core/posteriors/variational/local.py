"""Local reparameterisation (Kingma et al. 2015): the noise of Gaussian weights, moved to what a layer puts out.

For a factorised Gaussian over the weights and a row x of features, the outputs of a linear layer are independent
Gaussians, h ~ N(x μᵀ + b, x² (σ²)ᵀ + σ_b²): drawing h instead of the weights gives every row noise of its own, so that
the variance of a batch's gradient falls as 1/B. Where a layer is applied at several positions of a row (a
convolution, a linear layer over a sequence), its outputs share weights and are correlated. Drawing each position on
its own, as is often done, would change the objective; here a row then draws weights of its own, which keeps both the
marginals and the covariance.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from bensemble_core.ensemble.members import gather, zero_rows
from bensemble_core.models.transforms import join, removing
from bensemble_core.randomness import borrowed
from bensemble_core.types import Problem, Tensors

Call: TypeAlias = Callable[[Tensors, Tensor], Tensor]
SD = "_sd"  # `weight` has the mean, `weight_sd` the standard deviation
_LOCAL = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_BUDGET = 1 << 24  # most numbers in the weights drawn for a batch; past it, neighbouring rows share a draw
_TRIALS = (3, 7)  # rows of the two runs that a layer is tried with


@dataclass(frozen=True, kw_only=True)
class LocalNoise:
    """For training: adds the noise of each named layer's weights to its outputs, from torch's global generator.

    The standard deviations arrive as the buffers `weight_sd` and `bias_sd`; left out, the layer is as it was. The
    training loop lends the global generator to each step from the member's own seed and restores it. The layer named
    as `head` gives means and variances side by side, [B, 2 O], for likelihoods that take the expectation themselves.
    """

    layers: tuple[str, ...]
    head: str | None = None
    name: str = "local_noise"

    def prepare(self, module: nn.Module) -> nn.Module:
        for name in self.layers:
            layer = module.get_submodule(name)
            for parameter in ("weight", "bias"):
                layer.register_buffer(parameter + SD, torch.zeros(0), persistent=False)
            layer.register_forward_hook(_moments if name == self.head else _noisy)
        return module

    def forward(self, call: Call, member: Tensors, shared: Tensors, x: Tensor) -> Tensor:
        return call({**shared, **member}, x)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "layers": list(self.layers), "head": self.head}


def find_local(problem: Problem, tensors: Tensors, candidates: set[str]) -> tuple[tuple[str, ...], str | None]:
    """The layers that can be treated so, and which of them gives the outputs of the network as they are, if one does.

    A layer qualifies if its weight is among the `candidates` (names of parameters) and its own alone, and if the
    network calls it once, with one entry per row on the first axis: found by running rows of zeros.
    """
    members = gather(problem, tensors, {}, mode="loop")
    module = members.module
    owners: dict[int, int] = {}
    for part in module.modules():
        for parameter in part._parameters.values():
            owners[id(parameter)] = owners.get(id(parameter), 0) + 1
    layers = {
        name: layer
        for name, layer in module.named_modules()
        if type(layer) in _LOCAL
        and join(name, "weight") in candidates
        and all(owners[id(p)] == 1 for p in layer.parameters())
        and not (layer._forward_hooks or layer._forward_pre_hooks)
    }
    one = {k: v[0] for k, v in tensors.items()}
    head: str | None = None
    for rows in _TRIALS:
        seen: dict[str, list[tuple[Tensor, Tensor]]] = {name: [] for name in layers}
        hooks = []
        for name, layer in layers.items():

            def note(_layer: nn.Module, args: tuple[Tensor, ...], output: Tensor, name: str = name) -> None:
                seen[name].append((args[0], output))  # noqa: B023 (the hook is gone before the next turn)

            hooks.append(layer.register_forward_hook(note))
        with removing(hooks), borrowed(0), torch.no_grad():
            outputs = members.one(one, {}, zero_rows(problem, rows, next(iter(tensors.values())).device))
        layers = {k: v for k, v in layers.items() if len(seen[k]) == 1 and _is_batch(v, seen[k][0][0], rows)}
        head = next((name for name in layers if seen[name][0][1] is outputs), None)
    return tuple(layers), head


def _is_batch(layer: nn.Module, x: Tensor, rows: int) -> bool:
    axes = 2 if isinstance(layer, nn.Linear) else next(layer.parameters()).ndim
    return x.shape[0] == rows and (x.ndim >= axes if isinstance(layer, nn.Linear) else x.ndim == axes)


def _moments(layer: nn.Module, args: tuple[Tensor, ...], mean: Tensor) -> Tensor:
    sd = _sd(layer, "weight")
    return mean if sd is None else torch.cat([mean, _variance(layer, sd, args[0])], -1)


def _noisy(layer: nn.Module, args: tuple[Tensor, ...], mean: Tensor) -> Tensor:
    x, sd = args[0], _sd(layer, "weight")
    if sd is None:
        return mean
    if isinstance(layer, nn.Linear) and x.ndim == 2:
        # a row of zeros has no variance, and the root no slope there
        spread = _variance(layer, sd, x).clamp_min(torch.finfo(x.dtype).tiny).sqrt()
        return mean + spread * torch.randn_like(mean)
    return mean + _row_by_row(layer, sd, _sd(layer, "bias"), x)


def _variance(layer: nn.Module, sd: Tensor, x: Tensor) -> Tensor:
    """x² (σ²)ᵀ + σ_b²: [B, O]."""
    bias = _sd(layer, "bias")
    return linear(x.square(), sd.square(), None if bias is None else bias.square())


def _row_by_row(layer: nn.Module, sd: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
    """The layer under σ ε with an ε for each row, or for each few rows where the draws would be too many."""
    per_draw = -(-x.shape[0] * sd.numel() // _BUDGET)  # rows
    if per_draw <= 1:
        weights = sd * torch.randn(x.shape[0], *sd.shape, dtype=x.dtype, device=x.device)
        biases = None if bias is None else bias * torch.randn(x.shape[0], *bias.shape, dtype=x.dtype, device=x.device)
        if biases is None:
            return torch.vmap(lambda x, w: _apply(layer, x[None], w, None)[0])(x, weights)
        return torch.vmap(lambda x, w, b: _apply(layer, x[None], w, b)[0])(x, weights, biases)
    parts = []
    for rows in torch.split(x, per_draw):
        drawn = None if bias is None else bias * torch.randn_like(bias)
        parts.append(_apply(layer, rows, sd * torch.randn_like(sd), drawn))
    return torch.cat(parts)


def _apply(layer: nn.Module, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if isinstance(layer, nn.Linear):
        return linear(x, weight, bias)
    assert isinstance(layer, (nn.Conv1d, nn.Conv2d, nn.Conv3d))
    outputs: Tensor = layer._conv_forward(x, weight, bias)
    return outputs


def _sd(layer: nn.Module, parameter: str) -> Tensor | None:
    sd = getattr(layer, parameter + SD)
    assert isinstance(sd, Tensor)
    return sd if sd.numel() else None
