"""A snapshot is gone on from only by the training that made it, and only whole."""

from typing import Any

import pytest
import torch
from torch import Tensor

import bensemble_core as bc

MLP: dict[str, Any] = {"name": "mlp", "hidden": [5]}
METHODS = ["map", "deep_ensemble", "swag", "mfvi", "pbp"]
OPTIONS: dict[str, dict[str, Any]] = {"swag": {"rank": 2}, "mfvi": {"map_epochs": 2}}


def rows(n: int = 20) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, 4, generator=torch.Generator().manual_seed(0))
    return x, x[:, 0] + 1


def fit(method: str, data: Any = None, **given: Any) -> bc.Fitted:
    options = {"likelihood": "gaussian", "epochs": 6, **OPTIONS.get(method, {}), **given}
    return bc.fit(method, MLP, data or rows(), **options)


def snapshots(method: str, **given: Any) -> list[dict[str, Tensor]]:
    kept: list[dict[str, Tensor]] = []
    fit(method, report=lambda done, total, message, snapshot: kept.append(snapshot()), **given)
    return kept


@pytest.mark.parametrize("method", METHODS)
def test_other_rows_labels_priors_and_likelihoods_are_refused(method: str) -> None:
    kept = snapshots(method)[3]
    x, y = rows()
    other = [
        {"data": (x.flip(0), y)},
        {"data": (x, y.flip(0))},
        {"data": (x, torch.cat([y[:1] + 1e-2, y[1:]]))},
        {"data": (x, 10 * y)} if method != "pbp" else {"data": (x, y**2)},
        {"prior": bc.Normal(scale=2.0)},
        {"likelihood": bc.Gaussian(noise=0.3)},
    ]
    for given in other:
        with pytest.raises(bc.InvalidData, match="of another training"):
            fit(method, resume=kept, **given)
    resumed, whole = fit(method, resume=kept), fit(method)
    assert all(torch.equal(resumed.state[name], tensor) for name, tensor in whole.state.items())


@pytest.mark.parametrize("method", METHODS)
def test_a_snapshot_that_lost_anything_is_refused(method: str) -> None:
    options = {"patience": 5} if method in ("map", "deep_ensemble") else {}
    kept = snapshots(method, **options)[4]
    for name, tensor in kept.items():
        lost = {k: v for k, v in kept.items() if k != name}
        cases = [lost] if not tensor.numel() or not tensor.ndim else [lost, {**kept, name: tensor[:-1]}]
        for case in cases:
            with pytest.raises(bc.InvalidData, match="start afresh"):
                fit(method, resume=case, **options)
