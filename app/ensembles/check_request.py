"""What is looked at before a training is asked for. Apart from `request`, which workers use without PyTorch."""

from sqlalchemy.orm import Session

import bensemble_core as bc
from app.db import pools
from app.db.tables import Project
from app.ensembles.schemas import TrainingIn
from app.errors import Conflict, Malformed
from app.methods.schemas import posterior_of
from app.projects.create import check_training, needs_tasks, prior_of, takes_folds
from app.settings import Settings
from bensemble_core.tuning import search_space


def check_request(session: Session, project: Project, wanted: TrainingIn, settings: Settings) -> None:
    """Refuse a training or a search that could not be done, or would take too long, before it is queued."""
    posterior = wanted.posterior or posterior_of(project.posterior)
    calibrate = project.calibrate if wanted.calibrate is None else wanted.calibrate
    n_fits = 1 if wanted.tune is None else wanted.tune.trials + 1
    check_training(project, posterior, settings, n_fits=n_fits, calibrate=calibrate)
    if wanted.tune is not None and takes_folds(calibrate, posterior):
        raise Malformed(
            'calibrate: "folds" and `tune` both hold labels out, and do not go together; tune with calibrate: true, '
            "then train with the posterior that it chose",
            pointer="/calibrate",
        )
    if wanted.tune is not None and isinstance(posterior, bc.Auto):
        raise Malformed(
            "auto chooses its settings from the labels by itself; leave `tune` out, or name the posterior to tune, "
            "such as deep_ensemble",
            pointer="/tune",
        )
    if wanted.tune is not None and not search_space(posterior, prior_of(project.task)):
        raise Malformed(
            f"there is nothing to tune: no option of {posterior.name} as it is given here has a range to search, and "
            "the task has no prior whose scale could be. Leave `tune` out, or name a posterior with a learning rate, "
            "such as deep_ensemble with epochs above 0.",
            pointer="/tune",
        )
    if needs_tasks(posterior) and not pools.pools_with_data(session, project.id, "task"):
        raise Conflict(
            f"{posterior.name} learns over tasks, and this project has no pool with purpose 'task' that has its rows; "
            "add such pools, with the labelled rows of other tasks, or use gp, which needs one task"
        )
