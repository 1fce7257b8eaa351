"""A small convolutional network."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from torch import nn

from bensemble_core.errors import InvalidModel
from bensemble_core.models.mlp import ACTIVATIONS, Activation, check_widths
from bensemble_core.options import STRICT


@dataclass(frozen=True, kw_only=True)
class Conv:
    """A small convolutional network for images.

    Per entry of `channels` a 3×3 convolution, activation and 2×2 max pooling; then one hidden linear layer.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    name: Literal["conv"] = "conv"
    channels: tuple[int, ...] = field(
        default=(32, 64), metadata={"min_length": 1, "max_length": 16, "description": "channels of each convolution"}
    )
    hidden: int = field(default=128, metadata={"ge": 1, "le": 65_536, "description": "width of the linear layer"})
    activation: Activation = field(default="relu", metadata={"description": "after each layer but the last"})

    def __post_init__(self) -> None:
        check_widths("conv", "channels", self.channels)

    def build(self, input_shape: tuple[int, ...], n_outputs: int) -> nn.Module:
        depth, height, width = image_shape("conv", input_shape)
        act = ACTIVATIONS[self.activation]
        net = nn.Sequential()
        for i, channels in enumerate(self.channels, 1):
            net.add_module(f"conv{i}", nn.Conv2d(depth, channels, 3, padding=1))
            pool = nn.MaxPool2d(2, ceil_mode=True)  # rounding up, a 1-pixel map stays 1 pixel
            if self.activation == "relu":  # the same numbers either way, and a quarter of the work for the second
                net.add_module(f"pool{i}", pool)
                net.add_module(f"act{i}", act())
            else:
                net.add_module(f"act{i}", act())
                net.add_module(f"pool{i}", pool)
            depth, height, width = channels, -(-height // 2), -(-width // 2)
        net.add_module("flatten", nn.Flatten())
        net.add_module("linear1", nn.Linear(depth * height * width, self.hidden))
        net.add_module("act", act())
        net.add_module("linear2", nn.Linear(self.hidden, n_outputs))
        return net


def image_shape(model: str, input_shape: tuple[int, ...]) -> tuple[int, int, int]:
    """The shape of a row as [C, H, W]; InvalidModel where it has no three axes."""
    if len(input_shape) != 3:
        raise InvalidModel(
            f"{model} needs images: an input shape [channels, height, width], got {list(input_shape)}; for flat rows "
            "of images say the shape (input_shape=(1, 8, 8)), for other rows use mlp"
        )
    return input_shape[0], input_shape[1], input_shape[2]
