"""/docs in a network that reaches no other host."""

import asyncio
import re

import httpx
import pytest
from fastapi import FastAPI

from app.main import create_app
from app.settings import Settings


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    return create_app(Settings(data_dir=tmp_path_factory.mktemp("data")))


def ask(app: FastAPI, path: str, *, root: str = "", method: str = "GET") -> httpx.Response:
    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app, root_path=root)
        async with httpx.AsyncClient(transport=transport, base_url="http://lab") as client:
            return await client.request(method, path)

    return asyncio.run(send())


def addresses(page: str) -> list[str]:
    return re.findall(r"""(?:src|href|url)\s*[=:]\s*["']([^"']+)""", page)


def test_the_documentation_loads_nothing_from_another_host(app: FastAPI) -> None:
    page = ask(app, "/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert not re.findall(r"https?:|[\"'(]//", page.text)
    assert not re.search(r"<style|style=|<script(?![^>]* src=)|\son\w+=", page.text)  # the policy refuses these
    assert "validatorUrl: null" in ask(app, "/docs/start.js").text
    loaded = {address: ask(app, address) for address in addresses(page.text)}
    assert {answer.status_code for answer in loaded.values()} == {200}
    kinds = sorted(answer.headers["content-type"].split(";")[0] for answer in loaded.values())
    assert kinds == ["application/json", "image/png", "text/css", "text/javascript", "text/javascript"]
    styles = next(answer.text for path, answer in loaded.items() if path.endswith(".css"))
    assert all(target.startswith("data:") for target in re.findall(r"url\([\"']?([^\"')]+)", styles))


def test_the_documentation_works_behind_a_proxy_with_a_path_of_its_own(app: FastAPI) -> None:
    found = addresses(ask(app, "/docs", root="/bensemble").text)
    assert len(found) == 5
    assert all(address.startswith("/bensemble/") for address in found)


@pytest.mark.parametrize("path", ["/docs/files/nothing.js", "/docs/files/%2e%2e/main.py", "/redoc"])
def test_what_the_documentation_does_not_have_is_a_problem_like_any_other(app: FastAPI, path: str) -> None:
    answer = ask(app, path)
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")


def test_the_files_of_the_documentation_can_only_be_read(app: FastAPI) -> None:
    answer = ask(app, "/docs/files/swagger-ui.css", method="POST")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
    assert "this address takes GET, HEAD" in answer.json()["detail"]
