"""Names of what `auto` keeps in its state, whichever way it took."""

from collections.abc import Mapping

from torch import Tensor

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
