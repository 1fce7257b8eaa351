"""Query parameters that a route does not have are refused: a misspelt one would silently be ignored."""

from collections.abc import Awaitable, Callable, Iterator

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant

from app.errors import SHOWN, Malformed, did_you_mean, json_pointer

MAX_ERRORS = 20


def refuse_unknown(
    dependant: Dependant, handle: Callable[[Request], Awaitable[Response]]
) -> Callable[[Request], Awaitable[Response]]:
    """The handler of a route, which answers 422 to what is not in the route's signature."""
    known = dict.fromkeys(_names(dependant))
    taken = f"the parameters here are {', '.join(known)}" if known else "there are none here"

    async def checked(request: Request) -> Response:
        unknown = [name for name in dict.fromkeys(request.query_params.keys()) if name not in known]
        if unknown:
            errors = [
                {
                    "pointer": json_pointer("query", name[:SHOWN]),
                    "detail": f"there is no query parameter {name[:SHOWN]!r}{did_you_mean(name, known)}",
                }
                for name in unknown[:MAX_ERRORS]
            ]
            raise Malformed("; ".join([*(error["detail"] for error in errors[:3]), taken]), errors=errors)
        return await handle(request)

    return checked


def _names(dependant: Dependant) -> Iterator[str]:
    for field in dependant.query_params:
        yield field.alias
    for each in dependant.dependencies:
        yield from _names(each)
