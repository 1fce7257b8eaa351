"""Writes the lists that follow from the registries: `make lists`. A test says when one is old.

They are the tables of docs/ (between `<!-- table: NAME -->` and `<!-- end of table -->`), and what the library exports:
`__all__` and imports stay literal, so that type checkers and readers find every name.
"""

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import bensemble_core as bc

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def first_sentence(kind: Any) -> str:
    """Of a class's docstring, on one line."""
    text = " ".join((inspect.getdoc(kind) or "").split("\n\n", 1)[0].split())
    return re.split(r"(?<=[.:])\s(?=[A-Z`])|\.$", text, maxsplit=1)[0].rstrip(".:")


def table(entries: Mapping[str, Any], kind_of: Callable[[Any], Any]) -> str:
    rows = "".join(f"| `{name}` | {first_sentence(kind_of(entry))} |\n" for name, entry in entries.items())
    return f"| name | in a sentence |\n|---|---|\n{rows}"


TABLES: dict[str, Callable[[], str]] = {
    "models": lambda: table(bc.MODELS, lambda kind: kind),
    "posteriors": lambda: table(bc.POSTERIORS, lambda kind: kind),
    "acquisitions": lambda: table(bc.ACQUISITIONS, lambda entry: entry.options),
    "selections": lambda: table(bc.SELECTIONS, lambda entry: entry.options),
}


def with_tables(page: str) -> str:
    """The page with its tables as they should be."""
    return BLOCK.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}{found[3]}", page)


def exports() -> dict[str, set[str]]:
    """What each file has to export at least, by the registries."""
    posteriors = {kind.__name__ for kind in bc.POSTERIORS.values()}
    options = {entry.options.__name__ for entry in (*bc.ACQUISITIONS.values(), *bc.SELECTIONS.values())}
    formulas = {name for name in bc.ACQUISITIONS if callable(getattr(bc.acquisition, name, None))}
    return {
        "bensemble_core/__init__.py": posteriors,
        "bensemble_core/posteriors/__init__.py": posteriors,
        "bensemble_core/acquisition/__init__.py": options | formulas,
        "bensemble_core/models/__init__.py": {kind.__name__ for kind in bc.MODELS.values()},
    }


def missing(source: str, wanted: Iterable[str]) -> list[str]:
    """Those of the names that `__all__` lacks."""
    return sorted(set(wanted) - set(ast.literal_eval(_list(ast.parse(source)).value)))


def with_exports(source: str, wanted: Iterable[str]) -> str:
    """The module with these names in its `__all__`, and in the front door imported too; not yet sorted."""
    names = missing(source, wanted)
    lines = source.splitlines(keepends=True)
    lines.insert(_list(ast.parse(source)).lineno, "".join(f'    "{name}",\n' for name in names))
    text = "".join(lines)
    imported = "from bensemble_core.posteriors import (\n"
    return text.replace(imported, imported + "".join(f"    {name},\n" for name in names))


def _list(tree: ast.Module) -> ast.Assign:
    """The assignment of `__all__`."""
    assigned = (node for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name))
    return next(node for node in assigned if getattr(node.targets[0], "id", None) == "__all__")


def main() -> None:
    for path in sorted((ROOT / "docs").glob("*.md")):
        before = path.read_text()
        if (after := with_tables(before)) != before:
            path.write_text(after)
            print(f"wrote {path.relative_to(ROOT)}")
    for name, wanted in exports().items():
        path = ROOT / name
        if missing(path.read_text(), wanted):
            path.write_text(with_exports(path.read_text(), wanted))
            for command in (["check", "--quiet", "--select", "I,RUF022", "--fix"], ["format", "--quiet"]):
                subprocess.run([sys.executable, "-m", "ruff", *command, str(path)], check=True)
            print(f"wrote {name}")


if __name__ == "__main__":
    main()
