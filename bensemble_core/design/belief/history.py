"""A list of observations, checked, with a number for each of its beginnings.

A client hands in the whole list with every round. Written out as bytes it is compared with those seen before at once;
only what is new is checked, and what was computed for a list is found again by its number.
"""

import itertools
import marshal
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from bensemble_core.design.spec.model import Event, Model, Observation

if TYPE_CHECKING:
    from bensemble_core.design.belief.memory import Memory

VERSION = 2  # of the format: later ones write what is repeated as a reference, so that equal lists may differ
HEADER = 5  # bytes before the first entry of a list: its type and length
PLAIN = {bool, int, float, str}

_numbers = itertools.count(1)


class History(tuple[Event, ...]):
    """Observations in order. `numbers` are those of its beginnings, one observation longer each: its own is the last.

    A number is never given twice: the same number means the same observations.
    """

    numbers: tuple[int, ...]

    def __new__(cls, events: Iterable[Event] = (), numbers: tuple[int, ...] = ()) -> "History":
        made = super().__new__(cls, events)
        made.numbers = numbers
        return made


def read_history(model: Model, observations: Sequence[Observation], memory: "Memory") -> History:
    """Observations as events, checked where they are new."""
    given = list(observations)
    if not given:
        return History()
    try:
        written = marshal.dumps(given, VERSION)[HEADER:]
    except ValueError:  # of types that cannot be written out: checked every time
        return _longer(model, History(), given)
    found: History | None = memory.find(("history", written))
    if found is not None:
        return found
    end, known = len(written), History()
    for n in range(len(given) - 1, 0, -1):
        end -= len(marshal.dumps(given[n : n + 1], VERSION)) - HEADER
        before: History | None = memory.find(("history", written[:end]))
        if before is not None:
            known = before
            break
    made = _longer(model, known, given[len(known) :])
    if all(map(_is_plain, given[len(known) :])):
        memory.keep(("history", written), made, len(written) // 4)
    return made


def _longer(model: Model, history: History, observations: Sequence[Observation]) -> History:
    events = [model.event(observation) for observation in observations]
    return History((*history, *events), (*history.numbers, *(next(_numbers) for _ in events)))


def _is_plain(observation: Any) -> bool:
    """Whether no other observation has the same bytes. The number of an array library is written as its bits, from
    which its type cannot be told."""
    return all(type(value) in PLAIN for part in observation for value in part.values())
