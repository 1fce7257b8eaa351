"""The two tasks that design.py and its peers are measured on; numbers only, so that every environment can read them."""

import math

SPAN_DESIGNS = list(range(1, 16))
SPAN_LOC, SPAN_SCALE = 7.0, 2.0

# Two-alternative psychometric function: guess ½, lapse 0.04, threshold and slope on a grid with equal weights.
STIMULI = [round(-3 + 0.06 * i, 2) for i in range(101)]
THRESHOLDS = [round(-2.5 + 0.05 * i, 2) for i in range(101)]
SLOPES = [round(0.5 + 0.25 * i, 2) for i in range(20)]
GUESS, LAPSE = 0.5, 0.04
TRUE_THRESHOLD, TRUE_SLOPE, TRUE_SPAN = 0.4, 2.0, 6.3
N_ROUNDS = 60


def answer(p: float, turn: int) -> int:
    """The same luck for everybody: a number in [0, 1) from the golden ratio."""
    return int((turn * 0.6180339887498949) % 1 < p)


def span_p(xi: float) -> float:
    return 1 / (1 + math.exp(-(TRUE_SPAN - xi)))


def psychometric_p(x: float) -> float:
    return GUESS + (1 - GUESS - LAPSE) / (1 + math.exp(-TRUE_SLOPE * (x - TRUE_THRESHOLD)))
