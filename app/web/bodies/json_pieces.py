"""Where the parts of a long JSON text begin and end, so that it can be parsed piece by piece.

A parser makes objects of a whole text at once, up to fifty bytes of memory for each byte of text, and holds the
interpreter until it has ended: 100 MB kept every other request waiting for seconds. Here the text is only measured,
with regular expressions that look at a window at a time; what is inside a piece is left to pydantic's parser, which
also finds what is wrong with it. Brackets are counted and not told apart, for that parser tells them apart.
"""

import re
from collections.abc import Iterator
from mmap import mmap

Text = bytes | mmap

PIECE_BYTES = 32 * 1024  # parsed at once: 10 ms, where its elements are as small as can be
MAX_NESTING = 200  # as deep as pydantic's parser goes
MAX_NAMES = 10_000  # of an object that is read member by member; each that is unknown would be a mistake to tell

_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_PLAIN = rb'[^"\[\]{}]++'
_FLAT = rb"[\[{](?:%b|%b)*+[\]}]" % (_PLAIN, _STRING)
_NESTED = rb"[\[{](?:%b|%b|%b)*+[\]}]" % (_PLAIN, _STRING, _FLAT)

_SPACE = re.compile(rb"[ \t\n\r]*+")
_SCALAR = re.compile(rb'[^"\[\]{},: \t\n\r]*+')
_TO_QUOTE = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_TO_BRACKET = re.compile(rb"(?:%b|%b|%b)*+" % (_PLAIN, _STRING, _NESTED), re.DOTALL)
_ELEMENTS = re.compile(  # each with the comma after it
    rb'(?:[ \t\n\r]*+(?:%b|%b|[^"\[\]{}, \t\n\r]++)[ \t\n\r]*+,)*+' % (_STRING, _NESTED), re.DOTALL
)


class NotJson(ValueError):
    """`at` is the byte at which something else was expected."""

    def __init__(self, expected: str, at: int) -> None:
        super().__init__(f"expected {expected} at byte {at:,}")
        self.at = at


def skip_space(text: Text, at: int) -> int:
    while True:
        end = _match_end(_SPACE, text, at)
        if end < at + PIECE_BYTES:
            return end
        at = end


def end_of_value(text: Text, at: int) -> int:
    """The byte after the value that begins at `at`."""
    first = text[at : at + 1]
    if first == b'"':
        return _end_of_string(text, at)
    if first not in (b"[", b"{"):
        end = _match_end(_SCALAR, text, at)
        if end == at or end == at + PIECE_BYTES:
            raise NotJson("a value", at)
        return end
    depth, start = 0, at
    while at < len(text):
        found = text[at : at + 1]
        if found in (b"[", b"{"):
            depth, at = depth + 1, at + 1
            if depth > MAX_NESTING:
                raise NotJson(f"lists and objects at most {MAX_NESTING} deep", at - 1)
        elif found in (b"]", b"}"):
            depth, at = depth - 1, at + 1
            if depth == 0:
                return at
        elif found == b'"':  # too long for a window
            at = _end_of_string(text, at)
        at = _match_end(_TO_BRACKET, text, at)
    raise NotJson(f"the end of what begins at byte {start:,}", len(text))


def members(text: Text, start: int, end: int) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Of the object text[start:end]: where each name begins and ends, quotes included, and where its value does."""
    at = skip_space(text, start + 1)
    if text[at : at + 1] == b"}" and at == end - 1:
        return
    for _ in range(MAX_NAMES):
        if text[at : at + 1] != b'"':
            raise NotJson("a name in quotes", at)
        name_end = _end_of_string(text, at)
        colon = skip_space(text, name_end)
        if text[colon : colon + 1] != b":":
            raise NotJson("a colon", colon)
        value = skip_space(text, colon + 1)
        value_end = end_of_value(text, value)
        yield (at, name_end), (value, value_end)
        after = skip_space(text, value_end)
        if _closes(text, after, end, b"}"):
            return
        at = skip_space(text, after + 1)
    raise NotJson(f"at most {MAX_NAMES:,} names in an object of more than {PIECE_BYTES:,} bytes", at)


def pieces(text: Text, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Of the array text[start:end]: where consecutive elements begin and end, as many as fit into a piece, or one."""
    at = skip_space(text, start + 1)
    if text[at : at + 1] == b"]" and at == end - 1:
        return
    while True:
        run_end = _match_end(_ELEMENTS, text, at)
        if run_end > at:
            yield at, run_end - 1
            at = run_end
            continue
        at = skip_space(text, at)
        element_end = end_of_value(text, at)
        yield at, element_end
        after = skip_space(text, element_end)
        if _closes(text, after, end, b"]"):
            return
        at = after + 1


def _closes(text: Text, at: int, end: int, bracket: bytes) -> bool:
    """Whether the array or object ends here; else a comma must be here."""
    found = text[at : at + 1]
    if found == bracket and at == end - 1:
        return True
    if found != b"," or at >= end:
        raise NotJson(f"a comma or {bracket.decode()}", at)
    return False


def _end_of_string(text: Text, at: int) -> int:
    start, at = at, at + 1
    while at < len(text):
        end = _match_end(_TO_QUOTE, text, at)
        if text[end : end + 1] == b'"':
            return end + 1
        if end == at:
            break
        at = end
    raise NotJson(f"the end of the string that begins at byte {start:,}", len(text))


def _match_end(pattern: re.Pattern[bytes], text: Text, at: int) -> int:
    found = pattern.match(text, at, at + PIECE_BYTES)
    return found.end() if found is not None else at
