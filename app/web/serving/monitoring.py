"""Prometheus metrics, and a log line for each request."""

import logging
import time

from prometheus_client import Gauge, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.db.types import new_id

JOBS = Gauge("bensemble_jobs", "Jobs in the table", ["queue", "status"])
REQUESTS = Histogram(
    "bensemble_request_seconds",
    "Time to the last byte of an answer",
    ["method", "route", "status"],
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
)
logger = logging.getLogger("bensemble.requests")


class RequestLog:
    """ASGI middleware: times a request, logs it with its route and key, and gives it an X-Request-Id."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status, request_id = time.perf_counter(), 500, new_id()

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], (b"x-request-id", request_id.encode())]}
            await send(message)

        try:
            await self.app(scope, receive, watched)
        finally:
            seconds = time.perf_counter() - started
            route = getattr(scope.get("route"), "path", "")
            REQUESTS.labels(scope["method"], route, str(status)).observe(seconds)
            caller = scope.get("state", {}).get("caller")
            logger.log(
                logging.DEBUG if route in ("/healthz", "/readyz", "/metrics") else logging.INFO,
                "request",
                extra={
                    "method": scope["method"],
                    "path": scope["path"],
                    "status": status,
                    "milliseconds": round(seconds * 1000, 1),
                    "key": caller.name if caller else None,
                    "request_id": request_id,
                },
            )
