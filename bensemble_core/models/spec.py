"""A model as the library holds it: by name with plain JSON options, or around a module that the caller wrote."""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from bensemble_core.errors import InvalidModel
from bensemble_core.options import to_json
from bensemble_core.randomness import borrowed
from bensemble_core.types import Likelihood, Model

LARGEST_ROW = 1 << 26  # numbers; a larger shape is a mistake, and two rows of zeros would fill the memory


class Network(Protocol):
    """An entry of MODELS."""

    def build(self, input_shape: tuple[int, ...], n_outputs: int) -> nn.Module: ...


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A network by name: an entry of MODELS with its input shape and number of outputs."""

    network: Network
    input_shape: tuple[int, ...]
    n_outputs: int
    integers: ClassVar[bool] = False

    def skeleton(self) -> nn.Module:
        with borrowed(0):  # building draws initial values
            return self.network.build(self.input_shape, self.n_outputs)

    def initialise(self, seed: int, *, dtype: torch.dtype) -> dict[str, Tensor]:
        return reinitialised(self.skeleton(), seed, dtype)

    def given(self, *, dtype: torch.dtype) -> dict[str, Tensor] | None:
        return None

    def to_json(self) -> dict[str, Any]:
        return {
            "spec": to_json(self.network),
            "input_shape": list(self.input_shape),
            "n_outputs": self.n_outputs,
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class ModuleSpec:
    """A copy of the caller's module. A file keeps its tensors, not its code: hence `load(path, model=net)`."""

    module: nn.Module
    input_shape: tuple[int, ...]
    n_outputs: int
    integers: bool = False  # rows are indices into an embedding

    def skeleton(self) -> nn.Module:
        return copy.deepcopy(self.module)

    def initialise(self, seed: int, *, dtype: torch.dtype) -> dict[str, Tensor]:
        return reinitialised(self.skeleton(), seed, dtype)

    def given(self, *, dtype: torch.dtype) -> dict[str, Tensor] | None:
        return tensors_of(self.skeleton().to(dtype))

    def to_json(self) -> dict[str, Any]:
        return {
            "spec": None,
            "integers": self.integers,
            "module": type(self.module).__name__,
            "input_shape": list(self.input_shape),
            "n_outputs": self.n_outputs,
        }


def adopt(module: nn.Module, input_shape: tuple[int, ...], *, dtype: torch.dtype, integers: bool = False) -> ModuleSpec:
    """A spec around a copy of the module; two rows of zeros are run through it to learn its number of outputs."""
    if not input_shape or min(input_shape) < 1 or math.prod(input_shape) > LARGEST_ROW:
        raise InvalidModel(f"expected the shape of a row, such as [64] or [1, 8, 8], got {list(input_shape)}")
    try:
        own = copy.deepcopy(module).to("cpu")
    except Exception as reason:
        raise InvalidModel(
            f"{type(module).__name__} cannot be copied ({reason}); of weight_norm and spectral_norm, use those of "
            "torch.nn.utils.parametrizations"
        ) from reason
    row = torch.zeros(2, *input_shape, dtype=torch.int64 if integers else dtype)
    try:
        with borrowed(0), torch.no_grad():
            outputs = own.to(dtype).eval()(row)  # lazy layers take their shape from this row
    except Exception as reason:
        raise InvalidModel(
            f"{type(module).__name__} does not run on rows of shape {list(input_shape)} ({reason}); pass rows in the "
            "shape it expects, or input_shape=…"
        ) from reason
    if not isinstance(outputs, Tensor) or outputs.ndim not in (1, 2) or outputs.shape[0] != 2:
        came = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise InvalidModel(f"expected a tensor [rows, outputs] from {type(module).__name__}, got {came} for 2 rows")
    own.train(module.training)
    n_outputs = 1 if outputs.ndim == 1 else int(outputs.shape[1])
    return ModuleSpec(module=own, input_shape=input_shape, n_outputs=n_outputs, integers=integers)


def outline(model: Model) -> nn.Module:
    """The skeleton for its names, shapes and layers alone: only a caller's module holds numbers (others: meta)."""
    if isinstance(model, ModuleSpec):
        return model.skeleton()
    with torch.device("meta"):
        return model.skeleton()


def has_embedding(module: nn.Module) -> bool:
    """Whether rows of whole numbers are meant as indices."""
    return any(isinstance(m, (nn.Embedding, nn.EmbeddingBag)) for m in module.modules())


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Named parameters and buffers, non-persistent ones too; tied tensors appear once, under their first name."""
    named = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {name: t.detach().clone() for name, t in named.items()}


def trainable_names(module: nn.Module) -> list[str]:
    """Parameters with requires_grad; a frozen one stays as it was handed in."""
    return [name for name, p in module.named_parameters() if p.requires_grad]


def reinitialised(module: nn.Module, seed: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """Fresh tensors for a module (our own copy), by its layers' `reset_parameters`.

    A parameter that no layer resets is redrawn as normal with the mean and standard deviation of its entries (a
    constant one is kept), so that members differ whatever the module looks like. Frozen parameters keep their values.
    """
    module = module.to(dtype)
    frozen = {name: p.detach().clone() for name, p in module.named_parameters() if not p.requires_grad}
    with borrowed(seed), torch.no_grad():
        for part in module.modules():
            own = list(part.parameters(recurse=False))
            if own and not any(p.requires_grad for p in own):
                continue
            reset = getattr(part, "reset_parameters", None) or getattr(part, "_reset_parameters", None)
            if callable(reset):
                reset()
            else:
                for p in own:
                    if p.requires_grad and p.numel() > 1 and bool(p.std() > 0):
                        p.normal_(float(p.mean()), float(p.std()))
        for name, p in module.named_parameters():
            if name in frozen:
                p.copy_(frozen[name])
    return tensors_of(module)


def checked_state(expected: Mapping[str, Tensor], given: Mapping[str, Tensor], what: str) -> None:
    """Raise unless `given` has every name of `expected` in its shape."""
    for name, tensor in expected.items():
        if name not in given or given[name].shape != tensor.shape:
            came = tuple(given[name].shape) if name in given else "nothing"
            raise InvalidModel(
                f"{what}: expected {name} of shape {tuple(tensor.shape)}, got {came}; is it of this model?"
            )


def check_outputs(likelihood: Likelihood, network: ModuleSpec) -> None:
    """Raise InvalidModel unless the module has the outputs that the likelihood reads."""
    if likelihood.n_outputs != network.n_outputs:
        raise InvalidModel(
            f"{type(likelihood).__name__} needs {likelihood.n_outputs} network outputs, "
            f"{type(network.module).__name__} has {network.n_outputs}"
        )
