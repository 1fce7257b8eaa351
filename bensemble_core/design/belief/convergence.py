"""How far a sum over a grid is off, judged from every second and every fourth of its points."""

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
LUCKIEST, SLOWEST = 0.5, 0.9  # ratios of two changes, where they do not fall as those of a smooth integrand
TINY = 1e-300


def remaining(fine: Array, half: Array, quarter: Array) -> Array:
    """Error of `fine` from what it, every second and every fourth point give.

    Each halving of the spacing squares the error of a smooth integrand: what is left then is of the order of the square
    of the last change. Where the changes do not fall like that (a step, a kink, a peak between two points) they fall by
    a factor r, and what is left is the rest of that geometric series, change · r / (1 − r). Their luck varies from one
    spacing to the next, so that r counts as ½ at least: the error is then the last change or more.
    """
    last, before = np.abs(fine - half), np.abs(half - quarter)
    r = np.clip(last / np.maximum(before, TINY), LUCKIEST, SLOWEST)
    squared = np.minimum(last, 10 * last * last)
    return np.asarray(np.where(last <= before * before, squared, last * r / (1 - r)))
