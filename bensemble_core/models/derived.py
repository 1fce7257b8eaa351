"""Models that a fitted posterior runs instead of the one that was handed in, made of it: an ensemble of functions.

A derived model has JSON of its own, `{"derived": its name in DERIVED, "inner": the model it is made of or None, …}`, so
that files of its ensembles are read without the posterior; it is no choice of a user's, and so not in MODELS.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from bensemble_core.errors import InvalidFile
from bensemble_core.models.conditioned import Conditioned
from bensemble_core.types import Model


class Derived(Model, Protocol):
    """A model made of another, or of numbers alone."""

    @classmethod
    def from_json(cls, spec: Mapping[str, Any], inner: Model | None) -> "Derived":
        """The inverse of `to_json`, given the model that it was made of; checked, since a file may say anything."""
        ...


DERIVED: dict[str, type[Any]] = {
    "conditioned": Conditioned,
}


def derived_from_json(spec: Mapping[str, Any], build: Callable[[Mapping[str, Any]], Model]) -> Model:
    """The derived model of a file's header; `build` makes the inner one."""
    if spec["derived"] not in DERIVED:
        raise InvalidFile(f"the file has a {spec['derived']!r} model, which this version does not know; upgrade")
    inner = None if spec.get("inner") is None else build(spec["inner"])
    made: Model = DERIVED[spec["derived"]].from_json(spec, inner)
    return made
