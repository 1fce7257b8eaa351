"""Plain JSON values, checked where they stand: every refusal carries a JSON pointer (RFC 6901)."""

import difflib
import keyword
import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from bensemble_core.design.spec.expressions import RESERVED, constant
from bensemble_core.errors import InvalidSpec

LARGEST = 1e300  # number of a list
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,31}", re.ASCII)
_NUMBERS = frozenset((int, float))


def below(pointer: str, *steps: object) -> str:
    """The pointer of something inside."""
    return pointer + "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


def members(
    value: object, pointer: str, *, known: Collection[str] | None = None, required: Collection[str] = ()
) -> Mapping[str, Any]:
    """An object with string keys, no key that is not known, none missing that is required."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InvalidSpec(f"expected an object, got {kind(value)}", pointer=pointer)
    if known is not None:
        for key in value:
            if key not in known:
                near = difflib.get_close_matches(key[:40], known, n=1)
                hint = f"did you mean {near[0]}? " if near else ""
                raise InvalidSpec(f"unknown key; {hint}there is {', '.join(known)}", pointer=below(pointer, key[:80]))
    for key in required:
        if key not in value:
            raise InvalidSpec(f"{key} is missing", pointer=below(pointer, key))
    return value


def items(value: object, pointer: str, *, least: int = 0, most: int) -> Sequence[Any]:
    """A list of so many entries."""
    if not isinstance(value, (list, tuple)):
        raise InvalidSpec(f"expected a list, got {kind(value)}", pointer=pointer)
    if not least <= len(value) <= most:
        wanted = f"{least}" if least == most else f"{least} to {most}"
        raise InvalidSpec(f"expected {wanted} entries, got {len(value)}", pointer=pointer)
    return value


def text(value: object, pointer: str, *, choices: Collection[str] | None = None, most: int = 200) -> str:
    if not isinstance(value, str):
        raise InvalidSpec(f"expected a text, got {kind(value)}", pointer=pointer)
    if len(value) > most:
        raise InvalidSpec(f"expected at most {most} characters, got {len(value)}", pointer=pointer)
    if choices is not None and value not in choices:
        raise InvalidSpec(f"expected one of {', '.join(choices)}, got {value!r}", pointer=pointer)
    return value


def number(value: object, pointer: str, *, gt: float = -math.inf, ge: float = -math.inf, le: float = math.inf) -> float:
    """A finite number within bounds, or an expression without names that gives one."""
    found = constant(value, pointer)
    if not (found > gt and ge <= found <= le):
        wanted = [f"above {gt:g}"] * (gt > -math.inf) + [f"at least {ge:g}"] * (ge > -math.inf)
        wanted += [f"at most {le:g}"] * (le < math.inf)
        raise InvalidSpec(f"expected a number {' and '.join(wanted)}, got {found:g}", pointer=pointer)
    return found


def whole(value: object, pointer: str, *, ge: float = -(2.0**53), le: float = 2.0**53) -> int:
    found = number(value, pointer, ge=ge, le=le)
    if found != int(found):
        raise InvalidSpec(f"expected a whole number, got {found:g}", pointer=pointer)
    return int(found)


def numbers(value: object, pointer: str, *, least: int = 1, most: int, ge: float = -math.inf) -> list[float]:
    """A list of plain numbers; long ones are not worth an expression each."""
    plain = _plain_numbers(value, least, most, ge)
    if plain is not None:
        return plain
    found = []
    for i, entry in enumerate(items(value, pointer, least=least, most=most)):
        if isinstance(entry, bool) or not isinstance(entry, (int, float)):
            raise InvalidSpec(f"expected a number, got {kind(entry)}", pointer=below(pointer, i))
        if not (abs(entry) <= LARGEST and entry >= ge):
            bound = f" of at least {ge:g}" if ge > -math.inf else ""
            raise InvalidSpec(f"expected a finite number{bound}, got {entry!r:.40}", pointer=below(pointer, i))
        found.append(float(entry))
    return found


def matrix(value: object, pointer: str, *, rows: int, columns: int, ge: float = -math.inf) -> list[list[float]]:
    found = []
    for i, row in enumerate(items(value, pointer, least=rows, most=rows)):
        plain = _plain_numbers(row, columns, columns, ge)
        found.append(numbers(row, below(pointer, i), least=columns, most=columns, ge=ge) if plain is None else plain)
    return found


def _plain_numbers(value: object, least: int, most: int, ge: float) -> list[float] | None:
    """The numbers of a list that has nothing wrong; None where one must look closer. A table has millions of them."""
    if not (isinstance(value, (list, tuple)) and least <= len(value) <= most and _NUMBERS.issuperset(map(type, value))):
        return None
    low = max(ge, -LARGEST)
    wrong = [x for x in value if not low <= x <= LARGEST]
    return None if wrong else list(map(float, value))


def probabilities(value: object, pointer: str, n: int) -> list[float]:
    """n numbers of at least 0 that sum to 1 (within 1e-6, then made exact)."""
    found = numbers(value, pointer, least=n, most=n, ge=0)
    total = math.fsum(found)
    if abs(total - 1) > 1e-6:
        raise InvalidSpec(f"expected probabilities that sum to 1, got {total:g}", pointer=pointer)
    return [p / total for p in found]


def name(value: str, pointer: str, taken: Collection[str] = ()) -> str:
    """A name that expressions can use."""
    if not _NAME.fullmatch(value) or keyword.iskeyword(value):
        raise InvalidSpec(
            "a name has up to 32 ASCII letters (a-z, A-Z), digits and _, starts with a letter and is not a word of "
            "Python; write theta for θ",
            pointer=pointer,
        )
    if value in RESERVED:
        raise InvalidSpec(f"{value} is a function or a constant of expressions; choose another name", pointer=pointer)
    if value in taken:
        raise InvalidSpec(f"the name {value} is used twice", pointer=pointer)
    return value


def kind(value: object) -> str:
    """The JSON word for a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a truth value"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return "a text"
    return "a list" if isinstance(value, (list, tuple)) else "an object" if isinstance(value, Mapping) else "something"
