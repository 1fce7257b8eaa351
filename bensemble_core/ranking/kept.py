"""Scores worth keeping: what costs nothing more once an ensemble has predicted a row.

A service that stores these for a pool answers any of them, and any k, without another forward pass.
"""

import dataclasses
import hashlib
import json
from typing import Any

from bensemble_core.acquisition.disagreement import LeastConfidence, Margin, MeanStd, PredictiveVariance, VariationRatio
from bensemble_core.acquisition.information import Bald, Eig, Entropy
from bensemble_core.types import Family

_ANY = (Bald(), Entropy(), PredictiveVariance(part="total"), PredictiveVariance(part="epistemic"), MeanStd())
KEPT: dict[Family, tuple[Any, ...]] = {
    "categorical": (*_ANY, VariationRatio(), LeastConfidence(), Margin()),
    "gaussian": _ANY,
}


def column_of(options: Any, family: Family) -> int | None:
    """Where among the family's kept scores these options are; None if they are not."""
    if isinstance(options, Eig):
        options = Bald(estimate=options.estimate)
    if family == "categorical" and isinstance(options, (Bald, Entropy)):
        options = type(options)()  # the estimate is for regression; classes are always exact
    return KEPT[family].index(options) if options in KEPT[family] else None


def digest(family: Family) -> str:
    """A name for the family's kept scores that changes with them."""
    text = json.dumps([dataclasses.asdict(options) for options in KEPT[family]], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
