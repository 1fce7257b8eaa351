"""The posterior as Gaussian cells, each fitted to all outcomes by a damped Gauss–Newton method (Laplace in each cell).

    N(0, I) = Σ_a w_a N(g_a, h² I),   cell a after the outcomes: mode and curvature of N(z; g_a, h²) Π_n p(y_n | z, ξ_n)

Twice: first in the frame of the prior, then, with cells laid anew, in that of the mean and covariance that were found.
Cells of the first turn that lie outside the second frame stay: they may be other modes. All outcomes are always fitted
together, so that their order does not matter.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from bensemble_core.design.cells.lattice import Lattice, lattice
from bensemble_core.design.cells.mixture import Mixture, straight
from bensemble_core.design.cells.precise import Data, Precise
from bensemble_core.design.deadline import check
from bensemble_core.errors import InvalidData

Array = npt.NDArray[np.float64]
FIRST_REACH = 4.5  # of the cells in the frame of the prior
COARSER = {1: 4.0, 2: 1.2, 3: 0.8}  # spacing of those beside that of the cells in the posterior's, by free parameters
REACH = 6.0  # of those in the frame of the posterior
WIDER = 1.05  # of the second frame than the moments found
N_FIRST, N_SECOND = 25, 8  # steps
STEP = 1e-4  # of differences, in units of the frame
N_HALVINGS = 6
KEPT = 1e-12  # weight of a cell
N_BENT = 4  # corrections of sigma points
BENT = 0.5  # noise sds that a sigma point's outcomes are off from what is linear, beyond which its cell is bent


def fit(precise: Precise, data: Data, spacing: float) -> list[Mixture]:
    """p(z | outcomes) as cells that far apart, in units of the posterior's own sds: one for each history."""
    k, n = precise.n_scores, len(data.y)
    if not len(data.rows):
        cells = lattice(k, spacing, REACH)
        factors = np.broadcast_to(cells.sd * np.eye(k), (len(cells.weights), k, k))
        prior = Mixture(
            weights=cells.weights, centres=cells.centres, factors=factors, sigmas=straight(cells.centres, factors)
        )
        return [prior] * n
    home = _Frames(centres=np.zeros((n, k)), factors=np.broadcast_to(np.eye(k), (n, k, k)))
    first = _fitted(precise, data, home, lattice(k, COARSER[k] * spacing, FIRST_REACH), N_FIRST)
    moments = [mixture.moments() for mixture in first]
    frames = _Frames(
        centres=np.stack([mean for mean, _ in moments]),
        factors=WIDER * np.linalg.cholesky(np.stack([covariance for _, covariance in moments])),
    )
    second = _fitted(precise, data, frames, lattice(k, spacing, REACH), N_SECOND)
    return [
        _joined(found, before, centre, factor)
        for found, before, centre, factor in zip(second, first, frames.centres, frames.factors, strict=True)
    ]


@dataclass(frozen=True, kw_only=True)
class _Frames:
    centres: Array  # [B, K]
    factors: Array  # [B, K, K], lower triangular

    def scores(self, u: Array) -> Array:
        """[B, ..., K] -> [B, ..., K]"""
        flat = u.reshape(len(u), -1, u.shape[-1])
        return (self.centres[:, None] + flat @ self.factors.transpose(0, 2, 1)).reshape(u.shape)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Surface:
    """What is fitted, in coordinates u [B, A, K] of the frames: −log of it is

        φ(u) = ½|z(u)|² + ½|r(u)|² + Σ log sd − ½|u|² + ½|u − g|²/h²

    with r the outcomes' distances from their means in noise sds, and the frame's own Gaussian divided out."""

    precise: Precise
    data: Data
    frames: _Frames
    cells: Lattice

    def residuals(self, u: Array) -> tuple[Array, Array]:
        """z and r at [B, ..., K]: [B, ..., K + n], and Σ log sd [B, ...]."""
        check()
        z = self.frames.scores(u)
        mean, sd = self.precise.located(z, self.data.rows)  # [n, B, ..., O]
        y = np.swapaxes(self.data.y, 0, 1)
        y = y.reshape(*mean.shape[:2], *(1,) * (mean.ndim - 3), -1)
        away = np.moveaxis((mean - y) / sd, 0, -1)
        return np.concatenate([z, away.reshape(*z.shape[:-1], -1)], -1), np.log(sd).sum((0, -1))

    def height(self, u: Array, r: Array, log_sd: Array) -> Array:
        away = ((u - self.cells.centres) ** 2).sum(-1) / self.cells.sd**2
        value = 0.5 * (r**2).sum(-1) + log_sd - 0.5 * (u**2).sum(-1) + 0.5 * away
        return np.where(np.isfinite(value), value, np.inf)

    def slopes(self, u: Array) -> tuple[Array, Array]:
        """∂r/∂u [B, A, n, K] and ∂Σ log sd/∂u [B, A, K], by differences."""
        k = u.shape[-1]
        shifts = STEP * np.concatenate([np.eye(k), -np.eye(k)])
        r, log_sd = self.residuals(u[..., None, :] + shifts)  # [B, A, 2K, ...]
        jacobian = (r[..., :k, :] - r[..., k:, :]) / (2 * STEP)
        slope = (log_sd[..., :k] - log_sd[..., k:]) / (2 * STEP)
        return np.nan_to_num(np.swapaxes(jacobian, -1, -2)), np.nan_to_num(slope)

    def precision(self, jacobian: Array) -> Array:
        k = jacobian.shape[-1]
        return np.asarray(np.swapaxes(jacobian, -1, -2) @ jacobian + (1 / self.cells.sd**2 - 1) * np.eye(k))


def _fitted(precise: Precise, data: Data, frames: _Frames, cells: Lattice, n_steps: int) -> list[Mixture]:
    surface = _Surface(precise=precise, data=data, frames=frames, cells=cells)
    g, h = cells.centres, cells.sd
    k = g.shape[1]
    with np.errstate(invalid="ignore", over="ignore"):
        u = np.repeat(g[None], len(data.y), 0)  # [B, A, K]
        r, log_sd = surface.residuals(u)
        value = surface.height(u, r, log_sd)
        for _ in range(n_steps):
            jacobian, slope = surface.slopes(u)
            gradient = (np.nan_to_num(r)[..., None, :] @ jacobian)[..., 0, :] + slope - u + (u - g) / h**2
            step = np.linalg.solve(surface.precision(jacobian), -gradient[..., None])[..., 0]
            share = np.ones(value.shape)
            left = np.ones(value.shape, dtype=bool)
            before = value
            for _ in range(N_HALVINGS):
                tried = u + share[..., None] * step
                r_tried, log_tried = surface.residuals(tried)
                value_tried = surface.height(tried, r_tried, log_tried)
                better = left & (value_tried <= before + 1e-12 * np.abs(before))
                u = np.where(better[..., None], tried, u)
                r = np.where(better[..., None], r_tried, r)
                value = np.where(better, value_tried, value)
                left &= ~better
                if not left.any():
                    break
                share = np.where(left, 0.3 * share, share)
            if np.all(np.abs(step) < 1e-7) or np.all(before - value < 1e-9):
                break
        jacobian, _ = surface.slopes(u)
        precision = surface.precision(jacobian)
    inverse = np.swapaxes(np.linalg.inv(np.linalg.cholesky(precision)), -1, -2)  # C Cᵀ = precision⁻¹
    log_weights = (
        np.log(cells.weights)
        - value
        - k * np.log(h)
        + np.log(np.abs(np.diagonal(inverse, axis1=-2, axis2=-1))).sum(-1)
        + np.log(np.diagonal(frames.factors, axis1=-2, axis2=-1)).sum(-1)[:, None]
    )
    log_evidence = logsumexp(log_weights, 1) - 0.5 * data.y[0].size * np.log(2 * np.pi)  # [B]
    if not np.isfinite(log_evidence).all():
        raise InvalidData("the model gives these observations together no chance; check them, or allow for lapses")
    weights = np.exp(log_weights - logsumexp(log_weights, 1, keepdims=True))
    sigmas, is_bent = _bent(surface, u, r, jacobian, precision, inverse)
    centres, factors, sigmas = frames.scores(u), frames.factors[:, None] @ inverse, frames.scores(sigmas)
    found = []
    for b in range(len(data.y)):
        kept = weights[b] > KEPT
        share = weights[b][kept] / weights[b][kept].sum()
        found.append(
            Mixture(
                weights=share,
                centres=centres[b][kept],
                factors=factors[b][kept],
                sigmas=sigmas[b][kept],
                log_evidence=float(log_evidence[b]),
                bent=float(share @ is_bent[b][kept]),
            )
        )
    return found


def _bent(
    surface: _Surface, u: Array, r: Array, jacobian: Array, precision: Array, factors: Array
) -> tuple[Array, Array]:
    """Sigma points moved to where outcomes so far are what the linear cell predicts for them, [B, A, 2K, K] in u; and
    which cells have some where that is not reached [B, A]."""
    k = u.shape[-1]
    sigmas = straight(u, factors)
    observed = jacobian[..., k:, :]
    wanted = r[..., None, k:] + (sigmas - u[..., None, :]) @ np.swapaxes(observed, -1, -2)
    gain = np.swapaxes(np.linalg.solve(precision, np.swapaxes(observed, -1, -2)), -1, -2)  # [B, A, n, K]
    with np.errstate(invalid="ignore", over="ignore"):
        off = wanted - surface.residuals(sigmas)[0][..., k:]
        for _ in range(N_BENT):
            tried = sigmas + np.nan_to_num(off) @ gain
            off_tried = wanted - surface.residuals(tried)[0][..., k:]
            better = (off_tried**2).sum(-1) < (off**2).sum(-1)
            sigmas = np.where(better[..., None], tried, sigmas)
            off = np.where(better[..., None], off_tried, off)
        is_bent = (np.abs(np.nan_to_num(off, nan=np.inf)).max((-2, -1)) > BENT).astype(np.float64)
    return sigmas, is_bent


def _joined(found: Mixture, first: Mixture, centre: Array, factor: Array) -> Mixture:
    """The cells of the second frame with those of the first that lie outside it."""
    away = np.linalg.solve(factor, (first.centres - centre).T)
    some = (away**2).sum(0) > (REACH - 0.5) ** 2
    if not some.any():
        return found
    shift = first.log_evidence - found.log_evidence
    weights = np.concatenate([found.weights, first.weights[some] * np.exp(shift)])
    total = float(weights.sum())
    return replace(
        found,
        weights=weights / total,
        centres=np.concatenate([found.centres, first.centres[some]]),
        factors=np.concatenate([found.factors, first.factors[some]]),
        sigmas=np.concatenate([found.sigmas, first.sigmas[some]]),
        log_evidence=found.log_evidence + float(np.log(total)),
        bent=(found.bent + float(first.weights[some].sum() * np.exp(shift)) * first.bent) / total,
    )
