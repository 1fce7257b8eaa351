"""Models that people use, as data: take a spec, change what differs, state it. Each one doubles as a test.

From outside use `CATALOGUE`; each field of science has a file.
"""

from bensemble_core.design.catalogue.behaviour import BEHAVIOUR
from bensemble_core.design.catalogue.entry import Entry
from bensemble_core.design.catalogue.laboratory import LABORATORY
from bensemble_core.design.catalogue.psychophysics import PSYCHOPHYSICS

CATALOGUE: dict[str, Entry] = {**PSYCHOPHYSICS, **BEHAVIOUR, **LABORATORY}

__all__ = ["CATALOGUE", "Entry"]
