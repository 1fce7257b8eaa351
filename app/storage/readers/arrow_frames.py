"""The frames of an Arrow IPC stream, looked at before pyarrow decodes them.

pyarrow believes the lengths that a frame announces, and unpacks compressed buffers whatever they grow to. This walk
reads the few bytes that say it: rows, body length, unpacked length. A file is the same stream between two magics.
Layout: https://arrow.apache.org/docs/format/Columnar.html#encapsulated-message-format
"""

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from app.storage.errors import BadData

FILE_MAGIC = b"ARROW1"
MAX_METADATA = 64 * 2**20
DICTIONARY, RECORD_BATCH = 2, 3


@dataclass(frozen=True, kw_only=True)
class Frame:
    n_rows: int  # 0 for a dictionary
    n_bytes: int  # unpacked
    is_compressed: bool
    is_batch: bool


class Table:
    """A flatbuffers table; every read is checked against the buffer by `struct`."""

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self._position = position
        (back,) = struct.unpack_from("<i", data, position)
        self._fields = position - back
        if self._fields < 0:
            raise struct.error("a table points before its buffer")
        (self._fields_size,) = struct.unpack_from("<H", data, self._fields)

    def scalar(self, slot: int, form: str) -> int:
        at = self._at(slot)
        return int(struct.unpack_from(form, self._data, at)[0]) if at else 0

    def table(self, slot: int) -> "Table | None":
        at = self._at(slot)
        return Table(self._data, at + struct.unpack_from("<I", self._data, at)[0]) if at else None

    def pairs(self, slot: int) -> list[tuple[int, int]]:
        """A vector of structs of two int64."""
        at = self._at(slot)
        if not at:
            return []
        start = at + struct.unpack_from("<I", self._data, at)[0]
        (n,) = struct.unpack_from("<I", self._data, start)
        if n * 16 > len(self._data):
            raise struct.error("a vector is longer than its buffer")
        return [struct.unpack_from("<qq", self._data, start + 4 + 16 * i) for i in range(n)]

    def _at(self, slot: int) -> int:
        entry = 4 + 2 * slot
        if entry + 2 > self._fields_size:
            return 0
        (offset,) = struct.unpack_from("<H", self._data, self._fields + entry)
        return self._position + offset if offset else 0


def walk(source: BinaryIO, start: int, n_batches: int | None) -> Iterator[Frame]:
    """Up to that many batches (a file's footer says how many), or to the end marker, which a stream must have."""
    size = source.seek(0, io.SEEK_END)
    position, found = start, 0
    while n_batches is None or found < n_batches:
        source.seek(position)
        prefix = source.read(8)
        if len(prefix) < 8:
            raise BadData("The Arrow data ends without its end marker; it was cut off: close the writer, upload again.")
        marker, length = struct.unpack("<Ii", prefix)
        if marker != 0xFFFFFFFF:
            raise BadData("The Arrow data is not framed as of version 0.15 (2019); write it with a newer library.")
        if length == 0:
            if n_batches is not None:
                raise BadData("The Arrow file has fewer record batches than its footer says; write it anew.")
            return
        if not 0 < length <= MAX_METADATA or position + 8 + length > size:
            raise BadData(
                f"An Arrow frame at byte {position:,} announces {length:,} bytes; the file is cut off or broken."
            )
        try:
            message = Table(*_root(source.read(length)))
            kind, body = message.scalar(1, "<B"), message.scalar(3, "<q")
            position += 8 + length
            if body < 0 or position + body > size:
                raise BadData("The Arrow data ends inside a record batch; it was cut off: upload it again.")
            frame = _frame(message, kind, source, position, body)
        except struct.error as error:
            raise BadData(f"An Arrow frame before byte {position:,} cannot be read ({error}); write it anew.") from None
        if frame is not None:
            found += frame.is_batch
            yield frame
        position += body


def _root(data: bytes) -> tuple[bytes, int]:
    return data, int(struct.unpack_from("<I", data, 0)[0])


def _frame(message: Table, kind: int, source: BinaryIO, position: int, body: int) -> Frame | None:
    header = message.table(2)
    if kind not in (DICTIONARY, RECORD_BATCH) or header is None:
        return None
    batch = header if kind == RECORD_BATCH else header.table(1)
    if batch is None:
        raise struct.error("a dictionary without values")
    n_rows = batch.scalar(0, "<q")
    if n_rows < 0:
        raise struct.error(f"a batch of {n_rows} rows")
    is_compressed = batch.table(3) is not None
    n_bytes = body
    if is_compressed:
        n_bytes = 0
        for offset, length in batch.pairs(2):
            if length == 0:
                continue
            if offset < 0 or length < 8 or offset + length > body:
                raise struct.error("a buffer outside its body")
            source.seek(position + offset)
            (unpacked,) = struct.unpack("<q", source.read(8))
            n_bytes += length if unpacked == -1 else unpacked
            if unpacked < -1:
                raise struct.error(f"a buffer of {unpacked} bytes")
    is_batch = kind == RECORD_BATCH
    return Frame(n_rows=n_rows if is_batch else 0, n_bytes=n_bytes, is_compressed=is_compressed, is_batch=is_batch)
