"""Names of what `auto` keeps in its state, whichever way it took."""

from collections.abc import Mapping

from torch import Tensor

from bensemble_core.predictive import CategoricalPredictive, GaussianPredictive, Predictive
from bensemble_core.types import Problem, Tensors

CHOICE = "auto/choice"  # [1] which way
FOLDS = "folds/index"  # [N] in which fold a row was held out; −1: in none
HELD_OUT = "folds/log_probs"  # [N, C] calibrated log-probabilities of every row when it was held out; 0 if never
HELD_OUT_MEANS = "folds/means"  # [N, T] and the same of numbers, in standardised units
HELD_OUT_VARIANCES = "folds/variances"  # [N, T] of y, not of the function
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
        if means.shape[1] == 1:
            means, variances = means[:, 0], variances[:, 0]
        predictive = GaussianPredictive(means=means[None], variances=variances[None])
    return predictive, state[FOLDS] >= 0
