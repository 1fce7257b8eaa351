"""The network for rows of a shape, where nobody named one."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import nn

from bensemble_core.models.conv import Conv
from bensemble_core.models.mlp import MLP
from bensemble_core.options import STRICT


@dataclass(frozen=True, kw_only=True)
class Default:
    """No choice of a network: `conv` with its defaults for images [channels, height, width], else `mlp` with its own.

    It leaves the posterior `auto` free to take no network at all, where something else predicts better from few labels.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    name: Literal["default"] = "default"

    def build(self, input_shape: tuple[int, ...], n_outputs: int) -> nn.Module:
        network = Conv() if len(input_shape) == 3 else MLP()
        return network.build(input_shape, n_outputs)
