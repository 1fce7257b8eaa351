"""Make an example: a project, its pools, a schedule that opens round after round, and the first training."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.db.tables import Job, Pool, Project
from app.db.types import new_id
from app.ensembles.request import request_training
from app.ensembles.schemas import TrainingIn, stored_training
from app.examples.digits import CLASSES, DARKEST, SIDE, Digits, first_labelled, load_digits
from app.pools.store import StoredPool, publish_pool, write_pool
from app.projects.create import new_project
from app.projects.schemas import ProjectIn
from app.schedules.change import create_schedule
from app.schedules.schemas import ScheduleIn
from app.services import Services
from app.storage.readers import Batch, Features

N_LABELLED, K = 20, 20
ANNOTATOR = "scikit-learn"  # whose labels they are
DIGITS = {
    "name": "Handwritten digits",
    "task": {"kind": "classification", "classes": CLASSES},
    "input": {"shape": [SIDE * SIDE]},
    "display": {
        "kind": "image",
        "shape": [SIDE, SIDE],
        "range": [DARKEST, 0],
        "instructions": "Which digit is it? Skip what nobody could read.",
    },
}


@dataclass(frozen=True, kw_only=True)
class Example:
    job: Job
    project: Project


def make_digits(services: Services, session: Session, *, key_id: str | None) -> Example:
    """Rows go to storage before the transaction begins, so that writing them holds no lock."""
    settings = services.settings
    project = new_project(ProjectIn.model_validate(DIGITS), settings)
    pools = [
        (pool, write_pool(services, f"pools/{pool.id}/inline", project, pool.purpose, [batch]))
        for pool, batch in _pools(project, load_digits())
    ]
    session.add(project)
    session.flush()
    for pool, stored in pools:
        _publish(services, session, project, pool, stored, key_id)
    (candidates, _), _ = pools
    wanted = ScheduleIn.model_validate(
        {"on_round_complete": True, "then_open_round": {"pool_id": candidates.id, "k": K}}
    )
    schedule = create_schedule(session, project, wanted, settings)
    training = request_training(
        session, project, settings, **stored_training(TrainingIn()), schedule_id=schedule.id
    )  # which opens the schedule's round, the first one, when it has ended
    return Example(job=training.job, project=project)


def _pools(project: Project, digits: Digits) -> list[tuple[Pool, Batch]]:
    labelled = first_labelled(digits.pool_labels, N_LABELLED)
    labels = [label if row in labelled else None for row, label in enumerate(digits.pool_labels)]
    candidates = _batch(digits.pool_rows, "digit", labels)
    evaluation = _batch(digits.evaluation_rows, "kept", digits.evaluation_labels)
    return [
        (Pool(id=new_id(), project_id=project.id, name="Digits to choose from", purpose="candidates"), candidates),
        (Pool(id=new_id(), project_id=project.id, name="Digits to measure on", purpose="evaluation"), evaluation),
    ]


def _batch(rows: Features, name: str, labels: Sequence[str | None]) -> Batch:
    return Batch(features=rows, keys=[f"{name}-{n:04d}" for n in range(1, len(rows) + 1)], labels=list(labels))


def _publish(
    services: Services, session: Session, project: Project, pool: Pool, stored: StoredPool, key_id: str | None
) -> None:
    session.add(pool)
    session.flush()
    publish_pool(services, session, project, pool, stored, annotator=ANNOTATOR, key_id=key_id)
