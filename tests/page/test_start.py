"""The first visit: signing in, the example, an own project from a file, what is refused, keys, signing out."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.page.conftest import ARGUMENTS, Console, Served, installed_chromium, serving

STATUS = "Failed to load resource: the server responded with a status of"
FLOWERS = "\n".join(
    ["key,length,width,year,kind"]
    + [f"flower-{i},{i % 7}.5,{i % 5}.25,{1990 + i},{('rose', 'iris', '')[i % 3]}" for i in range(60)]
)


@pytest.fixture
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service of its own for each: a first visit finds nothing there."""
    with serving(tmp_path_factory.mktemp("first")) as served:
        yield served


@pytest.fixture
def flowers(tmp_path: Path) -> Path:
    file = tmp_path / "flowers.csv"
    file.write_text(FLOWERS)
    return file


def title(page: Page) -> None:
    expect(page.get_by_role("heading", name="What should we label, or measure, next?")).to_be_visible()


def choose(page: Page, file: Path) -> None:
    page.get_by_label("Choose a file", exact=True).set_input_files(file)


def test_a_link_signs_in_and_its_key_leaves_the_address(page: Page, service: Served) -> None:
    expect(page.get_by_role("button", name="Try it on digits")).to_be_visible()
    assert service.secret not in page.url
    page.reload()
    expect(page.get_by_role("button", name="Try it on digits")).to_be_visible()
    expect(page).to_have_title("What should we label, or measure, next? · Bensemble")


def test_a_key_is_tried_before_it_is_taken(context: BrowserContext, service: Served, console: Console) -> None:
    console.expect(f"{STATUS} 401")
    page = context.new_page()
    page.goto(service.address)
    page.get_by_label("API key").fill("bk_wrong")
    page.get_by_role("button", name="Open").click()
    expect(page.get_by_role("alert")).to_contain_text("The service does not take this key")
    page.get_by_label("API key").fill(f"  {service.address}/#key={service.secret}  ")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Try it on digits")).to_be_visible()
    other = context.new_page()  # asks the first one for the key
    other.goto(f"{service.address}/settings")
    expect(other.get_by_role("heading", name="Settings")).to_be_visible()


def test_digits_lead_to_a_project_that_makes_a_round(page: Page, service: Served) -> None:
    expect(page.get_by_text("None yet. A project is a question")).to_be_visible()
    page.get_by_role("button", name="Try it on digits").click()
    expect(page).to_have_url(re.compile("/p/[0-9a-f-]+$"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Handwritten digits")
    page.get_by_role("link", name="Bensemble").click()
    expect(page.get_by_text("10 classes · 1,297 candidates · 20 labels")).to_be_visible()
    expect(page.get_by_role("link", name="Label 20 left")).to_be_visible(timeout=60_000)
    page.get_by_role("link", name="Activity").click()
    expect(page.get_by_text("Training", exact=True).and_(page.locator("p"))).to_be_visible()
    page.get_by_label("Status").select_option("failed")
    expect(page.get_by_text("No job is like that")).to_be_visible()
    assert page.url.endswith("?status=failed")


def test_a_file_becomes_a_project_with_a_round(page: Page, service: Served, flowers: Path) -> None:
    page.get_by_role("link", name="Start your own").click()
    choose(page, flowers)
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_label("kind is used as")).to_have_value("label")
    page.get_by_label("year is used as").select_option("none")
    expect(page.get_by_text("2 features a row.")).to_be_visible()
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_label("Name")).to_have_value("flowers")
    page.get_by_label("Instructions").fill("Look at the petals.")
    page.reload()  # what was said stays, the file does not
    expect(page.get_by_label("Instructions")).to_have_value("Look at the petals.")
    page.get_by_role("button", name="1 File").click()
    expect(page.get_by_text("choose flowers.csv again")).to_be_visible()
    choose(page, flowers)
    expect(page.get_by_text("choose flowers.csv again")).to_have_count(0)
    page.get_by_role("button", name="2 Columns").click()
    page.get_by_label("year is used as").select_option("none")
    page.get_by_role("button", name="Go on").click()
    page.get_by_role("button", name="Go on").click()
    page.get_by_label("Items a round").fill("5")
    page.get_by_role("button", name="Make the project").click()
    expect(page).to_have_url(re.compile("/p/[0-9a-f-]+/label/[0-9a-f-]+$"), timeout=90_000)
    (project,) = service.get("/projects")["items"]
    assert project["input"] == {"shape": [2]}
    assert sorted(project["task"]["classes"]) == ["iris", "rose"]
    assert project["display"]["instructions"] == "Look at the petals."
    (pool,) = service.get(f"/projects/{project['id']}/pools")["items"]
    assert (pool["status"], pool["n_rows"], pool["n_labelled"]) == ("ready", 60, 40)
    (ensemble,) = service.get(f"/projects/{project['id']}/ensembles")["items"]
    assert ensemble["status"] == "succeeded"
    (opened,) = service.get(f"/projects/{project['id']}/rounds")["items"]
    assert (opened["status"], opened["n_items"]) == ("open", 5)


def test_a_refused_file_says_what_to_do(page: Page, service: Served, console: Console, tmp_path: Path) -> None:
    console.expect(f"{STATUS} 422")
    page.get_by_role("link", name="Start your own").click()
    for name, text, said in (
        ("sheet.xlsx", "PK", "Save the sheet as CSV first."),
        ("empty.csv", "", "Bring one with a row for each item."),
        (
            "ragged.csv",
            FLOWERS.replace("1991,iris", "1991,iris,more"),
            "expected 5 cells as in the header",
        ),
    ):
        file = tmp_path / name
        file.write_text(text)
        choose(page, file)
        expect(page.get_by_role("alert")).to_contain_text(said)
        expect(page.get_by_role("button", name="Go on")).to_have_count(0)
    assert service.get("/projects")["items"] == []


def test_what_was_made_halfway_is_told_and_filled_by_another_file(
    page: Page, service: Served, console: Console, tmp_path: Path, flowers: Path
) -> None:
    console.expect(f"{STATUS} 4")
    wrong = tmp_path / "wrong.csv"
    wrong.write_text(FLOWERS.replace("flower-7,", "flower-6,"))
    page.get_by_role("link", name="Start your own").click()
    choose(page, wrong)
    page.get_by_role("button", name="Go on").click()
    page.get_by_label("key is used as").select_option("key")
    for _ in range(2):
        page.get_by_role("button", name="Go on").click()
    page.get_by_role("button", name="Make the project").click()
    expect(page.get_by_role("alert")).to_contain_text("flower-6", timeout=60_000)
    expect(page.get_by_text("is there, but has no rows yet")).to_be_visible()
    (first,) = service.get("/projects")["items"]
    page.get_by_role("button", name="Delete the project").click()
    expect(page.get_by_role("button", name="Make the project")).to_be_visible()
    assert service.get("/projects")["items"] == []
    assert first["name"] == "wrong"


def test_keys_are_made_shown_once_and_revoked(page: Page, service: Served) -> None:
    page.get_by_role("link", name="Settings").click()
    page.get_by_role("button", name="Make a key").click()
    page.get_by_role("textbox", name="Name").fill("ada")
    page.get_by_role("button", name="Make it").click()
    secret = page.get_by_label("Key", exact=True).inner_text().strip()
    made = next(key for key in service.get("/keys")["items"] if key["name"] == "ada")
    assert made["scopes"] == ["label"]
    page.get_by_role("button", name="I have it").click()
    expect(page.get_by_text(secret)).to_have_count(0)
    page.get_by_role("button", name="Revoke ada").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(page.get_by_text("1 key revoked or expired")).to_be_visible()
    ended = next(key for key in service.get("/keys")["items"] if key["name"] == "ada")
    assert ended["revoked_at"] is not None


def test_a_lesser_key_is_told_why_it_may_not(context: BrowserContext, service: Served) -> None:
    page = context.new_page()
    page.goto(f"{service.address}/#key={service.key('ada', 'label')}")
    button = page.get_by_role("button", name="Try it on digits")
    expect(button).to_have_attribute("aria-disabled", "true")
    expect(button).to_have_attribute("title", "The key “ada” may not: it needs the scope write.")
    page.get_by_role("link", name="Settings").click()
    expect(page.get_by_text("it needs the scope admin")).to_be_visible()


def test_signing_out_holds_in_all_tabs(page: Page, context: BrowserContext, service: Served, console: Console) -> None:
    console.expect(f"{STATUS} 401")
    title(page)
    other = context.new_page()
    other.goto(service.address)
    title(other)
    page.get_by_role("link", name="Settings").click()
    page.get_by_role("button", name="Sign out").click()
    for tab in (page, other):
        expect(tab.get_by_label("API key")).to_be_visible()
    page.reload()
    expect(page.get_by_label("API key")).to_be_visible()


def test_plain_http_on_another_host_works(browser: Browser, service: Served, flowers: Path) -> None:
    """Such a page is no secure context: no clipboard, no randomUUID, no locks."""
    opened = browser.browser_type.launch(
        executable_path=installed_chromium(),
        args=[*ARGUMENTS, "--host-resolver-rules=MAP lab-host 127.0.0.1"],
    )
    try:
        page = opened.new_page()
        page.goto(f"http://lab-host:{service.port}/#key={service.secret}")
        title(page)
        assert page.evaluate("isSecureContext") is False
        page.get_by_role("link", name="Start your own").click()
        choose(page, flowers)
        expect(page.get_by_role("button", name="Go on")).to_be_visible()
        page.get_by_role("link", name="Settings").click()
        page.get_by_role("button", name="Make a key").click()
        page.get_by_role("textbox", name="Name").fill("bob")
        page.get_by_role("button", name="Make it").click()
        expect(page.get_by_label("Link")).to_contain_text("http://lab-host:")
    finally:
        opened.close()
