"""How soon the page can be used: `python benchmarks/page.py [--rows 1000000]`. Needs chromium and a built page.

A service of its own with the example on digits and a pool of so many rows; every screen is opened in a tab with an
empty cache, and timed from the request to its heading, to the end of all skeletons and to the first chart; among them
the large pool with its map, and a ranking of it.
"""

import argparse
import io
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Browser, Request, expect, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.crash.running import Running, running  # noqa: E402

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


def until(look: Any, seconds: float = 300) -> Any:
    give_up = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > give_up:
            raise TimeoutError(f"nothing after {seconds} s")
        time.sleep(0.1)
    return found


def large_pool(served: Running, n: int) -> tuple[str, str, str]:
    """A project, its pool of n rows of 16 numbers, and a ranking of it."""
    rng = np.random.default_rng(0)
    task = {"kind": "classification", "classes": ["in", "out"]}
    project = served.post("/projects", {"name": "large", "task": task, "input": {"shape": [16]}})["id"]
    few = rng.standard_normal((200, 16))
    labels = ["in" if row[0] + row[1] > 0 else "out" for row in few]
    served.post(f"/projects/{project}/pools", {"name": "few", "rows": few.tolist(), "labels": labels})
    pool = served.post(f"/projects/{project}/pools", {"name": "many"})["id"]
    file = io.BytesIO()
    np.save(file, rng.standard_normal((n, 16)).astype(np.float32))
    sent = served.client.put(
        f"/v1/pools/{pool}/data", content=file.getvalue(), headers={"Content-Type": "application/x-npy"}, timeout=300
    )
    served.wait(sent.raise_for_status().json()["job"]["id"], 300)
    served.wait(served.post(f"/projects/{project}/ensembles", {})["job"]["id"], 300)
    ranked = served.post(f"/pools/{pool}/rankings", {"k": 20})
    served.wait(ranked["job"]["id"], 300)
    return project, pool, ranked["ranking"]["id"]


def timed(browser: Browser, address: str, path: str, secret: str) -> tuple[float, float, int]:
    """Seconds to the heading and to the end of all that is loaded, and kB received; the tab knows nothing yet."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.add_init_script(f"sessionStorage.setItem('bensemble.key', {secret!r})")
    page = context.new_page()
    finished: list[Request] = []
    page.on("requestfinished", lambda request: finished.append(request))
    start = time.perf_counter()
    page.goto(address + path, wait_until="commit")
    page.get_by_role("heading", level=1).first.wait_for()
    heading = time.perf_counter() - start
    expect(page.locator(".skeleton")).to_have_count(0, timeout=30_000)
    if page.locator(".chart .canvas").count():
        page.locator(".chart .canvas canvas").first.wait_for()
    loaded = time.perf_counter() - start
    # Asked for while the tab is still there; of what ends later nobody asks.
    received = sum(request.sizes()["responseBodySize"] for request in list(finished))
    context.close()
    return heading, loaded, received // 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args()
    executable = shutil.which("chromium")
    if executable is None:
        sys.exit("no chromium: apt-get install chromium")
    with (
        tempfile.TemporaryDirectory() as folder,
        running(f"sqlite:///{folder}/page.db", Path(folder)) as served,
        sync_playwright() as playwright,
    ):
        served.start_api()
        served.start("worker")
        example = served.post("/examples", {"name": "digits"})["project"]["id"]
        rounds = until(lambda: served.get(f"/projects/{example}/rounds")["items"])
        project, pool, ranking = large_pool(served, options.rows)
        address = f"http://127.0.0.1:{served.port}"
        secret = served.client.headers["Authorization"].removeprefix("Bearer ")
        browser = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
        places = {
            "start": "/",
            "project": f"/p/{example}",
            "label": f"/p/{example}/label/{rounds[0]['id']}",
            f"pool of {options.rows:,}": f"/p/{project}/pools/{pool}",
            f"ranking of {options.rows:,}": f"/p/{project}/rankings/{ranking}",
            "experiments": "/experiments",
            "activity": "/activity",
        }
        print("| screen | heading, s | all of it, s | received, kB |\n|---|---|---|---|")
        for name, path in places.items():
            found = sorted(timed(browser, address, path, secret) for _ in range(3))[1]
            print(f"| {name} | {found[0]:.2f} | {found[1]:.2f} | {found[2]} |")
        browser.close()


if __name__ == "__main__":
    main()
