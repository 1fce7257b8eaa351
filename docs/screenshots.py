"""The pictures of the page in README.md and docs/: `make screenshots`.

Starts a service of its own on a free port and an empty folder, makes the example, labels a round as somebody would who
sees the digits, runs some trials of an experiment, and takes pictures of what is then there. Needs Debian's chromium.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
from playwright.sync_api import Page, expect, sync_playwright
from sklearn.datasets import load_digits

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.crash.running import Running, running  # noqa: E402

FOLDER = ROOT / "docs"
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
N_ROUNDS = 4
CURVE_SPAN = 7.4  # digits that the simulated participant can keep


@contextmanager
def service() -> Iterator[Running]:
    with tempfile.TemporaryDirectory() as folder, running(f"sqlite:///{folder}/page.db", Path(folder)) as started:
        started.start_api()
        started.start("worker")
        yield started


def until(look: Callable[[], Any], seconds: float = 120) -> Any:
    give_up = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > give_up:
            raise TimeoutError(f"nothing after {seconds} s")
        time.sleep(0.1)
    return found


def labelled_example(served: Running) -> tuple[str, str]:
    """A project on digits after some rounds, and its open round."""
    example = served.post("/examples", {"name": "digits"})
    project_id: str = example["project"]["id"]
    digits = load_digits()
    for number in range(1, N_ROUNDS + 1):
        round_ = until(lambda number=number: _open(served, project_id, number))  # type: ignore[misc]
        if number == N_ROUNDS:
            break
        items = served.post(f"/rounds/{round_['id']}/next", {"count": 100, "features": True})["items"]
        labels = []
        for item in items:
            (row,) = np.flatnonzero((digits.data == np.array(item["x"])).all(1))[:1]
            labels.append({"row": item["row"], "value": str(digits.target[row])})
        served.post(f"/rounds/{round_['id']}/labels", {"labels": labels})
        print(f"round {number} labelled")
    return project_id, str(round_["id"])


def _open(served: Running, project_id: str, number: int) -> Any:
    rounds = served.get(f"/projects/{project_id}/rounds", order="desc", limit=1)["items"]
    return rounds[0] if rounds and rounds[0]["number"] == number and rounds[0]["status"] == "open" else None


def session_with_trials(served: Running) -> str:
    spec = {
        "name": "Digit span",
        "parameters": {"theta": {"dist": "normal", "loc": 7, "scale": 2}},
        "designs": {"xi": {"type": "integer", "low": 1, "high": 15}},
        "outcome": {"y": {"family": "bernoulli", "logit": "theta - xi"}},
        "stop": {"sd": {"theta": 0.6}},
    }
    experiment = served.post("/experiments", spec)["id"]
    session: str = served.post(f"/experiments/{experiment}/sessions", {"name": "Ada"})["id"]
    for _ in range(8):
        proposal = served.post(f"/sessions/{session}/proposals", {})
        outcome = {"y": int(proposal["design"]["xi"] < CURVE_SPAN)}
        served.post(f"/sessions/{session}/observations", {"proposal_id": proposal["id"], "outcome": outcome})
    return session


def settled(page: Page) -> None:
    page.wait_for_load_state()
    expect(page.locator(".skeleton")).to_have_count(0, timeout=30_000)
    page.wait_for_timeout(1500)  # charts are drawn once they are seen


def main() -> None:
    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    if executable is None:
        sys.exit("no chromium: apt-get install chromium")
    with service() as served, sync_playwright() as playwright:
        project_id, round_id = labelled_example(served)
        session = session_with_trials(served)
        secret = served.post("/keys", {"name": "ada", "scopes": ["admin"]})["key"]
        browser = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
        shots: dict[str, tuple[str, int, int, Literal["light", "dark"]]] = {
            "page_project": (f"/p/{project_id}", 1280, 960, "light"),
            "page_label": (f"/p/{project_id}/label/{round_id}", 1280, 860, "light"),
            "page_label_phone": (f"/p/{project_id}/label/{round_id}", 390, 844, "dark"),
            "page_session": (f"/s/{session}", 1280, 960, "light"),
        }
        for name, (path, width, height, scheme) in shots.items():
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
            page = context.new_page()
            page.goto(f"http://127.0.0.1:{served.port}/#key={secret}")
            page.get_by_role("navigation").wait_for()
            page.goto(f"http://127.0.0.1:{served.port}{path}")
            settled(page)
            page.screenshot(path=FOLDER / f"{name}.png")
            print(f"docs/{name}.png")
            context.close()
        browser.close()


if __name__ == "__main__":
    main()
