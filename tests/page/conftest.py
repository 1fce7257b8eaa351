"""The page in a real browser, against the service as real processes."""

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

from tests.crash.running import Running, running

BUNDLE = Path(__file__).parents[2] / "app" / "ui" / "dist" / "index.html"
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
expect.set_options(timeout=20_000)  # ms; other tests have the processors too
BROKEN_CONNECTION = "Failed to load resource: net::ERR_"


def unavailable(reason: str) -> NoReturn:
    """In CI its absence is a failure, elsewhere a skip."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def installed_chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    return found or unavailable("no chromium is installed: apt-get install chromium")


@dataclass
class Console:
    """What the tabs of a test complained of. A test ends in failure where that is more than it said to expect."""

    errors: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)

    def expect(self, *parts: str) -> None:
        """Lines with one of these in them are no failure: the browser itself writes one for every answer over 399."""
        self.expected += parts

    def watch(self, page: Page) -> None:
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.errors.append(f"uncaught: {error}"))

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.errors.append(f"{message.text} ({message.location.get('url', '')})")

    def unexpected(self) -> list[str]:
        return [error for error in self.errors if not any(part in error for part in self.expected)]


@dataclass
class Served(Running):
    """A running service, its API's process, and an address that signs a browser in."""

    def kill_api(self) -> None:
        """As if the machine had lost it: what was under way stays undone. `start_api` brings it back."""
        api = next(process for process in reversed(self.processes) if process.args[-1] == "api")  # type: ignore[index]
        os.kill(api.pid, signal.SIGKILL)
        api.wait()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def secret(self) -> str:
        return self.client.headers["Authorization"].removeprefix("Bearer ")

    def key(self, name: str, *scopes: str) -> str:
        return str(self.post("/keys", {"name": name, "scopes": list(scopes) or ["admin"]})["key"])


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One for the tests of this folder that follow each other, no longer: while it is open its event loop runs in this
    process, and no other test could start one."""
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=installed_chromium(), args=list(ARGUMENTS))
        yield launched
        launched.close()


@contextmanager
def serving(folder: Path) -> Iterator[Served]:
    """An API and one worker on SQLite, with nothing in it but a key."""
    if not BUNDLE.exists():
        unavailable(f"the page is not built: cd {BUNDLE.parents[1]} && npm ci && npm run build")
    with running(f"sqlite:///{folder / 'page.db'}", folder) as started:
        served = Served(**vars(started))
        served.start_api()
        served.start("worker")
        yield served


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One for all tests of a run, since starting takes as long as a test. Whoever kills something starts it again;
    whoever has to find it empty takes `serving` by themselves."""
    with serving(tmp_path_factory.mktemp("page")) as served:
        yield served


@pytest.fixture
def console() -> Iterator[Console]:
    watched = Console()
    yield watched
    assert watched.unexpected() == []


@pytest.fixture
def context(browser: Browser, console: Console, service: Served) -> Iterator[BrowserContext]:
    """A browser of one person, not signed in: what it complains of on the console fails the test. It is closed before
    the service stops, which it would complain of."""
    opened = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    opened.set_default_timeout(30_000)
    opened.on("page", console.watch)
    yield opened
    opened.close()


@pytest.fixture
def page(context: BrowserContext, service: Served) -> Page:
    """A tab that is signed in with the service's first key."""
    opened = context.new_page()
    opened.goto(f"{service.address}/#key={service.secret}")
    return opened
