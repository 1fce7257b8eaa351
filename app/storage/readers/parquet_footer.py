"""How many numbers each column of a Parquet file announces, read from the footer by hand.

A list column can spell a gigabyte in a few bytes, and only the column chunk's count of values tells. pyarrow has that
count, but a broken footer ends the whole process there (a C++ exception that its bindings do not catch).
Layout: thrift's compact protocol; FileMetaData.row_groups (4) → columns (1) → meta_data (3) → path (3), values (5).
"""

import io
from typing import Any, BinaryIO

from app.storage.errors import BadData

MAX_FOOTER = 256 * 2**20
MAX_DEPTH = 16

Fields = dict[int, Any]


def announced_values(source: BinaryIO) -> list[dict[str, int]]:
    """For each row group, the number of values of each column by its dotted path."""
    size = source.seek(0, io.SEEK_END)
    source.seek(max(0, size - 8))
    length = int.from_bytes(source.read(4), "little")
    if source.read(4) != b"PAR1" or length > min(size - 12, MAX_FOOTER):
        raise BadData("The Parquet footer is not at the end of the file; it was cut off: upload it again.")
    source.seek(size - 8 - length)
    try:
        fields = Compact(source.read(length)).struct()
        return [_values(group) for group in fields[4]]
    except (IndexError, KeyError, TypeError, AttributeError, UnicodeDecodeError):
        raise BadData("The Parquet footer cannot be read; write the file anew and upload it again.") from None


def _values(group: Fields) -> dict[str, int]:
    chunks = [chunk[3] for chunk in group[1]]
    return {".".join(part.decode() for part in meta[3]): int(meta[5]) for meta in chunks}


class Compact:
    """Thrift's compact protocol into dicts by field number; reads past the end raise IndexError."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def struct(self, depth: int = 0) -> Fields:
        if depth > MAX_DEPTH:
            raise IndexError("nested too deeply")
        fields: Fields = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._signed()
            kind = head & 15
            fields[number] = kind == 1 if kind in (1, 2) else self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2, 3):
            return self._byte()
        if kind in (4, 5, 6):
            return self._signed()
        if kind == 7:
            return self._bytes(8)
        if kind == 8:
            return self._bytes(self._varint())
        if kind in (9, 10):
            head = self._byte()
            n = head >> 4 if head >> 4 < 15 else self._varint()
            if n > len(self._data) - self._at:  # an item takes a byte at least
                raise IndexError("a list longer than the footer")
            return [self._value(head & 15, depth + 1) for _ in range(n)]
        if kind == 12:
            return self.struct(depth + 1)
        raise IndexError(f"type {kind} is not in a Parquet footer")

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _bytes(self, n: int) -> bytes:
        self._at += n
        if self._at > len(self._data):
            raise IndexError("a text longer than the footer")
        return self._data[self._at - n : self._at]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise IndexError("a number of more than 64 bits")

    def _signed(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
