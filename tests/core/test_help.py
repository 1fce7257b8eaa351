"""`help(…)` is enough: every parameter and every option has a line."""

import inspect
import re
from dataclasses import fields
from typing import Any

import pytest

import bensemble_core as bc

EXPERIMENT = bc.design.Experiment
CALLS = (bc.fit, bc.rank, bc.score, bc.tune, bc.calibrate, bc.distil)
METHODS = (EXPERIMENT.from_spec, EXPERIMENT.posterior, EXPERIMENT.eig, EXPERIMENT.joint_eig, EXPERIMENT.propose)
ENTRIES = [
    *bc.MODELS.values(),
    *bc.POSTERIORS.values(),
    *(entry.options for entry in (*bc.ACQUISITIONS.values(), *bc.SELECTIONS.values())),
]


@pytest.mark.parametrize("call", [*CALLS, *METHODS, EXPERIMENT.stop, EXPERIMENT], ids=lambda call: call.__qualname__)
def test_every_parameter_has_a_line(call: Any) -> None:
    lines = re.findall(r"^ *([\w, ]+): ", inspect.getdoc(call) or "", re.MULTILINE)
    named = {name.strip() for line in lines for name in line.split(",")}
    wanted = {name for name in inspect.signature(call).parameters if name not in ("self", "options_")}
    assert wanted <= named


@pytest.mark.parametrize("kind", ENTRIES, ids=lambda kind: kind.__name__)
def test_every_option_has_a_line_with_its_meaning_and_default(kind: Any) -> None:
    lines = dict(line.split(": ", 1) for line in (kind.__init__.__doc__ or "").splitlines())
    assert list(lines) == [field.name for field in fields(kind)]
    assert all(len(text) > len("its name (default)") and "(default " in text for text in lines.values())


def test_the_lines_of_options_say_their_bounds() -> None:
    assert "rank: deviations kept; 0 is diagonal (default 20, at least 0, at most 1,000)" in (
        bc.SWAG.__init__.__doc__ or ""
    )
