"""What an outcome has taught about the targets φ ⊂ θ: how much entropy it removed, and how far it moved the belief.

    KL(after ‖ before) = Σ_φ A log(A / B)        A, B: p(φ | observations) with and without the last one
    H before − H after = KL + Σ_φ (A − B) log b(φ),  b the density of B in the units of φ

Each averages to the EIG about the targets over p(y | before). Both are read from the points of the belief before, on
which nuisances are summed over; where all parameters are targets, the belief after has points of its own for it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy import special

from bensemble_core.design.belief.belief import Belief, PointBelief, normalised
from bensemble_core.design.belief.convergence import remaining
from bensemble_core.design.belief.gaussian import GaussianBelief
from bensemble_core.design.belief.infer import grid_belief, next_frame
from bensemble_core.design.belief.memory import Memory
from bensemble_core.design.belief.nuisances import MEMBERS, aligned
from bensemble_core.design.belief.particles import particle_belief
from bensemble_core.design.belief.points import Array, Points, fits
from bensemble_core.design.belief.sampled import are_enough
from bensemble_core.design.cells.gains import SPACINGS, fitted
from bensemble_core.design.cells.precise import Precise, uses_cells
from bensemble_core.design.information.coarseness import CLOSE, too_coarse
from bensemble_core.design.spec.blocks import JointPrior, Scalar
from bensemble_core.design.spec.model import Event, Model
from bensemble_core.design.spec.priors import log_normal_density

TINY = 1e-300
N_DRAWS = 2**13
TOLERANCE = 1e-6  # nats, beyond which the belief before is looked at on a finer grid


@dataclass(frozen=True, kw_only=True)
class Information:
    """What the last observation taught about the targets, in its two meanings. Each averages to the EIG over the
    outcomes.

    `entropy_drop` is H before less H after, and can be negative; `kl` is KL(after ‖ before), and cannot.
    """

    entropy_drop: float
    kl: float
    surprise: float  # −log p(y_n | y_1 … y_{n−1})


def information(
    model: Model, before: Belief, after: Belief, earlier: Sequence[Event], event: Event, memory: Memory
) -> Information:
    """What an event taught, from the beliefs without and with it and the events before."""
    surprise = before.log_evidence - after.log_evidence
    if isinstance(before, GaussianBelief) and isinstance(after, GaussianBelief):
        drop, kl = _gaussian(before, after, model.prior.targets)
    elif not model.prior.nuisances:
        assert isinstance(after, PointBelief)
        column = memory.column(model, after.points, event)
        drop = before.entropy - after.entropy
        kl = float(np.where(after.mass > 0, column, 0.0) @ after.mass) + surprise
    else:
        assert isinstance(before, PointBelief)
        if _is_precise(model, before, event):
            drop, kl = _of_cells(model, earlier, event, memory)
        else:
            drop, kl = _of_targets(model, before, earlier, event, memory)
    return Information(entropy_drop=drop, kl=kl, surprise=surprise)


def _gaussian(before: GaussianBelief, after: GaussianBelief, targets: Sequence[str]) -> tuple[float, float]:
    kept = [i for i, name in enumerate(before.names) if name in targets]
    wide, narrow = (belief.spread[kept][:, kept] for belief in (before, after))
    drop = 0.5 * float(torch.logdet(wide) - torch.logdet(narrow))
    move = (after.centre - before.centre)[kept, None]
    rest = torch.linalg.solve(wide, narrow + move @ move.mT)
    return drop, drop + 0.5 * (float(rest.trace()) - len(kept))


def _is_precise(model: Model, before: PointBelief, event: Event) -> bool:
    """Whether the outcome was too precise for the points of the belief before it, and cells apply."""
    if not uses_cells(model):
        return False
    rows = torch.tensor([event[0]], dtype=torch.float64)
    return before.points.frame is None or bool(too_coarse(model, before, rows, far=CLOSE)[0])


def _of_cells(model: Model, earlier: Sequence[Event], event: Event, memory: Memory) -> tuple[float, float]:
    """Both numbers from draws of the targets by the cells before and after the outcome, whose densities are known."""
    precise, n = Precise(model=model), model.prior.n_target_scores
    before, after = (
        fitted(precise, events, SPACINGS[precise.n_scores][-1], memory)[0].marginal(n)
        for events in (tuple(earlier), (*earlier, event))
    )
    z, z_before = after.draws(N_DRAWS, 0), before.draws(N_DRAWS, 0)
    log_after, log_before = after.log_density(z).mean(), before.log_density(z_before).mean()
    stretch = _log_stretch(model.prior, z).mean() - _log_stretch(model.prior, z_before).mean()
    return float(log_after - log_before - stretch), float(log_after - before.log_density(z).mean())


def _log_stretch(prior: JointPrior, z: Array) -> Array:
    """log |dφ / dz| at scores of the targets [n, K], but for a constant: [n]."""
    whole = np.concatenate([z, np.zeros((len(z), prior.n_scores - z.shape[1]))], 1)
    values, _ = prior.at_scores(torch.from_numpy(whole))
    found, start = np.zeros(len(z)), 0
    for block in prior.continuous:
        if isinstance(block, Scalar) and block.name in prior.targets:
            found -= block.prior.log_density(values[block.name]).numpy() + 0.5 * z[:, start] ** 2
        start += block.n_scores
    return found


def _of_targets(
    model: Model, before: PointBelief, earlier: Sequence[Event], event: Event, memory: Memory
) -> tuple[float, float]:
    """Both numbers; on a grid on ever finer ones until every second and every fourth point tell the same."""
    if before.method == "particles":
        points = before.points
        if points.is_grouped:
            column = memory.column(model, points, event)
            after, _ = normalised(np.log(np.maximum(before.mass, TINY)) + column)
            if are_enough(points, after):
                return _gains(model, points, before.mass, column)
            before = particle_belief(model, earlier, memory)
        points = aligned(model.prior, before, n_members=MEMBERS[1] * math.sqrt(before.points.n))
        return _gains(model, points, before.mass, memory.column(model, points, event))
    level = 0
    while True:
        column = memory.column(model, before.points, event)
        drop, kl = _gains(model, before.points, before.mass, column)
        if before.points.strides is None:
            return drop, kl
        fewer = [_gains(model, before.points, _only(before.mass, some), column)[1] for some in before.points.strides]
        error = remaining(*(np.asarray(value) for value in (kl, *fewer)))
        if float(error) <= TOLERANCE or not fits(model.prior, next_frame(before)):
            return drop, kl
        level += 1
        before = grid_belief(model, earlier, memory, level=level)


def _only(mass: Array, some: npt.NDArray[np.int64]) -> Array:
    found = np.zeros_like(mass)
    found[some] = mass[some]
    return found / (found.sum() or 1.0)


def _gains(model: Model, points: Points, mass: Array, log_likelihood: Array) -> tuple[float, float]:
    """From weights of the points before the outcome [P], and its log-likelihood at them [P]."""
    assert points.groups is not None
    seen = np.where(mass > 0, log_likelihood, -np.inf)
    after = mass * np.exp(seen - seen.max())
    after /= after.sum()
    groups = points.groups.numpy()
    a, b = (np.bincount(groups, weights, points.n_groups).astype(np.float64) for weights in (after, mass))
    kl = float(special.rel_entr(a, b).sum())
    change = np.where(mass > 0, after - mass, 0.0)
    return kl + float(change @ _log_density(model.prior, points, mass, b)), kl


def _log_density(prior: JointPrior, points: Points, mass: Array, by_group: Array) -> Array:
    """log b(φ) at each point, but for a constant: [P].

    On a grid a group of equal targets has a cell of its own, whose size in the units of φ is p(z) / p(φ) of the prior.
    Particles have none: their targets are taken to be normal in their scores.
    """
    n = prior.n_target_scores
    z = points.scores[:, :n]
    if points.frame is None and n:
        w = torch.from_numpy(mass)
        centred = z - w @ z
        spread = (centred * w[:, None]).mT @ centred
        log_b = -0.5 * (centred @ torch.linalg.pinv(spread) * centred).sum(1)
    else:
        log_b = torch.from_numpy(np.log(np.maximum(by_group, TINY)))[points.groups]
    start = 0
    for block in prior.continuous:
        if isinstance(block, Scalar) and block.name in prior.targets:
            log_b = log_b + block.prior.log_density(points.values[block.name]) - log_normal_density(z[:, start])
        start += block.n_scores
    return np.where(mass > 0, log_b.numpy(), 0.0)
