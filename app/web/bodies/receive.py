"""The body of a request, received whole before it is parsed: a small one in memory, a large one in a file, from where a
thread reads it in pieces."""

import hashlib
import logging
import mmap
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeVar

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from app.errors import NotReady
from app.settings import Settings
from app.web.bodies.long import Document
from app.web.memory import release_memory

M = TypeVar("M", bound=BaseModel)
logger = logging.getLogger(__name__)

LARGE_BYTES = 64 * 1024  # a smaller one is parsed on the event loop, in a few milliseconds
LARGE_AT_ONCE = 2  # parsed; further ones wait in their files, in which they need neither memory nor a thread
UNPARSED = b"(large)"
Validate = Callable[..., tuple[Any, list[Any]]]  # of a FastAPI field


class Received(Request):
    """FastAPI asks `body` and `json` of it, as of any request."""

    def __init__(self, request: Request, *, sha256: str, content: bytes, document: Document | None = None) -> None:
        super().__init__(request.scope, request.receive)
        self.sha256 = sha256
        self._content = content
        self._document = document
        self._value: Any = None

    async def body(self) -> bytes:
        return self._content

    def content(self) -> bytes:
        """All of it, for a route whose body is a file and whose cap is low."""
        return self._content if self._document is None else bytes(self._document.text)

    async def json(self) -> Any:
        return self._value if self._document is not None else await super().json()

    async def parse(self, validate: Validate) -> None:
        """A large body that says that it is JSON, off the event loop; smaller ones are left to FastAPI."""
        if self._document is None or not _is_json(self.headers.get("content-type", "")):
            return
        document = self._document

        def work() -> Any:
            value = document.read()
            found, errors = validate(value, loc=("body",))
            if errors:
                raise RequestValidationError(errors, body=value)
            return found

        self._value = await run_in_threadpool(work)

    async def parse_as(self, model: type[M]) -> M:
        """Whatever the content type says. A small body goes straight from bytes to numbers: three times faster than by
        way of Python objects."""
        document = self._document
        try:
            if document is None:
                return model.model_validate_json(self._content)
            return await run_in_threadpool(lambda: model.model_validate(document.read()))
        except ValidationError as error:
            raise RequestValidationError([{**e, "loc": ("body", *e["loc"])} for e in error.errors()]) from error

    def forget(self) -> None:
        self._document = self._value = None


def _is_json(content_type: str) -> bool:
    """By FastAPI's rule."""
    kind = content_type.split(";", 1)[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


@asynccontextmanager
async def receive(request: Request) -> AsyncIterator[Received]:
    """`sha256` is over the method and the address too. What was large is forgotten at the end of the block."""
    state = request.app.state
    settings: Settings = state.services.settings
    digest = hashlib.sha256(f"{request.method} {request.url.path}?{request.url.query}\n".encode())
    content = bytearray()
    file: IO[bytes] | None = None
    try:
        async for chunk in request.stream():
            digest.update(chunk)
            content += chunk
            if len(content) > LARGE_BYTES:
                if file is None:
                    file = await run_in_threadpool(_open, settings.cache_dir)
                await run_in_threadpool(_write, file, content)
                content = bytearray()
        if file is None:
            yield Received(request, sha256=digest.hexdigest(), content=bytes(content))
            return
        await run_in_threadpool(_write, file, content)
        async with state.large_bodies:
            text = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            document = Document(text=text, max_bytes=settings.max_document_bytes)
            received = Received(request, sha256=digest.hexdigest(), content=UNPARSED, document=document)
            try:
                yield received
            finally:
                received.forget()
                with suppress(BufferError):  # somebody still looks at it, and closes it by letting go
                    text.close()
                await run_in_threadpool(release_memory)
    finally:
        if file is not None:
            file.close()


def _open(folder: Path) -> IO[bytes]:
    """Without a name: it is gone with this process, however that ends."""
    with _on_disk():
        folder.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryFile(dir=folder)


def _write(file: IO[bytes], content: bytearray) -> None:
    with _on_disk():
        file.write(content)
        file.flush()


@contextmanager
def _on_disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        logger.error("a large body could not be kept", extra={"reason": str(error)})
        raise NotReady(
            "the service has no room for a body of this size; try again", headers={"Retry-After": "10"}
        ) from error
