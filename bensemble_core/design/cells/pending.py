"""What a design adds to others whose outcomes are not known yet, by the chain rule:

    I(y; φ | y_1 … y_n) = E over y_1 … y_n of EIG(ξ) after them

The outcomes are nodes in normal scores of their own distribution, one member after the other, and each combination is a
history like any other: cells are fitted to it. Where the gain hardly depends on the outcomes, as with linear models,
their medians will do.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy import special

from bensemble_core.design.cells.gains import SPACINGS, cell_gains, fitted, look
from bensemble_core.design.cells.mixture import Pushed, push
from bensemble_core.design.cells.precise import Precise
from bensemble_core.design.spec.model import Event, Model
from bensemble_core.design.spec.spaces import Row, sobol

if TYPE_CHECKING:
    from bensemble_core.design.belief.memory import Memory

Array = npt.NDArray[np.float64]
Branch = tuple[float, tuple[Event, ...]]  # its probability, and the observations with what came out of the members
NODES = {1: (1, 3, 5), 2: (1, 3)}  # for each member's outcome, by how many members there are; beyond, paths are drawn
N_PATHS = 16
AGREE = 2e-3  # nats that more nodes may change, for fewer to do
N_BISECTIONS = 60


def added_gains(
    model: Model, events: Sequence[Event], pending: Sequence[Row], rows: Array, memory: "Memory"
) -> tuple[Array, Array]:
    """What designs [J, D] add to the pending ones, and how far that may be off: [J] twice."""
    if not pending:
        return cell_gains(model, events, rows, memory)
    few, many, change = _agreeing(model, events, pending, rows, memory)
    values, errors = np.zeros(len(rows)), np.zeros(len(rows))
    for probability, history in few:
        gain, error = cell_gains(model, history, rows, memory)
        values, errors = values + probability * gain, errors + probability * error
    values = values + (_averaged(model, many, rows, memory) - _averaged(model, few, rows, memory))
    return np.maximum(values, 0.0), errors + change


def rough_gains(model: Model, events: Sequence[Event], pending: Sequence[Row], rows: Array, memory: "Memory") -> Array:
    """The same without an error and from the widest spacing: to compare many designs [J, D]."""
    branches: Sequence[Branch] = [(1.0, tuple(events))]
    if pending:
        branches = _agreeing(model, events, pending, rows[:1], memory)[0]
    return _averaged(model, branches, rows, memory)


def _agreeing(
    model: Model, events: Sequence[Event], pending: Sequence[Row], rows: Array, memory: "Memory"
) -> tuple[Sequence[Branch], Sequence[Branch], Array]:
    """Branches from as few nodes as will do, those of more nodes, and by how much the gains of designs [J, D] by these
    differ: [J]."""
    counts = _counts(model, pending)
    few = branches(model, events, pending, counts[0], memory)
    for n in counts[1:]:
        many = branches(model, events, pending, n, memory)
        change = np.abs(_averaged(model, many, rows, memory) - _averaged(model, few, rows, memory))
        if float(change.max()) <= AGREE or n == counts[-1]:
            break
        few = many
    return few, many, change


def _averaged(model: Model, found: Sequence[Branch], rows: Array, memory: "Memory") -> Array:
    return np.asarray(sum(probability * look(model, history, rows, 0, memory).eig for probability, history in found))


def branches(
    model: Model, events: Sequence[Event], pending: Sequence[Row], n: int, memory: "Memory"
) -> Sequence[Branch]:
    """Histories that the members may lead to, from n nodes for each; of more members, or several outcomes, n paths."""
    key = ("branches", tuple(events), tuple(pending), n)
    return memory.get(key, lambda: _branches(model, events, pending, n, memory), lambda made: 8 * len(made))


def _branches(
    model: Model, events: Sequence[Event], pending: Sequence[Row], n: int, memory: "Memory"
) -> Sequence[Branch]:
    n_outcomes = len(model.outcomes)
    if n > 1 and _counts(model, pending)[-1] == N_PATHS:
        u = sobol(n, len(pending) * (n_outcomes + 1), 0).numpy().reshape(n, len(pending), -1)
        paths = []
        for path in u:
            history = tuple(events)
            for row, own in zip(pending, path, strict=True):
                history = (*history, (row, _drawn(model, history, row, own, memory)))
            paths.append((1 / n, history))
        return paths
    nodes, weights = np.polynomial.hermite_e.hermegauss(n)
    weights = weights / weights.sum()
    found: list[Branch] = [(1.0, tuple(events))]
    for row in pending:
        found = [
            (probability * float(weight), (*history, (row, outcome)))
            for probability, history in found
            for weight, outcome in zip(weights, _outcomes(model, history, row, nodes, memory), strict=True)
        ]
    return found


def _counts(model: Model, pending: Sequence[Row]) -> tuple[int, ...]:
    return NODES.get(len(pending), (1, N_PATHS)) if len(model.outcomes) == 1 else (1, N_PATHS)


def _pushed(model: Model, history: Sequence[Event], row: Row, memory: "Memory") -> tuple[Precise, Array, Pushed]:
    """The outcomes of a design after a history, in cells with these weights."""
    precise = Precise(model=model)
    (mixture,) = fitted(precise, history, SPACINGS[precise.n_scores][0], memory)
    return precise, mixture.weights, push(precise, mixture, np.array([row]))


def _drawn(model: Model, history: Sequence[Event], row: Row, u: Array, memory: "Memory") -> tuple[float, ...]:
    """What comes out of a design after a history, for uniforms [1 + O]."""
    precise, weights, found = _pushed(model, history, row, memory)
    cell = min(int(np.searchsorted(weights.cumsum(), u[0])), len(weights) - 1)
    root = np.linalg.cholesky(found.covariances[0, cell])
    return precise.outcome(found.means[0, cell] + root @ special.ndtri(u[1:]))


def _outcomes(
    model: Model, history: Sequence[Event], row: Row, scores: Array, memory: "Memory"
) -> list[tuple[float, ...]]:
    """What comes out of a design after a history, at normal scores [n] of its distribution; of several outcomes their
    means."""
    precise, weights, found = _pushed(model, history, row, memory)
    if len(model.outcomes) > 1:
        return [precise.outcome(weights @ found.means[0])] * len(scores)
    m, s = found.means[0, :, 0], found.sds[0, :, 0]
    low, high = np.full(len(scores), (m - 10 * s).min()), np.full(len(scores), (m + 10 * s).max())
    below = special.ndtr(scores)
    for _ in range(N_BISECTIONS):
        middle = 0.5 * (low + high)
        is_low = special.ndtr((middle[:, None] - m) / s) @ weights < below
        low, high = np.where(is_low, middle, low), np.where(is_low, high, middle)
    return [precise.outcome(y[None]) for y in 0.5 * (low + high)]
