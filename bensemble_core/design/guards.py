"""Signs of a wrong model or an overstretched approximation."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bensemble_core.design.belief import Belief, PointBelief
from bensemble_core.design.model import Event, Model
from bensemble_core.randomness import generator

N_DRAWS = 1000
CELLS = 4_000_000
UNLIKELY = 1e-3
UNRESOLVED = 1e-3  # error of the log evidence of a grid that is worth telling
THIN = 500  # effective particles below which estimates are shaky


@dataclass(frozen=True, kw_only=True)
class Guards:
    surprise: float  # −log p(y_n | y_1 … y_{n−1}) of the last outcome, in nats
    tail: float  # share of outcomes that would have been at least as surprising; by simulation
    repeats: int  # how often the most used design has been run
    edge_mass: float  # posterior mass at the edge of the grid
    ess: float  # effective number of points
    warnings: tuple[str, ...] = ()


def look(model: Model, before: Belief, after: Belief, events: Sequence[Event], *, seed: int) -> Guards:
    surprise, tail = 0.0, 1.0
    if events:
        surprise = before.log_evidence - after.log_evidence
        tail = tail_probability(model, before, events[-1], seed=seed)
    repeats = max((sum(row == other for other, _ in events) for row, _ in events), default=0)
    warnings = []
    if tail < UNLIKELY:
        warnings.append(f"an outcome as surprising as the last has a chance of {tail:.2g}; check it, or the model")
    if after.edge_mass > 1e-6:
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
        repeats=repeats,
        edge_mass=after.edge_mass,
        ess=after.ess,
        warnings=tuple(warnings),
    )


def tail_probability(model: Model, belief: Belief, event: Event, *, seed: int = 0) -> float:
    """P(p(y') ≤ p(y)) for y' from the predictive of the belief at the design of the event, by N_DRAWS simulations."""
    if isinstance(belief, PointBelief):
        theta, log_weights = belief.points.values, belief.weights.log()
        chosen = belief.draw(N_DRAWS, seed)
        drawn = {name: column[chosen] for name, column in theta.items()}
    else:
        theta = drawn = belief.samples(N_DRAWS, seed)
        log_weights = torch.full((N_DRAWS,), -math.log(N_DRAWS), dtype=torch.float64)
    row, outcome = event
    design = torch.tensor(row, dtype=torch.float64)
    u = torch.rand(N_DRAWS, len(model.outcomes), generator=generator(seed, 7), dtype=torch.float64)
    y = torch.cat([torch.tensor([outcome], dtype=torch.float64), model.draw(drawn, design, u)])  # [1 + n, O]
    arguments = model.arguments(theta, design)
    parts: list[Tensor] = []
    for some in y.split(max(1, CELLS // len(log_weights))):  # type: ignore[no-untyped-call]
        terms = model.log_prob(arguments, some[:, None]) + log_weights
        parts.append(torch.logsumexp(terms.nan_to_num(nan=-math.inf), 1))
    log_p = torch.cat(parts)
    return float((log_p[1:] <= log_p[0] + 1e-9).double().mean())
