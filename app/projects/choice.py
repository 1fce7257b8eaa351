"""How a project chooses rows where a ranking names nothing: its own acquisition and selection, or what goes with the
task."""

from typing import Any

import bensemble_core as bc
from app.db.tables import Project
from app.errors import Malformed
from bensemble_core.backtesting.strategies import check_choice


def family_of(project: Project) -> bc.Family:
    return "categorical" if project.task["kind"] == "classification" else "gaussian"


def check_project_choice(project: Project, *, within: str = "") -> None:
    """Refuse what could not rank the project's pools by itself; `within` is its place in the body."""
    acquisition, selection = project.acquisition, project.selection
    try:
        check_choice(acquisition, selection, family_of(project))
    except bc.InvalidOption as error:
        raise Malformed(
            str(error), pointer=f"{within}/{'selection' if acquisition is None else 'acquisition'}"
        ) from error
    if acquisition is not None:
        refuse_mixture(project, acquisition, pointer=f"{within}/acquisition/estimate")


def refuse_mixture(project: Project, acquisition: dict[str, Any], *, pointer: str) -> None:
    if acquisition.get("estimate") == "mixture" and project.task.get("outputs", 1) > 1:
        raise Malformed(
            'the mixture estimate is for one output; take "estimate": "moment_match"',
            pointer=pointer,
        )
