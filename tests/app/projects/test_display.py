"""How items are shown: kept with the project, checked against its rows, every change recorded."""

from typing import Any

import pytest

from tests.app.conftest import Service
from tests.app.hammering import pointers, refused
from tests.app.projects.test_change import patch
from tests.app.working import on_sqlite

NOTHING = dict.fromkeys(("shape", "range", "columns", "unit", "instructions"))
PIXELS = {"kind": "image", "shape": [8, 8], "range": [0, 16], "instructions": "Which digit is it?"}


def test_a_projects_display_is_kept_changed_and_recorded(service: Service) -> None:
    plain = service.project()
    assert plain["display"] is None
    project = service.project(display=PIXELS)
    kept = {**NOTHING, **PIXELS}
    assert project["display"] == service.get(f"/projects/{project['id']}")["display"] == kept
    assert patch(service, project["id"], display=PIXELS)["display"] == kept  # nothing is new, nothing is recorded
    assert patch(service, project["id"], display={"unit": "mm"})["display"] == {**NOTHING, "kind": "auto", "unit": "mm"}
    assert patch(service, project["id"], name="other")["display"]["unit"] == "mm"
    assert patch(service, project["id"], display=None)["display"] is None
    first, second, third = (change["changes"] for change in service.get(f"/projects/{project['id']}/changes")["items"])
    assert first == {"display": [kept, {**NOTHING, "kind": "auto", "unit": "mm"}]}
    assert second == {"name": ["digits", "other"]}
    assert third["display"][1] is None


@on_sqlite
@pytest.mark.parametrize(
    ("display", "pointer", "said"),
    [
        ({"shape": [8, 9]}, "/display/shape", "has 72 numbers; a row of this project has 64"),
        ({"shape": [8, 8, 3]}, "/display/shape", "has 192 numbers; a row of this project has 64"),
        ({"columns": ["a", "b"]}, "/display/columns", "2 names of columns; a row of this project has 64"),
        ({"shape": [4, 4, 4]}, "/display", "[height, width, 3] of colours; got [4, 4, 4]"),
        ({"shape": [64]}, "/display/shape", "at least 2 items"),
        ({"shape": [64, 1, 3, 1]}, "/display/shape", "at most 3 items"),
        ({"shape": [-8, 8]}, "/display/shape/0", "greater than or equal to 1"),
        ({"range": [1, 1]}, "/display", "two different numbers; got [1.0, 1.0]"),
        ({"range": [1]}, "/display/range", "at least 2 items"),
        ({"kind": "video"}, "/display/kind", "'auto', 'image', 'text' or 'table'"),
        ({"instructions": "x" * 2001}, "/display/instructions", "at most 2000 characters"),
        ({"colour": "red"}, "/display/colour", "not permitted"),
    ],
)
def test_what_could_not_be_shown_is_refused(service: Service, display: Any, pointer: str, said: str) -> None:
    project = service.project()
    new = {"name": "p", "task": {"kind": "regression"}, "input": {"shape": [64]}}
    for problem in (
        refused(service, "PATCH", f"/projects/{project['id']}", 422, json={"display": display}),
        refused(service, "POST", "/projects", 422, json={**new, "display": display}),
    ):
        assert pointers(problem) == [pointer]
        assert said in problem["errors"][0]["detail"]
