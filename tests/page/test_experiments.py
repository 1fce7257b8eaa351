"""Experiments on the page: from a model of the catalogue to trials, a participant's link, and what must not be lost."""

from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect

from tests.page.conftest import BROKEN_CONNECTION, Console, Served

SPAN: dict[str, Any] = {
    "name": "digit span",
    "instructions": "Say the digits back.",
    "parameters": {"theta": {"dist": "normal", "loc": 7, "scale": 2}},
    "designs": {"xi": {"type": "integer", "low": 1, "high": 15}},
    "outcome": {"y": {"family": "bernoulli", "logit": "theta - xi"}},
    "stop": {"max_trials": 8},
}
PLANE = {"px": {"type": "float", "low": -1, "high": 1}, "py": {"type": "float", "low": -1, "high": 1}}


def opened(service: Served, **changes: Any) -> dict[str, Any]:
    """A session of the experiment on digit span, or of one that differs from it."""
    experiment = service.post("/experiments", {**SPAN, **changes})["id"]
    made: dict[str, Any] = service.post(f"/experiments/{experiment}/sessions", {"name": "participant 1"})
    return made


def visit(page: Page, service: Served, session: dict[str, Any]) -> None:
    page.goto(f"{service.address}/s/{session['id']}")
    expect(page.locator(".next .design")).to_be_visible()


def outcomes(service: Served, session: dict[str, Any]) -> list[tuple[Any, Any]]:
    trials = service.get(f"/sessions/{session['id']}/trials")["items"]
    return [(trial["design"], trial["outcome"]) for trial in trials]


def answer(page: Page, button: str, n: int) -> None:
    """Press it, and wait till the session has n trials."""
    page.get_by_role("group", name="Outcome y").get_by_role("button", name=button).click()
    has_trials(page, n)


def has_trials(page: Page, n: int) -> None:
    expect(page.get_by_role("region", name="Trials, the newest first").locator("tbody tr")).to_have_count(n)
    expect(page.get_by_text(f"{n} trial" if n == 1 else f"{n} trials", exact=False).first).to_be_visible()


def test_from_the_catalogue_to_five_trials_with_one_undone(service: Served, page: Page) -> None:
    page.get_by_role("link", name="Experiments", exact=True).first.click()
    page.get_by_label("Find a model").fill("digit span")
    page.get_by_role("button", name="Start from this: Digit span").click()
    editor = page.get_by_label("The experiment as JSON")
    expect(page.get_by_text("whole numbers from 1 to 15")).to_be_visible()
    editor.fill(editor.input_value().replace("Digit span", "memory of digits"))
    page.get_by_role("button", name="Create the experiment").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("memory of digits")
    page.get_by_label("Who, or what").fill("Ada")
    page.get_by_role("button", name="Open a session").click()
    expect(page.locator(".next .design")).to_have_text("xi = 7")
    expect(page.locator(".next").get_by_text("0.231")).to_be_visible()  # the published EIG of the first list

    answer(page, "yes", 1)
    page.wait_for_timeout(150)  # keys rest while what is new is looked at
    page.keyboard.press("0")
    has_trials(page, 2)
    answer(page, "yes", 3)
    answer(page, "no", 4)
    answer(page, "no", 5)
    session = {"id": page.url.rsplit("/", 1)[1]}
    before = outcomes(service, session)
    assert [outcome["y"] for _, outcome in before] == [1, 0, 1, 0, 0]

    page.get_by_role("button", name="Undo y = 0").click()
    has_trials(page, 4)
    assert outcomes(service, session) == before[:4]
    expect(page.locator(".next .design")).to_have_text(f"xi = {before[4][0]['xi']}")  # the same question again
    answer(page, "yes", 5)
    assert outcomes(service, session) == [*before[:4], (before[4][0], {"y": 1})]
    expect(page.get_by_role("img", name="Expected information gain of 15 designs")).to_be_visible()
    expect(page.get_by_role("img", name="Median of theta after each trial")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").click()
    assert download.value.suggested_filename == "Ada.csv"
    assert download.value.path().read_text().count("\n") >= 6


def test_a_mistake_is_marked_on_its_line(service: Served, page: Page, console: Console) -> None:
    console.expect("/models/validate")
    page.goto(f"{service.address}/experiments")
    page.get_by_role("button", name="Write your own").click()
    editor = page.get_by_label("The experiment as JSON")
    expect(page.get_by_text("normal around 7, sd 2")).to_be_visible()
    good = editor.input_value()
    editor.fill(good.replace("theta - xi", "theta - zi"))
    line = next(i for i, text in enumerate(good.splitlines(), 1) if "logit" in text)
    place = page.get_by_role("button", name=f"Line {line}, column")
    expect(page.get_by_text("unknown name 'zi'")).to_be_visible()
    expect(page.locator(".gutter .wrong")).to_have_text(f"✕ {line}")
    place.click()
    chosen = "document.activeElement.value.slice(document.activeElement.selectionStart).slice(0, 2)"
    assert page.evaluate(chosen) == "zi"
    assert page.get_by_role("button", name="Create the experiment").get_attribute("aria-disabled") == "true"
    editor.fill(good.replace('"name": "digit span",', '"name": "digit span"'))
    expect(page.get_by_text("a comma or } is expected here")).to_be_visible()
    page.reload()
    expect(editor).to_have_value(good.replace('"name": "digit span",', '"name": "digit span"'))  # nothing is lost


def test_a_participant_runs_the_session_by_its_link_and_sees_nothing_else(
    service: Served, page: Page, browser: Browser, console: Console
) -> None:
    session = opened(service, stop={"max_trials": 3})
    visit(page, service, session)
    page.get_by_role("button", name="Participant link").click()
    page.get_by_role("button", name="Make a link").click()
    link = page.get_by_label("The participant's link").inner_text()
    page.get_by_role("button", name="Close", exact=True).click()

    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme="dark")
    context.on("page", console.watch)
    phone = context.new_page()
    phone.goto(link)
    expect(phone.get_by_text("Say the digits back.")).to_be_visible()
    assert "#" not in phone.url
    assert phone.locator("a").count() == 0
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390
    expect(phone.locator(".shown dd")).to_have_text("7")
    phone.get_by_role("button", name="yes", exact=True).click()
    expect(phone.get_by_role("heading", level=1)).to_have_text("Question 2")
    phone.reload()
    phone.get_by_role("button", name="no", exact=True).click()
    expect(phone.get_by_role("heading", level=1)).to_have_text("Question 3")
    has_trials(page, 2)  # the experimenter sees it, without a reload
    phone.get_by_role("button", name="Take my last answer back").click()
    expect(phone.get_by_role("heading", level=1)).to_have_text("Question 2")
    for question in ("3", "you"):
        phone.get_by_role("button", name="yes", exact=True).click()
        expect(phone.get_by_role("heading", level=1)).to_contain_text(question)
    expect(phone.get_by_text("your 3 answers are saved")).to_be_visible()
    assert [outcome["y"] for _, outcome in outcomes(service, session)] == [1, 1, 1]
    expect(page.get_by_text("Enough is known: you can stop here.")).to_be_visible()

    page.get_by_role("button", name="Participant link").click()
    page.get_by_role("button", name="Revoke").click()
    expect(page.get_by_text("No link works any more.")).to_be_visible()
    console.expect(f"/v1/sessions/{session['id']}")
    phone.goto(link)
    phone.reload()
    expect(phone.get_by_text("This link no longer works.")).to_be_visible()
    context.close()


def test_an_outcome_survives_a_broken_network_and_a_reload_and_is_recorded_once(
    service: Served, page: Page, console: Console
) -> None:
    console.expect(BROKEN_CONNECTION)
    session = opened(service)
    visit(page, service, session)
    sent = []

    def lose(route: Route) -> None:
        """The service hears it, the answer is lost."""
        sent.append(route.request.headers["idempotency-key"])
        if len(sent) == 1:
            route.fetch()
        route.abort()

    page.route("**/observations?next=true", lose)
    page.get_by_role("button", name="yes", exact=True).click()
    expect(page.get_by_text("y = 1 at xi = 7 is kept in this browser and not recorded yet.")).to_be_visible()
    page.reload()
    expect(page.get_by_text("is kept in this browser")).to_be_visible()
    page.unroute("**/observations?next=true")
    page.get_by_role("button", name="Try now").click()
    has_trials(page, 1)
    assert outcomes(service, session) == [({"xi": 7}, {"y": 1})]
    assert len(set(sent)) == 1
    assert len(sent) > 1


def test_a_double_click_is_one_trial(service: Served, page: Page) -> None:
    session = opened(service)
    visit(page, service, session)
    page.get_by_role("button", name="yes").dblclick()
    has_trials(page, 1)
    page.wait_for_timeout(500)
    assert len(outcomes(service, session)) == 1


def test_what_another_tab_recorded_is_told_and_not_recorded_over(
    service: Served, page: Page, context: BrowserContext, console: Console
) -> None:
    console.expect("/observations?next=true")
    session = opened(service)
    visit(page, service, session)
    page.route(f"**/v1/sessions/{session['id']}", lambda route: None)  # this tab looks away
    other = context.new_page()
    other.goto(f"{service.address}/#key={service.secret}")
    visit(other, service, session)
    answer(other, "yes", 1)
    page.get_by_role("button", name="no", exact=True).click()
    expect(page.get_by_text("y = 0 at xi = 7 was not recorded")).to_be_visible()
    assert outcomes(service, session) == [({"xi": 7}, {"y": 1})]
    page.unroute(f"**/v1/sessions/{session['id']}")
    page.get_by_role("button", name="Discard it").click()
    page.reload()
    has_trials(page, 1)
    answer(page, "no", 2)


def test_another_design_can_be_run_and_every_kind_of_outcome_entered(service: Served, page: Page) -> None:
    two = {
        "hits": {"family": "binomial", "n": 5, "logit": "theta - xi"},
        "ms": {"family": "normal", "mean": "theta", "sd": 3},
    }
    session = opened(service, outcome=two)
    visit(page, service, session)
    page.get_by_role("button", name="Another design").click()
    page.get_by_label("xi", exact=True).fill("4")
    page.get_by_role("button", name="Run exactly this").click()
    expect(page.locator(".next .design")).to_have_text("xi = 4")
    page.get_by_role("button", name="Record").click()
    expect(page.get_by_text("Enter how many.")).to_be_visible()
    page.get_by_role("button", name="hits: one more").click()
    page.get_by_role("button", name="hits: one more").click()
    page.get_by_label("ms", exact=True).fill("6,5")
    page.get_by_role("button", name="Record").click()
    expect(page.get_by_text("Write 6.5 with a point.")).to_be_visible()
    page.get_by_label("ms", exact=True).fill("6.5")
    page.keyboard.press("Enter")
    has_trials(page, 1)
    assert outcomes(service, session) == [({"xi": 4}, {"hits": 1, "ms": 6.5})]


@pytest.mark.parametrize(
    ("designs", "logit", "shown"),
    [
        ({"x": {"type": "float", "low": 1, "high": 15}}, "theta - x", "Expected information gain of 61 designs"),
        (PLANE, "px * theta + py", "Expected information gain of"),
    ],
    ids=["a line", "a map"],
)
def test_continuous_designs_are_drawn(
    service: Served, page: Page, designs: dict[str, Any], logit: str, shown: str
) -> None:
    session = opened(service, designs=designs, outcome={"y": {"family": "bernoulli", "logit": logit}})
    visit(page, service, session)
    expect(page.get_by_role("img", name=shown).locator("canvas").first).to_be_visible()


def test_a_simulation_runs_and_is_drawn_before_anybody_is_recruited(service: Served, page: Page) -> None:
    experiment = service.post("/experiments", SPAN)["id"]
    page.goto(f"{service.address}/e/{experiment}")
    page.get_by_label("Participants", exact=True).fill("5")
    page.get_by_label("Trials of each").fill("4")
    page.get_by_role("button", name="Simulate").click()
    expect(page.get_by_role("img", name="Posterior sd of theta by trial")).to_be_visible(timeout=60_000)
    expect(page.get_by_role("cell", name="adaptive")).to_be_visible()
    page.get_by_role("button", name="Change it").click()
    editor = page.get_by_label("The experiment as JSON")
    editor.fill(editor.input_value().replace('"high": 15', '"high": 12'))
    expect(page.get_by_text("whole numbers from 1 to 12")).to_be_visible()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("button", name="Change it")).to_be_visible()
    assert service.get(f"/experiments/{experiment}")["spec"]["designs"]["xi"]["high"] == 12
