"""Everything the library raises on purpose. A message says what was expected, what came, and what to do.

BensembleError
├── InvalidOption(ValueError)   a hyper-parameter is unknown, of the wrong type or out of bounds
├── InvalidData(ValueError)     rows, labels or tensors that do not fit: shape, range, NaN
├── InvalidModel(ValueError)    a network that cannot be built, or does not fit the data or the likelihood
├── InvalidFile(ValueError)     not one of our files, truncated, or from a newer format
├── NotFinite(ArithmeticError)  training or scoring left the finite numbers
└── Cancelled                   raised by a `report` that wants the work stopped; nothing is left behind
"""


class BensembleError(Exception):
    """The root: `except BensembleError` catches all of the above and nothing else."""


class InvalidOption(BensembleError, ValueError):
    """A hyper-parameter is unknown, of the wrong type or out of bounds."""


class InvalidData(BensembleError, ValueError):
    """Rows, labels or tensors that do not fit."""


class InvalidModel(BensembleError, ValueError):
    """A network that cannot be built, or does not fit the data or the likelihood."""


class InvalidFile(BensembleError, ValueError):
    """Not one of our files, truncated, or from a newer format."""


class NotFinite(BensembleError, ArithmeticError):
    """Training or scoring left the finite numbers."""


class Cancelled(BensembleError):
    """The caller asked for the work to stop."""
