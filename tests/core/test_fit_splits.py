"""Several data sets, each fitted as `fit` would with a seed of its own."""

from typing import Any

import pytest
import torch
from torch import Tensor

import bensemble_core as bc
from bensemble_core.types import Snapshot

MLP = {"name": "mlp", "hidden": [6]}


def rows(n: int, seed: int) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, generator=g, dtype=torch.float64) * (seed + 1)
    return x, x.sin().sum(1) + 0.1 * torch.randn(n, generator=g, dtype=torch.float64)


@pytest.mark.parametrize(
    ("method", "sizes", "likelihood", "options"),
    [
        ("map", (20, 17), bc.Gaussian(), {}),
        ("map", (20, 20), bc.Gaussian(noise=0.3), {}),  # in the units of y, which each split scales by its own sd
        ("mfvi", (20, 20), bc.Gaussian(), {}),
        ("laplace", (20, 20), bc.Gaussian(), {"structure": "diag"}),
        ("deep_ensemble", (20, 20), bc.Gaussian(noise=0.3), {"anchored": True, "members": 2}),
    ],
)
def test_a_split_has_the_bits_of_fit_with_its_own_seed(
    method: str, sizes: tuple[int, ...], likelihood: Any, options: dict[str, Any]
) -> None:
    splits = [rows(n, i) for i, n in enumerate(sizes)]
    told: list[tuple[int, int, str]] = []

    def report(done: int, total: int, message: str, snapshot: Snapshot) -> None:
        told.append((done, total, message))

    found = bc.fit_splits(method, MLP, splits, likelihood=likelihood, epochs=2, seed=3, report=report, **options)
    for i, (fitted, split) in enumerate(zip(found, splits, strict=True)):
        alone = bc.fit(method, MLP, split, likelihood=likelihood, epochs=2, seed=3 + i, **options)
        assert set(fitted.state) == set(alone.state)
        assert all(torch.equal(fitted.state[name], value) for name, value in alone.state.items())
    assert all(0 < done <= total for done, total, _ in told)
    assert told[-1][0] == told[-1][1]
    assert told[0][2].startswith("split 1: ")
    assert told[-1][2].startswith("split 2: ")


def test_one_split_that_is_refused_refuses_all_and_says_why() -> None:
    bad = rows(20, 1)
    bad[1][3] = torch.nan
    with pytest.raises(bc.InvalidData, match="3"):
        bc.fit_splits("map", MLP, [rows(20, 0), bad], likelihood="gaussian", epochs=2)
