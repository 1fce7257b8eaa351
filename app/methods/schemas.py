"""Method schemas, derived from the library's dataclasses: a method added there appears here by itself."""

import dataclasses
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, TypeAdapter, ValidatorFunctionWrapHandler, WrapValidator

import bensemble_core as bc
from app.methods.unions import one_of
from bensemble_core import options
from bensemble_core.acquisition import Auto


def _as_given(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """Options of their own type, as the library wants them: pydantic would make a number of "5" and of true.

    (Its strict mode would also refuse the list that JSON has for a tuple.)
    """
    made = validate(value)
    if isinstance(value, dict):
        try:
            options.check_types(type(made), value)
        except bc.InvalidOption as error:
            raise ValueError(str(error)) from error
    return made


if TYPE_CHECKING:
    PosteriorSpec = Any
    ModelSpec = Any
    AcquisitionSpec = Any
    SelectionSpec = Any
else:

    def _spec(kinds: Iterable[type[Any]]) -> Any:
        return Annotated[one_of(kinds, "name"), WrapValidator(_as_given)]

    PosteriorSpec = _spec(bc.POSTERIORS.values())
    ModelSpec = _spec(bc.MODELS.values())

    def _choice(kinds: Iterable[type[Any]]) -> Any:
        """One of them, or "auto", which becomes None as if the request had left it out."""
        spec = _spec((*kinds, Auto))
        by_name = BeforeValidator(
            lambda value: {"name": "auto"} if value == "auto" else value,
            json_schema_input_type=spec | Literal["auto"],
        )
        return Annotated[spec, by_name, AfterValidator(lambda made: None if isinstance(made, Auto) else made)]

    AcquisitionSpec = _choice(e.options for e in bc.ACQUISITIONS.values())
    SelectionSpec = _choice(e.options for e in bc.SELECTIONS.values())


def as_json(spec: Any) -> dict[str, Any]:
    return dataclasses.asdict(spec)


def as_json_or_none(spec: Any | None) -> dict[str, Any] | None:
    """None where a request left the choice to the service."""
    return as_json(spec) if spec is not None else None


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
