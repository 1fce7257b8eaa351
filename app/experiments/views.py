"""Experiments as the API shows them."""

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.db.tables import DesignSession, Experiment
from app.experiments.schemas import ExperimentItem, ExperimentOut


def experiment_item(session: Session, row: Experiment) -> ExperimentItem:
    query = select(func.count()).select_from(DesignSession).where(DesignSession.experiment_id == row.id)
    return ExperimentItem(
        id=row.id,
        name=row.name,
        spec_hash=row.spec_hash,
        n_sessions=session.scalar(query) or 0,
        created_at=row.created_at,
    )


def experiment_view(session: Session, row: Experiment) -> ExperimentOut:
    return ExperimentOut(**experiment_item(session, row).model_dump(), spec=row.spec)
