"""Read an experiment for computing, and put what the library refuses into the words of the API."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select

from app.db.tables import Experiment
from app.errors import NotFound
from app.experiments.form import form_view
from app.experiments.schemas import FormOut
from app.services import Services
from app.sessions import state as sessions
from app.sessions.state import Outdated, State
from bensemble_core import design


def read_session(services: Services, session_id: str) -> tuple[State, design.Experiment]:
    """As it stands, with its experiment; `Outdated` where the spec was replaced between the two."""
    with services.database.read() as session:
        state = sessions.read(session, session_id)
    return state, experiment_of(services, state)


def experiment_of(services: Services, state: State) -> design.Experiment:
    return _experiment(services, state.experiment_id, state.spec_hash, state.seed)


def read_form(services: Services, experiment_id: str) -> FormOut:
    """Of the trials of its sessions, whatever their seeds; reads no observations."""

    def read() -> FormOut:
        with services.database.read() as session:
            spec_hash = session.scalar(select(Experiment.spec_hash).where(Experiment.id == experiment_id))
        if spec_hash is None:
            raise NotFound(f"there is no experiment {experiment_id!r} any more")
        return form_view(_experiment(services, experiment_id, spec_hash, None))

    return sessions.settle(None, read)


def _experiment(services: Services, experiment_id: str, spec_hash: str, seed: int | None) -> design.Experiment:
    def load() -> Mapping[str, Any]:
        with services.database.read() as session:
            row = session.get_one(Experiment, experiment_id)
        if row.spec_hash != spec_hash:  # replaced since: it must not be kept under the old name
            raise Outdated
        return row.spec

    return services.compute.experiment(spec_hash, seed, load)
