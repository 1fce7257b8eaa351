"""The model that an ensemble of a neural process runs: a decoder under an encoded context.

A member is a context, not a set of weights. Rows that all members have in common are encoded once and shared, and so is
the decoder; what differs is stacked: the encoded pseudo-labels of a member, its average code, or its latent vector.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from bensemble_core.errors import InvalidFile
from bensemble_core.models.spec import reinitialised
from bensemble_core.options import is_number, whole
from bensemble_core.types import Model

Encoding = Literal["attention", "mean"]
WIDEST = 1024  # units of a layer
LONGEST = 10_000  # rows of a context that are kept one by one
_HEADS = 4  # of the attention


def perceptron(widths: Sequence[int]) -> nn.Sequential:
    """Linear layers of these widths with ReLU between them, on the last axis."""
    layers: list[nn.Module] = []
    for i, (a, b) in enumerate(pairwise(widths)):
        layers += [nn.Linear(a, b)] if i == 0 else [nn.ReLU(), nn.Linear(a, b)]
    return nn.Sequential(*layers)


class Attention(nn.Module):
    """Each row's own average of a context, by `_HEADS` softmaxes of dot products: Σ_c softmax_c(q · k_c / √d) v_c.

    It has no weights: projections are left to the networks that make queries, keys and values.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.n_heads = math.gcd(width, _HEADS)
        self.depth = width // self.n_heads
        self.softmax = nn.Softmax(-1)  # a module, so that a plan of rows sees how wide its output is

    def forward(
        self, queries: Tensor, keys: Sequence[Tensor], values: Sequence[Tensor], hidden: Tensor | None = None
    ) -> Tensor:
        """Queries [..., N, W], keys and values [..., C, W] in parts, `hidden` [..., C] where no row is -> [..., N, W].

        Parts are joined after their products with the queries, so that those which members share are made once.
        """
        q = self._heads(queries)
        scores = torch.cat([q @ self._heads(k).mT for k in keys], -1) / math.sqrt(q.shape[-1])  # [..., h, N, C]
        if hidden is not None:
            scores = scores.masked_fill(hidden[..., None, None, :], -math.inf)
        weights = self.softmax(scores).split([k.shape[-2] for k in keys], -1)
        found = [w @ self._heads(v) for w, v in zip(weights, values, strict=True)]
        total = found[0] if len(found) == 1 else found[0] + found[1]
        joined: Tensor = total.transpose(-2, -3).flatten(-2)
        return joined

    def _heads(self, values: Tensor) -> Tensor:
        apart = values.reshape(*values.shape[:-1], self.n_heads, self.depth)
        return apart.transpose(-2, -3)  # [..., h, N, W / h]


class Decoder(nn.Module):
    """Means and raw variances of rows, [..., N, 2T]: a perceptron of (x, code of the context, z).

    `floor` [T] is the least softplus(raw): where it is above 0, raw becomes softplus⁻¹(softplus(raw) + floor).
    """

    def __init__(self, n_inputs: int, width: int, floor: Sequence[float]) -> None:
        super().__init__()
        self.floor = tuple(floor)
        self.net = perceptron([n_inputs, width, width, 2 * len(self.floor)])

    def forward(self, *parts: Tensor) -> Tensor:
        """Parts [..., N, ·] of the input."""
        outputs: Tensor = self.net(torch.cat(parts, -1))
        if not any(self.floor):
            return outputs
        means, raw = outputs.chunk(2, -1)
        variance = softplus(raw) + raw.new_tensor(self.floor)
        return torch.cat([means, variance + torch.log(-torch.expm1(-variance))], -1)


@dataclass(frozen=True, kw_only=True)
class Conditioned:
    """A decoder under an encoded context.

    Its tensors beside the decoder's and the query network's: `context_keys`, `context_values` [C, W], the rows that
    members have in common, and `keys`, `values` [P, W], those of a member alone (attention); `code` [W], the average
    code (mean); `z` [L], the latent vector.
    """

    input_shape: tuple[int, ...]
    n_outputs: int  # 2T
    encoder: Encoding
    width: int
    latent: int = 0  # L; 0 is a conditional neural process
    n_context: int = 0  # C
    n_own: int = 0  # P
    floor: tuple[float, ...] = (0.0,)  # [T]
    integers: ClassVar[bool] = False

    @property
    def has_code(self) -> bool:
        """Whether the decoder is given a code of the context beside z."""
        return self.encoder == "attention" or not self.latent

    def decoder(self) -> Decoder:
        """The decoder alone."""
        return Decoder(math.prod(self.input_shape) + self.width * self.has_code + self.latent, self.width, self.floor)

    def query(self) -> nn.Module:
        """What queries and keys are made with (Kim et al. 2019 use one network for both)."""
        return perceptron([math.prod(self.input_shape), self.width, self.width])

    def skeleton(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):  # building draws initial values
            return _UnderContext(self)

    def initialise(self, seed: int, *, dtype: torch.dtype) -> dict[str, Tensor]:
        return reinitialised(self.skeleton(), seed, dtype)

    def given(self, *, dtype: torch.dtype) -> dict[str, Tensor] | None:
        return None

    def to_json(self) -> dict[str, Any]:
        return {
            "derived": "conditioned",
            "inner": None,
            "input_shape": list(self.input_shape),
            "n_outputs": self.n_outputs,
            "encoder": self.encoder,
            "width": self.width,
            "latent": self.latent,
            "n_context": self.n_context,
            "n_own": self.n_own,
            "floor": list(self.floor),
        }

    @classmethod
    def from_json(cls, spec: Mapping[str, Any], inner: Model | None) -> "Conditioned":
        """The inverse of `to_json`."""
        sizes = {"width": (1, WIDEST), "latent": (0, WIDEST), "n_context": (0, LONGEST), "n_own": (0, LONGEST)}
        found = {name: whole(spec[name], name) for name in sizes}
        for name, (least, most) in sizes.items():
            if not least <= found[name] <= most:
                raise InvalidFile(f"{name} of a conditioned model is {least} to {most:,}, got {found[name]}")
        encoder, floor, n_outputs = spec["encoder"], spec["floor"], whole(spec["n_outputs"], "n_outputs")
        numbers = isinstance(floor, list) and all(is_number(least) and least >= 0 for least in floor)
        if encoder not in ("attention", "mean") or not numbers or not 0 < 2 * len(floor) == n_outputs:
            raise InvalidFile(
                "a conditioned model has an encoder (attention or mean), and for each target two outputs and a floor "
                f"of at least 0, got {encoder!r:.40}, {n_outputs} outputs and {floor!r:.40}; write the file anew"
            )
        shape = tuple(whole(n, "an entry of input_shape") for n in spec["input_shape"])
        return cls(input_shape=shape, n_outputs=n_outputs, encoder=encoder, floor=tuple(map(float, floor)), **found)


class _UnderContext(nn.Module):
    """The decoder and the context that it is under, as one module of rows."""

    context_keys: Tensor
    context_values: Tensor
    keys: Tensor
    values: Tensor
    code: Tensor
    z: Tensor

    def __init__(self, model: Conditioned) -> None:
        super().__init__()
        self.attends, self.has_code = model.encoder == "attention", model.has_code
        self.has_latent = model.latent > 0
        width = model.width
        shapes: dict[str, tuple[int, ...]] = {}
        if self.attends:
            self.query, self.attention = model.query(), Attention(width)
            shapes = {"context_keys": (model.n_context, width), "context_values": (model.n_context, width)}
            shapes |= {"keys": (model.n_own, width), "values": (model.n_own, width)}
        elif self.has_code:
            shapes = {"code": (width,)}
        if self.has_latent:
            shapes["z"] = (model.latent,)
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.zeros(shape)))
        self.decoder = model.decoder()

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        parts = [x]
        if self.attends:
            keys, values = (self.context_keys, self.keys), (self.context_values, self.values)
            parts.append(self.attention(self.query(x), keys, values))
        elif self.has_code:
            parts.append(self.code.expand(len(x), -1))
        if self.has_latent:
            parts.append(self.z.expand(len(x), -1))
        outputs: Tensor = self.decoder(*parts)
        return outputs
