"""A picture of a model before anything is measured: what comes out along a design, for parameters that the prior finds
small, middling and large."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bensemble_core.design.experiment import Experiment
from bensemble_core.design.spec.model import Variable as Outcome
from bensemble_core.design.spec.model import readable
from bensemble_core.design.spec.spread import axis
from bensemble_core.threads import one_thread

POINTS = 61
QUANTILES = (0.1, 0.5, 0.9)


@dataclass(frozen=True, kw_only=True)
class Preview:
    """Curves of one outcome over one design variable, the other designs at their middle."""

    design: str
    values: tuple[Any, ...]  # [J] of the design, labels where it has some
    is_log: bool
    outcome: str
    meaning: str  # what the curves are
    labels: tuple[str, ...]  # the parameters of each curve
    curves: Tensor  # [3, J]


@one_thread()
def preview(experiment: Experiment) -> Preview:
    """The first outcome along the first design with more than two values, for all parameters at their .1, .5 and .9
    quantiles of the prior."""
    model = experiment.spec.model
    variables = model.space.variables
    along = next((i for i, variable in enumerate(variables) if variable.size > 2), 0)
    grid = axis(variables[along], POINTS)
    rows = model.space.from_unit(torch.full((len(grid), len(variables)), 0.5, dtype=torch.float64))
    rows[:, along] = grid
    levels = torch.tensor(QUANTILES, dtype=torch.float64)[:, None]
    theta, _ = model.prior.at(*model.prior.draw(levels.repeat(1, model.prior.n_scores + len(model.prior.listed))))
    outcome = model.outcomes[0]
    arguments = model.arguments({name: value[:, None] for name, value in theta.items()}, rows)[0]
    meaning, found = _expected(outcome, arguments)
    return Preview(
        design=variables[along].name,
        values=tuple(variables[along].decode(value) for value in grid.tolist()),
        is_log=variables[along].is_log,
        outcome=outcome.name,
        meaning=meaning,
        labels=tuple(readable({name: float(theta[name][i]) for name in model.prior.names}) for i in range(len(levels))),
        curves=found.expand(len(levels), len(grid)),
    )


def _expected(outcome: Outcome, arguments: dict[str, Tensor]) -> tuple[str, Tensor]:
    """Of two outcomes the probability of the second, of classes without an order that of the first; else the mean."""
    if outcome.n_classes == 2 or "logits" in arguments or "probs" in arguments:
        y = 1.0 if outcome.n_classes == 2 else 0.0
        found = outcome.family.log_prob(arguments, torch.tensor(y, dtype=torch.float64)).exp()
        return f"probability of {outcome.name} = {outcome.decode(y)}", found
    return f"mean of {outcome.name}", outcome.family.mean(arguments)
