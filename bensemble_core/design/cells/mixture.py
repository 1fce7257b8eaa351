"""Mixtures of Gaussian cells in scores of the prior, and what they say of an outcome.

    y | cell a ~ N(m_a, v_a + s_a²)        from 2K + 1 sigma points of the cell (Julier & Uhlmann 1997)

so that p(y) is smooth however small the noise, and its entropy does not end at the logarithm of the number of cells.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy import special

from bensemble_core.design.cells.mixture_entropy import joint_entropy, mixture_entropy
from bensemble_core.design.cells.precise import Precise
from bensemble_core.design.spec.spaces import sobol

Array = npt.NDArray[np.float64]
AT_ONCE = 2_000_000  # densities
N_DRAWS = 2**10  # of several outcomes
SWINGS, STRAIGHT = 1.0, 0.1  # nats for a cell's mean off its middle by an sd, beyond so much
ROOT = np.sqrt(3.0)  # sds to a sigma point


@dataclass(frozen=True, kw_only=True, eq=False)
class Mixture:
    """Σ_a w_a N(μ_a, C_a C_aᵀ)"""

    weights: Array  # [A]
    centres: Array  # [A, K]
    factors: Array  # [A, K, K], C
    sigmas: Array  # [A, 2K, K] points √3 sds to either side along the columns of C, bent along with the outcomes so far
    log_evidence: float = 0.0
    bent: float = 0.0  # share of the weight in cells in which outcomes so far are far from linear

    def moments(self) -> tuple[Array, Array]:
        """Mean [K] and covariance [K, K]."""
        mean = self.weights @ self.centres
        away = self.centres - mean
        within = np.einsum("a,aij,akj->ik", self.weights, self.factors, self.factors)
        return mean, within + (self.weights * away.T) @ away

    def marginal(self, n: int) -> "Mixture":
        """Of the first n scores."""
        covariances = (self.factors @ np.swapaxes(self.factors, -1, -2))[:, :n, :n]
        centres = self.centres[:, :n]
        factors = np.asarray(np.linalg.cholesky(covariances), dtype=np.float64)
        return replace(self, centres=centres, factors=factors, sigmas=straight(centres, factors))

    def draws(self, n: int, seed: int) -> Array:
        """As many from each cell as it has weight: [n, K]."""
        u = sobol(n, 1 + self.centres.shape[1], seed).numpy()
        cell = np.searchsorted(self.weights.cumsum(), u[:, 0]).clip(max=len(self.weights) - 1)
        return np.asarray(self.centres[cell] + np.einsum("nij,nj->ni", self.factors[cell], special.ndtri(u[:, 1:])))

    def log_density(self, z: Array) -> Array:
        """At points [n, K]: [n]."""
        k = z.shape[1]
        inverses = np.linalg.inv(self.factors)  # [A, K, K]
        log_det = np.log(np.abs(np.linalg.det(self.factors)))
        constant = np.log(self.weights) - log_det - 0.5 * k * np.log(2 * np.pi)
        shifts = np.einsum("aij,aj->ai", inverses, self.centres)
        stride = max(1, AT_ONCE // (k * len(constant)))
        found = []
        for first in range(0, len(z), stride):
            away = np.einsum("aij,nj->nai", inverses, z[first : first + stride]) - shifts
            found.append(special.logsumexp(constant - 0.5 * (away**2).sum(-1), axis=1))
        return np.concatenate(found)


def straight(centres: Array, factors: Array) -> Array:
    """Sigma points of cells [..., K] with factors [..., K, K], before they are bent: [..., 2K, K]."""
    steps = ROOT * np.swapaxes(factors, -1, -2)
    return np.asarray(centres[..., None, :] + np.concatenate([steps, -steps], -2))


@dataclass(frozen=True, kw_only=True, eq=False)
class Pushed:
    """The outcomes of designs in each cell."""

    means: Array  # [J, A, O]
    covariances: Array  # [J, A, O, O]
    log_noise: Array  # [J, A] the sum over outcomes of log noise sd, averaged over the cell
    middles: Array  # [J, A, O] of the cells' middles alone

    @property
    def sds(self) -> Array:
        """[J, A, O]"""
        return np.asarray(np.sqrt(np.diagonal(self.covariances, axis1=-2, axis2=-1)))


def push(precise: Precise, mixture: Mixture, rows: Array) -> Pushed:
    """At designs [J, D]."""
    k = mixture.centres.shape[1]
    at = np.concatenate([mixture.centres[:, None], mixture.sigmas], 1)[None]  # [1, A, 1 + 2K, K]
    means, sds = (np.moveaxis(found[:, 0], -1, -2) for found in precise.located(at, rows))  # [J, A, O, 1 + 2K]
    middle, sd, around, around_sd = means[..., 0], sds[..., 0], means[..., 1:], sds[..., 1:]
    above, below = around[..., :k], around[..., k:]
    slope, bend = above - below, (above + below - 2 * middle[..., None]) / 6
    signal = slope @ np.swapaxes(slope, -1, -2) / 12 + 2 * bend @ np.swapaxes(bend, -1, -2)

    def averaged(at: Array, beside: Array) -> Array:
        return np.asarray(at + (beside - at[..., None]).sum(-1) / 6)

    noise = np.maximum(averaged(sd**2, around_sd**2), 0.0)
    return Pushed(
        means=middle + bend.sum(-1),
        covariances=signal + noise[..., None] * np.eye(noise.shape[-1]),
        log_noise=averaged(np.log(sd), np.log(around_sd)).sum(-1),
        middles=middle,
    )


def entropies(precise: Precise, mixture: Mixture, rows: Array, *, n_draws: int = N_DRAWS) -> tuple[Array, Array, Array]:
    """H[y] and E H[y | θ] at designs [J, D], in the outcomes' coordinates, and what was missed: [J] each. A cell in
    which an outcome swings, so that its mean lies off its middle, adds to that by its weight."""
    found = push(precise, mixture, rows)
    sds, n = found.sds, found.means.shape[-1]
    if n == 1:
        marginal, missed = mixture_entropy(found.means[..., 0], sds[..., 0], mixture.weights)
    else:
        marginal, missed = joint_entropy(found.means, found.covariances, mixture.weights, n_draws)
    curved = (np.abs(found.means - found.middles) / sds).max(-1)
    missed = missed + SWINGS * np.maximum(curved - STRAIGHT, 0.0) @ mixture.weights
    noise = found.log_noise @ mixture.weights + 0.5 * n * np.log(2 * np.pi * np.e)
    return marginal, noise, missed
