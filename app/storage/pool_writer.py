"""Batches of rows into a pool, in bounded memory; an aborted pool leaves nothing."""

import json
import zlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import numpy as np

from app.storage.errors import BadData
from app.storage.key_index import Hash, KeyIndexWriter, hash64
from app.storage.npy_file import NpyWriter
from app.storage.objects import Objects
from app.storage.readers.batch import Batch
from app.storage.texts import TextWriter

CHUNK_ROWS = 8192
FORMAT = 1
SHARDS_IN_FLIGHT = 2


def shard_rows(width: int, shard_bytes: int) -> int:
    """A multiple of 8192, so that the chunks that are scored never straddle two shards."""
    return max(CHUNK_ROWS, shard_bytes // (4 * width) // CHUNK_ROWS * CHUNK_ROWS)


class PoolWriter:
    """`with PoolWriter(…) as writer:` add, add, …, finish. Leaving without finish, or by an error, aborts.

    Finished shards are synced or sent in a thread while the next one fills.
    """

    def __init__(
        self,
        objects: Objects,
        prefix: str,
        *,
        width: int,
        shard_bytes: int = 64 * 2**20,
        hash_key: Hash = hash64,
    ) -> None:
        self.n_rows = 0
        self._objects = objects
        self._prefix = prefix
        self._width = width
        self._shard_rows = shard_rows(width, shard_bytes)
        self._hash_key = hash_key
        self._shard: NpyWriter | None = None
        self._crc = 0
        self._shards: list[dict[str, Any]] = []
        self._keys: TextWriter | None = None
        self._index: KeyIndexWriter | None = None
        self._payloads: TextWriter | None = None
        self._stored: list[str] = []
        self._n_bytes = 0
        self._in_flight: deque[Future[None]] = deque()
        self._stack = ExitStack()
        self._folder = self._stack.enter_context(objects.scratch())
        self._sender = ThreadPoolExecutor(max_workers=1, thread_name_prefix="pool-writer")
        self._is_open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_open:
            self.abort()

    def add(self, batch: Batch) -> None:
        if not self._is_open:
            raise RuntimeError("this pool is finished or aborted; open another writer")
        if batch.features.dtype != np.float32 or batch.features.ndim != 2 or batch.features.shape[1] != self._width:
            raise BadData(
                f"Expected float32 rows of {self._width} features, these are {batch.features.dtype} of shape "
                f"{batch.features.shape}."
            )
        self._add_keys(batch)
        self._add_payloads(batch)
        start = 0
        while start < len(batch):
            if self._shard is None:
                path = self._folder / f"features-{len(self._shards):05d}.npy"
                self._shard, self._crc = NpyWriter(path, np.dtype(np.float32), (self._width,)), 0
            part = batch.features[start : start + self._shard_rows - self._shard.n_rows]
            self._shard.write(part)
            self._crc = zlib.crc32(cast(Any, np.ascontiguousarray(part)), self._crc)
            start += len(part)
            if self._shard.n_rows == self._shard_rows:
                self._close_shard()
        self.n_rows += len(batch)

    def finish(self) -> dict[str, Any]:
        """The manifest, stored as manifest.json after everything that it names."""
        try:
            if not self.n_rows:
                raise BadData("A pool needs at least one row.")
            self._close_shard()
            if self._payloads is not None:
                self._payloads.skip(self.n_rows - self._payloads.n)
                self._send_texts(self._payloads)
            if self._keys is not None and self._index is not None:
                self._keys.close()
                self._index.finish(self._keys.data_path, self._keys.offsets_path)
                self._send_texts(self._keys)
                self._send(self._index.hashes_path)
                self._send(self._index.rows_path)
            self._wait(0)
            manifest = {
                "format": FORMAT,
                "n_rows": self.n_rows,
                "width": self._width,
                "shard_rows": self._shard_rows,
                "shards": self._shards,
                "has_keys": self._keys is not None,
                "has_payloads": self._payloads is not None,
                "bytes": self._n_bytes,
            }
            self._objects.put(f"{self._prefix}/manifest.json", json.dumps(manifest).encode())
        except BaseException:
            self.abort()
            raise
        self._release()
        return manifest

    def abort(self) -> None:
        """Remove what this writer stored; objects of others under the same prefix stay."""
        self._release()
        self._objects.delete(self._stored)
        self._stored = []

    def _add_keys(self, batch: Batch) -> None:
        if self.n_rows and (batch.keys is None) != (self._keys is None):
            raise BadData(
                f"Rows from {self.n_rows} on differ from those before in having keys; give all rows keys, or none."
            )
        if batch.keys is None:
            return
        if self._keys is None or self._index is None:
            self._keys = TextWriter(self._folder, "keys")
            self._index = KeyIndexWriter(self._folder, hash_key=self._hash_key)
        encoded = [key.encode() for key in batch.keys]
        self._keys.add(encoded)
        self._index.add(encoded)

    def _add_payloads(self, batch: Batch) -> None:
        if batch.payloads is None or not any(batch.payloads):
            return
        if self._payloads is None:
            self._payloads = TextWriter(self._folder, "payloads")
        self._payloads.skip(self.n_rows - self._payloads.n)
        self._payloads.add([text or b"" for text in batch.payloads])

    def _close_shard(self) -> None:
        if self._shard is not None:
            shard, self._shard = self._shard, None
            shard.close()
            self._shards.append({"key": shard.path.name, "n_rows": shard.n_rows, "crc32": f"{self._crc:08x}"})
            self._send(shard.path)

    def _send_texts(self, texts: TextWriter) -> None:
        texts.close()
        self._send(texts.data_path)
        self._send(texts.offsets_path)

    def _send(self, path: Path) -> None:
        key = f"{self._prefix}/{path.name}"
        self._n_bytes += path.stat().st_size
        self._wait(SHARDS_IN_FLIGHT - 1)

        def send() -> None:
            self._objects.put_file(key, path, consume=True)
            self._stored.append(key)

        self._in_flight.append(self._sender.submit(send))

    def _wait(self, n: int) -> None:
        while len(self._in_flight) > n:
            self._in_flight.popleft().result()

    def _release(self) -> None:
        self._is_open = False
        self._sender.shutdown(wait=True, cancel_futures=True)
        for file in (self._shard, self._keys, self._index, self._payloads):
            if file is not None:
                file.close()
        self._stack.close()
