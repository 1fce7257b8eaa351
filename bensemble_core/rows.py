"""Rows as callers hand them in, made into tensors that a network reads, or refused."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
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
        array = np.asarray(x)
        if array.dtype.kind not in "fiub":
            raise InvalidData(f"expected rows of numbers, got {array.dtype}")
        floating = array.dtype.kind == "f"
        # a copy: memory maps are often read-only, which torch does not know
        x = torch.from_numpy(np.array(array, dtype=np.dtype(str(dtype).removeprefix("torch."))))
    if floating and problem.model.integers:
        raise InvalidData("rows are indices into an embedding, and these are not whole numbers; pass x.long()")
    if x.shape[1:] != shape and math.prod(x.shape[1:]) != math.prod(shape):
        raise InvalidData(f"expected rows of shape {list(shape)}, got {list(x.shape[1:])}")
    return x.reshape(x.shape[0], *shape).to(device=device, dtype=dtype)
