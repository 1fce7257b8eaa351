"""What an outcome has taught about the targets φ ⊂ θ: how much entropy it removed, and how far it moved the belief.

    KL(after ‖ before) = Σ_φ A log(A / B)        A, B: p(φ | observations) with and without the last one
    H before − H after = KL + Σ_φ (A − B) log b(φ),  b the density of B in the units of φ

Each averages to the EIG about the targets over p(y | before). Both are read from the points of the belief before, on
which nuisances are averaged over; where all parameters are targets, the belief after has points of its own for it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy import special

from bensemble_core.design.belief.belief import Belief, PointBelief
from bensemble_core.design.belief.convergence import remaining
from bensemble_core.design.belief.follow import SIZES
from bensemble_core.design.belief.gaussian import GaussianBelief
from bensemble_core.design.belief.infer import infer
from bensemble_core.design.belief.memory import Memory
from bensemble_core.design.belief.neighbours import neighbourhoods
from bensemble_core.design.belief.points import Array, Points
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
    model: Model, before: Belief, after: Belief, earlier: Sequence[Event], event: Event, memory: Memory, *, seed: int
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
        row = torch.tensor([event[0]], dtype=torch.float64)
        is_thin = before.method == "particles" or bool(too_coarse(model, before, row, far=CLOSE)[0])
        if uses_cells(model) and is_thin:
            drop, kl = _of_cells(model, earlier, event, memory)
        elif before.points.groups is None:
            grouped = neighbourhoods(model.prior, before)
            column = memory.column(model, grouped.points, event)
            drop, kl = _of_targets(model, grouped.points, grouped.mass, column)
        else:
            drop, kl = _on_grid(model, before, earlier, event, memory, seed)
    return Information(entropy_drop=drop, kl=kl, surprise=surprise)


def _gaussian(before: GaussianBelief, after: GaussianBelief, targets: Sequence[str]) -> tuple[float, float]:
    kept = [i for i, name in enumerate(before.names) if name in targets]
    wide, narrow = (belief.spread[kept][:, kept] for belief in (before, after))
    drop = 0.5 * float(torch.logdet(wide) - torch.logdet(narrow))
    move = (after.centre - before.centre)[kept, None]
    rest = torch.linalg.solve(wide, narrow + move @ move.mT)
    return drop, drop + 0.5 * (float(rest.trace()) - len(kept))


def _of_cells(model: Model, earlier: Sequence[Event], event: Event, memory: Memory) -> tuple[float, float]:
    """Both numbers from draws of the targets by the cells before and after the outcome, whose densities are known."""
    precise, n = Precise(model=model), model.prior.n_target_scores
    before, after = (
        fitted(precise, events, SPACINGS[precise.n_scores][-1], memory)[0].marginal(n)
        for events in (tuple(earlier), (*earlier, event))
    )
    z, z_before = after.draws(N_DRAWS, 0), before.draws(N_DRAWS, 0)
    log_after, log_before = after.log_density(z).mean(), before.log_density(z_before).mean()
    whole = [np.concatenate([each, np.zeros((len(each), precise.n_scores - n))], 1) for each in (z, z_before)]
    scores = [torch.from_numpy(each) for each in whole]
    stretch = [_log_density_of_scores(model.prior, each, model.prior.at_scores(each)[0]).mean() for each in scores]
    return float(log_after - log_before + stretch[0] - stretch[1]), float(log_after - before.log_density(z).mean())


def _on_grid(
    model: Model, before: PointBelief, earlier: Sequence[Event], event: Event, memory: Memory, seed: int
) -> tuple[float, float]:
    """On ever finer grids until every second and every fourth point tell the same."""
    drop = kl = 0.0
    for level in range(len(SIZES.get(model.prior.n_scores, ())) or 1):
        found = before if not level else infer(model, earlier, memory, seed=seed, level=level)
        assert isinstance(found, PointBelief)
        column = memory.column(model, found.points, event)
        drop, kl = _of_targets(model, found.points, found.mass, column)
        half, quarter = found.points.half, found.points.quarter
        if half is None or quarter is None:
            break
        fewer = [_of_targets(model, found.points, found.mass * some.numpy(), column)[1] for some in (half, quarter)]
        if float(remaining(*(np.asarray(each) for each in (kl, *fewer)))) <= TOLERANCE:
            break
    return drop, kl


def _of_targets(model: Model, points: Points, mass: Array, log_likelihood: Array) -> tuple[float, float]:
    """From weights of the points before the outcome [P], and its log-likelihood at them [P]."""
    assert points.groups is not None
    mass = mass / mass.sum()
    seen = np.where(mass > 0, log_likelihood, -np.inf)
    after = mass * np.exp(seen - seen.max())
    after /= after.sum()
    groups = points.groups.numpy()
    a, b = (np.bincount(groups, weights, points.n_groups).astype(np.float64) for weights in (after, mass))
    kl = float(special.rel_entr(a, b).sum())
    return kl + float(np.where(mass > 0, after - mass, 0.0) @ _log_density(model.prior, points, mass, b)), kl


def _log_density(prior: JointPrior, points: Points, mass: Array, by_group: Array) -> Array:
    """log b(φ) at each point, but for a constant: [P]. On a grid a group of equal targets has a cell of its own; other
    points have none, and their targets are taken to be normal in their scores."""
    n = prior.n_target_scores
    z = points.scores[:, :n]
    if points.frame is None and n:
        w = torch.from_numpy(mass)
        centred = z - w @ z
        spread = (centred * w[:, None]).mT @ centred
        log_b = -0.5 * (centred @ torch.linalg.pinv(spread) * centred).sum(1).numpy()
    else:
        log_b = np.log(np.maximum(by_group, TINY))[points.groups.numpy()]  # type: ignore[union-attr]
    return np.where(mass > 0, log_b + _log_density_of_scores(prior, z, points.values), 0.0)


def _log_density_of_scores(prior: JointPrior, z: torch.Tensor, values: Mapping[str, torch.Tensor]) -> Array:
    """log |dz / dφ| at scores of the targets [n, k] and their values, but for a constant: [n]."""
    found, start = torch.zeros(len(z), dtype=torch.float64), 0
    for block in prior.continuous:
        if isinstance(block, Scalar) and block.name in prior.targets:
            found = found + block.prior.log_density(values[block.name]) - log_normal_density(z[:, start])
        start += block.n_scores
    return np.asarray(found.numpy())
