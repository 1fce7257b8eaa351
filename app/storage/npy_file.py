"""An .npy file that grows by rows; its header is written last, in room kept for it."""

from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

HEADER_BYTES = 128


class NpyWriter:
    def __init__(self, path: Path, dtype: np.dtype[Any], row_shape: tuple[int, ...]) -> None:
        self.path = path
        self.n_rows = 0
        self._dtype = dtype.newbyteorder("<")
        self._row_shape = row_shape
        self._file = path.open("wb", buffering=0)
        self._file.write(bytes(HEADER_BYTES))

    def write(self, rows: NDArray[Any]) -> None:
        rows = np.ascontiguousarray(rows, dtype=self._dtype)
        view = memoryview(cast(Any, rows.reshape(-1).view(np.uint8)))
        while view:
            view = view[self._file.write(view) :]
        self.n_rows += len(rows)

    def close(self) -> None:
        if not self._file.closed:
            self._file.seek(0)
            self._file.write(npy_header(self._dtype, (self.n_rows, *self._row_shape)))
            self._file.close()


def npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Format 1.0, 128 bytes whatever the numbers."""
    text = f"{{'descr': '{dtype.str}', 'fortran_order': False, 'shape': {shape!r}, }}"
    start = b"\x93NUMPY\x01\x00" + (HEADER_BYTES - 10).to_bytes(2, "little")
    return start + text.ljust(HEADER_BYTES - 11).encode("ascii") + b"\n"
