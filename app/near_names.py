"""Names that nobody knows, and the known ones that were probably meant."""

from collections.abc import Iterable
from difflib import get_close_matches

SHOWN = 64  # characters of a name that came from outside


def advice(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'limit'?`, or nothing if no known name is near."""
    near = get_close_matches(name[:SHOWN], list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
