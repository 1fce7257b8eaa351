"""The immutable pool: row shards to memory-map, payloads, keys and their index, and a manifest written last.

    manifest.json                 n_rows, width, shards, …
    features-00000.npy …          float32 [rows, width]; all but the last have `shard_rows` rows
    keys.bin  keys.offsets.npy  keys.hashes.npy  keys.rows.npy        only if the rows have keys
    payloads.bin  payloads.offsets.npy                                only if a row has a payload

Labels are not here: they are events in the database.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.storage.key_index import Hash, KeyIndex, hash64
from app.storage.npy_file import HEADER_BYTES
from app.storage.objects import Objects
from app.storage.pool_writer import CHUNK_ROWS, PoolWriter, shard_rows
from app.storage.readers.batch import Features
from app.storage.texts import Texts, as_rows

__all__ = ["CHUNK_ROWS", "Pool", "PoolWriter", "shard_rows"]


FEW = 16  # one row in so many is fetched by itself rather than with its remote shard


class Pool:
    """Memory-maps are opened at first use and kept; nothing is read before it is asked for."""

    def __init__(self, objects: Objects, prefix: str, manifest: dict[str, Any], *, hash_key: Hash = hash64) -> None:
        self.manifest = manifest
        self.n_rows: int = manifest["n_rows"]
        self.width: int = manifest["width"]
        self.has_keys: bool = manifest["has_keys"]
        self.has_payloads: bool = manifest["has_payloads"]
        self._objects = objects
        self._prefix = prefix
        self._hash_key = hash_key
        self._maps: dict[int, Features] = {}

    @classmethod
    def open(cls, objects: Objects, prefix: str, *, hash_key: Hash = hash64) -> "Pool":
        return cls(objects, prefix, json.loads(objects.get(f"{prefix}/manifest.json")), hash_key=hash_key)

    @property
    def n_shards(self) -> int:
        return len(self.manifest["shards"])

    def shard(self, index: int) -> tuple[int, Features]:
        """(first row, [rows, width] memory-mapped)"""
        return index * self.manifest["shard_rows"], self._load(self.manifest["shards"][index]["key"])

    def shard_rows(self, index: int) -> int:
        n_rows: int = self.manifest["shards"][index]["n_rows"]
        return n_rows

    def expect(self, index: int) -> None:
        """Have the disk begin to read a shard that is about to be scanned, so that reading and computing overlap."""
        path = self._objects.local_path(f"{self._prefix}/{self.manifest['shards'][index]['key']}")
        if hasattr(os, "posix_fadvise"):
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)

    def shards(self) -> Iterator[tuple[int, Features]]:
        for index in range(self.n_shards):
            yield self.shard(index)

    def rows(self, indices: Iterable[int] | NDArray[Any]) -> Features:
        """[k, width], in the order asked for."""
        wanted = as_rows(indices, self.n_rows)
        found = np.empty((len(wanted), self.width), dtype=np.float32)
        shard = wanted // self.manifest["shard_rows"]
        order = np.argsort(shard, kind="stable")
        edges = np.flatnonzero(np.diff(shard[order])) + 1
        for group in np.split(order, edges):
            if len(group):
                index = int(shard[group[0]])
                found[group] = self._gather(index, wanted[group] - index * self.manifest["shard_rows"])
        return found

    def keys(self, indices: Iterable[int] | NDArray[Any]) -> list[str]:
        wanted = as_rows(indices, self.n_rows)
        if not self.has_keys:
            return [str(row) for row in wanted.tolist()]
        return [text.decode() for text in self._keys.take(wanted)]

    def payloads(self, indices: Iterable[int] | NDArray[Any]) -> list[Any]:
        """Parsed JSON; None for a row without one."""
        wanted = as_rows(indices, self.n_rows)
        if not self.has_payloads:
            return [None] * len(wanted)
        return [json.loads(text) if text else None for text in self._payloads.take(wanted)]

    def row_of(self, keys: Sequence[str]) -> NDArray[np.int64]:
        """Rows [k]; -1 where no row has that key. Without keys of its own, a row's key is its number."""
        if self.has_keys:
            return self._index.find(keys)
        return np.array([self._implicit_row(key) for key in keys], dtype=np.int64)

    def rows_of_prefix(self, prefix: str, *, start: int, limit: int) -> NDArray[np.int64]:
        """The first `limit` rows, from `start` on, whose keys begin like this."""
        if self.has_keys:
            return self._keys.starting_with(prefix.encode("utf-8", "surrogatepass"), start=start, limit=limit)
        first = self._implicit_row(prefix)
        if first < 0:
            return np.empty(0, dtype=np.int64)
        last, found = first, []
        while first < self.n_rows:  # 12, then 120 to 129, then 1200 to 1299
            found.append(np.arange(max(first, start), min(last + 1, self.n_rows)))
            if first == 0:
                break
            first, last = 10 * first, 10 * last + 9
        return np.concatenate(found)[:limit]

    def _gather(self, index: int, rows: NDArray[np.int64]) -> Features:
        entry = self.manifest["shards"][index]
        key = f"{self._prefix}/{entry['key']}"
        if not self._objects.is_at_hand(key) and len(rows) * FEW < entry["n_rows"]:
            size = 4 * self.width
            texts = self._objects.get_ranges(key, (HEADER_BYTES + rows * size).tolist(), [size] * len(rows))
            return np.frombuffer(b"".join(texts), dtype="<f4").reshape(-1, self.width)
        shard = self._maps.get(index)
        if shard is None:
            shard = self.shard(index)[1]
            if self._objects.is_local:  # a map of a cached file would keep its disk space
                self._maps[index] = shard
        return shard[rows]

    def _implicit_row(self, key: str) -> int:
        if not (key.isascii() and key.isdigit() and len(key) < 19):
            return -1
        row = int(key)
        return row if row < self.n_rows and str(row) == key else -1

    @cached_property
    def _keys(self) -> Texts:
        return Texts(self._objects, f"{self._prefix}/keys.bin", f"{self._prefix}/keys.offsets.npy")

    @cached_property
    def _payloads(self) -> Texts:
        return Texts(self._objects, f"{self._prefix}/payloads.bin", f"{self._prefix}/payloads.offsets.npy")

    @cached_property
    def _index(self) -> KeyIndex:
        return KeyIndex(self._load("keys.hashes.npy"), self._load("keys.rows.npy"), self._keys, hash_key=self._hash_key)

    def _load(self, name: str) -> Any:
        return np.load(self._objects.local_path(f"{self._prefix}/{name}"), mmap_mode="r", allow_pickle=False)
