"""Columns that float32 does not keep: next to a timestamp of 1.7e9 seconds its numbers lie 128 seconds apart."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from app.storage.errors import BadData

LOST = 0.05  # of what a column spans: values moved by more are some ten different ones at most


@dataclass(frozen=True, kw_only=True)
class Rounding:
    """What each column of some rows spans, and the most that a value was moved by becoming float32.

    Where that is far too little to matter `moved` is 0, and the bounds are those of the float32.
    """

    lowest: NDArray[np.float64]  # [width]
    highest: NDArray[np.float64]  # [width]
    moved: NDArray[np.float64]  # [width]
    names: Sequence[str] | None

    @classmethod
    def of(cls, values: NDArray[Any], features: NDArray[np.float32], names: Sequence[str] | None) -> Self | None:
        """None of a type whose values float32 holds, and of no rows."""
        if np.can_cast(values.dtype, np.float32) or not len(values):
            return None
        rounded = features.min(0), features.max(0)
        lowest, highest = (bound.astype(np.float64) for bound in rounded)
        step = np.spacing(np.maximum(*map(np.abs, rounded)))
        near = step > LOST * (highest - lowest)  # few columns: the others cost two passes over float32 alone
        exact, moved = values[:, near], np.zeros_like(lowest)
        lowest[near], highest[near] = exact.min(0), exact.max(0)
        moved[near] = np.abs(exact - features[:, near].astype(np.float64)).max(0)
        return cls(lowest=lowest, highest=highest, moved=moved, names=names)

    def joined(self, other: "Rounding") -> "Rounding":
        return Rounding(
            lowest=np.minimum(self.lowest, other.lowest),
            highest=np.maximum(self.highest, other.highest),
            moved=np.maximum(self.moved, other.moved),
            names=self.names,
        )

    def refuse_lost(self) -> None:
        lost = np.flatnonzero(self.moved > LOST * (self.highest - self.lowest))
        lost = lost[self.highest[lost] > self.lowest[lost]]  # a constant is none the worse
        if len(lost):
            column = int(lost[0])
            name = self.names[column] if self.names is not None else str(column)
            more = f" (and {len(lost) - 1:,} more features)" if len(lost) > 1 else ""
            raise BadData(
                f"Feature {name!r}{more} runs from {self.lowest[column]:.17g} to {self.highest[column]:.17g}. Rows are "
                f"kept as float32, which moves its values by up to {self.moved[column]:.3g}: they would no longer "
                "differ. Subtract its mean, the same in every pool and prediction, and send the rows again.",
                column=name,
            )
