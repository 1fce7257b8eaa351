"""Create, check and change experiments."""

from typing import Any

from sqlalchemy import exists, select, update
from sqlalchemy.orm import Session

from app.db.tables import DesignSession, Experiment, Observation, Proposal
from app.db.types import new_id
from app.errors import Conflict, Malformed
from app.experiments.refusals import refusals
from app.experiments.schemas import ExperimentChange, ModelOut
from app.experiments.views import model_view
from app.queue.context import storable
from app.settings import Settings
from bensemble_core import design

MAX_NAME = 200
PROBE_SECONDS = 20.0  # fifty times what any model of the catalogue takes


def checked(spec: dict[str, Any]) -> design.Experiment:
    """Read and probed, or refused with a pointer to the place."""
    try:
        with refusals(), design.limited(PROBE_SECONDS):
            experiment = design.Experiment.from_spec(spec)
    except design.TooMuchWork as error:
        if error.seconds != PROBE_SECONDS:
            raise  # of a nearer limit
        raise Malformed(
            f"to try this model out takes more than {error.seconds:g} s of computing; take fewer values of its "
            "parameters, fewer outcomes or shorter expressions"
        ) from error
    if storable(spec) != spec:
        raise Malformed("a text in this spec has a NUL or half of a surrogate pair, which no database keeps")
    if len(experiment.spec.name) > MAX_NAME:
        raise Malformed(f"a name has at most {MAX_NAME} characters, got {len(experiment.spec.name)}", pointer="/name")
    return experiment


def understood(settings: Settings, spec: dict[str, Any]) -> ModelOut:
    """What a spec says, as long as a proposal may compute: whoever only asks keeps no thread from those who measure."""
    try:
        with design.limited(settings.design_seconds):
            return model_view(checked(spec), settings.max_design_work)
    except design.TooMuchWork as error:
        raise Conflict(
            f"to try this model out takes more than {error.seconds:g} s of computing; take fewer values of its "
            f"parameters or shorter expressions, or create the experiment, which may take {PROBE_SECONDS:g} s to try"
        ) from error


def create_experiment(session: Session, spec: dict[str, Any], experiment: design.Experiment) -> Experiment:
    row = Experiment(id=new_id(), name=experiment.spec.name or "experiment", spec=spec, spec_hash=experiment.hash)
    session.add(row)
    session.flush()
    return row


def change_experiment(
    session: Session, experiment_id: str, wanted: ExperimentChange, made: design.Experiment | None
) -> Experiment:
    """A spec can be replaced until a session has begun; what sessions compute meanwhile is then not written."""
    row = session.get_one(Experiment, experiment_id, with_for_update=True)
    if wanted.name is not None:
        row.name = wanted.name
    if made is not None and made.hash != row.spec_hash:
        of_this = DesignSession.experiment_id == experiment_id
        session.execute(update(DesignSession).where(of_this).values(version=DesignSession.version + 1))
        ids = select(DesignSession.id).where(of_this)
        has_begun = select(
            exists().where(Proposal.session_id.in_(ids)) | exists().where(Observation.session_id.in_(ids))
        )
        if session.scalar(has_begun):
            raise Conflict("a session of this experiment has begun, so its spec stays; create another experiment")
        row.spec, row.spec_hash = dict(wanted.spec or {}), made.hash
    session.flush()
    return row
