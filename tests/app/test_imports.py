"""What a process loads is part of its design."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("imported", "absent"),
    [
        ("bensemble_core", ("fastapi", "pydantic", "sqlalchemy", "matplotlib", "app")),
        # a worker's parent must always answer, and start at once
        ("app.queue.worker, app.schedules.fire, app.housekeeping.sweep", ("torch", "fastapi")),
        ("app.cli", ("torch", "fastapi", "sqlalchemy")),
    ],
)
def test_a_module_loads_no_more_than_it_should(imported: str, absent: tuple[str, ...]) -> None:
    code = f"import {imported}, sys; print(' '.join(name for name in {absent!r} if name in sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []
