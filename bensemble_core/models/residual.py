"""Residual network for small images."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from torch import Tensor, nn
from torch.nn.functional import relu

from bensemble_core.models.conv import image_shape
from bensemble_core.options import STRICT


@dataclass(frozen=True, kw_only=True)
class Residual:
    """A residual network for small images (He et al. 2016, section 4.2).

    ResNet-(6·blocks + 2): three stages of `width`, 2·`width`, 4·`width` channels.

    Batch normalisation after each convolution; where a stage halves the image the shortcut is a 1×1 convolution
    (their option B). The defaults are ResNet-20.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    name: Literal["residual"] = "residual"
    width: int = field(default=16, metadata={"ge": 1, "le": 1024, "description": "channels of the first stage"})
    blocks: int = field(default=3, metadata={"ge": 1, "le": 64, "description": "residual blocks in each stage"})

    def build(self, input_shape: tuple[int, ...], n_outputs: int) -> nn.Module:
        depth, _, _ = image_shape("residual", input_shape)
        net = nn.Sequential()
        net.add_module("stem", nn.Conv2d(depth, self.width, 3, padding=1, bias=False))
        net.add_module("norm", nn.BatchNorm2d(self.width))
        net.add_module("act", nn.ReLU())
        depth = self.width
        for stage in range(3):
            for block in range(self.blocks):
                channels = self.width * 2**stage
                stride = 2 if stage and not block else 1
                net.add_module(f"stage{stage + 1}_block{block + 1}", Block(depth, channels, stride))
                depth = channels
        net.add_module("pool", nn.AdaptiveAvgPool2d(1))
        net.add_module("flatten", nn.Flatten())
        net.add_module("linear", nn.Linear(depth, n_outputs))
        return net


class Block(nn.Module):
    """relu(x + bn(conv(relu(bn(conv(x))))))."""

    def __init__(self, depth: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(depth, channels, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        same = stride == 1 and depth == channels
        self.shortcut = nn.Identity() if same else nn.Conv2d(depth, channels, 1, stride=stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        h = relu(self.norm1(self.conv1(x)))
        return relu(self.norm2(self.conv2(h)) + self.shortcut(x))
