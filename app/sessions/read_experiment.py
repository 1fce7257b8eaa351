"""Read an experiment for computing, and put what the library refuses into the words of the API."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from app.db.tables import Experiment
from app.errors import Conflict, Malformed
from app.services import Services
from app.sessions.state import Outdated, State
from bensemble_core import design
from bensemble_core.errors import InvalidData, InvalidOption, InvalidSpec, NotFinite


def experiment_of(services: Services, state: State) -> design.Experiment:
    def load() -> Mapping[str, Any]:
        with services.database.read() as session:
            row = session.get_one(Experiment, state.experiment_id)
        if row.spec_hash != state.spec_hash:  # replaced since: it must not be kept under the old name
            raise Outdated
        return row.spec

    return services.compute.experiment(state.spec_hash, state.seed, load)


@contextmanager
def refusals(pointer: str | None = None) -> Iterator[None]:
    """What the library raises becomes a problem; `pointer` is the part of the body that it is about."""
    try:
        yield
    except InvalidSpec as error:
        place = {} if error.column is None else {"column": error.column}
        errors = [{"pointer": error.pointer, "detail": error.message, **place}]
        raise Malformed(str(error), errors=errors) from error
    except (InvalidData, InvalidOption) as error:
        raise Malformed(str(error), pointer=pointer) from error
    except OverflowError as error:  # JSON can spell integers that no float holds
        raise Malformed("a number here is too large to compute with", pointer=pointer or "") from error
    except NotFinite as error:
        raise Conflict(str(error)) from error
