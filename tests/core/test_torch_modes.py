"""What torch's modes around a call are does not change what the call gives."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch import Tensor

import bensemble_core as bc

MLP: dict[str, Any] = {"name": "mlp", "hidden": [8]}
MODES: list[Callable[[], AbstractContextManager[Any]]] = [
    torch.no_grad,
    torch.inference_mode,
    lambda: torch.autocast("cpu", dtype=torch.bfloat16),
]


def rows() -> tuple[Tensor, Tensor]:
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    return x, x[:, 0] + 1


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", ["map", "laplace", "mfvi", "renyi", "pbp", "rank1_bnn", "mc_dropout"])
def test_a_fit_an_update_and_a_prediction_have_the_same_bits_under_any_mode(
    method: str, mode: Callable[[], AbstractContextManager[Any]]
) -> None:
    def run() -> list[Tensor]:
        x, y = rows()
        fitted = bc.fit(method, MLP, (x, y), likelihood="gaussian", epochs=2)
        again = fitted.update((x[:9], y[:9]))
        several = bc.fit_splits(method, MLP, [(x[:20], y[:20]), (x[10:], y[10:])], likelihood="gaussian", epochs=2)
        means = [f.sample(3).predict(x).means for f in (fitted, again, *several)]
        return means + ([fitted.function_variance(x)] if method == "laplace" else [])

    expected = run()
    with mode():
        found = run()
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert not any(t.requires_grad for t in found)


@pytest.mark.parametrize("mode", MODES)
def test_a_module_made_under_a_mode_is_fitted_all_the_same(mode: Callable[[], AbstractContextManager[Any]]) -> None:
    with mode():
        net = torch.nn.Linear(4, 1)
        fitted = bc.fit("map", net, rows(), likelihood="gaussian", epochs=3)
        assert not torch.equal(fitted.state["weight"][0], net.weight)


def test_the_callers_mode_is_as_it_was() -> None:
    with torch.no_grad():
        bc.fit("map", MLP, rows(), likelihood="gaussian", epochs=1)
        assert not torch.is_grad_enabled()
