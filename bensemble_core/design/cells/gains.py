"""EIG of a precise outcome from cells at three spacings, with an error that is what they disagree by.

    EIG(ξ) = H[y] − E H[y | φ]

where all parameters are targets φ the last term is the noise's own entropy; otherwise the nuisances are fitted anew at
nodes of the targets.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from bensemble_core.design.cells.fit import fit
from bensemble_core.design.cells.lattice import lattice
from bensemble_core.design.cells.mixture import Mixture, entropies
from bensemble_core.design.cells.precise import Precise
from bensemble_core.design.spec.model import Event, Model

Array = npt.NDArray[np.float64]
SPACINGS = {1: (0.04, 0.028, 0.02), 2: (0.56, 0.4, 0.28), 3: (1.0, 0.8)}
TARGET_SPACINGS = {1: (0.4, 0.28, 0.2), 2: (0.8, 0.6, 0.5)}  # of nodes of the targets, by how many they are
TARGET_REACH = 4.2
FLOOR = 5e-5  # of the error, in nats
BENT = 0.3  # nats for cells that are bent, times their share


def cell_gains(model: Model, events: Sequence[Event], rows: Array) -> tuple[Array, Array]:
    """EIG of designs [J, D] about the targets, and how far each may be off: [J] twice."""
    precise = Precise(model=model)
    values, missed, evidence, bent = [], np.zeros(len(rows)), [], 0.0
    for level, spacing in enumerate(SPACINGS[precise.n_scores]):
        mixture = fit(precise, events, spacing)
        marginal, noise, lost = entropies(precise, mixture, rows)
        if model.prior.nuisances:
            noise, lost_given = given_targets(precise, events, rows, mixture, level)
            lost = lost + lost_given
        values.append(marginal - noise)
        missed, bent = np.maximum(missed, lost), max(bent, mixture.bent)
        evidence.append(mixture.log_evidence)
    changes = [np.abs(later - earlier) for earlier, later in itertools.pairwise(values)]
    change = np.maximum(changes[-1], changes[0] / 3) if len(changes) > 1 else changes[0]
    se = change + 0.3 * abs(evidence[-1] - evidence[-2]) + BENT * bent + missed + FLOOR
    return np.maximum(values[-1], 0.0), se


def given_targets(
    precise: Precise, events: Sequence[Event], rows: Array, mixture: Mixture, level: int
) -> tuple[Array, Array]:
    """E_φ H[y | φ] at designs [J, D], and what was missed: nuisances are fitted at nodes of the targets."""
    n_targets = precise.model.prior.n_target_scores
    mean, covariance = mixture.moments()
    factor = np.linalg.cholesky(covariance)[:n_targets, :n_targets]
    nodes = lattice(n_targets, TARGET_SPACINGS[n_targets][level], TARGET_REACH).centres
    spacing = SPACINGS[precise.n_scores - n_targets][level]
    log_weights, found = [], []
    for u in nodes:
        held = mean[:n_targets] + factor @ u
        inner = replace(precise, held=held)
        part = fit(inner, events, spacing)
        log_weights.append(part.log_evidence - 0.5 * held @ held)
        found.append((inner, part))
    weights = np.exp(np.array(log_weights) - logsumexp(log_weights))
    total, missed = np.zeros(len(rows)), np.zeros(len(rows))
    for weight, (inner, part) in zip(weights, found, strict=True):
        if weight > 1e-9:
            marginal, _, lost = entropies(inner, part, rows)
            total += weight * marginal
            missed += weight * lost
    return total, missed
