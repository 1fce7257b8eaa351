"""A bound on the norm of the weights into each unit (Srivastava et al. 2014)."""

from collections.abc import Collection, Mapping

import torch
from torch import Tensor, nn

from bensemble_core.errors import InvalidOption
from bensemble_core.models.transforms import CONVOLUTIONS
from bensemble_core.types import Tensors


def limited_weights(module: nn.Module, trained: Collection[str]) -> dict[str, nn.Module]:
    """Trained weights of linear and convolution layers, and the layer of each."""
    names = {id(p): name for name, p in module.named_parameters()}
    layers = [m for m in module.modules() if isinstance(m, (nn.Linear, *CONVOLUTIONS))]
    found: dict[str, nn.Module] = {names[id(m.weight)]: m for m in layers if id(m.weight) in names}
    found = {name: m for name, m in found.items() if name in trained}  # frozen ones are not
    if not found:
        raise InvalidOption(
            "max_norm limits the weights of linear and convolution layers, and this training moves none under "
            "their own names; drop max_norm"
        )
    return found


def limit(theta: Tensors, layers: Mapping[str, nn.Module], max_norm: float) -> None:
    """w ← w · min(1, max_norm / ‖w‖) in place, for the weights w into each unit of named layers; θ is [M, ...]."""
    for name, layer in layers.items():
        into_units = _by_unit(theta[name], layer)  # a view
        norms = torch.linalg.vector_norm(into_units, dim=(2, 4), keepdim=True)
        into_units.mul_((max_norm / norms).clamp(max=1))  # a norm of 0 gives inf, hence 1


def _by_unit(weight: Tensor, layer: nn.Module) -> Tensor:
    """A view of weights [M, ...] as [M, G, in, out, kernel] whose axes 2 and 4 run over all that enters a unit."""
    n_members = weight.shape[0]
    if not getattr(layer, "transposed", False):
        return weight.view(n_members, 1, 1, weight.shape[1], -1)
    groups = int(layer.groups)  # type: ignore[arg-type]
    return weight.view(n_members, groups, weight.shape[1] // groups, weight.shape[2], -1)
