"""Posteriors of two weights whose answer is known, and mixtures of one weight."""

import math
from typing import Any

import torch
from torch import Tensor, nn

import bensemble_core as bc
from bensemble_core.posteriors.implicit.mixing import LOG_SD, MATRIX, Draws, Mixture
from bensemble_core.randomness import generator

RHO, SCALE = 0.9, 100.0
ENTROPY = 0.5 * math.log(2 * math.pi * math.e * 1.25)  # of w where w | z ~ N(z, .25) and z ~ N(0, 1): 1.530510


def correlated() -> tuple[Tensor, Tensor]:
    """Two rows whose posterior over two weights has unit variances and correlation .9, under N(0, 100²) and noise 1."""
    covariance = torch.tensor([[1.0, RHO], [RHO, 1.0]], dtype=torch.float64)
    precision = torch.linalg.inv(covariance) - torch.eye(2, dtype=torch.float64) / SCALE**2
    x = torch.linalg.cholesky(precision).T.contiguous()
    return x, x @ torch.tensor([0.5, -1.0], dtype=torch.float64)


def log_evidence() -> float:
    x, y = correlated()
    covariance = torch.eye(2, dtype=torch.float64) + SCALE**2 * x @ x.T
    zero = torch.zeros(2, dtype=torch.float64)
    return float(torch.distributions.MultivariateNormal(zero, covariance).log_prob(y))


def fit_correlated(name: str, **changes: Any) -> bc.Fitted:
    options: dict[str, Any] = {"epochs": 600, "lr": 0.05, "init_sigma": 0.5, "samples": 50, "standardise": False}
    net = nn.Linear(2, 1, bias=False)
    nn.init.constant_(net.weight, 0.1)
    return bc.fit(
        name,
        net,
        correlated(),
        likelihood=bc.Gaussian(noise=1.0),
        prior=bc.Normal(scale=SCALE),
        **(options | changes),
    )


def one_weight(mean: float = 0.0, slope: float = 1.0) -> Mixture:
    """w | z ~ N(mean + slope z, .25), z ~ N(0, 1)."""
    tensors = {
        "w": torch.full((1, 1), mean, dtype=torch.float64),
        MATRIX: torch.full((1, 1, 1), slope, dtype=torch.float64),
        LOG_SD: torch.full((1, 1), math.log(0.5), dtype=torch.float64),
    }
    return Mixture(shapes={"w": (1,)}, net=None, tensors=tensors)


def draws_of(q: Mixture, n: int) -> Draws:
    return q.draw(n, generator(0))
