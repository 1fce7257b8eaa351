"""A fit with folds beside it: the scale is the known one, and a training that was stopped goes on to the same bits."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import bensemble_core as bc
from bensemble_core.types import Snapshot


class Stop(Exception):
    """Raised in a report."""


def line(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(n, 2, generator=g, dtype=torch.float64)
    return x, x @ torch.tensor([1.0, -2.0], dtype=torch.float64) + torch.randn(n, generator=g, dtype=torch.float64)


def test_noise_believed_half_as_large_as_it_is_is_stretched_to_what_it_is() -> None:
    model = torch.nn.Linear(2, 1, dtype=torch.float64)
    found = bc.fit_calibrated(
        "laplace", model, line(600), likelihood=bc.Gaussian(noise=0.5), structure="full", epochs=200, lr=0.05
    )
    assert float(found.calibration.scale) == pytest.approx(2, rel=0.08)
    assert found.n_rows == 600
    assert found.calibrated_nll < found.nll
    x, y = line(600)
    ensemble = replace(found.fitted.sample(20), calibration=found.calibration)
    assert bc.metrics.nll(ensemble.predict(x), y) == pytest.approx(found.calibrated_nll, abs=0.05)


def test_networks_that_learnt_their_labels_by_heart_are_cooled() -> None:
    g = np.random.default_rng(0)
    x = g.normal(size=(60, 5)).astype(np.float32)
    y = (x[:, 0] + g.normal(size=60) > 0).astype(np.int64)
    options: dict[str, Any] = {"members": 2, "epochs": 60, "lr": 0.02}
    found = bc.fit_calibrated("deep_ensemble", {"name": "mlp"}, (x, y), likelihood="categorical", **options)
    assert found.calibration.temperature > 1.3
    assert found.calibrated_nll < 0.9 * found.nll
    again = bc.fit("deep_ensemble", {"name": "mlp"}, (x, y), likelihood=bc.Categorical(n_classes=2), **options)
    for name, tensor in again.state.items():
        assert torch.equal(tensor, found.fitted.state[name])


@pytest.mark.parametrize("at", ["fold 3 of 4", "all rows"])
def test_a_stopped_training_goes_on_to_the_same_bits(at: str) -> None:
    x, y = line(40)
    options: dict[str, Any] = {"likelihood": "gaussian", "folds": 4, "members": 2, "epochs": 6, "batch_size": 8}
    whole = bc.fit_calibrated("deep_ensemble", {"name": "mlp", "hidden": [4]}, (x, y), **options)
    kept: dict[str, torch.Tensor] = {}

    def stop(done: int, total: int, message: str, snapshot: Snapshot) -> None:
        nonlocal kept
        if message.startswith(at):
            if kept:
                raise Stop
            kept = {name: tensor.clone() for name, tensor in snapshot().items()}

    with pytest.raises(Stop):
        bc.fit_calibrated("deep_ensemble", {"name": "mlp", "hidden": [4]}, (x, y), report=stop, **options)
    messages: list[str] = []
    rest = bc.fit_calibrated(
        "deep_ensemble",
        {"name": "mlp", "hidden": [4]},
        (x, y),
        resume=kept,
        report=lambda done, total, message, snapshot: messages.append(message),
        **options,
    )
    assert messages[0].startswith(at)
    assert torch.equal(rest.calibration.scale, whole.calibration.scale)
    for name, tensor in whole.fitted.state.items():
        assert torch.equal(tensor, rest.fitted.state[name])


def test_too_few_rows_change_nothing_and_what_calibrates_itself_is_refused() -> None:
    x, y = line(9)
    found = bc.fit_calibrated("map", {"name": "mlp", "hidden": [4]}, (x, y), likelihood="gaussian", epochs=2)
    assert (found.n_rows, float(found.calibration.scale)) == (0, 1)
    with pytest.raises(bc.InvalidOption, match="calibrates itself"):
        bc.fit_calibrated("auto", None, line(20), likelihood="gaussian")
    with pytest.raises(bc.InvalidSnapshot, match="without folds"):
        bc.fit_calibrated("map", None, (x, y), likelihood="gaussian", resume={"weight": x})
