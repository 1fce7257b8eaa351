"""What the expected information gain truly is: closed forms of linear models, brute force of curved and counted ones.

A reference shares nothing with the engine that it judges: it has numpy alone, a model of its own for each spec, and
points that are refined where the posterior is, until the noise is wider than their distance.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.signal import fftconvolve
from scipy.special import gammaln, xlogy

Floats = NDArray[np.float64]
REACH = 6.5  # sds of the prior on either side
KEPT = 1e-11  # share of the largest weight below which a cell is left out
BINS_A_NOISE = 32


def linear_gain(features: Floats, observed: Floats, scales: Floats, noise: float, targets: Sequence[int]) -> float:
    """½ log det of the targets' covariance before less that after, of y = x·θ + noise, θ ~ N(0, scales²).

    features: [B, K] of the designs run together; observed: [n, K] of those run before.
    """

    def half_log_det(x: Floats) -> float:
        precision = np.diag(scales**-2.0) + x.T @ x / noise**2
        covariance = np.linalg.inv(precision)[np.ix_(targets, targets)]
        return 0.5 * float(np.linalg.slogdet(covariance)[1])

    return half_log_det(observed) - half_log_det(np.vstack([observed, features]))


@dataclass(frozen=True, kw_only=True)
class Curve:
    """y ~ N(f(θ, x), noise²), θ ~ N(0, I) in one or two dimensions. `f` takes θ [..., K] and x."""

    n_parameters: int
    f: Callable[[Floats, float], Floats]
    noise: float

    def points(self, observed: Sequence[tuple[float, float]], target: int = 0) -> tuple[Floats, Floats]:
        """[P, K] and their weights: cells halved where the posterior is, until f varies by less than the noise in one.

        A wide noise finds where to look: at each size of the cells they are weighed with what f varies by within one.
        Along all parameters but the target, rows of points are shifted against each other: on a plain lattice a linear
        f has few values, each of many points, and looks like a comb.
        """
        n = {1: 2**18, 2: 1024}[self.n_parameters]
        size = 2 * REACH / n
        axis = -REACH + size * (np.arange(n) + 0.5)
        theta = np.stack(np.meshgrid(*[axis] * self.n_parameters, indexing="ij"), -1).reshape(-1, self.n_parameters)
        row = np.round((theta[:, target] + REACH) / size)
        for k in set(range(self.n_parameters)) - {target}:
            theta[:, k] += size * ((row * (math.sqrt(5) - 1) / 2) % 1 - 0.5)
        for _ in range(40):
            across = self._across(theta, observed, size)
            noise = np.maximum(self.noise, across)
            log_weights = self._weighed(theta, observed, noise)
            kept = log_weights > log_weights.max() + math.log(KEPT)
            theta, across = theta[kept], across[kept]
            is_fine = not observed or float(across.max()) < 0.5 * self.noise
            if is_fine or len(theta) > 6_000_000:
                break
            size /= 2
            steps = np.stack(np.meshgrid(*[[-0.5, 0.5]] * self.n_parameters, indexing="ij"), -1)
            theta = (theta[:, None] + size * steps.reshape(-1, self.n_parameters)).reshape(-1, self.n_parameters)
        log_weights = self._weighed(theta, observed, np.full(len(theta), self.noise))
        weights = np.exp(log_weights - log_weights.max())
        return theta, weights / weights.sum()

    def _across(self, theta: Floats, observed: Sequence[tuple[float, float]], size: float) -> Floats:
        """How far f moves within a cell, at the designs that were observed: [P]."""
        found = np.zeros(len(theta))
        for x in {x for x, _ in observed}:
            total = np.zeros(len(theta))
            for k in range(self.n_parameters):
                step = np.zeros(self.n_parameters)
                step[k] = size / 2
                total += np.abs(self.f(theta + step, x) - self.f(theta - step, x))
            found = np.maximum(found, total)
        return found

    def _weighed(self, theta: Floats, observed: Sequence[tuple[float, float]], noise: Floats) -> Floats:
        found: Floats = -0.5 * (theta**2).sum(-1)
        for x, y in observed:
            found = found - 0.5 * ((y - self.f(theta, x)) / noise) ** 2 - np.log(noise / self.noise)
        return found

    def gain(self, designs: Sequence[float], points: tuple[Floats, Floats], target: int | None = None) -> float:
        """Of the outcomes of all these designs together, one or two; about one parameter where `target` names it."""
        theta, weights = points
        y = np.stack([self.f(theta, x) for x in designs], -1)
        noise_entropy = len(designs) * (math.log(self.noise) + 0.5 * math.log(2 * math.pi * math.e))
        marginal = binned_entropy(y, weights, self.noise)
        if target is None:
            return marginal - noise_entropy
        return marginal - self._given(theta[:, target], y, weights)

    def _given(self, kept: Floats, y: Floats, weights: Floats) -> float:
        """E H[y | that parameter]: of slices, each a value of it (the points lie on a grid)."""
        found = 0.0
        order = np.argsort(kept, kind="stable")
        edges = np.flatnonzero(np.diff(kept[order]) > 0) + 1
        for rows in np.split(order, edges):
            mass = float(weights[rows].sum())
            if mass > 1e-9:
                found += mass * binned_entropy(y[rows], weights[rows] / mass, self.noise)
        return found


def binned_entropy(y: Floats, weights: Floats, noise: float) -> float:
    """H of Σ w N(y, noise² I) [P, B], B one or two: shares laid on a lattice, blurred by the noise, and summed up."""
    step = noise / BINS_A_NOISE if y.shape[1] == 1 else noise / 3
    low = y.min(0) - 8 * noise
    shape = tuple(int(n) for n in np.ceil((y.max(0) + 8 * noise - low) / step) + 2)
    at = (y - low) / step
    floor = np.floor(at).astype(np.int64)
    lattice = np.zeros(shape)
    for corner in np.ndindex(*(2,) * y.shape[1]):
        share = np.prod([part if bit else 1 - part for bit, part in zip(corner, (at - floor).T, strict=True)], axis=0)
        np.add.at(lattice, tuple((floor + np.array(corner)).T), weights * share)
    width = int(8 * noise / step)
    # Laying a share on two bins widens it by up to step²/4; on average over places by step²/6.
    variance = noise**2 - step**2 / 6
    kernel = np.exp(-0.5 * (step * np.arange(-width, width + 1)) ** 2 / variance)
    kernel /= kernel.sum()
    for axis in range(y.shape[1]):
        lattice = fftconvolve(lattice, np.expand_dims(kernel, tuple(i for i in range(y.shape[1]) if i != axis)), "same")
    density = np.maximum(lattice, 0.0) / step ** y.shape[1]
    return float(-xlogy(density, density).sum() * step ** y.shape[1])


@dataclass(frozen=True, kw_only=True)
class Counted:
    """A discrete outcome: `log_p(θ [..., K], x) -> [..., Y]`, θ ~ N(0, I) in one or two dimensions."""

    n_parameters: int
    log_p: Callable[[Floats, float], Floats]

    def points(self, observed: Sequence[tuple[float, int]]) -> tuple[Floats, Floats]:
        n = {1: 20_001, 2: 601}[self.n_parameters]
        axis = np.linspace(-REACH, REACH, n)
        theta = np.stack(np.meshgrid(*[axis] * self.n_parameters, indexing="ij"), -1).reshape(-1, self.n_parameters)
        log_weights = -0.5 * (theta**2).sum(-1)
        for x, y in observed:
            log_weights = log_weights + self.log_p(theta, x)[..., y]
        weights = np.exp(log_weights - log_weights.max())
        kept = weights > KEPT
        return theta[kept], weights[kept] / weights[kept].sum()

    def gain(self, designs: Sequence[float], points: tuple[Floats, Floats], target: int | None = None) -> float:
        theta, weights = points
        joint = np.ones((len(theta), 1))
        for x in designs:
            joint = (joint[:, :, None] * np.exp(self.log_p(theta, x))[:, None, :]).reshape(len(theta), -1)
        marginal = weights @ joint
        if target is None:
            return float(weights @ xlogy(joint, joint).sum(-1) - xlogy(marginal, marginal).sum())
        _, slices = np.unique(theta[:, target], return_inverse=True)
        mass = np.bincount(slices, weights)
        given = np.stack([np.bincount(slices, weights * column) for column in joint.T], -1) / mass[:, None]
        return float(mass @ xlogy(given, given).sum(-1) - xlogy(marginal, marginal).sum())


def log_bernoulli(logit: Floats) -> Floats:
    return np.stack([-np.logaddexp(0, logit), -np.logaddexp(0, -logit)], -1)


def log_poisson(log_rate: Floats, most: int) -> Floats:
    """Of 0 … most, [..., most + 1]; `most` is chosen so that what is beyond it does not count."""
    n = np.arange(most + 1)
    return n * log_rate[..., None] - np.exp(log_rate)[..., None] - gammaln(n + 1)
