"""Bodies too large to be parsed at once: what is long in them stays text until it is used, and is read in pieces."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Annotated, Any, Generic, TypeVar, get_args

from fastapi.exceptions import RequestValidationError
from pydantic import Field, GetCoreSchemaHandler, TypeAdapter, ValidationError
from pydantic_core import CoreSchema, core_schema, from_json

from app.errors import Malformed, TooLarge, json_pointer
from app.web.bodies.json_pieces import PIECE_BYTES, NotJson, Text, end_of_value, members, pieces, skip_space

T = TypeVar("T")
Path = tuple[str | int, ...]

MAX_ELEMENT_BYTES = 4 * 2**20  # of a long list, as text
MAX_OBJECT_BYTES = 64 * 1024  # of an element that is an object with names of ours
MAX_DEPTH = 16  # of lists and objects that are too long to be parsed at once
_PLACE = re.compile(r" at line (\d+) column (\d+)$")


@cache
def _anything() -> TypeAdapter[list[Any]]:
    return TypeAdapter(list[Any])


class LongObject(dict[str, Any]):
    """An object that was read member by member."""


@dataclass(kw_only=True, eq=False)
class Document:
    """The text of a body. At most `max_bytes` of it may lie outside of long lists."""

    text: Text
    max_bytes: int
    n_bytes: int = field(default=0, init=False)

    def read(self) -> Any:
        """What the JSON says, but in place of each long list a `LongList`."""
        try:
            start = skip_space(self.text, 0)
            end = end_of_value(self.text, start)
            if skip_space(self.text, end) != len(self.text):
                raise NotJson("the end of the body", end)
            return self.value(start, end, ())
        except NotJson as error:
            raise not_json(str(error)) from error

    def value(self, start: int, end: int, path: Path) -> Any:
        first = self.text[start : start + 1]
        if end - start <= PIECE_BYTES or first not in (b"[", b"{"):
            self.n_bytes += end - start
            if self.n_bytes > self.max_bytes:
                raise TooLarge(f"outside of its long lists the body has more than {self.max_bytes:,} bytes; shorten it")
            return self._parsed(start, end)
        if len(path) >= MAX_DEPTH:
            raise Malformed(f"what is as long as this is nested at most {MAX_DEPTH} deep", pointer=json_pointer(*path))
        if first == b"[":
            return LongList[Any](document=self, start=start, end=end, path=path)
        found = LongObject()
        for name_span, value_span in members(self.text, start, end):
            name = self._parsed(*name_span)
            found[name] = self.value(*value_span, (*path, name))
        return found

    def _parsed(self, start: int, end: int) -> Any:
        try:
            return from_json(self.text[start:end])
        except ValueError as error:
            raise self.refusal(str(error), start, end) from None

    def refusal(self, reason: str, start: int, end: int) -> RequestValidationError:
        """A parser's complaint about text[start:end], with its place in the body instead."""
        if place := _PLACE.search(reason):
            lines = self.text[start:end].split(b"\n")[: int(place[1]) - 1]
            at = start + sum(len(line) + 1 for line in lines) + int(place[2]) - 1
            reason = f"{reason[: place.start()]} at byte {at:,}"
        return not_json(reason)


@dataclass(frozen=True, kw_only=True, eq=False)
class LongList(Generic[T]):
    """A list that is still text. `path` leads to it in the body, `adapter` checks elements once it is known what they
    are to be."""

    document: Document
    start: int
    end: int
    path: Path
    adapter: Callable[[], TypeAdapter[list[T]]] = _anything
    max_element_bytes: int | None = None  # as text; None is as for any

    def of(
        self, adapter: Callable[[], TypeAdapter[list[Any]]], max_element_bytes: int | None = None
    ) -> "LongList[Any]":
        return replace(self, adapter=adapter, max_element_bytes=max_element_bytes)

    def pieces(self, *, splits: bool = False) -> Iterator[list[T]]:
        """Consecutive elements, checked; a mistake is refused with its place. With `splits` an element that is itself
        too long comes unchecked, as it is in the document: a `LongList` for a list."""
        n_before, most = 0, self.max_element_bytes or MAX_ELEMENT_BYTES
        try:
            for start, end in pieces(self.document.text, self.start, self.end):
                if end - start <= most:
                    found = self._checked(start, end, n_before)
                elif splits:
                    found = [self.document.value(start, end, (*self.path, n_before))]
                else:
                    raise Malformed(
                        f"it has {end - start:,} bytes, at most {most:,} are taken; shorten it",
                        pointer=json_pointer(*self.path, n_before),
                    )
                yield found
                n_before += len(found)
        except NotJson as error:
            raise not_json(str(error)) from error

    def _checked(self, start: int, end: int, n_before: int) -> list[T]:
        try:
            return self.adapter().validate_json(b"[" + self.document.text[start:end] + b"]")
        except ValidationError as error:
            errors = error.errors()
            if errors[0]["type"] == "json_invalid":  # the bracket before it moves places by one
                raise self.document.refusal(errors[0]["ctx"]["error"], start - 1, end) from None
            found = [(e, e["loc"][0], e["loc"][1:]) for e in errors]
            raise RequestValidationError(
                [{**e, "loc": ("body", *self.path, n_before + int(i), *rest)} for e, i, rest in found]
            ) from error


@dataclass(frozen=True)
class _Long:
    """Lets a `LongList` through, and tells it what its elements are to be."""

    min_length: int = 0
    max_element_bytes: int | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        listed: Any = Annotated[get_args(source)[0], Field(fail_fast=True)]

        @cache
        def adapter() -> TypeAdapter[list[Any]]:
            return TypeAdapter(listed)

        def check(value: Any, check_list: Callable[[Any], Any]) -> Any:
            return value.of(adapter, self.max_element_bytes) if isinstance(value, LongList) else check_list(value)

        schema = handler.generate_schema(Annotated[listed, Field(min_length=self.min_length or None)])
        return core_schema.no_info_wrap_validator_function(check, schema)


Long = Annotated[list[T] | LongList[T], _Long()]
"""A list that may be so long that it is read in pieces. Of a list its first mistake is told, as of `Many`."""
LongNotEmpty = Annotated[list[T] | LongList[T], _Long(min_length=1, max_element_bytes=MAX_OBJECT_BYTES)]
"""One of objects, each of few names: every unknown one would be a mistake to tell."""


def in_pieces(values: Sequence[T] | LongList[T]) -> Iterator[Sequence[T]]:
    """A list that is there already is one piece."""
    if isinstance(values, LongList):
        yield from values.pieces()
    else:
        yield values


def whole(value: Any) -> Any:
    """All of what a document says, for what is used only as a whole."""
    if isinstance(value, LongList):
        return [whole(element) for piece in value.pieces(splits=True) for element in piece]
    if isinstance(value, LongObject):
        return {name: whole(part) for name, part in value.items()}
    return value


def not_json(reason: str) -> RequestValidationError:
    return RequestValidationError(
        [{"type": "json_invalid", "loc": ("body",), "msg": "JSON decode error", "input": {}, "ctx": {"error": reason}}]
    )
