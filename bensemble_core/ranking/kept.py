"""Scores that a service may store: those that cost nothing more once an ensemble has predicted a row.

A service that stores these for a pool answers any of them, and any k, without another forward pass.
"""

import dataclasses
import hashlib
import json
from typing import Any

from bensemble_core.acquisition import ACQUISITIONS
from bensemble_core.types import Family


def kept_scores(family: Family) -> tuple[Any, ...]:
    """The options of each, in the order of the registry."""
    return tuple(options for entry in ACQUISITIONS.values() if family in entry.families for options in entry.kept)


def column_of(options: Any, family: Family) -> int | None:
    """Where among the family's kept scores the one of these options is; None if it is not kept."""
    kept = [_identity(each, family) for each in kept_scores(family)]
    own = _identity(options, family)
    return kept.index(own) if own in kept else None


def digest(family: Family) -> str:
    """A name for the family's kept scores that changes with them."""
    text = json.dumps([dataclasses.asdict(options) for options in kept_scores(family)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _identity(options: Any, family: Family) -> object:
    """Equal for options that give the same scores: `eig` is `bald`, and an estimate is for numbers alone."""
    column = getattr(options, "column", None)
    if family == "categorical" and column is not None:
        return column
    own = {name: value for name, value in dataclasses.asdict(options).items() if name != "name"}
    return ACQUISITIONS[options.name].score, own
