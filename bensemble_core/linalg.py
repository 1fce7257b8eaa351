"""Precision matrices that are never written out: H + diag(δ) with H a Kronecker product, a diagonal, or dense if asked.

Each class holds a curvature H ⪰ 0 in float64 and answers for the precision H + δ: its log-determinant, the diagonal of
its inverse, draws from N(0, (H + δ)⁻¹), and the quadratic form. δ is a scalar for a Kronecker product, and broadcasts
against the diagonal for the others.

Eigenvectors are known up to their signs, and those of equal eigenvalues up to a rotation; which ones come out is
decided by the CPU's library. Every answer here is a function of U f(λ) Uᵀ alone, so it is the same on every machine to
rounding.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bensemble_core.errors import NotFinite

_NARROW = 128  # columns of a half below which a product is not split


def gram(a: Tensor) -> Tensor:
    """aᵀa of a [R, D] matrix with the lower blocks copied from the upper ones, which saves up to 3/8 of the work."""
    width = a.shape[1]
    if width < 2 * _NARROW:
        return a.mT @ a
    half = width // 2
    left, right = a[:, :half], a[:, half:]
    corner = left.mT @ right
    return torch.cat([torch.cat([gram(left), corner], 1), torch.cat([corner.mT, gram(right)], 1)])


def eigenbasis(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Values (≥ 0) and vectors of a symmetric positive semi-definite matrix, in float64; of the vectors any basis."""
    wide = matrix.to(torch.float64)
    if not bool(wide.isfinite().all()):
        raise NotFinite("the curvature has entries that are not finite; are weights and rows of a sensible size?")
    values, vectors = torch.linalg.eigh((wide + wide.mT) / 2)
    return values.clamp(min=0), vectors


def symmetric_root(matrix: Tensor) -> Tensor:
    """S = Sᵀ with S S the matrix [..., P, P], symmetric and positive semi-definite to rounding; in float64."""
    values, vectors = eigenbasis(matrix)
    return (vectors * values.sqrt().unsqueeze(-2)) @ vectors.mT


@dataclass(frozen=True, kw_only=True, eq=False)
class Kronecker:
    """H = L ⊗ R over a matrix D [O, I]: vec(D)ᵀ H vec(D) = tr(L D R Dᵀ); L summed over the rows, R their average.

    With L = U_L diag(l) U_Lᵀ and R = U_R diag(r) U_Rᵀ, H + δ has the eigenvalues l_i r_j + δ and the eigenvectors of
    the product: both factors are diagonalised, the product never formed. `factored` replaces it by the product of
    damped factors (L/√N + √δ) ⊗ (√N R + √δ), a matrix normal (Ritter et al. 2018, eq. 8), which is larger than H + δ.
    """

    left_values: Tensor  # [O]
    left_vectors: Tensor  # [O, O]
    right_values: Tensor  # [I]
    right_vectors: Tensor  # [I, I]
    n_rows: int
    factored: bool = False

    @classmethod
    def of(cls, left: Tensor, right: Tensor, n_rows: int, *, factored: bool = False) -> "Kronecker":
        lv, lu = eigenbasis(left)
        rv, ru = eigenbasis(right)
        return cls(left_values=lv, left_vectors=lu, right_values=rv, right_vectors=ru, n_rows=n_rows, factored=factored)

    def values(self, delta: Tensor) -> Tensor:
        """Eigenvalues of the precision: [O, I]."""
        if not self.factored:
            return self.left_values[:, None] * self.right_values + delta
        root, n = delta.sqrt(), math.sqrt(max(1, self.n_rows))
        return (self.left_values / n + root)[:, None] * (self.right_values * n + root)

    def log_det(self, delta: Tensor) -> Tensor:
        return self.values(delta).log().sum()

    def variances(self, delta: Tensor) -> Tensor:
        """Diagonal of the inverse: [O, I]."""
        return self.left_vectors.square() @ self.values(delta).reciprocal() @ self.right_vectors.square().mT

    def traces(self, delta: Tensor) -> Tensor:
        """Trace of the inverse, without its diagonal: []."""
        return self.values(delta).reciprocal().sum()

    def draw(self, delta: Tensor, z: Tensor) -> Tensor:
        """z [M, O, I] standard normal -> U_L [(U_Lᵀ z U_R) ⊘ √values] U_Rᵀ, the symmetric root of the inverse times z.

        U_L [z ⊘ √values] U_Rᵀ has the same covariance at half of the products, but is another draw in another basis.
        """
        rotated = self.left_vectors.mT @ z @ self.right_vectors
        return self.left_vectors @ (rotated / self.values(delta).sqrt()) @ self.right_vectors.mT

    def quadratic(self, delta: Tensor, d: Tensor) -> Tensor:
        """vec(d)ᵀ (H + δ) vec(d) for d [O, I], in d's own dtype."""
        rotated = self.left_vectors.to(d).mT @ d @ self.right_vectors.to(d)
        return (rotated.square() * self.values(delta).to(d)).sum()

    def plus(self, other: "Kronecker") -> "Kronecker":
        """The product nearest at hand to a sum of two: (L₁ + L₂) ⊗ (N₁R₁ + N₂R₂)/(N₁ + N₂).

        It is what one pass over the rows of both would have given at the same weights; exact as a sum only where the
        factors of one side are proportional.
        """
        n = self.n_rows + other.n_rows
        left = self.left() + other.left()
        right = (self.right() * self.n_rows + other.right() * other.n_rows) / max(1, n)
        return Kronecker.of(left, right, n, factored=self.factored)

    def scaled(self, factor: float | Tensor) -> "Kronecker":
        return replace(self, left_values=self.left_values * factor)

    def left(self) -> Tensor:
        return (self.left_vectors * self.left_values) @ self.left_vectors.mT

    def right(self) -> Tensor:
        return (self.right_vectors * self.right_values) @ self.right_vectors.mT


@dataclass(frozen=True, kw_only=True, eq=False)
class Diagonal:
    """H = diag(values), of any shape."""

    diagonal: Tensor

    def values(self, delta: Tensor) -> Tensor:
        return self.diagonal + delta

    def log_det(self, delta: Tensor) -> Tensor:
        return self.values(delta).log().sum()

    def variances(self, delta: Tensor) -> Tensor:
        return self.values(delta).reciprocal()

    def draw(self, delta: Tensor, z: Tensor) -> Tensor:
        """z [M, ...] standard normal -> z / √values."""
        return z / self.values(delta).sqrt()

    def quadratic(self, delta: Tensor, d: Tensor) -> Tensor:
        return (d.square() * self.values(delta).to(d)).sum()

    def plus(self, other: "Diagonal") -> "Diagonal":
        return Diagonal(diagonal=self.diagonal + other.diagonal)

    def scaled(self, factor: float | Tensor) -> "Diagonal":
        return Diagonal(diagonal=self.diagonal * factor)


@dataclass(frozen=True, kw_only=True, eq=False)
class Dense:
    """H [P, P] in full."""

    matrix: Tensor

    def factor(self, delta: Tensor) -> Tensor:
        """Lower Cholesky factor of H + diag(δ)."""
        factor: Tensor
        factor, failed = torch.linalg.cholesky_ex(self.matrix + torch.diag(delta.expand(self.matrix.shape[0])))
        if bool(failed):
            raise NotFinite("the posterior precision is not positive definite in float64; use a tighter prior")
        return factor

    def log_det(self, delta: Tensor) -> Tensor:
        return 2 * self.factor(delta).diagonal().log().sum()

    def covariance(self, delta: Tensor) -> Tensor:
        return torch.cholesky_inverse(self.factor(delta))

    def variances(self, delta: Tensor) -> Tensor:
        return self.covariance(delta).diagonal()

    def draw(self, delta: Tensor, z: Tensor) -> Tensor:
        """z [M, P] standard normal -> L⁻ᵀ z."""
        drawn: Tensor = torch.linalg.solve_triangular(self.factor(delta).mT, z.mT, upper=True).mT
        return drawn

    def quadratic(self, delta: Tensor, d: Tensor) -> Tensor:
        return d @ (self.matrix.to(d) @ d) + (d.square() * delta.to(d)).sum()

    def plus(self, other: "Dense") -> "Dense":
        return Dense(matrix=self.matrix + other.matrix)

    def scaled(self, factor: float | Tensor) -> "Dense":
        return Dense(matrix=self.matrix * factor)
