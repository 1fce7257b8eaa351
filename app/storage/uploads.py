"""Streams of chunks into storage: bounded memory, and nothing left behind when the stream is cut."""

import asyncio
import io
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Self

import obstore
from obstore.store import LocalStore, S3Store

from app.storage import local
from app.storage.errors import AlreadyStored, MissingObject, translated

PART_BYTES = 8 * 2**20  # 10,000 parts at most: 80 GB
PARTS_IN_FLIGHT = 2
WRITE_BYTES = 2**20


class StreamCut(Exception):
    """Thrown into the upload so that it aborts its parts; never leaves this module."""


async def stream_to_folder(root: Path, key: str, chunks: AsyncIterator[bytes]) -> int:
    size = 0
    with local.part_file(root) as part, part.open("xb", buffering=0) as file:
        async with _Writer() as writer:  # a block is written while the next one comes in
            async for block in gathered(chunks, WRITE_BYTES):
                await writer.run(partial(_write_all, file, block))
                size += len(block)
        published = False

        def publish() -> None:
            nonlocal published
            local.publish(root, part, key)
            published = True

        try:
            await _in_thread(publish)
        except BaseException:
            if published:  # the cut came after the last byte
                (root / key).unlink()
            raise
    return size


class _Writer:
    """One piece of work at a time in a thread; the next waits for it, and so does the end of the block."""

    def __init__(self) -> None:
        self._running: asyncio.Future[None] | None = None

    async def run(self, work: Callable[[], None]) -> None:
        await self._done()
        self._running = asyncio.ensure_future(asyncio.to_thread(work))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            await self._done()
        elif self._running is not None:  # so that no file is closed or removed under the thread
            await asyncio.wait({self._running})
            self._running.exception()  # the stream's own failure is the one to tell of

    async def _done(self) -> None:
        if self._running is not None:
            running, self._running = self._running, None
            await _settled(running)


async def stream_to_store(store: LocalStore | S3Store, key: str, chunks: AsyncIterator[bytes]) -> int:
    blocks = gathered(chunks, PART_BYTES)
    first = await anext(blocks, b"")
    if len(first) < PART_BYTES:
        with translated(key):
            await obstore.put_async(store, key, first, mode="create", use_multipart=False)
        return len(first)
    with suppress(MissingObject), translated(key):
        await obstore.head_async(store, key)
        raise AlreadyStored(f"{key} is already stored; objects are written once, choose a new key")

    # obstore aborts a multipart upload when its iterator raises, but not when its task is cancelled. So our own task
    # pulls the chunks, and a cancel reaches the upload as an exception out of its iterator.
    queue: asyncio.Queue[bytes | StreamCut | None] = asyncio.Queue(maxsize=1)
    upload = asyncio.ensure_future(
        obstore.put_async(store, key, _fed(queue), chunk_size=PART_BYTES, max_concurrency=PARTS_IN_FLIGHT)
    )
    size = len(first)
    try:
        await _push(queue, first, upload, key)
        async for block in blocks:
            size += len(block)
            await _push(queue, block, upload, key)
        await _push(queue, None, upload, key)
        with translated(key):
            await asyncio.shield(upload)
    except BaseException:
        if not upload.done():
            while not queue.empty():
                queue.get_nowait()
            queue.put_nowait(StreamCut())
            await asyncio.wait({upload})
        if not upload.cancelled() and upload.exception() is None:
            await obstore.delete_async(store, key)  # the cut came after the last part
        raise
    return size


async def gathered(chunks: AsyncIterator[bytes], at_least: int) -> AsyncIterator[bytes]:
    """The same bytes in blocks of at least that size, but for the last; a big chunk passes as it is."""
    held: list[bytes] = []
    size = 0
    async for chunk in chunks:
        held.append(chunk)
        size += len(chunk)
        if size >= at_least:
            yield b"".join(held) if len(held) > 1 else chunk
            held, size = [], 0
    if size:
        yield b"".join(held)


async def _fed(queue: asyncio.Queue[bytes | StreamCut | None]) -> AsyncIterator[bytes]:
    while (item := await queue.get()) is not None:
        if isinstance(item, StreamCut):
            raise item
        yield item


async def _push(
    queue: asyncio.Queue[bytes | StreamCut | None],
    item: bytes | None,
    upload: asyncio.Future["obstore.PutResult"],
    key: str,
) -> None:
    putting = asyncio.ensure_future(queue.put(item))
    both: set[asyncio.Future[Any]] = {putting, upload}
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not putting.done():
            putting.cancel()
    if upload.done():
        with translated(key):
            upload.result()  # it ends before its last item only by an error


async def _in_thread(work: Callable[[], None]) -> None:
    await _settled(asyncio.ensure_future(asyncio.to_thread(work)))


async def _settled(task: asyncio.Future[None]) -> None:
    """A cancel waits for the thread, so that no file is closed or removed under it."""
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


def _write_all(file: io.FileIO, block: bytes) -> None:
    view = memoryview(block)
    while view:
        view = view[file.write(view) :]
