"""The posterior as Gaussian cells, each fitted to all outcomes by a damped Gauss–Newton method (Laplace in each cell).

    N(0, I) = Σ_a w_a N(g_a, h² I),   cell a after the outcomes: mode and curvature of N(z; g_a, h²) Π_n p(y_n | z, ξ_n)

Twice: first in the frame of the prior, then, with cells laid anew, in that of the mean and covariance that were found.
Cells of the first turn that lie outside the second frame stay: they may be other modes. All outcomes are always fitted
together, so that their order does not matter.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from bensemble_core.design.cells.lattice import Lattice, lattice
from bensemble_core.design.cells.mixture import Mixture, straight
from bensemble_core.design.cells.precise import Precise
from bensemble_core.design.deadline import check
from bensemble_core.design.spec.model import Event
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


def fit(precise: Precise, events: Sequence[Event], spacing: float) -> Mixture:
    """p(z | events) as cells that far apart, in units of the posterior's own sds."""
    k = precise.n_scores
    if not events:
        cells = lattice(k, spacing, REACH)
        factors = np.broadcast_to(cells.sd * np.eye(k), (len(cells.weights), k, k))
        return Mixture(
            weights=cells.weights, centres=cells.centres, factors=factors, sigmas=straight(cells.centres, factors)
        )
    data = precise.observed(events)
    home = _Frame(centre=np.zeros(k), factor=np.eye(k))
    first = _fitted(precise, data, home, lattice(k, COARSER[k] * spacing, FIRST_REACH), N_FIRST)
    mean, covariance = first.moments()
    frame = _Frame(centre=mean, factor=np.asarray(WIDER * np.linalg.cholesky(covariance), dtype=np.float64))
    found = _fitted(precise, data, frame, lattice(k, spacing, REACH), N_SECOND)
    away = np.linalg.solve(frame.factor, (first.centres - mean).T)
    is_outside = (away**2).sum(0) > (REACH - 0.5) ** 2
    return _joined(found, first, is_outside) if is_outside.any() else found


@dataclass(frozen=True, kw_only=True)
class _Frame:
    centre: Array  # [K]
    factor: Array  # [K, K], lower triangular

    def scores(self, u: Array) -> Array:
        """[..., K] -> [..., K]"""
        return np.asarray(self.centre + u @ self.factor.T)


def _residuals(precise: Precise, data: tuple[Array, Array], z: Array) -> tuple[Array, Array]:
    """(mean − y) / sd of every outcome at scores [..., K]: [..., n], and Σ log sd [...]."""
    rows, y = data
    check()
    mean, sd = precise.located(z, rows)
    residuals = np.moveaxis((mean - y.reshape(-1, *(1,) * (mean.ndim - 1))) / sd, 0, -1)
    return residuals, np.log(sd).sum(0)


def _fitted(precise: Precise, data: tuple[Array, Array], frame: _Frame, cells: Lattice, n_steps: int) -> Mixture:
    """In coordinates u of the frame: −log of what is fitted is φ(u) = ½|z(u)|² + ½|r(u)|² + Σ log sd − ½|u|² +
    ½|u − g|²/h², the frame's own Gaussian being divided out."""
    g, h = cells.centres, cells.sd
    n_cells, k = g.shape
    eye = np.eye(k)

    def whole(u: Array) -> tuple[Array, Array]:
        z = frame.scores(u)
        residuals, log_sd = _residuals(precise, data, z)
        return np.concatenate([z, residuals], -1), log_sd

    def height(u: Array, r: Array, log_sd: Array) -> Array:
        value = 0.5 * (r**2).sum(-1) + log_sd - 0.5 * (u**2).sum(-1) + 0.5 * ((u - g) ** 2).sum(-1) / h**2
        return np.where(np.isfinite(value), value, np.inf)

    def slopes(u: Array) -> tuple[Array, Array]:
        """∂r/∂u [A, n, K] and ∂Σ log sd/∂u [A, K], by differences."""
        shifted = np.stack([u + sign * STEP * eye[i] for sign in (1, -1) for i in range(k)], 1)  # [A, 2K, K]
        r, log_sd = whole(shifted)
        with np.errstate(invalid="ignore"):
            jacobian = (r[:, :k] - r[:, k:]) / (2 * STEP)
            slope = (log_sd[:, :k] - log_sd[:, k:]) / (2 * STEP)
        return np.nan_to_num(jacobian.transpose(0, 2, 1)), np.nan_to_num(slope)

    with np.errstate(invalid="ignore", over="ignore"):
        u = g.copy()
        r, log_sd = whole(u)
        value = height(u, r, log_sd)
        for _ in range(n_steps):
            jacobian, slope = slopes(u)
            precision = np.einsum("aik,ail->akl", jacobian, jacobian) + (1 / h**2 - 1) * eye
            gradient = np.einsum("aik,ai->ak", jacobian, np.nan_to_num(r)) + slope - u + (u - g) / h**2
            step = np.linalg.solve(precision, -gradient[..., None])[..., 0]
            share = np.ones(n_cells)
            left = np.ones(n_cells, dtype=bool)
            before = value
            for _ in range(N_HALVINGS):
                tried = u + share[:, None] * step
                r_tried, log_tried = whole(tried)
                value_tried = height(tried, r_tried, log_tried)
                better = left & (value_tried <= before + 1e-12 * np.abs(before))
                u = np.where(better[:, None], tried, u)
                r = np.where(better[:, None], r_tried, r)
                value = np.where(better, value_tried, value)
                left &= ~better
                if not left.any():
                    break
                share = np.where(left, 0.3 * share, share)
            if np.all(np.abs(step) < 1e-7) or np.all(before - value < 1e-9):
                break
        jacobian, _ = slopes(u)
        precision = np.einsum("aik,ail->akl", jacobian, jacobian) + (1 / h**2 - 1) * eye
    inverse = np.linalg.inv(np.linalg.cholesky(precision)).transpose(0, 2, 1)  # C Cᵀ = precision⁻¹
    log_weights = (
        np.log(cells.weights)
        - value
        - k * np.log(h)
        + np.log(np.abs(np.diagonal(inverse, axis1=1, axis2=2))).sum(1)
        + np.log(np.diagonal(frame.factor)).sum()
    )
    log_evidence = float(logsumexp(log_weights)) - 0.5 * len(data[1]) * np.log(2 * np.pi)
    if not np.isfinite(log_evidence):
        raise InvalidData("the model gives these observations together no chance; check them, or allow for lapses")
    weights = np.exp(log_weights - logsumexp(log_weights))
    kept = weights > KEPT
    sigmas, is_bent = _bent(whole, u[kept], r[kept], jacobian[kept], precision[kept], inverse[kept])
    weights = weights[kept] / weights[kept].sum()
    return Mixture(
        weights=weights,
        centres=frame.scores(u[kept]),
        factors=frame.factor @ inverse[kept],
        sigmas=frame.scores(sigmas),
        log_evidence=log_evidence,
        bent=float(weights @ is_bent),
    )


def _bent(whole, u: Array, r: Array, jacobian: Array, precision: Array, factors: Array) -> tuple[Array, Array]:  # type: ignore[no-untyped-def]
    """Sigma points moved to where outcomes so far are what the linear cell predicts for them, [A, 2K, K] in u; and
    which cells have some where that is not reached [A]."""
    k = u.shape[1]
    sigmas = straight(u, factors)
    observed = jacobian[:, k:]
    wanted = r[:, None, k:] + np.einsum("ank,ask->asn", observed, sigmas - u[:, None])
    gain = np.linalg.solve(precision, observed.transpose(0, 2, 1))
    with np.errstate(invalid="ignore", over="ignore"):
        off = wanted - whole(sigmas)[0][..., k:]
        for _ in range(N_BENT):
            tried = sigmas + np.einsum("akn,asn->ask", gain, np.nan_to_num(off))
            off_tried = wanted - whole(tried)[0][..., k:]
            better = (off_tried**2).sum(-1) < (off**2).sum(-1)
            sigmas = np.where(better[..., None], tried, sigmas)
            off = np.where(better[..., None], off_tried, off)
        is_bent = (np.abs(np.nan_to_num(off, nan=np.inf)).max((1, 2)) > BENT).astype(np.float64)
    return sigmas, is_bent


def _joined(found: Mixture, first: Mixture, some: npt.NDArray[np.bool_]) -> Mixture:
    """The cells of the second frame with those of the first that lie outside it."""
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
