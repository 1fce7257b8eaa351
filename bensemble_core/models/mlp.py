"""Multi-layer perceptron."""

import math
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from torch import nn

from bensemble_core.errors import InvalidOption
from bensemble_core.options import STRICT

Activation = Literal["relu", "tanh", "gelu", "silu"]
ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU, "silu": nn.SiLU}
WIDEST = 65_536  # units of a layer


@dataclass(frozen=True, kw_only=True)
class MLP:
    """Linear layers with an activation between them.

    A row of any shape is flattened. `hidden=[]` is a linear model.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    name: Literal["mlp"] = "mlp"
    hidden: tuple[int, ...] = field(
        default=(128, 128), metadata={"max_length": 32, "description": "width of each hidden layer"}
    )
    activation: Activation = field(default="relu", metadata={"description": "between the layers"})

    def __post_init__(self) -> None:
        check_widths("mlp", "hidden", self.hidden)

    def build(self, input_shape: tuple[int, ...], n_outputs: int) -> nn.Module:
        layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
        widths = [math.prod(input_shape), *self.hidden, n_outputs]
        for i in range(len(widths) - 1):
            if i:
                layers[f"act{i}"] = ACTIVATIONS[self.activation]()
            layers[f"linear{i + 1}"] = nn.Linear(widths[i], widths[i + 1])
        return nn.Sequential(layers)


def check_widths(model: str, option: str, widths: tuple[int, ...]) -> None:
    """Each width is a whole number from 1 to 65,536 (field metadata cannot bound a list's entries)."""
    for width in widths if isinstance(widths, (tuple, list)) else ():  # what is no list is refused by its type
        if not isinstance(width, int) or isinstance(width, bool) or not 1 <= width <= WIDEST:
            raise InvalidOption(f"{model}: each entry of {option} is a whole number from 1 to {WIDEST}, got {width!r}")
