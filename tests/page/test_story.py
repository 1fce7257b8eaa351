"""What a newcomer does in the first minutes: digits, a round, a training to be watched; and a worker that is lost."""

import os
import re
import signal

import numpy as np
import pytest
from playwright.sync_api import Page, expect
from sklearn.datasets import load_digits

from tests.app.working import wait_for
from tests.page.conftest import Console, Served


def digit_of(service: Served, pool_id: str, key: str) -> str:
    """What the picture shows, found by its pixels."""
    (item,) = service.get(f"/pools/{pool_id}/items", key=key, features=True, limit=1)["items"]
    digits = load_digits()
    (row,) = np.flatnonzero((digits.data == np.array(item["x"])).all(1))[:1]
    return str(digits.target[row])


def test_try_it_on_digits_label_twenty_and_see_the_curve_gain_a_point(service: Served, page: Page) -> None:
    page.get_by_role("button", name="Try it on digits").click()
    expect(page.get_by_role("heading", name="Handwritten digits")).to_be_visible()
    project_id = page.url.rsplit("/", 1)[1]
    label = page.get_by_role("link", name="Label 20 left")
    expect(label).to_be_visible(timeout=60_000)  # trained, and a round is open, without a reload
    expect(page.get_by_text("One point. Label a round to see it move.")).to_be_visible()
    curve = page.locator("section", has=page.get_by_role("heading", name="Is it learning?"))
    label.click()
    expect(page.locator(".stage .item")).to_be_visible()
    pool_id = service.get(f"/projects/{project_id}/rounds", order="desc", limit=1)["items"][0]["pool_id"]
    for _ in range(20):
        page.wait_for_timeout(150)  # keys rest while what is new is looked at
        shown = page.locator(".stage .item canvas").get_attribute("aria-label") or ""
        page.keyboard.press(digit_of(service, pool_id, shown.removeprefix("Image of ")))
    page.keyboard.press("Enter")  # the last one waits for five seconds, or for this
    expect(page.get_by_role("heading", name=re.compile("Round complete"))).to_be_visible()
    expect(page.get_by_role("link", name="Label round 2")).to_be_visible(timeout=60_000)
    page.get_by_role("link", name="To the project").click()
    expect(page.get_by_text("One point.")).not_to_be_visible()
    curve.get_by_text("Show as a table").click()
    expect(curve.locator("tbody tr")).to_have_count(2)
    points = service.get(f"/projects/{project_id}/learning-curve")["points"]
    assert [point["n_labels"] for point in points] == [20, 40]
    assert points[1]["metrics"]["accuracy"] > points[0]["metrics"]["accuracy"]
    expect(page.get_by_role("link", name="Label 20 left")).to_be_visible()


def test_a_worker_that_is_killed_is_shown_and_another_goes_on(service: Served, page: Page) -> None:
    digits = load_digits()
    project = service.post(
        "/projects",
        {
            "name": "slow training",
            "task": {"kind": "classification", "classes": [str(i) for i in range(10)]},
            "input": {"shape": [64]},
            "model": {"name": "mlp", "hidden": [128, 128]},
            "posterior": {"name": "deep_ensemble", "members": 5, "epochs": 20_000},
            "calibrate": False,
        },
    )
    rows, labels = digits.data[:400].tolist(), [str(value) for value in digits.target[:400]]
    service.post(f"/projects/{project['id']}/pools", {"name": "digits", "rows": rows, "labels": labels})
    page.goto(f"{service.address}/p/{project['id']}")
    page.get_by_role("button", name="Train", exact=True).click()
    (job,) = wait_for(lambda: service.get(f"/projects/{project['id']}/jobs", status="running")["items"], 60)
    now = page.locator("section", has=page.get_by_role("heading", name="Now", exact=True))
    expect(now.get_by_text("Training version 1")).to_be_visible()
    expect(now.get_by_role("progressbar")).to_be_visible()
    service.until(job["id"], lambda found: found.progress and found.progress["done"] > 0)
    holder = service.holder(service.job(job["id"]))
    os.kill(holder.pid, signal.SIGKILL)
    service.start("worker")
    expect(now.get_by_text("attempt 2 of", exact=False)).to_be_visible(timeout=60_000)
    service.until(job["id"], lambda found: found.status == "running" and found.attempts == 2)
    now.get_by_role("button", name="Cancel: Training version 1").click()
    expect(now.get_by_text("Nothing is under way.").or_(now.get_by_text("Cancelled."))).to_be_visible(timeout=60_000)


@pytest.mark.parametrize("path", ["/nothing/here", "/p/none", "/s/none"])
def test_an_address_that_leads_nowhere_says_so(service: Served, page: Page, console: Console, path: str) -> None:
    console.expect("status of 404")
    page.goto(f"{service.address}{path}")
    expect(page.get_by_text(re.compile("There is nothing at this address|there is no"))).to_be_visible()
