"""Hyper-parameters as frozen dataclasses: bounds live in field metadata, and are checked here without pydantic.

`field(default=5, metadata={"ge": 1, "le": 1000, "description": …})` is read by the service's schemas and by `check`.
"""

import math
import operator
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from numbers import Real
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from bensemble_core.errors import InvalidOption

T = TypeVar("T")

STRICT: dict[str, Any] = {"extra": "forbid", "allow_inf_nan": False}  # the value of every __pydantic_config__
LONGEST = 60  # characters of a value that a message quotes

_BOUNDS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "ge": ("at least", lambda value, bound: value >= bound),
    "gt": ("above", lambda value, bound: value > bound),
    "le": ("at most", lambda value, bound: value <= bound),
    "lt": ("below", lambda value, bound: value < bound),
    "min_length": ("at least this many entries:", lambda value, bound: len(value) >= bound),
    "max_length": ("at most this many entries:", lambda value, bound: len(value) <= bound),
}


def make(kind: type[T], options: Mapping[str, Any]) -> T:
    """An entry from its options; an unknown option is named together with those there are."""
    title = _title(kind)
    known = [f.name for f in fields(kind) if f.name != "name"]  # type: ignore[arg-type]
    for option in options:
        if option not in known and option != "name":
            raise InvalidOption(f"{title} has no option {option!r}; its options are {', '.join(known) or 'none'}")
    hints = get_type_hints(kind)
    made = kind(**{k: _as_tuple(v, hints[k]) for k, v in options.items()})
    check(made)
    return made


def document(*kinds: type[Any]) -> None:
    """List the options of entries, with their meaning, default and bounds, where `help(kind)` shows them."""
    for kind in kinds:
        lines = [
            f"{item.name}: {item.metadata.get('description', 'its name')} (default {default_of(item)!r}{_bounds(item)})"
            for item in fields(kind)
        ]
        kind.__init__.__doc__ = "\n".join(lines)


def default_of(item: "Field[Any]") -> Any:
    """The default of an option, made anew where it is made by a factory."""
    return item.default if item.default_factory is MISSING else item.default_factory()


def _bounds(item: "Field[Any]") -> str:
    return "".join(
        f", {words} {item.metadata[bound]:,}" for bound, (words, _) in _BOUNDS.items() if bound in item.metadata
    )


def check(entry: object) -> None:
    """Raise InvalidOption unless every option has its declared type and lies within its bounds."""
    values = {item.name: getattr(entry, item.name) for item in fields(entry)}  # type: ignore[arg-type]
    check_types(type(entry), values)
    for item in fields(entry):  # type: ignore[arg-type]
        if values[item.name] is not None:
            _check_bounds(entry, item, values[item.name])


def check_types(kind: type[Any], options: Mapping[str, Any]) -> None:
    """Raise InvalidOption unless every option is of the type that the entry declares."""
    hints = get_type_hints(kind)
    for name, value in options.items():
        if not _is_a(value, hints[name]):
            raise InvalidOption(f"{_title(kind)}: {name} has to be {_describe(hints[name])}, got {value!r}")


def is_number(value: Any) -> bool:
    """Finite and real, of any library; true and false are none."""
    return not isinstance(value, bool) and isinstance(value, Real) and _is_finite(value)


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number that no float can hold
        return False


def quoted(value: Any) -> str:
    """A value in a message: its beginning, and of a whole number with thousands of digits that it is one."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no number with so many digits
        return "a whole number with thousands of digits"
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def whole(value: Any, what: str) -> int:
    """A whole number of any library (numpy's too) as Python's own; anything else, true and false too, is refused."""
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise InvalidOption(f"{what} has to be a whole number, got {value!r}")


def seed_of(value: Any) -> int:
    """A seed as the service takes it and a database stores it."""
    seed = whole(value, "the seed")
    if not 0 <= seed < 2**63:
        raise InvalidOption(f"the seed is at least 0 and below 2**63, got {seed}")
    return seed


def to_json(entry: object) -> dict[str, Any]:
    """Name and options of an entry as plain JSON."""
    values = {f.name: getattr(entry, f.name) for f in fields(entry)}  # type: ignore[arg-type]
    return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}


def _check_bounds(entry: object, item: "Field[Any]", value: Any) -> None:
    for bound, (words, holds) in _BOUNDS.items():
        if bound in item.metadata and not holds(value, item.metadata[bound]):
            limits = " and ".join(f"{_BOUNDS[b][0]} {item.metadata[b]}" for b in _BOUNDS if b in item.metadata)
            raise InvalidOption(f"{_title(type(entry))}: {item.name} is {limits} ({words} failed), got {value!r}")


def _is_a(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if origin is Literal:
        return value in get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_is_a(value, option) for option in get_args(hint))
    if origin is tuple:
        return isinstance(value, (tuple, list)) and all(_is_a(v, get_args(hint)[0]) for v in value)
    if hint is float:  # whole numbers are fine, booleans are not, and JSON knows no NaN
        return isinstance(value, (int, float)) and not isinstance(value, bool) and _is_finite(value)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint is None:
        return value is None
    return isinstance(value, hint)


def _as_tuple(value: Any, hint: Any) -> Any:
    return tuple(value) if isinstance(value, list) and get_origin(hint) is tuple else value


def _describe(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(repr(a) for a in get_args(hint))
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(_describe(a) for a in get_args(hint))
    if get_origin(hint) is tuple:
        return f"a list of {_describe(get_args(hint)[0])}"
    return {int: "a whole number", float: "a finite number", bool: "true or false", type(None): "nothing"}.get(
        hint, str(hint)
    )


def _title(kind: type[Any]) -> str:
    return str(getattr(kind, "name", kind.__name__))
