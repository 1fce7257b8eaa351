"""Caps applied before any work: body sizes for every request, and a token bucket a key."""

import re
import threading
import time
from collections.abc import Callable

from fastapi import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.errors import TooLarge, TooMany, problem_response
from app.settings import Settings

INSPECT_BYTES = 16 * 2**20  # held in memory, at most two at once
UNREAD_BYTES = 64 * 1024  # the server reads off that much after an answer; for more the connection is closed


_INSPECTED = "/v1/files/inspect"
_FILE = re.compile(r"/v1/pools/[^/]+/data")
_ROWS = re.compile(r"/v1/(projects/[^/]+/pools|ensembles/[^/]+/predictions|pools/[^/]+/rankings)")
_DOCUMENT = re.compile(r"/v1/((projects|rounds)/[^/]+/labels|models/validate|experiments(/[^/]+)?)")


def cap_of(settings: Settings) -> Callable[[str, str], int]:
    """The most bytes of a body, by method and address: files, rows, labels and specs are larger than all else."""

    def cap(method: str, path: str) -> int:
        if method == "PUT" and _FILE.fullmatch(path):
            return settings.max_upload_bytes
        if path == _INSPECTED:
            return min(INSPECT_BYTES, settings.max_upload_bytes)
        if _ROWS.fullmatch(path):
            return settings.max_json_bytes
        of_kind = settings.max_document_bytes if _DOCUMENT.fullmatch(path) else settings.max_request_bytes
        return min(of_kind, settings.max_json_bytes)

    return cap


class BodyCap:
    """ASGI middleware that refuses a body by its Content-Length, or as soon as it has grown past the cap."""

    def __init__(self, app: ASGIApp, *, cap_of: Callable[[str, str], int]) -> None:
        self.app = app
        self.cap_of = cap_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        cap = self.cap_of(scope["method"], scope["path"])
        headers = dict(scope["headers"])
        declared = headers.get(b"content-length", b"0")
        n_left = int(declared) if declared.isdigit() else 0
        seen, has_ended = 0, b"transfer-encoding" not in headers and n_left == 0

        async def capped() -> Message:
            nonlocal seen, has_ended
            message = await receive()
            seen += len(message.get("body", b""))
            has_ended = not message.get("more_body", False)
            if seen > cap:  # FastAPI lets only its own exception through while it reads a body
                raise HTTPException(TooLarge.status, _message(seen, cap))
            return message

        async def answer(message: Message) -> None:
            """With a body that nobody has read the connection is closed, else the server would read it to its end."""
            is_left = not has_ended and not 0 < n_left - seen <= UNREAD_BYTES
            if message["type"] == "http.response.start" and is_left:
                message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
            await send(message)

        if n_left > cap:
            await problem_response(TooLarge(_message(n_left, cap)))(scope, capped, answer)
        else:
            await self.app(scope, capped, answer)


def _message(size: int, cap: int) -> str:
    return f"the body has {size:,} bytes or more; the cap here is {cap:,}. Split it, or raise the service's cap."


class RateLimit:
    """A bucket a key: `burst` requests at once, refilled at `rate` a second. Kept in this process only."""

    def __init__(self, rate: float, burst: int) -> None:
        self.rate = rate
        self.burst = burst
        self._buckets: dict[str, tuple[float, float]] = {}  # key -> (tokens, when)
        self._lock = threading.Lock()

    def take(self, key: str) -> None:
        if self.rate <= 0:
            return
        now = time.monotonic()
        with self._lock:
            tokens, when = self._buckets.get(key, (float(self.burst), now))
            tokens = min(float(self.burst), tokens + (now - when) * self.rate)
            if tokens < 1:
                wait = (1 - tokens) / self.rate
                raise TooMany(f"over {self.rate:g} requests a second; try again in {wait:.1f} s", retry_after=wait)
            self._buckets[key] = (tokens - 1, now)
