"""Every screen, wide and light and narrow and dark, by axe: nothing serious, and no sideways scrolling."""

import re
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, BrowserContext, ViewportSize, expect

from tests.app.working import wait_for
from tests.page.conftest import Console, Served, unavailable

AXE = Path(__file__).parents[2] / "app/ui/node_modules/axe-core/axe.min.js"
LOOKS: dict[str, tuple[ViewportSize, Literal["light", "dark"]]] = {
    "1280 light": ({"width": 1280, "height": 900}, "light"),
    "390 dark": ({"width": 390, "height": 844}, "dark"),
}


@pytest.fixture(scope="module")
def routes(service: Served) -> dict[str, str]:
    """An address of every screen, with something to show on each."""
    example = service.post("/examples", {"name": "digits"})
    project_id = example["project"]["id"]
    service.wait(example["job"]["id"])

    def open_round() -> Any:
        rounds = service.get(f"/projects/{project_id}/rounds")["items"]
        return rounds[0] if rounds and rounds[0]["status"] == "open" else None

    round_ = wait_for(open_round, 60)
    experiment = service.post(
        "/experiments",
        {
            "name": "digit span",
            "parameters": {"theta": {"dist": "normal", "loc": 7, "scale": 2}},
            "designs": {"xi": {"type": "integer", "low": 1, "high": 15}},
            "outcome": {"y": {"family": "bernoulli", "logit": "theta - xi"}},
        },
    )
    session = service.post(f"/experiments/{experiment['id']}/sessions", {"name": "axe"})
    proposal = service.post(f"/sessions/{session['id']}/proposals", {})
    service.post(f"/sessions/{session['id']}/observations", {"proposal_id": proposal["id"], "outcome": {"y": 1}})
    return {
        "start": "/",
        "new": "/new",
        "project": f"/p/{project_id}",
        "pools": f"/p/{project_id}/pools",
        "pool": f"/p/{project_id}/pools/{round_['pool_id']}",
        "ranking": f"/p/{project_id}/rankings/{round_['ranking_id']}",
        "label": f"/p/{project_id}/label/{round_['id']}",
        "experiments": "/experiments",
        "experiment": f"/e/{experiment['id']}",
        "session": f"/s/{session['id']}",
        "participant": f"/run/{session['id']}#token={session['token']}",
        "activity": "/activity",
        "settings": "/settings",
        "missing": "/nothing/here",
    }


def violations(opened: BrowserContext, address: str) -> tuple[list[str], int]:
    """What axe finds that is serious or worse, and by how many pixels the page is wider than the window, or cards wider
    than their place."""
    page = opened.new_page()
    page.goto(address)
    expect(page.get_by_role("heading", level=1).first).to_be_visible()
    expect(page.locator(".skeleton")).to_have_count(0, timeout=30_000)
    page.wait_for_timeout(300)
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    wide = page.evaluate(
        "Math.max(...[document.documentElement, ...document.querySelectorAll('.scrolls:has(> .cards)')]"
        ".map((element) => element.scrollWidth - element.clientWidth))"
    )
    page.close()
    return [
        f"{each['id']}: {each['help']} {[node['target'] for node in each['nodes']][:3]}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ], wide


@pytest.mark.parametrize("look", LOOKS)
def test_nothing_serious_on_any_screen(
    browser: Browser, service: Served, console: Console, routes: dict[str, str], look: str
) -> None:
    if not AXE.exists():
        unavailable("axe-core is not installed: make setup")
    viewport, scheme = LOOKS[look]
    opened = browser.new_context(viewport=viewport, color_scheme=scheme, reduced_motion="reduce")
    opened.set_default_timeout(30_000)
    opened.on("page", console.watch)
    found: dict[str, Any] = {}
    signed = opened.new_page()
    signed.goto(service.address)
    expect(signed.get_by_label("API key")).to_be_visible()
    found["welcome"] = violations(opened, service.address)
    console.expect("/v1/me")  # which a visitor without a key is refused
    signed.goto(f"{service.address}/#key={service.secret}")
    expect(signed.get_by_role("navigation")).to_be_visible()  # other tabs are given its key
    for name, path in routes.items():
        found[name] = violations(opened, service.address + path)
    opened.close()
    assert {name: problems for name, (problems, _) in found.items() if problems} == {}
    assert {name: wide for name, (_, wide) in found.items() if wide > 0} == {}


def test_the_first_screen_is_small(service: Served) -> None:
    """Scripts and styles as sent, without fonts; charts come when they are needed."""
    html = service.client.get("/", headers={"Accept": "text/html"}).text
    assets = re.findall(r'(?:src|href)="(/assets/[^"]+\.(?:js|css))"', html)
    assert assets
    total = 0
    for asset in assets:
        with service.client.stream("GET", asset, headers={"Accept-Encoding": "gzip"}) as response:
            total += sum(len(part) for part in response.iter_raw())
    assert total < 120_000
    assert "echarts" not in html
