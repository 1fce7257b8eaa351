"""How far a sum over a grid is off, judged from every second and every fourth of its points."""

import itertools

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


def axis_errors(mass: Array, n: tuple[int, ...]) -> list[float]:
    """Of log Σ weights along each axis of a grid, from weights that sum to 1, in the order of the grid: [K]."""
    cube = mass.reshape(*n, -1)
    found = []
    for axis in range(len(n)):
        along = cube.sum(tuple(i for i in range(cube.ndim) if i != axis))
        sums = [np.log(np.maximum(step * along[::step].sum(), TINY)) for step in (1, 2, 4)]
        found.append(float(remaining(*(np.asarray(value) for value in sums))))
    return found


def edge_masses(mass: Array, n: tuple[int, ...]) -> list[float]:
    """Weight of the first and last points along each axis: [K]."""
    cube = mass.reshape(*n, -1)
    return [float(cube.take([0, -1], axis).sum()) for axis in range(len(n))]


def n_peaks(log_joint: Array, n: tuple[int, ...]) -> int:
    """Points of a grid that are higher than their neighbours on all sides, of the combination of listed values that has
    most of them."""
    cube = log_joint.reshape(*n, -1)
    padded = np.pad(cube, [(1, 1)] * len(n) + [(0, 0)], constant_values=-np.inf)
    is_peak = cube > -np.inf
    for step in itertools.product((0, -1, 1), repeat=len(n)):
        if any(step):
            beside = padded[tuple(slice(1 + s, size + 1 + s) for s, size in zip(step, n, strict=True))]
            # of two that are equal the first counts
            is_peak &= cube > beside if step < (0,) * len(n) else cube >= beside
    return int(is_peak.reshape(-1, cube.shape[-1]).sum(0).max())
