"""Objects by key, in a local folder or an S3 bucket. An object is written once and never changes."""

import io
import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import BinaryIO, cast
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, S3Store

from app.storage import local
from app.storage.cache import DiskCache
from app.storage.errors import AlreadyStored, BadKey, MissingObject, StorageDown, StorageError, first_line, translated
from app.storage.remote_file import ReadAt, RemoteFile
from app.storage.uploads import PART_BYTES, PARTS_IN_FLIGHT, stream_to_folder, stream_to_store

CHUNK_BYTES = 4 * 2**20
KEY = re.compile(r"[A-Za-z0-9_=-][A-Za-z0-9._=-]*(/[A-Za-z0-9_=-][A-Za-z0-9._=-]*)*")
MAX_KEY = 900


@dataclass(frozen=True, kw_only=True)
class Stored:
    key: str
    size: int
    modified: datetime


class Objects:
    """`file:///absolute/folder` or `s3://bucket/prefix` (endpoint and credentials from the usual `AWS_…` variables).

    All methods block, except those that begin with `async def`. Every write is create-only. On S3 that is atomic up to
    8 MiB; a larger object is uploaded in parts, and the key is looked up before the first one: give each writer its
    own prefix. `cache` is where `local_path` puts what it downloads; a local folder needs none.
    """

    def __init__(self, url: str, *, cache: DiskCache | None = None) -> None:
        self.url = url.rstrip("/")
        self.cache = cache
        parts = urlsplit(url)
        self._store: LocalStore | S3Store
        self._probe: LocalStore | S3Store
        if parts.scheme == "file" and parts.netloc in ("", "localhost") and len(parts.path) > 1:
            self.root: Path | None = Path(unquote(parts.path))
            self.root.mkdir(parents=True, exist_ok=True)
            self._store = self._probe = LocalStore(self.root, automatic_cleanup=True)
        elif parts.scheme == "s3" and parts.netloc:
            self.root = None
            self._store = S3Store.from_url(self.url)
            self._probe = S3Store.from_url(  # readiness wants an answer now, not ten retries
                self.url,
                retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=5)},
                client_options={
                    "timeout": timedelta(seconds=5),
                    "connect_timeout": timedelta(seconds=2),
                    "allow_http": _http_allowed(),  # options given here replace the environment's
                },
            )
        else:
            raise StorageError(
                f"storage is file:///absolute/folder or s3://bucket/prefix, not {url!r}; set BENSEMBLE_STORAGE_URL"
            )

    @property
    def is_local(self) -> bool:
        return self.root is not None

    # writing

    def put(self, key: str, data: bytes) -> None:
        check_key(key)
        if self.root is not None:
            with local.part_file(self.root) as part:
                part.write_bytes(data)
                local.publish(self.root, part, key)
        else:
            with translated(key):
                obstore.put(self._store, key, data, mode="create", use_multipart=False)

    def put_file(self, key: str, path: Path, *, consume: bool = False) -> None:
        """Store a file. With `consume` the file is taken and gone afterwards, which on one disk copies nothing."""
        check_key(key)
        if self.root is not None:
            (local.link_into if consume else local.copy_into)(self.root, path, key)
            return
        if path.stat().st_size <= PART_BYTES:
            self.put(key, path.read_bytes())
        else:
            self._refuse_taken(key)
            with translated(key):
                obstore.put(self._store, key, path, chunk_size=PART_BYTES, max_concurrency=PARTS_IN_FLIGHT)
        if consume:
            path.unlink()

    async def put_stream(self, key: str, chunks: AsyncIterator[bytes]) -> int:
        """Store what comes, in bounded memory; its size. If `chunks` raises or we are cancelled, nothing stays."""
        check_key(key)
        if self.root is not None:
            return await stream_to_folder(self.root, key, chunks)
        return await stream_to_store(self._store, key, chunks)

    # reading

    def get(self, key: str) -> bytes:
        check_key(key)
        with translated(key):
            return bytes(obstore.get(self._store, key).bytes())

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """As a file would read: shorter at the end, empty beyond it."""
        return self.get_ranges(key, [start], [length])[0]

    def get_ranges(self, key: str, starts: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        """Many ranges at once; near ones share a request."""
        check_key(key)
        if any(start < 0 for start in starts) or any(length < 0 for length in lengths):
            raise ValueError(f"a range of {key} starts at 0 or later and is not negative in length")
        size = self.size(key)
        spans = [(s, min(s + n, size)) for s, n in zip(starts, lengths, strict=True)]
        wanted = [(s, e) for s, e in spans if e > s]
        with translated(key):
            found = iter(
                obstore.get_ranges(self._store, key, starts=[s for s, _ in wanted], ends=[e for _, e in wanted])
                if wanted
                else []
            )
        return [bytes(next(found)) if e > s else b"" for s, e in spans]

    def stream(self, key: str, chunk_bytes: int = CHUNK_BYTES) -> Iterator[memoryview]:
        check_key(key)
        with translated(key):
            for chunk in obstore.get(self._store, key).stream(min_chunk_size=chunk_bytes):
                yield memoryview(chunk)

    async def stream_async(self, key: str, chunk_bytes: int = CHUNK_BYTES) -> AsyncIterator[bytes]:
        """Await `size` in a thread first where a 404 must come before the first byte."""
        check_key(key)
        with translated(key):
            found = await obstore.get_async(self._store, key)
            async for chunk in found.stream(min_chunk_size=chunk_bytes):
                yield bytes(chunk)

    def open(self, key: str) -> BinaryIO:
        """A seekable file; close it."""
        if self.root is not None:
            return self.local_path(key).open("rb")
        raw = RemoteFile(self._read_at(key), self.size(key))
        return cast(BinaryIO, io.BufferedReader(raw, CHUNK_BYTES))

    def local_path(self, key: str) -> Path:
        """A file to memory-map: the object's own, or its copy in the cache. Read it, never write to it."""
        check_key(key)
        if self.root is not None:
            path = self.root / key
            if not path.is_file():
                raise MissingObject(f"nothing is stored under {key}")
            return path
        if self.cache is None:
            raise StorageError(f"{self.url} is remote: pass cache=DiskCache(folder=…, max_bytes=…) to read {key} here")
        return self.cache.path(f"{self.url}/{key}", lambda: self.stream(key))

    def is_at_hand(self, key: str) -> bool:
        """Whether `local_path` needs no download."""
        return self.is_local or (self.cache is not None and self.cache.has(f"{self.url}/{key}"))

    def size(self, key: str) -> int:
        check_key(key)
        with translated(key):
            return obstore.head(self._store, key)["size"]

    def exists(self, key: str) -> bool:
        try:
            self.size(key)
        except MissingObject:
            return False
        return True

    def list(self, prefix: str = "") -> Iterator[Stored]:
        """By whole path segments: `a` lists `a/b`, not `ab`."""
        if prefix:
            check_key(prefix.rstrip("/"))
        with translated(prefix):
            for page in obstore.list(self._store, prefix.rstrip("/") or None, chunk_size=1000):
                for meta in page:
                    if KEY.fullmatch(meta["path"]):  # not the parts of objects that are being written
                        yield Stored(key=meta["path"], size=meta["size"], modified=meta["last_modified"])

    # removing

    def delete(self, keys: Iterable[str]) -> None:
        """What is not there is no error."""
        batch: list[str] = []
        for key in keys:
            check_key(key)
            batch.append(key)
            if self.cache is not None:
                self.cache.forget(f"{self.url}/{key}")
            if len(batch) == 1000:
                self._delete(batch)
                batch = []
        self._delete(batch)

    def delete_prefix(self, prefix: str) -> int:
        check_key(prefix.rstrip("/"))
        keys = [stored.key for stored in self.list(prefix)]
        self.delete(keys)
        return len(keys)

    def sweep(self, *, older_than: float = 86400.0) -> int:
        """Remove what killed processes left half written. On S3 that is a lifecycle rule of the bucket."""
        return 0 if self.root is None else local.sweep_parts(self.root, older_than=older_than)

    # the rest

    def ping(self) -> None:
        """Raise StorageDown unless objects can be listed and, for a folder, written."""
        try:
            if self.root is not None:
                with local.part_file(self.root) as part:
                    part.write_bytes(b"")
            else:
                for _ in obstore.list(self._probe, "readiness-probe", chunk_size=1):
                    break
        except (OSError, BaseError) as error:
            raise StorageDown(f"{self.url} does not answer: {first_line(error)}") from error

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder for files on their way into `put_file(consume=True)`; removed at the end with all in it."""
        if self.root is None:
            folder = Path(tempfile.mkdtemp(prefix="bensemble-"))
        else:
            (self.root / local.PARTS).mkdir(exist_ok=True)
            folder = Path(tempfile.mkdtemp(dir=self.root / local.PARTS))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _read_at(self, key: str) -> ReadAt:
        def read_at(start: int, length: int) -> memoryview:
            with translated(key):
                return memoryview(obstore.get_range(self._store, key, start=start, length=length))

        return read_at

    def _refuse_taken(self, key: str) -> None:
        if self.exists(key):
            raise AlreadyStored(f"{key} is already stored; objects are written once, choose a new key")

    def _delete(self, keys: Sequence[str]) -> None:
        if self.root is None:
            with translated("the keys to delete"):
                if keys:
                    obstore.delete(self._store, keys)
            return
        for key in keys:  # one by one: obstore stops at the first key that is not there
            with suppress(FileNotFoundError):
                obstore.delete(self._store, key)


def check_key(key: str) -> None:
    if len(key) > MAX_KEY or not KEY.fullmatch(key):
        raise BadKey(
            f"{key[:80]!r} is not a key: up to {MAX_KEY} letters, digits and . _ = - in segments separated by '/', "
            "no segment beginning with '.'"
        )


def _http_allowed() -> bool:
    return os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true", "yes", "on")
