"""Gamma beliefs over precisions: of the noise, and of the prior on the weights, for S problems at once, in float64.

A Gamma(a, b) over the precision γ of N(y | m, v + 1/γ) has no closed posterior. The paper's approximation (Hernández-
Lobato & Adams 2015) replaces 1/γ by its mean in Z = E N(y | m, v + 1/γ), and matches E γ and E γ² by Z,
Z₁, Z₂, the same with a + 1 and a + 2:

a' = 1 / (Z Z₂ Z₁⁻² (a + 1)/a − 1),  b' = 1 / (Z₂ Z₁⁻¹ (a + 1)/b − Z₁ Z⁻¹ a/b).
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

SHAPE = 6.0  # a of the paper's Gamma(6, 6), as known from three observations of variance 1
_WIDEST_CAVITY = 1e6  # variance from which on the data says nothing about a weight, and its factor is left as it is
_ADDED = np.array([[-1.0], [0.0], [1.0]])  # E 1/λ = b / (a − 1), and with a + 1, a + 2
Floats: TypeAlias = npt.NDArray[np.float64]


def noise_variances(a: Tensor, b: Tensor) -> Tensor:
    """E 1/γ under Gamma(a, b), Gamma(a + 1, b), Gamma(a + 2, b): [3, S]."""
    return b / (a + torch.from_numpy(_ADDED).to(a.device))


def observe(a: Tensor, b: Tensor, log_z: Tensor) -> tuple[Tensor, Tensor]:
    """The Gamma after an observation with log Z, log Z₁, log Z₂ [3, S]; one that is no Gamma with a mean stays."""
    first, second = log_z.diff(dim=0).exp()  # Z₁/Z, Z₂/Z₁
    down = a * first
    gap = (a + 1) * second - down
    new_a, new_b = down / gap, b / gap
    valid = (new_a > 1) & (new_b > 0) & (new_a + new_b < torch.inf)
    return new_a.where(valid, a), new_b.where(valid, b)


@dataclass(kw_only=True, eq=False)
class PriorFactors:
    """The approximate factor of each weight's prior N(w | 0, 1/λ), λ ~ Gamma(a, b): [P, S].

    Its precision as a Gaussian in w (its mean is always 0), and what it added to a and b as a Gamma in λ.
    """

    precision: Floats
    shape: Floats
    rate: Floats

    def refine(self, mean: Floats, variance: Floats, a: Floats, b: Floats) -> tuple[Floats, Floats]:
        """Expectation propagation over the prior factors, one weight after another.

        Each is taken out of the belief, and put back by matching moments with the exact N(w | 0, 1/λ). `mean` and
        `variance` [P, S] change in place; the new Gamma's a and b [S] are returned. A factor whose cavity is no
        distribution, or too wide to hold information, stays as it is.
        """
        with np.errstate(all="ignore"):
            v = 1 / (1 / variance - self.precision)  # of the cavity
            m = mean / variance * v
            proper = (v > 0) & (v < _WIDEST_CAVITY)
            square = m * m
            for i in range(len(mean)):
                cavity_a, cavity_b = a - self.shape[i], b - self.rate[i]  # [S]
                total = v[i] + cavity_b / (cavity_a + _ADDED)  # [3, S]
                log_z = -0.5 * (np.log(total) + square[i] / total)
                first, second = np.exp(log_z[1:] - log_z[:-1])
                down = cavity_a * first
                gap = (cavity_a + 1) * second - down
                new_a, new_b = down / gap, cavity_b / gap
                keep = 1 - v[i] / total[0]
                valid = proper[i] & (cavity_b > 0) & (cavity_a > 1) & (new_a > 1) & (new_b > 0) & (keep > 0)
                valid &= new_a + new_b < np.inf
                if valid.all():
                    a, b = new_a, new_b
                    mean[i], variance[i] = m[i] * keep, v[i] * keep
                    self.precision[i] = (cavity_a - 1) / cavity_b
                    self.shape[i], self.rate[i] = a - cavity_a, b - cavity_b
                elif valid.any():
                    a, b = np.where(valid, new_a, a), np.where(valid, new_b, b)
                    mean[i], variance[i] = np.where(valid, (m[i] * keep, v[i] * keep), (mean[i], variance[i]))
                    self.precision[i] = np.where(valid, (cavity_a - 1) / cavity_b, self.precision[i])
                    self.shape[i] = np.where(valid, a - cavity_a, self.shape[i])
                    self.rate[i] = np.where(valid, b - cavity_b, self.rate[i])
        return a, b
