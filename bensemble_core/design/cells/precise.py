"""The outcomes that cells are for: normal in themselves or their logarithm, with mean and sd by scores of the prior."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from bensemble_core.design.spec.continuous import CONTINUOUS
from bensemble_core.design.spec.model import Event, Model

Array = npt.NDArray[np.float64]
MOST_SCORES = 3
LARGEST = 700.0  # logarithm of an outcome that floating point holds


def uses_cells(model: Model) -> bool:
    """Whether the outcomes are normal, in themselves or their logarithm, of one to three real parameters."""
    is_normal = all(variable.family in (CONTINUOUS["normal"], CONTINUOUS["lognormal"]) for variable in model.outcomes)
    return is_normal and model.utility is None and not model.prior.listed and 1 <= model.prior.n_scores <= MOST_SCORES


@dataclass(frozen=True, kw_only=True, eq=False)
class Data:
    """Histories that are looked at together: the same designs, and what came out of them."""

    rows: Array  # [n, D]
    y: Array  # [B, n, O] coordinates of the outcomes


@dataclass(frozen=True, kw_only=True, eq=False)
class Precise:
    """c_o ~ N(mean_o(z, ξ), sd_o(z, ξ)²) for scores z ~ N(0, I), the first of which may be held, each history's at
    values of its own."""

    model: Model
    held: Array | None = None  # [B, k]

    @property
    def is_log(self) -> npt.NDArray[np.bool_]:
        """Of which outcomes it is the logarithm that is normal: [O]."""
        return np.array([variable.family is CONTINUOUS["lognormal"] for variable in self.model.outcomes])

    @property
    def n_scores(self) -> int:
        """Of those that are free."""
        return self.model.prior.n_scores - (0 if self.held is None else self.held.shape[1])

    def located(self, z: Array, rows: Array) -> tuple[Array, Array]:
        """Mean and sd at scores [B, ..., K] and designs [J, D]: [J, B, ..., O] twice."""
        whole = z
        if self.held is not None:
            held = self.held.reshape(len(self.held), *(1,) * (z.ndim - 2), -1)
            whole = np.concatenate([np.broadcast_to(held, (*z.shape[:-1], held.shape[-1])), z], -1)
        flat = np.ascontiguousarray(whole.reshape(-1, whole.shape[-1]))
        theta, _ = self.model.prior.at_scores(torch.from_numpy(flat))
        found = self.model.arguments(theta, torch.from_numpy(rows)[:, None, :])
        shape = (len(rows), *z.shape[:-1], len(found))
        mean, sd = (
            torch.stack([arguments[name].expand(len(rows), len(flat)) for arguments in found], -1)
            .numpy()
            .reshape(shape)
            for name in ("mean", "sd")
        )
        return mean, sd

    def observed(self, histories: Sequence[Sequence[Event]]) -> Data:
        """Of histories with the same designs."""
        rows = np.array([row for row, _ in histories[0]], dtype=np.float64)
        y = np.array([[outcome for _, outcome in events] for events in histories], dtype=np.float64)
        if len(rows):
            y[..., self.is_log] = np.log(y[..., self.is_log])
        return Data(rows=rows, y=y)

    def outcome(self, coordinates: Array) -> tuple[float, ...]:
        """From coordinates [O]."""
        held_in = np.clip(coordinates, -LARGEST, LARGEST)
        return tuple(np.where(self.is_log, np.exp(held_in), coordinates).tolist())
