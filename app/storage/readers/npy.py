"""NumPy's .npy, read block by block. The header is parsed here: no pickle, no surprise, a cap on its length."""

import ast
import io
import math
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from app.storage.errors import BadData, WrongWidth
from app.storage.readers.batch import Batch, Reader, Request
from app.storage.readers.values import as_features

MAGIC = b"\x93NUMPY"
MAX_HEADER = 65_536
BLOCK_BYTES = 2**19  # stays in the processor's cache; a block of 4 MiB spends longer on fresh pages than on its rows
REAL_TYPE = re.compile(r"[<>|=]?(f[248]|[iu][1248]|b1|\?)")


@dataclass(frozen=True, kw_only=True)
class Header:
    dtype: np.dtype[Any]
    is_fortran: bool
    shape: tuple[int, ...]
    offset: int


def open_npy(request: Request) -> Reader:
    header = read_header(request)
    n_rows = header.shape[0]
    expected = header.offset + math.prod(header.shape) * header.dtype.itemsize
    size = request.source.seek(0, io.SEEK_END)
    if size != expected:
        state = "cut off" if size < expected else "followed by something else"
        raise BadData(
            f"The npy header announces shape {header.shape} of {header.dtype}, a file of {expected:,} bytes; this one "
            f"has {size:,}: it is {state}. Upload it again."
        )
    width = math.prod(header.shape[1:])
    if width != request.width:
        raise WrongWidth(
            f"Expected an array [rows, {request.width}] (more axes are flattened), this one has shape {header.shape}.",
            found=width,
        )
    request.check_rows(n_rows)
    batches = _fortran_blocks(request, header) if header.is_fortran else _blocks(request, header)
    return Reader(batches=batches, n_rows=n_rows)


def read_header(request: Request) -> Header:
    source = request.source
    source.seek(0)
    start = source.read(8)
    if len(start) < 8 or start[:6] != MAGIC:
        raise BadData("This is not an npy file (it does not begin with \\x93NUMPY); save it with numpy.save.")
    if (start[6], start[7]) not in ((1, 0), (2, 0), (3, 0)):
        raise BadData(f"npy format {start[6]}.{start[7]} is not known; save with numpy.save (1.0 to 3.0).")
    length_bytes = source.read(2 if start[6] == 1 else 4)
    if len(length_bytes) < (2 if start[6] == 1 else 4):
        raise BadData("The npy header is cut off; upload the file again.")
    (length,) = struct.unpack("<H" if start[6] == 1 else "<I", length_bytes)
    if length > MAX_HEADER:
        raise BadData(
            f"The npy header has {length:,} bytes, at most {MAX_HEADER:,} make sense for an array of numbers."
        )
    text = source.read(length)
    if len(text) < length:
        raise BadData("The npy header is cut off; upload the file again.")
    try:
        fields = ast.literal_eval(text.decode("utf-8" if start[6] == 3 else "latin-1").strip())
        descr, is_fortran, shape = fields["descr"], fields["fortran_order"], fields["shape"]
    except (ValueError, SyntaxError, TypeError, KeyError, RecursionError, MemoryError):
        raise BadData("The npy header cannot be read; save the array with numpy.save.") from None
    if not isinstance(descr, str) or not REAL_TYPE.fullmatch(descr):
        raise BadData(
            f"An npy file holds float16, float32, float64, integers or booleans, this one {str(descr)[:60]!r}; convert "
            "it with array.astype('float32')."
        )
    if not (
        isinstance(shape, tuple)
        and shape
        and all(type(n) is int and 0 <= n < 2**48 for n in shape)
        and isinstance(is_fortran, bool)
    ):
        raise BadData(f"The npy header gives the shape {str(shape)[:60]}; an array [rows, features] is needed.")
    return Header(dtype=np.dtype(descr), is_fortran=is_fortran, shape=shape, offset=source.tell())


def _blocks(request: Request, header: Header) -> Iterator[Batch]:
    n_rows = header.shape[0]
    block_rows = max(1, min(request.block_rows, BLOCK_BYTES // (header.dtype.itemsize * request.width)))
    request.source.seek(header.offset)
    for first in range(0, n_rows, block_rows):
        block = np.empty((min(block_rows, n_rows - first), request.width), dtype=header.dtype)
        _read_into(request, block)
        yield as_features(block, first)


def _fortran_blocks(request: Request, header: Header) -> Iterator[Batch]:
    """In the file a column is contiguous, and the columns of a [rows, a, b] array are in Fortran order of (a, b)."""
    n_rows, item = header.shape[0], header.dtype.itemsize
    columns = np.arange(request.width).reshape(header.shape[1:]).ravel(order="F")
    for first in range(0, n_rows, request.block_rows):
        n = min(request.block_rows, n_rows - first)
        block = np.empty((request.width, n), dtype=header.dtype)
        for position, column in enumerate(columns):
            request.source.seek(header.offset + (position * n_rows + first) * item)
            _read_into(request, block[column])
        yield as_features(block.T, first)


def _read_into(request: Request, block: NDArray[Any]) -> None:
    source = cast(io.BufferedIOBase, request.source)
    view = memoryview(cast(Any, block.view(np.uint8).reshape(-1)))
    while len(view):
        n = source.readinto(view)
        if not n:
            raise BadData("The npy file ends before its last row; upload it again.")
        view = view[n:]
