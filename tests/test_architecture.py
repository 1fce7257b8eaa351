"""docs/architecture.md draws what there is: every folder, and walks whose every step is an import or a registration."""

import ast
import re
import tomllib
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
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
        return "publish" in called(here) and bool(published(here))
    return False


def published(path: str) -> set[str]:
    """Names of the events that a file makes."""
    return called(path) & {event.__name__ for event in LISTENERS}


def hears(publisher: str, listener: str) -> bool:
    """Whether a function of `listener` is called for an event that `publisher` publishes."""
    paths = [path for event, paths in LISTENERS.items() if event.__name__ in published(publisher) for path in paths]
    return any(path.partition(":")[0] == module_of(listener) for path in paths)


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
        if before == ["app/listeners.py"]:
            assert hears(passed[-2][1], path), f"{path} does not hear what {passed[-2][1]} publishes"
        passed.append((depth, path))


def test_a_step_that_nothing_leads_to_is_noticed() -> None:
    assert leads_to("app/pools/routes.py", "app/pools/receive_file.py")
    assert not leads_to("app/pools/receive_file.py", "app/pools/routes.py")
    assert not leads_to("app/pools/routes.py", "app/listeners.py")
    assert not leads_to("app/queue/queue.py", "app/queue/handlers.py")
    assert not leads_to("app/rankings/routes.py", "bensemble_core/ranking/ranking.py")
    assert hears("app/rankings/run.py", "app/rounds/open.py")
    assert not hears("app/rankings/run.py", "app/labels/record_given.py")


FOLDERS = [
    path.parent.relative_to(ROOT)
    for package in ("app", "bensemble_core")
    for path in sorted((ROOT / package).rglob("__init__.py"))
    if "node_modules" not in path.parts
]


def drawn(package: str) -> set[str]:
    """Files and folders of a package's drawing."""
    return {name for line in drawing(package).splitlines() for name in names_of(line)}


def drawing(package: str) -> str:
    found = re.search(rf"^{package}/\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def names_of(line: str) -> list[str]:
    """What stands on a line of a drawing before its description."""
    return re.split(r"\s{2,}", line.strip())[0].split()


@pytest.mark.parametrize("folder", FOLDERS, ids=str)
def test_a_folder_is_drawn_and_says_what_lives_there(folder: Path) -> None:
    assert folder.name == folder.parts[0] or f"{folder.name}/" in drawn(folder.parts[0])
    assert ast.get_docstring(ast.parse((ROOT / folder / "__init__.py").read_text()))


@pytest.mark.parametrize("package", ["app", "bensemble_core"])
def test_what_lies_in_a_root_is_drawn_and_what_is_drawn_is_there(package: str) -> None:
    files = {path.stem for path in (ROOT / package).glob("*.py")} - {"__init__"}
    folders = {f"{folder.name}/" for folder in FOLDERS if folder.parts[0] == package} - {f"{package}/"}
    assert drawn(package) == files | folders


@pytest.mark.parametrize("package", ["app", "bensemble_core"])
def test_every_folder_with_code_is_a_package_that_contracts_see(package: str) -> None:
    folders = {path.parent.relative_to(ROOT) for path in (ROOT / package).rglob("*.py")}
    migrations = Path("app/db/migrations")  # run by Alembic, imported by nobody
    page = Path("app/ui")  # no Python but what its packages bring along
    assert {folder for folder in folders if not {migrations, page} & {folder, *folder.parents}} == {
        folder for folder in FOLDERS if folder.parts[0] == package
    }


CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]


def layers(package: str) -> list[set[str]]:
    """Of a package's own contract, lowest first."""
    (found,) = (contract for contract in CONTRACTS if contract.get("containers") == [package])
    return [set(layer.split(" | ")) for layer in reversed(found["layers"])]


@pytest.mark.parametrize("package", ["app", "bensemble_core"])
def test_the_drawing_has_the_order_of_the_contract(package: str) -> None:
    order = {name: i for i, layer in enumerate(layers(package)) for name in layer}
    lines = [line for line in drawing(package).splitlines() if re.match(r"  \w", line)]  # of the root
    ranks = [[order[name.rstrip("/")] for name in names_of(line)] for line in lines]
    assert all(rank == sorted(rank) for rank in ranks)
    assert all(max(above) <= min(below) for above, below in pairwise(ranks)), list(zip(lines, ranks, strict=True))


def test_labelling_and_measuring_are_those_of_the_drawing() -> None:
    (contract,) = (each for each in CONTRACTS if each["name"] == "Labelling and measuring do not know each other")
    for word, modules in (("labelling", contract["source_modules"]), ("measuring", contract["forbidden_modules"])):
        (line,) = (line for line in drawing("app").splitlines() if line.endswith(f" {word}"))
        assert {f"app.{name.rstrip('/')}" for name in names_of(line)} == set(modules)


@pytest.mark.parametrize(("tests", "package"), [("tests/core", "bensemble_core"), ("tests/app", "app")])
def test_tests_lie_in_the_folders_of_what_they_test(tests: str, package: str) -> None:
    for path in (ROOT / tests).rglob("test_*.py"):
        assert (ROOT / package / path.parent.relative_to(ROOT / tests)).is_dir(), path
