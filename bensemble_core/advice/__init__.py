"""While labels are given: what more of them would bring, whether predictions still change, which labels look wrong.

Pure functions of a few numbers or of predictions; none fits or loads anything. From outside use the names below.
"""

from bensemble_core.advice.agreement import concordance, kappa, relative_change
from bensemble_core.advice.curve import Interval, LearningCurve, binomial_error, extrapolate
from bensemble_core.advice.doubts import FAR, Doubts, doubt_labels, doubt_numbers

__all__ = [
    "FAR",
    "Doubts",
    "Interval",
    "LearningCurve",
    "binomial_error",
    "concordance",
    "doubt_labels",
    "doubt_numbers",
    "extrapolate",
    "kappa",
    "relative_change",
]
