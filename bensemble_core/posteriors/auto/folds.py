"""Rows held out in turn, what they weigh, and what families weigh by predictions of held-out rows."""

import math

import torch
from torch import Tensor

from bensemble_core.kernels import squared_distances
from bensemble_core.predictive.mixtures import LOG_2PI
from bensemble_core.randomness import permutation

PSEUDO_COUNT = 0.5
_EM_STEPS = 200
_BLOCK = 1_024  # rows compared at once


def stratified(y: Tensor, n_folds: int, seed: int) -> Tensor:
    """Which fold each row is held out in, every class spread over the folds as evenly as it goes: [N] -> [N]."""
    order = permutation(len(y), seed, 0).to(y.device)
    by_class = order[y[order].argsort(stable=True)]
    folds = torch.empty(len(y), dtype=torch.int64, device=y.device)
    folds[by_class] = torch.arange(len(y), device=y.device) % n_folds
    return folds


def crowding(x: Tensor, unlabelled: Tensor | None) -> Tensor:
    """What each labelled row stands for: √(½ + unlabelled rows nearest to it), scaled to mean 1: [N].

    Rows that a score picked crowd where it was high; so weighed, they count as the pool they were picked from.
    """
    if unlabelled is None or not len(unlabelled):
        return x.new_ones(len(x))
    counts = torch.zeros(len(x), dtype=torch.int64, device=x.device)
    for block in torch.split(unlabelled, _BLOCK):
        nearest = squared_distances(block, x).argmin(1)
        counts += torch.bincount(nearest, minlength=len(x))
    weights = (0.5 + counts.to(x)).sqrt()
    return weights / weights.mean()


def stacking_weights(log_likelihoods: Tensor, row_weights: Tensor, pseudo_count: float = PSEUDO_COUNT) -> Tensor:
    """Weights w of families that maximise Σ_i v_i log Σ_f w_f p_if under a Dirichlet, by EM: [F, N], [N] -> [F].

    `pseudo_count` rows, of all families together, speak for equal weights.
    """
    n_families = len(log_likelihoods)
    log_w = log_likelihoods.new_full((n_families, 1), -math.log(n_families))
    for _ in range(_EM_STEPS):
        shares = (log_w + log_likelihoods).softmax(0)  # [F, N]
        counts = (row_weights * shares).sum(1, keepdim=True) + pseudo_count / n_families
        log_w = (counts / counts.sum()).log()
    return log_w[:, 0].exp()


def log_normal(y: Tensor, means: Tensor, variances: Tensor) -> Tensor:
    """Σ_t log N(y_t | mean_t, variance_t): [..., N, T] -> [..., N]."""
    return -0.5 * ((y - means).square() / variances + variances.log() + LOG_2PI).sum(-1)
