"""Rows as callers hand them in, made into tensors that a network reads, or refused."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from numbers import Number
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bensemble_core.errors import InvalidData
from bensemble_core.types import Problem

Rows: TypeAlias = Tensor | npt.NDArray[Any]


def plain_numbers(values: Tensor) -> Tensor:
    """The tensor itself, or a refusal of a form that no network reads."""
    if values.layout != torch.strided or values.is_complex() or values.is_quantized:
        raise InvalidData(
            f"expected a dense tensor of real numbers, got {values.dtype} with layout {values.layout}; use "
            "x.to_dense(), and the real and imaginary parts as two features"
        )
    return values


def as_array(values: Any, what: str = "x", advice: str = "") -> npt.NDArray[Any]:
    """An array of real numbers from an array, a table or nested lists; anything else is refused by its name."""
    expected = f"{what} has to be an array or a tensor of numbers, one entry a row"
    if isinstance(values, (Mapping, str, bytes)) or values is None:
        came = f"a {type(values).__name__}" if values is not None else "None"
        hint = f"; stack its columns: numpy.column_stack(list({what}.values()))" if isinstance(values, Mapping) else ""
        raise InvalidData(f"{expected}, got {came}{hint}")
    if hasattr(values, "toarray"):
        raise InvalidData(f"{expected}, got a sparse {type(values).__name__}; pass {what}.toarray()")
    try:
        array = np.asarray(values)
    except Exception as reason:  # of whatever kind: lists of unequal length, tensors that require a gradient
        raise InvalidData(f"{expected}, all of one shape, got {type(values).__name__} ({reason})") from reason
    if array.dtype.kind not in "fiub":
        raise InvalidData(f"{expected}, got {array.dtype}{_first_text(array)}{advice}")
    return array


def as_tensor(values: Any, what: str = "x", advice: str = "") -> Tensor:
    """All rows at once: a tensor as it is, anything else copied, in a type that torch computes with."""
    if isinstance(values, Tensor):
        own = plain_numbers(values)
        return own.clone() if own.is_inference() else own  # gradients may be taken through a copy
    array = as_array(values, what, advice)
    wide = {"f": np.float64 if array.dtype.itemsize > 4 else np.float32, "i": np.int64, "u": np.int64, "b": np.bool_}
    return torch.from_numpy(np.array(array, dtype=wide[array.dtype.kind]))  # a copy: the caller's array stays as it is


def sliceable(x: Any) -> Any:
    """Rows of which a part can be read at a time: an array, a memory map or a table stays as it is."""
    if isinstance(x, Tensor):
        return plain_numbers(x)
    return x if hasattr(x, "__array__") and hasattr(x, "shape") and not hasattr(x, "toarray") else as_array(x)


def _first_text(array: npt.NDArray[Any]) -> str:
    if array.ndim == 0:
        return f" ({array.item()!r:.60})"
    for row, values in enumerate(array.reshape(len(array), -1) if array.size else array):
        for value in values:
            if not isinstance(value, Number):
                return f": row {row} holds {value!r:.60}"
    return ""


@contextmanager
def indices_checked(problem: Problem) -> Iterator[None]:
    """An index that an embedding does not have is the rows' fault: it becomes an InvalidData."""
    try:
        yield
    except IndexError as reason:
        if not problem.model.integers:
            raise
        raise InvalidData(
            f"a row holds an index that the network's embedding does not have ({reason}); indices run from 0 to its "
            "num_embeddings − 1"
        ) from reason


def as_rows(x: Rows, problem: Problem, device: torch.device | str) -> Tensor:
    """A chunk of rows in the problem's dtype and shape; flat rows of the right length are reshaped."""
    shape = problem.model.input_shape
    dtype = torch.int64 if problem.model.integers else problem.dtype
    if isinstance(x, Tensor):
        x = plain_numbers(x)
        floating = x.is_floating_point()
    else:
        array = as_array(x)
        floating = array.dtype.kind == "f"
        # a copy: memory maps are often read-only, which torch does not know
        x = torch.from_numpy(np.array(array, dtype=np.dtype(str(dtype).removeprefix("torch."))))
    if floating and problem.model.integers:
        raise InvalidData("rows are indices into an embedding, and these are not whole numbers; pass x.long()")
    if x.shape[1:] != shape and math.prod(x.shape[1:]) != math.prod(shape):
        raise InvalidData(f"expected rows of shape {list(shape)}, got {list(x.shape[1:])}")
    return x.reshape(x.shape[0], *shape).to(device=device, dtype=dtype)
