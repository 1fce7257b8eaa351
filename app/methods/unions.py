"""One of several kinds of object, told apart by a key: what a request gets wrong there is said in one sentence."""

import json
from collections.abc import Iterable, Mapping
from functools import reduce
from operator import or_
from typing import Annotated, Any, get_args, get_type_hints

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError


def one_of(kinds: Iterable[type[Any]], key: str) -> Any:
    """Their union, for a field: `key` is a Literal in each. (pydantic's own words are those of its unions' makers.)"""
    types = tuple(kinds)
    names = [name for kind in types for name in get_args(get_type_hints(kind)[key])]
    known = f"{key} is one of {', '.join(names)}"

    def check(value: Any) -> Any:
        if isinstance(value, types) or (isinstance(value, Mapping) and value.get(key) in names):
            return value
        if isinstance(value, Mapping) and key in value:
            said = f"there is no {key} {_quoted(value[key])}; {known}"
        else:
            example = json.dumps({key: names[0]})
            said = f"expected an object with a {key}, such as {example}, got {_quoted(value)}; {known}"
        raise PydanticCustomError("unknown_kind", "{said}", {"said": said})

    return Annotated[reduce(or_, types), Field(discriminator=key), BeforeValidator(check)]


def _quoted(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False).encode(errors="replace").decode()
    return text if len(text) <= 100 else f"{text[:100]}…"
