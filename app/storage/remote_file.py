"""A seekable file over ranged reads. obstore's own lacks what pyarrow and `io.BufferedReader` ask of a file."""

import io
from collections.abc import Callable
from typing import Any

ReadAt = Callable[[int, int], memoryview]


class RemoteFile(io.RawIOBase):
    def __init__(self, read_at: ReadAt, size: int) -> None:
        super().__init__()
        self._read_at = read_at
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError(f"cannot seek to {base + offset}, before the start")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        length = min(len(view), self._size - self._position)
        if length <= 0:
            return 0
        found = self._read_at(self._position, length)
        view[: len(found)] = found
        self._position += len(found)
        return len(found)
