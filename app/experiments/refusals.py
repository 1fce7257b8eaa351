"""What the library refuses, in the words of the API."""

from collections.abc import Iterator
from contextlib import contextmanager

from app.errors import Conflict, Malformed
from bensemble_core.errors import InvalidData, InvalidOption, InvalidSpec, NotFinite


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
