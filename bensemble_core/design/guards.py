"""Signs of a wrong model or an overstretched approximation."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy import special
from torch import Tensor

from bensemble_core.design.belief.belief import Belief, PointBelief
from bensemble_core.design.belief.gaussian import GaussianBelief, linear_form
from bensemble_core.design.belief.points import Array
from bensemble_core.design.spec.model import Event, Model
from bensemble_core.design.spec.spaces import sobol

EVALUATIONS = 4_000_000  # of the probability of an outcome at a point
ROUNDING = 1e-9  # by which probabilities that are the same may differ
N_SMOOTHED = 2**14  # draws where densities are smoothed
N_BINS = 2048
FEW = 64  # different outcomes that are counted instead
TRACE = 1e-3  # of the draws at either end
UNLIKELY = 1e-3
AT_EDGE = 1e-6  # share of the posterior
UNRESOLVED = 1e-3  # error of the log evidence of a grid that is worth telling
THIN = 500  # effective particles below which estimates are shaky


@dataclass(frozen=True, kw_only=True)
class Guards:
    surprise: float  # −log p(y_n | y_1 … y_{n−1}) of the last outcome, in nats
    tail: float  # share of outcomes that would have been at least as surprising
    repeats: int  # how often the most used design has been run
    edge_mass: float  # posterior mass at the edge of the grid
    ess: float  # effective number of points
    warnings: tuple[str, ...] = ()


def look(model: Model, before: Belief, after: Belief, events: Sequence[Event], *, seed: int) -> Guards:
    """Figures and warnings after the last event."""
    surprise, tail = 0.0, 1.0
    if events:
        surprise = before.log_evidence - after.log_evidence
        tail = tail_probability(model, before, events[-1], seed=seed)
    warnings = []
    if tail < UNLIKELY:
        chance = f"{tail:.2g}" if tail > 0 else f"less than {2 / N_SMOOTHED:g}"
        warnings.append(f"an outcome as surprising as the last has a chance of {chance}; check it, or the model")
    if after.edge_mass > AT_EDGE:
        warnings.append(f"{after.edge_mass:.2g} of the posterior lies at the edge of the grid; widen the prior")
    if after.method == "grid" and after.error > UNRESOLVED:
        warnings.append(
            f"the posterior has finer detail than the grid can show: its log evidence may be off by {after.error:.2g}, "
            "and means and sds by as large a share of an sd; state fewer parameters, or a narrower prior"
        )
    if after.method == "particles" and after.ess < THIN:
        warnings.append(f"only {after.ess:.0f} particles are effective: estimates are rough")
    return Guards(
        surprise=surprise,
        tail=tail,
        repeats=max(Counter(row for row, _ in events).values(), default=0),
        edge_mass=after.edge_mass,
        ess=after.ess,
        warnings=tuple(warnings),
    )


def tail_probability(model: Model, belief: Belief, event: Event, *, seed: int = 0) -> float:
    """P(p(y') ≤ p(y)) for y' from the predictive of the belief at the design of the event: exact where that is normal
    or y one of few classes or counts, elsewhere by simulation; of several outcomes that of the oddest, allowing for
    their number."""
    if isinstance(belief, GaussianBelief):
        return _normal_tail(model, belief, event)
    assert isinstance(belief, PointBelief)
    design = torch.tensor(event[0], dtype=torch.float64)
    family = model.outcomes[0].family
    if len(model.outcomes) == 1 and family.is_discrete:
        (arguments,) = model.arguments(belief.points.values, design)
        n = family.count(arguments)
        if n * belief.points.n <= EVALUATIONS and event[1][0] < n:
            p = family.log_prob(arguments, torch.arange(n, dtype=torch.float64)[:, None]).exp()
            predictive = torch.where(belief.weights > 0, p, 0.0) @ belief.weights  # [Y]
            here = predictive[int(event[1][0])]
            return min(1.0, float(predictive[predictive <= here * (1 + ROUNDING)].sum()))
    columns = model.draw(*_evenly(model, belief, design, seed)).numpy()
    found = [_smooth_tail(columns[:, i], value) for i, value in enumerate(event[1])]
    return min(1.0, len(found) * min(found))


def _normal_tail(model: Model, belief: GaussianBelief, event: Event) -> float:
    """P(χ² ≥ the squared distance of y from its mean)."""
    row, outcome = event
    offset, slopes, sd = linear_form(model, torch.tensor([row], dtype=torch.float64))
    scaled = slopes[0] / sd[0][:, None]
    away = (torch.tensor(outcome, dtype=torch.float64) - offset[0] - slopes[0] @ belief.centre) / sd[0]
    spread = torch.eye(len(away), dtype=torch.float64) + scaled @ belief.spread @ scaled.mT
    distance = float(away @ torch.linalg.solve(spread, away))
    return float(special.chdtrc(len(away), distance))


def _evenly(model: Model, belief: PointBelief, design: Tensor, seed: int) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """Parameters, the design, and uniforms for the outcomes: draws, a single parameter's even with those."""
    u = sobol(N_SMOOTHED, 1 + len(model.outcomes), seed)
    if belief.method != "grid" or len(belief.names) > 1 or belief.points.prior is None:
        return belief.samples(N_SMOOTHED, seed), design, u[:, 1:]
    (name,) = belief.names
    return {name: torch.from_numpy(belief.distribution(name).quantile(u[:, 0].numpy()))}, design, u[:, 1:]


def _smooth_tail(drawn: Array, y: float) -> float:
    """The share of draws [n] whose density, by a normal kernel, is at most that of y; of few values, by how often each
    comes. Beyond all but a trace of the draws, by how many lie further out."""
    from scipy.ndimage import gaussian_filter1d  # slow to import, and rarely needed

    values, counts = np.unique(drawn, return_counts=True)
    n = len(drawn)
    if len(values) <= FEW:
        here = int(counts[values == y].sum())
        return float(counts[counts <= here].sum() / n)
    low, first, third, high = np.quantile(drawn, [TRACE, 0.25, 0.75, 1 - TRACE])
    if not low <= y <= high:
        return float(2 * (drawn <= y).mean() if y < low else 2 * (drawn >= y).mean())
    width = max(0.9 * (third - first) / 1.34 * n**-0.2, (high - low) / N_BINS)
    if not width > 0:
        return 1.0
    edges = np.linspace(low - 4 * width, high + 4 * width, N_BINS + 1)
    step = edges[1] - edges[0]
    smooth = gaussian_filter1d(np.histogram(drawn, edges)[0].astype(np.float64), width / step, mode="constant")
    centres = 0.5 * (edges[1:] + edges[:-1])
    density = np.interp(drawn, centres, smooth, left=0.0, right=0.0)
    return float((density <= np.interp(y, centres, smooth)).mean())
