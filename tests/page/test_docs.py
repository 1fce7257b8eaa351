"""/docs under the same policy as the page: Swagger UI starts, shows every operation, and sends one."""

from playwright.sync_api import BrowserContext, expect

from tests.page.conftest import Served


def test_the_documentation_runs_under_the_policy_and_sends_a_request(service: Served, context: BrowserContext) -> None:
    page = context.new_page()
    hosts: set[str] = set()
    page.on("request", lambda request: hosts.add(request.url.split("/")[2] if "://" in request.url else "inline"))
    page.goto(f"{service.address}/docs")
    expect(page.locator(".opblock").first).to_be_visible()
    assert page.locator(".opblock").count() > 80
    page.locator("#operations-health-get_health .opblock-summary-control").click()
    page.get_by_role("button", name="Try it out").click()
    page.get_by_role("button", name="Execute").click()
    answer = page.locator("#operations-health-get_health .live-responses-table")
    expect(answer).to_contain_text('"status": "ok"')
    assert hosts <= {service.address.removeprefix("http://"), "inline"}
