"""EIG of a precise outcome from cells at three spacings, with an error that is what they disagree by.

    EIG(ξ) = H[y] − E H[y | φ]

where all parameters are targets φ the last term is the noise's own entropy; otherwise the nuisances are fitted anew at
nodes of the targets.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from bensemble_core.design.cells.fit import fit
from bensemble_core.design.cells.lattice import lattice
from bensemble_core.design.cells.mixture import Mixture, entropies
from bensemble_core.design.cells.precise import Precise
from bensemble_core.design.spec.model import Event, Model

if TYPE_CHECKING:
    from bensemble_core.design.belief.memory import Memory

Array = npt.NDArray[np.float64]
SPACINGS = {1: (0.04, 0.028, 0.02), 2: (0.56, 0.4, 0.28), 3: (1.0, 0.8)}
NUISANCE_SPACINGS = {1: (0.25, 0.18, 0.12), 2: (0.56, 0.4, 0.28)}  # averages over targets need less
TARGET_SPACINGS = {1: (0.4, 0.28, 0.2), 2: (0.8, 0.6, 0.5)}  # of nodes of the targets, by how many they are
TARGET_REACH = 4.2
NEGLIGIBLE = 1e-9  # weight of a node
N_DRAWS = 2**7  # of several outcomes at a node
FLOOR = 5e-5  # of the error, in nats
BENT = 0.3  # nats for cells that are bent, times their share


@dataclass(frozen=True, kw_only=True, eq=False)
class Look:
    """EIG of designs from cells of one spacing, and what may be wrong with it."""

    eig: Array  # [J]
    missed: Array  # [J] by the integral over y, in nats
    mixture: Mixture


def fitted(precise: Precise, events: Sequence[Event], spacing: float, memory: "Memory") -> list[Mixture]:
    """The posterior's cells, for each of the values that targets are held at; kept, as every design is looked at from
    the same."""
    held = precise.held
    key = ("cells", tuple(events), None if held is None else held.tobytes(), spacing)
    n = 1 if held is None else len(held)
    return memory.get(
        key,
        lambda: fit(precise, precise.observed([events] * n), spacing),
        lambda made: sum(each.sigmas.size + each.factors.size for each in made),
    )


def look(model: Model, events: Sequence[Event], rows: Array, level: int, memory: "Memory") -> Look:
    """Designs [J, D] at one of the spacings, the widest first."""
    precise = Precise(model=model)
    (mixture,) = fitted(precise, events, SPACINGS[precise.n_scores][level], memory)
    marginal, noise, missed = entropies(precise, mixture, rows)
    if model.prior.nuisances:
        noise, missed_given = _given_targets(precise, events, rows, mixture, level, memory)
        missed = missed + missed_given
    return Look(eig=marginal - noise, missed=missed, mixture=mixture)


def cell_gains(model: Model, events: Sequence[Event], rows: Array, memory: "Memory") -> tuple[Array, Array]:
    """EIG of designs [J, D] about the targets, and how far each may be off: [J] twice."""
    looks = [look(model, events, rows, level, memory) for level in range(len(SPACINGS[model.prior.n_scores]))]
    changes = [np.abs(later.eig - earlier.eig) for earlier, later in itertools.pairwise(looks)]
    change = np.maximum(changes[-1], changes[0] / 3) if len(changes) > 1 else changes[0]
    evidence = [each.mixture.log_evidence for each in looks]
    bent = max(each.mixture.bent for each in looks)
    missed = np.max([each.missed for each in looks], 0)
    se = change + 0.3 * abs(evidence[-1] - evidence[-2]) + BENT * bent + missed + FLOOR
    return np.maximum(looks[-1].eig, 0.0), se


def _given_targets(
    precise: Precise, events: Sequence[Event], rows: Array, mixture: Mixture, level: int, memory: "Memory"
) -> tuple[Array, Array]:
    """E_φ H[y | φ] at designs [J, D], and what was missed: nuisances are fitted at nodes of the targets."""
    n_targets = precise.model.prior.n_target_scores
    mean, covariance = mixture.moments()
    factor = np.linalg.cholesky(covariance)[:n_targets, :n_targets]
    nodes = lattice(n_targets, TARGET_SPACINGS[n_targets][level], TARGET_REACH).centres
    held = mean[:n_targets] + nodes @ factor.T
    spacing = NUISANCE_SPACINGS[precise.n_scores - n_targets][level]
    parts = fitted(replace(precise, held=held), events, spacing, memory)
    log_weights = np.array([part.log_evidence for part in parts]) - 0.5 * (held**2).sum(1)
    weights = np.exp(log_weights - logsumexp(log_weights))
    total, missed = np.zeros(len(rows)), np.zeros(len(rows))
    for weight, target, part in zip(weights, held, parts, strict=True):
        if weight > NEGLIGIBLE:
            marginal, _, lost = entropies(replace(precise, held=target[None]), part, rows, n_draws=N_DRAWS)
            total += weight * marginal
            missed += weight * lost
    return total, missed
