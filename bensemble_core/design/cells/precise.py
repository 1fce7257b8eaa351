"""The outcome that cells are for: normal in itself or in its logarithm, with mean and sd by scores of the prior."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from bensemble_core.design.spec.continuous import CONTINUOUS
from bensemble_core.design.spec.model import Event, Model

Array = npt.NDArray[np.float64]
MOST_SCORES = 3


def uses_cells(model: Model) -> bool:
    """Whether the outcome is one that is normal, in itself or its logarithm, of one to three real parameters."""
    families = (CONTINUOUS["normal"], CONTINUOUS["lognormal"])
    is_normal = len(model.outcomes) == 1 and model.outcomes[0].family in families
    return is_normal and model.utility is None and not model.prior.listed and 1 <= model.prior.n_scores <= MOST_SCORES


@dataclass(frozen=True, kw_only=True, eq=False)
class Precise:
    """c ~ N(mean(z, ξ), sd(z, ξ)²) for scores z ~ N(0, I), the first of which may be held at given values."""

    model: Model
    held: Array = field(default_factory=lambda: np.empty(0))  # [k]

    @property
    def n_scores(self) -> int:
        """Of those that are free."""
        return self.model.prior.n_scores - len(self.held)

    def located(self, z: Array, rows: Array) -> tuple[Array, Array]:
        """Mean and sd at scores [..., K] and designs [J, D]: [J, ...] twice."""
        flat = z.reshape(-1, self.n_scores)
        whole = np.concatenate([np.broadcast_to(self.held, (len(flat), len(self.held))), flat], 1)
        theta, _ = self.model.prior.at_scores(torch.from_numpy(np.ascontiguousarray(whole)))
        (arguments,) = self.model.arguments(theta, torch.from_numpy(rows)[:, None, :])
        shape = (len(rows), len(flat))
        mean, sd = (arguments[name].expand(shape).numpy() for name in ("mean", "sd"))
        return mean.reshape(len(rows), *z.shape[:-1]), sd.reshape(len(rows), *z.shape[:-1])

    def observed(self, events: Sequence[Event]) -> tuple[Array, Array]:
        """Designs [n, D] and coordinates [n] of outcomes."""
        is_log = self.model.outcomes[0].family is CONTINUOUS["lognormal"]
        rows = np.array([row for row, _ in events], dtype=np.float64).reshape(len(events), -1)
        y = np.array([outcome[0] for _, outcome in events], dtype=np.float64)
        return rows, np.log(y) if is_log else y

    def outcome(self, coordinate: float) -> float:
        is_log = self.model.outcomes[0].family is CONTINUOUS["lognormal"]
        return float(np.exp(coordinate)) if is_log else coordinate
