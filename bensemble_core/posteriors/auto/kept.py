"""Names of what `auto` keeps in its state, whichever way it took."""

from collections.abc import Mapping

import torch
from torch import Tensor

from bensemble_core.predictive import CategoricalPredictive, GaussianPredictive, Predictive
from bensemble_core.types import Problem, Tensors

CHOICE = "auto/choice"  # [1] which way
FOLDS = "folds/index"  # [N] in which fold a row was held out; −1: in none
HELD_OUT = "folds/log_probs"  # [N, C] calibrated log-probabilities of every row when it was held out; 0 if never
HELD_OUT_MEANS = "folds/means"  # [N, T] and the same of numbers, in standardised units
HELD_OUT_VARIANCES = "folds/variances"  # [N, T] of y, not of the function
HELD_OUT_BROAD = "folds/broad"  # [N, T] the variance of the broad member, where there is one, about the same means
LOG_WEIGHTS = "stack/log_weights"  # [M] of members, or [F] of families
CALIBRATION = "calibration/scale"  # [1]
DIAGNOSTICS = "diagnostics/"


def figures(values: Mapping[str, float], like: Tensor) -> dict[str, Tensor]:
    """Numbers as tensors of the state."""
    return {DIAGNOSTICS + name: like.new_tensor([value]) for name, value in values.items()}


def held_out(problem: Problem, state: Tensors) -> tuple[Predictive, Tensor]:
    """What was predicted of each training row by models that had not seen it, in the units of y, and which rows were
    held out at all [N]."""
    if HELD_OUT in state:
        predictive: Predictive = CategoricalPredictive(logits=state[HELD_OUT][None])
    else:
        means, variances = state[HELD_OUT_MEANS], state[HELD_OUT_VARIANCES]
        shift, unit = (means.new_tensor(getattr(problem.likelihood, name)) for name in ("mean", "scale"))
        means, variances = means * unit + shift, variances * unit.square()
        parts, log_weights = [variances], None
        if HELD_OUT_BROAD in state:
            parts.append(state[HELD_OUT_BROAD] * unit.square())
            share = state[LOG_WEIGHTS][-1].exp()
            log_weights = torch.stack([1 - share, share]).log().to(means)
        both = torch.stack(parts)  # [1 or 2, N, T]
        if means.shape[1] == 1:
            means, both = means[:, 0], both[..., 0]
        predictive = GaussianPredictive(means=means.expand_as(both), variances=both, log_weights=log_weights)
    return predictive, state[FOLDS] >= 0
