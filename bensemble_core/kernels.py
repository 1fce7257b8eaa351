"""Covariance functions of Gaussian processes, as correlations of squared distances in units of the lengthscale."""

from typing import Literal, TypeAlias

import numpy as np
import torch
from scipy import special
from torch import Tensor

KernelName: TypeAlias = Literal["rbf", "matern52"]
_LEAST = 1e-30  # squared distance below which there is no slope: a root has an infinite one at 0


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """|a_i − b_j|² of scaled rows, by one product: [..., N, D], [..., P, D] -> [..., N, P].

    Exact to rounding of |a|² + |b|², so rows should be float64.
    """
    squares = a.square().sum(-1).unsqueeze(-1) + b.square().sum(-1).unsqueeze(-2)
    return (squares - 2 * a @ b.mT).clamp(min=0)


def correlation(kernel: KernelName, squares: Tensor) -> Tensor:
    """k(r) with k(0) = 1, from r² of any shape.

    rbf: exp(−r²/2). matern52: (1 + √5 r + 5r²/3) exp(−√5 r).
    """
    if kernel == "rbf":
        return (-0.5 * squares).exp()
    distance = (5 * squares.clamp(min=_LEAST)).sqrt()
    return (1 + distance + distance.square() / 3) * (-distance).exp()


def spectral_draws(kernel: KernelName, u: Tensor) -> Tensor:
    """Frequencies ω of the kernel's spectral density at unit lengthscale, from points of the unit cube.

    k(x − x') = E cos ωᵀ(x − x') (Bochner's theorem). Of rbf they are standard normal; of matern52 Student-t with 5
    degrees of freedom, a normal times √(5/χ²₅), whose χ² is taken from the last coordinate: [F, D+1] -> [F, D].
    """
    normal: Tensor = torch.special.ndtri(u[:, :-1])
    if kernel == "rbf":
        return normal
    chi2 = 2 * special.gammaincinv(2.5, u[:, -1:].cpu().numpy())
    return normal * (5 / torch.from_numpy(np.asarray(chi2)).to(normal)).sqrt()
