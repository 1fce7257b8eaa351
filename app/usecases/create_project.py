"""Create a project, refusing a model or posterior that could never be trained on its rows."""

import math
from typing import Any

from sqlalchemy.orm import Session

import bensemble_core as bc
from app.db.tables import Project
from app.db.types import new_id
from app.errors import Malformed
from app.schemas.methods import as_json
from app.schemas.projects import ProjectIn
from app.settings import Settings


def create_project(session: Session, wanted: ProjectIn, settings: Settings) -> Project:
    task = wanted.task.model_dump()
    project = Project(
        id=new_id(),
        name=wanted.name,
        task=task,
        input=wanted.input.model_dump(),
        model=as_json(wanted.model),
        posterior=as_json(wanted.posterior),
        holdout=wanted.holdout,
    )
    check_size(project, wanted.posterior, settings)
    session.add(project)
    session.flush()
    return project


def n_outputs(task: dict[str, Any]) -> int:
    if task["kind"] == "classification":
        return len(task["classes"])
    return int(task["outputs"]) * (2 if task["noise"] == "by_row" else 1)


def check_size(project: Project, posterior: Any, settings: Settings) -> None:
    """Everything that decides how long a training takes, checked before anything is stored."""
    shape = project.input["shape"]
    if math.prod(shape) > settings.max_width:
        raise Malformed(
            f"a row has {math.prod(shape):,} numbers; the cap is {settings.max_width:,}", pointer="/input/shape"
        )
    try:
        n_parameters = bc.count_parameters(project.model, shape, n_outputs(project.task))
    except bc.BensembleError as error:
        raise Malformed(str(error), pointer="/model") from error
    if n_parameters > settings.max_parameters:
        raise Malformed(
            f"the model has {n_parameters:,} weights; the cap is {settings.max_parameters:,}", pointer="/model"
        )
    cost = posterior.cost(n_parameters)
    if cost > settings.max_training_cost:
        raise Malformed(
            f"members × weights × epochs is {cost:.3g}; the cap is {settings.max_training_cost:.3g}. "
            "Take fewer members or epochs, or a smaller model.",
            pointer="/posterior",
        )
