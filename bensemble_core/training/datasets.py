"""The rows of a torch Dataset or DataLoader as two tensors.

They are read once, in the order in which they come: what a data set does to a row by chance (a random crop) is done
once and kept, and a loader that shuffles gives other bits each time. `fit(augment=…)` makes rows new at every step.
"""

from collections.abc import Callable, Iterable, Sequence, Sized
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from bensemble_core.errors import InvalidData


def collect(data: "Dataset[Any] | DataLoader[Any]") -> tuple[Tensor, Tensor]:
    """x [N, ...] and y [N, ...]."""
    if isinstance(data, TensorDataset):
        return _pair(data.tensors, "the TensorDataset")
    n, name = _length(data), type(data).__name__
    if isinstance(data, DataLoader):
        return _join(torch.cat, [_pair(batch, f"batch {i} of the {name}") for i, batch in enumerate(islice(data, n))])
    items: Iterable[Any] = islice(data, n) if isinstance(data, IterableDataset) else (data[i] for i in range(n))
    return _join(torch.stack, [_pair(item, f"row {i} of the {name}") for i, item in enumerate(items)])


def _length(data: "Dataset[Any] | DataLoader[Any]") -> int:
    try:
        if isinstance(data, Sized):
            return len(data)
    except (TypeError, NotImplementedError):  # a loader of a data set, or with a sampler, that has no length
        pass
    raise InvalidData(
        f"this {type(data).__name__} does not say how many rows it has, and may never end; give its Dataset a __len__, "
        "or collect the rows you want and pass (x, y)"
    )


def _pair(item: Any, what: str) -> tuple[Tensor, Tensor]:
    if not isinstance(item, (tuple, list)) or len(item) != 2:
        came = f"{len(item)} things" if isinstance(item, (tuple, list)) else f"a {type(item).__name__}"
        raise InvalidData(f"expected (x, y) from {what}, got {came}; pass a Dataset whose items are such pairs")
    try:
        x, y = (value if isinstance(value, Tensor) else torch.from_numpy(np.array(value)) for value in item)
    except TypeError as reason:
        raise InvalidData(f"expected numbers from {what} ({reason}); make them in the Dataset's transform") from reason
    return x, y


def _join(join: Callable[[list[Tensor]], Tensor], parts: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    if not parts:
        raise InvalidData("there is nothing to train on: the data set has no rows")
    try:
        return join([x for x, _ in parts]), join([y for _, y in parts])
    except RuntimeError as reason:
        raise InvalidData(
            f"the rows do not fit together ({str(reason).splitlines()[0]}); all of x, and all of y, have one shape"
        ) from reason
