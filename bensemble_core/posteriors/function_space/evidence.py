"""Gaussian-process regression of one target: covariance, log evidence, and hyper-parameters by it; in float64."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy import optimize
from torch import Tensor

from bensemble_core.errors import NotFinite
from bensemble_core.kernels import KernelName, correlation, squared_distances
from bensemble_core.predictive.mixtures import LOG_2PI

JITTER = 1e-10  # of the prior variance, added to the noise variance of every row
_WIDEST = 10.0  # of a log hyper-parameter, either way
_HOPELESS = 1e30  # in place of a negative log evidence where the covariance has no Cholesky factor


@dataclass(frozen=True, kw_only=True, eq=False)
class Hyper:
    """Hyper-parameters of one target, in the units of the standardised problem."""

    kernel: KernelName
    lengthscales: Tensor  # [D]
    scale: Tensor  # [] sd of the stationary part
    linear: Tensor  # [] sd of every weight and of the bias of the linear part; 0 is none
    noise: Tensor  # [] variance

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """s² k(|a − b| / ℓ) + τ² (1 + aᵀb): [N, D], [P, D] -> [N, P]."""
        near = correlation(self.kernel, squared_distances(a / self.lengthscales, b / self.lengthscales))
        found = self.scale.square() * near
        return found + self.linear.square() * (1 + a @ b.mT) if bool(self.linear > 0) else found

    def variance(self, a: Tensor) -> Tensor:
        """The diagonal of `covariance(a, a)`: [N]."""
        return self.scale.square() + self.linear.square() * (1 + a.square().sum(1))

    @property
    def of_a_row(self) -> Tensor:
        """Variance of a row's target given the function: the noise and the jitter."""
        return self.noise + JITTER * self.scale.square()

    def of_rows(self, x: Tensor) -> Tensor:
        """Covariance of the targets of rows: [N, N]."""
        return self.covariance(x, x) + self.of_a_row * torch.eye(len(x), dtype=x.dtype, device=x.device)


@dataclass(frozen=True, kw_only=True, eq=False)
class Regression:
    """One target of some rows under a Gaussian process: y ~ N(mean, K + (σ² + jitter) I) = N(mean, LLᵀ)."""

    hyper: Hyper
    x: Tensor  # [N, D]
    y: Tensor  # [N]
    mean: Tensor  # []
    factor: Tensor  # L [N, N]

    @classmethod
    def of(cls, hyper: Hyper, x: Tensor, y: Tensor, mean: Tensor) -> "Regression":
        factor, failed = torch.linalg.cholesky_ex(hyper.of_rows(x))
        if bool(failed) or not bool(factor.isfinite().all()):
            raise NotFinite(
                f"the covariance of {len(x)} rows has no Cholesky factor: their noise, a variance of "
                f"{float(hyper.noise):.3g} of standardised targets, is too small for a function so smooth; raise it, "
                'shorten the lengthscale, or take kernel="matern52"'
            )
        return cls(hyper=hyper, x=x, y=y, mean=mean, factor=factor)

    def solve(self, residuals: Tensor) -> Tensor:
        """(K + σ² I)⁻¹ of columns: [N, R] -> [N, R]."""
        return torch.cholesky_solve(residuals, self.factor)

    def log_evidence(self) -> Tensor:
        """−½ rᵀ(K + σ²)⁻¹r − ½ log |K + σ²| − N/2 log 2π with r = y − mean: []."""
        whitened: Tensor = torch.linalg.solve_triangular(self.factor, (self.y - self.mean)[:, None], upper=False)
        return -0.5 * whitened.square().sum() - self.factor.diagonal().log().sum() - 0.5 * len(self.y) * LOG_2PI

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior mean and variance of the function at rows: [R, D] -> [R], [R]."""
        cross = self.hyper.covariance(self.x, x)  # [N, R]
        mean = self.mean + cross.mT @ self.solve((self.y - self.mean)[:, None])[:, 0]
        whitened = torch.linalg.solve_triangular(self.factor, cross, upper=False)
        return mean, (self.hyper.variance(x) - whitened.square().sum(0)).clamp(min=0)


def maximise(
    build: Callable[[Tensor], Hyper],
    starts: Tensor,
    x: Tensor,
    y: Tensor,
    mean: Tensor,
    *,
    hyperprior: tuple[Tensor, Tensor] | None,
    steps: int,
    tick: Callable[[], None],
) -> Tensor:
    """φ with the largest log evidence of `build(φ)`, plus Σ log N(φ_i | m_i, s_i²) with a `hyperprior`: [S, Q] -> [Q].

    L-BFGS (Liu & Nocedal 1989) from each of the starts; the best end is taken, the first of equals. The slope goes
    through the covariance C alone, d(−log Z)/dC = ½ (C⁻¹ − ααᵀ) with α = C⁻¹r, so that no factorisation is
    differentiated.
    """
    residual = (y - mean)[:, None]

    def value_and_slope(values: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        tick()
        phi = torch.from_numpy(values.copy()).to(x.device).requires_grad_()
        with torch.enable_grad():
            covariance = build(phi).of_rows(x)
        with torch.no_grad():
            factor, failed = torch.linalg.cholesky_ex(covariance)
            if bool(failed) or not bool(factor.isfinite().all()):
                return _HOPELESS, np.zeros_like(values)
            alpha = torch.cholesky_solve(residual, factor)
            value = 0.5 * (residual * alpha).sum() + factor.diagonal().log().sum() + 0.5 * len(y) * LOG_2PI
            towards = 0.5 * (torch.cholesky_inverse(factor) - alpha @ alpha.mT)
        (slope,) = torch.autograd.grad(covariance, phi, towards)
        if hyperprior is not None:
            away = (phi.detach() - hyperprior[0]) / hyperprior[1]
            value, slope = value + 0.5 * away.square().sum(), slope + away / hyperprior[1]
        return float(value), slope.cpu().numpy()

    best, least = starts[0], math.inf
    for start in starts:
        found = optimize.minimize(
            value_and_slope,
            start.cpu().numpy(),
            jac=True,
            method="L-BFGS-B",
            bounds=[(-_WIDEST, _WIDEST)] * starts.shape[1],
            options={"maxfun": steps},
        )
        if float(found.fun) < least:
            best, least = torch.from_numpy(np.asarray(found.x)).to(starts), float(found.fun)
    return best
