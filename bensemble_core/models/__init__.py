"""Networks by name. Adding one is a file with a frozen dataclass that builds it, and a line here.

From outside use the names below, `spec` (a network's skeleton, names and shapes) and `transforms` (what changes how a
network's layers are computed: masks, factors, linearisation).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bensemble_core import options
from bensemble_core.errors import InvalidModel, InvalidOption
from bensemble_core.models.conv import Conv
from bensemble_core.models.default import Default
from bensemble_core.models.mlp import MLP
from bensemble_core.models.residual import Residual
from bensemble_core.models.spec import ModelSpec, ModuleSpec, Network, adopt, outline

MODELS: dict[str, type[MLP] | type[Conv] | type[Residual] | type[Default]] = {
    "mlp": MLP,
    "conv": Conv,
    "residual": Residual,
    "default": Default,
}
options.document(*MODELS.values())

__all__ = [
    "MLP",
    "MODELS",
    "Conv",
    "Default",
    "ModelSpec",
    "ModuleSpec",
    "Residual",
    "adopt",
    "count_parameters",
    "named_model",
]


def named_model(
    spec: str | Mapping[str, Any] | MLP | Conv | Residual | Default | None, input_shape: Sequence[int], n_outputs: int
) -> ModelSpec:
    """`{"name": "mlp", "hidden": [128, 128]}`, or the name alone, for rows of a shape: checked, not yet built.

    None is the default network of that shape.
    """
    network: Network
    if spec is None:
        spec = Default()
    if isinstance(spec, str):
        spec = {"name": spec}
    if isinstance(spec, Mapping):
        name = spec.get("name")
        if name not in MODELS:
            raise InvalidOption(f"unknown model {name!r}; there are {', '.join(MODELS)}")
        network = options.make(MODELS[name], spec)
    elif not isinstance(spec, tuple(MODELS.values())):
        came = f"the class {spec.__name__}; pass an instance of it" if isinstance(spec, type) else repr(spec)
        raise InvalidModel(f'expected a model such as {{"name": "mlp", "hidden": [64]}} or an nn.Module, got {came}')
    else:
        options.check(spec)
        network = spec
    shape = tuple(int(n) for n in input_shape)
    if not shape or min(shape) < 1:
        raise InvalidModel(f"expected the shape of a row, such as [64] or [1, 8, 8], got {list(shape)}")
    return ModelSpec(network=network, input_shape=shape, n_outputs=n_outputs)


def count_parameters(spec: str | Mapping[str, Any] | None, input_shape: Sequence[int], n_outputs: int) -> int:
    """Number of weights and biases, without allocating them."""
    model = named_model(spec, input_shape, n_outputs)
    return sum(math.prod(p.shape) for p in outline(model).parameters())
