"""The code of the README and of the pages about the service is run as it stands, and what they list is compared with
what there is."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.sessions import propose as propose_designs
from app.sessions import record as record_observation
from app.settings import Settings
from tests.app.conftest import Service
from tests.app.upping import ROOT, Up, clean_environment, service_up
from tests.app.working import on_sqlite

PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
}
OF_SERVICE = ("README.md", "docs/labelling.md", "docs/experiments.md", "docs/library.md")
RUN = re.compile(r"<!-- run: (\w+) -->\n```\w+\n(.*?)^```$", re.DOTALL | re.MULTILINE)
BLOCKS = dict(block for name in OF_SERVICE for block in RUN.findall(PAGES[name]))


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with service_up(tmp_path_factory.mktemp("service")) as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the reader types; one block finds the files of another."""
    return tmp_path_factory.mktemp("reader")


def run(command: list[str], code: str, folder: Path, **env: str) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # as in an activated environment
    environment = clean_environment(folder, PATH=path, **env)
    ran = subprocess.run(
        [*command, code], cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def as_reader(up: Up) -> dict[str, str]:
    return {"BENSEMBLE_URL": up.url, "BENSEMBLE_API_KEY": up.key}


def test_the_pages_have_the_blocks_that_are_run_here() -> None:
    assert list(BLOCKS) == [
        "label",
        "measure",
        "curl",
        "python",
        "tune_curl",
        "backtest_curl",
        "experiment_curl",
        "experiment_python",
        "library",
        "rank",
        "distil",
    ]


def test_the_first_example_names_five_rows_to_label(up: Up, folder: Path) -> None:
    said = run([sys.executable, "-c"], BLOCKS["label"], folder, **as_reader(up)).splitlines()
    assert len(said) == 5
    assert all(re.fullmatch(r"label row \d+ at \[.*\] score [01]\.\d+", line) for line in said), said


def test_the_second_example_measures_a_span(up: Up, folder: Path) -> None:
    said = run([sys.executable, "-c"], BLOCKS["measure"], folder, **as_reader(up))
    assert re.fullmatch(r"span 5\.\d ± 0\.\d\n", said), said


def test_the_first_page_is_short() -> None:
    assert len(PAGES["README.md"].split()) < 900


def test_the_loop_in_curl_ends_with_five_rows_to_label_a_tuned_ensemble_and_a_backtest(up: Up, folder: Path) -> None:
    code = BLOCKS["curl"] + BLOCKS["tune_curl"] + BLOCKS["backtest_curl"]
    said = run(["bash", "-euo", "pipefail", "-c"], code, folder, **as_reader(up)).splitlines()
    assert said[:3] == ["ready", "10", "succeeded"]
    assert said[3] == "rank,row,key,score,payload,value,measure"
    assert [re.match(r"(\d+),\d+,point-\d+,", line)[1] for line in said[4:9]] == list("12345")  # type: ignore[index]
    assert re.fullmatch(r"\{'lr': 0\.\d+, 'prior\.scale': \d+\.\d+\}", said[9]), said[9]
    assert said[10] == "400"
    assert "than random rows by" in said[11] or "than the default by" in said[11]
    assert said[12] in ("None", "{'name': 'top_k'}")


def test_the_loop_in_python_learns(up: Up, folder: Path) -> None:
    said = run([sys.executable, "-c"], BLOCKS["python"], folder, **as_reader(up)).splitlines()
    points = [re.fullmatch(r"(\d+) labels: accuracy (\S+)", line).groups() for line in said]  # type: ignore[union-attr]
    assert [n for n, _ in points] == ["20", "39", "58"]  # one of each round was skipped
    assert float(points[-1][1]) > float(points[0][1])


def test_the_experiment_in_curl_goes_on_until_the_rule_says_stop(up: Up, folder: Path) -> None:
    said = run(["bash", "-euo", "pipefail", "-c"], BLOCKS["experiment_curl"], folder, **as_reader(up)).splitlines()
    shown = [re.match(r"(\d+) digits: ([01]), span (\d\.\d+)$", line).groups() for line in said[:-1]]  # type: ignore[union-attr]
    assert [int(digits) for digits, _, _ in shown[:9]] == [7, 6, 5, 6, 5, 6, 5, 6, 5]
    assert 5 < float(shown[-1][2]) < 6
    assert said[-1].startswith("['sd of theta is 0.6")
    assert len((folder / "trials.csv").read_text().splitlines()) == len(shown) + 1


def test_the_experiment_in_python_simulates_learns_and_draws(up: Up, folder: Path) -> None:
    said = run([sys.executable, "-c"], BLOCKS["experiment_python"], folder, **as_reader(up)).splitlines()
    left = dict(re.fullmatch(r"(\w+) lists leave an sd of (\S+)", line).groups() for line in said[:2])  # type: ignore[union-attr, misc]
    assert float(left["adaptive"]) < float(left["random"])
    assert re.fullmatch(r"span 5\.\d+ ± 0\.6\d?", said[2]), said[2]
    assert (folder / "span.png").stat().st_size > 10_000


@on_sqlite
@pytest.mark.parametrize(
    ("command", "block"),
    [(["bash", "-euo", "pipefail", "-c"], "experiment_curl"), ([sys.executable, "-c"], "experiment_python")],
    ids=["curl", "python"],
)
def test_an_experiment_goes_on_where_every_proposal_is_a_job(
    service: Service, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: list[str], block: str
) -> None:
    for module in (propose_designs, record_observation):
        monkeypatch.setattr(module, "affordable_draft", lambda *_, **__: "it takes long")
    is_over = threading.Event()
    jobs: list[str] = []

    def work() -> None:
        while not is_over.wait(0.02):
            jobs.extend(service.run_jobs())

    worker = threading.Thread(target=work)
    worker.start()
    try:
        reader = {"BENSEMBLE_URL": str(service.client.base_url), "BENSEMBLE_API_KEY": service.key()}
        said = run(command, BLOCKS[block], tmp_path, **reader).splitlines()
    finally:
        is_over.set()
        worker.join()
    assert "sd of theta is 0.6" in said[-1] or re.fullmatch(r"span 5\.\d+ ± 0\.6\d?", said[-1])
    assert len(jobs) >= 9


def test_the_library_example_and_then_ranking_its_files(folder: Path) -> None:
    said = run([sys.executable, "-c"], BLOCKS["library"], folder)
    assert "tensor" in said
    lines = run(["bash", "-euc"], BLOCKS["rank"], folder).splitlines()
    assert lines[0] == "rank,row,key,score"
    assert len(lines) == 6
    said = run([sys.executable, "-c"], BLOCKS["distil"], folder)
    gap = re.search(r"1 member, probabilities off by (0\.\d+)$", said, re.MULTILINE)
    assert gap is not None
    assert float(gap[1]) < 0.05


def test_the_settings_table_is_complete_and_has_the_right_defaults() -> None:
    table = dict(re.findall(r"^\| `BENSEMBLE_(\w+)` \| (?:`([^`]*)`)? *\|", PAGES["docs/service.md"], re.MULTILINE))
    assert [name.lower() for name in table] == list(Settings.model_fields)
    shown = Settings(**{name.lower(): value for name, value in table.items()})
    default = Settings(**{name: field.default for name, field in Settings.model_fields.items()})
    assert shown.model_dump() == default.model_dump()


@pytest.mark.parametrize("name", PAGES)
def test_files_that_a_page_points_to_exist(name: str) -> None:
    page = PAGES[name]
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page):
        assert (ROOT / name).parent.joinpath(target).exists(), target
    for path in re.findall(r"`((?:bensemble_core|tests|docker|docs)/[\w/.-]*)`", page):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("name", PAGES)
def test_every_make_target_that_a_page_names_exists(name: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", PAGES[name], re.MULTILINE)) <= targets
    assert {"setup", "up", "demo", "test", "test-fast", "check", "soak", "bench"} <= targets
