"""Everything the library raises on purpose. A message says what was expected, what came, and what to do.

BensembleError
├── InvalidOption(ValueError)   a hyper-parameter is unknown, of the wrong type or out of bounds
├── InvalidData(ValueError)     rows, labels or tensors that do not fit: shape, range, NaN
│   └── InvalidSnapshot         what was to be resumed is of another training, or not whole
├── InvalidModel(ValueError)    a network that cannot be built, or does not fit the data or the likelihood
├── InvalidSpec(ValueError)     an experiment that was stated wrongly; carries a JSON pointer to the place
├── InvalidFile(ValueError)     not one of our files, truncated, or from a newer format
├── NotFinite(ArithmeticError)  training or scoring gave a NaN or an infinity
└── Cancelled                   raised by a `report` that wants the work stopped; nothing is left behind
"""

from functools import partial
from typing import Any


class BensembleError(Exception):
    """The base class of every error that the library raises on purpose."""


class InvalidOption(BensembleError, ValueError):
    """A hyper-parameter is unknown, of the wrong type or out of bounds."""


class InvalidData(BensembleError, ValueError):
    """Rows, labels or tensors that do not fit."""


class InvalidSnapshot(InvalidData):
    """A snapshot of another training, or one that lacks tensors."""


class InvalidModel(BensembleError, ValueError):
    """A network that cannot be built, or does not fit the data or the likelihood."""


class InvalidSpec(BensembleError, ValueError):
    """An experiment that was stated wrongly: `pointer` (RFC 6901) and, within an expression, `column` say where."""

    def __init__(self, message: str, *, pointer: str = "", column: int | None = None) -> None:
        place = pointer or "/"
        super().__init__(f"{place}: {message}" if column is None else f"{place}, column {column}: {message}")
        self.message, self.pointer, self.column = message, pointer, column

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuilt from its parts in another process, where the default would hand the whole text over as message."""
        return partial(type(self), pointer=self.pointer, column=self.column), (self.message,)


class InvalidFile(BensembleError, ValueError):
    """Not one of our files, truncated, or from a newer format."""


class NotFinite(BensembleError, ArithmeticError):
    """Training or scoring gave a NaN or an infinity."""


class Cancelled(BensembleError):
    """The caller asked for the work to stop."""
