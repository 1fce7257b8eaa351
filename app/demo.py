"""`bensemble demo`: active learning on handwritten digits beside a random control, all of it over REST.

Two projects start from the same 20 labels and get 20 more a round; one asks for the rows that are most
worth a label and names no method, the other for any rows. Both are measured on 500 digits that neither may choose.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from app.errors import Problem
from app.examples.digits import DARKEST, Digits, load_digits
from app.settings import Settings, get_settings

N_SEED_LABELS, K = 20, 20
START_SECONDS = 90.0
PROJECT = {
    "task": {"kind": "classification", "classes": [str(digit) for digit in range(10)]},
    "input": {"shape": [64]},
}
STRATEGIES: dict[str, dict[str, Any]] = {
    "active": {},  # names nothing: what the service chooses by itself
    "random": {"acquisition": {"name": "random"}, "selection": {"name": "top_k"}},
}
TITLES = {"active": "the service's choice", "random": "random control"}


class DemoFailed(Exception):
    """Something is missing or the service refused; the message is all there is to say."""


def run_demo(arguments: argparse.Namespace) -> int:
    console = Console(highlight=False, soft_wrap=True)
    started = time.monotonic()
    try:
        digits = _digits()
        most = (len(digits.pool_labels) - N_SEED_LABELS) // K
        if not 1 <= arguments.rounds <= most:
            raise DemoFailed(f"--rounds is from 1 to {most}: each takes {K} of the digits that are left")
        with _service(arguments, console) as (url, key), _Api(url, key) as api:
            curves = _compare(api, digits, arguments.rounds, console)
    except DemoFailed as error:
        print(f"bensemble demo: {error}", file=sys.stderr)
        return 2
    except httpx.HTTPError as error:
        print(f"bensemble demo: the service stopped answering ({error})", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nbensemble demo: stopped", file=sys.stderr)
        return 130
    _print_curves(curves, console)
    _draw(curves, arguments.plot, console)
    console.print(f"{time.monotonic() - started:.0f} s in all")
    return _judge(curves, console)


def _digits() -> Digits:
    try:
        return load_digits()
    except Problem as problem:
        raise DemoFailed(problem.detail) from None


def _scaled(rows: NDArray[np.float32]) -> list[list[float]]:
    """From 0 to 1, in few characters."""
    return [[round(number / DARKEST, 4) for number in row] for row in rows.tolist()]


@dataclass(frozen=True, kw_only=True)
class Point:
    n_labels: int
    accuracy: float
    nll: float


Curve = list[Point]


def _compare(api: "_Api", digits: Digits, rounds: int, console: Console) -> dict[str, Curve]:
    """Round by round for both projects, so that one's ranking runs while the other trains."""
    learners = [_Learner(api, name, digits) for name in STRATEGIES]
    with _Bars(console, rounds + 1, learners) as bars:
        for learner in learners:
            learner.begin()
        for number in range(rounds + 1):
            for learner in learners:
                bars.follow(learner)
            if number < rounds:
                for learner in learners:
                    learner.open_round(number + 1)
                for learner in learners:
                    learner.label_round()
    return {learner.name: learner.curve() for learner in learners}


class _Learner:
    """One project, and an annotator who knows every label."""

    def __init__(self, api: "_Api", name: str, digits: Digits) -> None:
        self.name = name
        self._api, self._digits = api, digits
        self._project_id = self._pool_id = self._round_id = ""
        self._ranking_job = self.training_job = ""

    def begin(self) -> None:
        api, digits = self._api, self._digits
        self._project_id = api.post("/projects", {"name": f"demo: {TITLES[self.name]}", **PROJECT})["id"]
        pools = f"/projects/{self._project_id}/pools"
        self._pool_id = api.post(pools, {"name": "digits", "rows": _scaled(digits.pool_rows)})["id"]
        measured = {"rows": _scaled(digits.evaluation_rows), "labels": digits.evaluation_labels}
        api.post(pools, {"name": "kept for measuring", "purpose": "evaluation", **measured})
        labels = [self._answer(row) | {"pool_id": self._pool_id} for row in range(N_SEED_LABELS)]
        api.post(f"/projects/{self._project_id}/labels", {"labels": labels})
        self.training_job = api.post(f"/projects/{self._project_id}/ensembles", {})["job"]["id"]

    def open_round(self, number: int) -> None:
        wanted = {"pool_id": self._pool_id, "k": K, "seed": number, **STRATEGIES[self.name]}
        opened = self._api.post(f"/projects/{self._project_id}/rounds", wanted)
        self._round_id, self._ranking_job = opened["round"]["id"], opened["job"]["id"]

    def label_round(self) -> None:
        """The last label completes the round, and the service trains again by itself."""
        self._api.wait(self._ranking_job)
        items = self._api.post(f"/rounds/{self._round_id}/next", {"annotator": "demo", "count": K})["items"]
        labels = [self._answer(item["row"]) for item in items]
        posted = self._api.post(f"/rounds/{self._round_id}/labels", {"labels": labels})
        (self.training_job,) = posted["triggered"]

    def follow_training(self, report: Callable[[float], None]) -> Point:
        """The point that the finished training adds to the curve."""
        self._api.wait(self.training_job, report)
        return self.curve()[-1]

    def curve(self) -> Curve:
        points = self._api.get(f"/projects/{self._project_id}/learning-curve")["points"]
        return [
            Point(n_labels=p["n_labels"], accuracy=p["metrics"]["accuracy"], nll=p["metrics"]["nll"]) for p in points
        ]

    def _answer(self, row: int) -> dict[str, Any]:
        return {"row": row, "value": self._digits.pool_labels[row], "annotator": "demo"}


class _Bars:
    """A bar for each project on a terminal, a line for each training elsewhere."""

    def __init__(self, console: Console, n_trainings: int, learners: list[_Learner]) -> None:
        columns = (TextColumn("{task.description:<22}"), BarColumn(), TextColumn("{task.fields[state]}"))
        self._console = console
        self._bars = Progress(*columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal)
        self._tasks: dict[str, TaskID] = {
            learner.name: self._bars.add_task(TITLES[learner.name], total=n_trainings, state="") for learner in learners
        }
        self._done = dict.fromkeys(self._tasks, 0)

    def __enter__(self) -> "_Bars":
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def follow(self, learner: _Learner) -> None:
        task, done = self._tasks[learner.name], self._done[learner.name]
        point = learner.follow_training(lambda share: self._bars.update(task, completed=done + share))
        self._done[learner.name] += 1
        state = f"{point.n_labels:4d} labels  accuracy {point.accuracy:.3f}"
        self._bars.update(task, completed=done + 1, state=state)
        if self._bars.disable:
            self._console.print(f"{TITLES[learner.name]:<22} {state}")


class _Api:
    """The REST interface as the demo uses it; every refusal ends the demo with the service's own words."""

    def __init__(self, url: str, key: str) -> None:
        self._client = httpx.Client(
            base_url=f"{url}/v1", headers={"Authorization": f"Bearer {key}"} if key else {}, timeout=60
        )

    def __enter__(self) -> "_Api":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def get(self, path: str) -> Any:
        return self._checked(self._client.get(path))

    def post(self, path: str, body: Any) -> Any:
        return self._checked(self._client.post(path, json=body))

    def wait(self, job_id: str, report: Callable[[float], None] = lambda share: None) -> None:
        while True:
            job = self.get(f"/jobs/{job_id}")
            if job["status"] == "succeeded":
                return
            if job["status"] in ("failed", "cancelled"):
                reason = (job["error"] or {}).get("detail", "no reason was given")
                raise DemoFailed(f"the {job['kind']} job was {job['status']}: {reason}")
            progress = job["progress"] or {}
            if progress.get("total"):
                report(min(1.0, progress["done"] / progress["total"]))
            time.sleep(0.1)

    def _checked(self, response: httpx.Response) -> Any:
        if response.is_success:
            return response.json()
        try:
            detail = response.json()["detail"]
        except (ValueError, KeyError, TypeError):
            detail = response.text[:200]
        request = response.request
        raise DemoFailed(f"{request.method} {request.url.path} answered {response.status_code}: {detail}")


@contextmanager
def _service(arguments: argparse.Namespace, console: Console) -> Iterator[tuple[str, str]]:
    """URL and key: of the service that answers, or else of one started for the demo and stopped after it."""
    settings = get_settings()
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(settings.host, settings.host)
    url = (arguments.url or f"http://{host}:{settings.port}").rstrip("/")
    if _answers(url):
        console.print(f"Using the service at {url}")
        with _key(arguments, settings) as key:
            yield url, key
    elif arguments.url:
        raise DemoFailed(f"no Bensemble answers at {url}; start it with `make up`, or leave out --url")
    else:
        console.print(f"No service answers at {url}: starting one on a free port, with its data in a temporary folder")
        with _own_service() as (own_url, key):
            console.print(f"Started {own_url}")
            yield own_url, key
            console.print("Stopping the service and removing its data")


def _answers(url: str) -> bool:
    try:
        answer = httpx.get(f"{url}/readyz", timeout=5)
        return answer.status_code == 200 and answer.json() == {"status": "ready"}
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return False


@contextmanager
def _key(arguments: argparse.Namespace, settings: Settings) -> Iterator[str]:
    """The key that was given; else one made in the embedded database, if that is at hand, and revoked afterwards."""
    given = arguments.key or os.environ.get("BENSEMBLE_API_KEY", "")
    if given or not settings.auth:
        yield given
        return
    embedded = settings.database_url.removeprefix("sqlite:///")
    if arguments.url or embedded == settings.database_url or not Path(embedded).exists():
        raise DemoFailed("the service needs a key: pass --key or set BENSEMBLE_API_KEY")
    from app.db.engine import Database
    from app.db.tables import ApiKey
    from app.db.types import database_time
    from app.web.auth import create_key

    database = Database.connect(settings.database_url)
    with database.write() as session:
        key, secret = create_key(session, name="demo", scopes=["write"])
        key_id = key.id
    try:
        yield secret
    finally:
        with database.write() as session:
            session.get_one(ApiKey, key_id).revoked_at = database_time(session)
        database.dispose()


@contextmanager
def _own_service() -> Iterator[tuple[str, str]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bensemble-demo-")))
        said, log = folder / "said", folder / "log"
        elsewhere = ("BENSEMBLE_DATABASE_URL", "BENSEMBLE_STORAGE_URL", "BENSEMBLE_AUTH")
        env = {name: value for name, value in os.environ.items() if name not in elsewhere}
        env |= {"BENSEMBLE_DATA_DIR": str(folder / "data"), "BENSEMBLE_HOST": "127.0.0.1", "BENSEMBLE_PORT": "0"}
        wrapper = [sys.executable, "-m", "app.supervisor", "--die-with-parent", str(os.getpid())]
        with said.open("wb") as out, log.open("wb") as errors:
            process = subprocess.Popen(
                [*wrapper, sys.executable, "-m", "app.cli", "up"],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                start_new_session=True,  # Ctrl-C is for the demo, which then stops the service
            )
        stack.callback(_stop, process)
        yield _greeting(process, said, log)


def _greeting(process: "subprocess.Popen[bytes]", said: Path, log: Path) -> tuple[str, str]:
    give_up = time.monotonic() + START_SECONDS
    while time.monotonic() < give_up:
        text = said.read_text()
        url, key = re.search(r"is up:\s+(http\S+)", text), re.search(r"\b(bk_\S+)", text)
        if url and key:
            return url[1], key[1]
        if process.poll() is not None:
            break
        time.sleep(0.1)
    state = "took too long to start" if process.poll() is None else f"ended with code {process.returncode}"
    raise DemoFailed(f"the service {state}; the end of its log:\n{log.read_text()[-2000:]}")


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def area(curve: Curve) -> float:
    """Mean accuracy over the labels spent: the area under the curve, divided by its width."""
    n, accuracy = [p.n_labels for p in curve], [p.accuracy for p in curve]
    return float(np.trapezoid(accuracy, n) / (n[-1] - n[0]))


def _print_curves(curves: dict[str, Curve], console: Console) -> None:
    table = Table(title="accuracy and negative log-likelihood on 500 digits kept aside")
    table.add_column("labels", justify="right")
    for name in curves:
        table.add_column(f"{name}\naccuracy", justify="right")
        table.add_column(f"{name}\nnll", justify="right")
    for points in zip(*curves.values(), strict=True):
        cells = [cell for point in points for cell in (f"{point.accuracy:.3f}", f"{point.nll:.3f}")]
        table.add_row(str(points[0].n_labels), *cells)
    table.add_section()
    table.add_row("area", *[cell for curve in curves.values() for cell in (f"{area(curve):.4f}", "")])
    console.print(table)


def _judge(curves: dict[str, Curve], console: Console) -> int:
    last = {name: curve[-1].accuracy for name, curve in curves.items()}
    areas = {name: area(curve) for name, curve in curves.items()}
    won = last["active"] > last["random"] and areas["active"] > areas["random"]
    verdict = "Active learning beats the random control" if won else "Active learning did NOT beat the random control"
    console.print(
        f"{verdict}: last accuracy {last['active']:.3f} against {last['random']:.3f}, "
        f"area {areas['active']:.4f} against {areas['random']:.4f}"
    )
    return 0 if won else 1


def _draw(curves: dict[str, Curve], path: Path, console: Console) -> None:
    try:
        import matplotlib
    except ImportError:
        console.print(_text_plot(curves), markup=False)
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 3.8), dpi=100, layout="constrained")
    for (name, curve), colour, marker in zip(curves.items(), ("#0b6e99", "#b0573a"), "os", strict=True):
        label = f"{TITLES[name]} (area {area(curve):.3f})"
        axes.plot([p.n_labels for p in curve], [p.accuracy for p in curve], color=colour, marker=marker, label=label)
    axes.set(xlabel="labels", ylabel="accuracy on 500 digits", title="What the same number of labels is worth")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    try:
        figure.savefig(path)
    except OSError as error:
        console.print(f"The picture could not be written: {error}")
        console.print(_text_plot(curves), markup=False)
    else:
        console.print(f"The curves are drawn in {path}")
    pyplot.close(figure)


def _text_plot(curves: dict[str, Curve], height: int = 12) -> str:
    """Accuracy upwards, labels to the right; a is active, r is random, * is both."""
    values = [point.accuracy for curve in curves.values() for point in curve]
    low, high = min(values), max(values)
    step = (high - low) / (height - 1) or 1.0
    columns = []
    for points in zip(*curves.values(), strict=True):
        marks = [" "] * height
        for name, point in zip(curves, points, strict=True):
            level = round((point.accuracy - low) / step)
            marks[level] = name[0] if marks[level] == " " else "*"
        columns.append(marks)
    lines = [
        f"{low + level * step:6.3f} |" + "".join(f"{marks[level]:>5}" for marks in columns)
        for level in reversed(range(height))
    ]
    labels = [point.n_labels for point in next(iter(curves.values()))]
    return "\n".join([*lines, " " * 7 + "+" + "-" * 5 * len(columns), " " * 8 + "".join(f"{n:5d}" for n in labels)])
