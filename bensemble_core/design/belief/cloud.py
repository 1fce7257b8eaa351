"""Particles where precise outcomes leave a posterior that is a thin curve, which no grid resolves: drawn from the cells
that are fitted along it (`design.cells`), and weighted by how far those are off.

    w ∝ p(z) Π p(y_n | z, ξ_n) / q(z),    q the mixture of cells

so that the mean of w is the evidence, without bias. Where the cells are too far off for that, the draws count alike,
and what two spacings of cells differ by is the error.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from scipy import special

from bensemble_core.design.belief.belief import PointBelief
from bensemble_core.design.belief.memory import Memory
from bensemble_core.design.belief.points import scattered
from bensemble_core.design.cells.gains import BENT, SPACINGS, fitted
from bensemble_core.design.cells.precise import Precise
from bensemble_core.design.spec.model import Event, Model

N_DRAWS = 2**13
ENOUGH = 0.05  # share of effective draws, below which weights tell nothing


def cloud_belief(model: Model, events: Sequence[Event], memory: Memory, *, seed: int) -> PointBelief:
    """The posterior as weighted draws from its cells."""
    key = ("cloud", seed, tuple(events))
    return memory.get(key, lambda: _cloud(model, events, memory, seed), lambda belief: 12 * belief.points.n)


def _cloud(model: Model, events: Sequence[Event], memory: Memory, seed: int) -> PointBelief:
    coarse, fine = (
        fitted(Precise(model=model), events, spacing, memory)[0] for spacing in SPACINGS[model.prior.n_scores][-2:]
    )
    z = fine.draws(N_DRAWS, seed)
    none = torch.empty(len(z), 0, dtype=torch.int64)
    points = scattered(model.prior, torch.from_numpy(z), none, ("cloud", seed, tuple(events)))
    log_likelihood = memory.log_likelihood(model, points, events)
    log_prior = -0.5 * (z**2).sum(1) - 0.5 * z.shape[1] * math.log(2 * math.pi)
    log_weights = log_prior + log_likelihood - fine.log_density(z)
    mass = np.exp(log_weights - special.logsumexp(log_weights))
    ess = 1 / float(mass @ mass)
    spread = math.sqrt(1 / ess - 1 / len(z))
    log_evidence = float(special.logsumexp(log_weights)) - math.log(len(z))
    if ess < ENOUGH * len(z):
        mass = np.full(len(z), 1 / len(z))
        log_evidence = fine.log_evidence
        spread = max(abs(fine.log_evidence - coarse.log_evidence) + BENT * fine.bent, 1 / math.sqrt(ess))
    return PointBelief(
        method="particles",
        points=points,
        names=model.prior.names,
        mass=mass,
        log_likelihood=log_likelihood,
        log_evidence=log_evidence,
        spread=spread,
    )
