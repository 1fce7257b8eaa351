"""Method schemas, derived from the library's dataclasses: a method added there appears here by itself."""

import dataclasses
from functools import cache, reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, TypeAdapter

import bensemble_core as bc

if TYPE_CHECKING:
    PosteriorSpec = Any
    ModelSpec = Any
    AcquisitionSpec = Any
    SelectionSpec = Any
else:
    PosteriorSpec = Annotated[reduce(or_, bc.POSTERIORS.values()), Field(discriminator="name")]
    ModelSpec = Annotated[reduce(or_, bc.MODELS.values()), Field(discriminator="name")]
    AcquisitionSpec = Annotated[reduce(or_, (e.options for e in bc.ACQUISITIONS.values())), Field(discriminator="name")]
    SelectionSpec = Annotated[reduce(or_, (e.options for e in bc.SELECTIONS.values())), Field(discriminator="name")]


def as_json(spec: Any) -> dict[str, Any]:
    return dataclasses.asdict(spec)


def posterior_of(stored: dict[str, Any]) -> Any:
    return TypeAdapter(PosteriorSpec).validate_python(stored)


@cache
def method_schemas() -> dict[str, dict[str, Any]]:
    """JSON schemas by kind and name, with each method's families and needs where it has any."""

    def entries(types: dict[str, Any], extra: dict[str, dict[str, Any]]) -> dict[str, Any]:
        return {name: {"schema": TypeAdapter(t).json_schema(), **extra.get(name, {})} for name, t in types.items()}

    def declared(registry: Any) -> dict[str, dict[str, Any]]:
        return {
            name: {"needs": list(entry.needs), "families": list(getattr(entry, "families", ()))}
            for name, entry in registry.items()
        }

    return {
        "posteriors": entries(dict(bc.POSTERIORS), {}),
        "models": entries(dict(bc.MODELS), {}),
        "acquisitions": entries({n: e.options for n, e in bc.ACQUISITIONS.items()}, declared(bc.ACQUISITIONS)),
        "selections": entries({n: e.options for n, e in bc.SELECTIONS.items()}, declared(bc.SELECTIONS)),
    }
