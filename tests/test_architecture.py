"""docs/architecture.md draws what there is: every folder, and walks whose every step is an import or a registration."""

import ast
import re
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from app.listeners import LISTENERS
from app.queue.handlers import HANDLERS

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
STEP = re.compile(r"^( *)- `(\w[\w/]*\.py)` ", re.MULTILINE)
WALKS = dict(re.findall(r"^### (.+?)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))


def module_of(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@cache
def tree(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text())


def taken(module: str, name: str) -> Any:
    """What `from module import name` gives."""
    found = getattr(import_module(module), name, None)
    return import_module(f"{module}.{name}") if found is None and find_spec(f"{module}.{name}") else found


def defined_in(found: Any) -> str | None:
    return found.__name__ if isinstance(found, ModuleType) else getattr(found, "__module__", None)


@cache
def imported(path: str) -> frozenset[str]:
    """Modules whose names a file uses: those it imports, and those that define what it takes from a package."""
    names: set[str] = set()
    bound: dict[str, str] = {}  # name in the file -> module or package
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(("app", "bensemble_core")):
            names.add(node.module)
            for alias in node.names:
                found = taken(node.module, alias.name)
                names.add(str(defined_in(found)))
                if isinstance(found, ModuleType):
                    bound[alias.asname or alias.name] = found.__name__
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith(("app", "bensemble_core")):
                    names.add(alias.name)
                    bound[alias.asname or alias.name] = alias.name
    for node in ast.walk(tree(path)):  # bc.conclude, design.Experiment
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in bound:
            names.add(str(defined_in(taken(bound[node.value.id], node.attr))))
    return frozenset(names)


def texts(path: str) -> set[str]:
    return {node.value for node in ast.walk(tree(path)) if isinstance(node, ast.Constant) and type(node.value) is str}


def called(path: str) -> set[str]:
    """Names of the classes and functions that a file calls."""
    calls = (node.func for node in ast.walk(tree(path)) if isinstance(node, ast.Call))
    return {func.id for func in calls if isinstance(func, ast.Name)}


def leads_to(here: str, there: str) -> bool:
    """By an import, by a function's path, by the kind of a job, or by an event that it publishes."""
    module, said = module_of(there), texts(here)
    if module in imported(here) or any(text.partition(":")[0] == module for text in said if ":" in text):
        return True
    if there == "app/queue/handlers.py":
        return bool(said & set(HANDLERS))
    if there == "app/listeners.py":
        return "publish" in called(here) and bool(called(here) & {event.__name__ for event in LISTENERS})
    return False


def steps(walk: str) -> list[tuple[int, str]]:
    return [(len(indent), path) for indent, path in STEP.findall(walk)]


def test_there_are_four_walks_and_every_line_of_a_list_is_a_step() -> None:
    assert list(WALKS) == ["A pool upload", "A ranking", "An observation", '`bc.fit("swag", …)`, then `.sample(20)`']
    for walk in WALKS.values():
        assert len(steps(walk)) == len(re.findall(r"^ *- ", walk, re.MULTILINE)) > 10


@pytest.mark.parametrize("name", WALKS)
def test_each_step_of_a_walk_imports_or_registers_the_next(name: str) -> None:
    passed: list[tuple[int, str]] = []  # the way down to the step before, and that step
    for depth, path in steps(WALKS[name]):
        assert (ROOT / path).is_file(), path
        while passed and passed[-1][0] > depth:
            passed.pop()
        before = [passed.pop()[1]] if passed and passed[-1][0] == depth else []
        before += [passed[-1][1]] if passed else []
        assert not before or any(leads_to(each, path) for each in before), f"{before} do not lead to {path}"
        passed.append((depth, path))


def test_a_step_that_nothing_leads_to_is_noticed() -> None:
    assert leads_to("app/pools/routes.py", "app/pools/receive_file.py")
    assert not leads_to("app/pools/receive_file.py", "app/pools/routes.py")
    assert not leads_to("app/pools/routes.py", "app/listeners.py")
    assert not leads_to("app/queue/queue.py", "app/queue/handlers.py")
    assert not leads_to("app/rankings/routes.py", "bensemble_core/ranking/ranking.py")


FOLDERS = [
    path.parent.relative_to(ROOT)
    for package in ("app", "bensemble_core")
    for path in sorted((ROOT / package).rglob("__init__.py"))
]


def drawn(package: str) -> set[str]:
    """Files and folders of a package's drawing: what stands on a line before its description."""
    drawing = re.search(rf"^{package}/\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert drawing is not None
    return {name for line in drawing[1].splitlines() for name in re.split(r"\s{2,}", line.strip())[0].split()}


@pytest.mark.parametrize("folder", FOLDERS, ids=str)
def test_a_folder_is_drawn_and_says_what_lives_there(folder: Path) -> None:
    assert folder.name == folder.parts[0] or f"{folder.name}/" in drawn(folder.parts[0])
    assert ast.get_docstring(ast.parse((ROOT / folder / "__init__.py").read_text()))


@pytest.mark.parametrize("package", ["app", "bensemble_core"])
def test_what_lies_in_a_root_is_drawn_and_what_is_drawn_is_there(package: str) -> None:
    files = {path.stem for path in (ROOT / package).glob("*.py")} - {"__init__"}
    folders = {f"{folder.name}/" for folder in FOLDERS if folder.parts[0] == package} - {f"{package}/"}
    assert drawn(package) == files | folders


@pytest.mark.parametrize(("tests", "package"), [("tests/core", "bensemble_core"), ("tests/app", "app")])
def test_tests_lie_in_the_folders_of_what_they_test(tests: str, package: str) -> None:
    for path in (ROOT / tests).rglob("test_*.py"):
        assert (ROOT / package / path.parent.relative_to(ROOT / tests)).is_dir(), path
