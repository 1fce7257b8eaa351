"""What a person does on the labelling page, and what the service then knows of it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from playwright.sync_api import Page, expect
from sklearn.datasets import load_digits

from tests.app.working import wait_for
from tests.page.conftest import Served

SEEDS = 20  # labelled rows from which the first ensemble is trained


@dataclass(frozen=True, kw_only=True)
class LabelRound:
    service: Served
    project_id: str
    round_id: str

    @property
    def path(self) -> str:
        return f"/p/{self.project_id}/label/{self.round_id}"

    def history(self) -> list[dict[str, Any]]:
        """What annotators said, in order: not the labels that came with the pool."""
        found = self.service.get(f"/projects/{self.project_id}/labels", history=True, limit=1000)["items"]
        return [event for event in found if event["source"] == "api"]

    def said(self) -> list[tuple[int, str, Any]]:
        return [(event["row"], event["action"], event["value"]) for event in self.history()]

    def wait_said(self, n: int, seconds: float = 60) -> list[tuple[int, str, Any]]:
        """Once there are so many, and no more."""
        wait_for(lambda: len(self.said()) >= n, seconds, every=0.1)
        said = self.said()
        assert len(said) == n, said
        return said

    def status(self) -> str:
        return str(self.service.get(f"/rounds/{self.round_id}")["status"])


def digits_round(service: Served, k: int = 20, *, retrain: bool = True) -> LabelRound:
    """A project of a few handwritten digits, trained once, with an open round of k of them."""
    digits = load_digits()
    n = SEEDS + 2 * k + 20
    project = service.post(
        "/projects",
        {
            "name": "digits",
            "task": {"kind": "classification", "classes": [str(i) for i in range(10)]},
            "input": {"shape": [64]},
            "display": {"kind": "image", "shape": [8, 8], "range": [0, 16], "instructions": "Which digit is it?"},
        },
    )
    labels: list[str | None] = [str(label) for label in digits.target[:SEEDS]]
    pool = service.post(
        f"/projects/{project['id']}/pools",
        {
            "name": "digits",
            "rows": digits.data[:n].tolist(),
            "keys": [f"digit-{i:04d}" for i in range(n)],
            "labels": labels + [None] * (n - SEEDS),
        },
    )
    trained = service.post(f"/projects/{project['id']}/ensembles", {})
    service.wait(trained["job"]["id"])
    opened = service.post(f"/projects/{project['id']}/rounds", {"pool_id": pool["id"], "k": k, "retrain": retrain})
    service.wait(opened["job"]["id"])
    return LabelRound(service=service, project_id=project["id"], round_id=opened["round"]["id"])


def numbers_round(service: Served, k: int = 5) -> LabelRound:
    """Lengths in mm of three features each."""
    project = service.post(
        "/projects",
        {
            "name": "lengths",
            "task": {"kind": "regression"},
            "input": {"shape": [3]},
            "display": {"kind": "table", "columns": ["width", "height", "mass"], "unit": "mm"},
        },
    )
    rows = [[i % 5, i % 7, i % 3] for i in range(40)]
    pool = service.post(
        f"/projects/{project['id']}/pools",
        {"name": "things", "rows": rows, "labels": [float(sum(row)) for row in rows[:20]] + [None] * 20},
    )
    trained = service.post(f"/projects/{project['id']}/ensembles", {})
    service.wait(trained["job"]["id"])
    opened = service.post(f"/projects/{project['id']}/rounds", {"pool_id": pool["id"], "k": k})
    service.wait(opened["job"]["id"])
    return LabelRound(service=service, project_id=project["id"], round_id=opened["round"]["id"])


def open_round(page: Page, round_: LabelRound) -> None:
    page.goto(f"{round_.service.address}{round_.path}")
    expect(page.locator(".stage .item")).to_be_visible()
    page.wait_for_timeout(200)  # nobody has seen it sooner, and keys that come then are ignored


def shown_key(page: Page) -> str:
    """Of the item that is to be labelled."""
    label = page.locator(".stage .item canvas").get_attribute("aria-label") or ""
    return label.removeprefix("Image of ")


def press(page: Page, keys: Sequence[str], every_ms: float = 150) -> list[str]:
    """One after the other, as somebody would who reads; the items' keys, in order."""
    shown = []
    for key in keys:
        shown.append(shown_key(page))
        page.keyboard.press(key)
        page.wait_for_timeout(every_ms)
    return shown


def row_of(key: str) -> int:
    found = re.search(r"(\d+)$", key)
    assert found is not None, key
    return int(found[1])
