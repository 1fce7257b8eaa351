"""Caps applied before any work: body sizes for every request, and a token bucket a key."""

import threading
import time
from collections.abc import Callable

from fastapi import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.errors import TooLarge, TooMany, problem_response

CLOSE = {"Connection": "close"}  # else the server would read the refused body to its end


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
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > cap:
            await problem_response(TooLarge(_message(int(declared), cap), headers=CLOSE))(scope, receive, send)
            return
        seen = 0

        async def capped() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > cap:  # FastAPI lets only its own exception through while it reads a body
                raise HTTPException(TooLarge.status, _message(seen, cap))
            return message

        await self.app(scope, capped, send)


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
