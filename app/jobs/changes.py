"""What a stream tells of beside jobs: rounds, ensembles and how far labels have come."""

from collections.abc import Iterator
from functools import partial

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from app.db import projects
from app.db.tables import Ensemble, Job, Pool, Project, Ranking, Round
from app.ensembles.views import ensemble_view
from app.jobs.schemas import LabelsChange
from app.rounds.views import round_view
from app.web.news import State, View, Watched


def rounds_under_way(session: Session, watched: Watched) -> Iterator[State]:
    """And those that ended lately. What is done of a round may differ whenever a label has come."""
    query = (
        select(Round, Project.last_seq, Job.status)
        .join(Project, Project.id == Round.project_id)
        .join(Ranking, Ranking.id == Round.ranking_id)
        .outerjoin(Job, Job.id == Ranking.job_id)
        .where(or_(Round.ended_at.is_(None), Round.ended_at > watched.since), *watched.within(Round.project_id))
    )
    for round_, last_seq, ranked in session.execute(query):
        yield State(
            event="round",
            id=round_.id,
            project_id=round_.project_id,
            mark=(round_.status, round_.ensemble_id, last_seq, ranked),
            view=partial(_round, session, round_),
        )


def ensembles_in_training(session: Session, watched: Watched) -> Iterator[State]:
    """And those whose training ended lately."""
    trainings = select(Job.id, Job.project_id, Job.status, Job.attempts).where(
        Job.kind == "train_ensemble", *watched.within(Job.project_id)
    )
    live = trainings.where(Job.queue == "train", Job.status.in_(("queued", "running")))
    found = [*session.execute(live), *session.execute(trainings.where(Job.finished_at > watched.since))]
    marks = {job_id: (status, attempts) for job_id, _, status, attempts in found}
    of_jobs = select(Ensemble).where(
        Ensemble.project_id.in_({project_id for _, project_id, _, _ in found}), Ensemble.job_id.in_(marks)
    )
    for ensemble in session.scalars(of_jobs) if marks else ():
        yield State(
            event="ensemble",
            id=ensemble.id,
            project_id=ensemble.project_id,
            mark=marks[ensemble.job_id],
            view=partial(_ensemble, session, ensemble),
        )


def labels_and_pins(session: Session, watched: Watched) -> Iterator[State]:
    """How many labels each project has and, where another ensemble was pinned or none is any more, its current one."""
    columns = select(Project.id, Project.last_seq, Project.pinned_ensemble_id).where(*watched.within(Project.id))
    for project_id, last_seq, pinned in session.execute(columns):
        yield State(
            event="labels",
            id=project_id,
            project_id=project_id,
            mark=last_seq,
            view=partial(_labels, session, project_id, last_seq),
        )
        yield State(
            event="ensemble",
            id=f"current of {project_id}",
            project_id=project_id,
            mark=pinned,
            view=partial(_current, session, project_id),
        )


SOURCES = (rounds_under_way, ensembles_in_training, labels_and_pins)


def _round(session: Session, round_: Round) -> View:
    return round_view(session, round_).model_dump(mode="json")


def _ensemble(session: Session, ensemble: Ensemble) -> View:
    return ensemble_view(session, ensemble, in_list=True).model_dump(mode="json")


def _labels(session: Session, project_id: str, last_seq: int) -> View:
    counts = select(func.coalesce(func.sum(Pool.n_labelled), 0))
    n_labelled = session.execute(counts.where(Pool.project_id == project_id, Pool.purpose == "candidates")).scalar_one()
    return LabelsChange(project_id=project_id, last_seq=last_seq, n_labelled=int(n_labelled)).model_dump(mode="json")


def _current(session: Session, project_id: str) -> View | None:
    current = projects.current_ensemble_id(session, session.get_one(Project, project_id))
    ensemble = session.get(Ensemble, current) if current is not None else None
    return _ensemble(session, ensemble) if ensemble is not None else None
