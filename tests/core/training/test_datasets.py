"""Labelled rows from torch's Dataset and DataLoader, and rows of several tasks."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, Subset, TensorDataset

import bensemble_core as bc
from bensemble_core.problem import as_data

X = torch.randn(23, 3, generator=torch.Generator().manual_seed(0))
Y = X[:, 0] + 1
MLP = {"name": "mlp", "hidden": [4]}


class Rows(Dataset[Any]):
    """Items as people write them: an array and a plain number."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> Any:
        return self.items[i]


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        while True:
            yield X[0], Y[0]


class Counted(Endless):
    def __len__(self) -> int:
        return 5


class Forever(Sampler[int]):
    def __iter__(self) -> Iterator[int]:
        while True:
            yield 0


def pairs() -> Rows:
    return Rows([(x.numpy(), float(y)) for x, y in zip(X, Y, strict=True)])


def fit(data: Any, **options: Any) -> bc.Fitted:
    return bc.fit("map", MLP, data, likelihood="gaussian", epochs=2, **options)


@pytest.mark.parametrize(
    "data", [TensorDataset(X, Y), pairs(), Subset(TensorDataset(X, Y), range(23)), DataLoader(pairs(), batch_size=10)]
)
def test_a_data_set_or_a_loader_is_fitted_as_its_rows_are(data: Any) -> None:
    expected = fit((X, Y))
    assert torch.equal(fit(data).state["linear1.weight"], expected.state["linear1.weight"])
    assert torch.equal(expected.update(data).state["linear1.weight"], expected.update((X, Y)).state["linear1.weight"])


def test_rows_are_read_once_in_the_order_of_the_loader() -> None:
    loader = DataLoader(TensorDataset(X, Y), batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(5))
    rows = as_data(loader)
    assert not torch.equal(rows.x, X)
    assert torch.equal(rows.y, rows.x[:, 0] + 1)
    assert torch.equal(rows.y.sort().values, Y.sort().values)
    assert as_data(Counted()).x.shape == (5, 3)


REFUSED: list[tuple[Any, str]] = [
    (Endless(), "this Endless does not say how many rows it has, and may never end"),
    (DataLoader(Endless()), "this DataLoader does not say how many rows"),
    (DataLoader(pairs(), sampler=Forever()), "this DataLoader does not say how many rows"),
    (TensorDataset(X), r"expected \(x, y\) from the TensorDataset, got 1 things"),
    (Rows([{"x": 1.0, "y": 2}]), r"expected \(x, y\) from row 0 of the Rows, got a dict"),
    (DataLoader(TensorDataset(X, Y, Y)), r"expected \(x, y\) from batch 0 of the DataLoader, got 3 things"),
    (Rows([(X[0], "cat")]), "expected numbers from row 0 of the Rows"),
    (Rows([(X[0], 1), (X[0, :2], 1)]), "rows do not fit together"),
    (Rows([]), "the data set has no rows"),
    (Rows([(1.0, 2.0)] * 3), r"one feature is x\[:, None\]"),
]


@pytest.mark.parametrize(("data", "words"), REFUSED)
def test_what_gives_no_pairs_or_never_ends_is_refused(data: Any, words: str) -> None:
    with pytest.raises(bc.InvalidData, match=words):
        fit(data)


def test_a_task_for_each_row_and_no_other_number_of_them() -> None:
    for wrong in (torch.zeros(7, dtype=torch.int64), torch.zeros(23), torch.zeros(23, 1, dtype=torch.int64), [0] * 23):
        with pytest.raises(bc.InvalidData, match="whole numbers, one for each of the 23 rows"):
            bc.Data(x=X, y=Y, task=wrong)  # type: ignore[arg-type]
    with pytest.raises(bc.InvalidData, match=r"got a value of type ndarray; pass torch.as_tensor\(task\)$"):
        bc.Data(x=X, y=Y, task=np.zeros(23, dtype=np.int64))  # type: ignore[arg-type]
    with pytest.raises(bc.InvalidData, match="one for each of the 23 rows"):
        fit((X, Y, np.arange(5)))


def test_an_update_extends_the_tasks() -> None:
    task = torch.arange(23) % 3
    told = fit((X, Y, task))
    assert torch.equal(tasks(told), task)
    assert torch.equal(tasks(told.update((X[:2], Y[:2], [5, 6]))), torch.cat([task, torch.tensor([5, 6])]))
    assert torch.equal(tasks(told.update((X[:2], Y[:2]))), torch.cat([task, torch.tensor([0, 0])]))
    later = fit((X, Y)).update(bc.Data(x=X[:2], y=Y[:2], task=torch.tensor([5, 6])))
    assert torch.equal(tasks(later), torch.cat([torch.zeros(23, dtype=torch.int64), torch.tensor([5, 6])]))
    assert fit((X, Y)).update((X[:2], Y[:2])).data.task is None  # type: ignore[union-attr]


def tasks(fitted: bc.Fitted) -> Tensor:
    assert fitted.data is not None
    assert fitted.data.task is not None
    return fitted.data.task


def test_a_bound_after_an_update_is_of_the_new_rows_whatever_their_task() -> None:
    def bound(**task: Tensor) -> float:
        first = bc.Data(x=X, y=Y, **{name: value[:23] for name, value in task.items()})
        new = bc.Data(x=X[:4], y=Y[:4], **{name: value[23:] for name, value in task.items()})
        fitted = bc.fit("mfvi", MLP, first, likelihood="gaussian", epochs=1).update(new)
        return fitted.bound(samples=3)

    assert bound(task=torch.arange(27)) == bound()
