"""Read an experiment for computing, and put what the library refuses into the words of the API."""

from collections.abc import Mapping
from typing import Any

from app.db.tables import Experiment
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
    def load() -> Mapping[str, Any]:
        with services.database.read() as session:
            row = session.get_one(Experiment, state.experiment_id)
        if row.spec_hash != state.spec_hash:  # replaced since: it must not be kept under the old name
            raise Outdated
        return row.spec

    return services.compute.experiment(state.spec_hash, state.seed, load)
