"""Create a project, refusing a model or posterior that could never be trained on its rows."""

import math
from typing import Any

from sqlalchemy.orm import Session

import bensemble_core as bc
from app.db.tables import Project
from app.db.types import new_id
from app.errors import Malformed
from app.methods.schemas import as_json, as_json_or_none
from app.projects.choice import check_project_choice
from app.projects.display import stored_display
from app.projects.schemas import ProjectIn
from app.settings import Settings
from bensemble_core.priors import DEFAULT_PRIOR, prior_from_json
from bensemble_core.types import Prior

FOLDS = 5  # of `calibrate: "folds"`


def create_project(session: Session, wanted: ProjectIn, settings: Settings) -> Project:
    project = new_project(wanted, settings)
    session.add(project)
    session.flush()
    return project


def new_project(wanted: ProjectIn, settings: Settings) -> Project:
    """One that is checked and not stored yet."""
    task = wanted.task.model_dump()
    if "prior" not in wanted.task.model_fields_set:  # a method may learn the prior that nobody named
        del task["prior"]
    project = Project(
        id=new_id(),
        name=wanted.name,
        task=task,
        input=wanted.input.model_dump(),
        model=as_json(wanted.model),
        posterior=as_json(wanted.posterior),
        holdout=wanted.holdout,
        acquisition=as_json_or_none(wanted.acquisition),
        selection=as_json_or_none(wanted.selection),
        calibrate=wanted.calibrate,
        display=stored_display(wanted.display, wanted.input.shape),
    )
    check_training(project, wanted.posterior, settings, calibrate=wanted.calibrate)
    check_project_choice(project)
    return project


def n_outputs(task: dict[str, Any]) -> int:
    if task["kind"] == "classification":
        return len(task["classes"])
    return int(task["outputs"]) * (2 if task["noise"] == "by_row" else 1)


def likelihood_of(task: dict[str, Any]) -> Any:
    if task["kind"] == "classification":
        return bc.Categorical(classes=task["classes"])
    return bc.HeteroscedasticGaussian() if task["noise"] == "by_row" else bc.Gaussian()


def prior_of(task: dict[str, Any]) -> Prior | None:
    if "prior" not in task:
        return DEFAULT_PRIOR
    return None if task["prior"] is None else prior_from_json({"name": "normal", **task["prior"]})


def takes_folds(calibrate: bool | str, posterior: Any) -> bool:
    """Whether a training has to fit FOLDS times more; `auto` has folds of its own."""
    return calibrate == "folds" and not isinstance(posterior, bc.Auto)


def needs_tasks(posterior: Any) -> bool:
    """Whether a method learns over several tasks; any other is trained on the candidates alone."""
    return bool(getattr(posterior, "needs_tasks", False))


def check_training(
    project: Project, posterior: Any, settings: Settings, *, n_fits: int = 1, calibrate: bool | str = False
) -> float:
    """Everything that decides whether a training can be done and how long it takes, checked before any is stored; its
    cost. `n_fits` is above 1 where settings are tuned: a fit for each trial, and the last."""
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
            f"members × weights × epochs (of chains: chains × weights × passes) is {cost:.3g}; the cap is "
            f"{settings.max_training_cost:.3g}. "
            "Take fewer members, epochs, chains, samples or steps, or a smaller model.",
            pointer="/posterior",
        )
    if cost * n_fits > settings.max_training_cost:
        raise Malformed(
            f"members × weights × epochs of all trials and the last training is {cost * n_fits:.3g}; the cap is "
            f"{settings.max_training_cost:.3g}, which leaves room for {int(settings.max_training_cost // cost) - 1} "
            "trials. Take fewer trials, members or epochs, or a smaller model.",
            pointer="/tune/trials",
        )
    if takes_folds(calibrate, posterior) and cost * (FOLDS + 1) > settings.max_training_cost:
        raise Malformed(
            f"members × weights × epochs of {FOLDS} folds and the last training is {cost * (FOLDS + 1):.3g}; the cap "
            f"is {settings.max_training_cost:.3g}. Take calibrate: true, which learns from the hold-out, or fewer "
            "members or epochs, or a smaller model.",
            pointer="/calibrate",
        )
    try:
        bc.check(
            posterior,
            project.model,
            likelihood=likelihood_of(project.task),
            prior=prior_of(project.task),
            input_shape=shape,
            n_targets=project.task.get("outputs", 1),
        )
    except bc.BensembleError as error:
        raise Malformed(f"{error}{_said_over_rest(str(error))}", pointer="/posterior") from error
    return float(cost)


def _said_over_rest(reason: str) -> str:
    """The library's refusals name arguments of its functions; a project has them in its task."""
    if "likelihood=" not in reason and "prior=" not in reason:
        return ""
    return (
        '. In a project the likelihood is task.kind, e.g. "regression" with task.noise "constant", and the prior is '
        'task.prior, e.g. {"name": "normal", "scale": 1.0} or {"name": "gp", …}'
    )
