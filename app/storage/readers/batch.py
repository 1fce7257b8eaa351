"""What every reader gives, and what it is told."""

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from app.storage.errors import BadData
from app.storage.readers.rounding import Rounding

Features = NDArray[np.float32]
Label = str | float | list[float] | None
Kind = Literal["npy", "parquet", "arrow", "csv", "ndjson"]

BLOCK_BYTES = 4 * 2**20  # of features in one batch, about


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Consecutive rows. Payloads are JSON text; None is a row without one."""

    features: Features  # [n, width]
    keys: list[str] | None = None
    labels: list[Label] | None = None
    payloads: list[bytes | None] | None = None
    rounding: Rounding | None = None

    def __len__(self) -> int:
        return len(self.features)


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Which columns are not features. None: the column of that very name, if there is one. A name: it must be there.
    `ignored` ones are not looked at, whatever they are called."""

    key: str | None = None
    label: str | None = None
    payload: str | None = None
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Limits:
    max_rows: int = 50_000_000
    max_bytes: int = 64 * 2**30  # features as float32, keys and payloads, decoded
    max_line_bytes: int = 8 * 2**20  # csv, ndjson
    max_payload_bytes: int = 2**20
    max_batch_bytes: int = 512 * 2**20  # an Arrow record batch that has to be held in memory


@dataclass(frozen=True, kw_only=True)
class Request:
    """One file to read, as the readers of the formats take it."""

    source: BinaryIO
    columns: Columns
    width: int
    limits: Limits
    max_block_rows: int = 65_536

    @property
    def block_rows(self) -> int:
        return max(1, min(self.max_block_rows, BLOCK_BYTES // (4 * self.width)))

    @property
    def name_on_disk(self) -> str | None:
        """Of a file that a library can open by itself."""
        raw = getattr(self.source, "raw", None)
        return str(raw.name) if isinstance(raw, io.FileIO) and isinstance(raw.name, str) else None

    def check_rows(self, n_rows: int) -> None:
        if n_rows > self.limits.max_rows:
            raise BadData(f"At most {self.limits.max_rows:,} rows fit in a pool, this file has {n_rows:,}; split it.")
        if n_rows * self.width * 4 > self.limits.max_bytes:
            raise BadData(
                f"{n_rows:,} rows of {self.width} float32 features are {n_rows * self.width * 4:,} bytes, at most "
                f"{self.limits.max_bytes:,} fit in a pool; split it."
            )


@dataclass(frozen=True, kw_only=True)
class Reader:
    """`n_rows` where the format says it beforehand. `decodes_at_once`: the first batch costs more than a few MB.
    `unused` are the columns that are neither features nor key, label or payload; complete after the last batch."""

    batches: Iterator[Batch]
    n_rows: int | None = None
    decodes_at_once: bool = False
    unused: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[Batch]:
        return self.batches


class OpenReader(Protocol):
    def __call__(self, request: Request) -> Reader: ...
