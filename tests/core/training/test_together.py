"""Splits fitted as one descent: each is what `fit` alone would give."""

import threading
from typing import Any

import pytest
import torch
from torch import Tensor

import bensemble_core as bc
from bensemble_core.training import together
from bensemble_core.types import Snapshot, Tensors

MLP = {"name": "mlp", "hidden": [6]}
Rows = tuple[Tensor, Tensor]


def rows(n: int, seed: int, classes: bool = False) -> Rows:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, generator=g, dtype=torch.float64) * (seed + 1)
    y = x.sin().sum(1) + 0.1 * torch.randn(n, generator=g, dtype=torch.float64)
    return (x, (y > 0).long()) if classes else (x, y)


def comparable(state: Tensors) -> dict[str, Tensor]:
    """U diag(λ) Uᵀ in place of eigenvectors U, whose signs a machine decides by its own rounding."""
    found = dict(state)
    for name, vectors in state.items():
        if "_vectors/" in name:
            found[name] = vectors * state[name.replace("_vectors/", "_values/")].unsqueeze(-2) @ vectors.mT
    return found


@pytest.fixture
def descents(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Members of each descent that was run."""
    seen: list[int] = []
    descend = together.descend

    def noted(**call: Any) -> Any:
        seen.append(len(call["seeds"]))
        return descend(**call)

    monkeypatch.setattr(together, "descend", noted)
    return seen


CASES: list[tuple[str, dict[str, Any], int]] = [
    ("map", {}, 1),
    ("deep_ensemble", {"members": 3}, 3),
    ("deep_ensemble", {"members": 2, "bootstrap": True}, 2),
    ("deep_ensemble", {"members": 2, "patience": 2}, 2),
    ("snapshot_ensemble", {"cycles": 2}, 1),
    ("swa", {}, 1),
    ("swag", {"rank": 2}, 1),
    ("multi_swag", {"rank": 2, "members": 2}, 2),
    ("laplace", {}, 1),
]


@pytest.mark.parametrize("classes", [False, True])
@pytest.mark.parametrize(("method", "options", "members"), CASES)
def test_splits_are_one_descent_and_each_is_as_if_fitted_alone(
    method: str, options: dict[str, Any], members: int, classes: bool, descents: list[int]
) -> None:
    splits = [rows(20, i, classes) for i in range(3)]
    how: dict[str, Any] = {"likelihood": "categorical" if classes else "gaussian", "epochs": 6, "batch_size": 7}
    found = bc.fit_splits(method, MLP, splits, seed=4, **how, **options)
    assert descents == [3 * members]
    for i, (fitted, split) in enumerate(zip(found, splits, strict=True)):
        alone = bc.fit(method, MLP, split, seed=4 + i, **how, **options)
        assert set(alone.state) == set(fitted.state)
        for name, value in comparable(alone.state).items():
            torch.testing.assert_close(comparable(fitted.state)[name], value, rtol=1e-7, atol=1e-9)
        for name, value in alone.sample(3).stacked.items():
            torch.testing.assert_close(fitted.sample(3).stacked[name], value, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("method", "sizes", "likelihood", "options"),
    [
        ("map", (20, 17), bc.Gaussian(), {}),
        ("map", (20, 20), bc.Gaussian(noise=0.3), {}),  # in the units of y, which each split scales by its own sd
        ("mfvi", (20, 20), bc.Gaussian(), {}),
        ("mc_dropout", (20, 20), bc.Gaussian(), {}),
        ("deep_ensemble", (20, 20), bc.Gaussian(noise=0.3), {"anchored": True, "members": 2}),
        ("deep_ensemble", (20, 20), bc.Gaussian(), {"adversarial": 0.01, "members": 2}),
    ],
)
def test_what_cannot_be_joined_runs_in_turn_with_the_bits_of_fit(
    method: str, sizes: tuple[int, ...], likelihood: Any, options: dict[str, Any], descents: list[int]
) -> None:
    splits = [rows(n, i) for i, n in enumerate(sizes)]
    heard: list[tuple[int, int]] = []

    def report(done: int, total: int, message: str, snapshot: Snapshot) -> None:
        heard.append((done, total))

    found = bc.fit_splits(method, MLP, splits, likelihood=likelihood, epochs=2, seed=3, report=report, **options)
    assert len(descents) == 2
    alone = bc.fit(method, MLP, splits[1], likelihood=likelihood, epochs=2, seed=4, **options)
    assert all(torch.equal(found[1].state[name], value) for name, value in alone.state.items())
    assert heard == sorted(heard)
    assert heard[-1][0] == heard[-1][1]


def test_a_cancel_in_a_joint_descent_leaves_no_thread_behind() -> None:
    class Enough(Exception):
        pass

    def cancel(done: int, total: int, message: str, snapshot: Snapshot) -> None:
        raise Enough

    before = threading.active_count()
    with pytest.raises(Enough):
        bc.fit_splits("laplace", MLP, [rows(20, i) for i in range(3)], likelihood="gaussian", epochs=5, report=cancel)
    assert threading.active_count() == before


def test_one_split_that_is_refused_refuses_all_and_says_why() -> None:
    bad = rows(20, 1)
    bad[1][3] = torch.nan
    before = threading.active_count()
    with pytest.raises(bc.InvalidData, match="3"):
        bc.fit_splits("map", MLP, [rows(20, 0), bad], likelihood="gaussian", epochs=2)
    assert threading.active_count() == before
