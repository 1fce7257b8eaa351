"""Bayes' rule on the members of an ensemble: new rows change their weights, and nothing is trained."""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bensemble_core.ensemble.ensemble import Ensemble
from bensemble_core.ensemble.rows import Rows, as_tensor, sliceable
from bensemble_core.errors import InvalidData, InvalidOption
from bensemble_core.predictive.mixtures import effective_size, normalised
from bensemble_core.torch_modes import own_modes
from bensemble_core.types import Data

LEAST_SHARE = 0.25  # of the members, that the weights should count as
_FEW, _CALIBRATED = "after reweighting, ", "the calibration is older than the weights"  # how our notes begin


@own_modes()
def reweight(ensemble: Ensemble, data: tuple[Any, Any] | Data) -> Ensemble:
    """The ensemble with its members weighted by what they say of new rows: for the time between two trainings.

        log w_m ← log w_m + Σ_n log p(y_n | x_n, θ_m),   normalised,

    which is Bayes' rule where the members are draws of a posterior and the rows are independent of those they were
    trained on. Weights multiply with those that were there, so that rows one after another count as rows at once, and
    rows the members were trained on would count twice. It saves, loads, predicts and ranks as any other.

    It needs members that disagree, and more of them as rows come: after a while few have all the weight.
    `Ensemble.notes` says so once the weights count as fewer than a quarter of the members, 1 / Σ w² < M/4. Then train
    again, on all rows.

    p(y | x, θ_m) is a member's own, its noise included, as it was trained. A calibration is a fit to the mixture: it
    has no say in the weights, is kept for predictions, and `notes` says that it was fitted under other weights.

    ensemble: what predicts, from `fitted.sample(100)`.
    data: (x, y), rows [N, ...] and their labels, class indices [N] or numbers [N(, T)], in the units handed to `fit`.
        Rows are read a block at a time, so x may be a memory map.
    """
    if not isinstance(ensemble, Ensemble):
        raise InvalidOption(
            f"reweight takes an ensemble, got {type(ensemble).__name__}; a Fitted draws one with sample(100)"
        )
    x, y = _rows(ensemble, data)
    total = torch.zeros(ensemble.n_members, dtype=torch.float64, device=ensemble.device)
    for start in range(0, len(x), ensemble.plan.rows):
        stop = start + ensemble.plan.rows
        outputs, extra = ensemble.outputs_chunk(x[start:stop])
        labels = y[start:stop].to(ensemble.device)
        wide = {name: values.double() for name, values in extra.items()}
        each = ensemble.problem.likelihood.log_prob(
            outputs.double(), labels.expand(ensemble.n_members, *labels.shape), wide
        )  # [M, n]
        if bool(each.isnan().any()):
            row = start + int(each.isnan().any(0).nonzero()[0])
            raise InvalidData(
                f"a member's prediction for row {row} is not a number; is there a NaN or an infinity in the row? drop "
                "or impute it"
            )
        total += each.sum(1)
    log_weights = total + normalised(ensemble.log_weights, ensemble.n_members, total)
    if not bool((log_weights > -math.inf).any()):
        raise InvalidData("no member gives these labels any probability; check that labels belong to their rows")
    log_weights = log_weights.log_softmax(0)
    return replace(ensemble, log_weights=log_weights, stored_plan=ensemble.plan, notes=_notes(ensemble, log_weights))


def _rows(ensemble: Ensemble, data: Any) -> tuple[Rows, Tensor]:
    """The rows, of which a part can be read at a time, and their labels as the likelihood reads them, in float64."""
    if isinstance(data, Data):
        data = (data.x, data.y)
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        raise InvalidData(f"reweight expects rows with their labels, (x, y), got {type(data).__name__}")
    x, y = sliceable(data[0]), as_tensor(data[1], "y", "; turn labels into class indices 0, 1, …")
    labels = ensemble.problem.likelihood.encode(y.detach().cpu(), dtype=torch.float64)
    if len(x) != len(labels):
        raise InvalidData(f"expected as many labels as rows, got {len(labels)} and {len(x)}")
    return x, labels


def _notes(ensemble: Ensemble, log_weights: Tensor) -> tuple[str, ...]:
    """Those there were, with ours as they are now."""
    notes = [note for note in ensemble.notes if not note.startswith((_FEW, _CALIBRATED))]
    size = effective_size(log_weights, ensemble.n_members)
    if size < LEAST_SHARE * ensemble.n_members:
        notes.append(
            f"{_FEW}{ensemble.n_members} members count as {size:.1f}: few of them fit the new rows, and what they say "
            "of the uncertainty is rough; train again on all rows"
        )
    if ensemble.calibration is not None:
        notes.append(f"{_CALIBRATED} of the members; calibrate again on rows that were held out")
    return tuple(notes)
