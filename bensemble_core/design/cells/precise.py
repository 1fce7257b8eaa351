"""The outcome that cells are for: normal in itself or in its logarithm, with mean and sd by scores of the prior."""

from collections.abc import Sequence
from dataclasses import dataclass

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
class Data:
    """Histories that are looked at together: the same designs, and what came out of them."""

    rows: Array  # [n, D]
    y: Array  # [B, n] coordinates of the outcomes


@dataclass(frozen=True, kw_only=True, eq=False)
class Precise:
    """c ~ N(mean(z, ξ), sd(z, ξ)²) for scores z ~ N(0, I), the first of which may be held, each history's at values of
    its own."""

    model: Model
    held: Array | None = None  # [B, k]

    @property
    def is_log(self) -> bool:
        """Whether it is the logarithm of the outcome that is normal."""
        return bool(self.model.outcomes[0].family is CONTINUOUS["lognormal"])

    @property
    def n_scores(self) -> int:
        """Of those that are free."""
        return self.model.prior.n_scores - (0 if self.held is None else self.held.shape[1])

    def located(self, z: Array, rows: Array) -> tuple[Array, Array]:
        """Mean and sd at scores [B, ..., K] and designs [J, D]: [J, B, ...] twice."""
        whole = z
        if self.held is not None:
            held = self.held.reshape(len(self.held), *(1,) * (z.ndim - 2), -1)
            whole = np.concatenate([np.broadcast_to(held, (*z.shape[:-1], held.shape[-1])), z], -1)
        flat = np.ascontiguousarray(whole.reshape(-1, whole.shape[-1]))
        theta, _ = self.model.prior.at_scores(torch.from_numpy(flat))
        (arguments,) = self.model.arguments(theta, torch.from_numpy(rows)[:, None, :])
        mean, sd = (arguments[name].expand(len(rows), len(flat)).numpy() for name in ("mean", "sd"))
        return mean.reshape(len(rows), *z.shape[:-1]), sd.reshape(len(rows), *z.shape[:-1])

    def observed(self, histories: Sequence[Sequence[Event]]) -> Data:
        """Of histories with the same designs."""
        rows = np.array([row for row, _ in histories[0]], dtype=np.float64)
        y = np.array([[outcome[0] for _, outcome in events] for events in histories], dtype=np.float64)
        return Data(rows=rows, y=np.log(y) if self.is_log else y)

    def outcome(self, coordinate: float) -> float:
        return float(np.exp(coordinate)) if self.is_log else coordinate
