"""Labelling in a real browser: fast, alone or with others, and whatever happens to the network."""

import json
import re

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.page.conftest import BROKEN_CONNECTION, Console, Served
from tests.page.labelling import LabelRound, digits_round, numbers_round, open_round, press, row_of, shown_key

TWENTY = [str(i % 10) for i in range(20)]


@pytest.fixture
def round_(service: Served) -> LabelRound:
    return digits_round(service)


def said_of(keys: list[str], values: list[str]) -> list[tuple[int, str, str]]:
    return [(row_of(key), "label", value) for key, value in zip(keys, values, strict=True)]


def test_twenty_are_labelled_with_the_keyboard_and_a_training_follows(page: Page, round_: LabelRound) -> None:
    open_round(page, round_)
    keys = press(page, TWENTY)
    expect(page.get_by_text("That was the last one")).to_be_visible()
    assert len(round_.wait_said(19)) == 19, "the last one waits, and can be undone"
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=re.compile("Round complete"))).to_be_visible()
    assert round_.wait_said(20) == said_of(keys, TWENTY)
    assert len(set(keys)) == 20
    expect(page.get_by_role("heading", name="A new version is trained")).to_be_visible(timeout=60_000)
    expect(page.get_by_text("saved")).to_be_visible()


def test_ten_a_second_are_all_kept(page: Page, round_: LabelRound) -> None:
    open_round(page, round_)
    for value in TWENTY[:19]:
        page.keyboard.press(value)
        page.wait_for_timeout(100)
    said = round_.wait_said(19)
    assert [value for _, _, value in said] == TWENTY[:19]
    assert len({row for row, _, _ in said}) == 19


def test_a_key_that_bounces_or_is_held_down_answers_once(page: Page, round_: LabelRound) -> None:
    open_round(page, round_)
    page.wait_for_timeout(200)
    first = shown_key(page)
    page.keyboard.down("3")
    page.keyboard.down("3")  # which the browser tells as a repetition
    page.keyboard.up("3")
    page.keyboard.press("Control+4")
    page.wait_for_timeout(300)
    assert round_.wait_said(1) == [(row_of(first), "label", "3")]


def test_an_api_that_is_killed_in_the_middle_loses_and_doubles_nothing(
    page: Page, round_: LabelRound, console: Console
) -> None:
    console.expect(BROKEN_CONNECTION)
    service = round_.service
    open_round(page, round_)
    keys = press(page, TWENTY[:6])
    service.kill_api()
    keys += press(page, TWENTY[6:9])  # of those that are there already
    expect(page.get_by_text(re.compile("The service does not answer")).first).to_be_visible()
    expect(page.get_by_text("3 waiting")).to_be_visible()
    service.start_api()
    expect(page.get_by_text("saved")).to_be_visible(timeout=60_000)
    keys += press(page, TWENTY[9:12])
    assert round_.wait_said(12) == said_of(keys, TWENTY[:12])


def test_labels_that_wait_are_sent_when_the_page_is_left_and_once(
    page: Page, round_: LabelRound, console: Console
) -> None:
    console.expect(BROKEN_CONNECTION)
    open_round(page, round_)
    page.route("**/v1/rounds/*/labels", lambda route: route.abort())
    keys = press(page, TWENTY[:3])
    expect(page.get_by_text("3 waiting")).to_be_visible()
    page.unroute("**/v1/rounds/*/labels")
    page.reload()
    expect(page.locator(".stage .item")).to_be_visible()
    assert shown_key(page) not in keys
    expect(page.get_by_text("saved")).to_be_visible()
    expect(page.locator(".strip li canvas")).to_have_count(3)
    assert sorted(round_.wait_said(3)) == sorted(said_of(keys, TWENTY[:3]))


def test_labelling_goes_on_offline(page: Page, context: BrowserContext, round_: LabelRound, console: Console) -> None:
    console.expect(BROKEN_CONNECTION)
    open_round(page, round_)
    context.set_offline(True)
    keys = press(page, TWENTY[:5])
    expect(page.get_by_text("5 waiting")).to_be_visible()
    context.set_offline(False)
    expect(page.get_by_text("saved")).to_be_visible(timeout=40_000)
    assert round_.wait_said(5) == said_of(keys, TWENTY[:5])


def test_undo_takes_back_and_a_click_on_the_strip_corrects(page: Page, round_: LabelRound) -> None:
    open_round(page, round_)
    first, second = press(page, ["1", "2"])
    expect(page.get_by_text("saved")).to_be_visible()
    page.keyboard.press("Backspace")
    assert shown_key(page) == second
    expect(page.get_by_role("button", name="2 said before")).to_be_visible()
    page.wait_for_timeout(200)
    page.keyboard.press("Space")
    page.get_by_role("button", name=f"Correct {first}, 1").click()
    page.wait_for_timeout(200)
    page.keyboard.press("7")
    rows = (row_of(first), row_of(second))
    assert round_.wait_said(5) == [
        (rows[0], "label", "1"),
        (rows[1], "label", "2"),
        (rows[1], "retract", None),
        (rows[1], "skip", None),
        (rows[0], "label", "7"),
    ]


def test_several_are_answered_at_once_in_the_grid(page: Page, round_: LabelRound) -> None:
    open_round(page, round_)
    page.keyboard.press(".")
    expect(page.locator(".item-grid .cell")).to_have_count(20)
    for key in ("ArrowRight", "Shift+ArrowRight", "Shift+ArrowRight"):
        page.keyboard.press(key)
    page.wait_for_timeout(200)
    page.keyboard.press("4")
    said = round_.wait_said(3)
    assert [value for _, _, value in said] == ["4", "4", "4"]
    expect(page.locator(".item-grid .cell")).to_have_count(17)
    page.keyboard.press("Backspace")
    expect(page.locator(".item-grid .cell")).to_have_count(20)
    assert [action for _, action, _ in round_.wait_said(6)[3:]] == ["retract"] * 3


def test_of_two_tabs_one_labels_until_the_other_takes_over(
    page: Page, context: BrowserContext, round_: LabelRound
) -> None:
    open_round(page, round_)
    other = context.new_page()
    other.goto(f"{round_.service.address}{round_.path}")
    expect(other.get_by_text("You label this round in another tab")).to_be_visible()
    keys = press(page, ["1"])
    other.get_by_role("button", name="Continue here").click()
    expect(other.locator(".stage .item")).to_be_visible()
    expect(page.get_by_text("You label this round in another tab")).to_be_visible()
    page.keyboard.press("5")
    other.wait_for_timeout(200)
    keys += press(other, ["2"])
    assert round_.wait_said(2) == said_of(keys, ["1", "2"])


def test_a_second_annotator_gets_other_items_and_what_the_first_gives_back(
    page: Page, round_: LabelRound, console: Console
) -> None:
    service = round_.service
    open_round(page, round_)
    others = page.context.browser
    assert others is not None
    grace = others.new_context(viewport={"width": 390, "height": 844}, color_scheme="dark")
    try:
        second = grace.new_page()
        console.watch(second)
        second.goto(f"{service.address}/#key={service.key('grace', 'label')}")
        open_round(second, round_)
        mine, hers = press(page, ["1", "2", "3"]), press(second, ["4", "5", "6"])
        assert set(mine).isdisjoint(hers)
        round_.wait_said(6)
        assert {(event["row"], event["annotator"]) for event in round_.history()} == {
            *((row_of(key), "crash test") for key in mine),
            *((row_of(key), "grace") for key in hers),
        }
        page.goto(f"{service.address}/settings")  # leaves: what was held is free at once
        expect(page.get_by_role("heading", name="Settings", exact=True)).to_be_visible()
        last = second.get_by_text("That was the last one")
        for _ in range(30):  # hers, those that nobody had, and those that were given back
            if last.is_visible():
                break
            second.keyboard.press("7")
            second.wait_for_timeout(250)
        expect(last).to_be_visible()
        assert len(round_.wait_said(19)) == 19
    finally:
        grace.close()


def test_nobody_is_told_that_nothing_is_left_while_others_hold_items(page: Page, service: Served) -> None:
    round_ = digits_round(service, k=3)
    service.post(f"/rounds/{round_.round_id}/next", {"annotator": "grace", "count": 3})
    page.goto(f"{service.address}{round_.path}")
    expect(page.get_by_role("heading", name=re.compile(r"Others hold the last 3 till \d"))).to_be_visible()
    service.post(f"/rounds/{round_.round_id}/release", {"annotator": "grace"})
    page.get_by_role("button", name="Wait").click()
    expect(page.locator(".stage .item")).to_be_visible()


def test_the_last_label_waits_for_an_undo_also_over_a_reload(page: Page, service: Served) -> None:
    round_ = digits_round(service, k=2)
    open_round(page, round_)
    press(page, ["1", "2"])
    expect(page.get_by_text("That was the last one")).to_be_visible()
    page.reload()
    expect(page.get_by_text("That was the last one")).to_be_visible()
    page.keyboard.press("Backspace")
    expect(page.locator(".stage .item")).to_be_visible()
    page.wait_for_timeout(6000)
    assert (len(round_.said()), round_.status()) == (1, "open")
    page.keyboard.press("3")
    expect(page.get_by_role("heading", name=re.compile("Round complete"))).to_be_visible(timeout=15_000)
    assert [value for _, _, value in round_.wait_said(2)] == ["1", "3"]


def test_a_refused_label_is_listed_and_can_be_corrected(page: Page, round_: LabelRound, console: Console) -> None:
    console.expect("the server responded with a status of 422")
    open_round(page, round_)

    def spoil(route: object) -> None:  # as a class that was taken out of the project
        body = route.request.post_data.replace('"value":"9"', '"value":"nine"')  # type: ignore[attr-defined]
        route.continue_(post_data=body)  # type: ignore[attr-defined]

    page.route("**/v1/rounds/*/labels", spoil)
    (key,) = press(page, ["9"])
    expect(page.get_by_role("heading", name="1 label refused")).to_be_visible()
    expect(page.get_by_text(re.compile("unknown class 'nine'"))).to_be_visible()
    page.get_by_role("button", name=f"Correct {key}").first.click()
    page.wait_for_timeout(200)
    page.keyboard.press("8")
    assert round_.wait_said(1) == [(row_of(key), "label", "8")]
    expect(page.get_by_role("heading", name="1 label refused")).to_have_count(0)


def test_labels_go_on_after_signing_in_again(page: Page, round_: LabelRound, console: Console) -> None:
    console.expect("the server responded with a status of 401")
    service = round_.service
    mine = service.post("/keys", {"name": "ada", "scopes": ["label"]})
    page.evaluate("localStorage.setItem('bensemble.annotator', 'ada')")
    page.goto("about:blank")  # another fragment alone would load nothing
    page.goto(f"{service.address}/#key={mine['key']}")
    open_round(page, round_)
    service.client.delete(f"/v1/keys/{mine['id']}").raise_for_status()
    keys = press(page, ["1"])
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("API key").fill(service.key("ada again", "label"))
    dialog.get_by_role("button", name="Open").click()
    expect(dialog).to_have_count(0)
    expect(page.locator(".stage .item")).to_be_visible()
    page.wait_for_timeout(300)
    keys += press(page, ["2"])
    assert round_.wait_said(2) == said_of(keys, ["1", "2"])
    assert {event["annotator"] for event in round_.history()} == {"ada"}


def test_numbers_are_typed_with_their_unit_and_kept_where_they_are_none(page: Page, service: Served) -> None:
    round_ = numbers_round(service)
    open_round(page, round_)
    field = page.get_by_label("Value in mm")
    expect(field).to_be_focused()
    page.keyboard.type("1,5")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("with a point")
    expect(field).to_have_value("1,5")
    field.fill("12.5")
    page.keyboard.press("Enter")
    expect(field).to_have_value("")
    page.keyboard.press("Space")
    said = round_.wait_said(2)
    assert [(action, value) for _, action, value in said] == [("label", 12.5), ("skip", None)]
    expect(page.get_by_role("button", name=re.compile(r"12\.5 mm"))).to_be_visible()


def test_keys_can_be_switched_off(page: Page, round_: LabelRound) -> None:
    open_round(page, round_)
    page.keyboard.press("?")
    page.get_by_label("Answer with single keys").uncheck()
    page.get_by_role("button", name="Close").click()
    page.keyboard.press("1")
    page.wait_for_timeout(500)
    assert round_.said() == []
    page.get_by_role("button", name="3", exact=True).click()
    assert [value for _, _, value in round_.wait_said(1)] == ["3"]
    assert json.loads(page.evaluate("JSON.stringify(localStorage.getItem('bensemble.shortcuts'))")) == "off"
