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


class Banana(nn.Module):
    """y = v + u² for every row."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([0.3, -0.2], dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return self.w[1] + self.w[0] ** 2 + 0 * x


def fit_banana(name: str, **changes: Any) -> bc.Fitted:
    """Five rows of it under noise .5 and N(0, 1)."""
    x = torch.zeros(5, 1, dtype=torch.float64)
    y = torch.tensor([-0.7, -0.6, 0.1, 0.3, 0.9], dtype=torch.float64)
    options: dict[str, Any] = {"epochs": 600, "lr": 0.05, "init_sigma": 0.3, "standardise": False}
    options |= {"samples": 30, "rank": 3} if name != "mfvi" else {}
    return bc.fit(name, Banana(), (x, y), likelihood=bc.Gaussian(noise=0.5), **(options | changes))


def banana_moments() -> tuple[Tensor, Tensor]:
    """(E v, E u², E v², E u²v) over a grid, and of the best mean field, as its fit has it."""
    axis = torch.linspace(-5, 5, 1000, dtype=torch.float64)
    u, v = torch.meshgrid(axis, axis, indexing="ij")
    rows = (-0.7, -0.6, 0.1, 0.3, 0.9)
    log_p = -0.5 * (u**2 + v**2) - sum((y - v - u**2) ** 2 for y in rows) / (2 * 0.5**2)
    weight = torch.softmax(log_p.flatten(), 0)
    exact = torch.stack([(weight * f.flatten()).sum() for f in (v, u**2, v**2, u**2 * v)])
    return exact, moments_of(fit_banana("mfvi"))


def moments_of(fitted: bc.Fitted) -> Tensor:
    u, v = fitted.sample(20_000, seed=1).stacked["w"].unbind(-1)
    return torch.stack([v.mean(), (u**2).mean(), (v**2).mean(), (u**2 * v).mean()])


def check_banana(fitted: bc.Fitted) -> None:
    """Each moment is nearer to the grid's than that of mean field, by a quarter of the way; v falls with u²."""
    exact, factorised = banana_moments()
    found = moments_of(fitted)
    assert bool(((found - exact).abs() < 0.75 * (factorised - exact).abs()).all())
    u, v = fitted.sample(20_000, seed=1).stacked["w"].unbind(-1)
    assert float(torch.corrcoef(torch.stack([u**2, v]))[0, 1]) < -0.4  # −.89 over the grid, 0 in a mean field
