"""Which row has a key: (64-bit hash, row) sorted by hash, searched in a memory-map.

Two keys may share a hash, so a hit is always compared with the real key. The sort is by buckets of the hash's upper
bits, each small enough for memory; 16 bytes a key on disk.
"""

import hashlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from app.storage.errors import BadData
from app.storage.npy_file import NpyWriter
from app.storage.texts import Texts, map_file

BUCKET_KEYS = 2**20
CHUNK_KEYS = 2**20
ENTRY = np.dtype([("hash", "<u8"), ("row", "<i8")])

Hash = Callable[[bytes], int]


def hash64(key: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little")


class KeyIndexWriter:
    def __init__(self, folder: Path, *, hash_key: Hash = hash64) -> None:
        self.hashes_path = folder / "keys.hashes.npy"
        self.rows_path = folder / "keys.rows.npy"
        self._folder = folder
        self._hash_key = hash_key
        self._raw_path = folder / "keys.raw"
        self._raw = self._raw_path.open("wb")
        self._n = 0

    def add(self, keys: Sequence[bytes]) -> None:
        entries = np.empty(len(keys), dtype=ENTRY)
        entries["hash"] = np.fromiter(map(self._hash_key, keys), dtype=np.uint64, count=len(keys))
        entries["row"] = np.arange(self._n, self._n + len(keys))
        self._raw.write(entries.tobytes())
        self._n += len(keys)

    def finish(self, data_path: Path, offsets_path: Path) -> None:
        """Sort, and refuse a key that is there twice; the paths are those of the keys themselves."""
        self._raw.close()
        bits = max(0, min(8, (self._n // BUCKET_KEYS).bit_length()))
        hashes = NpyWriter(self.hashes_path, np.dtype(np.uint64), ())
        rows = NpyWriter(self.rows_path, np.dtype(np.int64), ())
        with ExitStack() as stack:
            stack.callback(hashes.close)
            stack.callback(rows.close)
            for path in self._buckets(bits):
                entries = np.fromfile(path, dtype=ENTRY)
                path.unlink()
                order = np.argsort(entries["hash"], kind="stable")  # so rows ascend within a hash
                entries = entries[order]
                _refuse_repeats(entries, data_path, offsets_path)
                hashes.write(entries["hash"])
                rows.write(entries["row"])

    def close(self) -> None:
        self._raw.close()

    def _buckets(self, bits: int) -> list[Path]:
        if bits == 0:
            return [self._raw_path]
        paths = [self._folder / f"keys.bucket-{i:03d}" for i in range(2**bits)]
        with ExitStack() as stack, self._raw_path.open("rb") as raw:
            files = [stack.enter_context(path.open("wb")) for path in paths]
            while len(entries := np.fromfile(raw, dtype=ENTRY, count=CHUNK_KEYS)):
                bucket = (entries["hash"] >> np.uint64(64 - bits)).astype(np.int64)
                order = np.argsort(bucket, kind="stable")
                ends = np.cumsum(np.bincount(bucket, minlength=2**bits))
                for file, part in zip(files, np.split(entries[order], ends[:-1]), strict=True):
                    file.write(part.tobytes())
        self._raw_path.unlink()
        return paths


def _refuse_repeats(entries: NDArray[np.void], data_path: Path, offsets_path: Path) -> None:
    same = np.flatnonzero(entries["hash"][1:] == entries["hash"][:-1])
    if not len(same):
        return
    offsets = np.load(offsets_path, mmap_mode="r", allow_pickle=False)
    data = map_file(data_path)
    first_rows: dict[bytes, int] = {}
    for position in np.unique(np.concatenate([same, same + 1])).tolist():
        row = int(entries["row"][position])
        key = data[int(offsets[row]) : int(offsets[row + 1])]
        other = first_rows.setdefault(key, row)
        if other != row:
            raise BadData(
                f"Rows {other} and {row} have the same key {key.decode()[:100]!r}; keys name one row each.",
                row=row,
                column="key",
            )


class KeyIndex:
    def __init__(
        self, hashes: NDArray[np.uint64], rows: NDArray[np.int64], keys: Texts, *, hash_key: Hash = hash64
    ) -> None:
        self._hashes = hashes
        self._rows = rows
        self._keys = keys
        self._hash_key = hash_key

    def find(self, keys: Sequence[str]) -> NDArray[np.int64]:
        """Rows [k]; -1 where no row has that key."""
        encoded = [key.encode("utf-8", "surrogatepass") for key in keys]
        wanted = np.fromiter(map(self._hash_key, encoded), dtype=np.uint64, count=len(keys))
        found = np.full(len(keys), -1, dtype=np.int64)
        position = np.searchsorted(self._hashes, wanted, side="left")
        open_ = np.arange(len(keys))
        while len(open_):
            in_range = position[open_] < len(self._hashes)
            open_ = open_[in_range]
            open_ = open_[np.asarray(self._hashes[position[open_]]) == wanted[open_]]
            rows = np.asarray(self._rows[position[open_]])
            is_same = np.fromiter(
                (text == encoded[i] for text, i in zip(self._keys.take(rows), open_.tolist(), strict=True)),
                dtype=bool,
                count=len(open_),
            )
            found[open_[is_same]] = rows[is_same]
            open_ = open_[~is_same]
            position[open_] += 1
        return found
