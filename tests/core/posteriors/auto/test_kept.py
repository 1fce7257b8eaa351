"""Out-of-fold predictions that `auto` keeps: of which row, and in which units."""

import math
from typing import Any

import pytest
import torch

import bensemble_core as bc

X = torch.randn(43, 2, generator=torch.Generator().manual_seed(0))
NOISE = torch.randn(43, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("options", [{}, {"family": "networks", "epochs": 3}], ids=["kernels", "networks"])
@pytest.mark.parametrize("numbers", [False, True], ids=["classes", "numbers"])
def test_predictions_of_held_out_rows_have_the_likelihood_that_the_diagnostics_tell(
    numbers: bool, options: dict[str, Any]
) -> None:
    y = 700 + 50 * (X[:, 0] + 0.3 * NOISE) if numbers else (X[:, 0] + 0.3 * NOISE > 0).long()
    fitted = bc.fit(bc.Auto(**options), None, (X, y), likelihood="gaussian" if numbers else "categorical")
    kept = fitted.held_out()
    assert kept is not None
    predictive, was_held_out = kept
    found = -predictive.log_prob(y)[was_held_out].mean()
    told = fitted.diagnostics.values["held_out_nll"]
    if numbers and not options:  # the processes tell it in standardised units
        told += math.log(float(y.std(correction=0)))
    assert float(found) == pytest.approx(told, rel=1e-3)
    assert int(was_held_out.sum()) == (40 if options else 43)  # networks: folds of one size


def test_other_posteriors_keep_none() -> None:
    fitted = bc.fit("map", {"name": "mlp", "hidden": [2]}, (X, (NOISE > 0).long()), likelihood="categorical", epochs=1)
    assert fitted.held_out() is None
