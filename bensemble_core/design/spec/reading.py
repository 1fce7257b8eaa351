"""JSON values read as what a spec asks for. A refusal says what was expected and carries a JSON pointer (RFC 6901)."""

import difflib
import keyword
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bensemble_core.design.spec.expressions import RESERVED, constant
from bensemble_core.errors import InvalidSpec

LARGEST = 1e300  # number of a list
WHOLE = 2.0**53  # beyond, whole numbers next to each other are the same float
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,31}", re.ASCII)
_KINDS = {
    type(None): "null",
    bool: "a truth value",
    int: "a number",
    float: "a number",
    str: "a text",
    list: "a list",
    tuple: "a list",
    dict: "an object",
}


@dataclass(frozen=True, slots=True)
class Json:
    """A JSON value and the pointer to it. The methods check it, and raise InvalidSpec with that pointer."""

    value: Any
    pointer: str = ""

    def refuse(self, message: str) -> InvalidSpec:
        return InvalidSpec(message, pointer=self.pointer)

    def expected(self, what: str) -> InvalidSpec:
        """A refusal of a value of another type."""
        return self.refuse(f"expected {what}, got {_KINDS.get(type(self.value), 'something else')}")

    def inside(self, step: object, value: Any = None) -> "Json":
        """A value under a key or an index of this one."""
        return Json(value, self.pointer + "/" + str(step).replace("~", "~0").replace("/", "~1"))

    def members(self) -> dict[str, "Json"]:
        """The values of an object, by key."""
        if not isinstance(self.value, Mapping) or not all(isinstance(key, str) for key in self.value):
            raise self.expected("an object")
        return {key: self.inside(key, value) for key, value in self.value.items()}

    def fields(self, *required: str, **optional: Any) -> dict[str, "Json"]:
        """The values of an object with known keys only; optional ones that are missing have the value given here."""
        found, known = self.members(), (*required, *optional)
        for key in found:
            if key not in known:
                near = difflib.get_close_matches(key[:40], known, n=1)
                hint = f"did you mean {near[0]}? " if near else ""
                raise self.inside(key[:80]).refuse(f"unknown key; {hint}there is {', '.join(known)}")
        for key in required:
            if key not in found:
                raise self.inside(key).refuse(f"{key} is missing")
        return {key: self.inside(key, value) for key, value in optional.items()} | found

    def choice(self, key: str, choices: Collection[str]) -> str:
        """The text under a key that says which of several kinds of object this is."""
        found = self.members()
        if key not in found:
            raise self.inside(key).refuse(f"{key} is missing")
        return found[key].text(choices=choices)

    def named(self, what: str, taken: set[str], *, least: int = 1, most: int) -> list[tuple[str, "Json"]]:
        """The members of an object, sorted, whose keys are new names; they are added to `taken`."""
        found = sorted(self.members().items())
        if not least <= len(found) <= most:
            raise self.refuse(f"expected {least} to {most} {what}, got {len(found)}")
        for label, value in found:
            value.add_name(label, taken)
        return found

    def add_name(self, label: str, taken: set[str]) -> str:
        """A new name for this value, which expressions can use; it is added to `taken`."""
        if not _NAME.fullmatch(label) or keyword.iskeyword(label):
            raise self.refuse(
                "a name has up to 32 ASCII letters (a-z, A-Z), digits and _, starts with a letter and is not a word "
                "of Python; write theta for θ"
            )
        if label in RESERVED:
            raise self.refuse(f"{label} is a function or a constant of expressions; choose another name")
        if label in taken:
            raise self.refuse(f"the name {label} is used twice")
        taken.add(label)
        return label

    def entries(self, *, least: int = 1, most: int) -> Sequence[Any]:
        """A list of so many entries, as plain values."""
        if not isinstance(self.value, (list, tuple)):
            raise self.expected("a list")
        if not least <= len(self.value) <= most:
            wanted = f"{least}" if least == most else f"{least} to {most}"
            raise self.refuse(f"expected {wanted} entries, got {len(self.value)}")
        return self.value

    def items(self, *, least: int = 1, most: int) -> list["Json"]:
        return [Json(value, f"{self.pointer}/{i}") for i, value in enumerate(self.entries(least=least, most=most))]

    def text(self, *, choices: Collection[str] | None = None, most: int = 200) -> str:
        if not isinstance(self.value, str):
            raise self.expected("a text")
        if len(self.value) > most:
            raise self.refuse(f"expected at most {most} characters, got {len(self.value)}")
        if choices is not None and self.value not in choices:
            raise self.refuse(f"expected one of {', '.join(choices)}, got {self.value!r}")
        return self.value

    def number(self, *, gt: float = -math.inf, ge: float = -math.inf, le: float = math.inf) -> float:
        """A finite number within bounds, or an expression without names that gives one."""
        found = constant(self.value, self.pointer)
        if not (found > gt and ge <= found <= le):
            bounds = {"above": gt, "at least": ge, "at most": le}
            wanted = " and ".join(f"{word} {bound:g}" for word, bound in bounds.items() if math.isfinite(bound))
            raise self.refuse(f"expected a number {wanted}, got {found:g}")
        return found

    def whole(self, *, ge: float = -WHOLE, le: float = WHOLE) -> int:
        found = self.number(ge=ge, le=le)
        if found != int(found):
            raise self.refuse(f"expected a whole number, got {found:g}")
        return int(found)

    def numbers(self, *, least: int = 1, most: int, ge: float = -LARGEST) -> list[float]:
        """A list of plain numbers: it may be long, so that its entries are not read as expressions."""
        found = self.entries(least=least, most=most)
        for i, x in enumerate(found):
            if not isinstance(x, (int, float)) or isinstance(x, bool):
                raise self.inside(i, x).expected("a number")
            if not ge <= x <= LARGEST:
                bound = f" of at least {ge:g}" if ge > -LARGEST else ""
                raise self.inside(i).refuse(f"expected a finite number{bound}, got {x!r:.40}")
        return list(map(float, found))

    def matrix(self, *, rows: int, columns: int, ge: float = -LARGEST) -> list[list[float]]:
        return [row.numbers(least=columns, most=columns, ge=ge) for row in self.items(least=rows, most=rows)]

    def probabilities(self, n: int) -> list[float]:
        """n numbers of at least 0 that sum to 1 (within 1e-6, then made exact); equal ones where none are given."""
        if self.value is None:
            return [1 / n] * n
        found = self.numbers(least=n, most=n, ge=0)
        total = math.fsum(found)
        if abs(total - 1) > 1e-6:
            raise self.refuse(f"expected probabilities that sum to 1, got {total:g}")
        return [p / total for p in found]

    def labels(self, *, most: int) -> tuple[str, ...]:
        """At least two different texts; none where null."""
        found = () if self.value is None else tuple(entry.text() for entry in self.items(least=2, most=most))
        if len(set(found)) < len(found):
            raise self.refuse("expected different labels")
        return found
